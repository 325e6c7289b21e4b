"""The rule that is chosen at each budget, by the loss of the base with the adapter of its plan."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from lib.checkpoints.accuracy import Judged, judged, said_right
from lib.checkpoints.folders import Checkpoint
from lib.checkpoints.gains import GainMeasure, Parts, losses_with_whole
from lib.checkpoints.linear_modules import beside_linear_layers
from lib.checkpoints.models import open_base, put
from lib.checkpoints.plans import Ranks
from lib.checkpoints.races import raced
from lib.checkpoints.tables.planned import ON_BASE
from lib.checkpoints.texts import Batch
from lib.work.cells import Keep
from lib.work.progress import advance


class Texts(NamedTuple):
    """The parts that choose, and those that are measured."""

    choosing: Parts
    measured: Parts


def on_base(
    base: Checkpoint,
    measure: GainMeasure,
    choosing: Sequence[Batch],
    plans: pd.DataFrame,
    whole: Judged,
    keep: Keep,
    device: str,
    *,
    saved: bool,
    left: Collection[str],
    thorough: bool,
) -> tuple[pd.DataFrame, dict[str, float]]:
    """The loss of the base with the adapter of each rule's plan, which share of the whole gain it
    keeps, and which rule is chosen; and the losses of the base alone and of the ceiling. Unless it
    is `thorough`, rules that are neither chosen nor uniform have no loss.

    The ceiling is the base with the whole update of the linear modules, uncut, and what else an
    adapter carries. With `saved` that is all else that was tuned. Accuracies are a classifier's.
    """
    begun, ended = measure.linear.base, measure.linear.tuned
    if not saved:
        measure.linear.release()
    model, new = open_base(base)
    model = model.to(device)
    rest = None
    if saved:
        rest = beside_linear_layers(model, measure.linear.model, new, without=left)
    measure.linear.release()
    parts = Texts(Parts(choosing), Parts(measure.batches))
    lost = measure.on(model, parts.measured)
    alone = keep("the base", partial(judged, model, partial(lost, {})))
    if rest:
        put(model, rest.parameters)
        for name, buffer in rest.buffers.items():
            model.get_buffer(name).copy_(buffer)
    found = []
    for _, of_budget in plans[plans["shuffle"] == 0].groupby("budget", sort=False):
        of_rule = {
            rule: dict(zip(measure.factors, map(int, values), strict=True))
            for rule, values in zip(of_budget["rule"], of_budget["ranks"], strict=True)
        }
        choice = choosing_losses(model, measure, parts.choosing, of_rule, keep, thorough=thorough)
        best = parts.choosing.best(choice)
        quoted = {rule: of for rule, of in of_rule.items() if rule in ("uniform", best)}
        made: dict[str, Judged] = {}
        for rule, ranks in (of_rule if thorough else quoted).items():
            one = partial(judged, model, partial(lost, ranks))
            made[rule] = keep(f"measured, on the base {ranks}", one)
        if not thorough and best == "uniform":
            advance()  # the one that is chosen is measured with it
        table = compared(parts, list(of_rule), choice, best, made, alone, whole)
        found.append(table.set_index(of_budget.index))
    columns = pd.concat(found).reindex(plans.index)
    uncut = partial(losses_with_whole, model, begun, ended, parts.measured)
    ceiling = keep("the ceiling", partial(judged, model, uncut))
    losses = losses_of_ends(parts.measured, alone, ceiling, whole)
    return columns.assign(chosen=columns["chosen"].eq(True)), losses


def choosing_losses(
    model: torch.nn.Module,
    measure: GainMeasure,
    parts: Parts,
    of_rule: Mapping[str, Ranks],
    keep: Keep,
    *,
    thorough: bool,
) -> dict[str, list[float]]:
    """The losses of every rule on the parts that choose; without `thorough` only of the rules that
    are still in at the end of a race.
    """
    if not thorough:
        return raced(model, measure, parts, of_rule, keep)
    lost = measure.on(model, parts)
    return {
        rule: keep(f"choosing, on the base {ranks}", partial(lost, ranks))
        for rule, ranks in of_rule.items()
    }


def losses_of_ends(parts: Parts, alone: Judged, ceiling: Judged, whole: Judged) -> dict[str, float]:
    """The losses of the base `alone` and of the ceiling, the share of the whole gain that the
    ceiling keeps, and the accuracies of both and of the `whole` fine-tune.
    """
    share, noise = parts.kept(ceiling["losses"], alone["losses"], whole["losses"])
    losses = {
        "loss_base": parts.mean(alone["losses"]),
        "loss_ceiling": parts.mean(ceiling["losses"]),
        "ceiling": share,
        "ceiling_noise": noise,
    }
    for name, one in (("tuned", whole), ("base", alone), ("ceiling", ceiling)):
        losses |= said_right(one, f"_{name}")
    return losses


def compared(
    parts: Texts,
    of_budget: Sequence[str],
    choice: Mapping[str, Sequence[float]],
    best: str,
    made: Mapping[str, Judged],
    alone: Judged,
    whole: Judged,
) -> pd.DataFrame:
    """A row for each rule of a budget: losses, what they are above uniform's, whether chosen, and
    the share of the whole gain, from the base `alone` to the `whole` fine-tune, that is kept.

    `choice` are the losses that choose, and `made` the measured ones, of the rules that have them.
    """
    rows = []
    for rule in of_budget:
        row: dict[str, Any] = dict.fromkeys(ON_BASE.columns, np.nan) | {"chosen": rule == best}
        if rule in choice:
            row["choosing_loss"] = parts.choosing.mean(choice[rule])
        if rule in made:
            losses = made[rule]["losses"]
            against = (losses, alone["losses"], whole["losses"])
            above, noise = parts.measured.difference(losses, made["uniform"]["losses"])
            kept_share, kept_noise = parts.measured.kept(*against)
            row |= {
                "loss_on_base": parts.measured.mean(losses),
                "above_uniform": above,
                "noise": noise,
                "kept": kept_share,
                "kept_noise": kept_noise,
                **said_right(made[rule]),
            }
        rows.append(row)
    return pd.DataFrame(rows)
