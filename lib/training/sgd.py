"""Minibatch training as a generator of states: Adam, AdamW, Muon and plain descent, warm-up and
cosine decay.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd as descend

Weights = dict[str, Tensor]
Optimizer = Literal["adam", "adamw", "sgd", "muon"]

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # a, b, c of Jordan et al. (2024) and of torch.optim.Muon
NEWTON_SCHULZ_STEPS = 5
NORM_EPS = 1e-7  # under the norm of what is orthogonalised
# of Muon; the root mean square that its updates share with Adam's
MOMENTUM = 0.95
RMS = 0.2


@dataclass
class State:
    """The state of a training after `step` updates.

    `loss` is the loss of the batch that made the last update, before that update (NaN at step 0).
    It is a tensor on the training's device: the host waits only where it is read. `moments` is what
    the optimiser remembers.
    """

    step: int
    weights: Weights
    moments: Weights = field(default_factory=dict)
    loss: Tensor = field(default_factory=lambda: torch.tensor(math.nan))

    def tensors(self) -> Weights:
        """All tensors of the state by name; `from_tensors` makes the state of them again."""
        weights = {f"weights {name}": weight for name, weight in self.weights.items()}
        moments = {f"moments {name}": moment for name, moment in self.moments.items()}
        return {**weights, **moments, "loss": self.loss}

    @classmethod
    def from_tensors(cls, step: int, tensors: Weights, device: torch.device) -> "State":
        """The state after `step` updates, made of its tensors, on that device; tensors of other
        names are passed over.
        """
        weights, moments = (
            {
                name.removeprefix(kind): t.to(device)
                for name, t in tensors.items()
                if name.startswith(kind)
            }
            for kind in ("weights ", "moments ")
        )
        return cls(step, weights, moments, tensors["loss"].to(device))


def warmup_cosine(step: int, warmup_steps: int, n_steps: int, n_cycles: int = 1) -> float:
    """The factor on the learning rate for the update after `step` updates: linear warm-up, then
    half a cosine to zero, `n_cycles` times (Loshchilov & Hutter 2017, without growing cycles).
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    done = (step - warmup_steps) / max(1, n_steps - warmup_steps)
    phase = done if n_cycles == 1 or step == n_steps else n_cycles * done % 1
    return (1 + math.cos(math.pi * phase)) / 2


MOST_SAVED = 1_000_000  # snapshots of a training


def saved_steps(n_steps: int, every: int) -> list[int]:
    """The steps to save: 0, powers of two below `every`, multiples of `every`, and the last.

    Raises `ValueError` for more steps than any run can hold.
    """
    if n_steps // every > MOST_SAVED:
        raise ValueError(
            f"snapshot_every: wanted at most {MOST_SAVED} snapshots, got {n_steps // every}"
        )
    powers = [2**k for k in range(n_steps.bit_length()) if 2**k < min(every, n_steps)]
    return sorted({0, *powers, *range(every, n_steps, every), n_steps})


def sgd(
    loss: Callable[..., Tensor],
    start: State,
    batches: Iterable[tuple[Tensor, ...]],
    n_steps: int,
    *,
    optimizer: Optimizer,
    learning_rate: float,
    warmup_steps: int,
    n_cycles: int = 1,
    weight_decay: float = 0.0,
    matrices: Mapping[str, int] | None = None,
) -> Iterator[State]:
    r"""Yield the state after each update, from `start` up to `n_steps` updates in all.

    An update takes one batch and descends `loss(weights, *batch)`: Adam (Kingma & Ba 2015, β =
    (0.9, 0.999), ε = 1e-8, no weight decay), AdamW (Loshchilov & Hutter 2019: every weight first
    shrinks by the rate times `weight_decay`), Muon without decay (Jordan et al. 2024:
    $0.2\sqrt{\max(\mathrm{rows}, \mathrm{cols})}$ times the Newton–Schulz of a Nesterov mean; what
    is not of `matrices` by Adam), or plain gradient descent. `matrices` says how many last axes of
    a weight are orthogonalised as one: 2, rows and columns; 3, the matrices of all heads side by
    side. The state that is yielded is alive: copy what must stay. Started from a state that it has
    yielded, with the batches that follow, it goes on bit for bit.
    """
    weights = {name: w.detach().clone().requires_grad_() for name, w in start.weights.items()}
    moments = {name: moment.detach().clone() for name, moment in start.moments.items()}
    update: Callable[[Weights, Weights, float], None] = {
        "adam": _adam,
        "adamw": partial(_adam, weight_decay=weight_decay),
        "sgd": _plain,
        "muon": partial(_muon, matrices=matrices or {}),
    }[optimizer]
    state = State(start.step, weights, moments, start.loss)
    for batch in batches:
        if state.step >= n_steps:
            return
        value = loss(weights, *batch)
        value.backward()
        with torch.no_grad():
            factor = warmup_cosine(state.step, warmup_steps, n_steps, n_cycles)
            update(weights, moments, learning_rate * factor)
        for weight in weights.values():
            weight.grad = None
        state.step += 1
        state.loss = value.detach()
        yield state


# torch.optim's rules as functions: the first object of its classes would import torch's compiler,
# two seconds of work.


def _adam(
    weights: Weights, moments: Weights, learning_rate: float, weight_decay: float = 0.0
) -> None:
    learned, gradients = _learned(weights)
    for name, weight in learned.items():
        if f"step {name}" not in moments:
            moments[f"step {name}"] = torch.zeros((), dtype=torch.float32, device=weight.device)
            moments[f"exp_avg {name}"] = torch.zeros_like(weight)
            moments[f"exp_avg_sq {name}"] = torch.zeros_like(weight)
    first, second, steps = (
        [moments[f"{k} {n}"] for n in learned] for k in ("exp_avg", "exp_avg_sq", "step")
    )
    adam(
        list(learned.values()),
        gradients,
        first,
        second,
        [],
        steps,
        fused=_fused(weights),
        foreach=False,
        decoupled_weight_decay=weight_decay > 0,
        weight_decay=weight_decay,
        amsgrad=False,
        beta1=0.9,
        beta2=0.999,
        lr=learning_rate,
        eps=1e-8,
        maximize=False,
    )


def _muon(
    weights: Weights, moments: Weights, learning_rate: float, matrices: Mapping[str, int]
) -> None:
    learned, gradients = _learned(weights)
    for (name, weight), gradient in zip(learned.items(), gradients, strict=True):
        if name not in matrices:
            continue
        mean = moments.setdefault(f"momentum {name}", torch.zeros_like(weight))
        mean.lerp_(gradient, 1 - MOMENTUM)
        ahead = gradient.lerp(mean, MOMENTUM)
        heads = weight.shape[-3] if matrices[name] == 3 else 0
        step = newton_schulz(ahead.transpose(-3, -2).flatten(-2) if heads else ahead)
        rate = learning_rate * RMS * math.sqrt(max(step.shape[-2:]))
        weight.sub_(
            step.unflatten(-1, (heads, -1)).transpose(-3, -2) if heads else step, alpha=rate
        )
    _adam(
        {name: weight for name, weight in weights.items() if name not in matrices},
        moments,
        learning_rate,
    )


def newton_schulz(
    G: Float[Tensor, "*batch row col"], *, bfloat16: bool = False
) -> Float[Tensor, "*batch row col"]:
    r"""$X \leftarrow a X + (b X X^\top + c (X X^\top)^2) X$, five times from $G / \|G\|_F$.

    It brings X near the polar factor of G: singular values from a hundredth of the norm on come to
    lie in about [0.68, 1.14], and the smallest stay below. It computes in the precision of G, or,
    with `bfloat16`, as torch.optim.Muon does on a CPU: every product is summed in float32 and
    rounded.
    """
    if G.shape[-2] > G.shape[-1]:
        return newton_schulz(G.mT, bfloat16=bfloat16).mT
    a, b, c = NEWTON_SCHULZ
    if bfloat16:
        X = _rounded(G).reshape(-1, *G.shape[-2:])
        norm = _rounded(X.square().sum((-2, -1), keepdim=True).sqrt())
        X = _rounded(X / _rounded(norm.clamp(min=NORM_EPS)))
    else:
        X = G / torch.linalg.vector_norm(G, dim=(-2, -1), keepdim=True).clamp(min=NORM_EPS)
    for _ in range(NEWTON_SCHULZ_STEPS):
        if bfloat16:
            gram = _rounded(X @ X.mT)
            polynomial = _rounded(torch.baddbmm(gram, gram, gram, beta=b, alpha=c))
            X = _rounded(torch.baddbmm(X, polynomial, X, beta=a))
        else:
            gram = X @ X.mT
            X = a * X + (b * gram + c * (gram @ gram)) @ X
    return X.reshape(G.shape).to(G.dtype)


def _rounded(X: Tensor) -> Tensor:
    """The nearest numbers of bfloat16, in float32."""
    return X.bfloat16().float()


def _plain(weights: Weights, moments: Weights, learning_rate: float) -> None:
    learned, gradients = _learned(weights)
    descend(
        list(learned.values()),
        gradients,
        [None] * len(learned),
        fused=_fused(weights),
        foreach=False,
        weight_decay=0.0,
        momentum=0.0,
        lr=learning_rate,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )


def _learned(weights: Weights) -> tuple[Weights, list[Tensor]]:
    """The weights that the loss depends on, and their gradients."""
    found = {
        name: (weight, weight.grad) for name, weight in weights.items() if weight.grad is not None
    }
    return {name: weight for name, (weight, _) in found.items()}, [
        gradient for _, gradient in found.values()
    ]


def _fused(weights: Weights) -> bool:
    return all(weight.is_floating_point() for weight in weights.values())
