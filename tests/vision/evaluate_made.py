"""Tables of cuts that the stages before write, and measures of trainings by plain loops."""

import itertools
import math
from collections import defaultdict
from statistics import mean

import numpy as np
import torch

PARAMS = {"reference_scale": 0.5, "rtol": 0.3}
SEEDS, STEPS, LAST = [5, 2, 7], [0, 1, 3, 4, 6, 7, 9], 9
PERMUTED, SGD, SCALED = (
    "labels=permuted",
    "optimizer=sgd,learning_rate=0.3",
    "scaled=all-but-patch-embedding",
)
NAMES = {"none": "", PERMUTED: "permuted", SGD: "sgd", SCALED: "all-but-patch-embedding"}
CELLS = [
    *((scale, "none") for scale in (0.25, 0.5, 2.0, 4.0)),
    *((0.5, control) for control in (PERMUTED, SGD)),
    (2.0, PERMUTED),
    (0.25, SCALED),
]
TRUNCATE = f"""
kind rank test_accuracy init_scale control    seed
all  4    .91           .5         none       5
all  0    .3            .5         none       5
all  2    .93           .5         none       5  # the first within a point of the largest rank
all  1    .895          .5         none       5
all  0    .2            .5         none       2
all  1    {0.8 - 0.01!r} .5        none       2  # a point below, to the bit
all  2    .83           .5         none       2
all  4    .8            .5         none       2
all  0    .6            .5         none       7
all  1    .65           .5         none       7
all  2    .7            .5         none       7
all  4    .75           .5         none       7
W_K  0    .97           .5         none       5
W_K  4    .99           .5         none       5
all  0    .85           .5         {PERMUTED} 5
all  4    .05           .5         {PERMUTED} 2
"""
# The accuracy by rate. Seed 5 is harmless up to .25, though .75 is within a point, too; 7 at once.
PRUNE = f"""
what    order    init_scale control    seed 0.5   0.0  0.75  0.25
weights smallest .5         none       5    .885  .9   .895  .95
weights smallest .5         none       2    .81   .8   .5    {0.8 - 0.01!r}
weights smallest .5         none       7    .65   .7   .7    .6
weights random   .5         none       7    .3    .7   .25   .35
weights largest  .5         none       7    .1    .7   .05   .15
weights random   .5         none       5    .4    .9   .2    .7
weights random   .5         none       2    .2    .8   .1    .3
weights largest  .5         none       5    .1    .9   .15   .3
weights largest  .5         none       2    .4    .8   .1    .5
neurons smallest .5         none       5    .6    .7   .4    .5
weights largest  .5         {PERMUTED} 2    .995  .985 .975  .965
"""
CUT_MEASURES = {  # at 0.5, worked out by hand
    "rank_within_one_point": {5: 2, 2: 1, 7: 4},
    "pruning_within_one_point": {5: 0.25, 2: 0.5, 7: 0},
    "smallest_first_over_others": {5: (3.63 - 2.2) / 4, 2: (2.9 - 1.8) / 4, 7: (2.65 - 1.6) / 4},
}
CURVES = ["train_loss", "test_loss", "test_accuracy"]


def named(measure, control, matrix=""):
    """MEASURE.CASE: a case is the product and what differs from the plain training, if any."""
    case = " ".join(part for part in (matrix, NAMES[control]) if part)
    return f"{measure}.{case}" if case else measure


def variant(scale, control):
    return f"init_scale={scale:g}" + ("" if control == "none" else f",{control}")


def summarised(row):
    """A row of the spectra with the numbers that summarise its singular values in their place."""
    row = dict(row)
    sigma = row.pop("singular_values").tolist()
    squares, shares = [s * s for s in sigma], [s / sum(sigma) for s in sigma]
    energies = list(itertools.accumulate(squares))
    return row | {
        "norm": math.sqrt(sum(squares)),
        "stable_rank": sum(squares) / max(squares),
        "effective_rank": math.exp(-sum(p * math.log(p) for p in shares)),
        "numerical_rank": sum(s > PARAMS["rtol"] * max(sigma) for s in sigma),
        **{
            f"rank_{n}": 1 + sum(100 * e < n * sum(squares) for e in energies) for n in (90, 95, 99)
        },
    }


def by_loops(training, ranks):
    """Every measure of accuracies and ranks, by name, scale and seed."""
    measured = defaultdict(lambda: defaultdict(dict))
    losses, by_head = defaultdict(dict), defaultdict(list)

    def put(name, cell, value):
        scale, _, seed = cell
        measured[name][scale][seed] = value

    def rank(matrix, cell, step=LAST, of="update"):
        return mean(by_head[matrix, cell, step, of])

    def at_loss(level, matrix, cell):
        before = None
        for step, loss in losses[cell].items():
            if loss <= level:
                value = rank(matrix, cell, step)
                if before is None:
                    return value
                then, fell = rank(matrix, cell, before), losses[cell][before]
                return then + (fell - level) / (fell - loss) * (value - then)
            before = step
        raise AssertionError

    for row in training:
        cell = row["init_scale"], row["control"], row["seed"]
        if row["step"]:
            losses[cell][row["step"]] = row["train_loss"]
        if row["step"] == LAST:
            for value in ("train_loss", "test_accuracy"):
                put(named(value, row["control"]), cell, row[value])
    for row in ranks:
        cell = row["init_scale"], row["control"], row["seed"]
        by_head[row["matrix"], cell, row["step"], row["of"]].append(row["stable_rank"])
    for matrix, cell in itertools.product(("W_KQ", "W_VO"), list(losses)):
        scale, control, seed = cell
        last = rank(matrix, cell)
        put(named("stable_rank", control, matrix), cell, last)
        early, late = (
            mean(rank(matrix, cell, step) for step in steps) for steps in ((1, 3), (7, 9))
        )
        put(named("growth_through_training", control, matrix), cell, late / early)
        if control == "none":
            put(f"initial_stable_rank.{matrix}", cell, rank(matrix, cell, 0, "initial"))
            put(f"first_step_over_learned.{matrix}", cell, rank(matrix, cell, 1) / last)
        if control == PERMUTED:
            true = scale, "none", seed
            level = max(min(losses[of].values()) for of in (true, cell))
            ratio = at_loss(level, matrix, cell) / at_loss(level, matrix, true)
            put(f"permuted_over_learned_at_equal_loss.{matrix}", cell, ratio)
    plain = sorted({scale for scale, control, _ in losses if control == "none"})
    for matrix, seed, both in itertools.product(("W_KQ", "W_VO"), SEEDS, itertools.pairwise(plain)):
        true, permuted = ([(scale, of, seed) for scale in both] for of in ("none", PERMUTED))
        level = max(min(losses[scale, "none", seed].values()) for scale in plain)
        growth = "growth_with_init_scale"
        found = {
            f"{growth}.{matrix}": [rank(matrix, cell) for cell in true],
            f"{growth}_at_first_step.{matrix}": [rank(matrix, cell, 1) for cell in true],
            f"{growth}_at_equal_loss.{matrix}": [at_loss(level, matrix, cell) for cell in true],
        }
        if losses.keys() >= set(permuted):
            found[f"{growth}.{matrix} permuted"] = [rank(matrix, cell) for cell in permuted]
        for name, (before, after) in found.items():
            put(name, true[1], after / before)
    return measured


def of_directions(spectra):
    """Order and separation of directions by name, scale and seed: every pair of them by hand."""
    measured = defaultdict(lambda: defaultdict(dict))
    by_head = defaultdict(dict)
    for row in spectra:
        keys = ("matrix", "init_scale", "control", "seed", "layer", "head")
        if row["of"] == "update" and row["matrix"] != "W_K":
            by_head[tuple(row[key] for key in keys)][row["step"]] = row["singular_values"]
    found = defaultdict(list)
    for (matrix, scale, control, seed, *_), course in by_head.items():
        if control in ("none", PERMUTED):
            sizes = [size for size in course[LAST] if size > 0.05 * max(course[LAST])]
            times = [
                [
                    crossed([course[step][i] for step in STEPS[1:]], share * size)
                    for share in (0.1, 0.9)
                ]
                for i, size in enumerate(sizes)
            ]
            if len(sizes) > 1:
                found[matrix, scale, control, seed].append(of_pairs(sizes, times))
    for (matrix, scale, control, seed), heads in found.items():
        for name, values in zip(("order", "separate"), zip(*heads, strict=True), strict=True):
            measured[named(name, control, matrix)][scale][seed] = mean(values)
    return measured


def crossed(values, level):
    """The step at which a course of positive values first reaches a level, by their logarithms."""
    i = next(i for i, value in enumerate(values) if value >= level)
    if i == 0:
        return STEPS[1]
    below, above = (math.log(values[j] / level) for j in (i - 1, i))
    before, after = STEPS[i], STEPS[i + 1]
    return before + (after - before) * -below / (above - below)


def of_pairs(sizes, times):
    """Kendall's tau-b of size and earliness, 0 where all is tied, and the share of separate
    directions.
    """
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    larger = [np.sign(sizes[i] - sizes[j]) for i, j in pairs]
    earlier = [np.sign(times[j][1] - times[i][1]) for i, j in pairs]
    untied = sum(x * x for x in larger) * sum(x * x for x in earlier)
    agree = sum(x * y for x, y in zip(larger, earlier, strict=True)) / math.sqrt(untied or 1)
    in_time = sorted(times, key=lambda one: one[1])
    apart = [later[0] >= before[1] for before, later in itertools.pairwise(in_time)]
    return agree, mean(apart)


def of_whole(weights, ranks, scales):
    """Stable ranks of whole updates, by their definition, and what they are at most."""
    measured = defaultdict(lambda: defaultdict(dict))
    for scale, (i, seed) in itertools.product(scales, enumerate(SEEDS)):
        initial, final = weights[scale][0], weights[scale][-1]
        found = []
        for name, layer in itertools.product(("W_K", "W_1"), (0, 1)):
            update = final[name][i, layer].double() - initial[name][i, layer].double()
            if name != "W_1":  # all heads side by side
                update = torch.cat(list(update), dim=1)
            found.append(float((update**2).sum() / torch.linalg.matrix_norm(update, 2) ** 2))
        measured["whole_stable_rank"][scale][seed] = mean(found)
        measured["whole_stable_rank_most"][scale][seed] = max(found)
        of_layer = defaultdict(list)
        for row in ranks:
            here = row["of"] == "update" and row["step"] == LAST and row["matrix"] == "W_K"
            if here and (row["init_scale"], row["control"], row["seed"]) == (scale, "none", seed):
                of_layer[row["layer"]].append((row["norm"] ** 2, row["stable_rank"]))
        bounds = [
            sum(square for square, _ in heads) / max(square / rank for square, rank in heads)
            for heads in of_layer.values()
        ]
        measured["whole_stable_rank_bound"][scale][seed] = mean(bounds)
    return measured
