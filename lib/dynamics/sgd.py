"""Minibatch training as a generator of states: Adam and stochastic gradient descent, warm-up and cosine decay."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd as descend

Weights = dict[str, Tensor]


@dataclass
class State:
    """Where a training stands after `step` updates.

    `loss` is the loss of the batch that made the last update, before it (NaN at step 0); a tensor on the training's
    device, so that reading it is the only time the host waits. `moments` is what the optimiser remembers.
    """

    step: int
    weights: Weights
    moments: Weights = field(default_factory=dict)
    loss: Tensor = field(default_factory=lambda: torch.tensor(math.nan))

    def tensors(self) -> Weights:
        """All its tensors under one name each, from which `from_tensors` makes it again."""
        weights = {f"weights {name}": weight for name, weight in self.weights.items()}
        moments = {f"moments {name}": moment for name, moment in self.moments.items()}
        return {**weights, **moments, "loss": self.loss}

    @classmethod
    def from_tensors(cls, step: int, tensors: Weights, device: torch.device) -> "State":
        """The state after `step` updates from its tensors, on that device; tensors of other names are passed over."""
        weights, moments = (
            {name.removeprefix(kind): t.to(device) for name, t in tensors.items() if name.startswith(kind)}
            for kind in ("weights ", "moments ")
        )
        return cls(step, weights, moments, tensors["loss"].to(device))


def warmup_cosine(step: int, warmup_steps: int, n_steps: int) -> float:
    """Factor on the learning rate for the update after `step` updates: linear warm-up, then half a cosine to zero."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return (1 + math.cos(math.pi * (step - warmup_steps) / max(1, n_steps - warmup_steps))) / 2


MOST_SAVED = 1_000_000  # snapshots of a training


def saved_steps(n_steps: int, every: int) -> list[int]:
    """The steps to save: 0, powers of two below `every`, multiples of `every`, and the last.

    Raises `ValueError` for more than any run can hold.
    """
    if n_steps // every > MOST_SAVED:
        raise ValueError(f"snapshot_every: wanted at most {MOST_SAVED} snapshots, got {n_steps // every}")
    powers = [2**k for k in range(n_steps.bit_length()) if 2**k < min(every, n_steps)]
    return sorted({0, *powers, *range(every, n_steps, every), n_steps})


def sgd(
    loss: Callable[..., Tensor],
    start: State,
    batches: Iterable[tuple[Tensor, ...]],
    n_steps: int,
    *,
    optimizer: Literal["adam", "sgd"],
    learning_rate: float,
    warmup_steps: int,
) -> Iterator[State]:
    """Yield the state after each update, from `start` up to `n_steps` updates in all.

    An update takes one batch and descends `loss(weights, *batch)`: Adam (Kingma & Ba 2015, β = (0.9, 0.999), ε = 1e-8,
    no weight decay) or plain gradient descent. The state that is yielded is alive: copy what must stay. Started from
    a state that it has yielded, with the batches that follow, it goes on bit for bit.
    """
    weights = {name: w.detach().clone().requires_grad_() for name, w in start.weights.items()}
    moments = {name: moment.detach().clone() for name, moment in start.moments.items()}
    update = _adam if optimizer == "adam" else _plain
    state = State(start.step, weights, moments, start.loss)
    for batch in batches:
        if state.step >= n_steps:
            return
        value = loss(weights, *batch)
        value.backward()
        with torch.no_grad():
            update(weights, moments, learning_rate * warmup_cosine(state.step, warmup_steps, n_steps))
        for weight in weights.values():
            weight.grad = None
        state.step += 1
        state.loss = value.detach()
        yield state


# torch.optim's rules as functions: the first object of its classes would import torch's compiler, two seconds of work.


def _adam(weights: Weights, moments: Weights, learning_rate: float) -> None:
    learned, gradients = _learned(weights)
    for name, weight in learned.items():
        if f"step {name}" not in moments:
            moments[f"step {name}"] = torch.zeros((), dtype=torch.float32, device=weight.device)
            moments[f"exp_avg {name}"] = torch.zeros_like(weight)
            moments[f"exp_avg_sq {name}"] = torch.zeros_like(weight)
    first, second, steps = ([moments[f"{k} {n}"] for n in learned] for k in ("exp_avg", "exp_avg_sq", "step"))
    adam(
        list(learned.values()), gradients, first, second, [], steps, fused=_fused(weights), foreach=False,
        amsgrad=False, beta1=0.9, beta2=0.999, lr=learning_rate, weight_decay=0.0, eps=1e-8, maximize=False,
    )  # fmt: skip


def _plain(weights: Weights, moments: Weights, learning_rate: float) -> None:
    learned, gradients = _learned(weights)
    descend(
        list(learned.values()), gradients, [None] * len(learned), fused=_fused(weights), foreach=False,
        weight_decay=0.0, momentum=0.0, lr=learning_rate, dampening=0.0, nesterov=False, maximize=False,
    )  # fmt: skip


def _learned(weights: Weights) -> tuple[Weights, list[Tensor]]:
    """The weights that the loss depends on, and their gradients."""
    found = {name: (weight, weight.grad) for name, weight in weights.items() if weight.grad is not None}
    return {name: weight for name, (weight, _) in found.items()}, [gradient for _, gradient in found.values()]


def _fused(weights: Weights) -> bool:
    return all(weight.is_floating_point() for weight in weights.values())
