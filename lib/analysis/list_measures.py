"""What is measured of runs on decision lists: a value for every case, by its name, from the tables of the runs."""

import math
from typing import Any

import numpy as np
import pandas as pd

Tables = dict[str, pd.DataFrame]
Measures = dict[str, pd.Series]


def with_ties(theorem: pd.DataFrame) -> pd.DataFrame:
    """Runs whose first velocity ties to rounding are right at once too: their rescaled time T c² is rounding alone."""
    return theorem.assign(at_once=theorem["at_once"] | (theorem["first_time"] * theorem["scale"] ** 2 < 1e-6))


def lemma_ratios(table: pd.DataFrame, number: int) -> pd.DataFrame:
    """The ratio of the sides of every case of a lemma, counted in bins of its logarithm, with the least of each."""
    ratio = table["derivative"] / table["bound"]
    bins = np.floor(np.log10(ratio.clip(lower=1e-12)) * 20).astype(int)
    counted = ratio.groupby(bins).agg(["size", "min"]).reset_index(names="bin")
    return counted.assign(lemma=number, violations=int((ratio < 1 - 1e-12).sum()), cases=len(ratio))


def flow_measures(tables: Tables, law_from: float) -> Measures:
    """When all is right, over the theorem's bound and, from the scale `law_from` on, over the limit of large scales."""
    theorem, law = tables["theorem"], tables["law"]
    learned = theorem[~theorem["at_once"]].set_index("task")
    ratio = (learned["first_time"] / learned["bound"]).fillna(math.inf)
    not_exchangeable = (theorem["law"] != "uniform") & ~theorem["at_once"]
    limit = law[np.isinf(law["scale"])].set_index("task")["rescaled_time"]
    large = law[np.isfinite(law["scale"]) & (law["scale"] >= law_from)]
    time_ratio = large["rescaled_time"].fillna(math.inf) / large["task"].map(limit)
    errors = large.pivot_table(index="task", columns="scale", values="path_error")
    decades = math.log(float(errors.columns.max()) / float(errors.columns.min()))
    many = tables["many"][~tables["many"]["at_once"]]
    sizes = zip(many["n_tokens"], many["seq_len"], many["length"], strict=True)
    many = many.set_axis([f"L = {L}, n = {n}, M = {M}" for L, n, M in sizes])
    return {
        "theorem_ratio": ratio,
        "theorem_ratio_median": _over_all(ratio.median()),
        "theorem_runs": _over_all(len(theorem)),
        "theorem_share_learned_and_not_exchangeable": _over_all(not_exchangeable.mean()),
        "theorem_perfect_at_bound": theorem.set_index("task")["perfect_at_bound"].dropna(),
        "theorem_lost": _over_all((theorem["lost"] > 0).sum()),
        "theorem_largest_rise": _over_all(theorem["largest_rise"].max()),
        "theorem_largest_attention": _over_all(theorem["largest_attention"].max()),
        "law_time_over_limit": time_ratio.set_axis(large["task"] + ", c = " + large["scale"].map("{:g}".format)),
        "law_error_slope": pd.Series(np.log(errors.iloc[:, -1] / errors.iloc[:, 0])) / decades,
        "many_ratio": (many["first_time"] / many["bound"]).fillna(math.inf),
        "repeats_right": tables["repeats"].set_index("task")["first_time"].notna(),
    }


def descent_measures(tables: Tables) -> Measures:
    """When all is right by gradient descent, over the bounds; what the theorems assume and conclude on the way."""
    alone, met = tables["alone"].set_index("task"), tables["both"][tables["both"]["preconditions"]]
    met = met.set_axis(met["task"] + ", " + met["noise"])
    return {
        "alone_ratio": (alone["n_steps"] / alone["bound"]).where(alone["margin"] > 0, math.inf),
        "alone_failures": alone["failures"],
        "both_runs": _over_all(len(met)),
        "both_list_lengths": _over_all(met["length"].nunique()),
        "both_ratio": (met["n_steps"] / met["earliest"]).where(met["margin"] > 0, math.inf),
        "both_certified": met["margin"] > 0,
        "both_failures": met["failures"],
        "both_deviation": met["deviation"] / met["epsilon"],
        "both_residual": met["residual"],
        "both_curvature_growth": met["curvature_growth"],
        "both_V_moved": met["V_moved"] / met["epsilon"],
    }


def certificate_measures(tables: Tables) -> Measures:
    """How certificates and lemmas fare on random cases, and which lengths are feasible."""
    cases, feasible = tables["certificates"], tables["feasible"].set_index("length").rename("M = {}".format)
    least = tables["lemmas"].groupby("lemma")["min"].min()
    tokens = cases["repeats"].map({True: "with repeats", False: "distinct tokens"})
    right = cases["right"].groupby(cases["certificate"] + ", " + tokens).mean()
    noise = tables["monte_carlo"].groupby("n_samples")["error"].mean()
    slope = np.log(noise.iloc[-1] / noise.iloc[0]) / np.log(noise.index.max() / noise.index.min())
    return {
        "certificates_agree": _over_all((cases["certified"] == cases["right"]).mean()),
        "certificates_cases": _over_all(cases.groupby("certificate").size().min()),
        "certificates_rarer_outcome": pd.Series(np.minimum(right, 1 - right)),
        "lemma_1_ratio": _over_all(least[1]),
        "lemma_2_ratio": _over_all(least[2]),
        "least_n_over_closed_form": feasible["least_n"] - feasible["closed_form"],
        "monte_carlo_slope": _over_all(slope),
    }


def training_measures(tables: Tables) -> Measures:
    """What training beyond the theorems reaches, and what controls do."""
    starts, alignment = tables["starts"], tables["alignment"]
    end = alignment[alignment["step"] == alignment["step"].max()].set_index("task")
    controls = tables["controls"].pivot_table(index="task", columns="control", values="accuracy")
    right = (starts["accuracy"] == 1.0).groupby(starts["start"]).mean()
    return {
        "joint_certified_all": tables["joint"].groupby("seed")["certified_all"].mean(),
        "joint_runs": _over_all(len(tables["joint"])),
        "failing_starts": _over_all((right == 0).sum()),
        "alignment_argmax": end["argmax_right"],
        "alignment_cosine": end["cosine"],
        "alignment_centred_cosine": end["centred_cosine"],
        "minibatch_certified_sets": tables["minibatch"].groupby("seed").tail(1).set_index("seed")["certified_sets"],
        **{f"control_{_name(str(control))}": controls[control] for control in controls},
    }


def spectral_measures(tables: Tables, early_begin: float, early_end: float) -> Measures:
    """The rank of W early and late, and what its largest entries suffice for."""
    spectra, trained = tables["spectra"], tables["trained"]
    uniform = spectra["law"] == "uniform"
    excess = (spectra["numerical_rank"] - spectra["expected_rank"]).abs()
    early = spectra["time"].between(early_begin, early_end)
    late = spectra[~uniform & (spectra["time"] == spectra["time"].max())]
    trained = trained.set_index(trained["task"] + ", seed " + trained["seed"].astype(str))
    return {
        "early_rank_over_heads": _over_all(excess[early & ~uniform].max()),
        "early_rank_uniform_over_full": _over_all(excess[early & uniform].max()),
        "late_rank_with_heads": late.set_index("task")["numerical_rank"],
        "kept_in_gauge_over_list_entries": trained["kept_in_gauge"] - trained["list_entries"],
        "kept_raw_over_list_entries": trained["kept_raw"] - trained["list_entries"],
        "longest_certified": trained["longest"][trained["longest"] >= 0],
    }


def _name(text: str) -> str:
    """The text as a name of a measure."""
    return "_".join("".join(c if c.isalnum() else " " for c in text).lower().split())


def _over_all(value: Any) -> pd.Series:
    """A measure of all cases together."""
    return pd.Series({"all": float(value)})
