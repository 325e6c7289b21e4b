import math

import numpy as np
import pytest
import torch

from lib.checkpoints import update_spectra
from lib.checkpoints.layer_spectra import matrix_row
from lib.checkpoints.update_spectra import (
    EXCESS,
    FLOOR,
    OVERSAMPLE,
    Triplets,
    chosen_method,
    decomposed,
    gram_decomposition,
    leading_decomposition,
    leading_triplets,
    norm_of_weights,
    rounding_edge,
    rounding_variances,
    squared_norm,
    update_of,
)
from lib.files.files import InputError

RANK = 12
LOW = 5  # the rank of what has an exact one
SPECTRA = {  # singular values, by their number
    "flat": lambda k: torch.where(k <= RANK, 3.0, 1.0 - k / 3000),
    "falling": lambda k: k**-1.5,
    "slowly falling": lambda k: k**-0.5,
    "an exact low rank": lambda k: torch.where(k <= LOW, 1.0 / k, 0.0),
    "ties": lambda k: torch.where(k <= 2 * RANK, 1.0, 0.5),
    "zero": torch.zeros_like,
}


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def with_values(shape, sigma):
    U, V = (torch.linalg.qr(torch.randn(n, len(sigma), generator=gen()).double()).Q for n in shape)
    return (U * sigma) @ V.mT


def merged(seed, shape=(600, 500), rank=8, size=1e-2):
    """W_0, and W with an adapter that was merged into it in float32."""
    source = gen(seed)
    W_0 = torch.randn(shape, generator=source)
    B = torch.randn(shape[0], rank, generator=source)
    return W_0, W_0 + size * B @ torch.randn(rank, shape[1], generator=source)


def by_numpy(W):
    """The variances of W's rounding, summed over rows and columns, by the exponents alone."""
    info = torch.finfo(W.dtype)
    w = W.double().numpy()
    exponent = np.frexp(np.maximum(abs(w), info.tiny))[1] - 1
    spacing = np.where(w == 0, 0, np.exp2(exponent.astype(float)) * info.eps)
    variance = spacing**2 / 12
    return variance.sum(1), variance.sum(0)


@pytest.fixture
def small_limit(monkeypatch):
    """Large matrices begin at 32, and blocks have 640 entries."""
    monkeypatch.setattr(update_spectra, "LARGEST_DIRECT", 16)
    monkeypatch.setattr(update_spectra, "LARGEST_FULL", 32)
    monkeypatch.setattr(update_spectra, "BLOCK", 640)
    monkeypatch.setattr(update_spectra, "PANEL", 7)


@pytest.mark.parametrize("shape", [(60, 40), (40, 60), (50, 50)])
@pytest.mark.parametrize("method", ["full", "gram"])
def test_all_singular_values_are_numpys(small_limit, shape, method):
    A = torch.randn(shape, generator=gen(), dtype=torch.float64)
    U, sigma, Vh = np.linalg.svd(A.numpy(), full_matrices=False)
    for kept in (0, 7):
        found, triplets, norm, errors = decomposed(A, method, 1, gen(), kept)
        np.testing.assert_allclose(found, sigma, rtol=1e-9)
        assert norm == pytest.approx((sigma**2).sum())
        assert len(errors) == 0
        assert triplets.sigma.shape == (kept,)
        cut = (U[:, :kept] * sigma[:kept]) @ Vh[:kept]
        np.testing.assert_allclose(triplets.cut(kept), cut, atol=1e-5)


@pytest.mark.parametrize("shape", [(400, 300), (300, 400), (300, 300)])
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("how", ["all values", "leading values"])
def test_a_cut_is_the_best_one_within_what_is_promised(small_limit, name, shape, how):
    """It is compared with numpy's whole decomposition of the update as it is in float32."""
    A = with_values(shape, SPECTRA[name](torch.arange(1, 301).double())).float()
    true = np.linalg.svd(A.double().numpy(), compute_uv=False)
    if how == "all values":
        values, found = gram_decomposition(A, RANK, gen())
        np.testing.assert_allclose(values, true, atol=FLOOR * true[0])
        found = Triplets(*(one.double() for one in found))
        rounded = 1e-12 * (true**2).sum()  # the triplets are kept in float32
    else:
        values, found, norm, errors = leading_decomposition(A, RANK, gen())
        assert norm == pytest.approx((true**2).sum(), rel=1e-12)
        assert (values.numpy() <= true[:RANK] * (1 + 1e-12)).all()
        assert (true[:RANK] <= (values + errors).numpy() + 1e-12 * true[0]).all()
        rounded = (RANK + OVERSAMPLE) * FLOOR**2 * (true**2).sum()
    best = (true[RANK:] ** 2).sum()
    error = float((A.double() - found.cut(RANK)).square().sum())
    assert best - rounded <= error <= best * (1 + EXCESS) + rounded
    n_sure = int((true[:RANK] > FLOOR * true[0]).sum())
    for V in (found.Vh[:n_sure], found.U.mT[:n_sure]):
        torch.testing.assert_close(V @ V.mT, torch.eye(n_sure).double(), rtol=0, atol=2e-6)


def test_a_krylov_space_has_few_columns_and_what_needs_many_is_decomposed(monkeypatch):
    """A flat spectrum takes more blocks than a falling one, and eigh where half the columns do not
    do.
    """
    asked = []
    original = update_spectra._new_directions

    def counted(V, block):
        asked.append(block.shape[1])
        return original(V, block)

    monkeypatch.setattr(update_spectra, "_new_directions", counted)
    n_blocks = {}
    for name in ("falling", "slowly falling", "flat"):
        A = with_values((400, 400), SPECTRA[name](torch.arange(1, 401).double())).float()
        gram_decomposition(A, RANK + 1 if name == "flat" else RANK, gen())
        n_blocks[name] = len(asked)
        asked.clear()
    assert n_blocks["falling"] <= 2
    assert n_blocks["slowly falling"] <= 4
    gram_decomposition(A, 190, gen())
    assert asked == [], "two blocks would be all of it"


def test_a_flat_tail_has_values_with_errors_and_a_steep_one_next_to_none(small_limit):
    falling = torch.exp(-torch.arange(0, 300).double())
    flat = torch.ones(300).double()
    flat[:4] = 5.0
    errors = {}
    for name, sigma in (("falling", falling), ("flat", flat - torch.linspace(0, 0.5, 300))):
        A = with_values((400, 300), sigma).float()
        true = torch.linalg.svdvals(A.double())[:RANK]
        found = leading_decomposition(A, RANK, gen())
        assert (true <= found.sigma + found.errors + 1e-12).all()
        errors[name] = found.errors / found.sigma[0]
    assert float(errors["falling"].max()) < 1e-6
    assert float(errors["flat"][:4].max()) < 1e-6
    assert float(errors["flat"][4:].min()) > 10 * float(errors["flat"][:4].max())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("method", ["gram", "randomised"])
def test_a_merged_adapter_of_rank_8_has_rank_8(seed, method):
    W_0, W = merged(seed)
    row, triplets = matrix_row(method, 64, "module", W_0, W, 500)
    assert len(triplets.sigma) == max(8, row["rank_above_edge"]) == 8
    assert row["tail"] < 1e-10 * row["norm"] ** 2


@pytest.mark.parametrize("method", ["gram", "randomised"])
def test_the_edge_is_not_below_what_the_arithmetic_makes(method):
    """The update is as large as the weights themselves, in float32, and its rank is that of the
    factors.
    """
    W_0, W = merged(0, size=1.0)
    row, _ = matrix_row(method, 256, "module", W_0, W)
    assert row["rank_above_edge"] == 8
    assert row["edge"] == FLOOR * row["singular_values"][0] > rounding_edge(W_0, W)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1.0, 1e-5, 1e-30, 1e30])
def test_the_norm_of_weights_is_that_in_float64(dtype, size, monkeypatch):
    monkeypatch.setattr(update_spectra, "CHUNK", 640)
    W = torch.randn(70, 50, generator=gen(), dtype=torch.float64)
    W = (W * min(size, torch.finfo(dtype).max / 8)).to(dtype)
    assert norm_of_weights(W) == pytest.approx(float(W.double().norm()), rel=1e-6)


@pytest.mark.parametrize("shape", [(300, 256), (128, 500)])
@pytest.mark.parametrize("rank", [8, 60])
def test_leading_values_of_a_small_matrix_are_its_own_to_what_is_promised(shape, rank):
    """A narrow block is enough for 8 of them; for 60 the matrix is decomposed whole."""
    n = min(shape)
    W_0 = with_values(shape, torch.ones(n).double()).bfloat16()
    W = (W_0 + with_values(shape, torch.arange(1, n + 1).double() ** -1.0)).bfloat16()
    row, found = matrix_row("randomised", rank, "module", W_0, W, rank)
    update = W.double() - W_0.double()
    true = np.linalg.svd(update.numpy(), compute_uv=False)
    np.testing.assert_allclose(row["singular_values"], true[:rank], rtol=1e-3)
    error = float((update - found.cut(rank)).square().sum())
    assert error <= (true[rank:] ** 2).sum() * (1 + EXCESS)
    assert row["tail"] == pytest.approx(error, rel=1e-6)
    assert (len(row["errors"]) == 0) == (rank == 60)


def test_a_matrix_of_huge_or_tiny_entries_is_decomposed_as_any(small_limit):
    A = with_values((80, 60), torch.arange(1, 61).double() ** -1.0).float()
    sigma = leading_triplets(A, 8, gen()).sigma
    for scale in (2.0**100, 2.0**-100):
        found = leading_decomposition(A * scale, 8, gen())
        torch.testing.assert_close(found.sigma, sigma * scale, rtol=1e-6, atol=0)
        assert found.squared_norm == pytest.approx(squared_norm(A) * scale**2)


@pytest.mark.parametrize("method", ["full", "gram", "randomised"])
def test_an_update_beyond_the_range_of_its_type_is_refused(small_limit, method):
    W = torch.ones(300, 280, dtype=torch.float64 if method == "full" else torch.bfloat16)
    W *= 1e200 if method == "full" else 3e38
    with pytest.raises(InputError, match="module: wanted an update whose entries"):
        matrix_row(method, 8, "module", -W, W)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_an_update_is_the_difference_in_float64_rounded_once(dtype):
    W, W_0 = torch.randn(2, 300, 290, generator=gen(), dtype=torch.float64)
    W, W_0 = W.to(dtype), (1e-4 * W_0 + W).to(dtype)
    assert torch.equal(update_of(W, W_0), (W.double() - W_0.double()).float())


@pytest.mark.parametrize(
    ("shape", "wanted", "method"),
    [
        ((9000, 9000), "auto", "randomised"),
        ((9000, 2), "auto", "full"),
        ((9000, 4096), "auto", "gram"),
        ((9000, 4097), "auto", "randomised"),
        ((8, 8), "gram", "gram"),
    ],
)
def test_the_method_of_a_shape(shape, wanted, method):
    assert chosen_method(shape, wanted) == method


@pytest.mark.parametrize(
    ("dtype", "w", "spacing"),
    [
        (torch.bfloat16, 1.9921875, 2**-7),
        (torch.float16, 1.0, 2**-10),
        (torch.float16, 2.0**-24, 2**-24),
        (torch.float32, -3.0, 2**-22),
        (torch.float32, 2.0**-149, 2.0**-149),
        (torch.float64, 1.5, 2**-52),
        (torch.bfloat16, 0.0, 0.0),
    ],
)
def test_the_spacing_of_stored_weights(dtype, w, spacing):
    W = torch.tensor([[w]], dtype=dtype)
    assert [float(one) for one in rounding_variances(W)] == pytest.approx([spacing**2 / 12] * 2)
    assert rounding_edge(W) == pytest.approx(2 * spacing / math.sqrt(12))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1.0, 1e-5, 1e-7])
def test_the_edge_by_bits_is_that_of_every_weights_exponent(dtype, size, monkeypatch):
    """The weights have many sizes, with subnormal ones and zeros among them, and come in chunks of
    rows.
    """
    monkeypatch.setattr(update_spectra, "CHUNK", 640)
    W = torch.randn(70, 50, generator=gen(), dtype=torch.float64)
    W = (size * W * torch.exp(2 * torch.randn(70, 50, generator=gen(1)))).to(dtype)
    W[::7, ::3] = 0
    for found, wanted in zip(rounding_variances(W), by_numpy(W), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    other = W.flip(0).bfloat16()
    rows, cols = (a + b for a, b in zip(by_numpy(W), by_numpy(other), strict=True))
    wanted = math.sqrt(rows.max()) + math.sqrt(cols.max())
    assert rounding_edge(W, other) == pytest.approx(wanted, rel=1e-6)
