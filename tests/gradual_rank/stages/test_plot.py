"""The figures of gradual rank: every line, point, band and stage that they draw, against made
tables.
"""

import itertools
import math
import statistics

import numpy as np
import pandas as pd
import pytest

from lib.gradual_rank.figures.staircase import moving
from tests.gradual_rank.gradual_rank_decay import check_decay, made_decay
from tests.gradual_rank.gradual_rank_optimizers import FIGURES as OPTIMIZERS
from tests.gradual_rank.gradual_rank_optimizers import check_optimizers, made_optimizers
from tests.gradual_rank.gradual_rank_paper_size import (
    check_batches,
    check_size,
    made_paper_size,
)
from tests.stages.made import files

SEEDS = {"small": [7, 5, 2], "paper": [5, 4]}
SHOWN = {"small": 5, "paper": 4}  # neither the first nor the least of the seeds that have stages
HALF = {"small": 2, "paper": 3}
TINY, RETURNED, NEAR = -8, 0.03, 0.07
SCALES = {"small": [-8.0, -1.0], "paper": [-4.0]}
# When which coordinate joins, of the seed that is shown; the others are some 10 times later.
JOINS = {
    "small": [(0, -1, 0), (4, 3, 1), (5, 0, -1), (9, 1, 1), (9.5, 2, -1)],
    "paper": [(0, -1, 0), (20, 4, 1), (23, 1, -1), (24, 3, 1)],
}
NAMES = {
    "figure-2",
    "figure-6",
    "figure-7",
    "figure-8",
    "figure-9",
    "figure-10",
    "errors",
    "assumptions",
    "forecast",
    "descent",
    "full-weights",
    "supports",
    "charges",
    "decay",
    "example-3-2",
    "example-4-6",
    "figure-2-size",
    "batches",
    *OPTIMIZERS,
}
LABELS = {
    "paper": "paper: d = 3",
    "small": "small: d = 2",
    "free": "free: d = 2, 2 layers of 1 head",
    "tied": "tied: d = 2, 1 layer of 2 heads",
    "basis": "basis: d = 2, 3 layers of 1 head",
}
PROBLEMS = ["paper", "small", "free", "tied"]
EVERY = [*PROBLEMS, "basis"]  # whose heads are diagonal in the standard basis: in few figures


def made_tables():
    draw = np.random.default_rng(3)
    made = {}
    for problem, seeds in SEEDS.items():
        size = 2 * HALF[problem]
        stages, errors = [], []
        for seed in seeds:
            late = 1 if seed == SHOWN[problem] else 10 + seed
            for k, (time, coordinate, sign) in enumerate(JOINS[problem]):
                last = k + 1 == len(JOINS[problem])
                following = math.inf if last else late * JOINS[problem][k + 1][0]
                row = {
                    "seed": seed,
                    "stage": k,
                    "time": late * time,
                    "next_time": following,
                    "coordinate": coordinate,
                }
                row |= {
                    "gap": math.inf if last else following * draw.uniform(),
                    "sign": sign,
                    "dropped": [],
                }
                row |= {
                    "loss": draw.uniform(),
                    "learning_rate_limit": draw.uniform(1, 3) if k > 1 else math.inf,
                }
                row |= {"strictness_products": draw.uniform(), "strictness_weights": draw.uniform()}
                row |= {
                    "n_active": k,
                    "n_dropped": int((seed, k) == (2, 3)),
                }
                row["dropped"] = np.array([1] if row["n_dropped"] else [], np.int64)
                stages.append(
                    {**row, "p": draw.normal(0, 1, size), "charge": draw.uniform(-1, 1, size)}
                )
            for scale in (-1.0, -4.0, -8.0, -16.0):
                row = {"seed": seed, "log10_init_scale": scale, "log_scale": -scale * math.log(10)}
                row |= {
                    name: draw.uniform(0.001, 0.4)
                    for name in ("time_error_median", "order_agreement")
                }
                row |= {
                    "plateau_loss_error": {-1.0: 0.3, -4.0: 0.015, -8.0: 2e-3, -16.0: 1e-5}[scale]
                    * (2 + seed)
                    / 8
                }
                row |= {
                    name: draw.uniform(0.001, 0.4)
                    for name in ("final_product_error", "finite_error_median")
                }
                names = ("plateau_product_error", "finite_error_max", "same", "constant", "ratio")
                row |= {name: draw.uniform(0.001, 0.4) for name in names}
                row |= (
                    {"finite_error_median": math.nan}
                    if scale == -16 or (seed, scale) == (2, -8)
                    else {}
                )
                errors.append(row)
        trajectories = [
            {
                "seed": SHOWN[problem],
                "log10_init_scale": scale,
                "rescaled_time": time,
                "loss": draw.uniform(),
                "p": draw.normal(0, 1, size),
            }
            for scale, time in itertools.product(SCALES[problem], (0.0, 6.5 - scale, 11.0 - scale))
        ]
        made[f"{problem}_stages"] = shuffled(stages, draw)
        made[f"{problem}_errors"], made[f"{problem}_trajectories"] = (
            shuffled(errors, draw),
            trajectories,
        )
    made |= heads(draw)
    for table in ("stages", "errors", "trajectories"):
        names = [name for name in EVERY if f"{name}_{table}" in made]
        made[table] = [
            {**row, "problem": name} for name in names for row in made[f"{name}_{table}"]
        ]
    made["problems"] = [
        {
            "name": name,
            "d_model": d,
            "n_layers": layers,
            "n_heads": n,
            "drawn": name in SHOWN,
            "studied": name == "small",
            "frames": frames,
        }
        for name, d, layers, n, frames in zip(
            EVERY,
            (3, 2, 2, 2, 2),
            (math.nan, math.nan, 2, 1, 3),
            (math.nan, math.nan, 1, 2, 1),
            (None, None, "own", "common", "standard"),
            strict=True,
        )
    ]
    made["charges"] = [
        {
            "problem": "small",
            "seed": 5,
            "log10_init_scale": scale,
            "rescaled_time": time,
            "charge": draw.uniform(-1, 1, 4),
        }
        for scale, time in itertools.product((-1.0, -8.0), (0.0, 3.0, 9.0))
    ]
    made["departed"] = [
        {"problem": problem, "seed": 2, "stage": 3, "coordinate": i, "pull": draw.uniform(0.1, 2)}
        for i, problem in enumerate(("small", "small", "free"))
    ]
    made["rises"] = [
        {
            "seed": seed,
            "log10_init_scale": scale,
            "time": draw.uniform(5, 9),
            **{name: draw.uniform(4, 10) for name in ("limit", "finite", "stepped")},
        }
        for seed, scale in itertools.product((5, 7), (-4.0, -16.0))
    ]
    made["full_ratios"] = [
        {"seed": seed, **{name: draw.uniform(1, 3) for name in RATIOS}} for seed in (5, 7, 9)
    ]
    made["path_ends"] = [
        {"kind": kind, "noise": noise, "seed": seed, "distance": draw.uniform(1e-4, 1)}
        for kind, noise, seed in itertools.product(
            ("rise", "random"), ("balanced", "independent"), (5, 7, 9)
        )
    ]
    made["ranks"] = [
        {
            "seed": seed,
            "log10_init_scale": scale,
            "rescaled_time": time,
            **counts(draw, "measured", "finite", "limit"),
        }
        for seed, scale, time in itertools.product(
            (7, 5), (-32.0, -1.0, -2.0, -4.0, -8.0), (0.0, 3.0, 7.0)
        )
    ]
    made["forecast"] = [
        {
            "seed": seed,
            "log10_init_scale": scale,
            "time": time,
            **counts(draw, "forecast", "measured"),
        }
        for seed, scale, time in itertools.product((7, 5), (-4.0, -2.0), (0.0, 30.0, 70.0))
    ]
    made["full_weights"] = shuffled(
        [
            {
                "seed": 5,
                "log10_init_scale": scale,
                "matrix": matrix,
                "step": step,
                "rescaled_time": step / -scale,
                "singular_values": draw.uniform(0, 1, 3),
            }
            for scale, matrix, step in itertools.product((-16.0,), ("W_KQ", "W_VO"), (10, 2, 100))
        ],
        draw,
    )
    made["returns"] = [
        {
            "seed": seed,
            "kind": kind,
            "noise": noise,
            "ratio_products": draw.uniform(),
            "ratio_weights": draw.uniform(),
        }
        for seed, kind, noise in itertools.product(
            (7, 5), ("rise", "random"), ("balanced", "independent")
        )
    ]
    made["kicks"] = [
        {"seed": 5, "stage": stage, "noise": noise, "error": draw.uniform() if stage else 1e-12}
        for stage, noise in itertools.product(range(3), ("independent", "none", "balanced"))
    ]
    made["paths"] = [
        {
            "point": point,
            "kind": kind,
            "time": time,
            "after": after,
            **moved(draw, 2 + (kind == "rise")),
            "coordinates": np.arange(2 + (kind == "rise")) + point,
        }
        for (point, kind, time), after in itertools.product(
            ((1, "random", 317.0), (0, "random", 120.0), (2, "rise", 41.0)), (0.0, 50.0, 25.0)
        )
    ]
    made["descents"] = [
        {
            "form": form,
            "share_of_limit": share,
            "log10_init_scale": -32.0,
            "seed": seed,
            "learning_rate": draw.uniform(),
            "time_error": draw.uniform(),
            "drift": math.inf if seed == 7 and form == "plain" else draw.uniform(1, 90),
        }
        for (form, share), seed in itertools.product(
            (("plain", 0.25), ("plain", 0.8), ("factors", 0.5)), (7, 5)
        )
    ]
    columns = ["method", "log10_init_scale", "coordinate", "sign", "rescaled_time", "lost"]
    made["drop"] = [
        dict(zip(columns, row, strict=True))
        for row in [
            ("Algorithm 1", -math.inf, 2, 1, 1.25, False),
            ("Algorithm 1", -math.inf, 2, -1, 67.0, False),
            ("flow", -32.0, 0, 1, 1.5, False),
            ("flow", -300.0, 1, 1, 2.75, False),
            ("plain", -32.0, 2, 0, 31.0, True),
            ("flow", -32.0, 2, -1, 66.0, False),
        ]
    ]
    return made


RATIOS = (
    "first_KQ_over_first_VO",
    "second_over_first_VO",
    "first_stable_rank_VO",
    "final_stable_rank_VO",
    "final_stable_rank_KQ",
)


def heads(draw):
    """Of three transformers, one of whose heads are tied: stages and trajectories of a seed each,
    shares, and errors of the last.
    """
    made = {}
    for problem in ("free", "tied", "basis"):
        made[f"{problem}_stages"] = [
            {
                **row,
                "seed": 1,
                "p": draw.normal(0, 1, 8) if row["stage"] else np.zeros(8),
                "charge": np.zeros(8),
            }
            for row in (
                {
                    "stage": k,
                    "time": 3.0 * k,
                    "next_time": 3.0 * k + 3,
                    "coordinate": k,
                    "gap": 0.5 * k,
                    "sign": 1,
                    "dropped": np.array([], np.int64),
                    "n_dropped": 0,
                    "n_active": k,
                    "loss": 1 / (k + 1),
                    "learning_rate_limit": 1.0,
                    "strictness_products": 0.3,
                    "strictness_weights": 0.2,
                }
                for k in range(3)
            )
        ]
        made[f"{problem}_trajectories"] = [
            {
                "seed": 1,
                "log10_init_scale": scale,
                "rescaled_time": time,
                "loss": draw.uniform(),
                "p": draw.normal(0, 1, 8),
            }
            for scale, time in itertools.product((-4.0, -16.0), (0.0, 5.0, 12.0))
        ]
        made[f"{problem}_errors"] = []
    numbers = ("plateau_loss_error", "same", "time_error_median", "order_agreement")
    made["basis_errors"] = [
        {"seed": seed, "log10_init_scale": scale, "log_scale": -scale * math.log(10)}
        | {name: draw.uniform() for name in numbers}
        for seed, scale in itertools.product((1, 4), (-4.0, -16.0))
    ]
    made["twins"] = [
        {
            "problem": "tied",
            "seed": seed,
            "log10_init_scale": scale,
            "head": head,
            "share": draw.uniform(),
            "predicted": draw.uniform(),
        }
        for seed, scale, head in itertools.product((1, 4), (-4.0, -16.0), (0, 1))
    ]
    return made


def shuffled(rows, draw):
    return [rows[i] for i in draw.permutation(len(rows))]


def counts(draw, *names):
    return {name: float(draw.integers(0, 20)) for name in names}


def moved(draw, size):
    return {"p": draw.normal(0, 1, size), "p_undisturbed": draw.normal(0, 1, size)}


# What stands in the tables.


def where(rows, **of):
    return [row for row in rows if all(row[name] == value for name, value in of.items())]


def column(rows, name):
    return [row[name] for row in rows]


def shown_stages(made, problem):
    return sorted(
        where(made[f"{problem}_stages"], seed=SHOWN[problem]), key=lambda row: row["stage"]
    )


def steps(stages, end, values):
    """A staircase: each value from its stage's time to the next one's."""
    times = [*column(stages, "time"), max(end, stages[-1]["time"])]
    return [t for pair in itertools.pairwise(times) for t in pair], [
        v for value in values for v in (value, value)
    ]


def entries(made, problem, scale, matrix):
    """The lines of one product's entries, and Algorithm 1's of those that join."""
    rows = where(made[f"{problem}_trajectories"], log10_init_scale=scale)
    stages, times = shown_stages(made, problem), column(rows, "rescaled_time")
    first = 0 if matrix == "W_KQ" else HALF[problem]
    for i in range(first, first + HALF[problem]):
        yield "", "-", times, [row["p"][i] for row in rows]
        if i in column(stages, "coordinate"):
            yield "", "--", *steps(stages, times[-1], [row["p"][i] for row in stages])


def medians(rows, name, label):
    """One line per seed, and their median, against the exponent of the scale; where there is
    nothing, none.
    """
    scales = sorted(
        {row["log10_init_scale"] for row in rows if not math.isnan(row[name])}, reverse=True
    )
    x, middle = [-s for s in scales], []
    for scale in scales:
        known = [
            row[name] for row in where(rows, log10_init_scale=scale) if not math.isnan(row[name])
        ]
        middle.append(statistics.median(known))
    yield label, "-", x, middle
    for seed in sorted({row["seed"] for row in rows}):
        yield (
            "",
            "-",
            x,
            [where(rows, seed=seed, log10_init_scale=scale)[0][name] for scale in scales],
        )


def shares(values, label, style="-"):
    return label, style, sorted(values), [(k + 1) / len(values) for k in range(len(values))]


# What stands in the figures.


def lines(axes):
    for line in axes.lines:
        if len(line.get_xdata()):
            label, style = line.get_label(), line.get_linestyle()
            yield (
                "" if label.startswith("_") else label,
                line.get_marker() if style == "None" else style,
                *line.get_data(),
            )


def assert_drawn(axes, wanted):
    """Exactly these lines, as (label, style or marker, x, y), in any order."""
    left = list(lines(axes))
    for one in wanted:
        same = [k for k, other in enumerate(left) if other[:2] == one[:2] and same_data(one, other)]
        assert same, (axes.get_title(), one, left)
        del left[same[0]]
    assert not left, axes.get_title()


def same_data(one, other):
    return all(
        len(a) == len(b)
        and np.allclose(
            np.asarray(a, float), np.asarray(b, float), rtol=1e-9, atol=0, equal_nan=True
        )
        for a, b in zip(one[2:], other[2:], strict=True)
    )


def titles(figure):
    return [axes.get_title() for axes in figure.axes]


@pytest.fixture
def figures(stage, drawn, tmp_path, monkeypatch):
    """The made tables and the figures, by their files' names."""
    made = made_tables()
    (tmp_path / "metrics").mkdir()
    for name, rows in made.items():
        if not name.startswith(tuple(f"{problem}_" for problem in EVERY)):
            pd.DataFrame(rows).to_parquet(tmp_path / "metrics" / f"{name}.parquet")
    bars = {"log10_init_scale": TINY, "returned": RETURNED, "near": NEAR}
    sections = {"a.bars": bars, "a.full.d_model": 3}
    made["compared"] = made_optimizers()
    (tmp_path / "optimizers").mkdir()
    for name, rows in made["compared"].items():
        pd.DataFrame(rows).to_parquet(tmp_path / "optimizers" / f"{name}.parquet")
    made["decayed"] = made_decay()
    (tmp_path / "decay").mkdir()
    for name, rows in made["decayed"].items():
        pd.DataFrame(rows).to_parquet(tmp_path / "decay" / f"{name}.parquet")
    made["paper_size"] = made_paper_size()
    (tmp_path / "size").mkdir()
    for name, rows in made["paper_size"].items():
        pd.DataFrame(rows).to_parquet(tmp_path / "size" / f"{name}.parquet")
    monkeypatch.setattr("stages.gradual_rank.plot.WHOLE", "small")
    folders = [tmp_path / name for name in ("metrics", "optimizers", "decay", "size", "figures")]
    stage("gradual_rank.plot", sections, *sections, *folders)
    assert files(tmp_path / "figures") == sorted(f"{name}.svg" for name in NAMES)
    return made, {
        name: drawn[(tmp_path / "figures" / f"{name}.svg").read_bytes()] for name in NAMES
    }


def test_every_figure_shows_what_stands_in_the_tables(figures):
    """One test, as one run draws them all."""
    made, drawn = figures
    check_figure_2(made, drawn["figure-2"])
    check_optimizers(made["compared"], drawn)
    check_decay(made["decayed"], drawn["decay"])
    check_scales(made, drawn)
    check_paths(made, drawn)
    check_errors(made, drawn["errors"])
    check_supports(made, drawn["supports"])
    check_charges(made, drawn["charges"])
    check_full(made, drawn["full-weights"])
    check_heads(made, drawn["example-3-2"])
    check_one_head(made, drawn["example-4-6"])
    check_size(made["paper_size"], drawn["figure-2-size"])
    check_batches(made["paper_size"], made["small_trajectories"], drawn["batches"])
    check_assumptions(made, drawn["assumptions"])
    check_ranks(made, drawn["forecast"])
    check_descents(made, drawn["descent"])


def check_figure_2(made, figure):
    """The smallest scale of the shown seed, and of the full matrices."""
    for k, matrix in enumerate(("W_KQ", "W_VO")):
        assert_drawn(figure.axes[k], entries(made, "small", -8.0, matrix))
        rows = where(made["full_weights"], matrix=matrix, log10_init_scale=-16.0)
        rows = sorted(rows, key=lambda row: row["step"])
        times = column(rows, "rescaled_time")
        wanted = [("", "-", times, [row["singular_values"][i] for row in rows]) for i in range(3)]
        for row in where(made["rises"], seed=5, log10_init_scale=-16.0) if k else ():
            wanted.append(("", ":", [row["finite"] / (16 * math.log(10))] * 2, [0, 1]))
        assert_drawn(figure.axes[2 + k], wanted)
    scales = ["diagonal weights, d = 2, init scale $10^{-8}$"] * 2 + [
        "full weights, d = 3, init scale $10^{-16}$"
    ] * 2
    assert titles(figure) == scales


def check_scales(made, drawn):
    """Figures 6, 7 and 8: a row a problem, the larger first, a panel a scale, the larger first;
    their errors above.
    """
    for name, matrix in (("figure-6", ""), ("figure-7", "W_KQ"), ("figure-8", "W_VO")):
        figure = drawn[name]
        above = ["$10^{-4}$: loss\noff by 0.01", "", "$10^{-1}$: loss\noff by 0.3"]
        assert titles(figure) == [*above, "$10^{-8}$: loss\noff by 0.002"]
        assert not figure.axes[1].axison
        for k, problem, scale in ((0, "paper", -4.0), (2, "small", -1.0), (3, "small", -8.0)):
            axes = figure.axes[k]
            if matrix:
                assert_drawn(axes, entries(made, problem, scale, matrix))
            else:
                rows, stages = (
                    where(made[f"{problem}_trajectories"], log10_init_scale=scale),
                    shown_stages(made, problem),
                )
                end = rows[-1]["rescaled_time"]
                wanted = [
                    ("gradient flow", "-", column(rows, "rescaled_time"), column(rows, "loss"))
                ]
                assert_drawn(
                    axes,
                    [*wanted, ("Algorithm 1", "--", *steps(stages, end, column(stages, "loss")))],
                )
            # The paper's first stage is late: its window begins a tenth before it.
            assert axes.get_xlim() == pytest.approx(
                (0.9 * 20, 1.35 * 24) if problem == "paper" else (0, 1.12 * 9.5)
            )
        assert [figure.axes[k].get_ylabel().split("\n")[0] for k in (0, 2)] == [
            "paper: d = 3",
            "small: d = 2",
        ]


def check_paths(made, drawn):
    """Figure 9: the largest distance of a product of each matrix, those from 2 on of W_VO; figure
    10: the disturbed solid, the undisturbed dashed.
    """
    for axes, own in zip(drawn["figure-9"].axes, ((0, 1), (2, 3)), strict=True):
        wanted = []
        for point, time in ((0, "120"), (1, "317")):
            rows = sorted(where(made["paths"], point=point), key=lambda row: row["after"])
            far = [
                [
                    abs(p - q)
                    for i, p, q in zip(
                        row["coordinates"], row["p"], row["p_undisturbed"], strict=True
                    )
                    if i in own
                ]
                for row in rows
            ]
            if far[0]:
                wanted.append((time, "-", column(rows, "after"), [max(one) for one in far]))
        assert_drawn(axes, wanted)
    assert titles(drawn["figure-10"]) == ["disturbed at time 41"]
    rows = sorted(where(made["paths"], point=2), key=lambda row: row["after"])
    wanted = [
        ("", style, column(rows, "after"), [row[which][i] for row in rows])
        for which, style in (("p", "-"), ("p_undisturbed", "--"))
        for i in range(len(rows[0]["p"]))
    ]
    assert_drawn(drawn["figure-10"].axes[0], wanted)


def by_problem(made, name, style="-"):
    """The medians of every problem that has the column, and a line for each of its seeds where
    there are several.
    """
    for problem in PROBLEMS:
        rows = made[f"{problem}_errors"]
        if rows:
            yield from (
                (label, style, *data) for label, _, *data in medians(rows, name, LABELS[problem])
            )


def check_errors(made, figure):
    """One line per seed and their median, of every problem; the law is that of the studied one's
    tiny scales.
    """
    tiny = [row for row in made["small_errors"] if row["log10_init_scale"] <= TINY]
    C = statistics.median(row["time_error_median"] * row["log_scale"] for row in tiny)
    logs = np.geomspace(2.3, 16 * math.log(10), 50)
    law = f"C / log(1 / init scale), C = {C:.2f} (small)", "--", logs / math.log(10), C / logs
    times, finite, order, losses, products, final = figure.axes
    assert_drawn(times, [law, *by_problem(made, "time_error_median")])
    assert_drawn(
        finite,
        [*by_problem(made, "finite_error_median"), *by_problem(made, "finite_error_max", ":")],
    )
    assert_drawn(order, [("", "--", [0, 1], [1, 1]), *by_problem(made, "order_agreement")])
    for axes, name in (
        (losses, "plateau_loss_error"),
        (products, "plateau_product_error"),
        (final, "final_product_error"),
    ):
        assert_drawn(axes, by_problem(made, name))


def check_supports(made, figure):
    """Shares of supports by scale; active coordinates by stage, a cross where some leave; the pulls
    by problem.
    """
    share, size, pull = figure.axes
    assert_drawn(share, by_problem(made, "same"))
    wanted, left = [], []
    for problem in PROBLEMS:
        for seed in sorted({row["seed"] for row in made[f"{problem}_stages"]}):
            rows = sorted(where(made[f"{problem}_stages"], seed=seed), key=lambda row: row["stage"])
            wanted.append(("", "-", column(rows, "stage"), column(rows, "n_active")))
            left += [(row["stage"], row["n_active"]) for row in rows if row["n_dropped"]]
    assert_drawn(size, wanted)
    assert [tuple(place) for crosses in size.collections for place in crosses.get_offsets()] == left
    pulls = {
        problem: column(where(made["departed"], problem=problem), "pull") for problem in PROBLEMS
    }
    marks = dict(zip(PROBLEMS, "Dos^", strict=True))
    points = [
        ("", marks[name], [PROBLEMS.index(name)] * len(found), found)
        for name, found in pulls.items()
        if found
    ]
    assert_drawn(pull, [("", "--", [0, 1], [0, 0]), *points])


def check_charges(made, figure):
    """b = 1 - charge from the smallest scale, and Algorithm 1's; the constants and durations by
    scale.
    """
    course, constant, rise = figure.axes
    rows, stages = where(made["charges"], log10_init_scale=-8.0), shown_stages(made, "small")
    wanted = []
    for i in range(4):
        wanted.append(
            ("", "-", column(rows, "rescaled_time"), [1 - row["charge"][i] for row in rows])
        )
        wanted.append(("", "--", column(stages, "time"), [1 - row["charge"][i] for row in stages]))
    assert_drawn(course, wanted)
    green = [course.lines[2 * i].get_color()[1] for i in (3, 0, 1, 2)]  # as they join
    assert green == sorted(set(green))
    assert course.get_title() == "small: d = 2, init scale $10^{-8}$; dashed: Algorithm 1"
    assert_drawn(constant, by_problem(made, "constant"))
    assert_drawn(rise, by_problem(made, "ratio"))


def check_full(made, figure):
    """One point per seed and scale of every forecast's error, per seed of the ratios and stable
    ranks.
    """
    error, order, rank = figure.axes
    points = [
        (
            name,
            "o",
            [-row["log10_init_scale"] * 1.04**n for row in made["rises"]],
            [abs(row[name] / row["time"] - 1) for row in made["rises"]],
        )
        for n, name in enumerate(("limit", "finite", "stepped"))
    ]
    assert_drawn(error, points)
    for axes, names, more in (
        (order, RATIOS[:2], [("", "--", [0, 1], [1, 1])]),
        (rank, RATIOS[2:], []),
    ):
        assert_drawn(
            axes,
            [
                *more,
                *(("", "o", [n] * 3, column(made["full_ratios"], x)) for n, x in enumerate(names)),
            ],
        )


def check_heads(made, figure):
    """The products of both transformers from the smallest scale, the loss of the free one, the
    shares of the tied.
    """
    free, loss, tied, shares = figure.axes
    for axes, problem in ((free, "free"), (tied, "tied")):
        rows, stages = (
            where(made[f"{problem}_trajectories"], log10_init_scale=-16.0),
            made[f"{problem}_stages"],
        )
        times = column(rows, "rescaled_time")
        wanted = [("", "-", times, [row["p"][i] for row in rows]) for i in range(8)]
        wanted += [("", "--", *steps(stages, 9, [row["p"][i] for row in stages])) for i in range(8)]
        assert_drawn(axes, wanted)
        assert axes.get_title().replace("\n", " ") == LABELS[problem]
    wanted = [
        ("Algorithm 1", "--", *steps(made["free_stages"], 9, column(made["free_stages"], "loss")))
    ]
    for scale in (-4.0, -16.0):
        rows = where(made["free_trajectories"], log10_init_scale=scale)
        wanted.append(
            (f"$10^{{{scale:g}}}$", "-", column(rows, "rescaled_time"), column(rows, "loss"))
        )
    assert_drawn(loss, wanted)
    wanted = []
    for head, seed in itertools.product((0, 1), (1, 4)):
        rows = where(made["twins"], head=head, seed=seed)[::-1]
        scales = [-row["log10_init_scale"] for row in rows]
        wanted += [(f"head {head}" if seed == 1 else "", "o", scales, column(rows, "share"))]
        wanted += [("", "--", scales, column(rows, "predicted"))]
    assert_drawn(shares, wanted)


def check_one_head(made, figure):
    """The products in the standard basis from the smallest scale; of both seeds, the shares of
    plateaus with the same support.
    """
    products, share = figure.axes
    rows = where(made["basis_trajectories"], log10_init_scale=-16.0)
    wanted = [
        ("", "-", column(rows, "rescaled_time"), [row["p"][i] for row in rows]) for i in range(8)
    ]
    theory = made["basis_stages"]
    wanted += [("", "--", *steps(theory, 9, [row["p"][i] for row in theory])) for i in range(8)]
    assert_drawn(products, wanted)
    label = "3 layers of 1 head"
    assert products.get_title() == f"d = 2,\n{label}"
    wanted = []
    for seed, said in ((1, label), (4, "")):
        own = where(made["basis_errors"], seed=seed)[::-1]
        wanted.append((said, "-", [16, 4], column(own, "same")))
    assert_drawn(share, wanted)


def check_assumptions(made, figure):
    """Distributions of every problem's stages; of the disturbances and kicks."""
    gaps, strict, _, back, risen, begun = figure.axes
    wanted = {axes: [] for axes in (gaps, strict)}
    for problem in EVERY:
        stages = made[f"{problem}_stages"]
        followed = [
            max(1e-6, row["gap"] / row["next_time"]) for row in stages if math.isfinite(row["gap"])
        ]
        wanted[gaps].append(shares(followed, f"{problem}, {len(followed)} stages"))
        later = [row for row in stages if row["stage"] > 0]
        wanted[strict].append(shares(column(later, "strictness_products"), ""))
        wanted[strict].append(shares(column(later, "strictness_weights"), "", ":"))
    for axes, lines in wanted.items():
        assert_drawn(axes, lines)
    wanted = {
        back: [("", "--", [RETURNED, RETURNED], [0, 1])],
        risen: [("", "--", [NEAR, NEAR], [0, 1])],
    }
    for noise in ("balanced", "independent"):
        rows = where(made["returns"], kind="random", noise=noise)
        wanted[back] += [
            shares(column(rows, "ratio_products"), f"products, {noise} noise"),
            shares(column(rows, "ratio_weights"), f"(u, v), {noise} noise", ":"),
        ]
        wanted[risen].append(
            shares(
                column(where(made["path_ends"], kind="rise", noise=noise), "distance"),
                f"{noise} noise",
            )
        )
    for axes, lines in wanted.items():
        assert_drawn(axes, lines)
    wanted = [("", "--", [NEAR, NEAR], [0, 1])]
    for noise, label in (
        ("none", "no noise"),
        ("balanced", "balanced noise"),
        ("independent", "independent noise"),
    ):
        wanted.append(
            shares(
                [max(1e-8, x) for x in column(where(made["kicks"], noise=noise), "error")], label
            )
        )
    assert_drawn(begun, wanted)


def check_ranks(made, figure):
    """Above the head's ranks at three scales below 1e-1, beneath the adapter's; at the right the
    errors of all.
    """
    assert len(figure.axes) == 8
    names = {"measured": ("measured", "-"), "finite": ("forecast, finite scale", "--")}
    names |= {
        "forecast": ("forecast, finite scale", "--"),
        "limit": ("Algorithm 1, the limit", ":"),
    }
    places = [(0, "ranks", -2.0), (1, "ranks", -8.0), (2, "ranks", -32.0), (4, "forecast", -2.0)]
    for k, table, scale in [*places, (5, "forecast", -4.0)]:
        rows = where(made[table], seed=5, log10_init_scale=scale)
        times = column(rows, "rescaled_time" if table == "ranks" else "time")
        assert_drawn(
            figure.axes[k],
            [(*look, times, column(rows, name)) for name, look in names.items() if name in rows[0]],
        )
        title = "head from 0" if table == "ranks" else "adapter (v = 0)"
        assert figure.axes[k].get_title() == f"{title},\ninit scale $10^{{{scale:g}}}$"
    assert not figure.axes[6].axison
    for k, table, sources in (
        (3, "ranks", (("limit", "limit"), ("finite scale", "finite"))),
        (7, "forecast", (("finite scale", "forecast"),)),
    ):
        wanted = []
        for (label, name), area in zip(sources, figure.axes[k].collections, strict=True):
            scales = sorted({row["log10_init_scale"] for row in made[table]}, reverse=True)
            errors = [
                [
                    statistics.fmean(abs(row[name] - row["measured"]) for row in rows)
                    for rows in (
                        where(made[table], seed=seed, log10_init_scale=scale) for seed in (7, 5)
                    )
                ]
                for scale in scales
            ]
            x, mean = [*range(len(scales))], np.mean(errors, 1)
            wanted.append((label, "-", x, mean))
            found = {(round(a, 9), round(b, 9)) for a, b in area.get_paths()[0].vertices}
            ends = zip(x, np.min(errors, 1), np.max(errors, 1), strict=True)
            assert found >= {(n, round(end, 9)) for n, *both in ends for end in both}
        assert_drawn(figure.axes[k], wanted)


def check_descents(made, figure):
    """The kinds of descent from below; the rate of that nearest its limit over each plateau's; the
    example.
    """
    error, drift, edge, example = figure.axes
    kinds = [("factors", 0.5), ("plain", 0.8), ("plain", 0.25)]
    assert_drawn(
        error,
        [
            (
                "",
                "o",
                column(where(made["descents"], form=form, share_of_limit=share), "time_error"),
                [y, y],
            )
            for y, (form, share) in enumerate(kinds)
        ],
    )
    wanted = []
    for y, (form, share) in enumerate(kinds):
        rows = column(where(made["descents"], form=form, share_of_limit=share), "drift")
        kept = [x for x in rows if x < math.inf]
        wanted.append(("", "o", kept, [y] * len(kept)))
    assert_drawn(drift, wanted)
    said = {text.get_position()[1]: text.get_text() for text in drift.texts}
    assert said == dict.fromkeys((1, 2), "lost in 1 of 2 seeds, as |u| = |v|")
    assert [label.get_text() for label in error.get_yticklabels()] == [
        f"{f}, {s:g} of the limit" for f, s in kinds
    ]
    assert error.get_title() == "descent from $10^{-32}$, one point per seed"
    wanted = [("unstable above", "--", [0, 1], [1, 1])]
    for seed in (5, 7):
        rows = [row for row in where(made["small_stages"], seed=seed) if row["stage"] > 0]
        (end,) = where(made["descents"], form="plain", share_of_limit=0.8, seed=seed)
        ratio = [end["learning_rate"] / row["learning_rate_limit"] for row in rows]
        wanted.append((f"seed {seed}", "-", column(rows, "stage"), ratio))
    assert_drawn(edge, wanted)
    assert edge.get_title() == "one rate, 0.8 of the least limit"
    rows = ["plain, $10^{-32}$", "flow, $10^{-300}$", "flow, $10^{-32}$", "Algorithm 1"]
    assert [label.get_text() for label in example.get_yticklabels()] == rows
    points = [
        ("o", 1.25, 3),
        ("o", 67, 3),
        ("s", 1.5, 2),
        ("^", 2.75, 1),
        ("x", 31, 0),
        ("o", 66, 2),
    ]
    assert_drawn(
        example,
        [("", "--", [67, 67], [0, 1]), *(("", marker, [x], [y]) for marker, x, y in points)],
    )
    colors = {line.get_label(): line.get_color() for line in example.lines}
    other = colors["coordinate 3 joins with the other sign"]
    drawn = {
        x[0]
        for line in example.lines
        for x in [line.get_xdata()]
        if len(x) and line.get_color() == other
    }
    assert drawn == {67.0, 66.0}


def test_scales_from_which_no_product_is_seen_to_move_are_left_out():
    """From 1e-1 W_KQ moves after the time that is drawn, 1.35 times the last stage's."""
    stages = pd.DataFrame({"time": [0.0, 1.0], "next_time": [1.0, math.inf]})
    rows = [
        (-1.0, 1.0, [0.01, 2.0]),
        (-1.0, 1.4, [1.0, 2.0]),
        (-8.0, 1.0, [0.1, 0.0]),
        (-8.0, 1.4, [1.0, 0.0]),
    ]
    trajectory = pd.DataFrame(rows, columns=["log10_init_scale", "rescaled_time", "p"])
    assert set(moving(trajectory, stages, "W_KQ")["log10_init_scale"]) == {-8.0}
    assert set(moving(trajectory, stages, "W_VO")["log10_init_scale"]) == {-1.0}
    still = trajectory.assign(p=[np.zeros(2)] * 4)
    assert len(moving(still, stages, "W_KQ")) == 4
