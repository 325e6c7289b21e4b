from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from tests.checkpoints.checkpoints_made import noisy


def energy_rank(sigma):
    return 1 + int(((sigma**2).cumsum() < 0.9 * (sigma**2).sum()).sum())


def test_ranks_of_updates_as_they_are_and_stored(stage, tmp_path):
    base, tuned = noisy("llama", tmp_path)
    stage("checkpoints.round", {}, base, tuned, Path("rounding.parquet"))
    table = pd.read_parquet("rounding.parquet").set_index(["run", "step", "module"])
    assert len(table) == 3 * 14, "the matrices of two layers, of three snapshots"
    W_0, W = (load_file(folder / "model.safetensors") for folder in (base, tuned / "b" / "step-2"))
    name = "model.layers.1.mlp.up_proj.weight"
    row = table.loc[("b", 2, name)]
    update = (W[name].double() - W_0[name].double()).numpy()
    stored = (W[name].bfloat16().double() - W_0[name].bfloat16().double()).numpy()
    sigma, sigma_stored = (np.linalg.svd(M, compute_uv=False) for M in (update, stored))
    assert row["rank_90"] == energy_rank(sigma)
    assert row["rank_90_stored"] == energy_rank(sigma_stored)
    assert row["relative_update"] == pytest.approx(
        np.linalg.norm(update) / float(W_0[name].double().norm())
    )
    variance = np.zeros(update.shape)
    for M in (W[name].bfloat16(), W_0[name].bfloat16()):
        size = M.double().abs().numpy()
        variance += (2.0 ** (np.floor(np.log2(size)) - 7)) ** 2 / 12
    edge = np.sqrt(variance.sum(1).max()) + np.sqrt(variance.sum(0).max())
    assert row["noise_over_edge"] == pytest.approx(
        np.linalg.norm(stored - update, 2) / edge, rel=1e-6
    )
    assert row["above_edge"] == (sigma > edge).sum()
    assert row["above_edge_stored"] == (sigma_stored > edge).sum()
