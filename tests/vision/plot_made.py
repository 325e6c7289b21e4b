"""Tables that the figures of a data set are drawn from, whose numbers say what they are of, and the
lines that they make.
"""

import itertools

import numpy as np
import pandas as pd

from tests.stages.made import table

SEEDS, STEPS, LAST = [5, 2], [1, 9], 9
SPECTRA_STEPS = [1, 9, 2, 3, 4, 5, 6, 7]  # not in order
SCALES = [0.1, 0.5, 4]
PERMUTED, SGD = "labels=permuted", "optimizer=sgd,learning_rate=0.3"
MUON, SCALED = "optimizer=muon,learning_rate=0.01", "scaled=all-but-patch-embedding"
PLAIN = [(4, "none"), (0.1, "none"), (0.5, "none")]
CELLS = [*PLAIN, (0.5, PERMUTED), (0.5, SGD), (0.5, MUON), (0.1, SCALED)]
# A stable rank is a sum: tens say of what, and of which control; ones, the init scale (0, 1, 2) and
# the product (3 more for W_VO); .5 the second layer, .2 the third head, .04 the seed 2.
OF = {"initial": 90, "gaussian": 50, "gaussian product": 60, 1: 10, 9: 20}
CONTROLS = {"none": 0, PERMUTED: 20, SGD: 30, MUON: 35, SCALED: 65}


def rank(row):
    found = OF[row["step"] if row["of"] == "update" else row["of"]] + CONTROLS[row["control"]]
    found += SCALES.index(row["init_scale"]) + 3 * (row["matrix"] == "W_VO")
    return found + 0.5 * (row["layer"] == 2) + 0.2 * (row["head"] == 3) + 0.04 * (row["seed"] == 2)


def sigma(row):
    """8, 4 and 2, more by tenths of the step, ones of the scale, and 10 for W_VO."""
    more = row["step"] / 10 + SCALES.index(row["init_scale"]) + 10 * (row["matrix"] == "W_VO")
    more += 0.02 * (row["layer"] == 2) + 0.01 * (row["head"] == 3) + 50 * (row["of"] == "gaussian")
    return np.array([8, 4, 2], dtype="float32") + np.float32(more)


def scores(row):
    late = row["seed"] == 2
    losses = {1: 2, 6: 1, 9: 0.5}
    loss = losses.get(row["step"], np.nan) * (12 if row["init_scale"] == 4 else 1)
    permuted = row["control"] == PERMUTED
    worse = SCALES.index(row["init_scale"]) + 0.25 * permuted
    return {
        "train_loss": loss + 0.1 * late + 0.25 * permuted,
        "test_loss": 3 - row["step"] / 10 + worse + 0.2 * late,
        "test_accuracy": 0.1 + row["step"] / 20 - worse / 100 + 0.04 * late,
    }


def every(of, **keys):
    """Rows, one for each combination of the keys, with what `of` makes of each; keys that are
    joined by _and_ vary together.
    """
    rows = []
    for combination in itertools.product(*keys.values()):
        row = {}
        for name, found in zip(keys, combination, strict=True):
            names = name.split("_and_")
            row.update(zip(names, found if len(names) > 1 else [found], strict=True))
        rows.append(row | of(row))
    return pd.DataFrame(rows)


def cut(row):
    kind = {"W_Q": 0.3, "all": 0.1, "W_1": 0.2}[row["kind"]]
    accuracy = kind + row["rank"] / 10 + 0.02 * (row["seed"] == 2)
    return {"test_accuracy": accuracy + 0.01 * (row["variant"] == "init_scale=4")}


def pruned(row):
    slope = {"smallest": 0.2, "random": 0.4, "largest": 0.6}[row["order"]]
    accuracy = 0.9 - slope * row["rate"] + 0.04 * (row["seed"] == 2)
    accuracy += {"weights": 0, "neurons": 0.01, "heads": 0.02}[row["what"]]
    accuracy -= 0.1 * (row["variant"] == "init_scale=4")
    return {"test_accuracy": accuracy, "removed": 0.9 * row["rate"]}


def made(cells, growth):
    """Tables as the stage before writes them."""
    matrices = ["W_KQ", "W_VO"]
    per_head = {"layer": [1, 2], "head": [1, 3], "init_scale_and_control": cells}
    kinds = [("initial", 0), ("gaussian", LAST), ("gaussian product", LAST)]
    kinds += [("update", step) for step in STEPS]
    steps = [*kinds[:2], *(("update", step) for step in SPECTRA_STEPS)]
    variants = {"variant": ["init_scale=0.5", "init_scale=4"]}
    spectra = every(
        lambda row: {"singular_values": sigma(row), "n_singular_values": 6},
        matrix=matrices,
        of_and_step=steps,
        seed=[7],
        **per_head,
    )
    ranks = every(
        lambda row: {"stable_rank": rank(row)},
        matrix=matrices,
        of_and_step=kinds,
        seed=SEEDS,
        **per_head,
    )
    uses = {"use": ["reference", *["growth"] * len(growth)], "init_scale": [0.5, *growth]}
    return {
        "ranks": ranks,
        "spectra": spectra,
        "training": every(scores, seed=SEEDS, step=[9, 0, 1, 6], init_scale_and_control=cells),
        "truncate": every(cut, **variants, kind=["W_Q", "all", "W_1"], rank=[4, 0, 1], seed=SEEDS),
        "prune": every(
            pruned,
            **variants,
            what=["heads", "weights", "neurons"],
            order=["smallest", "random", "largest"],
            rate=[0.5, 0, 0.9],
            seed=SEEDS,
        ),
        "equal_loss": table("""
matrix seed init_scale learned permuted train_loss
W_KQ   5    0.5        5       7        .6
W_KQ   2    0.5        6       8        1.1
W_VO   5    0.5        15      17       .6
W_VO   2    0.5        16      18       1.1
"""),
        "scales": pd.DataFrame(uses),
    }


OPTIMIZERS = {
    "ranks": """
rule labels   init_scale seed step matrix of       stable_rank
sgd  true     2          3    1    W_KQ   update   1
sgd  true     2          3    5    W_KQ   update   2
sgd  true     2          4    5    W_KQ   update   3
sgd  permuted 2          3    5    W_KQ   update   4
sgd  true     2          3    5    W_KQ   gaussian 99
own  true     2          3    5    W_KQ   update   5
own  true     2          3    5    W_VO   update   6
sgd  true     2          3    1    W_VO   update   8
sgd  true     0.5        3    5    W_VO   update   7
""",
    "trained": """
rule labels   init_scale seed step train_loss
sgd  true     2          3    1    2
sgd  true     2          3    5    1
sgd  true     2          4    5    .5
sgd  permuted 2          3    5    1.5
own  true     2          3    5    .25
sgd  true     0.5        3    5    9
""",
    "truncate": """
rule labels   init_scale seed rank test_accuracy
sgd  true     2          3    0    .1
sgd  true     2          4    0    .3
sgd  true     2          3    4    .9
sgd  permuted 2          3    4    .7
sgd  true     0.5        3    4    .6
own  true     2          3    4    .8
""",
    "rates": """
rule init_scale seed learning_rate train_loss
sgd  2.0        3    .1            3
sgd  2          4    .1            5
sgd  2          3    1             2
own  2          3    1             7
""",
}
# Of each panel of each figure, every line: its x, then its y.
LINES = {
    "equal-loss": """
2.1 0.6  11.39 21.39 | 2 0.5  11.35 21.35 | 0.6 1.1  5 6 | 2.35 0.85  31.39 41.39 \
| 2.25 0.75  31.35 41.35 | 0.6 1.1  7 8
2.1 0.6  14.39 24.39 | 2 0.5  14.35 24.35 | 0.6 1.1  15 16 | 2.35 0.85  34.39 44.39 \
| 2.25 0.75  34.35 44.35 | 0.6 1.1  17 18
""",
    "figure-1": """
1 2 3  1 0.5619 0.3428 | 1 2 3  1 0.5666 0.3499 | 1 2 3  1 0.5758 0.3637 \
| 1 2 3  1 0.5803 0.3704 | 1 2 3  1 0.5889 0.3834 | 1 2 3  1 0.5972 0.3958 | 1 2 3  1 0.557 0.3355
1 2 3  1 0.7909 0.6864 | 1 2 3  1 0.792 0.688 | 1 2 3  1 0.7941 0.6912 \
| 1 2 3  1 0.7952 0.6928 | 1 2 3  1 0.7973 0.6959 | 1 2 3  1 0.7993 0.6989 | 1 2 3  1 0.7898 0.6847
""",
    "figure-12": """
1 9  12.14 22.14 | 1 9  12.1 22.1 | 1 9  12.12 22.12 | 1 9  15.14 25.14 | 1 9  15.1 25.1 \
| 1 9  15.12 25.12
1 9  12.64 22.64 | 1 9  12.6 22.6 | 1 9  12.62 22.62 | 1 9  15.64 25.64 | 1 9  15.6 25.6 \
| 1 9  15.62 25.62
1 9  10.14 20.14 | 1 9  10.1 20.1 | 1 9  10.12 20.12 | 1 9  13.14 23.14 | 1 9  13.1 23.1 \
| 1 9  13.12 23.12
1 9  10.64 20.64 | 1 9  10.6 20.6 | 1 9  10.62 20.62 | 1 9  13.64 23.64 | 1 9  13.6 23.6 \
| 1 9  13.62 23.62
""",
    "figure-3": """
1 2 3 4 5 6 7 9  6.13 6.23 6.33 6.43 6.53 6.63 6.73 6.93 \
| 1 2 3 4 5 6 7 9  10.13 10.23 10.33 10.43 10.53 10.63 10.73 10.93
1 2 3 4 5 6 7 9  4.13 4.23 4.33 4.43 4.53 4.63 4.73 4.93 \
| 1 2 3 4 5 6 7 9  8.13 8.23 8.33 8.43 8.53 8.63 8.73 8.93
1 2 3 4 5 6 7 9  16.13 16.23 16.33 16.43 16.53 16.63 16.73 16.93 \
| 1 2 3 4 5 6 7 9  20.13 20.23 20.33 20.43 20.53 20.63 20.73 20.93
1 2 3 4 5 6 7 9  14.13 14.23 14.33 14.43 14.53 14.63 14.73 14.93 \
| 1 2 3 4 5 6 7 9  18.13 18.23 18.33 18.43 18.53 18.63 18.73 18.93
""",
    "figure-4": """
0.1 0.5 4  50.12 51.12 52.12 | 0.5  41.12 | 0.1 0.5 4  10.12 11.12 12.12 \
| 0.1 0.5 4  20.12 21.12 22.12 | 0.1 0.1  20.14 20.1 | 0.5 0.5  21.14 21.1 | 4 4  22.14 22.1
0.1 0.5 4  50.62 51.62 52.62 | 0.5  41.62 | 0.1 0.5 4  10.62 11.62 12.62 \
| 0.1 0.5 4  20.62 21.62 22.62 | 0.1 0.1  20.64 20.6 | 0.5 0.5  21.64 21.6 | 4 4  22.64 22.6
0.1 0.5 4  53.12 54.12 55.12 | 0.5  44.12 | 0.1 0.5 4  13.12 14.12 15.12 \
| 0.1 0.5 4  23.12 24.12 25.12 | 0.1 0.1  23.14 23.1 | 0.5 0.5  24.14 24.1 | 4 4  25.14 25.1
0.1 0.5 4  53.62 54.62 55.62 | 0.5  44.62 | 0.1 0.5 4  13.62 14.62 15.62 \
| 0.1 0.5 4  23.62 24.62 25.62 | 0.1 0.1  23.64 23.6 | 0.5 0.5  24.64 24.6 | 4 4  25.64 25.6
""",
    "figure-5-KQ": """
1 2 3  9 5 3 | 1 2 3  9.9 5.9 3.9
1 2 3  9.01 5.01 3.01 | 1 2 3  9.91 5.91 3.91
1 2 3  9.02 5.02 3.02 | 1 2 3  9.92 5.92 3.92
1 2 3  9.03 5.03 3.03 | 1 2 3  9.93 5.93 3.93
""",
    "figure-5-VO": """
1 2 3  19 15 13 | 1 2 3  19.9 15.9 13.9
1 2 3  19.01 15.01 13.01 | 1 2 3  19.91 15.91 13.91
1 2 3  19.02 15.02 13.02 | 1 2 3  19.92 15.92 13.92
1 2 3  19.03 15.03 13.03 | 1 2 3  19.93 15.93 13.93
""",
    "learning-curves": """
1 6 9  2.05 1.05 0.55 | 1 6 9  2.05 1.05 0.55 | 1 6 9  2.3 1.3 0.8 | 1 6 9  24.05 12.05 6.05
0 1 6 9  3.1 3 2.5 2.2 | 0 1 6 9  4.1 4 3.5 3.2 | 0 1 6 9  4.35 4.25 3.75 3.45 \
| 0 1 6 9  5.1 5 4.5 4.2
0 1 6 9  0.12 0.17 0.42 0.57 | 0 1 6 9  0.11 0.16 0.41 0.56 \
| 0 1 6 9  0.1075 0.1575 0.4075 0.5575 | 0 1 6 9  0.1 0.15 0.4 0.55
""",
    "nulls": """
0 0  22.39 22.35 | 2 2  12.39 12.35 | 3 3  52.39 52.35 | 4 4  62.39 62.35
0 0  20.39 20.35 | 2 2  10.39 10.35 | 3 3  50.39 50.35 | 4 4  60.39 60.35
0 0  25.39 25.35 | 2 2  15.39 15.35 | 3 3  55.39 55.35 | 4 4  65.39 65.35
0 0  23.39 23.35 | 2 2  13.39 13.35 | 3 3  53.39 53.35 | 4 4  63.39 63.35
""",
    "pruning": """
0 0.45 0.81  0.92 0.82 0.74 | 0 0.45 0.81  0.92 0.72 0.56 | 0 0.45 0.81  0.92 0.62 0.38
0 0.45 0.81  0.93 0.83 0.75 | 0 0.45 0.81  0.93 0.73 0.57 | 0 0.45 0.81  0.93 0.63 0.39
0 0.45 0.81  0.94 0.84 0.76 | 0 0.45 0.81  0.94 0.74 0.58 | 0 0.45 0.81  0.94 0.64 0.4
0 0.45 0.81  0.82 0.72 0.64 | 0 0.45 0.81  0.82 0.62 0.46 | 0 0.45 0.81  0.82 0.52 0.28
0 0.45 0.81  0.83 0.73 0.65 | 0 0.45 0.81  0.83 0.63 0.47 | 0 0.45 0.81  0.83 0.53 0.29
0 0.45 0.81  0.84 0.74 0.66 | 0 0.45 0.81  0.84 0.64 0.48 | 0 0.45 0.81  0.84 0.54 0.3
""",
    "truncation": """
0 1 4  0.31 0.41 0.71 | 0 1 4  0.21 0.31 0.61 | 0 1 4  0.11 0.21 0.51
0 1 4  0.32 0.42 0.72 | 0 1 4  0.22 0.32 0.62 | 0 1 4  0.12 0.22 0.52
""",
}
BANDS = {
    "figure-4": """
0.1: 20.02 20.22 0.5: 21.02 21.22 4: 22.02 22.22
""",
    "figure-12": """
1: 12.02 12.22 9: 22.02 22.22 | 1: 15.02 15.22 9: 25.02 25.22
""",
    "learning-curves": """
1: 2 2.1 6: 1 1.1 9: 0.5 0.6 | 1: 2 2.1 6: 1 1.1 9: 0.5 0.6 \
| 1: 2.25 2.35 6: 1.25 1.35 9: 0.75 0.85 | 1: 24 24.1 6: 12 12.1 9: 6 6.1
""",
    "nulls": """
-0.3: 22.37 22.37 0.3: 22.37 22.37 | 1.7: 12.37 12.37 2.3: 12.37 12.37 \
| 2.7: 52.37 52.37 3.3: 52.37 52.37 | 3.7: 62.37 62.37 4.3: 62.37 62.37
""",
    "truncation": """
0: 0.1 0.12 1: 0.2 0.22 4: 0.5 0.52
""",
    "pruning": """
0: 0.9 0.94 0.45: 0.8 0.84 0.81: 0.72 0.76 | 0: 0.9 0.94 0.45: 0.7 0.74 0.81: 0.54 0.58 \
| 0: 0.9 0.94 0.45: 0.6 0.64 0.81: 0.36 0.4
""",
}
