r"""Learning by stages: when coordinates join, in which order, how stable each plateau is, and how far theory is off."""

import math

import numpy as np
from jaxtyping import Bool, Float

Vector = Float[np.ndarray, " n"]


def relative_errors(measured: Vector, predicted: Vector, unit: Vector) -> Vector:
    """|measured − predicted| / unit; 1 where what was predicted was not measured at all (infinite)."""
    with np.errstate(invalid="ignore"):
        error = np.abs(measured - predicted) / unit
    return np.where(np.isfinite(measured), error, 1.0)


def order_agreement(measured: Vector, predicted: Vector) -> float:
    """Kendall's tau of the two orders; what was not measured (infinite) comes last.

    1 where there is one alone, 0 where nothing was measured.
    """
    if len(measured) < 2:
        return 1.0
    if not np.isfinite(measured).any():
        return 0.0
    from scipy.stats import kendalltau  # a second's import, for what compares alone

    late = np.where(np.isfinite(measured), measured, np.finfo(float).max)
    return float(kendalltau(late, predicted).statistic)


def rank_at(times: Vector, joins: Float[np.ndarray, " joined"], leaves: Float[np.ndarray, " left"]) -> Vector:
    """How many have joined and not left at each time."""
    joined, left = (np.searchsorted(np.sort(moments), times, side="right") for moments in (joins, leaves))
    return (joined - left).astype(float)


def stability_limit(H: Float[np.ndarray, "k k"], p: Float[np.ndarray, " k"]) -> float:
    r"""$2 / \lambda_{\max}$ of the Hessian in (u, v) at a stationary point: the largest stable learning rate.

    At c = 0 and g = 0 its spectrum is that of $\sqrt{2|p|}\, H \sqrt{2|p|}$ (and zeros); infinite where nothing is
    curved upwards, as with an empty support.
    """
    if not len(p):
        return math.inf
    root = np.sqrt(2 * np.abs(p))
    sharpest = float(np.linalg.eigvalsh(root[:, None] * H * root)[-1])
    return 2 / sharpest if sharpest > 0 else math.inf


def strong_minimum(H: Float[np.ndarray, "k k"], p: Float[np.ndarray, " k"]) -> tuple[float, float]:
    r"""How strict a minimum on its support a plateau is (Assumption 4.3: positive), in products and in weights.

    The least eigenvalue of H, and the paper's constant, $2 \lambda_{\min}(\sqrt{|p|}\, H \sqrt{|p|})$, for the loss
    as a function of $u = |p|^{1/2}$; infinite for an empty support.
    """
    if not len(p):
        return math.inf, math.inf
    root = np.sqrt(np.abs(p))
    return float(np.linalg.eigvalsh(H)[0]), float(2 * np.linalg.eigvalsh(root[:, None] * H * root)[0])


def grows_by_one(before: Bool[np.ndarray, " n"], after: Bool[np.ndarray, " n"], joined: int) -> bool:
    """Whether the new support lies in the old one and the coordinate that joined (Theorem 4.5)."""
    return not (after & ~before)[np.arange(len(after)) != joined].any()
