"""The stage spectra: every matrix of every snapshot by numpy, and the products of heads by hand."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from lib.checkpoints import update_spectra
from lib.checkpoints.factors import read_factors
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.heads import Heads, attention_tensors, heads, rotation
from lib.checkpoints.layer_spectra import Spectra, by_factors, by_products, spectra_of_snapshot
from lib.checkpoints.snapshots import tuned_snapshots
from lib.files.files import InputError
from tests.checkpoints.checkpoints_made import SPECTRA, noisy


def measure(stage, base, tuned, **options):
    out = Path("spectra.parquet")
    given = {"section": "s", "base": base, "snapshots": tuned, "spectra": out}
    stage("checkpoints.spectra", {"s": SPECTRA}, **given, **options)
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


def test_a_snapshot_alone_has_the_rows_and_factors_that_the_stage_has_of_it(stage, pair, tmp_path):
    base, tuned = pair
    table = measure(stage, base, tuned, factors="factors")
    begun = open_checkpoint(base)
    last = tuned_snapshots(begun, tuned)[1]
    how = Spectra(SPECTRA["method"], SPECTRA["rank"], tuple(SPECTRA["rotary_offsets"]))
    found = spectra_of_snapshot(how, begun, last, tmp_path / "own")
    wanted = table[(table["run"] == "a") & (table["step"] == 2)].reset_index(drop=True)
    assert set(wanted["of"]) == {"update"}
    assert list(found["module"]) == list(wanted["module"])
    for one, other in zip(found["singular_values"], wanted["singular_values"], strict=True):
        np.testing.assert_array_equal(one, other)
    own, kept = read_factors(tmp_path / "own"), read_factors(Path("factors") / "a")
    assert own.keys() == kept.keys()
    for name, triplets in own.items():
        for part, other in zip(triplets, kept[name], strict=True):
            assert part.equal(other), name


def test_products_of_heads_are_of_every_offset(stage, pair):
    """Heads are grouped, four of queries and two of keys; what is cut are the heads of lib."""
    table = measure(stage, *pair)

    def products(folder):
        opened = open_checkpoint(folder)
        parts = attention_tensors(opened.config, opened.tensors)[2]
        cut = heads(opened.config, parts, opened.load, fold_norms=True)
        found = {("W_VO", 0): cut.W_V @ cut.W_O.mT}
        for offset in (0, 3):
            found["W_KQ", offset] = cut.W_Q @ rotation(opened.config, offset) @ cut.W_K.mT
        return found

    W_0, W = products(pair[0]), products(pair[1] / "a" / "step-1")
    rows = table[(table["head"] > 0) & (table["run"] == "a") & (table["layer"] == 2)]
    assert set(rows[rows["step"] == 2]["of"]) == {"update"}, "the base is measured once a run"
    rows = rows[rows["step"] == 1].to_dict("records")
    assert len(rows) == 2 * 4 * 3
    for row in rows:
        place, head = (row["module"], row["offset"]), row["head"] - 1
        M = W_0[place][head]
        if row["of"] == "update":
            M = W[place][head] - M
        found = row["singular_values"]
        sigma = torch.linalg.svdvals(M)[: len(found)]
        np.testing.assert_allclose(found, sigma, rtol=1e-7, atol=1e-9)
        assert (row["rows"], row["cols"]) == tuple(M.shape)


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
    assert (found <= sigma[:8] * (1 + 1e-6)).all()
    assert (sigma[:8] <= found + row["errors"] + 1e-6 * sigma[0]).all()
    assert row["rank_above_edge"] == (found > row["edge"]).sum()
    assert row["tail"] == pytest.approx((update**2).sum() - (found**2).sum(), rel=1e-5)
    assert row["stable_rank"] == pytest.approx((sigma**2).sum() / sigma[0] ** 2, rel=0.05)
    assert np.isnan(row["rank_90"]), "not known from the leading ones"


def test_leading_values_alone_and_no_heads_are_options(stage, pair, monkeypatch):
    monkeypatch.setattr(update_spectra, "LARGEST_DIRECT", 8)
    table = measure(stage, *pair)
    few = measure(stage, *pair, factors="factors", heads="no", leading=3)
    assert set(few["head"]) == {0}
    wanted = table[table["head"] == 0]
    assert few["module"].tolist() == wanted["module"].tolist()
    for one, other in zip(few["singular_values"], wanted["singular_values"], strict=True):
        assert len(one) == 3
        np.testing.assert_allclose(one, other[:3], rtol=0.02)


@pytest.mark.parametrize("d_head", [8, 40])
def test_values_by_factors_are_those_of_the_products_themselves(d_head):
    """Two query heads read one key and value head; heads of 40 are too wide for the basis."""
    source = torch.Generator().manual_seed(0)

    def drawn(n):
        return torch.randn(n, 64, d_head, generator=source).double()

    first, last = (Heads(drawn(4), drawn(2), drawn(2), drawn(4)) for _ in range(2))
    R = torch.linalg.qr(torch.randn(d_head, d_head, generator=source).double()).Q
    for of in (by_factors, by_products) if d_head == 8 else (by_products,):
        found = of(first, last, {16: R})
        assert len(found) == 4
        for head in range(4):
            K_0, K, V_0, V = (W[head // 2] for W in (first.W_K, last.W_K, first.W_V, last.W_V))
            products = {
                "W_KQ": [one.W_Q[head] @ R @ W.mT for one, W in ((first, K_0), (last, K))],
                "W_VO": [W @ one.W_O[head].mT for one, W in ((first, V_0), (last, V))],
            }
            for name, (before, after) in products.items():
                offset = 16 if name == "W_KQ" else 0
                for what, M in (("initial", before), ("update", after - before)):
                    values = found[name, offset, what][head]
                    true = torch.linalg.svdvals(M)
                    n = min(len(values), len(true))
                    assert not values[n:].any()
                    assert float(true[n:].sum()) < 1e-9
                    torch.testing.assert_close(values[:n], true[:n], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("limit", "kept"), [(1024, 0), (16, 3)])
def test_what_is_kept_is_the_decomposition_of_the_last_update_of_each_run(
    stage, pair, monkeypatch, limit, kept
):
    """It is kept whole up to a limit of the shorter side, and beyond it the leading 8 triplets, or
    fewer.
    """
    monkeypatch.setattr(update_spectra, "LARGEST_DIRECT", min(limit, 256))
    monkeypatch.setattr(update_spectra, "LARGEST_FULL", limit)
    base, tuned = pair
    table = measure(stage, base, tuned, factors="factors", kept=kept)
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
            error = np.linalg.norm(update - factors[name].cut(n).double().numpy()) ** 2
            tail = np.linalg.norm(update) ** 2 - np.linalg.norm(sigma[:n]) ** 2
            assert error == pytest.approx(tail, rel=1e-4, abs=1e-9)


def test_a_copy_of_the_base_is_refused(stage, pair, tmp_path):
    shutil.copytree(pair[0], tmp_path / "copy")
    message = "wanted weights that differ from the base's, got none that does"
    with pytest.raises(InputError, match=message):
        measure(stage, pair[0], tmp_path / "copy")
