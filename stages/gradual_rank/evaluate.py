"""Compare theory with measurement: tables for the figures, and measures for the claims."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from lib.files.params import Count, Fraction, Interval, Name, Positive, Seed, read_params
from lib.files.tables import write_csv
from lib.gradual_rank.activation_times import descent_errors
from lib.gradual_rank.agreement import agreement, agreement_measures
from lib.gradual_rank.measures import (
    Table,
    assumption_measures,
    departed,
    drift_measures,
    end_distances,
    example_measures,
    full_ratios,
    growths,
    of_products,
    rank_measures,
    ranks_of_adapter,
    ranks_of_head,
)
from lib.gradual_rank.tables.descents import FOLDER as DESCENTS
from lib.gradual_rank.tables.disturbed import FOLDER as DISTURBED
from lib.gradual_rank.tables.drawn import HEADS
from lib.gradual_rank.tables.flows import FOLDER as FLOWS
from lib.gradual_rank.tables.full import RISES, SPECTRA
from lib.gradual_rank.tables.predictions import FOLDER as PREDICTIONS
from lib.gradual_rank.tables.predictions import FORECAST
from lib.gradual_rank.tasks import Frames, read_problems, read_studied
from lib.pages.measures import Row, rows_of, setup_rows, write_measures
from lib.work.cells import Tables, joined
from lib.work.command import OutFile, OutFolder, run
from lib.work.schemas import read_tables_of, write_tables_of

SIZES = ("n_seeds", "d_model", "n_heads")  # that statements name
RISES_OF_FULL = ["first_rise_limit", "first_rise_finite", "second_over_first_VO"]


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
    """What is counted, a `significant` product and a `lasting` plateau, and the seed that figures
    show.
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
    names = [problem.name for problem in cases]
    base = read_studied(studied, names)
    theory = {name: read_tables_of(PREDICTIONS, predictions, of=name) for name in names}
    flow = {name: read_tables_of(FLOWS, flows, of=name) for name in names}
    parts: list[Tables] = []
    measured: list[Row] = []
    for problem in cases:
        here, taken = compared(problem, params, bar, theory[problem.name], flow[problem.name])
        parts.append(here)
        measured += taken
    tables = {name: joined(parts, name) for name in parts[0]}
    tables["charges"] = tables["charges"][tables["charges"]["problem"] == base]
    rows = [{**asdict(problem), "studied": problem.name == base} for problem in cases]
    tables["problems"] = Table(rows)

    stages, predicted = theory[base].values()
    events = flow[base]["events"]
    ranks = ranks_of_head(events, predicted, stages, params.n_budgets)
    forecast = FORECAST.read(predictions / "forecast.parquet")
    adapter = ranks_of_adapter(forecast, params.n_budgets)
    tables |= {"ranks": ranks, "forecast": adapter}

    crossed, ends, drop, drifts = read_tables_of(DESCENTS, descents).values()
    tables |= {"drop": drop, "conserved": drifts}
    tables["descents"] = descent_errors(crossed, ends, events)

    returns, paths, kicks = read_tables_of(DISTURBED, disturbed).values()
    near = end_distances(paths)
    shown = paths[(paths["seed"] == params.figure_seed) & (paths["noise"] == "independent")]
    tables |= {"returns": returns, "kicks": kicks, "paths": shown, "path_ends": near}

    full = of_products(SPECTRA.read(spectra))
    first = RISES.read(rises)
    ratios = full_ratios(first, full, level)
    small = full["log10_init_scale"] == full["log10_init_scale"].min()
    shown = full[small & (full["seed"] == params.figure_seed)]
    tables |= {"full_weights": shown, "full_ratios": ratios, "rises": first}

    plain = drifts[drifts["decay"] == 0]
    rising = ratios.set_index("seed")
    measured += [
        *rows_of(rank_measures(adapter, "forecast"), "adapter"),
        *rows_of(rank_measures(ranks, "finite"), "head"),
        *rows_of({"conserved_growth": growths(plain)} | drift_measures(plain)),
        *rows_of(drift_measures(drifts[drifts["decay"] > 0]), "decayed"),
        *rows_of(example_measures(drop)),
        *rows_of(assumption_measures(returns, kicks, near, bar.returned, bar.near)),
        *rows_of({name: rising[name] for name in RISES_OF_FULL}, "full"),
    ]
    said = setup(cases, tables, bar, level)
    write_tables_of(HEADS, tables, metrics / "tables", small=True)
    write_measures(said + measured, metrics, {"time_constant": ("time_constant", base)})
    loss = tables["trajectories"][tables["trajectories"]["problem"] == base]
    variant = "init scale 1e" + loss["log10_init_scale"].map("{:g}".format)
    loss = loss.assign(variant=variant)[["variant", "rescaled_time", "loss"]]
    write_csv(loss.iloc[::4], curves)


def compared(
    problem: Problem, params: Evaluate, bar: Bars, theory: Tables, flow: Tables
) -> tuple[Tables, list[Row]]:
    """The tables and the measures of a problem."""
    stages = theory["stages"]
    errors = agreement(theory, flow, params.significant, params.lasting)
    measures = agreement_measures(errors, stages, flow["twins"], bar.log10_init_scale)
    shown = flow["times"]
    tables = {"stages": stages, "errors": errors, "trajectories": shown, "charges": shown}
    tables |= {"departed": departed(stages), "twins": flow["twins"]}
    named = {name: table.assign(problem=problem.name) for name, table in tables.items()}
    return named, rows_of(measures, problem.name)


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
