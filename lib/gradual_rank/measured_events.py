"""What claims say of what rises second in a head with full matrices: a value a seed, by case.

A wait is the time from the first rise of W_VO until W_KQ rises.
"""

import itertools

import numpy as np
import pandas as pd

from lib.files.tables import pick
from lib.gradual_rank.measures import Table, by_scale
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tables.second_event import COURSES, WAITS
from lib.pages.measures import Row, Values, rows_of


def beside_limits(rises: Table, heads: Table) -> Table:
    """The rises of one case with their waits, who was first, and what theory says of both.

    `right` is whether the order is what the way from the first saddle to the second says, and
    `right_limit` whether it is that of the limit of small starts.
    """
    own = rises.merge(heads, on=["case", "seed"])
    efolds = -LOG10 * own["log10_init_scale"]
    wait = own["keys"] - own["first"]
    of_limit = (own["limit_keys"] - own["limit_first"]) * efolds
    values_first = own["values"] < own["keys"]
    return own.assign(
        wait=wait,
        error=((own["keys_said"] - own["first_said"]) / wait - 1).abs(),
        error_limit=(of_limit / wait - 1).abs(),
        values_first=values_first,
        right=(values_first == (own["values_said"] < own["keys_said"])).astype(float),
        right_limit=(values_first == (own["before"] > 1)).astype(float),
        values_error=(own["values_said"] / own["values"] - 1).abs().where(values_first),
        values_error_limit=(own["limit_values"] * efolds / own["values"] - 1)
        .abs()
        .where(values_first),
    )


def waits(rises: Table, heads: Table) -> Table:
    """The added waits of every case, from each scale but the largest."""
    found: list[Table] = []
    for case, own in rises.groupby("case", sort=False):
        both = beside_limits(own, heads)
        scales = sorted(map(float, both["log10_init_scale"].unique()), reverse=True)
        by_seed = both.pivot(index="seed", columns="log10_init_scale", values="wait")
        limits = pick(heads, case=case)
        for larger, smaller in itertools.pairwise(scales):
            columns = {
                "added": (by_seed[smaller] - by_seed[larger]) / ((larger - smaller) * LOG10),
                "added_said": limits["limit_keys"] - limits["limit_first"],
                "added_pair": 1 / limits["kappa_pair"],
            }
            at = {"case": case, "log10_init_scale": smaller}
            found.append(pd.DataFrame(columns).rename_axis("seed").reset_index().assign(**at))
    return WAITS.frame(pd.concat(found, ignore_index=True) if found else [])


def event_measures(rises: Table, heads: Table, added: Table) -> list[Row]:
    """The measures of every case, in the order of the table of cases."""
    found: list[Row] = []
    for case, own in rises.groupby("case", sort=False):
        both = beside_limits(own, heads)
        late = added[added["case"] == case]
        late = late.assign(
            ratio=late["added"] / late["added_said"], ratio_pair=late["added"] / late["added_pair"]
        )
        by_seed = both.groupby("seed")
        measured: dict[str, Values] = {
            "added_wait": by_scale(late, "ratio"),
            "added_wait_pair": by_scale(late, "ratio_pair"),
            "direction": by_scale(both, "overlap"),
            "direction_pair": by_scale(both, "overlap_pair"),
            "wait_error": by_scale(both, "error"),
            "wait_error_limit": by_scale(both, "error_limit"),
            "order_right": by_seed["right"].mean(),
            "order_right_limit": by_seed["right_limit"].mean(),
            "values_error": by_scale(both, "values_error"),
            "values_error_limit": by_scale(both, "values_error_limit"),
        }
        found += rows_of(measured, str(case))
    return found


def setup_of(rises: Table, heads: Table) -> dict[str, float]:
    """What sentences say of the flows of the first case: how many there are, and in how many which
    order came and was said.
    """
    case = rises["case"].iloc[0]
    both = beside_limits(rises[rises["case"] == case], heads)
    scales = both["log10_init_scale"]
    first = both["values_first"]
    return {
        "n_seeds": both["seed"].nunique(),
        "n_scales": scales.nunique(),
        "n_flows": len(both),
        "n_right": int(both["right"].sum()),
        "n_right_limit": int(both["right_limit"].sum()),
        "values_first_largest": int(first[scales == scales.max()].sum()),
        "values_first_smallest": int(first[scales == scales.min()].sum()),
    }


def shown_courses(courses: Table, heads: Table) -> Table:
    """The courses of one head, from which W_KQ is first at small scales and not at large ones.

    It is that of the first case whose crossing is nearest to the middle of its scales.
    """
    case = courses["case"].iloc[0]
    own = courses[courses["case"] == case]
    apart = pick(heads, case=case)["crossing"] - np.median(own["log10_init_scale"].unique())
    seed = apart.abs().fillna(np.inf).idxmin()
    return COURSES.frame(own[own["seed"] == seed])
