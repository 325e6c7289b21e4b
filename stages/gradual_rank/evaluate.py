"""Compare theory with measurement: tables for the figures, and measures for the claims."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd

from lib.files.params import Count, Fraction, Interval, Name, Positive, Seed, read_params
from lib.files.tables import read_table, write_csv
from lib.gradual_rank.activation_times import (
    activations,
    constants,
    descent_errors,
    halvings,
    rise_durations,
    time_errors,
)
from lib.gradual_rank.measures import (
    CELL,
    Table,
    assumption_measures,
    by_scale,
    charge_constants,
    departed,
    drift_measures,
    end_distances,
    example_measures,
    full_ratios,
    growths,
    measures_by_scale,
    of_products,
    plateau_errors,
    pulls,
    rank_measures,
    ranks_of_adapter,
    ranks_of_head,
    relative_gaps,
    same_supports,
    stage_measures,
    write_metrics,
)
from lib.gradual_rank.tasks import Frames, read_problems, read_studied
from lib.pages.measures import Row, Values, rows_of, setup_rows
from lib.work.command import OutFile, OutFolder, run

SIZES = ("n_seeds", "d_model", "n_heads")  # that statements name
# The columns that are read of tables.
EVENTS = "seed log10_init_scale time coordinate sign rises"
STAGES = (
    "seed stage time next_time gap coordinate sign loss n_active dropped n_dropped "
    "learning_rate_limit strictness_products strictness_weights g charge p support"
)
TIMES = "seed log10_init_scale time rescaled_time loss p charge"
PLATEAUS = "seed log10_init_scale rescaled_time loss p stage charge"
TWINS = "seed log10_init_scale head share predicted"
CROSSED = "form share_of_limit seed time coordinate rises"
ENDS = "form share_of_limit log10_init_scale seed learning_rate drift"
DROP = "method log10_init_scale coordinate sign rescaled_time lost"
RETURNS = "seed point kind time noise ratio_products ratio_weights"
KICKS = "seed stage noise error"
PATHS = "seed point kind time noise after coordinates p p_undisturbed"
RISES = "seed log10_init_scale time limit finite stepped"
SPECTRA = "seed log10_init_scale step learning_rate matrix of singular_values"
DRIFTS = "seed rtol decay drift growth"
RISES_OF_FULL = ["first_rise_limit", "first_rise_finite", "second_over_first_VO"]
ADAPTER = "seed log10_init_scale source end time rises"


@dataclass(frozen=True)
class Problem:
    """What statements and figures say of a problem."""

    name: Name
    n_seeds: Count
    d_model: Count
    drawn: bool
    n_heads: Count | None = None
    n_layers: Count | None = None
    frames: Frames | None = None


@dataclass(frozen=True)
class Evaluate:
    """What is counted: a `significant` product, a plateau that is `lasting`.

    The figures show the trajectories of one seed, `figure_seed` where it was run, else of the
    first.
    """

    significant: Positive
    lasting: Fraction
    n_budgets: Annotated[int, Interval("[2, 100000]")]
    figure_seed: Seed


@dataclass(frozen=True)
class Bars:
    """From which init scale errors are C / log(1 / init_scale), and what has come back."""

    log10_init_scale: Annotated[float, Interval("[-1000, 0)")]
    returned: Positive
    near: Positive


def main(
    section: str,
    bars: str,
    risen: str,
    studied: str,
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
    """Write `tables`, `measures.csv`, `headlines.json`, and the curves of the loss."""
    params = read_params(section, Evaluate)
    bar = read_params(bars, Bars)
    level = read_params(risen, float)
    cases = read_problems(problems, Problem, usual)
    base = read_studied(studied, [problem.name for problem in cases])
    tables, measured = all_compared(cases, base, params, bar, predictions, flows)

    stages = read(predictions / f"{base}_stages.parquet", STAGES)
    predicted = read(predictions / f"{base}_events.parquet", EVENTS)
    events = read(flows / f"{base}_events.parquet", EVENTS)
    ranks = ranks_of_head(events, predicted, stages, params.n_budgets)
    forecast = read(predictions / "forecast.parquet", ADAPTER)
    adapter = ranks_of_adapter(forecast, params.n_budgets)
    tables |= {"ranks": ranks, "forecast": adapter}

    crossed = read(descents / "events.parquet", CROSSED)
    ends = read(descents / "ends.parquet", ENDS)
    tables["drop"] = read(descents / "drop.parquet", DROP)
    tables["descents"] = descent_errors(crossed, ends, events)
    tables["conserved"] = read(descents / "conserved.parquet", DRIFTS)

    returns = read(disturbed / "returns.parquet", RETURNS)
    kicks = read(disturbed / "kicks.parquet", KICKS)
    paths = read(disturbed / "paths.parquet", PATHS)
    near = end_distances(paths)
    shown = paths[(paths["seed"] == params.figure_seed) & (paths["noise"] == "independent")]
    tables |= {"returns": returns, "kicks": kicks, "paths": shown, "path_ends": near}

    full = of_products(read(spectra, SPECTRA))
    first = read(rises, RISES)
    ratios = full_ratios(first, full, level)
    small = full["log10_init_scale"] == full["log10_init_scale"].min()
    shown = full[small & (full["seed"] == params.figure_seed)]
    tables["full_weights"] = shown.drop(columns=["time", "stable_rank"])
    tables["full_ratios"] = ratios
    tables["rises"] = first

    drifts = tables["conserved"]
    plain = drifts[drifts["decay"] == 0]
    rising = ratios.set_index("seed")
    measured += [
        *rows_of(rank_measures(adapter, "forecast"), "adapter"),
        *rows_of(rank_measures(ranks, "finite"), "head"),
        *rows_of({"conserved_growth": growths(plain)} | drift_measures(plain)),
        *rows_of(drift_measures(drifts[drifts["decay"] > 0]), "decayed"),
        *rows_of(example_measures(tables["drop"])),
        *rows_of(assumption_measures(returns, kicks, near, bar.returned, bar.near)),
        *rows_of({name: rising[name] for name in RISES_OF_FULL}, "full"),
    ]
    said = setup(cases, tables, bar, level)
    write_metrics(tables, said + measured, metrics, {"time_constant": ("time_constant", base)})
    loss = tables["trajectories"][tables["trajectories"]["problem"] == base]
    variant = "init scale 1e" + loss["log10_init_scale"].map("{:g}".format)
    loss = loss.assign(variant=variant)[["variant", "rescaled_time", "loss"]]
    write_csv(loss.iloc[::4], curves)


def read(file: Path, columns: str) -> Table:
    """These columns of a table."""
    return read_table(file, columns.split())


def all_compared(
    cases: tuple[Problem, ...],
    base: str,
    params: Evaluate,
    bar: Bars,
    predictions: Path,
    flows: Path,
) -> tuple[dict[str, Table], list[Row]]:
    """The tables of all problems (charges: of `base` alone), and the measures of each."""
    found: dict[str, list[Table]] = {}
    measured: list[Row] = []
    for problem in cases:
        tables, measures = compared(problem.name, params, bar, predictions, flows)
        for name, table in tables.items():
            if name != "charges" or problem.name == base:
                found.setdefault(name, []).append(table.assign(problem=problem.name))
        measured += rows_of(measures, problem.name)
    rows = [{**asdict(problem), "studied": problem.name == base} for problem in cases]
    joined = {
        name: pd.concat([t for t in parts if len(t)] or parts[:1], ignore_index=True)
        for name, parts in found.items()
    }
    return joined | {"problems": Table(rows)}, measured


def compared(
    name: str, params: Evaluate, bar: Bars, predictions: Path, flows: Path
) -> tuple[dict[str, Table], dict[str, Values]]:
    """Tables and measures of one problem: the flow against Algorithm 1 and its finite-scale
    form.
    """
    stages = read(predictions / f"{name}_stages.parquet", STAGES)
    predicted = read(predictions / f"{name}_events.parquet", EVENTS)
    times = read(flows / f"{name}_times.parquet", TIMES)
    plateaus = read(flows / f"{name}_plateaus.parquet", PLATEAUS)
    events = read(flows / f"{name}_events.parquet", EVENTS)
    grown = read(flows / f"{name}_grown.parquet", EVENTS)
    twins = read(flows / f"{name}_twins.parquet", TWINS)
    activated = activations(stages, events, predicted, params.significant)
    errors = time_errors(activated)
    for more in (
        plateau_errors(stages, plateaus, params.lasting),
        same_supports(stages, plateaus, params.significant),
        charge_constants(stages, plateaus),
        rise_durations(events, grown, stages),
    ):
        errors = errors.merge(more, on=CELL, how="left")
    seed = min(times["seed"].unique(), key=lambda s: (s != params.figure_seed, s))
    shown = times[times["seed"] == seed].drop(columns="time")
    tables = {
        "stages": stages.drop(columns=["support", "g"]),
        "errors": errors,
        "trajectories": shown.drop(columns="charge"),
        "charges": shown.drop(columns=["loss", "p"]),
        "departed": departed(stages),
        "twins": twins,
    }
    measures: dict[str, Values] = {
        "time_constant": constants(errors, bar.log10_init_scale),
        "halving": halvings(errors, bar.log10_init_scale),
        **stage_measures(stages),
        **pulls(stages),
        "relative_gap": relative_gaps(stages),
        **measures_by_scale(errors),
    }
    if len(twins):
        off = twins.assign(off=(twins["share"] - twins["predicted"]).abs())
        largest = off.groupby(CELL)[["off", "share"]].max().reset_index()
        measures["share_error"] = by_scale(largest, "off")
        measures["largest_share"] = by_scale(largest, "share")
    return tables, measures


def setup(
    cases: tuple[Problem, ...], tables: dict[str, Table], bar: Bars, risen: float
) -> list[Row]:
    """What statements of claims name: sizes, scales, and how long and strongly was disturbed."""
    said: list[Row] = []
    last = tables["stages"].groupby("problem")["stage"].max()
    for problem in cases:
        sizes = {name: getattr(problem, name) for name in SIZES} | {"n_stages": last[problem.name]}
        known = {name: int(size) for name, size in sizes.items() if size is not None}
        said += setup_rows(known, problem.name)
    drifts = tables["conserved"]
    plain = tables["drop"][tables["drop"]["method"].str.startswith("plain")]
    scales = {
        "plain_scale": plain["log10_init_scale"].min(),
        "full_scale": tables["rises"]["log10_init_scale"].min(),
        "tiny": bar.log10_init_scale,
    }
    numbers = {
        **{name: f"1e{scale:g}" for name, scale in scales.items()},
        "finest": f"{drifts['rtol'].min():g}",
        "coarsest": f"{drifts['rtol'].max():g}",
        "decayed": float(drifts["decay"].max()),
        "risen": risen,
        "near": bar.near,
        "returned": bar.returned,
        "duration": float(tables["path_ends"]["after"].max()),
    }
    return said + setup_rows(numbers)


if __name__ == "__main__":
    run(main)
