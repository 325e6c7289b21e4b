"""The rule that is chosen at each budget, by the loss of the base with the adapter of its plan."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from lib.checkpoints.accuracy import Judged, judged, said_right
from lib.checkpoints.folders import Checkpoint
from lib.checkpoints.gains import GainMeasure, Parts, losses_with_whole
from lib.checkpoints.linear_modules import beside_linear_layers
from lib.checkpoints.models import open_base, put
from lib.checkpoints.races import raced
from lib.checkpoints.tables.planned import ON_BASE
from lib.checkpoints.texts import Batch
from lib.work.cells import Keep
from lib.work.progress import advance


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
    parts = {"choosing": Parts(choosing), "measured": Parts(measure.batches)}
    lost = {name: measure.on(model, text) for name, text in parts.items()}
    last = parts["measured"]
    alone = keep("the base", partial(judged, model, partial(lost["measured"], {})))
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
        if thorough:
            choice = {
                rule: keep(f"choosing, on the base {ranks}", partial(lost["choosing"], ranks))
                for rule, ranks in of_rule.items()
            }
        else:
            choice = raced(model, measure, parts["choosing"], of_rule, keep)
        best = parts["choosing"].best(choice)
        made: dict[str, Judged] = {}
        for rule, ranks in of_rule.items():
            if thorough or rule in ("uniform", best):
                one = partial(judged, model, partial(lost["measured"], ranks))
                made[rule] = keep(f"measured, on the base {ranks}", one)
        if not thorough and best == "uniform":
            advance()  # the one that is chosen is measured with it
        table = compared(parts, list(of_rule), choice, best, made, alone, whole)
        found.append(table.set_index(of_budget.index))
    columns = pd.concat(found).reindex(plans.index)
    uncut = partial(losses_with_whole, model, begun, ended, last)
    ceiling = keep("the ceiling", partial(judged, model, uncut))
    kept_share, kept_noise = last.kept(ceiling["losses"], alone["losses"], whole["losses"])
    losses = {
        "loss_base": last.mean(alone["losses"]),
        "loss_ceiling": last.mean(ceiling["losses"]),
        "ceiling": kept_share,
        "ceiling_noise": kept_noise,
    }
    for name, one in (("tuned", whole), ("base", alone), ("ceiling", ceiling)):
        losses |= said_right(one, f"_{name}")
    return columns.assign(chosen=columns["chosen"].eq(True)), losses


def compared(
    parts: Mapping[str, Parts],
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
            row["choosing_loss"] = parts["choosing"].mean(choice[rule])
        if rule in made:
            losses = made[rule]["losses"]
            against = (losses, alone["losses"], whole["losses"])
            above, noise = parts["measured"].difference(losses, made["uniform"]["losses"])
            kept_share, kept_noise = parts["measured"].kept(*against)
            row |= {
                "loss_on_base": parts["measured"].mean(losses),
                "above_uniform": above,
                "noise": noise,
                "kept": kept_share,
                "kept_noise": kept_noise,
                **said_right(made[rule]),
            }
        rows.append(row)
    return pd.DataFrame(rows)
