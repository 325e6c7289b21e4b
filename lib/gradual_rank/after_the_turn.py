"""What claims say of normalised heads after their turn, with gains, pre-norm and weight decay.

Times are of the flow. Measures are by the line of the table of cases, with a value a seed.
"""

import math

import pandas as pd

from lib.gradual_rank.measures import Table
from lib.gradual_rank.scales import LOG10
from lib.matrices.directions import separate
from lib.pages.measures import Row, rows_of

QK_NORM = "qk_norm"  # the lines of the table of cases
PLAIN_TURN = "plain_turn"
PRE_NORM = "pre_norm"
LEARNED = "learned_gain"
SMALL = "small_gain"
DECAYED = "decayed"
DECAYED_KEYS = "decayed_keys"
DECAYED_PLAIN = "decayed_plain"
STRONG = ("strong", "strong_plain")
LAWS = {  # a measure that is a ratio and its case, and the measure of its null
    ("turn_wait", PRE_NORM): "turn_wait_plain_rate",
    ("turn_wait_doubled", SMALL): "turn_wait",
    ("gain_wait", LEARNED): "gain_wait_uniform",
    ("rise_wait", DECAYED): "rise_wait_undecayed",
}
COUNTS = 0.1  # of the largest singular value at the end: a direction that is counted


def measures_of(tables: dict[str, Table], lags: Table) -> list[Row]:
    """The measures of every line that is there, where `lags` are those of `lags_of`."""
    heads = by_line(tables["heads"])
    limits = {case: own.set_index("seed") for case, own in by_line(tables["limits"]).items()}
    found: list[Row] = []
    for case, own in by_line(lags).items():
        found += rows_of(steps(own, limits[case]["sigma"]), case)
    directions = by_line(tables["directions"])[QK_NORM]
    found += rows_of({"separate_values": shares_apart(directions)}, QK_NORM)
    found += rows_of(at_the_end(heads[QK_NORM]), QK_NORM)
    turns = {case: by_seed(own, "turn") for case, own in heads.items()}
    for case in (PLAIN_TURN, PRE_NORM, SMALL):
        measured = {"turn_wait": wait(turns[case], limits[case]["sigma"])}
        if case == PRE_NORM:
            rate = limits[PLAIN_TURN]["sigma"]
            measured["turn_wait_plain_rate"] = wait(turns[case], rate)
        if case == SMALL:
            measured["turn_wait_doubled"] = 2 * measured["turn_wait"]
        found += rows_of(measured, case)
    moved = by_seed(heads[LEARNED], "gain_moved")
    gains = {
        "gain_wait": wait(moved, limits[LEARNED]["growth"]),
        "gain_wait_uniform": wait(moved, limits[LEARNED]["sigma"]),
    }
    found += rows_of(gains, LEARNED)
    for case in (DECAYED, DECAYED_KEYS):
        said = off(turns[case], limits[case]["turn"])
        found += rows_of({"turn_error": said}, case)
    hastened = off(turns[DECAYED_KEYS], limits[DECAYED_KEYS]["turn_undecayed"])
    found += rows_of({"turn_error_undecayed": hastened}, DECAYED_KEYS)
    plain = off(turns[DECAYED_PLAIN], smallest(turns[PLAIN_TURN]))
    found += rows_of({"turn_error_undecayed": plain}, DECAYED_PLAIN)
    rises = by_seed(heads[DECAYED], "rise")
    rate = limits[DECAYED]["growth"]
    decay = limits[DECAYED]["decay"]
    waits = {"rise_wait": wait(rises, rate), "rise_wait_undecayed": wait(rises, rate + decay)}
    found += rows_of(waits, DECAYED)
    for case in STRONG:
        last = smallest(by_seed(heads[case], "rise"))
        found += rows_of({"risen": (last < math.inf).astype(float)}, case)
    return found


def by_line(table: Table) -> dict[str, Table]:
    """The rows of each line of the table of cases, in its order."""
    return {str(case): own for case, own in table.groupby("case", sort=False)}


def by_seed(heads: Table, column: str) -> Table:
    """A column, such as the time of an event, with a row for each seed and a column for each scale,
    the smallest first.
    """
    return heads.pivot(index="seed", columns="log10_init_scale", values=column)


def smallest(by_scale: Table) -> pd.Series:
    """The column of the smallest scale."""
    return by_scale[min(by_scale.columns)]


def wait(by_scale: Table, rate: pd.Series) -> pd.Series:
    r"""How much later something comes from the smallest scale than from the next, over
    $\log(\alpha_1 / \alpha_2)$ over the rate.
    """
    least, second = sorted(float(scale) for scale in by_scale.columns)[:2]
    return (by_scale[least] - by_scale[second]) * rate / ((second - least) * LOG10)


def off(by_scale: Table, said: pd.Series) -> pd.Series:
    """The relative error of what is said of a time, at the smallest scale."""
    return (smallest(by_scale) / said - 1).abs()


def lags_of(directions: Table) -> Table:
    """By how much the second direction of each update is later than the first, head by head.

    A direction begins at a tenth of its last value.
    """
    cell = ["case", "seed", "log10_init_scale", "matrix"]
    begun = directions.pivot(index=cell, columns="direction", values="begun")
    return (begun[2] - begun[1]).rename("lag").reset_index()


def steps(lags: Table, sigma: pd.Series) -> dict[str, pd.Series]:
    r"""Whether directions of the updates begin one after another.

    `values_step` and `keys_step` (of which the sign is dropped: the lag of keys may shrink) say by
    how much the lag grows as log(1/α) does, in units of $1/\sigma$: zero where all directions grow
    at once.
    """
    growth = {
        str(matrix): wait(by_seed(own, "lag"), sigma) for matrix, own in lags.groupby("matrix")
    }
    return {"values_step": growth["W_VO"], "keys_step": growth["W_KQ"].abs()}


def shares_apart(directions: Table) -> dict[str, pd.Series]:
    """The share of directions of W_VO that begin once the one before has ended, by scale.

    Two scales are taken: the smallest, which a claim judges, and the largest, its null.
    """
    values = directions[directions["matrix"] == "W_VO"]
    scales = values["log10_init_scale"]
    found: dict[str, pd.Series] = {}
    for scale in (scales.max(), scales.min()):
        at = values[scales == scale].groupby("seed")
        shares = pd.Series({seed: apart(own) for seed, own in at})
        found[f"1e{scale:g}"] = shares.dropna()
    return found


def apart(directions: Table) -> float:
    """The share of the directions that count which begin once the one before has ended."""
    counted = directions[directions["last"] > COUNTS * directions["last"].max()]
    return separate(counted["begun"].to_numpy(), counted["ended"].to_numpy())


def at_the_end(heads: Table) -> dict[str, pd.Series]:
    """The stable rank of the update of W_KQ at the turn and at the end, from the smallest scale,
    and how much of its way W_KQ has `left` when values begin to rise.
    """
    return {
        name: smallest(by_seed(heads, name)) for name in ("rank_at_turn", "rank_at_end", "left")
    }


def laws_of(rows: list[Row]) -> Table:
    """The numbers of every head over what laws and their nulls say, of measures that are ratios."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        values.setdefault((row.measure, row.case), {})[row.unit] = float(row.value)
    found: list[tuple[str, int, float, float]] = []
    for (measure, case), null in LAWS.items():
        for seed, own in values[measure, case].items():
            found.append((f"{measure}.{case}", int(seed), own, values[null, case][seed]))
    return pd.DataFrame(found, columns=["law", "seed", "own", "other"])
