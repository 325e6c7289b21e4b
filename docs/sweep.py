"""A metric of every experiment against a param, as a table and as a figure: `make sweep PARAM=... METRIC=...`."""

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
from lib.io.command import run
from lib.io.files import InputError, atomic

Point = tuple[str, Any, float, float]  # experiment, the param's value, the metric's mean and spread over seeds


def points(shown: list[dict[str, Any]], param: str, file: str, metric: str) -> Iterator[Point]:
    """What `dvc exp show --json` says of every commit and experiment that has both; the workspace is left out."""
    for state in states(shown):
        data = state.get("data")
        if state["rev"] == "workspace" or not data:
            continue
        values = found(data["params"].get("params.yaml", {}).get("data"), param.split("."))
        number = found(data["metrics"].get(file, {}).get("data"), metric.split("."))
        if values is None or number is None:
            continue
        mean, sd = (number.get("mean"), number.get("sd")) if isinstance(number, dict) else (number, 0.0)
        if mean is not None:
            yield state.get("name") or state["rev"][:7], values, mean, sd or 0.0


def states(shown: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for state in shown:
        yield state
        for experiment in state.get("experiments") or []:
            yield from experiment["revs"]


def found(tree: Any, keys: list[str]) -> Any:
    for key in keys:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return tree


def drawn(rows: list[Point], param: str, metric: str) -> Figure:
    """Mean ± spread over seeds against the param: on an axis where it is a number, else one place a value."""
    plain = all(isinstance(value, int | float) and not isinstance(value, bool) for _, value, _, _ in rows)
    x = [value if plain else str(value) for _, value, _, _ in rows]
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    axes.errorbar(x, [mean for _, _, mean, _ in rows], yerr=[sd for *_, sd in rows], fmt="o", capsize=3)
    if plain and min(x) > 0 and max(x) > 20 * min(x):
        axes.set_xscale("log")
    axes.set(xlabel=param, ylabel=f"{metric.replace('_', ' ')}, mean ± sd over seeds")
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
    for column in ("experiment", param, name, "± sd"):
        table.add_column(column)
    for row in rows:
        table.add_row(row[0], str(row[1]), f"{row[2]:.4g}", f"{row[3]:.2g}")
    Console().print(table)
    with styled(), atomic(figure) as part:
        part.write_bytes(rendered(drawn(rows, param, name)))
    print(f"the figure is {figure}")


def set_once(rows: Iterator[Point]) -> list[Point]:
    """Each experiment once: DVC lists a commit again below every name that it has."""
    return list({row[0]: row for row in rows}.values())


if __name__ == "__main__":
    run(main)
