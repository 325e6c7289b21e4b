"""Draw the family's figures from tables in git."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lib.files.params import read_params
from lib.gradual_rank.figures.adapter_start import adapter_start
from lib.gradual_rank.figures.cross_entropy import cross_entropy_plateaus
from lib.gradual_rank.figures.decay import weight_decay
from lib.gradual_rank.figures.diagram import attention_head
from lib.gradual_rank.figures.disturbances import (
    assumption_checks,
    disturbed_at_a_rise,
    disturbed_at_random,
)
from lib.gradual_rank.figures.forecasts import descents_beside_the_flow, ranks_by_budget
from lib.gradual_rank.figures.greedy_limit import (
    charges_and_rises,
    errors_by_scale,
    label,
    supports_by_scale,
)
from lib.gradual_rank.figures.heads import one_head, several_heads
from lib.gradual_rank.figures.momentum import waits_of_optimizers
from lib.gradual_rank.figures.normalized import normalized_heads
from lib.gradual_rank.figures.optimizers import courses, properties, signs, what_the_path_decides
from lib.gradual_rank.figures.paper_size import descents_on_batches
from lib.gradual_rank.figures.second_event import what_rises_second
from lib.gradual_rank.figures.staircase import (
    Case,
    entries_and_singular_values,
    entries_by_scale,
    full_matrices,
    loss_frames,
    losses_by_scale,
)
from lib.gradual_rank.figures.turns import after_the_turn
from lib.gradual_rank.tables.adapter_start import DRAWN as ADAPTER_START
from lib.gradual_rank.tables.cross_entropy import DRAWN as CROSS_ENTROPY
from lib.gradual_rank.tables.drawn import DECAY, HEADS, OPTIMIZERS
from lib.gradual_rank.tables.momentum import DRAWN as MOMENTUM
from lib.gradual_rank.tables.normalized import FOLDER as NORMALIZED
from lib.gradual_rank.tables.paper_size import FOLDER as AT_PAPER_SIZE
from lib.gradual_rank.tables.second_event import DRAWN as SECOND_EVENT
from lib.gradual_rank.tables.turns import DRAWN as TURNS
from lib.pages.bars import Bar, read_bars
from lib.pages.style import as_svg
from lib.work.command import OutFolder, run
from lib.work.compute import write_figures
from lib.work.schemas import read_tables_of

CLAIMS = Path(__file__).with_name("claims.yaml")  # whose bars are drawn, beside those of params
WHOLE = "whole"  # the problem at whose size is descended
Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Bars:
    """The init scale from which the error is C / log(1 / init_scale), and when what is disturbed
    has come back.
    """

    log10_init_scale: float
    returned: float
    near: float


def main(
    bars: str,
    full_d_model: str,
    metrics: Path,
    optimizers: Path,
    decayed: Path,
    paper_size: Path,
    adapters: Path,
    normalized: Path,
    turns: Path,
    momentum: Path,
    second_event: Path,
    cross_entropy: Path,
    figures: OutFolder,
) -> None:
    tables = (
        metrics,
        optimizers,
        decayed,
        paper_size,
        adapters,
        normalized,
        turns,
        momentum,
        second_event,
        cross_entropy,
    )
    drawn = drawings(bars, full_d_model, *tables)
    write_figures(figures, drawn, as_svg)


def drawings(
    bars: str,
    full_d_model: str,
    metrics: Path,
    optimizers: Path,
    decayed: Path,
    paper_size: Path,
    adapters: Path,
    normalized: Path,
    turns: Path,
    momentum: Path,
    second_event: Path,
    cross_entropy: Path,
) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    bar = read_params(bars, Bars)
    asked = read_bars(CLAIMS)
    d_full = read_params(full_d_model, int)
    t = read_tables_of(HEADS, metrics)
    c = read_tables_of(OPTIMIZERS, optimizers)
    w = read_tables_of(DECAY, decayed)
    s = read_tables_of(AT_PAPER_SIZE, paper_size)
    a = read_tables_of(ADAPTER_START, adapters)
    n = read_tables_of(NORMALIZED, normalized)
    b = read_tables_of(TURNS, turns)
    m = read_tables_of(MOMENTUM, momentum)
    e = read_tables_of(SECOND_EVENT, second_event)
    x = read_tables_of(CROSS_ENTROPY, cross_entropy)
    diagonal = (w["course"], w["plateaus"], w["heads"])
    every = t["problems"]
    literal = every["frames"] == "standard"
    problems = every[~literal]
    errors = t["errors"]
    base = problems.loc[problems["studied"], "name"].iloc[0]
    studied = case(t, base)
    drawn_too = problems["drawn"] & ~problems["studied"]
    others = [case(t, name) for name in problems.loc[drawn_too, "name"]]
    _, small, stages, _ = studied
    own = t["stages"][t["stages"]["problem"] == base]
    seed = int(small["seed"].iloc[0])
    d = len(small["p"].iloc[0]) // 2
    drawn: dict[str, Callable[[], Figure]] = {
        "diagram": attention_head,
        "figure-2": partial(
            entries_and_singular_values, small, stages, t["full_weights"], t["rises"], d_full
        ),
        "figure-6": partial(losses_by_scale, [studied, *others]),
        "figure-6-frames": partial(loss_frames, studied),
        "figure-7": partial(entries_by_scale, [studied, *others[:1]], "W_KQ"),
        "figure-8": partial(entries_by_scale, [studied, *others[:1]], "W_VO"),
        "figure-9": partial(disturbed_at_random, t["paths"], d),
        "figure-10": partial(disturbed_at_a_rise, t["paths"], d),
        "full-weights": partial(full_matrices, t["rises"], t["full_ratios"]),
        "errors": partial(errors_by_scale, errors, problems, bar.log10_init_scale, asked),
        "supports": partial(supports_by_scale, errors, t["stages"], t["departed"], problems),
        "charges": partial(charges_and_rises, t["charges"], t["stages"], errors, problems, asked),
        "assumptions": partial(
            assumption_checks,
            t["stages"],
            t["returns"],
            t["kicks"],
            t["path_ends"],
            every,
            bar.returned,
            bar.near,
        ),
        "forecast": partial(ranks_by_budget, t["ranks"], t["forecast"], seed),
        "optimizers": partial(courses, c["courses"]),
        "properties": partial(properties, c["optimizers"], asked["others_do_not_wait"]),
        "few-tokens": partial(what_the_path_decides, c["few"], c["noisy_paths"]),
        "sign-flow": partial(
            signs, c["flow"], c["descent"], c["diagonal"], c["distances"], c["slopes"]
        ),
        "descent": partial(descents_beside_the_flow, t["descents"], own, t["drop"]),
        "decay": partial(weight_decay, *diagonal, w["full_rises"], w["joins"], w["full_rests"]),
        "adapter-start": partial(adapter_start, a["learned"], a["course"], a["orders"], asked),
        "normalized": partial(
            normalized_heads,
            n["heads"],
            n["limits"],
            n["courses"],
            asked["keys_do_not_wait"],
            asked["keys_turn_before_values"],
        ),
        "after-the-turn": partial(
            after_the_turn,
            b["lags"],
            b["courses"],
            b["laws"],
            b["heads"],
            b["limits"],
            asked["keys_do_not_step"],
        ),
        "momentum": partial(
            waits_of_optimizers, m["waits"], m["courses"], m["roots"], asked["momentum_wait"]
        ),
        "second-event": partial(
            what_rises_second,
            e["heads"],
            e["rises"],
            e["added_waits"],
            e["courses"],
            asked["second_event_wait"],
        ),
        "cross-entropy": partial(
            cross_entropy_plateaus,
            x["supports"],
            x["courses"],
            x["stages"],
            asked["cross_entropy_supports"],
        ),
    }
    if literal.any():
        examples = [case(t, name) for name in every.loc[literal, "name"]]
        drawn["example-4-6"] = partial(one_head, examples, errors)
    if WHOLE in set(every["name"]):
        drawn |= at_paper_size(s, case(t, WHOLE), asked["batches_follow"])
    tied = t["twins"]["problem"].unique() if len(t["twins"]) else []
    free = problems.loc[problems["n_layers"].notna() & ~problems["name"].isin(tied), "name"]
    if len(free) and len(tied):
        (_, rows, theory, _), (_, together, first, _) = case(t, free.iloc[0]), case(t, tied[0])
        twins = t["twins"][t["twins"]["problem"] == tied[0]]
        names = (free.iloc[0], tied[0])
        said = [label(name, problems) for name in names]
        drawn["example-3-2"] = partial(
            several_heads, said[0], rows, theory, said[1], together, first, twins
        )
    return drawn


def at_paper_size(tables: Tables, whole: Case, bar: Bar) -> dict[str, Callable[[], Figure]]:
    """Figure 2 at the paper's size, and the descents on batches beside the flow of the `whole`
    head.
    """
    _, flow, stages, _ = whole
    spectra, rises = (
        tables[name].rename(columns={"batches": "seed"}) for name in ("spectra", "directions")
    )
    first = spectra[spectra["name"] == spectra["name"].iloc[0]]
    d = len(first["singular_values"].iloc[0])
    return {
        "figure-2-size": partial(
            entries_and_singular_values, flow, stages, first, rises.iloc[:1], d
        ),
        "batches": partial(
            descents_on_batches,
            tables["batches"],
            tables["directions"],
            tables["losses"],
            flow,
            bar,
        ),
    }


def case(tables: Tables, problem: str) -> Case:
    """The label of a problem, and the trajectories, stages and errors of the seed that is drawn."""
    trajectories, stages, errors = (
        table[table["problem"] == problem]
        for table in (tables["trajectories"], tables["stages"], tables["errors"])
    )
    seed = trajectories["seed"].iloc[0]
    name = label(problem, tables["problems"])
    return (
        name,
        trajectories,
        stages[stages["seed"] == seed].sort_values("stage"),
        errors[errors["seed"] == seed],
    )


if __name__ == "__main__":
    run(main)
