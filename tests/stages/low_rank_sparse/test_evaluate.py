"""The stage evaluate: every measure, table and curve, counted row by row from made tables."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from made import files, write_run

SECTION, CLAIMS = "any.family.evaluate", Path(__file__).parents[3] / "claims.yaml"
PARAMS = {
    # No rate is one of a table: the nearest counts, and neurons and weights have others.
    "judged": {
        "untied": {"pruning_rate": 0.12, "moderate_rate": 0.33, "strong_rate": 0.62},
        "tied": {"pruning_rate": 0.28, "moderate_rate": 0.56, "strong_rate": 0.79},
    },
    "rtol": 0.4,
    "early_step": 5,
    "harmless_slack": 0.08,
    "corollary_from": 0.45,
    "easy_n_relevant": 4,
    "fit_from_n_patterns": 8,
    "grouped_labels": "2|2",
}
SEEDS = {"tied": [3, 1, 2], "untied": [5, 4], "spare": [1, 6]}  # the last is not judged
STEPS = {"tied": [0, 5, 9], "untied": [0, 12], "spare": [0, 5, 20]}
RANKS = {"tied": [0, 1, 2, 20], "untied": [0, 1, 2, 7], "spare": [0, 1, 2, 30]}
MATRICES = ("W_Q", "W_K", "W_V", "W_O", "W_KQ")
ORDERS, LETTERS = ("smallest", "random", "largest"), ("Q", "K", "V", "O")
# Hinge losses without large neurons: the largest deviation is the first that counts, or lies below the law.
LARGE = {
    "tied": {0.0: 0.4, 0.2: 5, 0.45: 2.4, 0.7: 0.4},
    "untied": {0.0: 0.03, 0.2: 5, 0.45: 0.3, 0.7: 0.03},
    "spare": {0.0: 0.1, 0.2: 0.2, 0.45: 0.3, 0.7: 0.4},
}
TABLES = ("spectra", "truncate", "directions", "prune", "neurons", "adapt", "sweep")
SCORES = ["hinge", "accuracy", "margin", "least_margin", "attention", "attention_of_relevant"]


def numbers(draw, names):
    """Positive numbers, no two alike."""
    return {name: float(draw.uniform(0.05, 1.5)) for name in names}


def made_tables():
    """What the other stages write, of numbers that mean nothing, as lists of rows in no order."""
    draw = np.random.default_rng(3)
    rows = {name: [] for name in ("training", *TABLES)}
    for name, seed in ((name, seed) for name, seeds in SEEDS.items() for seed in seeds):
        cell = {"configuration": name, "readout": f"{name} one", "seed": seed}
        for number, step in enumerate(STEPS[name]):
            fitted = {"fitted_step": int(draw.integers(1, 90)) if seed != 5 else -1}
            measured = numbers(draw, ["loss", *SCORES])
            rows["training"] += [{"snapshot": number, "step": step, **measured, **fitted, **cell}]
            for of, matrix in itertools.product(("initial", "update", "gaussian"), MATRICES):
                rows["spectra"] += [{
                    "of": of, "matrix": matrix, "step": step, "layer": 0,
                    "singular_values": np.sort(draw.uniform(0.1, 3, 5))[::-1],
                } | cell]  # fmt: skip
            for matrix, side, span in itertools.product(
                ("W_K", "W_Q"), ("input", "output"), ("discriminative", "with mean irrelevant")
            ):
                place = {"step": step, "matrix": matrix, "side": side, "span": span, "dimension": 20}
                rows["directions"] += [place | numbers(draw, ["alignment", "energy"]) | cell]
        cuts = [("all", rank) for rank in RANKS[name]] + [("pairs 3 and 4", 2)]
        cuts += itertools.product(("weights, not updates", "W_Q and W_K", "W_V"), (0, 1, 2))
        for kind, rank in cuts:
            rows["truncate"] += [{"kind": kind, "rank": rank, **numbers(draw, SCORES)} | cell]
        rates = {("neurons", order): [0.0, 0.1, 0.3, 0.6, 0.8] for order in ORDERS}
        rates |= {("large neurons", "random"): [0.0, 0.2, 0.45, 0.7], ("weights", "smallest"): [0.0, 0.25, 0.5, 0.75]}
        rates |= {("rows of W_V", "smallest"): [0.4]} | ({("1:3", "smallest"): [2 / 3]} if name == "tied" else {})
        for (what, order), rate in ((key, rate) for key, values in rates.items() for rate in values):
            row = {"what": what, "order": order, "rate": rate}
            row |= numbers(draw, ["weights", *SCORES[:4], "rescaled_hinge"])
            if what == "neurons":
                row["hinge"] *= 0.2
            if what == "large neurons":
                row["margin"] *= 0.5
                row["hinge"] = LARGE[name][rate] * (1 + draw.uniform(0, 0.1))
            rows["prune"] += [row | cell]
        parts = numbers(draw, ["threshold", "small_share", "small_norm", "large_norm", "bimodality", "cosine"])
        parts["cosine"] = math.nan if seed == 4 else parts["cosine"]
        rows["neurons"] += [parts | {"norms": draw.uniform(0, 1, 4)} | cell]
        if name != "untied" and seed != 2:
            for rank, larger in ((2, 0), (1, 0.6), (4, 0.4)):
                found = numbers(draw, SCORES) | {"fitted_step": int(draw.integers(1, 90))}
                rows["adapt"] += [{**found, "rank": rank, "hinge": found["hinge"] + larger} | cell]
    rows["sweep"] = list(made_sweeps(draw))
    return {name: [table[i] for i in draw.permutation(len(table))] for name, table in rows.items()}


def made_sweeps(draw):
    """One row per training: seeds that were not fitted, have but one value, or lack a value among them."""
    values = {
        "relevant": [2, 4, 8],
        "relevant_with_confusion": [3, 4, 6],
        "step_size": [0.3, 1.0, 3.0],
        "patterns": [5, 7, 8, 10],
        "noise": [0.0, 0.1, 0.2],
        "confusion": [11, 12],
    }
    columns = ["hinge", "hinge_at_rank_2", "hinge_at_rank_below", "hinge_at_rank_k", "hinge_without_attention"]
    spectral = ("energy", "energy_2", "gap", "gap_2", "next", "tail")
    columns += [f"W_{letter}_{of}" for letter in LETTERS for of in spectral]
    for (name, value), seed in itertools.product(((n, value) for n in values for value in values[n]), (7, 0, 3)):
        if ((name, seed) == ("step_size", 7) and value > 0.5) or (name, value, seed) == ("noise", 0.1, 0):
            continue
        row = numbers(draw, columns) | {"fitted_step": int(draw.integers(5, 80))}
        if (name, value, seed) == ("relevant", 4, 3):
            row["fitted_step"] = -1
        if (name, value, seed) == ("relevant_with_confusion", 6, 7):
            row["fitted_step"] = 0  # it has no logarithm
        if name == "confusion":
            row["hinge"] += 4
        if name == "noise" and value == 0.1:
            row["hinge"] += 2  # less loss at rank 2 than at full rank: the largest cost in size
        yield {"sweep": name, "value": float(value), "labels": "1|1", "n_outputs": 1, "readout": "tied", "seed": seed,
               **row, "W_K_singular_values": draw.uniform(0, 1, 6)}  # fmt: skip
    labellings = [(f"classes_{kind}", text) for kind in ("untied", "tied") for text in ("1|1|1", "1|1", "1|1|1|1")]
    labellings += [("grouped", text) for text in ("2|1", "2|2", "3|3")]
    for (name, labels), seed in itertools.product(labellings, (3, 0, 7)):
        yield {"sweep": name, "value": 4.0, "labels": labels, "n_outputs": 2, "readout": name[8:], "seed": seed,
               **numbers(draw, columns), "fitted_step": 3, "W_K_singular_values": draw.uniform(0, 1, 6)}  # fmt: skip


def chosen(rows, column, **where):
    """A number per seed: the column in the only row of the seed that has these values."""
    rows = [row for row in rows if all(row[name] == value for name, value in where.items())]
    assert len(rows) == len({row["seed"] for row in rows})
    return {row["seed"]: row[column] for row in rows}


def each(function, *numbers):
    """The function of the numbers of each seed."""
    return {seed: function(*(of[seed] for of in numbers)) for seed in numbers[0]}


def largest(columns, best=max):
    """Of several numbers per seed, those whose mean over seeds is the largest in size (or least, by `best`)."""
    return best(columns, key=lambda column: abs(sum(column.values()) / len(column)))


def wanted_of(name, rows, judged):
    """Every measure of one configuration."""
    training, spectra, truncate, directions, prune, neurons, adapt = (
        [row for row in rows[table] if row["configuration"] == name] for table in ("training", *TABLES[:-1])
    )
    last = STEPS[name][-1]
    for column in (*SCORES, "fitted_step"):
        yield column, chosen(training, column, step=last)
    for column in SCORES[-2:]:
        yield f"initial_{column}", chosen(training, column, step=0)

    def leading(s):
        return (s[0] ** 2 + s[1] ** 2) / sum(x**2 for x in s)

    for letter in LETTERS:
        where = {"of": "update", "matrix": f"W_{letter}", "step": last}
        sigma = chosen(spectra, "singular_values", **where)
        yield f"energy_{letter}", each(leading, sigma)
        yield f"gap_{letter}", each(lambda s: s[2] / s[1], sigma)
        yield f"nuclear_tail_{letter}", each(lambda s: 1 - (s[0] + s[1]) / sum(s), sigma)
        yield f"numerical_rank_{letter}", each(lambda s: sum(x > 0.4 * max(s) for x in s), sigma)
    if 5 in STEPS[name]:
        yield "early_energy_K", each(leading, chosen(spectra, "singular_values", of="update", matrix="W_K", step=5))

    def cut(kind, rank, column="hinge"):
        return chosen(truncate, column, kind=kind, rank=rank)

    for measure, column in (("cost", "hinge"), *((c, c) for c in SCORES[-2:])):
        two, whole = cut("all", 2, column), cut("all", RANKS[name][-1], column)
        yield f"rank_2_{measure}", each(lambda a, b: a - b, two, whole)
    yield "rank_1_hinge", cut("all", 1)
    yield "rank_1_accuracy", cut("all", 1, "accuracy")
    yield "rank_0_hinge", cut("all", 0)
    yield "rank_0_attention", cut("all", 0, "attention")
    yield "pairs_3_and_4_hinge", cut("pairs 3 and 4", 2)
    yield "without_attention_hinge", cut("W_Q and W_K", 0)
    yield "rank_1_attention_hinge", cut("W_Q and W_K", 1)
    yield "rank_0_attention_of_weights", cut("weights, not updates", 0, "attention")
    yield "rank_2_hinge_of_weights", cut("weights, not updates", 2)
    for measure, span in (("alignment", "with mean irrelevant"), ("alignment_without_mean", "discriminative")):
        yield measure, chosen(directions, "alignment", matrix="W_K", side="input", span=span, step=last)
    yield "small_share", chosen(neurons, "small_share")
    yield "bimodality", chosen(neurons, "bimodality")
    yield "large_over_small", each(lambda a, b: a / b, chosen(neurons, "large_norm"), chosen(neurons, "small_norm"))
    if name == "tied":  # of one seed of the other there is none
        yield "cosine", chosen(neurons, "cosine")
    yield from pruned(prune, judged, has_groups=name == "tied")
    if name == "tied":
        hinges = {rank: chosen(adapt, "hinge", rank=rank) for rank in (1, 2, 4)}
        yield "adapter_hinge", largest(list(hinges.values()))
        yield "adapter_hinge_of_least_rank", hinges[1]
        yield "cut_hinge_of_least_rank", {seed: cut("all", 1)[seed] for seed in hinges[1]}


def pruned(prune, rates, has_groups):
    """The measures of pruning; `rates` are those of the neurons and of the weights at which it is judged."""
    (at_neurons, moderate, strong), (moderate_of_weights, strong_of_weights) = rates
    for order in ORDERS:
        rates_of_neurons = (0, 0.1, 0.3, 0.6, 0.8)
        by_rate = {rate: chosen(prune, "hinge", what="neurons", order=order, rate=rate) for rate in rates_of_neurons}
        harmless = {}
        for seed, bar in by_rate[0].items():
            for rate, hinges in by_rate.items():
                if hinges[seed] > bar + 0.08:
                    break
                harmless[seed] = rate
        yield f"harmless_{order}", harmless
        yield f"pruned_{order}", by_rate[at_neurons]
    at = (("moderate", moderate, moderate_of_weights), ("strong", strong, strong_of_weights))
    for name, rate, rate_of_weights in at:
        where = {"what": "neurons", "order": "smallest", "rate": rate}
        yield f"neurons_{name}", chosen(prune, "hinge", **where)
        yield f"neurons_{name}_rescaled", chosen(prune, "rescaled_hinge", **where)
        yield f"weights_{name}", chosen(prune, "hinge", what="weights", rate=rate_of_weights)
    if has_groups:
        yield "groups", chosen(prune, "hinge", what="1:3")
    yield "values", chosen(prune, "hinge", what="rows of W_V", rate=0.4)
    hinge = {rate: chosen(prune, "hinge", what="large neurons", rate=rate) for rate in (0, 0.2, 0.45, 0.7)}
    start = chosen(prune, "margin", what="large neurons", rate=0)
    yield "margin_without_small", start
    yield (
        "corollary_deviation",
        largest([each(lambda h, F, R=R: h - max(0, 1 - (1 - R) * F), hinge[R], start) for R in (0.45, 0.7)]),
    )
    steps = [each(lambda a, b: b - a, hinge[a], hinge[b]) for a, b in ((0, 0.2), (0.2, 0.45), (0.45, 0.7))]
    yield "corollary_least_rise", each(min, *steps)


def wanted_of_sweeps(rows):
    """Every measure of the sweeps."""
    slopes = {
        "slope_of_steps_in_relevant": ("relevant", "fitted_step", 0),
        "slope_of_steps_in_relevant_with_confusion": ("relevant_with_confusion", "fitted_step", 0),
        "slope_of_steps_in_step_size": ("step_size", "fitted_step", 0),
        "slope_of_third_in_patterns": ("patterns", "W_K_next", 8),
        "slope_of_tail_in_patterns": ("patterns", "W_K_tail", 8),
    }
    for measure, (sweep, column, least) in slopes.items():
        fitted = {}
        for seed in (0, 3, 7):
            points = [
                (row["value"], row[column])
                for row in rows
                if (row["sweep"], row["seed"]) == (sweep, seed) and row["value"] >= least
            ]
            whole = len(points) > 1 and min(y for _, y in points) > 0
            fitted[seed] = np.polyfit(*np.log(np.array(points).T), 1)[0] if whole else math.nan
        yield measure, fitted
    yield (
        "easy_without_attention_hinge",
        chosen(rows, "hinge_without_attention", sweep="relevant_with_confusion", value=4),
    )
    costs = []
    for value in (0.0, 0.1, 0.2):
        two, whole = (chosen(rows, column, sweep="noise", value=value) for column in ("hinge_at_rank_2", "hinge"))
        costs.append(each(lambda a, b: a - b, two, whole))
    yield "noise_rank_2_cost", largest(costs)
    for readout in ("tied", "untied"):
        names = {"hinge_below": ("hinge_at_rank_below", min), "hinge_at": ("hinge_at_rank_k", max)}
        names |= {"hinge": ("hinge", max)}
        names |= {f"energy_{letter}": (f"W_{letter}_energy", min) for letter in LETTERS}
        for measure, (column, best) in names.items():
            where = {"sweep": f"classes_{readout}"}
            by = [chosen(rows, column, labels=labels, **where) for labels in ("1|1", "1|1|1", "1|1|1|1")]
            yield f"classes_{readout}_{measure}", largest(by, best)
    names = {"gap_K": "W_K_gap", "second_gap_K": "W_K_gap_2", "energy_V": "W_V_energy_2", "energy_O": "W_O_energy_2"}
    for measure, column in (names | {"rank_2_hinge": "hinge_at_rank_2"}).items():
        yield f"grouped_{measure}", chosen(rows, column, sweep="grouped", labels="2|2")


@pytest.fixture
def evaluated(stage, tmp_path):
    """The made rows, and the folder in which the stage ran on them."""
    rows = made_tables()
    for name in SEEDS:
        steps = [row for row in rows["training"] if row["configuration"] == name]
        cell = {"configuration": name, "readout": f"{name} one"}
        layout = {"family": "low_rank_sparse", "matrices": {"W": ["row", "col"]}, "cell": cell, "seeds": SEEDS[name]}
        own = [{key: value for key, value in row.items() if key not in cell} for row in steps]
        write_run(tmp_path / "runs" / name, layout, [{"W": torch.zeros(1, 1)}] * len(STEPS[name]), own)
    for name in TABLES:
        pd.DataFrame(rows[name]).to_parquet(tmp_path / f"{name}.parquet")
    runs, metrics, curves = (tmp_path / name for name in ("runs", "metrics", "curves.csv"))
    data = [tmp_path / f"{name}.parquet" for name in TABLES]
    stage("low_rank_sparse.evaluate", {SECTION: PARAMS}, SECTION, runs, data, metrics, curves)
    return rows, tmp_path


def wanted(rows):
    found = dict(wanted_of_sweeps(rows["sweep"]))
    rates = {"tied": ((0.3, 0.6, 0.8), (0.5, 0.75)), "untied": ((0.1, 0.3, 0.6), (0.25, 0.5))}
    for name, judged in rates.items():
        found |= {f"{name}_{measure}": values for measure, values in wanted_of(name, rows, judged)}
    return found


def test_every_measure_is_what_its_rows_say_and_every_claim_reads_one_of_them(evaluated):
    rows, folder = evaluated
    measures, summary = (
        json.loads((folder / "metrics" / f"{name}.json").read_text()) for name in ("measures", "summary")
    )
    expected = wanted(rows)
    assert measures.keys() == summary.keys() == expected.keys()
    for name, of_seeds in expected.items():
        found = {key: [math.nan if value is None else value for value in of] for key, of in measures[name].items()}
        by_seed = dict(zip(map(int, found.pop("cases")), found.pop("values"), strict=True))
        assert not found
        assert list(by_seed) == sorted(by_seed)
        assert by_seed == pytest.approx(of_seeds, rel=6e-6, nan_ok=True), name  # six digits are written
        values = list(of_seeds.values())
        mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
        found = {key: math.nan if value is None else value for key, value in summary[name].items()}
        assert found == pytest.approx({"mean": mean, "sd": deviation}, rel=6e-6, abs=1e-12, nan_ok=True), name
    groups = yaml.safe_load(CLAIMS.read_text(encoding="utf-8")).values()
    [claims] = [group["claims"] for group in groups if group["family"] == "low_rank_sparse"]
    read = {claim["measure"] for claim in claims.values()}
    assert len(read) > 50
    assert read <= expected.keys()


def test_the_tables_are_kept_in_32_bits_and_the_curves_are_means_over_seeds(evaluated):
    rows, folder = evaluated
    expected = {name: pd.DataFrame(rows[name]) for name in TABLES}
    matrices = expected["spectra"]["matrix"].isin(["W_Q", "W_K", "W_V", "W_O"])
    kept = ["configuration", "matrix", "step", "seed", "singular_values"]
    spectra = expected["spectra"][matrices & (expected["spectra"]["of"] == "update")][kept]
    ranks = [sum(s > 0.4 * max(sigma) for s in sigma) for sigma in spectra["singular_values"]]
    expected["spectra"] = spectra.assign(numerical_rank=ranks)
    sweep = expected["sweep"]
    in_fit = [name != "patterns" or value >= 8 for name, value in zip(sweep["sweep"], sweep["value"], strict=True)]
    expected["sweep"] = sweep.assign(in_fit=in_fit)
    training = [row for name in sorted(SEEDS) for row in rows["training"] if row["configuration"] == name]
    expected["training"] = pd.DataFrame(training).drop(columns="snapshot")
    for name, table in expected.items():
        found = pd.read_parquet(folder / "metrics" / "tables" / f"{name}.parquet")
        assert set(found) == set(table)
        assert len(found) == len(table)
        for column, values in table.items():
            if isinstance(values.iloc[0], np.ndarray):
                assert {array.dtype for array in found[column]} == {np.dtype("float32")}
                np.testing.assert_allclose(np.stack(found[column]), np.stack(values), rtol=1e-7)
            elif isinstance(values.iloc[0], str | np.bool_):
                assert list(found[column]) == list(values)
            else:
                assert found[column].dtype in ("float32", "int32")
                np.testing.assert_allclose(found[column], values, rtol=1e-7)
    written = [f"metrics/tables/{name}.parquet" for name in expected]
    runs = [f"runs/{file}" for file in files(folder / "runs")]
    written += ["metrics/measures.json", "metrics/summary.json", "curves.csv", "params.yaml", *runs]
    written += [f"{name}.parquet" for name in TABLES]
    assert files(folder) == sorted(written)
    curves = pd.read_csv(folder / "curves.csv").set_index(["variant", "step"])
    assert sorted(curves.index) == sorted((name, step) for name, steps in STEPS.items() for step in steps)
    assert sorted(curves) == ["attention_of_relevant", "hinge"]
    for (name, step), row in curves.iterrows():
        for column, value in row.items():
            of_seeds = chosen(rows["training"], column, configuration=name, step=step).values()
            assert value == pytest.approx(sum(of_seeds) / len(of_seeds), rel=6e-6)
