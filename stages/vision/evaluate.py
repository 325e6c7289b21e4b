"""What git keeps of a data set's runs: small tables for the figures, metrics to compare, measures for the claims."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd

from lib.io.command import run
from lib.io.files import InputError
from lib.io.params import Interval, Positive, Seed, read_params
from lib.io.runs import open_runs
from lib.io.tables import compact, read_table, write_csv, write_json, write_table


@dataclass(frozen=True)
class Evaluate:
    growth_scales: tuple[Positive, ...]
    reference_scale: Positive
    figure_seed: Seed
    figure_singular_values: Annotated[int, Interval("[1, 65536]")]

    def __post_init__(self) -> None:
        if len(self.growth_scales) < 2 or list(self.growth_scales) != sorted(self.growth_scales):
            raise ValueError(f"growth_scales: wanted two or more, rising, got {self.growth_scales}")


def main(
    section: str, runs: Path, spectra: Path, ranks: Path, truncate: Path, prune: Path, metrics: Path, curves: Path
) -> None:
    params = read_params(section, Evaluate)
    training = pd.concat([run.steps.assign(**run.layout.cell) for run in open_runs(runs)], ignore_index=True)
    trained = sorted(training.loc[training["control"] == "none", "init_scale"].unique())
    if params.reference_scale not in trained:
        raise InputError(
            f"{section}.reference_scale: wanted one that was trained, {trained}; got {params.reference_scale:g}"
        )
    tables = {
        "training": training.drop(columns="snapshot"),
        "ranks": read_table(ranks),
        "spectra": spectra_for_figures(read_table(spectra), params),
        "truncate": read_table(truncate),
        "prune": read_table(prune),
    }
    for name, table in tables.items():
        write_table(compact(table), metrics / f"{name}.parquet")
    measured = {
        **accuracy_and_ranks(tables["training"], tables["ranks"], params),
        **truncation_and_pruning(tables["truncate"], tables["prune"], params),
    }
    write_json(
        {name: {"mean": values.mean(), "sd": values.std()} for name, values in measured.items()},
        metrics / "summary.json",
    )
    write_json(
        {name: {"seeds": values.index.tolist(), "values": values.tolist()} for name, values in measured.items()},
        metrics / "measures.json",
    )
    plain = training[training["control"] == "none"]
    columns = ["train_loss", "test_loss", "test_accuracy"]
    write_csv(plain.groupby(["variant", "step"], as_index=False)[columns].mean(), curves)


def spectra_for_figures(spectra: pd.DataFrame, params: Evaluate) -> pd.DataFrame:
    """The leading singular values of the products, of one seed: the figures', or the first where it was not trained."""
    seed = min(spectra["seed"].unique(), key=lambda seed: (seed != params.figure_seed, seed))
    chosen = spectra[spectra["matrix"].isin(["W_KQ", "W_VO"]) & (spectra["seed"] == seed)]
    keep = ["variant", "init_scale", "control", "matrix", "of", "step", "seed", "layer", "head"]
    leading = [values[: params.figure_singular_values].astype(np.float32) for values in chosen["singular_values"]]
    return chosen[keep].assign(singular_values=leading)


def accuracy_and_ranks(training: pd.DataFrame, ranks: pd.DataFrame, params: Evaluate) -> dict[str, pd.Series]:
    """What the claims judge, a value for each seed; stable ranks are means over layers and heads.

    Growth is from scale to scale, of the `growth_scales` that were trained.
    """
    last, reference = training["step"].max(), params.reference_scale
    trained = set(training.loc[training["control"] == "none", "init_scale"])
    scales = [scale for scale in params.growth_scales if scale in trained]
    means = ranks.groupby(["control", "of", "step", "matrix", "init_scale", "seed"])["stable_rank"].mean()
    measured = {}
    accuracy = training[(training["step"] == last) & (training["init_scale"] == reference)]
    for control, rows in accuracy.groupby("control"):
        measured[named("test_accuracy", str(control))] = rows.set_index("seed")["test_accuracy"]
    for matrix in ("KQ", "VO"):

        def rank(of: str = "update", control: str = "none", step: int = last, matrix: str = matrix) -> pd.Series:
            return means.loc[control, of, step, f"W_{matrix}"].unstack("init_scale")[reference]

        learned = rank()
        measured[f"stable_rank_{matrix}"] = learned
        measured[f"gaussian_over_learned_{matrix}"] = rank(of="gaussian") / learned
        measured[f"first_step_over_learned_{matrix}"] = rank(step=1) / learned
        for control in sorted(set(accuracy["control"]) - {"none"}):
            measured[named(f"stable_rank_{matrix}", control)] = rank(control=control)
        if "labels=permuted" in set(accuracy["control"]):
            measured[f"permuted_over_learned_{matrix}"] = rank(control="labels=permuted") / learned
    final = means.loc["none", "update", last, "W_KQ"].unstack("init_scale")
    if len(scales) > 1:
        ratios = [final[large] / final[small] for small, large in pairwise(scales)]
        measured["rank_growth_with_init_scale"] = pd.concat(ratios, axis=1).min(axis=1)
    by_step = means.loc["none", "update", :, "W_VO"].unstack("step")
    early, late = by_step.loc[:, 1 : last / 3], by_step.loc[:, 2 * last / 3 + 1e-9 :]
    growth = (late.mean(axis=1) / early.mean(axis=1)).unstack("init_scale")
    larger = [scale for scale in scales if scale > min(params.growth_scales)]
    if larger:
        measured["VO_growth_through_training"] = growth[larger].min(axis=1)
    return measured


def truncation_and_pruning(truncate: pd.DataFrame, prune: pd.DataFrame, params: Evaluate) -> dict[str, pd.Series]:
    """Which rank and which pruning rate keep the accuracy of the run at the reference scale, a value for each seed.

    Nothing where that run was not cut.
    """
    truncate, prune = (
        table[(table["init_scale"] == params.reference_scale) & (table["control"] == "none")]
        for table in (truncate, prune)
    )
    if truncate.empty or prune.empty:
        return {}
    cut = truncate[truncate["kind"] == "all"].pivot_table(index="rank", columns="seed", values="test_accuracy")
    full = cut.iloc[-1]
    weights = prune[prune["what"] == "weights"].pivot_table(
        index="rate", columns=["order", "seed"], values="test_accuracy"
    )
    smallest = weights["smallest"]
    harmless = (smallest >= smallest.loc[0] - 0.01).cummin().sum()
    average = weights.mean().unstack("order")
    return {
        "rank_within_one_point": (cut >= full - 0.01).idxmax().astype(float),
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
