"""What Algorithm 1's stages, and the flow's distance from them, are summed up to, by seed."""

import math
from typing import cast

import numpy as np
import pandas as pd

Table = pd.DataFrame

BY_SCALE = {  # measures of every seed at each scale, and their columns of the table of errors
    "limit_error": "time_error_median",
    "order_agreement": "order_agreement",
    "plateau_loss_error": "plateau_loss_error",
    "plateau_product_error": "plateau_product_error",
    "final_product_error": "final_product_error",
    "finite_time_error": "finite_error_median",
    "finite_worst_error": "finite_error_max",
    "supports": "same",
    "charge_constant": "constant",
    "rise_duration": "ratio",
}


def stage_measures(stages: Table) -> dict[str, pd.Series]:
    """The worst residual, how many coordinates leave and their pulls, and how strict a minimum every plateau is."""
    later = stages[stages["stage"] > 0].groupby("seed")
    return {
        "residual": stages.groupby("seed")["residual"].max(),
        "coordinates_that_leave": stages.groupby("seed")["n_dropped"].sum(),
        "strictness_products": later["strictness_products"].min(),
        "strictness_weights": later["strictness_weights"].min(),
        "pull": pulls(departed(stages)),
    }


def by_scale(table: Table, column: str) -> dict[str, pd.Series]:
    """A column by seed, for every init scale at which it was taken, the smallest last."""
    table = table.dropna(subset=column)
    scales = sorted(table["log10_init_scale"].unique(), reverse=True)
    rows = {scale: table[table["log10_init_scale"] == scale] for scale in scales}
    return {f"1e{scale:g}": of.set_index("seed").sort_index()[column] for scale, of in rows.items()}


def measures_by_scale(errors: Table) -> dict[str, dict[str, pd.Series]]:
    """Every measure of a table of errors, one row per seed and scale."""
    return {name: by_scale(errors, column) for name, column in BY_SCALE.items() if column in errors}


def same_supports(stages: Table, plateaus: Table, significant: float) -> Table:
    """The share of the plateaus at whose middle the flow has Algorithm 1's significant products: `same`.

    One row per seed and scale; plateaus of no duration have no middle.
    """
    both = stages[(stages["stage"] > 0) & (stages["next_time"] > stages["time"])]
    both = both.merge(plateaus, on=["seed", "stage"], suffixes=("", "_flow"))
    same = [
        np.array_equal(np.abs(p) > significant, np.abs(q) > significant)
        for p, q in zip(both["p"], both["p_flow"], strict=True)
    ]
    both = both.assign(same=pd.Series(same, both.index, float))
    return both.groupby(["seed", "log10_init_scale"])["same"].mean().reset_index()


def charge_constants(stages: Table, plateaus: Table) -> Table:
    r"""How far the charges of the flow are from Algorithm 1's at mid-plateau, times log(1 / init_scale): `constant`.

    In the flow $\beta_i = y_i / \log(1 / \alpha)$, so that $w_{\pm, i} = \alpha^{1 \mp \beta_i}$ up to a constant; the
    paper's $b_i$ is $1 - \beta_i$ (equations 10 and 17). In Algorithm 1 it moves at $g_i(\theta^k)$ off the support,
    and stays on it. The median over all coordinates and plateaus, one row per seed and scale.
    """
    theory = stages[["seed", "stage", "time", "g", "charge", "support"]].rename(columns={"time": "begin"})
    both = plateaus[plateaus["stage"] > 0].merge(theory, on=["seed", "stage"], suffixes=("", "_theory"))
    names = ["charge", "charge_theory", "support", "g", "rescaled_time", "begin"]
    off = [
        np.abs(found - charge - np.where(support, 0.0, g * (time - begin)))
        for found, charge, support, g, time, begin in zip(*(both[name] for name in names), strict=True)
    ]
    rows = []
    for cell, here in both.assign(off=off).groupby(["seed", "log10_init_scale"]):
        seed, scale = cast("tuple[int, float]", cell)
        constant = float(np.median(np.concatenate(list(here["off"])))) * -scale * math.log(10)
        rows.append({"seed": seed, "log10_init_scale": scale, "constant": constant})
    return pd.DataFrame(rows, columns=["seed", "log10_init_scale", "constant"])


def departed(stages: Table) -> Table:
    r"""What leaves the support, one row per coordinate and stage: `pull`, positive where g holds it where it is.

    $-\beta_i g_i(\theta^k) / \max |g(0)|$ of the coordinates in $\mathrm{supp}\,\theta^{k-1} \setminus
    \mathrm{supp}\,\theta^k$: not zero by the third part of Assumption 4.2, and positive by Lemma D.4.
    """
    rows = []
    for seed, own in stages.groupby("seed"):
        first = float(np.abs(own.loc[own["stage"] == 0, "g"].iloc[0]).max())
        for k, dropped, charge, g in zip(*(own[name] for name in ("stage", "dropped", "charge", "g")), strict=True):
            rows += [
                {"seed": seed, "stage": k, "coordinate": int(i), "pull": -charge[i] * g[i] / first} for i in dropped
            ]
    return pd.DataFrame(rows, columns=["seed", "stage", "coordinate", "pull"])


def pulls(gone: Table) -> pd.Series:
    """The pull of what leaves, by the seed, stage and coordinate."""
    cases = zip(gone["seed"], gone["stage"], gone["coordinate"], strict=True)
    return pd.Series(gone["pull"].to_numpy(float), [f"seed {seed}, stage {k}, coordinate {i}" for seed, k, i in cases])


def plateau_distances(stages: Table, plateaus: Table, significant: float) -> Table:
    """Shares of same supports and constants of the charges, side by side."""
    constants = charge_constants(stages, plateaus)
    return same_supports(stages, plateaus, significant).merge(constants, on=["seed", "log10_init_scale"], how="outer")
