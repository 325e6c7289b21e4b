"""Made tables of trainings by optimisers, and what the figures of them must show."""

import itertools
import math

import numpy as np

FIGURES = {"optimizers", "properties", "few-tokens", "sign-flow"}
SEEDS = (4, 6)


def made_optimizers():
    """Two known optimisers and one that only a user's table has."""
    draw = np.random.default_rng(8)
    names = ("muon", "gd", "own")
    numbers = (
        "stable_rank_half",
        "stable_rank_end",
        "slope_least",
        "slope_most",
        "loss",
        "order",
        "separate",
    )
    return {
        "optimizers": [
            {
                "optimizer": name,
                "teacher_rank": rank,
                "log10_init_scale": scale,
                "seed": seed,
                "first_rise": draw.uniform(1, 9),
                **{key: draw.uniform(0.1, 3) for key in numbers},
            }
            for name, rank, scale, seed in itertools.product(names, (3, 5), (-2.0, -8.0), SEEDS)
        ],
        "courses": [
            {
                "optimizer": name,
                "log10_init_scale": -8.0,
                "step": step,
                "time": 0.5 * step,
                "W_VO": np.sort(draw.uniform(0, 2, 3))[::-1] * min(1, step / 20),
            }
            for name, step in itertools.product(names, (20, 0, 10, 30, 40))
        ],
        "few": [
            {
                "optimizer": name,
                "n_samples": n,
                "noise": noise,
                "seed": seed,
                **{
                    key: draw.uniform(0.1, 4)
                    for key in ("effective_rank_KQ", "best_test_loss", "last_test_loss")
                },
            }
            for name, (n, noise), seed in itertools.product(
                names, ((1, 0.0), (3, 0.0), (20, 0.5)), SEEDS
            )
        ],
        "noisy_paths": [
            {
                "optimizer": name,
                "seed": seed,
                "step": step,
                "loss": draw.uniform(),
                "test_loss": draw.uniform(),
            }
            for name, seed, step in itertools.product(names, SEEDS, (0, 5))
        ],
        "flow": [
            {"method": "flow", "time": t, "p": draw.normal(0, 1, 2)} for t in (0.0, 0.5, 1.0, 1.5)
        ],
        "descent": [
            {"method": "weights", "log10_init_scale": -8.0, "time": t, "p": draw.normal(0, 1, 2)}
            for t in (0.0, 0.5, 1.0, 1.5)
        ],
        "diagonal": [
            {
                "optimizer": name,
                "log10_init_scale": scale,
                "seed": seed,
                "order": math.nan if name == "gd" else draw.uniform(-1, 1),
            }
            for name, scale, seed in itertools.product(
                ("gd", "sign", "adam", "gradient flow"), (-8.0, -4.0), SEEDS
            )
        ],
        "distances": [
            {
                "method": method,
                "log10_init_scale": scale,
                "seed": seed,
                "time": t,
                "distance": draw.uniform(0.1, 1),
            }
            for (method, scale), seed, t in itertools.product(
                (("roots", -math.inf), ("weights", -4.0), ("weights", -8.0)), SEEDS, (0.0, 1.0)
            )
        ],
        "slopes": [
            {
                "seed": seed,
                "beta_2": beta,
                "slope_KQ": draw.uniform(1, 3),
                "slope_VO": draw.uniform(1, 3),
            }
            for seed, beta in itertools.product(SEEDS, (0.9, 0.999))
        ],
    }


def check_optimizers(made, drawn):
    check_courses(made["courses"], drawn["optimizers"])
    check_properties(made["optimizers"], drawn["properties"])
    check_few(made["few"], made["noisy_paths"], drawn["few-tokens"])
    check_signs(made, drawn["sign-flow"])


def has(axes, x, y):
    """Whether a line of these points is drawn."""
    found = [line.get_data() for line in axes.lines]
    return any(
        len(a) == len(x)
        and np.allclose(np.asarray(a, float), x)
        and np.allclose(np.asarray(b, float), y)
        for a, b in found
    )


def check_courses(rows, figure):
    assert [axes.get_title().split(",")[0] for axes in figure.axes] == ["gradient descent", "Muon"]
    for axes, name in zip(figure.axes, ("gd", "muon"), strict=True):
        own = sorted((row for row in rows if row["optimizer"] == name), key=lambda row: row["step"])
        unit = 8 * math.log(10) if name == "gd" else 1
        for i in range(3):
            assert has(axes, [row["time"] / unit for row in own], [row["W_VO"][i] for row in own])
    tau = figure.axes[1].lines[-1].get_data()
    np.testing.assert_allclose(tau[1], np.square(tau[0]))


def check_properties(rows, figure):
    delay, order, rank, separate, speed = figure.axes
    labels = [label.get_text() for label in delay.get_yticklabels()]
    assert labels == ["gradient descent", "Muon, polar factor", "own"]
    for y, name in enumerate(("gd", "muon", "own")):

        def of(key, teacher_rank, scale, name=name):
            where = {"optimizer": name, "teacher_rank": teacher_rank, "log10_init_scale": scale}
            return np.array([row[key] for row in rows if where.items() <= row.items()])

        half = of("stable_rank_half", 5, -8.0)
        for axes, values in (
            (delay, of("first_rise", 5, -8.0) / of("first_rise", 5, -2.0)),
            (order, of("order", 5, -8.0)),
            (rank, half / of("stable_rank_end", 5, -8.0)),
            (separate, of("separate", 3, -8.0)),
        ):
            assert has(axes, values, [y, y])
        for key in ("slope_least", "slope_most"):
            assert has(speed, of(key, 5, -8.0), [y, y]) == (name != "gd")


def check_few(few, paths, figure):
    rank, test, best = figure.axes
    for place, name in enumerate(("gd", "muon", "own")):
        for n, shift in ((1, -0.08), (3, 0.08)):
            own = [
                row["effective_rank_KQ"]
                for row in few
                if row["optimizer"] == name and row["n_samples"] == n
            ]
            assert has(rank, [place + shift] * 2, own)
        noisy = [row for row in few if row["optimizer"] == name and row["noise"]]
        assert has(best, [place] * 2, [row["best_test_loss"] for row in noisy])
        assert has(best, [place + 0.2] * 2, [row["last_test_loss"] for row in noisy])
        means = [
            [
                np.mean(
                    [row[key] for row in paths if row["optimizer"] == name and row["step"] == step]
                )
                for step in (0, 5)
            ]
            for key in ("loss", "test_loss")
        ]
        assert has(test, *means)


def check_signs(made, figure):
    order, path, far, adam = figure.axes
    for place, name in enumerate(("gradient flow", "sign", "adam")):
        own = [
            row["order"]
            for row in made["diagonal"]
            if row["optimizer"] == name and row["log10_init_scale"] == -4.0
        ]
        assert has(order, [place] * 2, own)
    for i in range(2):
        for name, every in (("flow", 1), ("descent", 3)):
            rows = made[name][::every]
            roots = [math.copysign(math.sqrt(abs(row["p"][i])), row["p"][i]) for row in rows]
            assert has(path, [row["time"] for row in rows], roots)
    for method, scale in (("roots", -math.inf), ("weights", -8.0)):
        by_time = [
            [
                row["distance"]
                for row in made["distances"]
                if (row["method"], row["log10_init_scale"], row["time"]) == (method, scale, time)
            ]
            for time in (0.0, 1.0)
        ]
        for summary in (np.median, np.max):
            assert has(far, [0.0, 1.0], [summary(values) for values in by_time])
    for place, beta in enumerate((0.9, 0.999)):
        own = [row for row in made["slopes"] if row["beta_2"] == beta]
        for key, shift in (("slope_VO", -0.1), ("slope_KQ", 0.1)):
            assert has(adam, [place + shift] * 2, [row[key] for row in own])
