"""What claims say of normalised heads behind their turn, with gains, pre-norm and weight decay.

Times are of the flow. Measures are by the line of the table of cases, with a value a seed.
"""

import math

import pandas as pd

from lib.files.tables import pick
from lib.gradual_rank.measures import Table
from lib.gradual_rank.scales import LOG10
from lib.matrices.directions import separate
from lib.pages.measures import Row, Values, rows_of

PLAIN = "plain"  # the lines of the table of cases
QK_NORM = "qk_norm"
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


def measures_of(tables: dict[str, Table]) -> list[Row]:
    """The measures of every line that is there."""
    heads = tables["heads"]
    limits = {str(name): own.set_index("seed") for name, own in tables["limits"].groupby("case")}
    found: list[Row] = []
    for case in (PLAIN, QK_NORM):
        found += rows_of(steps(of(tables["directions"], case), limits[case]["sigma"]), case)
        found += rows_of(at_the_end(of(heads, case)), case)
    turns = {str(name): times(own, "turn") for name, own in heads.groupby("case")}
    for case in (PLAIN_TURN, PRE_NORM, SMALL):
        measured = {"turn_wait": wait(turns[case], limits[case]["sigma"])}
        if case == PRE_NORM:
            rate = limits[PLAIN_TURN]["sigma"]
            measured["turn_wait_plain_rate"] = wait(turns[case], rate)
        if case == SMALL:
            measured["turn_wait_doubled"] = 2 * measured["turn_wait"]
        found += rows_of(measured, case)
    moved = times(of(heads, LEARNED), "gain_moved")
    gains = {
        "gain_wait": wait(moved, limits[LEARNED]["growth"]),
        "gain_wait_uniform": wait(moved, limits[LEARNED]["sigma"]),
    }
    found += rows_of(gains, LEARNED)
    for case in (DECAYED, DECAYED_KEYS):
        said = {
            "turn_error": off(turns[case], limits[case]["turn"]),
            "turn_error_undecayed": off(turns[case], limits[case]["turn_undecayed"]),
        }
        found += rows_of(said, case)
    plain = off(turns[DECAYED_PLAIN], smallest(turns[PLAIN_TURN]))
    found += rows_of({"turn_error_undecayed": plain}, DECAYED_PLAIN)
    rises = times(of(heads, DECAYED), "rise")
    rate = limits[DECAYED]["growth"]
    decay = limits[DECAYED]["decay"]
    waits = {"rise_wait": wait(rises, rate), "rise_wait_undecayed": wait(rises, rate + decay)}
    found += rows_of(waits, DECAYED)
    for case in STRONG:
        last = smallest(times(of(heads, case), "rise"))
        found += rows_of({"risen": (last < math.inf).astype(float)}, case)
    return found


def of(table: Table, case: str) -> Table:
    """The rows of a line of the table of cases."""
    return table[table["case"] == case]


def times(heads: Table, column: str) -> Table:
    """The times of an event by seed and scale, the smallest scale first."""
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
    """How far a time from the smallest scale is from what is said of it, over the latter."""
    return (smallest(by_scale) / said - 1).abs()


def steps(directions: Table, sigma: pd.Series) -> dict[str, Values]:
    r"""Whether directions of the updates begin one after another.

    `values_step` and `keys_step` (without its sign) say by how much longer the second direction
    waits behind the first as log(1/α) grows, in units of $1/\sigma$: zero where all grow at once.
    A direction begins at a tenth of its last value. `separate_values` is the share of directions
    that begin once the one before has ended, by scale.
    """
    lags: dict[str, Table] = {}
    for matrix, own in directions.groupby("matrix"):
        begun = own.pivot(index=["seed", "log10_init_scale"], columns="direction", values="begun")
        lags[str(matrix)] = (begun[2] - begun[1]).unstack("log10_init_scale")
    shares: dict[str, pd.Series] = {}
    values = directions[directions["matrix"] == "W_VO"]
    for scale, at in sorted(values.groupby("log10_init_scale"), reverse=True):
        found = pd.Series({seed: apart(own) for seed, own in at.groupby("seed")})
        shares[f"1e{scale:g}"] = found.dropna()
    return {
        "values_step": wait(lags["W_VO"], sigma),
        "keys_step": wait(lags["W_KQ"], sigma).abs(),
        "separate_values": shares,
    }


def apart(directions: Table) -> float:
    """The share of the directions that count which begin once the one before has ended."""
    counted = directions[directions["last"] > COUNTS * directions["last"].max()]
    return separate(counted["begun"].to_numpy(), counted["ended"].to_numpy())


def at_the_end(heads: Table) -> dict[str, pd.Series]:
    """The stable rank of the update of W_KQ at the turn and at the end, from the smallest scale."""
    own = pick(heads, log10_init_scale=heads["log10_init_scale"].min())
    return {name: own[name] for name in ("rank_at_turn", "rank_at_end", "left")}


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
