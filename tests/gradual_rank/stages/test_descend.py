"""Gradient descent in three arithmetics and the example that plain descent loses, step by step in
numpy.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.gradual_rank.gradual_rank_reference import (
    SOLVER,
    Bowl,
    Start,
    algorithm_1,
    compare,
    draw_toy,
    flow,
    head_of,
    staged_events,
)
from tests.gradual_rank.whole_tables import whole_of
from tests.stages.made import files, generator, table

# Seed, time and limit of the learning rate of every stage, in no order; the least limit and the
# latest time count.
STAGES = table("""
seed time learning_rate_limit
6    0.0  inf
7    11   .5
6    5    .7
7    0    inf
7    4    .9
6    9    1.1
8    90   40
""")
VARIANTS = [("exponential", 0.9), ("plain", 0.6), ("factors", 1.2), ("plain", 1.0)]
DROP = {
    "coupling": 0.65,
    "minimum": [1.3, 0.9, -0.6],
    "seed": 3,
    "learning_rate": 0.35,
    "log10_init_scale": -14,
    "flow_log10_init_scales": [-9, -14],
    "rescaled_end": 26,
}
CONSERVE = {
    "n_seeds": 2,
    "first_seed": 6,
    "log10_init_scale": -1,
    "end": 9,
    "rtols": [1e-3, 1e-9],
    "decay": 0.25,
}
PARAMS = {"n_seeds": 2, "first_seed": 6, "log10_init_scale": -1.5, "conserve": CONSERVE}
SHORT = {**DROP, "flow_log10_init_scales": [], "rescaled_end": 0.5}
ONE = {"n_seeds": 1, "variants": [("plain", 0.7)], "conserve": CONSERVE | {"n_seeds": 1}}
EPS = {np.float64: 2.0**-52, np.float32: 2.0**-23}
NARROW = {"rtol": 1e-9, "atol": 0}


def run(stage, tmp_path, of=((7, 8, 6), (39, 1, 44)), variants=VARIANTS, **params):
    """The three tables, and the task: seeds, and the numbers from which they are drawn."""
    lines = ["form\tshare_of_limit", *(f"{form}\t{share}" for form, share in variants)]
    (tmp_path / "variants").write_text("\n".join(lines))
    toy = draw_toy(tmp_path / "task", list(of[0]), (4, 3, 2), of[1])
    whole_of("predictions/stages", STAGES).to_parquet(tmp_path / "stages")
    stage(
        "gradual_rank.descend",
        {"a.b": {**PARAMS, **params}, "a.solver": SOLVER},
        "a.b",
        "a.solver",
        *(tmp_path / name for name in ("variants", "task", "stages", "d")),
    )
    names = ["conserved.parquet", "drop.parquet", "ends.parquet", "events.parquet"]
    assert files(tmp_path / "d") == names
    return [
        pd.read_parquet(tmp_path / f"d/{name}.parquet") for name in ("events", "ends", "drop")
    ], toy


def descent(g, u, v, rate, form):
    """Step after step: u and v, the products, and where y would be without rounding and for small
    steps.
    """
    y = (np.log(np.abs(u + v)) - np.log(np.abs(u - v))) / 2
    plus, minus = u + v, u - v
    while True:
        p = u * v if form == "plain" else (plus * plus - minus * minus) / 4
        yield (
            (u, v) if form == "plain" else ((plus + minus) / 2, (plus - minus) / 2),
            (plus, minus),
            p,
            y,
        )
        move = rate * g(p)
        y = y + move
        if form == "plain":
            u, v = u + move * v, v + move * u
            plus, minus = u + v, u - v
        elif form == "factors":
            plus, minus = plus * (1 + move), minus * (1 - move)
        else:
            plus, minus = plus * np.exp(move), minus * np.exp(-move)


def stuck(u, v, y, dtype):
    """What rounding holds where |u| = |v| although its y has come back to where u and v could
    differ.
    """
    reach = math.log(2 / EPS[dtype]) / 2 - 2
    return (np.abs(u) == np.abs(v)) & (np.sign(u) * np.sign(v) * y < reach)


def crossed(above, p):
    """What rises to the threshold or falls to half of it; `above` is then up to date."""
    now = np.abs(p) >= np.where(above, 0.01, 0.02)
    changed = np.flatnonzero(now != above)
    above[:] = now
    return changed.tolist()


def follow(toy, seed, form, share, scale):
    """The events of a descent as (step, coordinate, row), and how it ended."""
    i = toy["seeds"].tolist().index(seed)
    loss = head_of(toy, i)
    L = -scale * math.log(10)
    own = STAGES[STAGES["seed"] == seed]
    rate = share * own["learning_rate_limit"].min()
    n_steps = math.ceil(own["time"].max() * (L + SOLVER["margin"]) / rate)
    u, v = (math.exp(-L) * toy[name][i].numpy() for name in "uv")
    log_c = np.log(np.abs(u * u - v * v))
    cell = {"form": form, "share_of_limit": share, "log10_init_scale": scale, "seed": seed}
    above, events = np.zeros(4, bool), []
    for k, (_, ends, p, _) in enumerate(descent(loss.g, u, v, rate, form)):
        for j in crossed(above, p):
            event = {"time": k * rate, "coordinate": j, "sign": np.sign(p[j]), "rises": above[j]}
            events.append((k, j, {**cell, **event}))
        if k == n_steps:
            with np.errstate(divide="ignore"):  # where rounding has made |u| = |v|
                drift = np.abs(np.log(np.abs(ends)).sum(0) - log_c).max()
            break
    return events, {**cell, "learning_rate": rate, "drift": drift}


def follow_all(toy, variants, scale):
    """The two tables of all variants. All seeds take their first step, then all their second; so
    are the events.
    """
    events, ends = [], []
    for form, share in variants:
        both = [follow(toy, seed, form, share, scale) for seed in (6, 7)]
        order = sorted(
            (k, place, j, row) for place, (rows, _) in enumerate(both) for k, j, row in rows
        )
        events += [row for *_, row in order]
        ends += [end for _, end in both]
    return events, ends


@pytest.mark.parametrize(
    ("variants", "scale"),
    [(VARIANTS, -1.5), ([("plain", 1)], -12)],
)
def test_every_form_of_descent_is_that_of_a_loop(stage, tmp_path, variants, scale):
    """From 1e-12 the plain one is lost, and the drift says so.

    In plain descent u - v is a small difference, and its logarithm, of which the drift is made,
    less accurate.
    """
    chosen = {"variants": variants, "log10_init_scale": scale}
    (events, ends, _), toy = run(stage, tmp_path, drop=SHORT, **chosen)
    wanted = follow_all(toy, variants, scale)
    compare(events, wanted[0], NARROW)
    compare(ends, wanted[1], NARROW, drift={"rtol": 1e-5, "atol": 1e-12})
    assert not events["rises"].all()
    assert set(events["sign"]) == {-1, 1}
    assert np.isinf(ends["drift"]).any() == (scale == -12)


def example():
    """The quadratic of the example, and the direction of its start."""
    H, minimum = [[1, 0, 0.65], [0, 1, 0.65], [0.65, 0.65, 1]], [1.3, 0.9, -0.6]
    start = torch.randn(2, 3, generator=generator(3, "start of the example"), dtype=torch.float64)
    return Bowl(H, minimum), *start.numpy()


def predictions():
    """The rows of the example by Algorithm 1, and, from each scale, by its finite-scale form and by
    the flow.
    """
    bowl, u, v = example()
    for stage in itertools.islice(algorithm_1(bowl), 1, None):
        yield "Algorithm 1", -math.inf, stage["coordinate"], stage["sign"], stage["time"], False
    for scale in (-9, -14):
        L, start = -scale * math.log(10), Start(u, v, scale)
        staged, followed = (
            staged_events(bowl, start, 26 * L, 0.02),
            flow(bowl, start, 26 * L, 0.02)[1],
        )
        for method, events in (
            ("finite-scale Algorithm 1", staged),
            ("flow in log coordinates", followed),
        ):
            for time, i, sign, rises in events:
                if rises:
                    yield method, scale, i, sign, time / L, False


def descents(form, dtype):
    """The rows of the example by descent in one arithmetic."""
    bowl, u, v = example()
    H, minimum = bowl.H.astype(dtype), bowl.minimum.astype(dtype)
    L, above, lost = 14 * math.log(10), np.zeros(3, bool), False
    u, v = ((math.exp(-L) * w).astype(dtype) for w in (u, v))
    steps = descent(lambda p: (minimum - p) @ H, u, v, 0.35, form)
    for k, (weights, _, p, y) in enumerate(itertools.islice(steps, math.ceil(26 * L / 0.35) + 1)):
        rows = [(i, np.sign(p[i]), False) for i in crossed(above, p) if above[i]]
        if form == "plain" and k % 100 == 0 and not lost:
            rows += [(i, 0, True) for i in np.flatnonzero(stuck(*weights, y, dtype))]
            lost = lost or any(row[2] for row in rows)
        for i, sign, is_lost in rows:
            yield f"{form} gradient descent, {dtype.__name__}", -14, i, sign, k * 0.35 / L, is_lost


def test_the_example_is_followed_by_every_method(stage, tmp_path):
    (*_, drop), _ = run(stage, tmp_path, of=([6], [44]), drop=DROP, **ONE)
    forms = [("plain", np.float64), ("plain", np.float32), ("factors", np.float64)]
    rows = [*predictions(), *itertools.chain(*(descents(*form) for form in forms))]
    columns = ["method", "log10_init_scale", "coordinate", "sign", "rescaled_time", "lost"]
    assert list(drop) == columns
    predicted = ~drop["method"].str.contains("descent")
    wanted = pd.DataFrame(rows, columns=columns)
    compare(drop[predicted], wanted[predicted], NARROW | {"rtol": 1e-4})  # the solvers' accuracy
    compare(drop[~predicted], wanted[~predicted], NARROW)
    assert drop.loc[drop["lost"], "method"].tolist() == [
        "plain gradient descent, float64",
        "plain gradient descent, float32",
    ]
    assert {(2, 1), (2, -1)} <= set(zip(drop["coordinate"], drop["sign"], strict=True))


def weights(loss, u, v, decay, n_steps=4000):
    """u and v at time 9, by the classical method of Runge and Kutta in equal steps."""

    def velocity(w):
        g = loss.g(w[0] * w[1])
        return np.stack([w[1] * g, w[0] * g - decay * w[1]])

    w, h = np.stack([u, v]), 9 / n_steps
    for _ in range(n_steps):
        k = [velocity(w)]
        for share in (0.5, 0.5, 1):
            k.append(velocity(w + share * h * k[-1]))
        w = w + h / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3])
    return w


def test_what_is_conserved_drifts_by_the_tolerance_alone_unless_one_of_the_weights_decays(
    stage, tmp_path
):
    _, toy = run(stage, tmp_path, drop=SHORT, variants=[("plain", 1)])
    found = pd.read_parquet(tmp_path / "d" / "conserved.parquet")
    assert list(found) == ["seed", "rtol", "decay", "drift", "growth"]
    cells = [(s, r, d) for s in (6, 7) for d in (0, 0.25) for r in (1e-3, 1e-9)]
    assert list(found[["seed", "rtol", "decay"]].itertuples(index=False, name=None)) == cells
    for (seed, decay), rows in found.groupby(["seed", "decay"]):
        i = toy["seeds"].tolist().index(seed)
        u, v = (0.1 * toy[name][i].numpy() for name in "uv")
        end_u, end_v = weights(head_of(toy, i), u, v, decay)
        size = (u**2 + v**2).max()
        drift = abs((end_u**2 - end_v**2) - (u**2 - v**2)).max() / size
        growth = (end_u**2 + end_v**2).max() / size
        coarse, fine = rows["drift"]
        np.testing.assert_allclose(rows["growth"], growth, rtol=0.02)
        if decay:
            np.testing.assert_allclose(fine, drift, rtol=1e-6)
            assert drift > 0.01
        else:
            assert fine < 1e-7 < coarse < 0.1


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"conserve": CONSERVE | {"rtols": [1e-3]}}, "rtols: wanted two or more, got"),
        ({"conserve": CONSERVE | {"first_seed": 1}}, r"conserve: wanted seeds of .*got \[1, 2\]"),
        ({"first_seed": 5}, r"a\.b: wanted seeds of .*8\], got \[5\]"),
        (
            {"variants": [("plain", 1e-310)]},
            r"share_of_limit 1e-310: wanted .* at most 200000 steps, got inf",
        ),
        ({"first_seed": 8, "variants": [("factors", 2)]}, "share_of_limit, factors: wanted"),
        (
            {"drop": {**SHORT, "learning_rate": 20, "rescaled_end": 50}},
            "drop.learning_rate, plain, float64: wanted a",
        ),
        (
            {"drop": {**SHORT, "log10_init_scale": -45}},
            "wanted a start that float32 can write, got 1e-45",
        ),
        ({"drop": {**SHORT, "minimum": [1, 2]}}, "minimum: missing key 2, got"),
    ],
)
def test_what_cannot_be_computed_is_refused(stage, tmp_path, params, message):
    with pytest.raises(InputError, match=message):
        run(stage, tmp_path, of=([6, 8], [44, 1]), **{"drop": SHORT, **ONE, **params})
