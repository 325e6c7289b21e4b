import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from lib.checkpoints import update_spectra
from lib.checkpoints.factors import read_factors
from lib.files.files import InputError
from tests.checkpoints.checkpoints_made import SPECTRA, noisy
from tests.checkpoints.transformers_made import made, saved


def measure(stage, base, tuned, **changes):
    stage(
        "checkpoints.spectra", {"s": SPECTRA | changes}, "s", base, tuned, Path("spectra.parquet")
    )
    return pd.read_parquet("spectra.parquet")


def weights(folder):
    return {
        name: tensor.double().numpy()
        for name, tensor in load_file(folder / "model.safetensors").items()
    }


def test_every_matrix_has_numpys_spectrum_of_its_update(stage, tmp_path):
    base, tuned = noisy("llama", tmp_path)
    table = measure(stage, base, tuned)
    matrices = table[table["head"] == 0]
    W_0 = weights(base)
    names = {name for name, W in W_0.items() if W.ndim == 2}
    for (run, step), rows in matrices.groupby(["run", "step"]):
        W = weights(tuned / run / f"step-{step}")
        assert set(rows["module"]) == names
        for _, row in rows.iterrows():
            update = W[row["module"]] - W_0[row["module"]]
            sigma = np.linalg.svd(update, compute_uv=False)
            np.testing.assert_allclose(row["singular_values"], sigma, rtol=1e-9, atol=1e-12)
            assert row["norm"] == pytest.approx(np.linalg.norm(update))
            assert row["base_norm"] == pytest.approx(np.linalg.norm(W_0[row["module"]]))
            assert row["stable_rank"] == pytest.approx((sigma**2).sum() / sigma[0] ** 2)
            assert row["rank_90"] == 1 + ((sigma**2).cumsum() < 0.9 * (sigma**2).sum()).sum()
            stored = (W[row["module"]], W_0[row["module"]])
            variance = sum(
                np.spacing(np.abs(one).astype(np.float32)).astype(float) ** 2 / 12 for one in stored
            )
            edge = np.sqrt(variance.sum(1).max()) + np.sqrt(variance.sum(0).max())
            assert row["edge"] == pytest.approx(edge)
            assert row["rank_above_edge"] == (sigma > row["edge"]).sum()
            assert (row["tail"], row["method"], row["of"]) == (0, "full", "update")
            in_layer = row["module"].startswith("model.layers.")
            assert row["layer"] == (int(row["module"].split(".")[2]) + 1 if in_layer else 0)
    assert matrices.groupby(["run", "step"]).ngroups == 3


def test_products_of_heads_by_hand(stage, tmp_path):
    """Llama: four query heads of width 8 read two key heads; offset 3 turns the queries by angles 3
    θ^(-2k/8).
    """
    base, tuned = noisy("llama", tmp_path)
    table = measure(stage, base, tuned)
    assert set(table[table["head"] > 0]["module"]) == {"W_KQ", "W_VO"}
    angles = 3 * 10000.0 ** (-np.arange(4) / 4)
    cos, sin = np.diag(np.cos(angles)), np.diag(np.sin(angles))
    turn = np.block([[cos, sin], [-sin, cos]])

    def product(W, name, head, offset):
        prefix, kept = "model.layers.1.", head // 2
        gain = W[prefix + "input_layernorm.weight"][:, None]
        q, k, v = (W[f"{prefix}self_attn.{x}_proj.weight"].T for x in "qkv")
        cut = lambda M, h: M[:, 8 * h : 8 * h + 8]  # noqa: E731
        if name == "W_VO":
            return (gain * cut(v, kept)) @ W[prefix + "self_attn.o_proj.weight"].T[
                8 * head : 8 * head + 8
            ]
        return (gain * cut(q, head)) @ (turn if offset else np.eye(8)) @ (gain * cut(k, kept)).T

    W_0, W = weights(base), weights(tuned / "a" / "step-1")
    rows = table[
        (table["run"] == "a") & (table["step"] == 1) & (table["layer"] == 2) & (table["head"] > 0)
    ]
    assert len(rows) == 2 * 4 * 3
    for _, row in rows.iterrows():
        arguments = row["module"], row["head"] - 1, row["offset"]
        before = product(W_0, *arguments)
        M = before if row["of"] == "initial" else product(W, *arguments) - before
        sigma = np.linalg.svd(M, compute_uv=False)[: len(row["singular_values"])]
        np.testing.assert_allclose(row["singular_values"], sigma, rtol=1e-7, atol=1e-9)
    later = table[(table["run"] == "a") & (table["step"] == 2)]
    assert not (later["of"] == "initial").any(), "the base is measured once for each run"


def test_leading_values_of_large_matrices_with_an_exact_tail(stage, tmp_path, monkeypatch):
    monkeypatch.setattr(update_spectra, "LARGEST_DIRECT", 16)
    monkeypatch.setattr(update_spectra, "LARGEST_FULL", 16)
    base, tuned = noisy("gpt2", tmp_path)
    table = measure(stage, base, tuned / "b" / "step-2")
    row = table.set_index("module").loc["transformer.h.0.mlp.c_fc.weight"]
    W_0, W = weights(base), weights(tuned / "b" / "step-2")
    update = W["transformer.h.0.mlp.c_fc.weight"] - W_0["transformer.h.0.mlp.c_fc.weight"]
    sigma = np.linalg.svd(update, compute_uv=False)
    assert (row["method"], len(row["singular_values"])) == ("randomised", 8)
    np.testing.assert_allclose(row["singular_values"], sigma[:8], rtol=0.05)
    assert row["tail"] == pytest.approx(
        (update**2).sum() - (row["singular_values"] ** 2).sum(), rel=1e-5
    )
    assert row["stable_rank"] == pytest.approx((sigma**2).sum() / sigma[0] ** 2, rel=0.05)
    assert np.isnan(row["rank_90"]), "not known from the leading ones"


@pytest.mark.parametrize(("limit", "kept"), [(1024, 0), (1024, 5), (16, 0), (16, 3)])
def test_what_is_kept_is_the_decomposition_of_the_last_update_of_each_run(
    stage, tmp_path, monkeypatch, limit, kept
):
    """Whole up to a limit of the shorter side, beyond it the leading 8, or fewer."""
    monkeypatch.setattr(update_spectra, "LARGEST_DIRECT", min(limit, 256))
    monkeypatch.setattr(update_spectra, "LARGEST_FULL", limit)
    base, tuned = noisy("llama", tmp_path)
    given = {"s": SPECTRA}, "s", base, tuned, Path("spectra.parquet"), "factors", kept
    stage("checkpoints.spectra", *given)
    table = pd.read_parquet("spectra.parquet")
    assert sorted(path.name for path in Path("factors").iterdir()) == ["a", "b"]
    W_0 = weights(base)
    for run in "ab":
        factors = read_factors(Path("factors") / run)
        W = weights(tuned / run / "step-2")
        rows = table[(table["run"] == run) & (table["step"] == 2) & (table["head"] == 0)]
        assert set(factors) == set(rows["module"])
        for _, row in rows.iterrows():
            found = factors[row["module"]]
            n = min(kept or 99, len(row["singular_values"]))
            np.testing.assert_allclose(found.sigma, row["singular_values"][:n], rtol=1e-6)
            update = W[row["module"]] - W_0[row["module"]]
            error = np.square(update - found.cut(n).double().numpy()).sum()
            tail = np.square(update).sum() - np.square(row["singular_values"][:n]).sum()
            assert error == pytest.approx(tail, rel=1e-4, abs=1e-9)


def test_shards_types_and_an_architecture_without_heads(stage, tmp_path):
    model = made("phi3").bfloat16()
    base = saved(model, tmp_path / "base", sharded=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += (
                2**-3
                * torch.randn(
                    parameter.shape, generator=torch.Generator().manual_seed(1)
                ).bfloat16()
            )
    tuned = saved(model, tmp_path / "tuned")
    table = measure(stage, base, tuned)

    (base / "config.json").write_text(
        (base / "config.json").read_text().replace('"phi3"', '"mine"')
    )
    (tuned / "config.json").write_text(
        (tuned / "config.json").read_text().replace('"phi3"', '"mine"')
    )
    plain = measure(stage, base, tuned)
    pd.testing.assert_frame_equal(
        plain.reset_index(drop=True)[["module", "norm", "rank_90"]],
        table[table["head"] == 0].reset_index(drop=True)[["module", "norm", "rank_90"]],
    )


def test_layers_that_were_measured_are_not_measured_again(stage, tmp_path, monkeypatch):
    base, tuned = noisy("llama", tmp_path)
    first = measure(stage, base, tuned)

    def never(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr("stages.checkpoints.spectra.matrix_row", never)
    pd.testing.assert_frame_equal(measure(stage, base, tuned), first)
    with pytest.raises(AssertionError, match="measured again"):
        measure(stage, base, tuned, rank=9)


def test_a_base_and_a_copy_of_it_are_refused(stage, tmp_path):
    base, _ = noisy("llama", tmp_path)
    shutil.copytree(base, tmp_path / "copy")
    with pytest.raises(
        InputError, match="wanted weights that differ from the base's, got none that does"
    ):
        measure(stage, base, tmp_path / "copy")
    with pytest.raises(
        InputError, match="wanted a checkpoint tuned from the base, got the base itself"
    ):
        measure(stage, base, base)
