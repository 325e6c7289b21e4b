"""Train adapters of attributed ranks, or of a uniform one: `python -m published.rank_patterns.run`.

The base models of the example (`dvc repro checkpoints_train`) get adapters of equal size, trained
on the text and for the steps of a full fine-tune. The attributed ranks are those of the fine-tune
at its first snapshot, a tenth of its steps. Beside them stand one uniform rank, the attributed
ranks shuffled within a shape, and the uniform rank with a quarter more steps, which is more than
the pattern costs. Every rule has a learning rate of its own: that with the lowest mean loss over
two tuning seeds, on windows on which nothing else is measured. Tables, figure, measures and where
they come from are kept beside this program; claims and report read them. It takes ten minutes of
one CPU core; `remeasure` writes the measures again from the tables that are kept.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.checkpoints.adapters import lora_config, with_adapter
from lib.checkpoints.attribution import path_attribution
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.gains import LinearUpdates
from lib.checkpoints.linear_modules import linear_modules, stored_as_columns
from lib.checkpoints.models import linear_places, open_model
from lib.checkpoints.plans import Module, budget_of, parameters, plan, shuffled
from lib.checkpoints.texts import Batch, loss, read_batches
from lib.checkpoints.trainings import Sizes, Training, descent, read_trainings, step_name
from lib.checkpoints.update_spectra import update_of
from lib.files.params import Name, load_yaml, read_params
from lib.files.tables import compact, read_table, write_table
from lib.pages.measures import Row, rows_of, setup_rows, write_measures
from lib.training.devices import generator
from lib.work.cells import Job, joined, spread_cells
from lib.work.command import run
from stages.checkpoints import plot
from tools.publish import PACKAGES, write_provenance

MODELS = ("llama", "gpt2")
RULES = ("uniform", "attributed", "shuffled", "uniform, longer")
RATES = (1e-2, 3e-2, 1e-1)
BUDGET = 2  # a uniform rank
SCALE = 2  # alpha over rank
LONGER = 1.25  # the steps of the control over the others'
N_POINTS = 4  # of the path
WINDOWS = 32  # of a batch of the measured text
ATTRIBUTED = slice(0, 4)  # batches of the measured text
TUNED = slice(4, 8)
MEASURED = slice(8, 16)
TUNING_SEEDS = (1000, 1001)
DATA = Path("data/checkpoints")
COMMAND = "python -m published.rank_patterns.run"
OUT = Path("published/rank_patterns")
HEADLINES = {"attributed_less_uniform_large": ("attributed_less_uniform", "large")}
Rates = Mapping[tuple[str, str, str], Sequence[float]]  # by model, kind and rule


@dataclass(frozen=True)
class Cases:
    """Where the trainings stand."""

    trainings: str


@dataclass(frozen=True)
class Adapter:
    """One training of an adapter. Its ranks are those of a fine-tune of the same model and kind."""

    model: Name
    kind: Name
    rule: str
    fine_tune: int
    seed: int
    n_steps: int
    learning_rate: float
    part: str  # the batches on which it is measured: tuned or measured


def main(n_seeds: int = 6) -> None:
    begun = time.monotonic()
    params = read_params("checkpoints.example.train", Sizes)
    _, kinds = read_trainings(Path(read_params("checkpoints.cases", Cases).trainings))
    places = [(m, one, f) for m in MODELS for one in kinds.values() for f in params.seeds]
    patterns = compute("patterns", [pattern_job(*place) for place in places])
    ranks = dict(list(patterns.groupby(["model", "kind", "fine_tune"])))

    def adapters(seeds: Sequence[int], rates: Rates, part: str) -> pd.DataFrame:
        chosen = [
            Adapter(
                model=m,
                kind=kind.name,
                rule=rule,
                fine_tune=params.seeds[i % len(params.seeds)],
                seed=seed,
                n_steps=steps_of(kind, rule),
                learning_rate=rate,
                part=part,
            )
            for m in MODELS
            for kind in kinds.values()
            for rule in RULES
            for i, seed in enumerate(seeds)
            for rate in rates[m, kind.name, rule]
        ]
        jobs = [
            adapter_job(params, one, ranks[one.model, one.kind, one.fine_tune]) for one in chosen
        ]
        return compute("trained", jobs)

    every = {(m, str(kind), rule): RATES for m in MODELS for kind in kinds for rule in RULES}
    tuning = adapters(TUNING_SEEDS, every, "tuned")
    best = tuning.groupby(["model", "kind", "rule", "learning_rate"])["loss"].mean()
    chosen = {key: [float(best.loc[key].idxmin())] for key in every}
    trained = pd.concat([tuning, adapters(range(n_seeds), chosen, "measured")], ignore_index=True)
    for name, table in {"trained": trained, "patterns": patterns}.items():
        write_table(compact(table), OUT / "tables" / f"{name}.parquet")
    remeasure()
    noted = {
        "example": load_yaml(Path("params.yaml"))["checkpoints"]["example"],
        "learning_rates": list(RATES),
    }
    packages = [*PACKAGES, "transformers", "peft"]
    write_provenance(OUT, COMMAND, begun, noted, range(n_seeds), packages)


def remeasure() -> None:
    """Write the measures and the figure of the tables as they are kept, without training again."""
    trained = read_table(OUT / "tables" / "trained.parquet")
    n_pairs = trained.loc[trained["part"] == "measured", "seed"].nunique()
    setup = {"n_pairs": float(n_pairs), "budget": BUDGET, "longer": f"{LONGER - 1:.0%}"}
    write_measures(setup_rows(setup) + measured(trained), OUT, HEADLINES)
    plot.main(OUT / "tables", OUT / "figures")


def compute(name: str, jobs: Sequence[Job]) -> pd.DataFrame:
    """The tables of that name, one after another."""
    return joined(spread_cells({name: jobs}, label=name, unit="cell")[name], name)


def steps_of(kind: Training, rule: str) -> int:
    return round(LONGER * kind.n_steps) if rule == "uniform, longer" else kind.n_steps


def file_of(folder: Path) -> Path:
    """The file of a checkpoint, which stands for it among the arguments of a cell."""
    return folder / "model.safetensors"


def pattern_job(model: str, kind: Training, fine_tune: int) -> Job:
    at = DATA / model
    early = at / "tuned" / f"{kind.name}-{fine_tune}" / step_name(min(kind.snapshot_steps))
    names = {"model": model, "kind": kind.name, "fine_tune": fine_tune}
    return (pattern, names, file_of(at / "base"), file_of(early), DATA / "texts" / "measured.txt")


def pattern(names: dict[str, Any], base: Path, early: Path, text: Path) -> dict[str, pd.DataFrame]:
    """The uniform and the attributed rank of every linear module."""
    begun, ended = open_checkpoint(base.parent), open_checkpoint(early.parent)
    model = open_model(early.parent, ended.config)
    places = {name: place for name, (place, _) in linear_places(ended, model).items()}
    linear = LinearUpdates(model, {name: begun.load(place) for name, place in places.items()})
    modules = {}
    for name, place in places.items():
        update = update_of(ended.load(place), begun.load(place))
        sigma = torch.linalg.svdvals(update)
        shape = (update.shape[0], update.shape[1])
        modules[name] = Module(shape, sigma.numpy(), float(sigma.square().sum()), min(shape))
    batches = batches_of(base.parent, text)[ATTRIBUTED]
    earned = path_attribution(
        linear.parameters,
        linear.updates,
        batches,
        lambda batch: loss(linear.model, batch),
        N_POINTS,
    )
    budget = budget_of(modules, BUDGET)
    uniform = plan("uniform", modules, budget)
    attributed = plan("attributed", modules, budget, earned)
    rows = [
        {
            **names,
            "module": name,
            "rows": module.shape[0],
            "cols": module.shape[1],
            "uniform": uniform[name],
            "attributed": attributed[name],
            "earned": earned[name],
        }
        for name, module in modules.items()
    ]
    return {"patterns": pd.DataFrame(rows)}


def adapter_job(params: Sizes, one: Adapter, ranks: pd.DataFrame) -> Job:
    given = ranks[["module", "rows", "cols", "uniform", "attributed"]].to_dict("list")
    text = DATA / "texts"
    return (
        adapter,
        params,
        one,
        given,
        file_of(DATA / one.model / "base"),
        text / "tuned.txt",
        text / "measured.txt",
    )


def adapter(
    params: Sizes,
    one: Adapter,
    ranks: dict[str, list[Any]],
    base: Path,
    text: Path,
    measured_text: Path,
) -> dict[str, pd.DataFrame]:
    """The loss of the base with one adapter, trained."""
    begun = open_checkpoint(base.parent)
    model = open_model(base.parent, begun.config)
    chosen = ranks_of(one, ranks)
    by_columns = any(map(stored_as_columns, linear_modules(model).values()))
    config = lora_config(chosen, fan_in_fan_out=by_columns, scale=SCALE)
    adapted = with_adapter(model, config, one.seed)
    source = generator(one.seed, "batches of an adapter", one.model, one.kind)
    for _ in descent(adapted, text, params, one.n_steps, one.learning_rate, source):
        pass
    adapted.train(False)
    batches = batches_of(base.parent, measured_text)[TUNED if one.part == "tuned" else MEASURED]
    with torch.no_grad():
        losses = [float(loss(adapted, batch)) for batch in batches]
    n = sum(value.numel() for value in adapted.parameters() if value.requires_grad)
    row = {**vars(one), "parameters": n, "loss": float(np.mean(losses))}
    return {"trained": pd.DataFrame([row])}


def ranks_of(one: Adapter, ranks: dict[str, list[Any]]) -> dict[str, int]:
    """The ranks of a rule; each seed has a shuffle of its own."""
    rule = "uniform" if one.rule.startswith("uniform") else "attributed"
    found = dict(zip(ranks["module"], ranks[rule], strict=True))
    if one.rule != "shuffled":
        return found
    shapes = zip(ranks["module"], ranks["rows"], ranks["cols"], strict=True)
    modules = {
        name: Module((rows, cols), np.zeros(0), 0.0, min(rows, cols)) for name, rows, cols in shapes
    }
    drawn = shuffled(found, modules, generator(one.seed, "shuffle", one.model, one.kind))
    if parameters(modules, drawn) != parameters(modules, found):
        raise ValueError("wanted a shuffle that costs as much as the plan")
    return drawn


def batches_of(base: Path, text: Path) -> list[Batch]:
    """All batches of the measured text that are used, in windows as long as the model's."""
    return read_batches(base, open_checkpoint(base).config, text, 1 << 20, WINDOWS, MEASURED.stop)


def measured(trained: pd.DataFrame) -> list[Row]:
    """The loss of one rule minus that of another, for each kind of fine-tune, by model and seed."""
    rows = trained[trained["part"] == "measured"]
    losses = rows.pivot_table(
        index=["kind", "model", "seed"], columns="rule", values="loss", observed=True
    )
    pairs = {
        "attributed_less_uniform": ("attributed", "uniform"),
        "attributed_less_shuffled": ("attributed", "shuffled"),
        "shuffled_less_uniform": ("shuffled", "uniform"),
        "longer_less_uniform": ("uniform, longer", "uniform"),
        "attributed_less_longer": ("attributed", "uniform, longer"),
    }
    found = []
    for kind, part in losses.groupby("kind"):
        names = [f"{model} {seed}" for _, model, seed in part.index]
        less = {name: (part[a] - part[b]).set_axis(names) for name, (a, b) in pairs.items()}
        found += rows_of(less, str(kind))
    return found


if __name__ == "__main__":
    run(main)
