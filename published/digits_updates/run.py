"""What training adds on digits, weights and outputs: `python -m published.digits_updates.run`.

Four questions are asked of the runs that `dvc repro vision_spectra@digits` makes, and of a few like
them. How far is the update of a product below the initial matrix, at the middle of the initial
spectrum? (CIFAR-10 is measured as well, from the spectra that are published.) Which rank has the
trained product itself? What does the number of classes do, with the same images and steps and the
digits in groups? And how near are the outputs of an update cut to rank r to those of the full one:
nearer than outputs of the trained weights with a random change that has the spectrum of what is cut
off, scaled until the training loss is that of rank r? Tables, figures, measures and where they come
from are kept beside this program; claims and report read them. It takes four minutes of one core.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from safetensors.torch import save_file

from lib.files.params import load_yaml, read_params
from lib.files.runs import Run, open_run, open_runs
from lib.files.tables import compact, read_table, write_json, write_table
from lib.matrices import stacks
from lib.matrices.ranks import stable_rank
from lib.matrices.spectra import product_singular_values
from lib.pages.bars import read_bars
from lib.pages.measures import Row, rows_of, write_measures
from lib.pages.style import as_svg
from lib.training.devices import generator, use_threads
from lib.vision.arrow import PIXELS
from lib.vision.datasets import dataset_file
from lib.vision.figures.updates import outputs_of_ranks, ranks_by_classes, ranks_of_products
from lib.vision.functions import added, distances, in_random_directions, times_at_loss, updates
from lib.vision.images import Images, channel_statistics, read_images, standardise
from lib.vision.measures import LABELS, PRODUCTS, growth_through_training, named, plain_typed
from lib.vision.trainings import Training, publish
from lib.vision.variants import Variant
from lib.vision.vit import MATRICES, Weights, score
from lib.work.cells import joined, key_of, spread_cells
from lib.work.command import run
from lib.work.compute import write_figures
from published.digits_optimizers.run import ranks
from stages import spectra
from stages.vision.train import Train, train_together
from tools.publish import provenance

OUT = Path("published/digits_updates")
COMMAND = "python -m published.digits_updates.run"
CLAIMS = Path(__file__).parents[2] / "stages/vision/claims.yaml"  # whose bar is drawn
TRAIN = "vision.digits.train"
SCALE = 1.0  # of the outputs and of the numbers of classes
GROUPS = (2, 5, 10)  # in which the ten digits are, in order
N_SEEDS = 3  # of the outputs and of the numbers of classes
RANKS = (1, 4, 16)
TOGETHER = 400  # images, which stay in the processor's cache
TIMES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
PLACE = ["data", "matrix", "of", "init_scale", "seed", "layer", "head"]
OVER_INITIAL = {  # the measures of products, by the column whose values are divided
    "rank": "rank_over_initial",
    "largest": "largest_over_initial",
    "middle": "middle_over_initial",
}
HEADLINES = {"trained_rank_over_initial_KQ": ("rank_over_initial", "trained W_KQ")}


def main(
    data: Path = Path("data/vision/digits"),
    cifar: Path = Path("published/cifar10_short/tables/spectra.parquet"),
    folder: Path = Path(".dvc/tmp/digits_updates"),
) -> None:
    use_threads(1)
    begun = time.monotonic()
    params = read_params(TRAIN, Train)
    params = replace(params, n_seeds=N_SEEDS, init_scales=(SCALE,), controls=())
    plain = [
        one for one in open_runs(data / "runs", "vision") if one.layout.cell["control"] == "none"
    ]
    [compared] = [one.folder for one in plain if one.layout.cell["init_scale"] == SCALE]
    images = dataset_file(data / "images")
    jobs = [(outputs, images, compared, number) for number in range(N_SEEDS)]
    parts = spread_cells({"": jobs}, label="outputs", unit="seed")[""]
    found = {"digits": read_table(data / "spectra.parquet"), "cifar": read_table(cifar)}
    tables = {
        "products": products(found, plain),
        "classes": classes(data, folder, params),
        "outputs": joined(parts, "outputs"),
        "scaled": joined(parts, "scaled"),
    }
    tables = {name: compact(table) for name, table in tables.items()}
    for name, table in tables.items():
        write_table(table, OUT / "tables" / f"{name}.parquet")
    write_measures(measured(tables), OUT, HEADLINES)
    write_figures(OUT / "figures", drawings(OUT), as_svg)
    section = load_yaml(Path("params.yaml"))["vision"]["digits"]
    note = provenance(section | {"groups": GROUPS}, len(read_images(images).train_labels))
    hours = (time.monotonic() - begun) / 3600
    write_json(note | {"command": COMMAND, "wall_hours": hours}, OUT / "provenance.json")


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn, from what is kept in the folder."""
    tables = {path.stem: read_table(path) for path in (folder / "tables").iterdir()}
    asked = read_bars(CLAIMS)["trained_rank_is_not_low"]
    return {
        "products": partial(ranks_of_products, tables["products"], SCALE, asked),
        "classes": partial(ranks_by_classes, tables["classes"]),
        "outputs": partial(outputs_of_ranks, tables["outputs"], tables["scaled"]),
    }


def products(found: dict[str, pd.DataFrame], runs: Iterable[Run]) -> pd.DataFrame:
    """Stable rank, largest and middle singular value of every product of the plain runs.

    They are taken of the initial product, of the last update, of a Gaussian one and, where there
    are runs, of the trained product. The middle is that of the initial spectrum.
    """
    tables = []
    for name, table in found.items():
        ends = (table["step"] == table["step"].max()) | (table["of"] == "initial")
        plain = table["matrix"].isin(PRODUCTS) & (table["control"] == "none")
        tables.append(table[ends & plain].assign(data=name))
    for one in runs:
        final = one.weights(-1)
        for matrix, (a, b) in one.layout.products.items():
            sigma = product_singular_values(final[a], final[b])
            told = {**one.layout.cell, "data": "digits", "matrix": matrix, "of": "trained"}
            axes = one.layout.matrices[a][:-2]
            tables.append(stacks.rows_of(sigma, axes, one.layout.seeds, told))
    every = pd.concat(tables, ignore_index=True)
    values = every["singular_values"]
    middle = values[every["of"] == "initial"].map(len).min() // 2
    numbers = {
        "rank": [stable_rank(sigma[None]).item() for sigma in values],
        "largest": [sigma[0] for sigma in values],
        "middle": [sigma[middle - 1] for sigma in values],
    }
    return every[PLACE].assign(**numbers)


def outputs(dataset: Path, folder: Path, number: int) -> dict[str, pd.DataFrame]:
    """Losses and outputs of a training cut to each rank, and of random changes of equal loss."""
    images = read_images(dataset)
    statistics = channel_statistics(images.train_images)
    train, test = (standardise(x, *statistics) for x in (images.train_images, images.test_images))
    one = open_run(folder)
    initial, final = ({k: w[number] for k, w in one.weights(i).items()} for i in (0, -1))
    told = {"seed": one.layout.seeds[number], "init_scale": SCALE}
    start = final | {name: initial[name] for name in MATRICES}
    learned = updates(initial, final)
    drawn = {
        kind: in_random_directions(learned, generator(told["seed"], kind))
        for kind in ("random", "second random")
    }

    def loss(model: Weights) -> float:
        return float(score(model, train, images.train_labels, batch_size=TOGETHER)["test_loss"])

    def loss_of(changed: Callable[[float], Weights], times: float) -> float:
        return loss(changed(times))

    def row(model: Weights) -> dict[str, float]:
        scores = score(model, test, images.test_labels)
        numbers = {name: float(found) for name, found in scores.items()}
        return {"train_loss": loss(model), **numbers, **distances(model, final, test)}

    rows = []
    for rank in RANKS:
        rows.append({"rank": rank, "kind": "cut", **row(added(start, learned, slice(rank)))})
        level = rows[-1]["train_loss"]
        for kind, parts in drawn.items():
            changed = partial(added, final, parts, slice(rank, None))
            times = times_at_loss(cache(partial(loss_of, changed)), level)
            rows.append({"rank": rank, "kind": kind, "times": times, **row(changed(times))})
    scaled = [
        {"kind": kind, "times": times, "train_loss": loss(added(start, of, slice(None), times))}
        for kind, of in (("learned", learned), ("random", drawn["random"]))
        for times in TIMES
    ]
    tables = {"outputs": rows, "scaled": scaled}
    return {name: pd.DataFrame(found).assign(**told) for name, found in tables.items()}


def classes(data: Path, folder: Path, params: Train) -> pd.DataFrame:
    """Stable ranks of updates and losses, step by step, with the digits in groups.

    Each digit as a class of its own is what the data set's runs have learned.
    """
    images = read_images(dataset_file(data / "images"))
    tables = []
    for n in GROUPS:
        place = data if n == max(GROUPS) else folder / f"{n}"
        if place != data:
            train_groups(images, n, place, params)
        runs = open_runs(place / "runs", "vision")
        steps = pd.concat([one.steps.assign(**one.layout.cell) for one in runs])
        told = steps[steps["seed"].isin(params.seeds) & (steps["init_scale"] == SCALE)]
        told = told[told["control"].isin(LABELS)].drop(columns=["snapshot", "variant"])
        found = ranks(read_table(place / "spectra.parquet"))
        updates_alone = found[found["of"] == "update"].drop(columns="of")
        tables.append(told.merge(updates_alone).assign(n_classes=n))
    return pd.concat(tables, ignore_index=True)


def train_groups(images: Images, n: int, place: Path, params: Train) -> None:
    """Train on the digits in n groups, in the fewest also permuted; what was trained is kept."""
    dataset = place / "images" / PIXELS
    dataset.parent.mkdir(parents=True, exist_ok=True)
    groups = {name: vars(images)[name] * n // 10 for name in ("train_labels", "test_labels")}
    save_file(vars(images) | groups, dataset)
    key = key_of(train_together, dataset)
    variants = [Variant(SCALE), Variant(SCALE, labels="permuted")]
    for variant in variants if n == min(GROUPS) else variants[:1]:
        for seed in params.seeds:
            train_together(TRAIN, dataset, params, [Training(variant, seed)], key)
        publish(place / "runs", variant, params.seeds, params, key)
    spectra.main(place / "runs", place / "spectra.parquet")


def measured(tables: dict[str, pd.DataFrame]) -> list[Row]:
    """The rows of every measure, from the tables in git."""
    tables = {name: plain_typed(table) for name, table in tables.items()}
    return [
        *of_products(tables["products"]),
        *of_classes(tables["classes"]),
        *of_outputs(tables["outputs"], tables["scaled"]),
    ]


def of_products(table: pd.DataFrame) -> list[Row]:
    """Stable ranks and singular values over the initial ones, by init scale.

    They are means over layers and heads. A case is what is compared, such as `update W_KQ`, with
    the data where they are not the digits.
    """
    found: list[Row] = []
    for column, measure in OVER_INITIAL.items():
        values = table.set_index(PLACE)[column].unstack("of")
        ratios = values.div(values.pop("initial"), axis="index").stack().dropna()
        means = ratios.groupby(["data", "matrix", "of", "init_scale", "seed"]).mean()
        for (data, matrix, of), own in means.groupby(["data", "matrix", "of"]):
            scales = sorted(
                own.index.unique("init_scale"), key=lambda scale: (scale == SCALE, scale)
            )
            by_scale: dict[str, Any] = {
                f"{scale:g}": own.xs((data, matrix, of, scale)) for scale in scales
            }
            case = f"{of} {matrix}" if data == "digits" else f"{of} {matrix} {data}"
            found += rows_of({measure: by_scale}, case)
    return found


def of_classes(table: pd.DataFrame) -> list[Row]:
    """The growth of stable ranks through training, of most classes over that of fewest."""
    found: list[Row] = []
    for (control, matrix), rows in table.groupby(["control", "matrix"]):
        growth = {}
        for n, of in rows.groupby("n_classes"):
            by_step = of.pivot(index="seed", columns="step", values="stable_rank")
            grown = growth_through_training(by_step.columns.to_numpy(float), by_step.to_numpy())
            growth[n] = pd.Series(grown, by_step.index)
        ratio = growth[max(growth)] / growth[min(growth)]
        case = named(str(control), str(matrix))
        found += rows_of({"growth_of_most_over_fewest_classes": ratio}, case)
    return found


def of_outputs(outputs: pd.DataFrame, scaled: pd.DataFrame) -> list[Row]:
    """Distances of the logits by rank, over those of random changes at equal training loss.

    Beside them stand the training loss by rank, and the lowest of a random change.
    """
    found: list[Row] = []
    logits = outputs.pivot(index=["rank", "seed"], columns="kind", values="logits")
    losses = outputs.pivot(index=["rank", "seed"], columns="kind", values="train_loss")
    for rank in RANKS:
        at = logits.loc[rank]
        taken = {
            "logits_over_random": at["cut"] / at["random"],
            "second_random_logits_over_random": at["second random"] / at["random"],
            "train_loss_of_cut": losses.loc[rank, "cut"],
        }
        found += rows_of(taken, f"rank {rank}")
    lowest = scaled[scaled["kind"] == "random"].groupby("seed")["train_loss"].min()
    return found + rows_of({"lowest_random_loss": lowest})


if __name__ == "__main__":
    run(main)
