"""The stage spectra: every matrix of every snapshot by numpy, and the products of heads by hand."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from lib.checkpoints import update_spectra
from lib.checkpoints.factors import read_factors
from lib.files.files import InputError
from tests.checkpoints.checkpoints_made import SPECTRA, noisy
from tests.checkpoints.transformers_made import made, moved, saved


def measure(stage, base, tuned, *kept, **changes):
    out = Path("spectra.parquet")
    stage("checkpoints.spectra", {"s": SPECTRA | changes}, "s", base, tuned, out, *kept)
    return pd.read_parquet(out)


def weights(folder):
    tensors = load_file(folder / "model.safetensors")
    return {name: W.double().numpy() for name, W in tensors.items()}


@pytest.fixture
def pair(tmp_path):
    return noisy("llama", tmp_path)


def test_every_matrix_has_numpys_spectrum_of_its_update(stage, pair):
    base, tuned = pair
    table = measure(stage, base, tuned)
    matrices = table[table["head"] == 0]
    W_0 = weights(base)
    names = {name for name, W in W_0.items() if W.ndim == 2}
    assert matrices.groupby(["run", "step"]).ngroups == 3
    for (run, step), rows in matrices.groupby(["run", "step"]):
        assert set(rows["module"]) == names
        W = weights(tuned / run / f"step-{step}")
        for row in rows.to_dict("records"):
            name = row["module"]
            update = W[name] - W_0[name]
            sigma = np.linalg.svd(update, compute_uv=False)
            np.testing.assert_allclose(row["singular_values"], sigma, rtol=1e-9, atol=1e-12)
            rounded = (np.spacing(abs(M).astype(np.float32)) for M in (W[name], W_0[name]))
            variance = sum(one.astype(float) ** 2 / 12 for one in rounded)
            edge = np.sqrt(variance.sum(1).max()) + np.sqrt(variance.sum(0).max())
            energy = (sigma**2).cumsum() / (sigma**2).sum()
            in_layer = name.startswith("model.layers.")
            wanted = {
                "norm": np.linalg.norm(update),
                "base_norm": np.linalg.norm(W_0[name]),
                "stable_rank": (sigma**2).sum() / sigma[0] ** 2,
                "rank_90": 1 + (energy < 0.9).sum(),
                "edge": edge,
                "rank_above_edge": (sigma > edge).sum(),
                "tail": 0,
                "layer": int(name.split(".")[2]) + 1 if in_layer else 0,
                "rows": len(update),
                "cols": len(update.T),
            }
            assert {key: row[key] for key in wanted} == pytest.approx(wanted)
            assert (row["method"], row["of"]) == ("full", "update")


def test_products_of_heads_by_hand(stage, pair):
    """Llama: four query heads of width 8 read two key heads; offset 3 turns the queries by angles 3
    θ^(-2k/8).
    """
    base, tuned = pair
    table = measure(stage, base, tuned)
    angles = 3 * 10000.0 ** (-np.arange(4) / 4)
    cos, sin = np.diag(np.cos(angles)), np.diag(np.sin(angles))
    turn = {0: np.eye(8), 3: np.block([[cos, sin], [-sin, cos]])}

    def product(W, name, head, offset):
        prefix = "model.layers.1."
        gain = W[prefix + "input_layernorm.weight"][:, None]
        q, k, v, o = (W[f"{prefix}self_attn.{x}_proj.weight"].T for x in "qkvo")
        own = slice(8 * head, 8 * head + 8)
        read = slice(8 * (head // 2), 8 * (head // 2) + 8)
        if name == "W_VO":
            return (gain * v[:, read]) @ o[own]
        return (gain * q[:, own]) @ turn[offset] @ (gain * k[:, read]).T

    W_0, W = weights(base), weights(tuned / "a" / "step-1")
    heads = table[(table["head"] > 0) & (table["run"] == "a")]
    rows = heads[(heads["step"] == 1) & (heads["layer"] == 2)]
    assert len(rows) == 2 * 4 * 3
    for row in rows.to_dict("records"):
        place = row["module"], row["head"] - 1, row["offset"]
        M = product(W_0, *place)
        if row["of"] == "update":
            M = product(W, *place) - M
        found = row["singular_values"]
        sigma = np.linalg.svd(M, compute_uv=False)[: len(found)]
        np.testing.assert_allclose(found, sigma, rtol=1e-7, atol=1e-9)
        assert (row["rows"], row["cols"]) == M.shape
    assert set(heads[heads["step"] == 2]["of"]) == {"update"}, "the base is measured once a run"


def test_large_matrices_have_leading_values_with_an_exact_tail(stage, tmp_path, monkeypatch):
    monkeypatch.setattr(update_spectra, "LARGEST_DIRECT", 16)
    monkeypatch.setattr(update_spectra, "LARGEST_FULL", 16)
    base, tuned = noisy("gpt2", tmp_path)
    table = measure(stage, base, tuned / "b" / "step-2").set_index("module")
    name = "transformer.h.0.mlp.c_fc.weight"
    row = table.loc[name]
    update = weights(tuned / "b" / "step-2")[name] - weights(base)[name]
    sigma = np.linalg.svd(update, compute_uv=False)
    found = row["singular_values"]
    assert (row["method"], len(found)) == ("randomised", 8)
    np.testing.assert_allclose(found, sigma[:8], rtol=0.05)
    assert row["tail"] == pytest.approx((update**2).sum() - (found**2).sum(), rel=1e-5)
    assert row["stable_rank"] == pytest.approx((sigma**2).sum() / sigma[0] ** 2, rel=0.05)
    assert np.isnan(row["rank_90"]), "not known from the leading ones"


@pytest.mark.parametrize(("limit", "kept"), [(1024, 0), (1024, 5), (16, 3)])
def test_what_is_kept_is_the_decomposition_of_the_last_update_of_each_run(
    stage, pair, monkeypatch, limit, kept
):
    """Whole up to a limit of the shorter side, beyond it the leading 8, or fewer."""
    monkeypatch.setattr(update_spectra, "LARGEST_DIRECT", min(limit, 256))
    monkeypatch.setattr(update_spectra, "LARGEST_FULL", limit)
    base, tuned = pair
    table = measure(stage, base, tuned, "factors", kept)
    assert {path.name for path in Path("factors").iterdir()} == {"a", "b"}
    W_0 = weights(base)
    for run in "ab":
        factors = read_factors(Path("factors") / run)
        W = weights(tuned / run / "step-2")
        rows = table[(table["run"] == run) & (table["step"] == 2) & (table["head"] == 0)]
        assert set(factors) == set(rows["module"])
        for name, sigma in zip(rows["module"], rows["singular_values"], strict=True):
            n = kept or len(sigma)
            np.testing.assert_allclose(factors[name].sigma, sigma[:n], rtol=1e-6)
            update = W[name] - W_0[name]
            error = np.square(update - factors[name].cut(n).double().numpy()).sum()
            tail = np.square(update).sum() - np.square(sigma[:n]).sum()
            assert error == pytest.approx(tail, rel=1e-4, abs=1e-9)


def test_an_architecture_without_heads_has_the_spectra_of_its_matrices(stage, tmp_path):
    model = made("phi3").bfloat16()
    base = saved(model, tmp_path / "base", sharded=True)
    tuned = saved(moved(model, 1), tmp_path / "tuned")
    table = measure(stage, base, tuned)
    for folder in (base, tuned):
        config = (folder / "config.json").read_text()
        (folder / "config.json").write_text(config.replace('"phi3"', '"mine"'))
    columns = ["module", "norm", "rank_90"]
    matrices = table[table["head"] == 0].reset_index(drop=True)[columns]
    pd.testing.assert_frame_equal(measure(stage, base, tuned)[columns], matrices)


def test_layers_that_were_measured_are_not_measured_again(stage, pair, monkeypatch):
    first = measure(stage, *pair)

    def never(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr("stages.checkpoints.spectra.matrix_row", never)
    pd.testing.assert_frame_equal(measure(stage, *pair), first)
    with pytest.raises(AssertionError, match="measured again"):
        measure(stage, *pair, rank=9)


def test_a_copy_of_the_base_is_refused(stage, pair, tmp_path):
    shutil.copytree(pair[0], tmp_path / "copy")
    message = "wanted weights that differ from the base's, got none that does"
    with pytest.raises(InputError, match=message):
        measure(stage, pair[0], tmp_path / "copy")
