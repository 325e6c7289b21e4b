r"""Singular values of $\Delta W_{KQ} = W_K W_Q^\top - W_K(0) W_Q(0)^\top$ along a run: ours and
what others use.

The job: 96 updates of 512 × 512 (4 snapshots × 3 layers × 8 heads), given as head factors of 512 ×
64 in float32, the sizes of the paper's CIFAR transformer. The factors move by 1e-3 to 1 of their
norm, in a few directions above a tail of noise: from cancellation to none. The dense contenders are
handed the updates ready-made, which costs them nothing; ours and the thin SVD begin at the factors.
Slow contenders do every n-th update, spread over all snapshots.
"""

import contextlib
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.harness import Contender, race, write_results
from lib.matrices.spectra import initial_factor, product_update_singular_values, update_factors
from lib.work.command import run

N_SNAPSHOTS = 4
N_LAYERS = 3
N_HEADS = 8
D_MODEL = 512
D_HEAD = 64


@dataclass(frozen=True)
class Trajectory:
    """Head factors along a run, and the dense updates that they make."""

    W_K: Float[Tensor, "snapshot layer head row col"]
    W_Q: Float[Tensor, "snapshot layer head row col"]
    updates: Float[Tensor, "product row row"]
    reference: Float[Tensor, "product row"]

    def factors(self, heads: slice = slice(None)) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the factors of these heads' updates, snapshot by snapshot, as a run is read."""
        W_K = self.W_K[:, :, heads]
        W_Q = self.W_Q[:, :, heads]
        for K, Q in zip(W_K[1:], W_Q[1:], strict=True):
            yield update_factors(K, Q, W_K[0], W_Q[0])


def trajectory(seed: int) -> Trajectory:
    """Random initial factors that move in 2, 4, 8, then 16 directions and in noise, by 1e-3 to 1 of
    their norm.
    """
    generator = torch.Generator().manual_seed(seed)

    def factor() -> Tensor:
        W = torch.randn(N_LAYERS, N_HEADS, D_MODEL, D_HEAD, generator=generator) / math.sqrt(
            D_MODEL
        )
        states = [W]
        for snapshot in range(N_SNAPSHOTS):
            rank = 2 ** (snapshot + 1)
            size = 10.0 ** (snapshot - N_SNAPSHOTS + 1)
            left = torch.randn(N_LAYERS, N_HEADS, D_MODEL, rank, generator=generator)
            right = torch.randn(N_LAYERS, N_HEADS, rank, D_HEAD, generator=generator)
            noise = torch.randn(W.shape, generator=generator)
            move = left @ right / math.sqrt(rank) + 0.3 * noise
            states.append(W + size * move * (W.norm() / move.norm()))
        return torch.stack(states)

    W_K = factor()
    W_Q = factor()
    updates = torch.from_numpy(_exact_updates(W_K.numpy(), W_Q.numpy()))
    return Trajectory(W_K, W_Q, updates, torch.linalg.svdvals(updates))


def _exact_updates(W_K: np.ndarray, W_Q: np.ndarray) -> np.ndarray:
    """The difference of the products in extended precision, so that the reference does not suffer
    from cancellation.
    """
    K, Q = (
        W.astype(np.longdouble).reshape(N_SNAPSHOTS + 1, -1, D_MODEL, D_HEAD) for W in (W_K, W_Q)
    )
    products = (K @ Q.swapaxes(-1, -2)).astype(np.longdouble)
    return (products[1:] - products[:1]).astype(np.float64).reshape(-1, D_MODEL, D_MODEL)


def contenders(path: Trajectory) -> list[Contender]:
    """The contenders, ours first. Every `run` returns the singular values of its products, largest
    first.
    """
    n_products = len(path.updates)

    def error_of(stride: int) -> Callable[[Tensor], float]:
        wanted = path.reference[::stride]

        def error(sigma: Tensor) -> float:
            gap = (sigma.double() - wanted[:, : sigma.shape[-1]]).abs().amax(-1)
            return float((gap / wanted[:, 0]).max())

        return error

    def dense(
        name: str,
        values: Callable[[Tensor], Tensor],
        W: Tensor,
        stride: int,
        bar: float,
        goal: float | None = None,
    ) -> Contender:
        part = W[::stride].contiguous()
        return Contender(
            name,
            lambda: values(part),
            error_of(stride),
            bar,
            len(part),
            goal,
            f"{len(part)} a round",
        )

    def ours() -> Tensor:
        K_0 = initial_factor(path.W_K[0])
        Q_0 = initial_factor(path.W_Q[0])
        moved = zip(path.W_K[1:], path.W_Q[1:], strict=True)
        return torch.cat(
            [product_update_singular_values(K, Q, K_0, Q_0).flatten(0, 1) for K, Q in moved]
        )

    def thin() -> Tensor:
        values = []
        for A, B in path.factors(slice(None, None, 4)):
            (_, sigma_A, Vh_A), (_, sigma_B, Vh_B) = (
                torch.linalg.svd(W, full_matrices=False) for W in (A, B)
            )
            core = (sigma_A[..., None] * Vh_A) @ (Vh_B.mT * sigma_B[..., None, :])
            values.append(torch.linalg.svdvals(core).flatten(0, 1))
        return torch.cat(values)

    def scipy_values(W: Tensor) -> Tensor:
        return torch.from_numpy(
            np.stack([scipy.linalg.svd(M, compute_uv=False) for M in W.numpy()])
        )

    single = path.updates.float()
    double = path.updates
    return [
        Contender(
            "ours: QR core, f64",
            ours,
            error_of(1),
            1e-12,
            n_products,
            None,
            f"{n_products} a round",
        ),
        _weightwatcher(single, path.reference, 12),
        dense("torch svdvals f32, batched", torch.linalg.svdvals, single, 6, 1e-5, goal=7),
        dense("torch svdvals f64, batched", torch.linalg.svdvals, double, 6, 1e-12, goal=9),
        dense("torch svd f32 with vectors", lambda W: torch.linalg.svd(W).S, single, 12, 1e-5),
        dense("scipy svd f64, values only", scipy_values, double, 12, 1e-12),
        Contender(
            "thin SVD of both factors, f64",
            thin,
            error_of(4),
            1e-12,
            n_products // 4,
            3,
            f"{n_products // 4} a round",
        ),
    ]


def _weightwatcher(updates: Tensor, reference: Tensor, stride: int) -> Contender:
    """WeightWatcher's analyze of linear layers whose weights are the updates; it also fits a power
    law to each.

    It reports the largest singular value and the squared Frobenius norm of each layer: these two
    are compared.
    """
    name = "WeightWatcher analyze"
    part = updates[::stride]
    wanted = reference[::stride]
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            from weightwatcher import WeightWatcher  # pyright: ignore[reportMissingImports]
    except ImportError:
        return Contender(
            name, None, lambda _: math.nan, 1e-6, len(part), 12, "weightwatcher is not installed"
        )
    model = torch.nn.Sequential(*(torch.nn.Linear(D_MODEL, D_MODEL, bias=False) for _ in part))
    for layer, W in zip(model, part, strict=True):
        layer.weight.data = W.clone()
    watcher = WeightWatcher(model=model)

    def error(details: dict[str, np.ndarray]) -> float:
        found = np.stack([details["sv_max"], np.sqrt(details["norm"])])
        right = np.stack([wanted[:, 0].numpy(), wanted.norm(dim=-1).numpy()])
        return float((abs(found - right) / right[0]).max())

    def analyze() -> dict[str, np.ndarray]:
        with contextlib.redirect_stdout(io.StringIO()):
            return watcher.analyze()

    return Contender(
        name, analyze, error, 1e-6, len(part), 12, f"{len(part)} a round; its σ₁ and norm"
    )


def main(results: Path, rounds: int = 15, seed: int = 0) -> None:
    rows, limits = race(contenders(trajectory(seed)), rounds)
    write_results(
        results,
        "Singular values of 96 updates of 512 × 512 from head factors of 512 × 64",
        rows,
        rounds,
        ["torch", "numpy", "scipy", "weightwatcher"],
        limits,
        [
            "Times are milliseconds a product on one thread; a ratio is a contender's CPU time in "
            "units of ours in the "
            "same round; an error is the largest abs(σ − σ_reference) / σ₁ of any product.",
        ],
    )


if __name__ == "__main__":
    run(main)
