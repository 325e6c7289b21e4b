"""What is measured of runs on decision lists: a value for every case, by its name, from the tables
of the runs.

A table that is not there was not run: what would be measured of it is left out.
"""

import math
from typing import Any

import numpy as np
import pandas as pd

Tables = dict[str, pd.DataFrame]
Measures = dict[str, pd.Series | dict[str, pd.Series]]


def with_ties(theorem: pd.DataFrame) -> pd.DataFrame:
    """Runs whose first velocity ties to rounding are right at once too: their rescaled time T c² is
    rounding alone.
    """
    return theorem.assign(
        at_once=theorem["at_once"] | (theorem["first_time"] * theorem["scale"] ** 2 < 1e-6)
    )


def lemma_ratios(table: pd.DataFrame, number: int) -> pd.DataFrame:
    """The ratio of the sides of every case of a lemma, counted in bins of its logarithm, with the
    least of each.
    """
    ratio = table["derivative"] / table["bound"]
    bins = np.floor(np.log10(ratio.clip(lower=1e-12)) * 20).astype(int)
    counted = ratio.groupby(bins).agg(["size", "min"]).reset_index(names="bin")
    return counted.assign(lemma=number, violations=int((ratio < 1 - 1e-12).sum()), cases=len(ratio))


def late_losses(
    theorem: pd.DataFrame, paths: pd.DataFrame, constants: dict[str, float]
) -> pd.DataFrame:
    r"""The loss of the runs that go on to the bound, there: times $c^2 t$, its limit, and its
    exponent.

    The exponent is that of the last decade of time, the loss being interpolated in logarithms.
    `constants` has the limit of each task (`late_loss_constant`), NaN where it is not known.
    """
    rows = []
    for run in theorem[theorem["perfect_at_bound"].notna()].to_dict("records"):
        path = paths[(paths["task"] == run["task"]) & (paths["time"] > 0)]
        times = np.log([run["bound"] / 10, run["bound"]])
        before, after = np.interp(times, np.log(path["time"]), np.log(path["loss"]))
        rescaled = run["bound"] * run["scale"] ** 2
        row = {
            "task": run["task"],
            "law": run["law"],
            "rescaled_time": rescaled,
            "slope": (after - before) / math.log(10),
        }
        rows.append(
            row | {"loss_times_time": math.exp(after) * rescaled, "limit": constants[run["task"]]}
        )
    return pd.DataFrame(rows)


def last_of_runs(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The last row of every run, named by the keys, with the steps at which it was right, and
    certified on the sets of tokens and on all, for the first time: NaN where it never was.
    """
    found = table.groupby(keys, sort=True).tail(1).set_index(keys)
    for name, right in (
        ("first_right", table["accuracy"] == 1.0),
        ("first_certified_sets", table["certified_sets"]),
        ("first_certified_all", table["certified_all"]),
    ):
        found[name] = table[right.astype(bool)].groupby(keys)["step"].min()
    return found.reset_index()


def thinned(path: pd.DataFrame, kept: int, *, logarithmic: bool = False) -> pd.DataFrame:
    """At most as many rows of a course as are `kept`, the first and the last among them, evenly
    spaced.

    Or evenly in the logarithm of their number, counted from 1.
    """
    rows = (
        np.geomspace(1, len(path), kept) - 1 if logarithmic else np.linspace(0, len(path) - 1, kept)
    )
    return path.iloc[np.unique(rows.round().astype(int))]


def flow_measures(tables: Tables) -> Measures:
    """When all is right at the theorem's scale over its bound, and what else is said of these
    flows.
    """
    found: Measures = {}
    if "theorem" in tables:
        theorem = tables["theorem"]
        not_exchangeable = (theorem["law"] != "uniform") & ~theorem["at_once"]
        again = theorem[theorem["lost"] > 0].set_index("task")
        found |= {
            "theorem_ratio": _ratios(theorem.set_index("task")),
            "theorem_share_learned_and_not_exchangeable": _over_all(not_exchangeable.mean()),
            "theorem_perfect_at_bound": theorem.set_index("task")["perfect_at_bound"].dropna(),
            "theorem_runs_that_lose_it": _over_all(len(again)),
            "theorem_regained_over_bound": (again["regained_time"] / again["bound"]).fillna(
                math.inf
            ),
            "theorem_largest_rise": _over_all(theorem["largest_rise"].max()),
            "theorem_largest_attention": _over_all(theorem["largest_attention"].max()),
        }
    if "late" in tables:
        late = tables["late"].set_index("task")
        found["late_slope"] = late["slope"]
        found["late_loss_over_limit"] = (late["loss_times_time"] / late["limit"]).dropna()
    if "gamma" in tables:
        by_gamma = tables["gamma"].set_index("task").groupby("gamma")
        found["gamma_ratio"] = {
            f"{gamma:.6g}": _ratios(runs) for gamma, runs in reversed(list(by_gamma))
        }
    if "many" in tables:
        many = tables["many"]
        sizes = zip(many["n_tokens"], many["seq_len"], many["length"], strict=True)
        found["many_ratio"] = _ratios(
            many.set_axis([f"L = {L}, n = {n}, M = {M}" for L, n, M in sizes])
        )
    if "repeats" in tables:
        found["repeats_right"] = tables["repeats"].set_index("task")["first_time"].notna()
    return found


def law_measures(tables: Tables, law_from: float) -> Measures:
    """From the scale `law_from` on: how the time nears its limit, and the path the limit's, as
    powers of the scale.
    """
    if "law" not in tables:
        return {}
    law = tables["law"][~tables["law"]["at_once"]]
    limit = law[np.isinf(law["scale"])].set_index("task")["rescaled_time"]
    large = law[np.isfinite(law["scale"]) & (law["scale"] >= law_from)]
    if not len(large):
        return {}
    off = (large["rescaled_time"] / large["task"].map(limit) - 1).abs()
    found: Measures = {}
    for name, values in {"law_time_slope": off, "law_error_slope": large["path_error"]}.items():
        by = large.assign(value=values).pivot_table(index="task", columns="scale", values="value")
        if len(by.columns) > 1:
            decades = math.log(float(by.columns.max()) / float(by.columns.min()))
            found[name] = pd.Series(np.log(by.iloc[:, -1] / by.iloc[:, 0])) / decades
    return found


def descent_measures(tables: Tables) -> Measures:
    """When all is right by gradient descent, over the bounds; what the theorems assume and conclude
    on the way.
    """
    found: Measures = {}
    if "alone" in tables:
        alone = tables["alone"].set_index("task")
        found |= {
            "alone_ratio": (alone["n_steps"] / alone["bound"]).where(alone["margin"] > 0, math.inf),
            "alone_failures": alone["failures"],
            "alone_step_times_curvature": alone[["step_times_curvature", "on_a_finer_grid"]].max(
                axis=1
            ),
        }
    if "both" in tables:
        both = tables["both"].set_axis(
            tables["both"]["task"].astype(str) + ", " + tables["both"]["noise"].astype(str)
        )
        met, uniform = both[both["preconditions"]], both["law"] == "uniform"
        found |= {
            "both_met": both["preconditions"],
            "both_step_times_curvature": both[["step_times_curvature", "on_a_finer_grid"]].max(
                axis=1
            ),
            "both_grid_change": both["on_a_finer_grid"] / both["step_times_curvature"] - 1,
            "both_ratio": (met["n_steps"] / met["earliest"]).where(met["margin"] > 0, math.inf),
            "both_failures": met["failures"],
            "both_deviation": met["deviation"] / met["epsilon"],
            "both_V_moved": met["V_moved"] / met["epsilon"],
            "both_curvature_growth": met["curvature_growth"],
            "both_steps": both["n_steps"][~uniform],
            "both_steps_uniform": both["n_steps"][uniform],
        }
    return found


def check_measures(tables: Tables) -> Measures:
    """How certificates and lemmas fare on random cases, the constants by hand, and which lengths
    are feasible.
    """
    cases, feasible = (
        tables["certificates"],
        tables["feasible"].set_index("length").rename("M = {}".format),
    )
    least = tables["lemmas"].groupby("lemma")["min"].min()
    tokens = cases["repeats"].map({True: "with repeats", False: "distinct tokens"})
    right = cases["right"].groupby(cases["certificate"] + ", " + tokens).mean()
    noise = tables["monte_carlo"].groupby("n_samples")["error"].mean()
    slope = np.log(noise.iloc[-1] / noise.iloc[0]) / np.log(noise.index.max() / noise.index.min())
    constants = tables["constants"].set_index(
        tables["constants"]["task"] + ", " + tables["constants"]["constant"]
    )
    represent = tables["represent"]
    return {
        "certificates_agree": _over_all((cases["certified"] == cases["right"]).mean()),
        "certificates_rarer_outcome": pd.Series(np.minimum(right, 1 - right)),
        "represent_difference": _over_all((represent["margin"] - represent["wanted"]).abs().max()),
        "lemma_1_ratio": _over_all(least[1]),
        "lemma_2_ratio": _over_all(least[2]),
        "constants_over_hand": constants["found"] / constants["by_hand"],
        "least_n_over_closed_form": feasible["least_n"] - feasible["closed_form"],
        "monte_carlo_slope": _over_all(slope),
    }


def training_measures(tables: Tables) -> Measures:
    """What training beyond the theorems reaches, and what controls do."""
    found: Measures = {
        "joint_certified_all": tables["joint"].groupby("seed")["certified_all"].mean(),
        "minibatch_certified_sets": tables["minibatch"]
        .groupby("seed")
        .tail(1)
        .set_index("seed")["certified_sets"],
    }
    if "starts" in tables:
        right = (tables["starts"]["accuracy"] == 1.0).groupby(tables["starts"]["start"]).mean()
        found["failing_starts"] = _over_all((right == 0).sum())
    if "alignment" in tables:
        alignment = tables["alignment"].sort_values(["task", "step"])
        end = alignment[alignment["step"] == alignment["step"].max()].set_index("task")
        first = alignment[alignment["step"] == 1].set_index("task")
        along = (alignment["along_P"] * alignment["step"]).groupby(alignment["task"], sort=False)
        growth = along.agg(lambda path: float(np.diff(path, prepend=0).min()))
        repeats = end["repeats"].astype(bool).reindex(growth.index)
        found |= {
            "alignment_first": first["along_P"] - first["least_rate"],
            "alignment_growth": growth[~repeats],
            "alignment_growth_with_repeats": growth[repeats],
            "alignment_argmax": end["argmax_right"],
            "alignment_cosine": end["cosine"],
            "alignment_centred_cosine": end["centred_cosine"],
        }
    if "controls" in tables:
        controls = tables["controls"].pivot_table(
            index="task", columns="control", values="accuracy"
        )
        found |= {f"control_{_name(str(control))}": controls[control] for control in controls}
    return found


def spectral_measures(tables: Tables) -> Measures:
    """The rank of W early and late, what its largest entries suffice for, and how much longer
    sequences may be.
    """
    spectra, trained, lengths = tables["spectra"], tables["trained"], tables["lengths"]
    uniform = spectra["law"] == "uniform"
    excess = (spectra["numerical_rank"] - spectra["expected_rank"]).abs()
    late = spectra[~uniform & (spectra["time"] == spectra["time"].max())]
    trained = trained.set_index(trained["task"] + ", seed " + trained["seed"].astype(str))
    last = lengths[lengths["time"] == lengths["time"].max()].set_index("task")
    found: Measures = {
        "kept_in_gauge_over_list_entries": trained["kept_in_gauge"] - trained["list_entries"],
        "kept_raw_over_list_entries": trained["kept_raw"] - trained["list_entries"],
        "longest_over_trained": last["longest"] - last["seq_len"],
        "late_rank_with_heads": late.set_index("task")["numerical_rank"],
    }
    for name, of_it in {
        "early_rank_over_heads": ~uniform,
        "early_rank_uniform_over_full": uniform,
    }.items():
        if (spectra["early"] & of_it).any():
            found[name] = _over_all(excess[spectra["early"] & of_it].max())
    return {name: one for name, one in found.items() if isinstance(one, dict) or len(one)}


def _ratios(runs: pd.DataFrame) -> pd.Series:
    """The time at which all is right over the bound, infinite where it never is, of runs not right
    at once.
    """
    learned = runs[~runs["at_once"]]
    return (learned["first_time"] / learned["bound"]).fillna(math.inf)


def _name(text: str) -> str:
    """The text as a name of a measure."""
    return "_".join("".join(c if c.isalnum() else " " for c in text).lower().split())


def _over_all(value: Any) -> pd.Series:
    """A measure of all cases together."""
    return pd.Series({"all": float(value)})
