"""Adapters of a model whose loss is a function of what is added to its modules, and its matrices
trained whole: each a table of when a direction of a module reached a size p.

This is for models that no library of adapters knows. The draw of A is that of peft.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.checkpoints.first_gradients import Factors, Gradient
from lib.training.devices import generator
from lib.work.cells import Tables
from lib.work.progress import advance
from published.lora_start.trainings import (
    N_DIRECTIONS,
    SCALING,
    SIZES,
    Adapter,
    first_at,
    told_of,
    trained,
)

WHOLE = "whole"  # the case in which every matrix is trained itself
OF_ADAPTERS = ("a_squared", "plus", "minus", "equal", "two", "signs", "shuffled")


@dataclass(frozen=True)
class Tuned:
    """A model that is tuned: its modules by their shapes [out, in], and its loss.

    The `loss` is a function of what is added to each of them.
    """

    name: str
    shapes: Mapping[str, tuple[int, int]]
    loss: Callable[[Mapping[str, Tensor]], Tensor]
    dtype: torch.dtype

    def zeros(self) -> dict[str, Tensor]:
        """Updates of zero that are to be trained."""
        return {
            name: torch.zeros(shape, dtype=self.dtype, requires_grad=True)
            for name, shape in self.shapes.items()
        }


def train(tuned: Tuned, one: Adapter, seed: int) -> Tables:
    """Train an adapter of every module, or, where the case is `whole`, every module itself."""
    gradients = gradients_of(tuned, N_DIRECTIONS)
    if one.case == WHOLE:
        return {"learned": whole(tuned, gradients, one, seed)}
    factors = drawn_factors(tuned, one.rank, seed)

    def value() -> Tensor:
        return tuned.loss({name: SCALING * of.B @ of.A for name, of in factors.items()})

    return trained(tuned.name, value, gradients, factors, one, seed)


def gradients_of(tuned: Tuned, n: int) -> dict[str, Gradient]:
    """Minus the gradient of the loss by each module at the start, with n triplets."""
    updates = tuned.zeros()
    slopes = torch.autograd.grad(tuned.loss(updates), list(updates.values()))
    found = {}
    for name, slope in zip(updates, slopes, strict=True):
        G = -slope.double()
        U, sigma, Vh = torch.linalg.svd(G, full_matrices=False)
        found[name] = Gradient(G, U[:, :n], sigma[:n], Vh[:n].T)
    return found


def drawn_factors(tuned: Tuned, rank: int, seed: int) -> dict[str, Factors]:
    r"""The factors of every module: A is uniform on $\pm 1 / \sqrt{d}$ for d inputs, B is zero."""
    found = {}
    for name, (n_out, n_in) in tuned.shapes.items():
        drawn = torch.rand(rank, n_in, generator=generator(seed, "A", name), dtype=tuned.dtype)
        A = ((2 * drawn - 1) / math.sqrt(n_in)).requires_grad_()
        found[name] = Factors(A, torch.zeros(n_out, rank, dtype=tuned.dtype, requires_grad=True))
    return found


def whole(tuned: Tuned, gradients: Mapping[str, Gradient], one: Adapter, seed: int) -> pd.DataFrame:
    r"""When each direction reaches each size where gradient descent moves the matrices themselves.

    The rate η is such that η times the largest σ is the `step`. As long as the gradient stays,
    $u^\top (W - W_0) v = n \eta \sigma$ after n steps, which is the `forecast`.
    """
    rate = one.step / max(float(of.sigma[0]) for of in gradients.values())
    updates = tuned.zeros()
    optimiser = torch.optim.SGD(updates.values(), lr=rate)
    course = {name: [] for name in updates}
    losses = []
    for step in range(one.n_steps + 1):
        for name, of in gradients.items():
            added = updates[name].detach().double()
            course[name].append((of.U * (added @ of.V)).sum(0).numpy())
        optimiser.zero_grad()
        now = tuned.loss(updates)
        losses.append(float(now.detach()))
        now.backward()
        optimiser.step()
        advance(step > 0)
    tables = []
    for name, of in gradients.items():
        for p in SIZES:
            found = {
                "direction": range(len(of.sigma)),
                "size": p,
                "sigma": of.sigma.numpy(),
                "forecast": p / (rate * of.sigma.numpy()),
                "measured": first_at(np.array(course[name]), p),
                "module": name,
            }
            tables.append(pd.DataFrame(found | dict.fromkeys(OF_ADAPTERS, np.nan)))
    table = pd.concat(tables, ignore_index=True)
    return table.assign(**told_of(tuned.name, one, seed, rate, losses))
