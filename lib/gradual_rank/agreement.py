"""The flow of a problem against Algorithm 1 and its finite-scale form: errors, and measures."""

from collections.abc import Mapping

from lib.gradual_rank.activation_times import (
    activations,
    constants,
    halvings,
    rise_durations,
    time_errors,
)
from lib.gradual_rank.measures import (
    CELL,
    Table,
    by_scale,
    charge_constants,
    measures_by_scale,
    plateau_errors,
    pulls,
    relative_gaps,
    same_supports,
    stage_measures,
)
from lib.pages.measures import Values


def agreement(
    theory: Mapping[str, Table], flow: Mapping[str, Table], significant: float, lasting: float
) -> Table:
    """How far the flow is from what is predicted, by seed and scale.

    A product counts from a `significant` one on, and a plateau from where it is `lasting`.
    """
    stages = theory["stages"]
    plateaus = flow["plateaus"]
    errors = time_errors(activations(stages, flow["events"], theory["events"], significant))
    for more in (
        plateau_errors(stages, plateaus, lasting),
        same_supports(stages, plateaus, significant),
        charge_constants(stages, plateaus),
        rise_durations(flow["events"], flow["grown"], stages),
    ):
        errors = errors.merge(more, on=CELL, how="left")
    return errors


def agreement_measures(
    errors: Table, stages: Table, twins: Table, log10_init_scale: float
) -> dict[str, Values]:
    """The measures of a problem; constants and halvings are taken from the init scale on."""
    measures: dict[str, Values] = {
        "time_constant": constants(errors, log10_init_scale),
        "halving": halvings(errors, log10_init_scale),
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
    return measures
