"""What was tuned and is in no plan: the loss with the base's in place of it, all else as tuned."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from lib.checkpoints.folders import Checkpoint
from lib.checkpoints.gains import GainMeasure
from lib.checkpoints.linear_modules import by_layers, fused_experts
from lib.checkpoints.models import open_base, tuned_alone
from lib.work.cells import Keep


def losses_without_remainders(
    measure: GainMeasure, base: Checkpoint, left: Collection[str], keep: Keep
) -> dict[str, Any]:
    """The losses without each remainder: fused experts, modules that are `left` out, and what the
    tuned model alone has.
    """
    model = measure.linear.model
    found: dict[str, Any] = {}
    if experts := fused_experts(model):
        lost = partial(without_experts, measure, base, experts)
        found["loss_without_experts"] = keep("without the experts", lost)
    of_alone: dict[str, Any] = {}
    if alone := tuned_alone(base, model):
        lost_alone = keep("without what the tuned alone has", partial(measure.without, alone))
        of_alone = {"alone": [*by_layers(alone)], "loss_without_alone": lost_alone}
        del alone
    if left:
        kinds = by_layers(left)
        lost = partial(losses_left, measure, base, list(kinds.values()))
        found |= {"left": [*kinds], "losses_left": keep("without what is left out", lost)}
    return found | of_alone


def without_experts(measure: GainMeasure, base: Checkpoint, experts: Sequence[str]) -> float:
    """The loss with the base's experts, all else as tuned."""
    model, _ = open_base(base)
    return measure.without({name: model.get_parameter(name) for name in experts})


def losses_left(
    measure: GainMeasure, base: Checkpoint, kinds: Sequence[Sequence[str]]
) -> list[float]:
    """The losses with the base's weights of each kind of modules, all else as tuned."""
    model, _ = open_base(base)
    named = [[f"{module}.weight" for module in modules] for modules in kinds]
    return [measure.without({n: model.get_parameter(n) for n in names}) for names in named]
