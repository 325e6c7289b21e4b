"""When the products of a head have moved by a tenth of their norm, with QK-norm and with plain
attention, and the other measures of both.

Measures are those of lib/vision/measures.py, and have the attention's name behind their case where
it is not plain: `W_KQ permuted qk_norm`.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from jaxtyping import Float

from lib.pages.measures import Row
from lib.vision.measures import (
    Tables,
    Taken,
    against_nulls,
    between,
    derived,
    finals,
    growth_with_init_scale,
    named,
    plain_typed,
    rows_by_scale,
)

MOVED = 0.1  # of the initial product's norm; half of it is not reached from large initial weights
PLACE = ["matrix", "attention", "control", "init_scale", "seed", "layer", "head"]
QK_NORM = "attention=qk_norm"


def attention_of(control: str) -> tuple[str, str]:
    """The attention of a control, and the control without it: `none` where nothing is left."""
    parts = control.split(",")
    rest = ",".join(part for part in parts if part != QK_NORM)
    return "qk_norm" if QK_NORM in parts else "plain", rest or "none"


def with_attention(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a column for the attention, which its controls no longer have."""
    found = {control: attention_of(str(control)) for control in table["control"].unique()}
    apart = [found[control] for control in table["control"]]
    return table.assign(
        attention=[attention for attention, _ in apart], control=[rest for _, rest in apart]
    )


def first_reached(
    steps: Float[np.ndarray, " step"], moved: Float[np.ndarray, " step"], level: float
) -> float:
    """The step at which a growing number first comes to a level.

    Between two saved steps its logarithm is a straight line against that of the step. Infinite
    where it never comes there.
    """
    above = np.flatnonzero(moved >= level)
    if not len(above):
        return float("inf")
    i = above[0]
    if i == 0:
        return float(steps[0])
    around = slice(i - 1, i + 1)
    return float(np.exp(np.interp(np.log(level), np.log(moved[around]), np.log(steps[around]))))


def turns(products: pd.DataFrame) -> pd.DataFrame:
    """When each head's product has moved by a tenth of its initial norm, and how far it came.

    The columns are those of a head's place, `turn`, a step, and `moved`, the norm of the last
    update over that of the initial product.
    """
    initial = products[products["of"] == "initial"].set_index(PLACE)["norm"]
    updates = products[products["of"] == "update"]
    moved = updates.set_index([*PLACE, "step"])["norm"].unstack("step")
    moved = moved.div(initial, axis="index")
    steps = moved.columns.to_numpy(float)
    turn = [first_reached(steps, row, MOVED) for row in moved.to_numpy()]
    last = moved[moved.columns.max()].to_numpy()
    return moved.index.to_frame(index=False).assign(turn=turn, moved=last)


def of_turns(turns: pd.DataFrame) -> Iterator[Taken]:
    """Medians over layers and heads of the turns of both products, by how much later they are from
    each init scale than from the one before, and the turn of W_K W_Qᵀ over that of W_V W_Oᵀ.
    """
    keys = ["matrix", "control", "init_scale", "seed"]
    medians = turns.groupby(keys)[["turn", "moved"]].median()
    for (matrix, control), own in medians.groupby(["matrix", "control"]):
        by_seed = own.droplevel(["matrix", "control"])
        case = named(str(control), str(matrix))
        yield Taken("turn", case, by_seed["turn"])
        yield Taken("moved", case, by_seed["moved"])
        yield Taken("turn_over_that_of_scale_before", case, between(by_seed["turn"]))
    by_matrix = medians["turn"].unstack("matrix")
    ratios = by_matrix["W_KQ"] / by_matrix["W_VO"]
    for control, ratio in ratios.groupby("control"):
        yield Taken("turn_of_keys_over_values", named(str(control)), ratio.droplevel("control"))


def of_attentions(tables: Tables, last: float) -> list[Row]:
    """The rows of the measures of each attention beside its own permuted labels.

    The tables are `training`, `products` and `turns`. Rows of the init scale `last` stand behind
    all others.
    """
    tables = {name: plain_typed(table) for name, table in tables.items()}
    found = []
    for attention in sorted(set(tables["training"]["attention"])):
        of = {name: table[table["attention"] == attention] for name, table in tables.items()}
        part = {"training": of["training"], "ranks": of["products"]}
        part |= derived(part)
        own = [
            *finals(part["training"]),
            *against_nulls(part),
            *growth_with_init_scale(part),
            *of_turns(of["turns"]),
        ]
        name = "" if attention == "plain" else attention
        found += [one._replace(case=f"{one.case} {name}".strip()) for one in own]
    return rows_by_scale(found, last)
