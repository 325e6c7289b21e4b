r"""The plateaus of learning by stages: how stable and how strict each is, how it grows, and how
near the flow comes.
"""

import math
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

Table = pd.DataFrame


def stability_limit(H: Float[np.ndarray, "k k"], p: Float[np.ndarray, " k"]) -> float:
    r"""$2 / \lambda_{\max}$ of the Hessian in (u, v) at a stationary point: the largest stable
    learning rate.

    At c = 0 and g = 0 its spectrum is that of $\sqrt{2|p|}\, H \sqrt{2|p|}$ (and zeros); infinite
    where nothing is curved upwards, as with an empty support.
    """
    if not len(p):
        return math.inf
    root = np.sqrt(2 * np.abs(p))
    sharpest = float(np.linalg.eigvalsh(root[:, None] * H * root)[-1])
    return 2 / sharpest if sharpest > 0 else math.inf


def strong_minimum(H: Float[np.ndarray, "k k"], p: Float[np.ndarray, " k"]) -> tuple[float, float]:
    r"""How strict a minimum on its support a plateau is (Assumption 4.3: positive), in products and
    in weights.

    The least eigenvalue of H, and the paper's constant, $2 \lambda_{\min}(\sqrt{|p|}\, H
    \sqrt{|p|})$, for the loss as a function of $u = |p|^{1/2}$; infinite for an empty support.
    """
    if not len(p):
        return math.inf, math.inf
    root = np.sqrt(np.abs(p))
    return float(np.linalg.eigvalsh(H)[0]), float(
        2 * np.linalg.eigvalsh(root[:, None] * H * root)[0]
    )


def grows_by_one(
    before: Bool[np.ndarray, " n"], after: Bool[np.ndarray, " n"], joined: int
) -> bool:
    """Whether the new support lies in the old one and the coordinate that joined (Theorem 4.5)."""
    return not (after & ~before)[np.arange(len(after)) != joined].any()


def relative_gaps(stages: Table) -> pd.Series:
    """The least gap between the next stage and its second candidate, over its time, by seed
    (Assumption 4.2).
    """
    followed = stages[np.isfinite(stages["next_time"])]
    return (followed["gap"] / followed["next_time"]).groupby(followed["seed"]).min()


def plateau_errors(stages: Table, plateaus: Table, apart: float, lasting: float) -> Table:
    """How far the flow in the middle of its plateaus is from Algorithm 1's, one row per seed and
    scale.

    Medians over the plateaus, and over those that stand `apart`: whose next stage leads its rival
    by more than this share of its time. The final products are those of the last plateau that lasts
    more than a share of its time.
    """
    theory = stages[["seed", "stage", "loss", "p", "gap", "next_time"]].assign(begin=stages["time"])
    met = plateaus[plateaus["stage"] > 0].merge(
        theory, on=["seed", "stage"], suffixes=("", "_theory")
    )
    met = met.assign(
        loss_error=(met["loss"] - met["loss_theory"]).abs(),
        product_error=[
            float(np.abs(a - b).max()) for a, b in zip(met["p"], met["p_theory"], strict=True)
        ],
        apart=met["gap"] / met["next_time"] > apart,
        lasting=met["next_time"] / met["begin"] - 1 > lasting,
    )
    rows = []
    for cell, here in met.groupby(["seed", "log10_init_scale"]):
        seed, scale = cast("tuple[int, float]", cell)
        final = here[here["lasting"] & (here["stage"] == here.loc[here["lasting"], "stage"].max())]
        rows.append(
            {
                "seed": seed,
                "log10_init_scale": scale,
                "plateau_loss_error": float(here["loss_error"].median()),
                "plateau_loss_error_apart": float(here.loc[here["apart"], "loss_error"].median()),
                "plateau_product_error": float(here["product_error"].median()),
                "final_product_error": float(final["product_error"].max()),
                "final_stage": float(final["stage"].max()),
            }
        )
    columns = [
        "seed",
        "log10_init_scale",
        "plateau_loss_error",
        "plateau_loss_error_apart",
        "plateau_product_error",
    ]
    return pd.DataFrame(rows, columns=[*columns, "final_product_error", "final_stage"])
