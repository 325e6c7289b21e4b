"""Train the digits' vision transformer with several optimisers: `python -m tools.optimizers`.

The optimisers and a grid of learning rates for each stand in tools/optimizers.tsv. The rate is that
with the lowest mean training loss at the end, over two tuning seeds that are used for nothing else,
true labels, init scale 1. Then all are trained at every init scale and from every seed, on true and
on permuted labels, with the params of `vision.digits_long` but for those of
`vision.digits_optimizers`. Stages train, in a folder in which an interrupted call goes on. The
losses of the grid, tables, figures, measures and where they come from are kept in
published/digits_optimizers, which claims and report read. An hour of one CPU core.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from lib.files.files import InputError, atomic
from lib.files.params import Count, Fraction, Name, Positive, load_yaml, read_cases, read_params
from lib.files.runs import Run, open_run, open_runs
from lib.files.tables import compact, write_json, write_measures, write_table
from lib.matrices.ranks import stable_rank
from lib.matrices.spectra import initial_factor
from lib.training.sgd import Optimizer
from lib.vision.cuts import truncated
from lib.vision.images import channel_statistics, read_images, standardise
from lib.vision.measures import of_optimizers
from lib.vision.variants import Variant
from lib.vision.vit import score
from lib.work.cells import joined, spread_cells
from lib.work.command import run
from stages.spectra import spectrum, states
from stages.vision import plot
from tools.publish import provenance

ROOT = Path(__file__).parents[1]
LIKE, SECTION = "digits_long", "digits_optimizers"
OUT = Path("published") / SECTION
TUNING_SEEDS = {"first_seed": 100, "n_seeds": 2}
TUNING_SCALE = 1.0
Labels = Literal["true", "permuted"]
LABELS: tuple[Labels, ...] = ("true", "permuted")
HEADLINES = ["stable_rank_KQ", "stable_rank_KQ_muon"]
DATASET = Path("data/images.safetensors")
COLUMNS = ("name", "init_scale", "labels", "optimizer", "learning_rate", "weight_decay", "muon_of")


@dataclass(frozen=True)
class Compared:
    """What is not as in the trainings that are like these."""

    n_steps: Count
    snapshot_every: Count
    test_accuracy: Fraction  # where updates are cut


@dataclass(frozen=True)
class Rule:
    """An optimiser, and the learning rates that it is tried with."""

    name: Name
    optimizer: Optimizer
    learning_rates: tuple[Positive, ...]
    weight_decay: Positive | None = None
    muon_of: Literal["matrices", "heads"] = "matrices"

    def variant(self, init_scale: float, learning_rate: float | None, labels: Labels) -> Variant:
        """The training with it."""
        return Variant(
            init_scale, labels, self.optimizer, learning_rate, self.weight_decay, self.muon_of
        )

    def case(self, name: str, learning_rate: float | None, **more: Any) -> dict[str, Any]:
        """A line of a table of variants."""
        own = {
            "optimizer": self.optimizer,
            "weight_decay": self.weight_decay,
            "muon_of": self.muon_of,
        }
        return {"name": name, "learning_rate": learning_rate, **own, **more}


def main(folder: Path = Path(".dvc/tmp/optimizers")) -> None:
    rules = read_cases(ROOT / "tools" / "optimizers.tsv", Rule)
    work = Work(folder, read_params(f"vision.{SECTION}", Compared))
    tried = work.tried(rules)
    rates = chosen(tried)
    tables = {"rates": tried, **work.trained(rules, rates)}
    tables = {name: compact(table) for name, table in tables.items()}
    for name, table in tables.items():
        write_table(table, OUT / "tables" / f"{name}.parquet")
    write_measures(measured(tables), OUT, work.setup(), HEADLINES)
    plot.main("vision.plot", OUT / "tables", OUT / "figures")
    write_json(work.note(rates), OUT / "provenance.json")


def chosen(tried: pd.DataFrame) -> dict[str, float]:
    """Of each rule the rate with the lowest mean final training loss over the tuning seeds; none
    that diverged.
    """
    losses = tried.groupby(["rule", "learning_rate"], sort=False, observed=True)["train_loss"]
    means = losses.agg(lambda found: found.mean(skipna=False)).unstack("learning_rate")
    return {str(rule): float(f"{rate:g}") for rule, rate in means.idxmin(axis="columns").items()}


def measured(tables: Mapping[str, pd.DataFrame]) -> dict[str, dict[str, pd.Series]]:
    """Every measure by init scale and seed, that of the tuning last, from the tables that are
    published.
    """
    given = {
        "training": tables["trained"],
        "ranks": tables["ranks"],
        "truncate": tables["truncate"],
    }
    by_scale: dict[str, dict[str, pd.Series]] = {}
    for name, values in of_optimizers(given).items():
        every = set(values.index.get_level_values("init_scale"))
        scales = sorted(every, key=lambda scale: (scale == TUNING_SCALE, scale))
        if scales:
            by_scale[name] = {
                f"{s:g}": values.xs(s, level="init_scale").sort_index() for s in scales
            }
    return by_scale


def ranks(sums: Path) -> dict[str, pd.DataFrame]:
    """The stable ranks of the products' updates in a run, means over layers and heads; those of
    Gaussians as well.
    """
    one = open_run(sums.parent)
    initial, steps = one.weights(0), one.steps.groupby("snapshot")["step"].first()
    factors = {
        name: initial_factor(initial[name])
        for pair in one.layout.products.values()
        for name in pair
    }
    rows = []
    for snapshot, of, weights in states(one, one.folder.name, initial, one.snapshots):
        for matrix in one.layout.products if of != "initial" else ():
            sigma = spectrum(one.layout, matrix, weights, initial, factors, of)
            means = stable_rank(sigma.numpy()).mean((1, 2))
            labels = {"matrix": matrix, "of": of, "step": int(steps[snapshot])}
            rows += [
                {**labels, "seed": s, "stable_rank": r}
                for s, r in zip(one.layout.seeds, means, strict=True)
            ]
    return {"ranks": pd.DataFrame(rows)}


def cut(sums: Path, dataset: Path, test_accuracy: float) -> dict[str, pd.DataFrame]:
    """The accuracy with all updates cut to each rank, where a training first has that accuracy;
    none where it never.
    """
    one, images, rows = open_run(sums.parent), read_images(dataset), []
    test = standardise(images.test_images, *channel_statistics(images.train_images))
    initial = one.weights(0)
    for i, seed in enumerate(one.layout.seeds):
        steps = one.steps[
            (one.steps["seed"] == seed) & (one.steps["test_accuracy"] >= test_accuracy)
        ]
        if steps.empty:
            continue
        first = steps.sort_values("step").iloc[0]
        weights = one.weights(one.snapshots.index(int(first["snapshot"])))
        begun, ended = (
            {name: tensor[i] for name, tensor in every.items()} for every in (initial, weights)
        )
        for row, model in truncated(begun, ended):
            if row["kind"] != "all":
                break
            scores = {
                name: float(value) for name, value in score(model, test, images.test_labels).items()
            }
            rows.append({"seed": seed, "step": int(first["step"]), **row, **scores})
    columns = ["seed", "step", "kind", "rank", "test_loss", "test_accuracy"]
    return {"truncate": pd.DataFrame(rows, columns=columns)}


class Work:
    """The folder in which stages run as in the repository, with params, data, scratch and results
    of its own.
    """

    def __init__(self, folder: Path, compared: Compared):
        self.folder = folder.absolute()
        section = load_yaml(Path("params.yaml"))["vision"][LIKE]
        self.data, self.train = section["data"], section["train"] | asdict(compared)
        self.test_accuracy = self.train.pop("test_accuracy")

    def tried(self, rules: tuple[Rule, ...]) -> pd.DataFrame:
        """The final training loss of every rule, rate and tuning seed."""
        tries = [(rule, rate) for rule in rules for rate in rule.learning_rates]
        cases = [
            rule.case(f"{rule.name} {rate:g}", rate, init_scale=TUNING_SCALE)
            for rule, rate in tries
        ]
        runs = self._trained("tried", TUNING_SEEDS | {"init_scales": []}, cases)
        rows = []
        for rule, rate in tries:
            steps = runs[rule.variant(TUNING_SCALE, rate, "true").run].steps
            last = steps.loc[
                steps["step"] == steps["step"].max(), ["seed", "train_loss", "test_accuracy"]
            ]
            rows.append(last.assign(rule=rule.name, init_scale=TUNING_SCALE, learning_rate=rate))
        return pd.concat(rows, ignore_index=True)

    def trained(self, rules: tuple[Rule, ...], rates: dict[str, float]) -> dict[str, pd.DataFrame]:
        """Train every rule at its rate, at every init scale, from every seed, on both labels; what
        is measured of it.

        The first rule is the plain training: its rate is that of the params.
        """
        plain, *others = rules
        self.train |= {"learning_rate": rates[plain.name]}
        own = {rule.name: None if rule is plain else rates[rule.name] for rule in rules}
        cases = [plain.case(f"{plain.name} permuted", None, labels="permuted")]
        for rule in others:
            rate = own[rule.name]
            cases += [
                rule.case(rule.name, rate),
                rule.case(f"{rule.name} permuted", rate, labels="permuted"),
            ]
        runs = self._trained("trained", {}, cases)
        named = {
            rule.variant(scale, own[rule.name], labels).run: {"rule": rule.name, "labels": labels}
            for rule in rules
            for scale in self.train["init_scales"]
            for labels in LABELS
        }
        sums = [runs[name].folder / "SHA256SUMS" for name in named]
        jobs = {
            "ranks": [(ranks, file) for file in sums],
            "truncate": [(cut, file, self.folder / DATASET, self.test_accuracy) for file in sums],
        }
        label = "ranks and cuts"
        found = spread_cells(jobs, label=label, unit="table")
        found["trained"] = [
            {"trained": runs[name].steps.drop(columns="snapshot")} for name in named
        ]
        tables = {}
        for kind, parts in found.items():
            told = []
            for (name, of), part in zip(named.items(), parts, strict=True):
                cell = {key: runs[name].layout.cell[key] for key in ("init_scale", "control")}
                told.append({kind: part[kind].assign(**of, **cell)})
            tables[kind] = joined(told, kind)
        return tables

    def setup(self) -> dict[str, float | str]:
        """What statements of claims name."""
        sizes = self.train["model"]
        possible = min(2 * sizes["d_head"], sizes["d_model"])
        return {
            "possible_rank": possible,
            "n_steps": self.train["n_steps"],
            "test_accuracy": self.test_accuracy,
        }

    def note(self, rates: dict[str, float]) -> dict[str, Any]:
        """Where the numbers come from."""
        n_images = len(read_images(self.folder / DATASET).train_labels)
        params = {
            "data": self.data,
            "train": self.train,
            "test_accuracy": self.test_accuracy,
            "learning_rates": rates,
        }
        return provenance(params, n_images) | {
            "command": "python -m tools.optimizers",
            "wall_hours": json.loads((self.folder / "seconds.json").read_text()) / 3600,
        }

    def _trained(
        self, runs: str, changes: dict[str, Any], cases: list[dict[str, Any]]
    ) -> dict[str, Run]:
        """The runs of all cases, trained where that is not done; what an interrupted call has
        trained is kept.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        train = self.train | changes | {"controls": [case["name"] for case in cases]}
        params = {"vision": {SECTION: {"data": self.data, "train": train}}}
        lines = [COLUMNS, *([written(case.get(column)) for column in COLUMNS] for case in cases)]
        table = "".join("\t".join(line) + "\n" for line in lines)
        done, wanted = self.folder / f"{runs}.json", {"params": params, "table": table}
        if not done.exists() or json.loads(done.read_text()) != wanted:
            (self.folder / "params.yaml").write_text(json.dumps(params, indent=1))
            (self.folder / "cases.tsv").write_text(table)
            if not (self.folder / DATASET).exists():
                self._stage("stages.vision.fetch", f"vision.{SECTION}.data", "data/official")
                self._stage(
                    "stages.vision.generate",
                    f"vision.{SECTION}.data",
                    "data/official",
                    str(DATASET),
                )
            self._stage(
                "stages.vision.train", f"vision.{SECTION}.train", "cases.tsv", str(DATASET), runs
            )
            with atomic(done) as part:
                part.write_text(json.dumps(wanted))
        return {one.folder.name: one for one in open_runs(self.folder / runs)}

    def _stage(self, *command: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "DVC_ROOT"}
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        begin = time.monotonic()
        try:
            subprocess.run(
                [sys.executable, "-m", *command], cwd=self.folder, env=environment, check=True
            )
        except subprocess.CalledProcessError as error:
            raise InputError(
                f"{command[0]}: wanted a stage that ends well, got {error.returncode}"
            ) from error
        finally:
            self._spent(time.monotonic() - begin)

    def _spent(self, seconds: float) -> None:
        """Add to the wall time of all calls."""
        file = self.folder / "seconds.json"
        before = json.loads(file.read_text()) if file.exists() else 0.0
        file.write_text(json.dumps(before + seconds))


def written(value: Any) -> str:
    """A cell of a table."""
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    run(main, environment=True)
