"""The stage evaluate: every measure, table and curve, counted row by row from made tables."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from lib.pages.claims import MEASURE, claims_of, read_families
from tests.stages.made import files, write_run

SECTION = "any.family.evaluate"
ROOT = Path(__file__).parents[3]
OTHERS = {
    "any.family.generate": {"n_patterns": 5, "seq_len": 9, "noise": 0.1},
    "any.family.train": {"device": "cpu", "fitted_loss": 0.02, "snapshot_steps": [1]},
    "any.family.sweep": {"fitted_loss": 0.3},
}
PARAMS = {
    # No rate is one of a table: the nearest counts, and neurons and weights have others.
    "judged": {
        "untied": {"permuted": "absent", "pruning_rate": 0.12},
        "tied": {"permuted": "spare", "pruning_rate": 0.28},
    },
    "rtol": 0.4,
    "steps": [5, 12, 99],
    "generalised_loss": 0.2,
    "corollary_from": 0.45,
    "easy_n_relevant": 4,
    "fit_from_n_patterns": 8,
}
SEEDS = {"tied": [3, 1, 2], "untied": [5, 4], "spare": [1, 6]}  # the last is a null
STEPS = {"tied": [0, 5, 9], "untied": [0, 12], "spare": [0, 5, 20]}
RANKS = {"tied": [0, 1, 2, 20], "untied": [0, 1, 2, 7], "spare": [0, 1, 2, 30]}
MATRICES = ("W_Q", "W_K", "W_V", "W_O", "W_KQ")
ORDERS, LETTERS = ("smallest", "random", "largest"), ("Q", "K", "V", "O")
# Hinge losses without large neurons: the largest deviation is the first that counts, or lies below
# the law.
LARGE = {
    "tied": {0.0: 0.4, 0.2: 5, 0.45: 2.4, 0.7: 0.4},
    "untied": {0.0: 0.03, 0.2: 5, 0.45: 0.3, 0.7: 0.03},
    "spare": {0.0: 0.1, 0.2: 0.2, 0.45: 0.3, 0.7: 0.4},
}
TABLES = ("losses", "spectra", "truncate", "directions", "prune", "neurons", "adapt", "sweep")
SCORES = ["hinge", "accuracy", "margin", "least_margin", "attention", "attention_of_relevant"]


def numbers(draw, names):
    """Positive numbers, no two alike."""
    return {name: float(draw.uniform(0.05, 1.5)) for name in names}


def made_tables():
    """What the other stages write, of numbers that mean nothing, as lists of rows in no order."""
    draw = np.random.default_rng(3)
    rows = {name: [] for name in ("training", *TABLES)}
    for name, seed in ((name, seed) for name, seeds in SEEDS.items() for seed in seeds):
        cell = {"configuration": name, "readout": f"{name} one", "labels": "given", "seed": seed}
        for number, step in enumerate(STEPS[name]):
            fitted = {"fitted_step": int(draw.integers(1, 90)) if seed != 5 else -1}
            measured = numbers(draw, ["loss", *SCORES])
            fitted = rows["training"][-1] if number else fitted  # the same at every step
            fitted = {"fitted_step": fitted["fitted_step"]}
            rows["training"] += [{"snapshot": number, "step": step, **measured, **fitted, **cell}]
            for of, matrix in itertools.product(("initial", "update", "gaussian"), MATRICES):
                if of == "gaussian" and step != STEPS[name][-1]:
                    continue
                rows["spectra"] += [
                    {
                        "of": of,
                        "matrix": matrix,
                        "step": step,
                        "layer": 0,
                        "singular_values": np.sort(draw.uniform(0.1, 3, 5))[::-1],
                    }
                    | cell
                ]
            for matrix, side, span in itertools.product(
                ("W_K", "W_Q", "W_V"),
                ("input", "output"),
                ("discriminative", "with mean irrelevant"),
            ):
                place = {
                    "step": step,
                    "matrix": matrix,
                    "side": side,
                    "span": span,
                    "dimension": 20,
                }
                rows["directions"] += [place | numbers(draw, ["alignment", "energy"]) | cell]
        rows["losses"] += [
            {"configuration": name, "seed": seed, "step": step, "loss": float(draw.uniform())}
            for step in range(95)
        ]
        cuts = [("all", rank) for rank in RANKS[name]] + [("pairs 3 and 4", 2), ("gaussian", 9)]
        cuts += [("random directions", 2)]
        cuts += itertools.product(("weights, not updates", "W_Q and W_K", "W_V"), (0, 1, 2))
        for kind, rank in cuts:
            rows["truncate"] += [{"kind": kind, "rank": rank, **numbers(draw, SCORES)} | cell]
        rates = {("neurons", order): [0.0, 0.1, 0.3, 0.6, 0.8] for order in ORDERS}
        rates |= {
            ("large neurons", "random"): [0.0, 0.2, 0.45, 0.7],
            ("weights", "smallest"): [0.0, 0.25, 0.5, 0.75],
        }
        rates |= {("rows of W_V", "smallest"): [0.4], ("1:3", "smallest"): [2 / 3]}
        rates |= {("as many as small", order): [1.0] for order in ORDERS} | {
            ("small neurons", "random"): [0.0, 1.0]
        }
        for (what, order), rate in (
            (key, rate) for key, values in rates.items() for rate in values
        ):
            row = {"what": what, "order": order, "rate": rate}
            row |= numbers(draw, ["flops", "weights", *SCORES[:4], "factor", "rescaled_hinge"])
            if what == "neurons":
                row["hinge"] *= 0.2
            if what == "large neurons":
                row["margin"] *= 0.5
                row["hinge"] = LARGE[name][rate] * (1 + draw.uniform(0, 0.1))
            rows["prune"] += [row | cell]
        parts = [
            "threshold",
            "small_share",
            "small_norm",
            "large_norm",
            "bimodality",
            "cosine",
            "initial_norm",
        ]
        parts = numbers(draw, parts)
        parts["cosine"] = math.nan if seed == 4 else parts["cosine"]
        rows["neurons"] += [parts | {"norms": draw.uniform(0, 1, 4)} | cell]
        if name != "untied" and seed != 2:
            for rank, larger in ((2, 0), (1, 0.6), (4, 0.4)):
                found = numbers(draw, SCORES) | {"fitted_step": int(draw.integers(1, 90))}
                found |= {"rank": rank, "hinge": found["hinge"] + larger}
                rows["adapt"] += [found | {"configuration": name, "seed": seed}]
    rows["sweep"] = list(made_sweeps(draw))
    return {name: [table[i] for i in draw.permutation(len(table))] for name, table in rows.items()}


def made_sweeps(draw):
    """One row per training: seeds that were not fitted, have but one value, or lack a value among
    them.
    """
    values = {
        "relevant": [2, 4, 8],
        "relevant_with_confusion": [3, 4, 6],
        "step_size": [0.3, 1.0, 3.0],
        "patterns": [5, 7, 8, 10],
        "noise": [0.0, 0.1, 0.2],
        "confusion": [11, 12],
    }
    columns = [
        *SCORES,
        "hinge_at_rank_2",
        "hinge_at_rank_below",
        "hinge_at_rank_k",
        "hinge_without_attention",
    ]
    spectral = ("energy", "energy_2", "nuclear_tail", "gap", "gap_2", "next", "tail")
    columns += [f"W_{letter}_{of}" for letter in LETTERS for of in spectral]
    alike = {"n_patterns": 4, "n_train": 70, "n_relevant": 3, "seq_len": 9, "readout": "tied"}
    alike |= dict.fromkeys(("n_test", "d_model", "n_confusion", "batch_size", "n_outputs"), 6)
    alike |= dict.fromkeys(("noise", "init_scale", "value_error", "query_key_error"), 0.5)
    alike |= {"learning_rate": 0.25, "n_neurons": 12, "n_steps": 90}
    cells = [(name, "a number", value, "1|1") for name in values for value in values[name]]
    labellings = {"1|1": 2, "1|1|1": 3, "1|1|1|1": 4}
    cells += [
        (f"classes_{kind}", "labels", k, text)
        for kind in ("untied", "tied")
        for text, k in labellings.items()
    ]
    cells += [("grouped", "labels", k, text) for text, k in (("2|1", 3), ("2|2", 4), ("3|3", 6))]
    cells += [
        (f"{name}_permuted", "labels", k, text)
        for name, _, k, text in cells
        if name in ("grouped", "classes_tied")
    ]
    chance = ["hinge_in_random_directions", "hinge_of_gaussian"]
    chance += [
        f"gaussian_W_{letter}_{of}" for letter in LETTERS for of in ("energy", "energy_2", "gap")
    ]
    for (name, varies, value, labels), seed in itertools.product(cells, (7, 0, 3)):
        if ((name, seed) == ("step_size", 7) and value > 0.5) or (name, value, seed) == (
            "noise",
            0.1,
            0,
        ):
            continue
        row = numbers(draw, [*columns, "small_share", "large_over_small"]) | {
            "fitted_step": int(draw.integers(0, 80))
        }
        if (name, value, seed) == ("relevant", 4, 3):
            row["fitted_step"] = -1
        if (name, value, seed) == ("relevant_with_confusion", 6, 7):
            row["fitted_step"] = 0  # fitted by the first batch
        permuted = name.endswith("_permuted")
        if permuted:
            row = {
                column: number for column, number in row.items() if not column.startswith("hinge_")
            }
        elif varies == "labels":
            row |= numbers(draw, chance)
        yield {
            "sweep": name,
            "varies": varies,
            "value": float(value),
            "labels": labels,
            "seed": seed,
            "permuted": permuted,
            **alike,
            **row,
            **{f"W_{letter}_singular_values": draw.uniform(0, 1, 6) for letter in LETTERS},
        }
    for n_train, n_relevant, seed in itertools.product((2, 8, 32), (2, 5), (7, 0, 3)):
        hinge = float(draw.uniform(0.1, 0.5)) if n_train < 32 else 0.15
        if (n_relevant, seed) == (5, 3):
            hinge = 0.3  # never enough
        if (n_relevant, seed) == (2, 0):
            hinge = {2: 0.1, 8: 0.05, 32: 0.0}[n_train]  # ever enough
        yield {
            "sweep": "samples",
            "varies": "n_train",
            "value": float(n_train),
            "seed": seed,
            "labels": "1|1",
            "permuted": False,
            **alike,
            "n_train": n_train,
            "n_relevant": n_relevant,
            **numbers(draw, SCORES),
            "hinge": hinge,
            "fitted_step": 3,
            "small_share": 0.2,
            "large_over_small": 2.0,
        }


def chosen(rows, column, **where):
    """A number per seed: the column in the only row of the seed that has these values."""
    rows = [row for row in rows if all(row[name] == value for name, value in where.items())]
    assert len(rows) == len({row["seed"] for row in rows})
    return {row["seed"]: row[column] for row in rows}


def each(function, *numbers):
    """The function of the numbers of each seed."""
    return {seed: function(*(of[seed] for of in numbers)) for seed in numbers[0]}


def leading(s):
    return (s[0] ** 2 + s[1] ** 2) / sum(x**2 for x in s)


def spectral(rows, summary, best, letters=LETTERS, **where):
    """A summary of the singular values of some matrices, the best (or worst) of each seed."""
    of = [
        each(summary, chosen(rows, "singular_values", matrix=f"W_{letter}", **where))
        for letter in letters
    ]
    return each(lambda *numbers: best(numbers), *of)


def wanted_of(name, rows, judged):
    """Every measure of one configuration."""
    training, spectra, truncate, directions, prune, neurons, adapt = (
        [row for row in rows[table] if row["configuration"] == name]
        for table in ("training", *TABLES[1:-1])
    )
    last = STEPS[name][-1]
    for column in ("hinge", "margin", "attention", "attention_of_relevant"):
        yield column, chosen(training, column, step=last)
    end = {"of": "update", "step": last}
    for letter in LETTERS:
        yield f"energy_{letter}", spectral(spectra, leading, max, letter, **end)
        rank = spectral(spectra, lambda s: sum(x > 0.4 * max(s) for x in s), max, letter, **end)
        yield f"numerical_rank_{letter}", rank
    for pair in ("QK", "VO"):
        yield (
            f"nuclear_tail_{pair}",
            spectral(spectra, lambda s: 1 - (s[0] + s[1]) / sum(s), max, pair, **end),
        )
    yield "gap_QK", spectral(spectra, lambda s: s[2] / s[1], max, "QK", **end)
    by_step = {
        str(step): spectral(spectra, leading, min, "QK", of="update", step=step)
        for step in (5, 12)
        if step in STEPS[name]
    }
    yield "energy_QK_by_step", by_step
    yield "gaussian_energy", spectral(spectra, leading, max, of="gaussian", step=last)

    def cut(kind, rank, column="hinge"):
        return chosen(truncate, column, kind=kind, rank=rank)

    def lost(column, kind):
        return each(lambda a, b: a - b, cut("all", RANKS[name][-1], column), cut(kind, 2, column))

    yield "rank_2_cost", each(lambda lost: -lost, lost("hinge", "all"))
    yield "rank_2_attention_lost", lost("attention", "all")
    yield "random_directions_attention_lost", lost("attention", "random directions")
    yield "rank_1_hinge", cut("all", 1)
    yield "random_directions_hinge", cut("random directions", 2)
    yield "gaussian_hinge", cut("gaussian", 9)
    yield "without_attention_hinge", cut("W_Q and W_K", 0)
    yield "rank_1_attention_hinge", cut("W_Q and W_K", 1)

    place = {"matrix": "W_K", "side": "input"}
    at_end = {**place, "step": last}
    spans = {"alignment_K": "with mean irrelevant", "alignment_without_mean": "discriminative"}
    for measure, span in spans.items():
        yield measure, chosen(directions, "alignment", span=span, **at_end)
    yield "bimodality", chosen(neurons, "bimodality")
    norms = {size: chosen(neurons, f"{size}_norm") for size in ("small", "initial")}
    yield "small_over_initial", each(lambda a, b: a / b, norms["small"], norms["initial"])
    yield from pruned(prune, judged)
    if name == "tied":
        yield "adapter_hinge", {str(rank): chosen(adapt, "hinge", rank=rank) for rank in (1, 2, 4)}
        null = {
            table: [row for row in rows[table] if row["configuration"] == "spare"]
            for table in ("spectra", "neurons", "directions")
        }
        for letter in LETTERS:
            measure = spectral(
                null["spectra"], leading, max, letter, of="update", step=STEPS["spare"][-1]
            )
            yield f"permuted_energy_{letter}", measure
        end = {"of": "update", "step": STEPS["spare"][-1]}
        for pair in ("QK", "VO"):
            tails = spectral(
                null["spectra"], lambda s: 1 - (s[0] + s[1]) / sum(s), min, pair, **end
            )
            yield f"permuted_nuclear_tail_{pair}", tails
        yield "permuted_bimodality", chosen(null["neurons"], "bimodality")
        gaps = spectral(null["spectra"], lambda s: s[2] / s[1], min, "QK", **end)
        yield "permuted_gap_QK", gaps
        where = {**place, "span": "with mean irrelevant", "step": STEPS["spare"][-1]}
        yield "permuted_alignment_K", chosen(null["directions"], "alignment", **where)
        of = spectral(null["spectra"], leading, max, "QK", of="update", step=5)
        yield "permuted_energy_QK_by_step", {"5": of}


def pruned(prune, rate):
    """The measures of pruning; `rate` is that of the neurons at which it is judged."""

    def at(order, rate):
        return chosen(prune, "hinge", what="neurons", order=order, rate=rate)

    yield "pruned_smallest", at("smallest", rate)
    yield "pruned_random", at("random", rate)
    yield "as_many_random", chosen(prune, "hinge", what="as many as small", order="random")
    yield "values", chosen(prune, "hinge", what="rows of W_V", rate=0.4)
    hinge = {
        rate: chosen(prune, "hinge", what="large neurons", rate=rate)
        for rate in (0, 0.2, 0.45, 0.7)
    }
    yield "without_small_cost", each(lambda a, b: a - b, hinge[0], at("smallest", 0))
    rises = [each(lambda a, b, R=R: (b - a) / R, hinge[0], hinge[R]) for R in (0.45, 0.7)]
    yield "large_least_rise", each(min, *rises)


def slope(points):
    """The exponent of a power law through points, NaN for one point or where a number is
    missing.
    """
    if len(points) < 2 or any(math.isnan(y) for _, y in points):
        return math.nan
    return np.polyfit(*np.log(np.array(points).T), 1)[0]


def samples(rows):
    """From how many samples on the loss stays at most 0.2, by (number of label-relevant tokens,
    seed).
    """
    found = {}
    for n_relevant, seed in itertools.product((2, 5), (0, 3, 7)):
        of = [
            row
            for row in rows
            if (row["sweep"], row["n_relevant"], row["seed"]) == ("samples", n_relevant, seed)
        ]
        losses = {row["n_train"]: row["hinge"] for row in of}
        above = max((n for n in losses if losses[n] > 0.2), default=None)
        if above is None:
            found[n_relevant, seed] = 2
        elif above == 32:
            found[n_relevant, seed] = math.nan
        else:
            x = [math.log(above), math.log({2: 8, 8: 32}[above])]
            y = [math.log(max(losses[n], 0.002)) for n in (above, {2: 8, 8: 32}[above])]
            found[n_relevant, seed] = math.exp(np.interp(-math.log(0.2), [-y[0], -y[1]], x))
    return found


def wanted_of_sweeps(rows):
    """Every measure of the sweeps."""
    slopes = {
        "slope_of_steps_in_relevant": ("relevant", "fitted_step", 0),
        "slope_of_steps_in_relevant_with_confusion": ("relevant_with_confusion", "fitted_step", 0),
        "slope_of_steps_in_step_size": ("step_size", "fitted_step", 0),
        "slope_of_third_in_patterns": ("patterns", "W_K_next", 8),
    }
    for measure, (sweep, column, least) in slopes.items():
        fitted = {}
        for seed in (0, 3, 7):
            of = [
                row
                for row in rows
                if (row["sweep"], row["seed"]) == (sweep, seed) and row["value"] >= least
            ]
            y = [row[column] for row in of]
            if column == "fitted_step":  # the number of the batch, from 1 on
                y = [math.nan if step < 0 else step + 1 for step in y]
            fitted[seed] = slope(list(zip([row["value"] for row in of], y, strict=True)))
        yield measure, fitted
    needed = samples(rows)
    yield (
        "slope_of_samples_in_relevant",
        {s: slope([(n, needed[n, s]) for n in (2, 5)]) for s in (0, 3, 7)},
    )
    where = {"sweep": "relevant_with_confusion", "value": 4}
    yield "easy_without_attention_hinge", chosen(rows, "hinge_without_attention", **where)
    clean = chosen(rows, "W_K_singular_values", sweep="noise", value=0)
    yield "beyond_patterns_without_noise", each(lambda s: s[4] / s[0], clean)
    for name in {row["sweep"] for row in rows} - {"samples"}:
        of = [row for row in rows if row["sweep"] == name]
        if of[0]["permuted"]:
            yield f"{name}_gap_QK", by_value(of, lambda row: min(row["W_Q_gap"], row["W_K_gap"]))
            continue
        columns = {
            "rank_2_cost": lambda row: row["hinge_at_rank_2"] - row["hinge"],
            "energy_QK": lambda row: min(row["W_Q_energy"], row["W_K_energy"]),
            "gap_QK": lambda row: max(row["W_Q_gap"], row["W_K_gap"]),
        }
        own = ("small_share", "large_over_small")
        if of[0]["varies"] == "labels":
            own = ("hinge_at_rank_below", "hinge_at_rank_k")
            columns["energy_2_VO"] = lambda row: min(row["W_V_energy_2"], row["W_O_energy_2"])
        columns |= {key: (lambda row, key=key: row[key]) for key in own}
        for key, measure in columns.items():
            yield f"{name}_{key}", by_value(of, measure)


def by_value(rows, measure):
    """A number of each row, by the value that varies and the seed."""
    found = {}
    for row in rows:
        found.setdefault(f"{row['value']:g}", {})[row["seed"]] = measure(row)
    return found


@pytest.fixture
def evaluated(stage, tmp_path):
    """The made rows, and the folder in which the stage ran on them."""
    rows = made_tables()
    for name in SEEDS:
        steps = [row for row in rows["training"] if row["configuration"] == name]
        cell = {"configuration": name, "readout": f"{name} one", "labels": "given"}
        layout = {
            "family": "low_rank_sparse",
            "matrices": {"W": ["row", "col"]},
            "cell": cell,
            "seeds": SEEDS[name],
        }
        own = [{key: value for key, value in row.items() if key not in cell} for row in steps]
        write_run(
            tmp_path / "runs" / name, layout, [{"W": torch.zeros(1, 1)}] * len(STEPS[name]), own
        )
    for name in TABLES:
        pd.DataFrame(rows[name]).to_parquet(tmp_path / f"{name}.parquet")
    runs, metrics, curves = (tmp_path / name for name in ("runs", "metrics", "curves.csv"))
    data = [tmp_path / f"{name}.parquet" for name in TABLES]
    stage(
        "low_rank_sparse.evaluate",
        {SECTION: PARAMS, **OTHERS},
        SECTION,
        *OTHERS,
        runs,
        data,
        metrics,
        curves,
    )
    return rows, tmp_path


def wanted(rows):
    found = dict(wanted_of_sweeps(rows["sweep"]))
    rates = {"tied": 0.3, "untied": 0.1}
    for name, judged in rates.items():
        found |= {f"{name}_{measure}": values for measure, values in wanted_of(name, rows, judged)}
    return found


def test_every_measure_is_what_its_rows_say_and_every_claim_reads_one_of_them(evaluated):
    rows, folder = evaluated
    measures, summary = (
        json.loads((folder / "metrics" / f"{name}.json").read_text())
        for name in ("measures", "summary")
    )
    expected, setup = wanted(rows), measures.pop("setup")
    assert setup["n_patterns"] == 5
    assert (setup["fitted_loss"], setup["swept_fitted_loss"], setup["rtol"]) == (0.02, 0.3, 0.4)
    assert (setup["tied_pruning_rate"], setup["tied_steps"], setup["tied_seeds"]) == (0.28, 9, 3)
    assert measures.keys() == summary.keys() == expected.keys()
    for name, wanted_values in expected.items():
        by_scale = any(isinstance(value, dict) for value in wanted_values.values())
        found = measures[name] if by_scale else {"": measures[name]}
        assert list(found) == sorted(found, key=lambda scale: float(scale or 0))
        for scale, of_seeds in (wanted_values if by_scale else {"": wanted_values}).items():
            cases, values = found[scale]["cases"], found[scale]["values"]
            values = [math.nan if value is None else value for value in values]
            by_seed = dict(zip(map(int, cases), values, strict=True))
            assert list(by_seed) == sorted(by_seed)
            assert by_seed == pytest.approx(of_seeds, rel=6e-6, abs=1e-9, nan_ok=True), (
                name,
                scale,
            )
        last = wanted_values[list(found)[-1]] if by_scale else wanted_values
        values = list(last.values())
        mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
        found = {key: math.nan if value is None else value for key, value in summary[name].items()}
        assert found == pytest.approx(
            {"mean": mean, "sd": deviation}, rel=6e-6, abs=1e-9, nan_ok=True
        ), name
    committed = json.loads((ROOT / "metrics/low_rank_sparse/measures.json").read_text())
    families = read_families([ROOT / "stages/low_rank_sparse/claims.yaml"])
    claims = [claim for *_, claim in claims_of(families["low_rank_sparse"])]
    read = {
        MEASURE.fullmatch(measure)[2]
        for claim in claims
        for measure in (*claim.measures.values(), *claim.nulls.values())
    }
    assert len(read) > 40
    assert read <= committed.keys()
    assert {name for name in read if name.startswith("tied_")} <= expected.keys()


def test_the_tables_are_kept_in_32_bits_and_the_curves_are_means_over_seeds(evaluated):
    rows, folder = evaluated
    expected = {name: pd.DataFrame(rows[name]) for name in TABLES}
    matrices = expected["spectra"]["matrix"].isin(["W_Q", "W_K", "W_V", "W_O"])
    kept = ["configuration", "matrix", "of", "step", "seed", "singular_values"]
    spectra = expected["spectra"][matrices & (expected["spectra"]["of"] != "initial")][kept]
    ranks = [sum(s > 0.4 * max(sigma) for s in sigma) for sigma in spectra["singular_values"]]
    expected["spectra"] = spectra.assign(numerical_rank=ranks)
    sweep = expected["sweep"][expected["sweep"]["sweep"] != "samples"].dropna(axis=1, how="all")
    fitted = sweep["fitted_step"].where(sweep["fitted_step"] >= 0) + 1
    del expected["directions"]  # measured, and in no figure
    needed = [("samples", n, 9, seed, value) for (n, seed), value in samples(rows["sweep"]).items()]
    expected["samples"] = pd.DataFrame(
        needed, columns=["sweep", "n_relevant", "seq_len", "seed", "n_needed"]
    )
    sweep = sweep.assign(n_batches=fitted)
    in_fit = [
        name != "patterns" or value >= 8
        for name, value in zip(sweep["sweep"], sweep["value"], strict=True)
    ]
    expected["sweep"] = sweep.assign(in_fit=in_fit)
    training = [
        row for name in sorted(SEEDS) for row in rows["training"] if row["configuration"] == name
    ]
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
    written += [f"metrics/{name}.json" for name in ("headlines", "measures", "summary")]
    written += ["curves.csv", "params.yaml", *runs]
    written += [f"{name}.parquet" for name in TABLES]
    assert files(folder) == sorted(written)
    curves = pd.read_csv(folder / "curves.csv").set_index(["variant", "step"])
    assert sorted(curves.index) == sorted(
        (name, step) for name, steps in STEPS.items() for step in steps
    )
    assert sorted(curves) == ["attention_of_relevant", "hinge"]
    for (name, step), row in curves.iterrows():
        for column, value in row.items():
            of_seeds = chosen(rows["training"], column, configuration=name, step=step).values()
            assert value == pytest.approx(sum(of_seeds) / len(of_seeds), rel=6e-6)
