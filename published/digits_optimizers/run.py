"""Train on digits with several optimisers: `python -m published.digits_optimizers.run`.

The optimisers and a grid of learning rates for each stand in optimizers.tsv, beside this program.
The rate is that with the lowest mean training loss at the end, over two tuning seeds that are used
for nothing else, true labels, init scale 1. Then all are trained at every init scale and from every
seed, on true and on permuted labels, with the params of `vision.digits_long` but for those of
`vision.digits_optimizers`. Stages train, in a folder in which an interrupted call goes on. The
losses of the grid, tables, figures, measures and where they come from are kept beside this program;
claims and report read them. It takes an hour of one CPU core.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from lib.files.files import InputError, atomic
from lib.files.params import Count, Fraction, Name, Positive, load_yaml, read_cases, read_params
from lib.files.runs import Run, open_run, open_runs
from lib.files.tables import compact, read_table, write_json
from lib.matrices.ranks import stable_rank
from lib.pages.measures import Row, setup_rows, write_measures
from lib.training.sgd import Optimizer
from lib.vision.cuts import truncated
from lib.vision.datasets import dataset_file
from lib.vision.images import channel_statistics, read_images, standardise
from lib.vision.measures import of_optimizers
from lib.vision.tables.compared import OF_OPTIMIZERS
from lib.vision.variants import Variant
from lib.vision.vit import score
from lib.work.cells import joined, spread_cells
from lib.work.command import run
from lib.work.schemas import write_tables_of
from stages.vision import plot
from tools.publish import provenance

ROOT = Path(__file__).parents[2]
RULES = Path(__file__).with_name("optimizers.tsv")
LIKE = "digits_long"
SECTION = "digits_optimizers"
OUT = Path("published") / SECTION
TUNING_SEEDS = {"first_seed": 100, "n_seeds": 2}
TUNING_SCALE = 1.0
HEADLINES = {
    "stable_rank_KQ": ("stable_rank", "W_KQ"),
    "stable_rank_KQ_muon": ("stable_rank", "W_KQ muon"),
}
DATASET = Path("data/images")
COLUMNS = ("init_scale", "labels", "optimizer", "learning_rate", "weight_decay", "muon_of")


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

    def variant(self, learning_rate: float | None, **more: Any) -> Variant:
        """The training with it."""
        return Variant(
            optimizer=self.optimizer,
            learning_rate=learning_rate,
            weight_decay=self.weight_decay,
            muon_of=self.muon_of,
            **more,
        )


def main(folder: Path = Path(".dvc/tmp/optimizers")) -> None:
    rules = read_cases(RULES, Rule)
    work = Work(folder, read_params(f"vision.{SECTION}", Compared))
    tried = work.tried(rules)
    rates = chosen(tried)
    tables = {"rates": tried, **work.trained(rules, rates)}
    tables = {name: compact(table) for name, table in tables.items()}
    write_tables_of(OF_OPTIMIZERS, tables, OUT / "tables")
    write_measures(measured(tables, work.train["n_steps"]), OUT, HEADLINES)
    plot.main("vision.plot", OUT / "tables", OUT / "figures")
    write_json(work.note(rates), OUT / "provenance.json")


def chosen(tried: pd.DataFrame) -> dict[str, float]:
    """The rate of each rule with the lowest mean final training loss; none that diverged."""
    losses = tried.groupby(["rule", "learning_rate"], sort=False, observed=True)["train_loss"]
    means = losses.agg(lambda found: found.mean(skipna=False)).unstack("learning_rate")
    return {str(rule): float(f"{rate:g}") for rule, rate in means.idxmin(axis="columns").items()}


def measured(tables: Mapping[str, pd.DataFrame], n_steps: int) -> list[Row]:
    """The rows of every measure, the init scale of the tuning last, and the steps of a training."""
    names = {"training": "trained", "ranks": "ranks", "truncate": "truncate"}
    by_name = {key: tables[of] for key, of in names.items()}
    return setup_rows({"n_steps": n_steps}) + of_optimizers(by_name, TUNING_SCALE)


def ranks(spectra: pd.DataFrame) -> pd.DataFrame:
    """The stable ranks of the products' updates, means over layers and heads."""
    rows = spectra[spectra["matrix"].isin(["W_KQ", "W_VO"]) & (spectra["of"] != "initial")]
    sigma = np.stack(rows["singular_values"].tolist())
    rows = rows.assign(stable_rank=pd.Series(stable_rank(sigma), rows.index))
    names = ["init_scale", "control", "matrix", "of", "step", "seed"]
    return rows.groupby(names, sort=False)["stable_rank"].mean().reset_index()


def cut(sums: Path, dataset: Path, test_accuracy: float) -> dict[str, pd.DataFrame]:
    """The accuracy with all updates cut to each rank, where a training first has that accuracy."""
    one = open_run(sums.parent)
    images = read_images(dataset)
    test = standardise(images.test_images, *channel_statistics(images.train_images))
    initial = one.weights(0)
    rows = []
    for i, seed in enumerate(one.layout.seeds):
        accurate = one.steps["test_accuracy"] >= test_accuracy
        steps = one.steps[(one.steps["seed"] == seed) & accurate].sort_values("step")
        if steps.empty:
            continue
        first = steps.iloc[0]
        weights = one.weights(one.snapshots.index(int(first["snapshot"])))
        begun = {name: tensor[i] for name, tensor in initial.items()}
        ended = {name: tensor[i] for name, tensor in weights.items()}
        for row, model in truncated(begun, ended):
            if row["kind"] != "all":
                break
            scores = score(model, test, images.test_labels)
            numbers = {name: float(value) for name, value in scores.items()}
            rows.append({"seed": seed, "step": int(first["step"]), **row, **numbers})
    columns = ["seed", "step", "kind", "rank", "test_loss", "test_accuracy"]
    return {"truncate": pd.DataFrame(rows, columns=columns).assign(**one.layout.cell)}


class Work:
    """A folder in which stages run, with params, data, scratch and results of its own."""

    def __init__(self, folder: Path, compared: Compared):
        self.folder = folder.absolute()
        section = load_yaml(Path("params.yaml"))["vision"][LIKE]
        self.data = section["data"]
        self.train = section["train"] | asdict(compared)
        self.test_accuracy = self.train.pop("test_accuracy")

    def tried(self, rules: tuple[Rule, ...]) -> pd.DataFrame:
        """The final training loss of every rule, rate and tuning seed."""
        tries = {
            f"{rule.name} {rate:g}": (rule, rate) for rule in rules for rate in rule.learning_rates
        }
        cases = {
            name: rule.variant(rate, init_scale=TUNING_SCALE)
            for name, (rule, rate) in tries.items()
        }
        runs = self._trained("tried", TUNING_SEEDS | {"init_scales": []}, cases)
        rows = []
        for name, (rule, rate) in tries.items():
            steps = runs[cases[name].run].steps
            last = steps[steps["step"] == steps["step"].max()]
            last = last[["seed", "train_loss", "test_accuracy"]]
            rows.append(last.assign(rule=rule.name, init_scale=TUNING_SCALE, learning_rate=rate))
        return pd.concat(rows, ignore_index=True)

    def trained(self, rules: tuple[Rule, ...], rates: dict[str, float]) -> dict[str, pd.DataFrame]:
        """Train every rule at its rate, at every init scale, on both labels; what is measured.

        The first rule is the plain training: its rate is that of the params.
        """
        plain = rules[0]
        self.train |= {"learning_rate": rates[plain.name]}
        variants: dict[tuple[str, str], Variant] = {
            (rule.name, labels): rule.variant(
                None if rule is plain else rates[rule.name], labels=labels
            )
            for rule in rules
            for labels in ("true", "permuted")
        }
        cases = {f"{rule} {labels}": variant for (rule, labels), variant in variants.items()}
        del cases[f"{plain.name} true"]  # which stage trains anyway
        runs = self._trained("trained", {}, cases)
        self._once(
            "spectra", cases, ("stages.spectra", "--runs=trained", "--spectra=spectra.parquet")
        )
        named = pd.DataFrame(
            [
                {"rule": rule, "labels": labels, **runs[at.run].layout.cell}
                for (rule, labels), variant in variants.items()
                for scale in self.train["init_scales"]
                for at in [replace(variant, init_scale=scale)]
            ]
        )
        files = [one.folder / "SHA256SUMS" for one in runs.values()]
        images = dataset_file(self.folder / DATASET)
        jobs = [(cut, file, images, self.test_accuracy) for file in files]
        cuts = spread_cells({"cuts": jobs}, label="cuts", unit="run")["cuts"]
        trained = [one.steps.assign(**one.layout.cell) for one in runs.values()]
        tables = {
            "ranks": ranks(read_table(self.folder / "spectra.parquet")),
            "truncate": joined(cuts, "truncate"),
            "trained": pd.concat(trained, ignore_index=True).drop(columns="snapshot"),
        }
        return {name: named.merge(table) for name, table in tables.items()}

    def note(self, rates: dict[str, float]) -> dict[str, Any]:
        """Where the numbers come from."""
        n_images = read_images(dataset_file(self.folder / DATASET)).n_train
        params = {
            "data": self.data,
            "train": self.train,
            "test_accuracy": self.test_accuracy,
            "learning_rates": rates,
        }
        return provenance(params, n_images) | {
            "command": "python -m published.digits_optimizers.run",
            "wall_hours": json.loads((self.folder / "seconds.json").read_text()) / 3600,
        }

    def _trained(
        self, runs: str, changes: dict[str, Any], cases: dict[str, Variant]
    ) -> dict[str, Run]:
        """The runs of all cases, by their folders."""
        train = self.train | changes | {"controls": list(cases)}
        lines = ["\t".join(("name", *COLUMNS))]
        for name, variant in cases.items():
            differs = vars(variant).items() - vars(Variant()).items()
            values = {column: f"{value}" for column, value in differs} | {"name": name}
            lines.append("\t".join(values.get(column, "") for column in ("name", *COLUMNS)))
        params = {"vision": {SECTION: {"data": self.data, "train": train}}}
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "params.yaml").write_text(json.dumps(params, indent=1))
        (self.folder / "cases.tsv").write_text("\n".join(lines) + "\n")
        data = f"--section=vision.{SECTION}.data"
        official = "--official=data/official"
        images = f"--images={DATASET}"
        self._once(
            "images",
            self.data,
            ("stages.vision.fetch", data, official),
            ("stages.vision.generate", data, official, images),
        )
        section = f"--section=vision.{SECTION}.train"
        command = ("stages.vision.train", section, "--controls=cases.tsv", images, f"--runs={runs}")
        self._once(runs, [train, lines], command)
        return {one.folder.name: one for one in open_runs(self.folder / runs)}

    def _once(self, what: str, made_by: Any, *stages: tuple[str, ...]) -> None:
        """Run stages, where they have not run to their end with the same `made_by`."""
        done = self.folder / f"{what}.json"
        wanted = json.dumps(made_by, default=asdict)
        if done.exists() and done.read_text() == wanted:
            return
        for command in stages:
            self._stage(*command)
        with atomic(done) as part:
            part.write_text(wanted)

    def _stage(self, *command: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "DVC_ROOT"}
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        begin = time.monotonic()
        try:
            subprocess.run(
                [sys.executable, "-m", *command], cwd=self.folder, env=environment, check=True
            )
        except subprocess.CalledProcessError as error:
            wanted = f"{command[0]}: wanted a stage that ends well"
            raise InputError(f"{wanted}, got {error.returncode}") from error
        finally:
            file = self.folder / "seconds.json"  # the wall time of all calls
            before = json.loads(file.read_text()) if file.exists() else 0.0
            file.write_text(json.dumps(before + time.monotonic() - begin))


if __name__ == "__main__":
    run(main, environment=True)
