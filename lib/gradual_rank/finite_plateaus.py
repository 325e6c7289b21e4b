"""What claims say of flows under cross-entropy, from the tables of what was followed.

Measures are by the line of the table of cases, with a value a seed. The control has no decay.
"""

import numpy as np
import pandas as pd

from lib.gradual_rank.measures import Table, by_scale, same_supports
from lib.pages.measures import Row, rows_of

AGREEMENTS = ("supports", "supports_by_gradient", "supports_at_random")


def supports_of(tables: dict[str, Table], significant: float) -> Table:
    """The `agreements` of the flows with decay of every line, in the order of the table of cases.

    Only `stages` and `plateaus` are read.
    """
    cases = tables["stages"]["case"].unique()
    parts = [(case, agreements(of_case(tables, case), significant)) for case in cases]
    return pd.concat([agreed.assign(case=case) for case, agreed in parts], ignore_index=True)


def of_case(tables: dict[str, Table], case: str, *, decays: bool = True) -> dict[str, Table]:
    """The rows of a line, with decay or without."""
    return {
        name: table[(table["case"] == case) & ((table["share"] > 0) == decays)]
        for name, table in tables.items()
    }


def measures_of(tables: dict[str, Table], supports: Table, significant: float) -> list[Row]:
    """The measures of every line, in the order of the table of cases."""
    found: list[Row] = []
    for case, agreed in supports.groupby("case", sort=False):
        name = str(case)
        decayed, control = (of_case(tables, name, decays=decays) for decays in (True, False))
        own = agreements(control, significant)
        by = {one: by_scale(agreed, one) for one in AGREEMENTS}
        by |= {"supports_undecayed": by_scale(own, "supports")}
        by |= {"final_error": by_scale(decayed["ends"], "error")}
        found += rows_of(by, name)
        found += rows_of({f"{one}_gain": gains(agreed, one) for one in AGREEMENTS[:2]}, name)
        found += rows_of(end_measures(decayed["ends"], control["ends"]), name)
        found += rows_of(
            {
                "strictness": strictness(decayed["stages"]),
                "strictness_undecayed": strictness(control["stages"]),
            },
            name,
        )
    return found


def end_measures(decayed: Table, control: Table) -> dict[str, pd.Series]:
    """How far from Algorithm 1's end, and how large, the products are without decay, and by how
    much they still grow, from the smallest scale; by seed.

    `growth` is that of their sizes from the end to ten times its time, over the size at the end,
    and `growth_kept` what the next tenfold of time adds, over what that one did.
    """
    ends, beside = smallest(decayed), smallest(control)
    first = beside["size_later"] - beside["size"]
    return {
        "final_error_undecayed": beside["error"],
        "growth": first / beside["size"],
        "growth_decayed": ends["size_later"] / ends["size"] - 1,
        "growth_kept": (beside["size_last"] - beside["size_later"]) / first,
        "size_over_decayed": beside["size_last"] / ends["size"],
    }


def agreements(tables: dict[str, Table], significant: float) -> Table:
    """The shares of the plateaus at whose middle the flow has the support that is expected.

    One row per seed and scale: of Algorithm 1's `supports`; of as many products by the order of
    their gradient at zero; and of as many of those that Algorithm 1 learns, in a random order.
    """
    stages, plateaus = tables["stages"], tables["plateaus"]
    found = same_supports(stages, plateaus, significant).rename(columns={"same": "supports"})
    for name, order in (
        ("supports_by_gradient", by_gradient),
        ("supports_at_random", at_random),
    ):
        parts = [first_of(own, order(own, significant), significant) for own in by_seed(stages)]
        same = same_supports(pd.concat(parts), plateaus, significant)
        found[name] = same["same"]
    return found


def by_seed(stages: Table) -> list[Table]:
    """The stages of each seed, in order."""
    return [own.sort_values("stage") for _, own in stages.groupby("seed")]


def by_gradient(stages: Table, significant: float) -> np.ndarray:
    """The products of a network by the size of their gradient at zero, the largest first."""
    return np.argsort(-np.abs(stages["g"].iloc[0]), kind="stable")


def at_random(stages: Table, significant: float) -> np.ndarray:
    """The products that are on some plateau of a network, in an order that its seed draws."""
    ever = np.any([np.abs(p) > significant for p in stages["p"]], axis=0)
    seed = int(stages["seed"].iloc[0])
    return np.random.default_rng([seed, 1]).permutation(np.flatnonzero(ever))


def first_of(stages: Table, order: np.ndarray, significant: float) -> Table:
    """The stages as they would be if products joined in an order, as many as are significant."""

    def ones(p: np.ndarray) -> np.ndarray:
        found = np.zeros(len(p))
        found[order[: (np.abs(p) > significant).sum()]] = 1.0
        return found

    return stages.assign(p=stages["p"].map(lambda p: ones(np.asarray(p))))


def gains(agreed: Table, name: str) -> pd.Series:
    """By how much a share is larger from the smallest scale than from the largest, by seed."""
    shares = agreed.pivot(index="seed", columns="log10_init_scale", values=name)
    return shares[shares.columns.min()] - shares[shares.columns.max()]


def smallest(ends: Table) -> Table:
    """The ends of the flows from the smallest scale, by seed."""
    least = ends["log10_init_scale"].min()
    return ends[ends["log10_init_scale"] == least].set_index("seed")


def strictness(stages: Table) -> pd.Series:
    """The least curvature of the loss on the support of a plateau, over the plateaus, by seed."""
    later = stages[stages["stage"] > 0]
    return later.groupby("seed")["strictness_products"].min()
