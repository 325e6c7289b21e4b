"""A measure of the experiments over a param, as a table and as a figure.

`make sweep PARAM=vision.digits.train.learning_rate METRIC=vision/digits:test_accuracy`: the accuracy by that rate.

An experiment with the same value as the commit that it began from is of another sweep, and left out.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from lib.figures.style import rendered, styled
from lib.io.base.command import run
from lib.io.base.files import InputError, atomic

Point = tuple[str, Any, float, float, float]  # experiment, the param's value, the metric's mean, low and high end


def points(shown: list[dict[str, Any]], param: str, file: str, metric: str) -> Iterator[Point]:
    """What `dvc exp show --json` says of every commit and its experiments; the workspace is left out."""
    for commit in shown:
        if commit["rev"] == "workspace":
            continue
        begun = value_of(commit, param)
        states = [state for experiment in commit.get("experiments") or [] for state in experiment["revs"]]
        for state in [commit, *(state for state in states if value_of(state, param) != begun)]:
            value = value_of(state, param)
            number = None if value is None else metric_of(state["rev"], file, metric)
            if value is not None and number is not None:
                yield state.get("name") or state["rev"][:7], value, *number


def value_of(state: dict[str, Any], param: str) -> Any:
    data = state.get("data") or {"params": {}}
    return found(data["params"].get("params.yaml", {}).get("data"), param.split("."))


def metric_of(rev: str, file: str, metric: str) -> tuple[float, float, float] | None:
    """The mean in a commit, and the ends of what it varies between: mean ± sd, else from the least to the largest."""
    shown = subprocess.run(["git", "show", f"{rev}:{file}"], capture_output=True, text=True, check=False)
    number = found(json.loads(shown.stdout or "null"), metric.split("."))
    if not isinstance(number, dict):
        return None if number is None else (number, number, number)
    mean, sd = number.get("mean"), number.get("sd")
    if mean is None:
        return None
    return mean, *((number.get("min", mean), number.get("max", mean)) if sd is None else (mean - sd, mean + sd))


def found(tree: Any, keys: list[str]) -> Any:
    for key in keys:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return tree


def drawn(rows: list[Point], param: str, metric: str) -> Figure:
    """Mean and spread against the param: on an axis where it is a number, else one place per value."""
    plain = all(isinstance(value, int | float) and not isinstance(value, bool) for _, value, *_ in rows)
    x: list[Any] = [value if plain else str(value) for _, value, *_ in rows]
    ends = [[mean - low for *_, mean, low, _ in rows], [high - mean for *_, mean, _, high in rows]]
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    axes.errorbar(x, [mean for *_, mean, _, _ in rows], yerr=ends, fmt="o", capsize=3)
    if plain and min(x) > 0 and max(x) > 20 * min(x):
        axes.set_xscale("log")
    axes.set(xlabel=param, ylabel=metric.replace("_", " "))
    return figure


def main(param: str, metric: str, figure: Path = Path("sweep.svg")) -> None:
    """PARAM as in params.yaml, METRIC as FOLDER:NAME, e.g. vision/digits:test_accuracy."""
    folder, separator, name = metric.partition(":")
    if not separator:
        raise InputError(f"METRIC: wanted FOLDER:NAME such as vision/digits:test_accuracy, got {metric!r}")
    file = f"metrics/{folder}/summary.json"
    said = subprocess.run(["dvc", "exp", "show", "--json"], check=True, capture_output=True, text=True).stdout
    rows = sorted(set_once(points(json.loads(said), param, file, name)), key=lambda row: (str(type(row[1])), row[1]))
    if not rows:
        raise InputError(f"wanted experiments with the param {param} and the metric {name} of {file}, got none")
    table = Table()
    for column in ("experiment", param, name, "from", "to"):
        table.add_column(column)
    for row in rows:
        table.add_row(row[0], str(row[1]), *(f"{number:.4g}" for number in row[2:]))
    Console().print(table)
    with styled(), atomic(figure) as part:
        part.write_bytes(rendered(drawn(rows, param, name)))
    print(f"the figure is {figure}")


def set_once(rows: Iterator[Point]) -> list[Point]:
    """Each experiment once: DVC lists a commit again below every name that it has."""
    return list({row[0]: row for row in rows}.values())


if __name__ == "__main__":
    run(main, environment=True)
