"""Twenty seeds of the one-layer Transformer by the stages of its family, beside the stages of an
earlier commit.

Both sides draw the samples, train the tied configuration, cut its updates and prune its neurons,
each stage a process of its own with its workers, in a folder of its own without scratch, so that
nothing is kept from one round to the next. They must agree on what every cut leaves. What each side
measures of the trained models has grown meanwhile: the CPU time is that of everything that its
stages do. The earlier files come from git's history, which a shallow clone lacks.
"""

import io
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchmarks.harness import Contender, Row, Spread, race, write_results
from lib.files.files import InputError
from lib.files.params import load_yaml
from lib.work.command import run

EARLIER = "7d439c4"
SHARE = 0.75  # of the earlier CPU time, at most
FAMILY = "low_rank_sparse"
ROOT = Path(__file__).parents[1]
TABLE = "truncate.parquet"
OF_PRUNING = "prune.parquet neurons.parquet"
STAGES = {
    "generate": "--section={s}.generate --dataset=samples",
    "train": "--section={s}.train --n-seeds={s}.generate.n_seeds "
    "--configurations=configurations.tsv --dataset=samples --runs=runs --losses=losses.parquet",
    "cut": "--section={s}.cut --device={s}.train.device --dataset=samples --runs=runs "
    "--truncate=truncate.parquet --directions=directions.parquet --prune=prune.parquet "
    "--neurons=neurons.parquet",
}
EARLIER_STAGES = {
    "generate": "{s}.generate samples",
    "train": "{s}.train samples runs",
    "truncate": "{s}.truncate samples runs truncate.parquet directions.parquet",
    "prune": "{s}.prune samples runs " + OF_PRUNING,
}


@dataclass(frozen=True)
class Side:
    """The code in a folder, the files that its stages read, and the stages with their arguments."""

    tree: Path
    files: Mapping[str, str]
    stages: Mapping[str, str]
    seconds: dict[str, list[tuple[float, float]]] = field(
        default_factory=dict
    )  # CPU and wall time by stage and round

    def run(self) -> pd.Series:
        """The test hinge loss that each rank leaves of each seed."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file, text in self.files.items():
                (folder / file).write_text(text, encoding="utf-8")
            for stage, arguments in self.stages.items():
                self.seconds.setdefault(stage, []).append(self._timed(stage, arguments, folder))
            table = pd.read_parquet(folder / TABLE)
        return table[table["kind"] == "all"].set_index(["rank", "seed"])["hinge"].sort_index()

    def _timed(self, stage: str, arguments: str, folder: Path) -> tuple[float, float]:
        # DVC may run this: what it told this process must not reach the stages, nor settings of
        # Python.
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("DVC_", "PYTHON"))
        }
        environment |= {"PYTHONPATH": str(self.tree), "DVC_ROOT": str(folder)}
        command = [
            sys.executable,
            "-m",
            f"stages.{FAMILY}.{stage}",
            *arguments.format(s=FAMILY).split(),
        ]
        before = _cpu_of_children()
        start = time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(
                f"{self.tree}: {stage}: exit status {done.returncode}\n{done.stderr}"[-4000:]
            )
        return _cpu_of_children() - before, time.perf_counter() - start

    def rows(self, title: str, rounds: int, n_seeds: int) -> list[Row]:
        """A row per stage, of the last rounds."""
        parts = {
            stage: 1e3 / n_seeds * np.array(seconds[-rounds:])
            for stage, seconds in self.seconds.items()
        }
        return [
            {
                "contender": f"{title}, {stage}",
                "cpu_ms": Spread.of(of[:, 0]),
                "wall_ms": Spread.of(of[:, 1]),
            }
            for stage, of in parts.items()
        ]


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def today(n_seeds: int, n_neurons: int) -> Side:
    """The stages of this tree, on the first line of the table of configurations, which is the tied
    one.
    """
    params = load_yaml(ROOT / "params.yaml")[FAMILY]
    table = (ROOT / params["cases"]["configurations"]).read_text(encoding="utf-8").splitlines()
    header, tied, *_ = [line for line in table if not line.startswith("#")]
    params["generate"]["n_seeds"], params["train"]["n_neurons"] = n_seeds, n_neurons
    files = {
        "params.yaml": yaml.safe_dump({FAMILY: params}),
        "configurations.tsv": f"{header}\n{tied}\n",
    }
    return Side(ROOT, files, STAGES)


def earlier(n_seeds: int, n_neurons: int, tree: Path) -> Side:
    """The stages of the earlier commit, whose files are written into the folder."""
    archive = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, capture_output=True)
    if archive.returncode:
        raise InputError(
            f"{ROOT}: wanted a clone with the commit {EARLIER}, got: "
            f"{archive.stderr.decode().strip()}"
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(tree, filter="data")
    params: dict[str, Any] = load_yaml(tree / "params.yaml")[FAMILY]
    tied = params["train"]["configurations"][0]
    seeds = list(range(n_seeds))
    params["generate"]["seeds"], params["train"]["n_neurons"] = seeds, n_neurons
    params["train"]["configurations"] = [{**tied, "seeds": seeds}]
    return Side(tree, {"params.yaml": yaml.safe_dump({FAMILY: params})}, EARLIER_STAGES)


def main(results: Path, rounds: int = 3, n_seeds: int = 20, n_neurons: int = 1000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            "ours": today(n_seeds, n_neurons),
            EARLIER: earlier(n_seeds, n_neurons, Path(folder)),
        }
        wanted = sides[EARLIER].run()

        def error(found: pd.Series) -> float:
            return float((found - wanted).abs().max(skipna=False))

        contenders = [
            Contender("ours", sides["ours"].run, error, 1e-3, n_seeds),
            Contender(EARLIER, sides[EARLIER].run, error, 1e-3, n_seeds, 1 / SHARE),
        ]
        rows, limits = race(contenders, rounds)
        empty = dict.fromkeys(rows[0])
        rows += [
            empty | row for name, side in sides.items() for row in side.rows(name, rounds, n_seeds)
        ]
    title = (
        f"{n_seeds} seeds of the tied configuration, {n_neurons} neurons, by the stages, "
        f"beside commit {EARLIER}"
    )
    notes = [
        "Times are milliseconds a seed, with start-up, of all processes of the stages; a ratio is "
        "the earlier CPU time "
        f"in units of ours, and the goal that ours is at most {SHARE:.0%} of it; an error is the "
        "largest difference of "
        "a test hinge loss."
    ]
    write_results(results, title, rows, rounds, ["torch"], limits, notes)


if __name__ == "__main__":
    run(main)
