"""What git keeps of a data set's runs: small tables for the figures, metrics to compare, measures for the claims."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd

from lib.analysis.ranks import summaries
from lib.io.command import run
from lib.io.files import InputError
from lib.io.params import Interval, Positive, read_params
from lib.io.runs import open_runs
from lib.io.tables import compact, pick, read_table, write_csv, write_measures, write_table

ONE_POINT = 0.01  # of accuracy, which a cut may cost
CURVES = ["train_loss", "test_loss", "test_accuracy"]


@dataclass(frozen=True)
class Evaluate:
    growth_scales: tuple[Positive, ...]
    reference_scale: Positive
    rtol: Annotated[float, Interval("(0, 1)")]
    figure_singular_values: Annotated[int, Interval("[1, 65536]")]

    def __post_init__(self) -> None:
        if len(self.growth_scales) < 2 or list(self.growth_scales) != sorted(self.growth_scales):
            raise ValueError(f"growth_scales: wanted two or more, rising, got {self.growth_scales}")


def main(section: str, runs: Path, spectra: Path, truncate: Path, prune: Path, metrics: Path, curves: Path) -> None:
    params = read_params(section, Evaluate)
    training = pd.concat([run.steps.assign(**run.layout.cell) for run in open_runs(runs)], ignore_index=True)
    plain = training[training["control"] == "none"]
    trained = sorted(plain["init_scale"].unique())
    if params.reference_scale not in trained:
        raise InputError(
            f"{section}.reference_scale: wanted one that was trained, {trained}; got {params.reference_scale:g}"
        )
    found = read_table(spectra)
    tables = {
        "training": training.drop(columns="snapshot"),
        "ranks": found.drop(columns="singular_values").assign(**summaries(list(found["singular_values"]), params.rtol)),
        "spectra": spectra_for_figures(found, params.figure_singular_values),
        "truncate": read_table(truncate),
        "prune": read_table(prune),
    }
    for name, table in tables.items():
        write_table(compact(table), metrics / "tables" / f"{name}.parquet")
    compared = {"growth": [scale for scale in params.growth_scales if scale in trained]}
    compared |= {"reference": [params.reference_scale]}
    rows = [{"use": use, "init_scale": scale} for use, scales in compared.items() for scale in scales]
    write_table(pd.DataFrame(rows), metrics / "tables" / "scales.parquet")
    means = mean_ranks(tables["ranks"])
    measured = {
        **accuracies(tables["training"], params),
        **learned_ranks(means, params),
        **growth(means, params),
        **cuts(tables["truncate"], tables["prune"], params),
    }
    write_measures(measured, metrics, headlines=["test_accuracy", "stable_rank_KQ"])
    write_csv(plain.groupby(["variant", "step"], as_index=False)[CURVES].mean(), curves)


def spectra_for_figures(spectra: pd.DataFrame, n_singular_values: int) -> pd.DataFrame:
    """The leading singular values of the products, of the first seed."""
    chosen = spectra[spectra["matrix"].isin(["W_KQ", "W_VO"]) & (spectra["seed"] == spectra["seed"].min())]
    keep = ["variant", "init_scale", "control", "matrix", "of", "step", "seed", "layer", "head"]
    leading = [values[:n_singular_values].astype(np.float32) for values in chosen["singular_values"]]
    return chosen[keep].assign(singular_values=leading)


def accuracies(training: pd.DataFrame, params: Evaluate) -> dict[str, pd.Series]:
    """The final test accuracy at the reference scale, plain and of every control, by seed."""
    final = training[(training["step"] == training["step"].max()) & (training["init_scale"] == params.reference_scale)]
    return {
        named("test_accuracy", control): pick(final, control=control)["test_accuracy"]
        for control in sorted(final["control"].unique())
    }


def mean_ranks(ranks: pd.DataFrame) -> pd.Series:
    """Stable ranks, means over layers and heads."""
    return ranks.groupby(["control", "of", "step", "matrix", "init_scale", "seed"])["stable_rank"].mean()


def learned_ranks(means: pd.Series, params: Evaluate) -> dict[str, pd.Series]:
    """The stable ranks that were learned at the reference scale, and those of nulls and controls over them, by seed."""
    reference, last = params.reference_scale, means.index.get_level_values("step").max()
    final = means.loc[:, "update", last, :, reference].index.get_level_values("control")
    controls = sorted(set(final) - {"none"})
    measured = {}
    for matrix in ("KQ", "VO"):

        def rank(of: str = "update", control: str = "none", step: int = last, matrix: str = matrix) -> pd.Series:
            return means.loc[control, of, step, f"W_{matrix}", reference]

        learned = rank()
        measured[f"stable_rank_{matrix}"] = learned
        measured[f"gaussian_over_learned_{matrix}"] = rank(of="gaussian") / learned
        measured[f"first_step_over_learned_{matrix}"] = rank(step=1) / learned
        for control in controls:
            measured[named(f"stable_rank_{matrix}", control)] = rank(control=control)
        if "labels=permuted" in controls:
            measured[f"permuted_over_learned_{matrix}"] = rank(control="labels=permuted") / learned
    return measured


def growth(means: pd.Series, params: Evaluate) -> dict[str, pd.Series]:
    """How stable ranks grow with the init scale and through training, the least of the cases, by seed.

    Growth is from scale to scale, of the `growth_scales` that were trained; through training it is from the mean over
    the first third of the steps to that over the last third, at every scale but the smallest.
    """
    last = means.index.get_level_values("step").max()
    final = means.loc["none", "update", last, "W_KQ"].unstack("init_scale")
    scales = [scale for scale in params.growth_scales if scale in final]
    measured = {}
    if len(scales) > 1:
        ratios = [final[large] / final[small] for small, large in pairwise(scales)]
        measured["rank_growth_with_init_scale"] = pd.concat(ratios, axis=1).min(axis=1)
    by_step = means.loc["none", "update", :, "W_VO"].unstack("step")
    early, late = by_step.loc[:, 1 : last / 3], by_step.loc[:, 2 * last / 3 + 1e-9 :]
    ratio = (late.mean(axis=1) / early.mean(axis=1)).unstack("init_scale")
    larger = [scale for scale in scales if scale > min(params.growth_scales)]
    if larger:
        measured["VO_growth_through_training"] = ratio[larger].min(axis=1)
    return measured


def cuts(truncate: pd.DataFrame, prune: pd.DataFrame, params: Evaluate) -> dict[str, pd.Series]:
    """Which rank and which pruning rate keep the accuracy of the run at the reference scale, by seed.

    Nothing where that run was not cut.
    """
    truncate, prune = (
        table[(table["init_scale"] == params.reference_scale) & (table["control"] == "none")]
        for table in (truncate, prune)
    )
    if truncate.empty or prune.empty:
        return {}
    cut = truncate[truncate["kind"] == "all"].pivot_table(index="rank", columns="seed", values="test_accuracy")
    weights = prune[prune["what"] == "weights"].pivot_table(
        index="rate", columns=["order", "seed"], values="test_accuracy"
    )
    smallest = weights["smallest"]
    harmless = (smallest >= smallest.loc[0] - ONE_POINT).cummin().sum()
    average = weights.mean().unstack("order")
    return {
        "rank_within_one_point": (cut >= cut.iloc[-1] - ONE_POINT).idxmax().astype(float),
        "accuracy_at_rank_zero": cut.T[0],
        "pruning_within_one_point": pd.Series(weights.index.to_numpy()[harmless - 1], harmless.index),
        "smallest_first_over_others": average["smallest"] - average[["random", "largest"]].max(axis=1),
    }


def named(measure: str, control: str) -> str:
    """The measure's name for a control, without the values of parameters."""
    kinds = [part.split("=")[1] for part in control.split(",") if "=" in part and part.split("=")[0] != "learning_rate"]
    return "_".join([measure, *kinds]).replace("-", "_")


if __name__ == "__main__":
    run(main)
