"""Spectra of large updates W - W_0, and what random rounding alone would show."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lib.files.files import InputError

Method = Literal["full", "gram", "randomised", "factors"]
LARGEST_DIRECT = 256  # the shorter side up to which a matrix itself is decomposed, not its Gram
LARGEST_FULL = 4096  # up to which all singular values are computed
OVERSAMPLE = 16  # columns of a block of a Krylov space, besides those that are wanted
NARROW = 4  # times as wide as a block is a small matrix that is not decomposed whole, or wider
TRIED = (2, 3, 5, 8)  # blocks of such a space, where not all singular values are known
EXCESS = 1e-4  # of the best squared error: how much more a cut may leave
BLOCK = 1 << 20  # entries that are in float64 at a time in a product
CHUNK = 1 << 16  # and where each is touched once, or by few columns
PANEL = 256  # columns of a Gram matrix that are multiplied together: only its upper part is
SAFE = (2.0**-24, 2.0**24)  # between these lie entries of which float32 holds A.T A B
FINITE = "wanted an update whose entries, and their squares, are finite"
SMALL = 2.0**-40  # of the largest spacing: what adds nothing to the edge
HELD = (SMALL, 2.0**64)  # between these lie sums of squares that float32 holds with their parts
FLOOR = torch.finfo(torch.float32).eps  # of sigma_1: below it a value can be of the arithmetic


class Format(NamedTuple):
    """How a type stores a number: the integer type of its bits, where its exponent begins, and the
    width of its significand with the hidden bit.
    """

    bits: torch.dtype
    exponent: int
    significand: int


FORMATS = {
    torch.float64: Format(torch.int64, 0x7FF0000000000000, 53),
    torch.float32: Format(torch.int32, 0x7F800000, 24),
    torch.float16: Format(torch.int16, 0x7C00, 11),
    torch.bfloat16: Format(torch.int16, 0x7F80, 8),
}


class Triplets(NamedTuple):
    """The leading singular triplets of a matrix, A ≈ U diag(sigma) Vh."""

    U: Float[Tensor, "row rank"]
    sigma: Float[Tensor, " rank"]
    Vh: Float[Tensor, "rank col"]

    def first(self, rank: int) -> "Triplets":
        """The first `rank` terms."""
        return Triplets(self.U[:, :rank], self.sigma[:rank], self.Vh[:rank])

    def cut(self, rank: int) -> Float[Tensor, "row col"]:
        """The sum of the first `rank` terms."""
        first = self.first(rank)
        return (first.U * first.sigma) @ first.Vh


class Decomposition(NamedTuple):
    r"""Singular values of an update, some of its triplets, and its squared norm.

    Where all values are not known, the leading ones are those of the cut, which are never above the
    true ones; `errors` says by how much they may be below. It is empty where all are known.
    """

    sigma: Float[Tensor, " rank"]
    triplets: Triplets
    squared_norm: float
    errors: Float[Tensor, " known"]


@dataclass(frozen=True)
class Product:
    """An update that is known by its factors, B A, in float64: of an adapter, its scale in B."""

    B: Float[Tensor, "row rank"]
    A: Float[Tensor, "rank col"]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.B.shape[0], self.A.shape[1]

    def added_to(self, W_0: Float[Tensor, "row col"]) -> Float[Tensor, "row col"]:
        """W_0 + B A in float32."""
        return W_0.float() + self.B.float() @ self.A.float()

    def triplets(self) -> Triplets:
        r"""All singular triplets, at most as many as the rank, in O((m + n) r²).

        With B = Q R and Aᵀ = P S, those of the small core R Sᵀ = u σ vᵀ give Q u, σ and (P v)ᵀ. A σ
        that rounding of float64 can have made is 0.
        """
        Q, R = torch.linalg.qr(self.B)
        P, S = torch.linalg.qr(self.A.mT)
        U, sigma, Vh = torch.linalg.svd(R @ S.mT, full_matrices=False)
        least = sigma[:1] * max(self.shape) * torch.finfo(sigma.dtype).eps
        return Triplets(Q @ U, torch.where(sigma > least, sigma, 0.0), Vh @ P.mT)


Update = Float[Tensor, "row col"] | Product


def update_of(W: Update, W_0: Float[Tensor, "row col"]) -> Update:
    """The update W - W_0: in float64 for a matrix that is decomposed itself, else in float32.

    In float32 it is rounded once, as the difference of exact numbers is. An adapter has no W: what
    it adds to W_0 is the update.
    """
    if isinstance(W, Product):
        return W
    if min(W.shape) <= LARGEST_DIRECT:
        return W.double() - W_0.double()
    wide = torch.float64 if torch.float64 in (W.dtype, W_0.dtype) else torch.float32
    update = torch.empty(W.shape, dtype=torch.float32)
    for rows in blocks(W, CHUNK):
        torch.sub(W[rows].to(wide), W_0[rows].to(wide), out=update[rows])
    return update


def squared_norm(A: Update) -> float:
    r"""$\|A\|_F^2$, summed in float64."""
    if isinstance(A, Product):
        return float(A.triplets().sigma.square().sum())
    return sum((_squared(A[rows].double()) for rows in blocks(A, CHUNK)), start=0.0)


def norm_of_weights(W: Float[Tensor, "row col"]) -> float:
    r"""$\|W\|_F$ to some $10^{-7}$ of itself: squares are summed in the type that W has, or in
    float32, over rows, and in float64 over these.
    """
    total = 0.0
    for rows in blocks(W, CHUNK):
        wide = W[rows] if W.dtype == torch.float64 else W[rows].float()
        total += float(torch.linalg.vector_norm(wide, dim=1).double().square().sum())
    return total**0.5 if HELD[0] < total < HELD[1] else squared_norm(W) ** 0.5


def gram_singular_values(A: Float[Tensor, "row col"]) -> Float[Tensor, " rank"]:
    r"""All singular values, as the roots of the eigenvalues of $A^\top A$ (of the shorter side), in
    float64 by blocks.

    Values below some $10^{-8} \sigma_1$ are lost: squaring halves the digits.
    """
    return _falling(torch.linalg.eigvalsh(_gram(_tall(A)))).sqrt()


def gram_decomposition(
    A: Float[Tensor, "row col"], kept: int, generator: torch.Generator
) -> tuple[Float[Tensor, " rank"], Triplets]:
    r"""All singular values, as `gram_singular_values`, and the `kept` leading triplets, in float32.

    With orthonormal V the cut is the projection $A V V^\top$, whatever the digits of $\sigma$:
    $A V = U \Sigma$ is made from A. V is that of a Krylov space, where the squared error of the cut
    is within `EXCESS` of the best one, or else the eigenvectors of $A^\top A$ (of a tall A).
    """
    tall = _tall(A)
    gram = _gram(tall)
    V = None
    values = gram[0, :0]
    if 2 * (kept + OVERSAMPLE) <= len(gram) // 2:
        values = _falling(torch.linalg.eigvalsh(gram))
        V = _leading_eigenvectors(gram, values, kept, generator)
    if V is None:
        eigenvalues, vectors = torch.linalg.eigh(gram)
        values = _falling(eigenvalues)
        V = vectors.flip(1)[:, :kept]
    triplets, _ = _cut_to(tall, V)
    single = Triplets(*(one.float() for one in triplets))
    return values.sqrt(), single if tall is A else _transposed(single)


def _leading_eigenvectors(
    gram: Float[Tensor, "n n"],
    eigenvalues: Float[Tensor, " n"],
    kept: int,
    generator: torch.Generator,
) -> Float[Tensor, "n kept"] | None:
    r"""The Ritz vectors of $G = A^\top A$ for the `kept` leading eigenvalues, in the block Krylov
    space $[G \Omega, G^2 \Omega, \dots]$ of a Gaussian $\Omega$ (Musco & Musco 2015).

    The cut $A V V^\top$ has the squared error $\sum_i \lambda_i - \sum_i \theta_i$ with the Ritz
    values $\theta$. All $\lambda$ being known, so is the best one, $\sum_{i > r} \lambda_i$: blocks
    are added until the excess is within `EXCESS` of it, or what float64 rounds. None where that
    takes more than n/2 columns.
    """
    n = len(gram)
    width = kept + OVERSAMPLE
    best = float(eigenvalues[:kept].sum())
    rounding = n * torch.finfo(torch.float64).eps * best
    allowed = EXCESS * float(eigenvalues[kept:].sum()) + rounding
    block = gram @ torch.randn(n, width, generator=generator).double()
    V = images = gram[:, :0]
    while V.shape[1] + width <= n // 2:
        new = _new_directions(V, block)
        block = gram @ new
        V = torch.cat([V, new], 1)
        images = torch.cat([images, block], 1)
        theta, vectors = torch.linalg.eigh(V.mT @ images)
        if best - float(theta[-kept:].sum()) <= allowed:
            return V @ vectors.flip(1)[:, :kept]
    return None


def leading_triplets(A: Update, rank: int, generator: torch.Generator) -> Triplets:
    """The `rank` leading triplets: exact for a small matrix or a product, else as
    `leading_decomposition` finds them.
    """
    if isinstance(A, Product):
        return A.triplets().first(rank)
    n = min(A.shape)
    if n <= LARGEST_DIRECT or rank + OVERSAMPLE >= n:
        return decomposed(A, _whole(n), rank, generator, rank).triplets
    return leading_decomposition(A, rank, generator).triplets


def leading_decomposition(
    A: Float[Tensor, "row col"], rank: int, generator: torch.Generator
) -> Decomposition:
    r"""The `rank` leading triplets, of a block Krylov space $[A^\top \Omega, G A^\top \Omega,
    \dots]$ with $G = A^\top A$ of a tall A, which is not made.

    The space is found in float32. The cut is the projection $A V V^\top$ with V orthonormal in
    float64, and A V is made so too: its squared error is $\|A\|_F^2 - \sum \sigma_i^2$, exactly and
    in float64, and an upper bound of the best one. With the residuals $r_i = G v_i - \theta_i v_i$
    and $c$ the first Ritz value beyond a block, it is above the best one by about $\sum \|r_i\|^2 /
    (\theta_i - c)$ at most. Blocks are added until that is within `EXCESS`, or what float32
    rounds; where the most of `TRIED` do not do, a matrix up to `LARGEST_FULL` is decomposed by its
    Gram matrix.
    """
    tall = _tall(A.float())
    size = float(torch.linalg.vector_norm(tall))
    if not SAFE[0] < size < SAFE[1]:
        largest = float(tall.abs().amax())
        if not math.isfinite(largest):
            raise InputError(f"{FINITE}, got {largest}")
        if largest and not SAFE[0] < largest < SAFE[1]:
            scale = 2.0 ** math.frexp(largest)[1]
            return _scaled(leading_decomposition(A.float() / scale, rank, generator), scale)
    n = tall.shape[1]
    width = rank + OVERSAMPLE
    total = 0.0
    found = Triplets(tall[:, :0], tall[0, :0], tall[:0])
    errors = found.sigma
    certified = False
    for V, images in _krylov_spaces(tall, width, generator):
        theta, vectors = torch.linalg.eigh(images.mT @ images)
        found, total = _cut_to(tall, torch.linalg.qr(V @ vectors.flip(1)[:, :rank]).Q)
        errors, excess = _errors(tall, found, float(theta.flip(0)[width : width + 1].sum()))
        tail = max(total - float(found.sigma.square().sum()), 0.0)
        rounding = width * FLOOR**2 * total  # of V in float32
        certified = excess <= EXCESS * tail + rounding
        if certified:
            break
    if not certified and n <= LARGEST_FULL:
        sigma, found = gram_decomposition(tall, rank, generator)
        found = Triplets(found.U.double(), sigma[:rank], found.Vh.double())
        errors = torch.zeros(rank).double()
    triplets = found if tall.shape == A.shape else _transposed(found)
    return Decomposition(found.sigma, triplets, total, errors)


def _krylov_spaces(
    tall: Float[Tensor, "long short"], width: int, generator: torch.Generator
) -> Iterator[tuple[Float[Tensor, "short known"], Float[Tensor, "long known"]]]:
    """Orthonormal columns of a growing Krylov space, and A times these, at each number of blocks
    that is tried, and where the space is whole.

    They are computed in float32 and given in float64.
    """
    m, n = tall.shape
    block = tall.mT @ torch.randn(m, width, generator=generator)
    V = tall[:0].mT
    images = tall[:, :0]
    for n_blocks in range(1, max(TRIED) + 1):
        new = _new_directions(V, block[:, : n - V.shape[1]])
        V = torch.cat([V, new], 1)
        images = torch.cat([images, tall @ new], 1)
        if n_blocks in TRIED or V.shape[1] == n:
            yield V.double(), images.double()
        if V.shape[1] == n:
            return
        block = tall.mT @ images[:, -new.shape[1] :]


def _scaled(found: Decomposition, scale: float) -> Decomposition:
    """The decomposition of a matrix multiplied by `scale`."""
    U, sigma, Vh = found.triplets
    return Decomposition(
        found.sigma * scale,
        Triplets(U, sigma * scale, Vh),
        found.squared_norm * scale * scale,
        found.errors * scale,
    )


def _errors(
    tall: Float[Tensor, "long short"], found: Triplets, beyond: float
) -> tuple[Float[Tensor, " rank"], float]:
    r"""By how much singular values may be below the true ones, and the sum of their squares too.

    An eigenvalue of $A^\top A$ is within the residual $\|r_i\|$ of $\theta_i$, and within
    $\|r_i\|^2 / (\theta_i - c)$ where no other direction has more than c (`beyond`). What float32
    makes of it, `FLOOR`, is added.
    """
    U, sigma, Vh = found
    theta = sigma.square()
    residual = (tall.mT @ (U * sigma).float()).double() - Vh.mT * theta
    squares = residual.square().sum(0)
    gaps = (theta - beyond).clamp(min=0)
    below = torch.where(squares > 0, squares / gaps, 0.0)
    errors = (theta + torch.minimum(below, squares.sqrt())).sqrt() - sigma
    return errors + FLOOR * sigma[:1], float(below.sum())


def decomposed(
    A: Update, method: Method, rank: int, generator: torch.Generator, kept: int
) -> Decomposition:
    """Singular values of an update, and its `kept` leading triplets: one decomposition for both.

    All values by `full` and `gram`, those of its rank of a product, else the `rank` leading ones.
    """
    exact = torch.zeros(0).double()
    if isinstance(A, Product):
        found = A.triplets()
        return Decomposition(found.sigma, found.first(kept), squared_norm(A), exact)
    n = min(A.shape)
    least = 1 if n > LARGEST_DIRECT else NARROW
    if method == "randomised" and least * (rank + OVERSAMPLE) < n:
        leading = leading_decomposition(A, rank, generator)
        return leading._replace(triplets=leading.triplets.first(kept))
    if method == "randomised":
        whole = decomposed(A, _whole(n), rank, generator, max(kept, 1))
        return whole._replace(sigma=whole.sigma[:rank], triplets=whole.triplets.first(kept))
    total = squared_norm(A)
    if not math.isfinite(total):
        raise InputError(f"{FINITE}, got a sum of squares of {total}")
    if method == "gram" and kept:
        return Decomposition(*gram_decomposition(A, kept, generator), total, exact)
    if kept:
        whole = Triplets(*torch.linalg.svd(A.double(), full_matrices=False))
        return Decomposition(whole.sigma, whole.first(kept), total, exact)
    sigma = gram_singular_values(A) if method == "gram" else torch.linalg.svdvals(A.double())
    return Decomposition(sigma, Triplets(A[:, :0], sigma[:0], A[:0]), total, exact)


def chosen_method(shape: tuple[int, int], wanted: str) -> Method:
    """The method of a shape: `auto` takes the leading values of a large matrix alone."""
    if wanted == "auto":
        return _whole(min(shape)) if min(shape) <= LARGEST_FULL else "randomised"
    return wanted  # pyright: ignore[reportReturnType]


def rounding_edge(*weights: Float[Tensor, "row col"]) -> float:
    r"""The largest singular value that random rounding gives to an update, $\sqrt{R} + \sqrt{C}$.

    A weight w stored with p bits was rounded by at most half its spacing $2^{\lfloor\log_2
    |w|\rfloor - p + 1}$: noise of variance spacing² / 12. R and C are the largest sums of these
    variances over a row and over a column of all the weights together, and bound the operator norm
    of such noise (Latała 2005, up to constants; below it in every case that was drawn). Singular
    values beneath the edge may be rounding and nothing else.
    """
    rows, cols = (torch.zeros(n).double() for n in weights[0].shape)
    if not weights[0].numel():
        return 0.0
    for W in weights:
        for sums, of_W in zip((rows, cols), rounding_variances(W), strict=True):
            sums += of_W
    return float(rows.max().sqrt() + cols.max().sqrt())


def rounding_variances(
    W: Float[Tensor, "row col"],
) -> tuple[Float[Tensor, " row"], Float[Tensor, " col"]]:
    r"""The variances of the weights' rounding to their type, summed over each row and each column.

    With its exponent's bits alone a number is $2^{\lfloor\log_2 |w|\rfloor}$. One that is
    subnormal has the spacing of the least that is not, and one that is zero no rounding. Float32
    holds the squares of these powers, or else those of their shares of the largest; its sums err by
    some 1e-7.
    """
    bits, exponent, significand = FORMATS[W.dtype]
    unit = 1.0
    sums, cols = _squared_powers(W, unit)
    if not HELD[0] < float(cols.max()) < HELD[1]:
        of_rows = (W[rows].view(bits) & exponent for rows in blocks(W, CHUNK))
        largest = max(float(powers.amax().view(W.dtype)) for powers in of_rows)
        unit = max(largest, torch.finfo(W.dtype).tiny)
        sums, cols = _squared_powers(W, unit)
    spacing = unit * 2.0 ** (1 - significand)
    variance = spacing * spacing / 12
    return sums * variance, cols * variance


def _squared_powers(
    W: Float[Tensor, "row col"], unit: float
) -> tuple[Float[Tensor, " row"], Float[Tensor, " col"]]:
    """The squares of the weights' powers of two, in units of one, summed over rows and columns."""
    bits, exponent, _ = FORMATS[W.dtype]
    least = torch.finfo(W.dtype).tiny
    wide = torch.float64 if W.dtype == torch.float64 else torch.float32
    sums, cols = (torch.zeros(n).double() for n in W.shape)
    ones = torch.ones(max(W.shape))
    for rows in blocks(W, CHUNK):
        power = (W[rows].view(bits) & exponent).view(W.dtype)
        if least > unit * SMALL:
            power.masked_fill_((power == 0) & (W[rows] != 0), least)
        share = power.to(wide) if unit == 1.0 else power.to(wide) / unit
        square = share.float().square_()
        sums[rows] = (square @ ones[: W.shape[1]]).double()
        cols += (ones[: len(square)] @ square).double()
    return sums, cols


def _whole(n: int) -> Method:
    """The method that computes all singular values of a matrix whose shorter side is n."""
    return "full" if n <= LARGEST_DIRECT else "gram"


def _tall(A: Float[Tensor, "row col"]) -> Float[Tensor, "long short"]:
    return A if A.shape[1] <= A.shape[0] else A.mT


def _gram(tall: Float[Tensor, "long short"]) -> Float[Tensor, "short short"]:
    n = tall.shape[1]
    gram = torch.zeros(n, n, dtype=torch.float64)
    panels = [slice(start, start + PANEL) for start in range(0, n, PANEL)]
    for rows in blocks(tall, BLOCK):
        block = tall[rows].double()
        for panel in panels:
            gram[panel, panel.start :].addmm_(block[:, panel].mT, block[:, panel.start :])
    for panel in panels:
        gram[panel.stop :, panel] = gram[panel, panel.stop :].mT
    return gram


def _cut_to(
    tall: Float[Tensor, "long short"], V: Float[Tensor, "short rank"]
) -> tuple[Triplets, float]:
    r"""The singular triplets of $A V V^\top$, V orthonormal, and $\|A\|_F^2$, in float64 and of one
    reading of A.

    A value is the norm of its column of A V. U has zeros where that is zero.
    """
    images, total = _images(tall, V)
    turn = torch.linalg.eigh(images.mT @ images).eigenvectors
    images = images @ turn
    sigma, order = images.norm(dim=0).sort(descending=True)
    U = images[:, order] / torch.where(sigma > 0, sigma, 1.0)
    return Triplets(U, sigma, (V @ turn[:, order]).mT), total


def _images(
    tall: Float[Tensor, "long short"], V: Float[Tensor, "short rank"]
) -> tuple[Float[Tensor, "long rank"], float]:
    r"""A V and $\|A\|_F^2$ in float64, by blocks of rows as A or its transpose is stored."""
    images = torch.zeros(len(tall), V.shape[1], dtype=torch.float64)
    total = 0.0
    stored = tall if tall.is_contiguous() else tall.mT
    for rows in blocks(stored, CHUNK):
        block = stored[rows].double()
        total += _squared(block)
        if stored is tall:
            torch.mm(block, V, out=images[rows])
        else:
            images.addmm_(block.mT, V[rows])
    return images, total


def _new_directions(
    V: Float[Tensor, "n known"], block: Float[Tensor, "n width"]
) -> Float[Tensor, "n width"]:
    """What a block adds to orthonormal columns, orthonormal too, whatever depends on what."""
    return torch.linalg.qr(torch.cat([V, block], 1)).Q[:, V.shape[1] :]


def _transposed(found: Triplets) -> Triplets:
    return Triplets(found.Vh.mT, found.sigma, found.U.mT)


def _falling(eigenvalues: Float[Tensor, " rank"]) -> Float[Tensor, " rank"]:
    return eigenvalues.clamp(min=0).flip(0)


def _squared(block: Float[Tensor, "row col"]) -> float:
    entries = block.flatten()
    return float(torch.dot(entries, entries))


def blocks(A: Float[Tensor, "row col"], n_entries: int | None = None) -> list[slice]:
    """Slices of rows with about `n_entries` entries each, or `BLOCK`."""
    n = max((n_entries or BLOCK) // max(A.shape[1], 1), 1)
    return [slice(start, min(start + n, len(A))) for start in range(0, len(A), n)]
