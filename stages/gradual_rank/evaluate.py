"""Compare theory with measurement: what git keeps of the family, tables for the figures and
measures for the claims.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd

from lib.files.files import InputError, clear
from lib.files.params import Count, Fraction, Interval, Name, Positive, Seed, read_params
from lib.files.tables import compact, read_table, write_csv, write_measures, write_table
from lib.gradual_rank.activation_times import (
    activations,
    control_shares,
    rise_durations,
    time_errors,
    time_measures,
    with_control,
)
from lib.gradual_rank.measures import (
    assumption_measures,
    by_scale,
    departed,
    departures,
    descent_errors,
    descent_measures,
    end_distances,
    example_measures,
    full_measures,
    measures_by_scale,
    plateau_distances,
    rank_errors,
    ranks_of_adapter,
    ranks_of_head,
    stage_measures,
)
from lib.gradual_rank.staircase import plateau_errors, relative_gaps
from lib.gradual_rank.tasks import read_problems
from lib.matrices.ranks import of_products
from lib.work.command import OutFile, OutFolder, run

Table = pd.DataFrame
Measures = dict[str, pd.Series | dict[str, pd.Series]]


@dataclass(frozen=True)
class Problem:
    """What statements and figures say of a problem."""

    name: Name
    n_seeds: Count
    d_model: Count
    drawn: bool
    n_heads: Count | None = None
    n_layers: Count | None = None


@dataclass(frozen=True)
class Evaluate:
    """What is counted: a coordinate of a `significant` product, a plateau that stands `apart` or is
    `lasting`.

    The figures show the trajectories of one seed, `figure_seed` where it was run, else of the
    first.
    """

    significant: Positive
    apart: Annotated[float, Interval("[0, 1)")]
    lasting: Fraction
    n_budgets: Annotated[int, Interval("[2, 100000]")]
    figure_seed: Seed


@dataclass(frozen=True)
class Full:
    """Of the head with full matrices."""

    d_model: Count
    threshold: Positive


@dataclass(frozen=True)
class Bars:
    """The init scale from which the error is C / log(1 / init_scale), and when what is disturbed
    has come back.
    """

    log10_init_scale: Annotated[float, Interval("[-1000, 0)")]
    returned: Positive
    near: Positive


def main(
    section: str,
    bars: str,
    full_weights: str,
    studied: str,
    threshold: str,
    grown: str,
    usual: str,
    problems: Path,
    predictions: Path,
    flows: Path,
    descents: Path,
    disturbed: Path,
    rises: Path,
    spectra: Path,
    metrics: OutFolder,
    curves: OutFile,
) -> None:
    """Write `tables`, `measures.json` and `summary.json` in metrics, and the curves of the loss."""
    params = read_params(section, Evaluate)
    bar = read_params(bars, Bars)
    matrices = read_params(full_weights, Full, part=True)
    base = read_params(studied, str)
    cases = read_problems(problems, Problem, usual)
    if base not in [problem.name for problem in cases]:
        raise InputError(f"{studied}: wanted one of the problems of {problems}, got {base!r}")
    found: dict[str, list[Table]] = {}
    measured: Measures = {}
    for problem in cases:
        tables, measures = compared(problem.name, params, bar, predictions, flows)
        for name, table in tables.items():
            if name != "charges" or problem.name == base:
                found.setdefault(name, []).append(table.assign(problem=problem.name))
        measured |= {f"{problem.name}_{name}": values for name, values in measures.items()}
    tables = {
        name: pd.concat([t for t in parts if len(t)] or parts[:1], ignore_index=True)
        for name, parts in found.items()
    }
    tables["problems"] = Table(
        [{**asdict(problem), "studied": problem.name == base} for problem in cases]
    )

    stages, predicted = (
        read_table(predictions / f"{base}_{name}.parquet") for name in ("stages", "events")
    )
    events = read_table(flows / f"{base}_events.parquet")
    control = read_table(flows / "control.parquet")
    own = tables["activations"]["problem"] == base
    flipped = with_control(tables["activations"][own], control)
    tables["activations"] = pd.concat([flipped, tables["activations"][~own]], ignore_index=True)
    measured["control_flipped_share"] = control_shares(flipped)
    ranks = tables["ranks"] = ranks_of_head(events, predicted, stages, params.n_budgets)
    crossed, ends, tables["drop"] = (
        read_table(descents / f"{n}.parquet") for n in ("events", "ends", "drop")
    )
    tables["descents"] = descent_errors(crossed, ends, events)
    returns, kicks, paths = (
        read_table(disturbed / f"{name}.parquet") for name in ("returns", "kicks", "paths")
    )
    shown = paths[(paths["seed"] == params.figure_seed) & (paths["noise"] == "independent")]
    near = end_distances(paths)
    tables |= {"returns": returns, "kicks": kicks, "paths": shown, "path_ends": near}
    full = of_products(read_table(spectra))
    first = read_table(rises, ["seed", "log10_init_scale", "time", "limit", "finite", "stepped"])
    smallest = full[full["log10_init_scale"] == full["log10_init_scale"].min()].query(
        f"seed == {params.figure_seed}"
    )
    tables |= {"full_weights": smallest.drop(columns=["time", "stable_rank"]), "rises": first}
    adapter = tables["forecast"] = ranks_of_adapter(
        read_table(predictions / "forecast.parquet"), params.n_budgets
    )
    rising = full_measures(first, full, matrices.threshold)
    columns = {name.removeprefix("full_"): values for name, values in rising.items()}
    tables["full_ratios"] = Table(columns).rename_axis("seed").reset_index()
    measured |= assumption_measures(returns, kicks, near, bar.returned, bar.near) | rising
    measured |= descent_measures(tables["descents"]) | example_measures(tables["drop"])
    forecasts = {
        "adapter": (adapter, "forecast"),
        "head": (ranks, "finite"),
        "head_limit": (ranks, "limit"),
    }
    measured |= {
        f"rank_error_{name}": by_scale(rank_errors(*one), "error")
        for name, one in forecasts.items()
    }
    said = setup(cases, tables, bar, matrices)
    said |= {"threshold": read_params(threshold, float), "grown": read_params(grown, float)}
    loss = tables["trajectories"][tables["trajectories"]["problem"] == base]
    loss = loss.assign(variant="init scale 1e" + loss["log10_init_scale"].map("{:g}".format))
    small = {name: compact(table) for name, table in tables.items()}
    clear(metrics / "tables", "*.parquet")
    for name, table in small.items():
        write_table(table, metrics / "tables" / f"{name}.parquet")
    write_measures(
        {n: v for n, v in measured.items() if len(v)}, metrics, said, [f"{base}_time_constant"]
    )
    write_csv(loss[["variant", "rescaled_time", "loss"]].iloc[::4], curves)


def compared(
    name: str, params: Evaluate, bar: Bars, predictions: Path, flows: Path
) -> tuple[dict[str, Table], Measures]:
    """Tables and measures of one problem: the flow against Algorithm 1 and its finite-scale
    form.
    """
    stages, predicted = (
        read_table(predictions / f"{name}_{kind}.parquet") for kind in ("stages", "events")
    )
    times, plateaus, events, grown, twins = (
        read_table(flows / f"{name}_{kind}.parquet")
        for kind in ("times", "plateaus", "events", "grown", "twins")
    )
    activated = activations(stages, events, predicted, params.significant)
    key = ["seed", "log10_init_scale"]
    errors = time_errors(activated)
    left = departed(stages)
    for more in (
        plateau_errors(stages, plateaus, params.apart, params.lasting),
        plateau_distances(stages, plateaus, params.significant),
        rise_durations(events, grown, stages),
    ):
        errors = errors.merge(more, on=key, how="left")
    seed = min(times["seed"].unique(), key=lambda s: (s != params.figure_seed, s))
    tables = {
        "stages": stages.drop(columns=["support", "g"]),
        "activations": activated,
        "errors": errors,
        "trajectories": times[times["seed"] == seed].drop(columns=["time", "charge"]),
        "charges": times[times["seed"] == seed].drop(columns=["time", "loss", "p"]),
        "departed": left,
        "twins": twins,
    }
    measures: Measures = {**time_measures(errors, bar.log10_init_scale), **stage_measures(stages)}
    measures |= {"relative_gap": relative_gaps(stages), **measures_by_scale(errors)}
    measures["coordinates_that_leave_the_flow"] = by_scale(
        departures(events, stages["seed"].unique()), "left"
    )
    if len(twins):
        off = (twins["share"] - twins["predicted"]).abs()
        measures["share_error"] = by_scale(
            twins.assign(off=off).groupby(key)["off"].max().reset_index(), "off"
        )
        measures["largest_share"] = by_scale(
            twins.groupby(key)["share"].max().reset_index(), "share"
        )
    return tables, measures


def setup(
    cases: tuple[Problem, ...], tables: dict[str, Table], bar: Bars, full: Full
) -> dict[str, float | str]:
    """What statements of claims name: sizes, scales, and how long and how strongly was
    disturbed.
    """
    counts = tables["stages"].groupby("problem")["stage"].max()
    said: dict[str, float | str] = {}
    for problem in cases:
        own = {
            key: value
            for key, value in asdict(problem).items()
            if isinstance(value, int) and key != "drawn"
        }
        said |= {f"{problem.name}_{key}": value for key, value in own.items()}
        said[f"{problem.name}_n_stages"] = int(counts[problem.name])
    drop = (
        tables["drop"]
        .groupby(tables["drop"]["method"].str.split().str[0])["log10_init_scale"]
        .min()
    )
    scales = {
        "drop_scale": drop["flow"],
        "plain_scale": drop["plain"],
        "control_scale": tables["activations"]["flipped_scale"].max(),
        "descend_scale": tables["descents"]["log10_init_scale"].min(),
        "full_scale": tables["rises"]["log10_init_scale"].min(),
        "tiny": bar.log10_init_scale,
    }
    said |= {name: f"1e{scale:g}" for name, scale in scales.items()}
    said |= {
        "full_d_model": full.d_model,
        "risen": full.threshold,
        "near": bar.near,
        "returned": bar.returned,
    }
    return said | {"duration": float(tables["path_ends"]["after"].max())}


if __name__ == "__main__":
    run(main)
