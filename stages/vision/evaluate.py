"""What git keeps of a data set's runs: small tables for the figures, metrics to compare, measures for the claims."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd

from lib.io.command import run
from lib.io.params import Interval, Positive, Seed, read_params
from lib.io.runs import open_runs
from lib.io.tables import read_table, write_csv, write_json, write_table


@dataclass(frozen=True)
class Evaluate:
    growth_scales: tuple[Positive, ...]
    reference_scale: Positive
    figure_seed: Seed
    figure_singular_values: Annotated[int, Interval("[1, 65536]")]

    def __post_init__(self) -> None:
        if len(self.growth_scales) < 2 or list(self.growth_scales) != sorted(self.growth_scales):
            raise ValueError(f"growth_scales: wanted two or more, rising, got {self.growth_scales}")


def main(section: str, runs: Path, spectra: Path, ranks: Path, metrics: Path, curves: Path) -> None:
    params = read_params(section, Evaluate)
    training = pd.concat([run.steps.assign(**run.layout.cell) for run in open_runs(runs)], ignore_index=True)
    rank_table = read_table(ranks)
    write_table(small(training.drop(columns="snapshot")), metrics / "training.parquet")
    write_table(small(rank_table), metrics / "ranks.parquet")
    write_table(small(spectra_for_figures(read_table(spectra), params)), metrics / "spectra.parquet")
    plain = training[training["control"] == "none"]
    measured = measures(plain, rank_table[rank_table["control"] == "none"], params)
    write_json(
        {name: {"mean": values.mean(), "sd": values.std()} for name, values in measured.items()},
        metrics / "summary.json",
    )
    write_json(
        {name: {"seeds": values.index.tolist(), "values": values.tolist()} for name, values in measured.items()},
        metrics / "measures.json",
    )
    columns = ["step", "train_loss", "test_loss", "test_accuracy"]
    by = plain.groupby(["variant", "step"], as_index=False)[columns[1:]].mean()
    write_csv(by, curves)


def small(table: pd.DataFrame) -> pd.DataFrame:
    """The table in single precision and short integers, texts as categories: for git."""
    types = {"float64": "float32", "int64": "int32", "object": "category", "str": "category"}
    columns = {c: types[str(t)] for c, t in table.dtypes.items() if str(t) in types}
    columns.pop("singular_values", None)
    return table.astype(columns)


def spectra_for_figures(spectra: pd.DataFrame, params: Evaluate) -> pd.DataFrame:
    """The leading singular values of the products, of one seed."""
    chosen = spectra[spectra["matrix"].isin(["W_KQ", "W_VO"]) & (spectra["seed"] == params.figure_seed)]
    keep = ["variant", "init_scale", "control", "matrix", "of", "step", "seed", "layer", "head"]
    leading = [values[: params.figure_singular_values].astype(np.float32) for values in chosen["singular_values"]]
    return chosen[keep].assign(singular_values=leading)


def measures(training: pd.DataFrame, ranks: pd.DataFrame, params: Evaluate) -> dict[str, pd.Series]:
    """What the claims judge, a value for each seed; stable ranks are means over layers and heads."""
    last = training["step"].max()
    final = ranks[ranks["step"] == last]

    def stable_rank(of: str, matrix: str) -> pd.DataFrame:
        """Final stable rank; rows seeds, columns init scales."""
        chosen = final[(final["of"] == of) & (final["matrix"] == matrix)]
        return chosen.pivot_table(index="seed", columns="init_scale", values="stable_rank")

    learned, null = stable_rank("update", "W_KQ"), stable_rank("gaussian", "W_KQ")
    scales, reference = list(params.growth_scales), params.reference_scale
    updates = ranks[(ranks["of"] == "update") & (ranks["matrix"] == "W_VO")]
    by_step = updates.pivot_table(index="step", columns=["seed", "init_scale"], values="stable_rank")
    growth = by_step[by_step.index > 2 * last / 3].mean() / by_step[by_step.index <= last / 3].mean()
    accuracy = training[(training["step"] == last) & (training["init_scale"] == reference)]
    return {
        "test_accuracy": accuracy.set_index("seed")["test_accuracy"],
        "stable_rank_KQ": learned[reference],
        "stable_rank_VO": stable_rank("update", "W_VO")[reference],
        "rank_growth_with_init_scale": pd.concat(
            [learned[large] / learned[small] for small, large in pairwise(scales)], axis=1
        ).min(axis=1),
        "gaussian_over_learned_KQ": null[reference] / learned[reference],
        "VO_growth_through_training": growth.unstack()[scales[1:]].min(axis=1),
    }


if __name__ == "__main__":
    run(main)
