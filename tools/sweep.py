"""Show a metric of experiments against a param, as a table and as a figure.

`make sweep PARAM=vision.digits.train.learning_rate METRIC=vision/digits:test_accuracy` shows the
accuracy by that rate.

An experiment is left out if its value is that of the commit that it began from, as it then belongs
to another sweep. An experiment with other params of its own is left out if no second value of the
param was tried with these.
"""

import json
import math
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from lib.files.files import InputError, atomic
from lib.pages.measures import parsed, summary
from lib.pages.style import rendered, styled
from lib.work.command import run
from tools.compare import values


@dataclass(frozen=True)
class Point:
    """The param's value in an experiment, and its metric: a mean, and the ends of its spread."""

    experiment: str
    value: Any
    mean: float
    low: float
    high: float
    besides: str  # the other params that differ from its commit


def points(shown: list[dict[str, Any]], param: str, file: str, metric: str) -> Iterator[Point]:
    """The points in what `dvc exp show --json` says of every commit and its experiments."""
    for commit in shown:
        if commit["rev"] == "workspace":
            continue
        begun = params_of(commit)
        at = found(begun, param.split("."))
        experiments = commit.get("experiments") or []
        states = [state for experiment in experiments for state in experiment["revs"]]
        for state in [commit, *states]:
            params = params_of(state)
            value = found(params, param.split("."))
            if value is None or (state is not commit and value == at):
                continue
            number = metric_of(state["rev"], file, metric)
            if number is not None:
                others = set(values(params)) - set(values(begun))
                besides = ", ".join(
                    f"{name}={other}" for name, other in sorted(others) if name != param
                )
                yield Point(state.get("name") or state["rev"][:7], value, *number, besides)


def params_of(state: dict[str, Any]) -> Any:
    data = state.get("data") or {"params": {}}
    return data["params"].get("params.yaml", {}).get("data")


def one_sweep(found: list[Point]) -> list[Point]:
    """The points to be compared: each has all other params in common with another value's point."""
    tried: dict[str, set[str]] = {}
    for point in found:
        tried.setdefault(point.besides, set()).add(str(point.value))
    return [point for point in found if not point.besides or len(tried[point.besides]) > 1]


def metric_of(rev: str, file: str, metric: str) -> tuple[float, float, float] | None:
    """The mean in a commit, with mean ± sd, or without a spread where there is one value."""
    shown = subprocess.run(
        ["git", "show", f"{rev}:{file}"], capture_output=True, text=True, check=False
    )
    measures = summary(parsed(shown.stdout, file)) if shown.stdout else {}
    if metric not in measures or not math.isfinite(measures[metric]["mean"]):
        return None
    mean = measures[metric]["mean"]
    sd = measures[metric]["sd"]
    return (mean, mean - sd, mean + sd) if math.isfinite(sd) else (mean, mean, mean)


def found(tree: Any, keys: list[str]) -> Any:
    for key in keys:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return tree


def drawn(rows: list[Point], param: str, metric: str) -> Figure:
    """Draw mean and spread against the param: on an axis if it is a number, or else with a place
    for each value.
    """
    plain = all(
        isinstance(row.value, int | float) and not isinstance(row.value, bool) for row in rows
    )
    x: list[Any] = [row.value if plain else str(row.value) for row in rows]
    ends = [[row.mean - row.low for row in rows], [row.high - row.mean for row in rows]]
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    axes.errorbar(x, [row.mean for row in rows], yerr=ends, fmt="o", capsize=3)
    if plain and min(x) > 0 and max(x) > 20 * min(x):
        axes.set_xscale("log")
    measure, _, case = metric.partition(".")
    measure = measure.replace("_", " ")
    axes.set(xlabel=param, ylabel=f"{measure}, {case}" if case else measure)
    return figure


def main(param: str, metric: str, figure: Path = Path("sweep.svg")) -> None:
    """Show METRIC (as FOLDER:NAME, e.g. vision/digits:test_accuracy) against PARAM (as in
    params.yaml).
    """
    folder, separator, name = metric.partition(":")
    if not separator:
        raise InputError(
            f"METRIC: wanted FOLDER:NAME such as vision/digits:test_accuracy, got {metric!r}"
        )
    file = f"metrics/{folder}/measures.csv"
    said = subprocess.run(
        ["dvc", "exp", "show", "--json"], check=True, capture_output=True, text=True
    ).stdout
    every = points(json.loads(said), param, file, name)
    # once each: DVC lists a commit again below every name that it has
    listed = list({point.experiment: point for point in every}.values())
    rows = sorted(one_sweep(listed), key=lambda row: (str(type(row.value)), row.value))
    if not rows:
        raise InputError(
            f"wanted experiments with the param {param} and the metric {name} of {file}, got none"
        )
    table = Table()
    for column in ("experiment", param, name, "from", "to"):
        table.add_column(column)
    for row in rows:
        numbers = row.mean, row.low, row.high
        table.add_row(row.experiment, str(row.value), *(f"{number:.4g}" for number in numbers))
    Console().print(table)
    for point in listed:
        if point.besides:
            alone = (
                ""
                if point in rows
                else f"left out, as no other value of {param} was tried with them: "
            )
            print(f"{point.experiment}: other params differ too: {alone}{point.besides}")
    with styled(), atomic(figure) as part:
        part.write_bytes(rendered(drawn(rows, param, name)))
    print(f"the figure is {figure}")


if __name__ == "__main__":
    run(main, environment=True)
