"""Train the digits' vision transformer with several optimisers: `python -m tools.optimizers`.

The optimisers and a grid of learning rates for each stand in tools/optimizers.tsv. The rate is that with the lowest
mean training loss at the end, over two tuning seeds that are used for nothing else, true labels, init scale 1. Then all
are trained at every init scale and from every seed, on true and on permuted labels, with the params of
`vision.digits_long` but for those of `vision.digits_optimizers`. Stages do the work, in a folder that an interrupted
call goes on from. The losses of the grid, tables, figures, measures and where they come from are kept in
published/digits_optimizers, which claims and report read.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from lib.dynamics.sgd import Optimizer
from lib.io.command import run
from lib.io.files import InputError, atomic
from lib.io.params import Count, Fraction, Name, Positive, load_yaml, read_cases, read_params
from lib.io.runs import open_runs

ROOT = Path(__file__).parents[1]
LIKE, SECTION = "digits_long", "digits_optimizers"
TUNING_SEEDS = {"first_seed": 100, "n_seeds": 2}
TUNING_SCALE = 1.0
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

    def case(self, name: str, learning_rate: float | None, **more: Any) -> dict[str, Any]:
        """A line of a table of variants."""
        own = {"optimizer": self.optimizer, "weight_decay": self.weight_decay, "muon_of": self.muon_of}
        return {"name": name, "learning_rate": learning_rate, **own, **more}


def main(folder: Path = Path(".dvc/tmp/optimizers")) -> None:
    rules = read_cases(ROOT / "tools" / "optimizers.tsv", Rule)
    work = Work(folder, read_params(f"vision.{SECTION}", Compared))
    rates = work.tried(rules)
    work.trained(rules, chosen(rates))


def chosen(rates: pd.DataFrame) -> dict[str, float]:
    """Of each rule the rate with the lowest mean final training loss over the tuning seeds; one that diverged has none."""
    losses = rates.groupby(["rule", "learning_rate"], sort=False)["train_loss"].agg(
        lambda found: found.mean(skipna=False)
    )
    return {str(rule): float(found.droplevel("rule").idxmin()) for rule, found in losses.groupby("rule", sort=False)}


class Work:
    """The folder in which stages run as in the repository, with params, data, scratch and results of its own."""

    def __init__(self, folder: Path, compared: Compared):
        self.folder = folder.absolute()
        section = load_yaml(Path("params.yaml"))["vision"][LIKE]
        self.data, self.train = section["data"], section["train"] | asdict(compared)
        self.test_accuracy = self.train.pop("test_accuracy")

    def tried(self, rules: tuple[Rule, ...]) -> pd.DataFrame:
        """The final training loss of every rule, rate and tuning seed."""
        cases = [
            rule.case(f"{rule.name} {rate:g}", rate, init_scale=TUNING_SCALE)
            for rule in rules
            for rate in rule.learning_rates
        ]
        self._train("tried", TUNING_SEEDS | {"init_scales": []}, cases)
        rows = []
        for rule in rules:
            for rate in rule.learning_rates:
                steps = self._run_of("tried", rule.case("", rate, init_scale=TUNING_SCALE))
                last = steps[steps["step"] == steps["step"].max()]
                rows.append(last[["seed", "train_loss", "test_accuracy"]].assign(rule=rule.name, learning_rate=rate))
        return pd.concat(rows, ignore_index=True)

    def trained(self, rules: tuple[Rule, ...], rates: dict[str, float]) -> None:
        """Train every rule at its rate, at every init scale and from every seed, on both kinds of labels."""
        plain, *others = rules
        cases = [plain.case(f"{plain.name} permuted", None, labels="permuted")]
        for rule in others:
            rate = rates[rule.name]
            cases += [rule.case(rule.name, rate), rule.case(f"{rule.name} permuted", rate, labels="permuted")]
        self._train("trained", {"learning_rate": rates[plain.name]}, cases)

    def _run_of(self, runs: str, case: dict[str, Any]) -> pd.DataFrame:
        """The rows of the run of a case."""
        from stages.vision.train import Variant

        wanted = Variant(**{key: value for key, value in case.items() if value is not None}).run
        return next(one.steps for one in open_runs(self.folder / runs) if one.folder.name == wanted)

    def _train(self, runs: str, changes: dict[str, Any], cases: list[dict[str, Any]]) -> None:
        """Train all cases, where that is not done; the runs of a call that was cut short are made again from scratch."""
        self.folder.mkdir(parents=True, exist_ok=True)
        train = self.train | changes | {"controls": [case["name"] for case in cases]}
        params = {"vision": {SECTION: {"data": self.data, "train": train}}}
        lines = [COLUMNS, *([written(case.get(column)) for column in COLUMNS] for case in cases)]
        table = "".join("\t".join(line) + "\n" for line in lines)
        done = self.folder / f"{runs}.json"
        wanted = {"params": params, "table": table}
        if done.exists() and json.loads(done.read_text()) == wanted:
            return
        (self.folder / "params.yaml").write_text(json.dumps(params, indent=1))
        (self.folder / "cases.tsv").write_text(table)
        if not (self.folder / DATASET).exists():
            self._stage("stages.vision.fetch", f"vision.{SECTION}.data", "data/official")
            self._stage("stages.vision.generate", f"vision.{SECTION}.data", "data/official", str(DATASET))
        self._stage("stages.vision.train", f"vision.{SECTION}.train", "cases.tsv", str(DATASET), runs)
        with atomic(done) as part:
            part.write_text(json.dumps(wanted))

    def _stage(self, *command: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "DVC_ROOT"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        begin = time.monotonic()
        try:
            subprocess.run([sys.executable, "-m", *command], cwd=self.folder, env=environment, check=True)
        except subprocess.CalledProcessError as error:
            raise InputError(
                f"{command[0]}: wanted a stage that ends well, got exit code {error.returncode}"
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
