"""Minibatch training as a generator of states: Adam and stochastic gradient descent, warm-up and cosine decay."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

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


def warmup_cosine(step: int, warmup_steps: int, n_steps: int) -> float:
    """Factor on the learning rate for the update after `step` updates: linear warm-up, then half a cosine to zero."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return (1 + math.cos(math.pi * (step - warmup_steps) / max(1, n_steps - warmup_steps))) / 2


def saved_steps(n_steps: int, every: int) -> list[int]:
    """The steps to save: 0, powers of two below `every`, multiples of `every`, and the last."""
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
    fused = all(weight.is_floating_point() for weight in weights.values())
    rule: Any = (
        torch.optim.Adam(weights.values(), lr=learning_rate, fused=fused)
        if optimizer == "adam"
        else torch.optim.SGD(weights.values(), lr=learning_rate, fused=fused)
    )
    _restore(rule, weights, start.moments)
    state = State(start.step, weights, {}, start.loss)
    for batch in batches:
        if state.step >= n_steps:
            return
        for group in rule.param_groups:
            group["lr"] = learning_rate * warmup_cosine(state.step, warmup_steps, n_steps)
        value = loss(weights, *batch)
        value.backward()
        rule.step()
        rule.zero_grad()
        state.step += 1
        state.loss = value.detach()
        state.moments = _moments(rule, weights)
        yield state


def _moments(rule: torch.optim.Optimizer, weights: Weights) -> Weights:
    return {
        f"{kind} {name}": value
        for name, weight in weights.items()
        for kind, value in rule.state[weight].items()
        if isinstance(value, Tensor)
    }


def _restore(rule: torch.optim.Optimizer, weights: Weights, moments: Weights) -> None:
    for key, value in moments.items():
        kind, name = key.split(" ", 1)
        rule.state[weights[name]][kind] = value.detach().clone()
