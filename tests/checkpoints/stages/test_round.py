from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from lib.checkpoints.update_spectra import rounding_edge
from tests.checkpoints.checkpoints_made import noisy


def energy_rank(sigma):
    return 1 + int(((sigma**2).cumsum() < 0.9 * (sigma**2).sum()).sum())


def test_ranks_of_updates_as_they_are_and_stored(stage, tmp_path):
    base, tuned = noisy("llama", tmp_path)
    stage("checkpoints.round", {}, base=base, tuned=tuned, rounding=Path("rounding.parquet"))
    table = pd.read_parquet("rounding.parquet").set_index(["run", "step", "module"])
    assert len(table) == 3 * 14, "the matrices of two layers, of three snapshots"
    W_0, W = (load_file(folder / "model.safetensors") for folder in (base, tuned / "b" / "step-2"))
    for name in ("model.layers.1.mlp.up_proj.weight", "model.layers.0.self_attn.k_proj.weight"):
        both = W[name], W_0[name]
        edge = rounding_edge(*(M.bfloat16() for M in both))
        update, stored = (
            (now.double() - begun.double()).numpy()
            for now, begun in (both, [M.bfloat16() for M in both])
        )
        sigma, sigma_stored = (np.linalg.svd(M, compute_uv=False) for M in (update, stored))
        wanted = {
            "relative_update": np.linalg.norm(update) / W_0[name].norm().item(),
            "rank_90": energy_rank(sigma),
            "rank_90_stored": energy_rank(sigma_stored),
            "above_edge": (sigma > edge).sum(),
            "above_edge_stored": (sigma_stored > edge).sum(),
            "noise_over_edge": np.linalg.norm(stored - update, 2) / edge,
        }
        assert table.loc["b", 2, name].to_dict() == pytest.approx(wanted, rel=1e-6)
