"""The stage evaluate: every measure, table and curve, counted row by row from made tables."""

import math
from itertools import islice

import numpy as np
import pandas as pd
import pytest

from tests.low_rank_sparse.low_rank_sparse_made import chosen
from tests.low_rank_sparse.low_rank_sparse_tables import MATRICES, STEPS, SWEEPS
from tests.stages.made import read_measures

DECADES = {"0.03": (0.03, 0.1, 0.3), "0.3": (0.3, 1, 3)}  # each with its step sizes
RATES = {"untied": 0.1, "tied": 0.3}  # the nearest in the tables


def energy(s):
    return sum(s[:2] ** 2) / sum(s**2)


def gap(s):
    return s[2] / s[1]


def nuclear_tail(s):
    return sum(s[2:]) / sum(s)


def rank(s):
    return sum(s > 0.4 * s[0])


def sigma(tables, summary, letters, **where):
    """A summary of the singular values of each matrix."""
    found = {
        x: chosen(tables["spectra"], "singular_values", matrix=f"W_{x}", **where) for x in letters
    }
    return pd.DataFrame(found).map(summary)


def of_updates(tables, step, worst, name):
    """What is measured of the updates on the labels and on permuted ones, the worst of two."""
    where = {"of": "update", "step": step}
    found = {f"energy.{name} W_{x}": sigma(tables, energy, x, **where)[x] for x in "QKVO"}
    for pair in ("W_Q and W_K", "W_V and W_O"):
        tails = sigma(tables, nuclear_tail, (pair[2], pair[-1]), **where)
        found[f"nuclear_tail.{name} {pair}"] = tails.agg(worst, axis=1)
    found[f"gap.{name}"] = sigma(tables, gap, "QK", **where).agg(worst, axis=1)
    aligned = chosen(tables["directions"], "alignment", span="with mean irrelevant")
    found[f"alignment_K.{name}"] = aligned
    return found | {f"bimodality.{name}": chosen(tables["neurons"], "bimodality")}


def wanted_of(name, tables):
    """Every measure of one configuration, by MEASURE.CASE."""
    own = {key: table for key, table in tables.items() if key != "sweep"}
    of, null = (
        {key: table[table["configuration"] == one] for key, table in own.items()}
        for one in (name, "spare")
    )
    last = STEPS[name][-1]
    by_matrix = of_updates(of, last, "max", name)
    for letter in "QKVO":
        ranks = sigma(of, rank, letter, of="update", step=last)
        by_matrix[f"numerical_rank.{name} W_{letter}"] = ranks[letter]
    found = {"hinge": chosen(of["training"], "hinge", step=last)}
    found["gaussian_energy"] = sigma(of, energy, "QKVO", of="gaussian", step=last).max(axis=1)
    step = 5 if name == "tied" else 12
    energies = sigma(of, energy, "QK", of="update", step=step)
    found["energy_by_step"] = {str(step): energies.min(axis=1)}

    def cut(kind, rank, column="hinge"):
        return chosen(of["truncate"], column, kind=kind, rank=rank)

    def pruned(what, order, rate):
        return chosen(of["prune"], "hinge", what=what, order=order, rate=rate)

    whole = cut("all", 20, "attention")
    neurons = of["neurons"].set_index("seed").sort_index()
    large = {rate: pruned("large neurons", "random", rate) for rate in (0, 0.45, 0.7)}
    small = {rate: pruned("small neurons", "random", rate) for rate in (0, 1)}
    found |= {
        "rank_2_cost": cut("all", 2) - cut("all", 20),
        "rank_2_attention_lost": whole - cut("all", 2, "attention"),
        "random_directions_attention_lost": whole - cut("random directions", 2, "attention"),
        "rank_1_hinge": cut("all", 1),
        "random_directions_hinge": cut("random directions", 2),
        "gaussian_hinge": cut("gaussian", 99),
        "without_attention_hinge": cut("W_Q and W_K", 0),
        "rank_1_attention_hinge": cut("W_Q and W_K", 1),
        "alignment_without_mean": chosen(of["directions"], "alignment", span="discriminative"),
        "small_over_initial": neurons["small_norm"] / neurons["initial_norm"],
        "pruned_smallest": pruned("neurons", "smallest", RATES[name]),
        "pruned_random": pruned("neurons", "random", RATES[name]),
        "as_many_random": pruned("as many as small", "random", 1),
        "values": pruned("rows of W_V", "smallest", 0.4),
        "without_small_cost": large[0] - pruned("neurons", "smallest", 0),
        "large_least_rise": np.minimum(*((large[r] - large[0]) / r for r in (0.45, 0.7))),
        "small_least_rise": small[1] - small[0],
    }
    if name == "tied":
        ranks = (1, 2, 4)
        found["adapter_hinge"] = {str(r): chosen(of["adapt"], "hinge", rank=r) for r in ranks}
        permuted = of_updates(null, 20, "min", name)
        by_matrix |= {f"permuted_{key}": of for key, of in permuted.items()}
        of_5 = sigma(null, energy, "QK", of="update", step=5).max(axis=1)
        found["permuted_energy_by_step"] = {"5": of_5}
    return by_matrix | {f"{key}.{name}": values for key, values in found.items()}


def slope(x, y):
    """The exponent of a power law, NaN for one point or where a number is missing."""
    known = len(x) > 1 and min(y) > 0
    return np.polyfit(np.log(x), np.log(y), 1)[0] if known else math.nan


def slopes(rows, column="fitted_step"):
    """The exponent of each seed in what varies."""
    return pd.Series({s: slope(of["value"], of[column]) for s, of in rows.groupby("seed")})


def in_random_order(rows, name):
    """The rows with the numbers of batches of each seed in the first order that its generator draws
    in which none is in its own place.
    """
    rows = rows.sort_values(["seed", "value"])
    counts = []
    for seed, of in rows.groupby("seed"):
        draw = np.random.default_rng([seed, *name.encode()])
        orders = (draw.permutation(len(of)).tolist() for _ in range(1000))
        [order] = islice((o for o in orders if all(i != j for i, j in enumerate(o))), 1)
        counts += of["fitted_step"].to_numpy()[order].tolist()
    return rows.assign(fitted_step=counts)


def samples_needed(table):
    """The number of samples at which the loss falls to 0.2, by sweep, n_relevant and seed: the
    logarithm of it is linear in that of the loss between two numbers that were tried.
    """
    found = {}
    rows = table[table["varies"] == "n_train"]
    for key, of in rows.groupby(["sweep", "n_relevant", "seed"]):
        x = np.log([2, 8, 32])
        y = np.log(of.sort_values("n_train")["hinge"])
        low = np.log(0.2)
        found[key] = math.exp(np.interp(-low, -y, x)) if y.iloc[-1] <= low else math.nan
    return pd.Series(found)


def wanted_of_sweeps(table):
    """Every measure of the sweeps."""
    batches = table.assign(fitted_step=table["fitted_step"] + 1)  # 0 where none was fitted
    sweeps = dict(list(batches.groupby("sweep")))
    patterns = sweeps["patterns"][sweeps["patterns"]["value"] >= 8]
    needed = samples_needed(table)
    confused = sweeps["relevant_with_confusion"]
    inside = confused[
        confused["value"] >= 6
    ]  # one confusion token, and more than 2e = 5.4 relevant ones
    outside = confused[confused["value"] < 6]
    found = {
        "slope_of_third": slopes(patterns, "W_K_next"),
        "slope_of_steps_outside_the_condition": slopes(outside),
    }
    for measure, change in (
        ("slope_of_steps", lambda of, _: of),
        ("shuffled_slope_of_steps", in_random_order),
    ):
        found[f"{measure}.relevant"] = slopes(change(sweeps["relevant"], "relevant"))
        found[f"{measure}.relevant_with_confusion"] = slopes(
            change(inside, "relevant_with_confusion")
        )
        sizes = change(sweeps["step_size"], "step_size")
        found[f"{measure}.step_size"] = {
            least: slopes(sizes[sizes["value"].isin(of)]) for least, of in DECADES.items()
        }
    for name in ("samples", "samples_with_confusion"):
        of_seeds = {s: slope([2, 5], needed[name, :, s]) for s in (0, 3, 7)}
        found[f"slope_of_samples.{name}"] = pd.Series(of_seeds)
    clean = chosen(sweeps["noise"], "W_K_singular_values", value=0)
    found["beyond_patterns_without_noise"] = clean.map(lambda s: s[4] / s[0])
    for name in SWEEPS:
        rows = sweeps[name]
        gaps = rows[["W_Q_gap", "W_K_gap"]]
        energies = rows[["W_V_energy_2", "W_O_energy_2"]].min(axis=1)
        columns = {
            "swept_energy": rows[["W_Q_energy", "W_K_energy"]].min(axis=1),
            "swept_gap": gaps.max(axis=1),
        }
        more = ["small_share", "large_over_small"] if name in ("init_scale", "n_neurons") else []
        if name in ("classes_tied", "classes_untied", "grouped"):
            more = ["hinge_at_rank_below", "hinge_at_rank_k"]
            columns["swept_rank_2_cost"] = rows["hinge_at_rank_2"] - rows["hinge"]
            columns["swept_energy_2_of_values"] = energies
        columns |= {key: rows[key] for key in more}
        if name == "classes_tied_permuted":
            columns = {"swept_gap": gaps.min(axis=1)}
        for key, column in columns.items():
            found[f"{key}.{name}"] = {
                f"{value:g}": chosen(rows.assign(of=column), "of", value=value)
                for value in sorted(rows["value"].unique())
            }
    return found


def test_every_measure_is_what_its_rows_say(evaluated):
    tables, folder = evaluated
    _, found = read_measures(folder)
    wanted = wanted_of_sweeps(tables["sweep"])
    wanted |= wanted_of("tied", tables) | wanted_of("untied", tables)
    assert found.keys() == wanted.keys()
    for name, measure in wanted.items():
        scales = measure if isinstance(measure, dict) else {"": measure}
        assert list(found[name]) == list(scales), name
        for scale, values in scales.items():
            known = pd.Series(found[name][scale], dtype=float)
            assert list(known.index) == list(map(str, values.index))
            wanted_values = pytest.approx(values.tolist(), rel=6e-6, abs=1e-9, nan_ok=True)
            assert known.tolist() == wanted_values, (name, scale)


def test_claims_are_told_the_sizes_of_what_was_measured(evaluated):
    setup, _ = read_measures(evaluated[1])
    wanted = {
        "n_patterns": "5",
        "seq_len": "9",
        "n_train": "30",
        "n_neurons": "13",
        "batch_size": "6",
        "fitted_loss": "0.02",
        "swept_fitted_loss": "0.3",
        "generalised_loss": "0.2",
        "corollary_from": "0.45",
        "judged_steps": "5, 12, 99",
        "values_rate": "0.4",
        "permuted.tied": "spare",
        "pruning_rate.tied": "0.28",
        "n_seeds.tied": "3",
        "permuted.untied": "absent",
        "pruning_rate.untied": "0.12",
        "n_seeds.untied": "2",
    }
    assert setup == wanted


def test_the_tables_of_figures_hold_what_was_read_in_32_bits(evaluated, kept):
    tables = evaluated[0]
    spectra = tables["spectra"]
    shown = spectra["matrix"].isin(MATRICES) & (spectra["of"] != "initial")
    names = ("losses", "truncate", "prune", "neurons", "adapt")
    wanted = {name: tables[name] for name in names}
    wanted["spectra"] = spectra[shown]
    sweep = tables["sweep"][tables["sweep"]["varies"] != "n_train"]
    wanted["sweep"] = sweep.drop(columns="of_samples_alone")  # which no table in git has
    assert set(kept) == {*wanted, "training", "samples"}
    for name, table in wanted.items():
        assert len(kept[name]) == len(table)
        assert set(kept[name]) >= set(table)
        for column, values in table.select_dtypes("number").items():
            np.testing.assert_allclose(kept[name][column], values, rtol=1e-6)
            assert str(kept[name][column].dtype) in ("float32", "int32")
    assert "of_samples_alone" not in kept["sweep"]
    assert len(kept["training"]) == len(tables["training"])
    assert set(kept["training"]) == {*tables["training"], "readout"}


def test_the_tables_of_figures_have_what_is_counted_too(evaluated, kept):
    ranks = [rank(sigma) for sigma in kept["spectra"]["singular_values"]]
    assert kept["spectra"]["numerical_rank"].tolist() == ranks
    sweep = kept["sweep"]
    assert set(sweep["fitted_step"]) > {-1, 0}
    batches = (sweep["fitted_step"] + 1).where(sweep["fitted_step"] >= 0)
    np.testing.assert_allclose(sweep["n_batches"], batches)
    in_fit = (sweep["sweep"] != "patterns") | (sweep["value"] >= 8)
    in_fit &= (sweep["sweep"] != "relevant_with_confusion") | (sweep["value"] >= 6)
    assert sweep["in_fit"].tolist() == in_fit.tolist()
    needed = kept["samples"].set_index(["sweep", "n_relevant", "seed"])["n_needed"]
    wanted = samples_needed(evaluated[0]["sweep"]).to_dict()
    assert needed.to_dict() == pytest.approx(wanted, nan_ok=True)


def test_the_curves_are_means_over_seeds(evaluated):
    tables, folder = evaluated
    by_step = tables["training"].groupby(["configuration", "step"])
    means = by_step[["hinge", "attention_of_relevant"]].mean()
    found = pd.read_csv(folder / "curves.csv").set_index(["variant", "step"])
    assert list(found.index) == list(means.index)
    np.testing.assert_allclose(found[list(means)], means, rtol=6e-6)
