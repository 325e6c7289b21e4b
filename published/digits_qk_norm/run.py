"""Vision transformers with normalised queries and keys: `python -m published.digits_qk_norm.run`.

Do smaller initial weights still give updates of a lower rank (figure 4 of Boix-Adserà et al. 2023),
and when do W_K W_Qᵀ and W_V W_Oᵀ turn? The digits are trained from every init scale of
`vision.digits.train` and its first seeds, on true and on permuted labels, with QK-norm. Beside them
stands plain attention from the same initial weights, whose tables the pipeline has in git. Norms
and stable ranks of the products of every head, losses, a figure, measures and where they come from
are kept beside this program; claims and report read them. It takes four minutes of a core that does
nothing else, and goes on where it was interrupted.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lib.files.params import load_yaml, read_params
from lib.files.runs import open_runs
from lib.files.tables import compact, read_table, write_json
from lib.pages.measures import Row, setup_rows, write_measures
from lib.pages.style import as_svg
from lib.training.devices import use_threads
from lib.vision.datasets import dataset_file
from lib.vision.figures.qk_norm import ranks_and_turns
from lib.vision.images import read_images
from lib.vision.measures import LABELS, PRODUCTS, plain_typed, ranks_of
from lib.vision.tables.drawn import DRAWN, read_drawn
from lib.vision.tables.qk_norm import OF_QK_NORM
from lib.vision.tables.trained import SPECTRA
from lib.vision.trainings import Training, publish
from lib.vision.turns import MOVED, of_attentions, turns, with_attention
from lib.vision.variants import Variant
from lib.work.cells import key_of
from lib.work.command import run
from lib.work.compute import spread, write_figures
from lib.work.schemas import write_tables_of
from stages import spectra
from stages.vision.train import Train, train_together
from tools.publish import provenance

OUT = Path("published/digits_qk_norm")
COMMAND = "python -m published.digits_qk_norm.run"
TRAIN = "vision.digits.train"
SCALE = 1.0  # of the headlines
N_SEEDS = 3
RTOL = 1e-3  # of the numerical rank, which is not kept
DRAWN_OF = {name: DRAWN[name] for name in ("training", "ranks")}
HEADLINES = {
    "stable_rank_KQ": ("stable_rank", "W_KQ"),
    "stable_rank_KQ_qk_norm": ("stable_rank", "W_KQ qk_norm"),
}


def main(
    images: Path = Path("data/vision/digits/images"),
    plain: Path = Path("metrics/vision/digits/tables"),
    folder: Path = Path(".dvc/tmp/digits_qk_norm"),
) -> None:
    use_threads(1)
    begun = time.monotonic()
    params = replace(read_params(TRAIN, Train), n_seeds=N_SEEDS)
    dataset = dataset_file(images)
    train(dataset, folder, params)
    found = [trained(folder, params), on_both_labels(read_drawn(DRAWN_OF, plain), params)]
    training, ranks = (
        pd.concat([with_attention(plain_typed(one[name])) for one in found], ignore_index=True)
        for name in DRAWN_OF
    )
    products = ranks["matrix"].isin(PRODUCTS) & (ranks["of"] != "gaussian")
    tables = {"training": training, "products": ranks[products]}
    tables |= {"turns": turns(plain_typed(tables["products"]))}
    tables = {name: compact(table) for name, table in tables.items()}
    write_tables_of(OF_QK_NORM, tables, OUT / "tables")
    write_measures(measured(tables, params.n_steps), OUT, HEADLINES)
    write_figures(OUT / "figures", drawings(OUT), as_svg)
    section = load_yaml(Path("params.yaml"))["vision"]["digits"]
    section["train"]["n_seeds"] = N_SEEDS
    note = provenance(section, len(read_images(dataset).train_labels))
    hours = (time.monotonic() - begun) / 3600
    write_json(note | {"command": COMMAND, "wall_hours": hours}, OUT / "provenance.json")


def train(images: Path, folder: Path, params: Train) -> None:
    """Train every variant from every seed, and decompose what was added."""
    key = key_of(train_together, images)
    jobs = [
        (TRAIN, images, params, [Training(variant, seed)], key)
        for variant in variants(params)
        for seed in params.seeds
    ]
    list(spread(train_together, jobs, label="QK-norm", total=len(jobs) * params.n_steps))
    for variant in variants(params):
        publish(folder / "runs", variant, params.seeds, params, key)
    spectra.main(folder / "runs", folder / "spectra.parquet")


def variants(params: Train) -> list[Variant]:
    """QK-norm from every init scale, on both labels."""
    return [
        Variant(scale, labels=labels, attention="qk_norm")
        for labels in ("true", "permuted")
        for scale in params.init_scales
    ]


def trained(folder: Path, params: Train) -> dict[str, pd.DataFrame]:
    """The losses of what was trained here, and the norms and stable ranks of its matrices."""
    runs = open_runs(folder / "runs", "vision")
    found = SPECTRA.read(folder / "spectra.parquet")
    return {
        "training": pd.concat([one.steps.assign(**one.layout.cell) for one in runs]),
        "ranks": ranks_of(found, RTOL, params.model.d_model),
    }


def on_both_labels(tables: dict[str, pd.DataFrame], params: Train) -> dict[str, pd.DataFrame]:
    """The rows of plain trainings on true and on permuted labels, of the seeds that are trained."""
    return {
        name: table[table["control"].isin(LABELS) & table["seed"].isin(params.seeds)]
        for name, table in tables.items()
    }


def measured(tables: dict[str, pd.DataFrame], n_steps: int) -> list[Row]:
    """The rows of every measure, from the tables in git, and what statements name."""
    return setup_rows({"n_steps": n_steps, "turned": MOVED}) + of_attentions(tables, SCALE)


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """How the figure is drawn, from what is kept in the folder."""
    tables = {path.stem: read_table(path) for path in (folder / "tables").iterdir()}
    return {"qk-norm": partial(ranks_and_turns, tables["products"], tables["turns"], MOVED)}


if __name__ == "__main__":
    run(main)
