"""What the updates of linear layers gain on a text, and what of it is lost where they are cut."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lib.checkpoints.linear_modules import linear_modules, stored_as_columns
from lib.checkpoints.texts import Batch, mean_loss
from lib.checkpoints.update_spectra import Triplets
from lib.files.files import InputError

Weight = Float[Tensor, "_ _"]


class LinearUpdates:
    """The linear modules of a live model, moved between their base and what they were tuned to."""

    def __init__(self, model: torch.nn.Module, base: Mapping[str, Weight]):
        live = linear_modules(model)
        self.model = model
        self.parameters: dict[str, Any] = {name: live[name].weight for name in base}
        self.base = {name: W_0.to(self.parameters[name]) for name, W_0 in base.items()}
        self.tuned = {name: one.detach().clone() for name, one in self.parameters.items()}

    @property
    def updates(self) -> dict[str, Weight]:
        """What training added to each."""
        return {name: tuned - self.base[name] for name, tuned in self.tuned.items()}

    def set(self, weights: Mapping[str, Weight]) -> None:
        """Have the model compute with these weights."""
        with torch.no_grad():
            for name, weight in weights.items():
                self.parameters[name].copy_(weight)

    def set_ranks(self, ranks: Mapping[str, int], factors: Mapping[str, Triplets]) -> None:
        """Have the model compute with every update cut to its rank; none is a rank of 0."""
        weights = dict(self.base)
        for name, rank in ranks.items():
            if rank:
                weights[name] = weights[name] + factors[name].cut(rank).to(weights[name])
        self.set(weights)

    def mean_loss(self, batches: Sequence[Batch]) -> float:
        """The mean of the loss over batches of equal size, with the weights as they are set."""
        return mean_loss(self.model, batches)

    def drop(self, batches: Sequence[Batch]) -> float:
        """By how much the updates lower the loss; the weights are left as tuned."""
        self.set(self.base)
        before = self.mean_loss(batches)
        self.set(self.tuned)
        return before - self.mean_loss(batches)


class GainMeasure:
    """What the linear updates of a model gain on a text, and what of it a cut of them loses.

    All else of the model is tuned. Raises `InputError` where the updates gain nothing.
    """

    def __init__(
        self, linear: LinearUpdates, factors: Mapping[str, Triplets], batches: Sequence[Batch]
    ):
        self.linear = linear
        self.factors = factors
        self.batches = batches
        linear.set(linear.tuned)
        self.tuned = linear.mean_loss(batches)
        linear.set(linear.base)
        self.none = linear.mean_loss(batches)
        if not self.gain > 0:
            got = f"got {self.none:.4g} without their updates and {self.tuned:.4g} with them"
            wanted = "wanted a text on which the tuned linear layers lower the loss"
            raise InputError(f"TEXT: {wanted}, {got}")

    @property
    def gain(self) -> float:
        """By how much the linear updates lower the loss."""
        return self.none - self.tuned

    def of(self, ranks: Mapping[str, int]) -> float:
        """The loss with every update cut to its rank."""
        self.linear.set_ranks(ranks, self.factors)
        return self.linear.mean_loss(self.batches)

    def on(self, model: torch.nn.Module) -> Callable[[Mapping[str, int]], float]:
        """The loss of another model, such as the base, by the ranks of the adapter that it gets.

        The model computes in its own type; the adapter is added to a layer's output in float32, as
        peft does.
        """
        layers = linear_modules(model)
        dtype = next(model.parameters()).dtype
        batches = [
            {name: of.to(dtype) if of.is_floating_point() else of for name, of in batch.items()}
            for batch in self.batches
        ]

        def lost(ranks: Mapping[str, int]) -> float:
            hooks = []
            for name, rank in ranks.items():
                update = self.factors[name].first(rank)
                by_columns = stored_as_columns(layers[name])
                hooks.append(layers[name].register_forward_hook(_adding(update, by_columns)))
            try:
                return mean_loss(model, batches)
            finally:
                for hook in hooks:
                    hook.remove()

        return lost

    def share_lost(self, loss: Any) -> Any:
        """0 with the whole update of the linear layers, 1 with none."""
        return (loss - self.tuned) / self.gain


def _adding(update: Triplets, by_columns: bool) -> Callable[..., Tensor]:
    """A hook that adds x ΔW to what a layer makes of x: in float32, as peft does."""
    scaled = update.U * update.sigma
    first = scaled if by_columns else update.Vh.mT
    second = update.Vh if by_columns else scaled.mT

    def add(_: torch.nn.Module, given: tuple[Tensor, ...], made: Tensor) -> Tensor:
        return (made + given[0].float() @ first @ second).to(made.dtype)

    return add
