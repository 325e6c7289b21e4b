"""Spectra of large updates W - W_0, and what random rounding alone would show."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Method = Literal["full", "gram", "randomised", "factors"]
LARGEST_DIRECT = 256  # the shorter side up to which a matrix itself is decomposed, not its Gram
LARGEST_FULL = 1024  # up to which all singular values are computed
OVERSAMPLE = 16  # columns of a randomised range
PASSES = 2  # over it: the tail is then within 2 % of the best
BLOCK = 1 << 20  # entries that are in float64 at a time
SIGNIFICAND = {
    torch.float64: 53,
    torch.float32: 24,
    torch.float16: 11,
    torch.bfloat16: 8,
}  # bits, the hidden one too


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
    """The update W - W_0, taken in float64; kept so for a matrix that is decomposed itself.

    An adapter has no W: what it adds to W_0 is the update.
    """
    if isinstance(W, Product):
        return W
    if min(W.shape) <= LARGEST_DIRECT:
        return W.double() - W_0.double()
    update = torch.empty(W.shape, dtype=torch.float32)
    for rows in blocks(W):
        update[rows] = (W[rows].double() - W_0[rows].double()).float()
    return update


def squared_norm(A: Update) -> float:
    r"""$\|A\|_F^2$, summed in float64."""
    if isinstance(A, Product):
        return float(A.triplets().sigma.square().sum())
    return sum((float(A[rows].double().square().sum()) for rows in blocks(A)), start=0.0)


def gram_singular_values(A: Float[Tensor, "row col"]) -> Float[Tensor, " rank"]:
    r"""All singular values, as the roots of the eigenvalues of $A^\top A$ (of the shorter side), in
    float64 by blocks.

    Values below some $10^{-8} \sigma_1$ are lost: squaring halves the digits.
    """
    return _roots(torch.linalg.eigvalsh(_gram(_tall(A))))


def gram_decomposition(
    A: Float[Tensor, "row col"], kept: int
) -> tuple[Float[Tensor, " rank"], Triplets]:
    r"""All singular values, as `gram_singular_values`, and the `kept` leading triplets, in float32.

    With the eigenvectors V of $A^\top A$ (of a tall A) the cut is the projection $A V_r V_r^\top$,
    whatever the digits of $\sigma$: $A V = U \Sigma$ is made from A.
    """
    tall = _tall(A)
    values, vectors = torch.linalg.eigh(_gram(tall))
    sigma = _roots(values)
    V = vectors.flip(1)[:, :kept]
    scale = sigma[:kept].clamp(min=torch.finfo(torch.float64).tiny)
    U = torch.empty(len(tall), V.shape[1], dtype=torch.float32)
    for rows in blocks(tall):
        U[rows] = (tall[rows].double() @ V / scale).float()
    V = V.float()
    first = sigma[:kept].float()
    return sigma, Triplets(U, first, V.mT) if tall is A else Triplets(V, first, U.mT)


def leading_triplets(A: Update, rank: int, generator: torch.Generator) -> Triplets:
    r"""The `rank` leading triplets: exact for a small matrix or a product, else of a randomised
    range (Halko et al. 2011).

    The range is that of $(A A^\top)^{PASSES} A \Omega$, Gaussian $\Omega$ with `rank + OVERSAMPLE`
    columns, made orthonormal after each product. The cut $U \Sigma V^\top$ is a projection of A, so
    that its squared error is $\|A\|_F^2 - \sum \sigma_i^2$ exactly, and that is an upper bound of
    the best one. Single $\sigma_i$ are good to some percent where the spectrum is flat.
    """
    if isinstance(A, Product):
        return A.triplets().first(rank)
    n = min(A.shape)
    if n <= LARGEST_DIRECT or rank + OVERSAMPLE >= n:
        return decomposed(A, _whole(n), rank, generator, rank)[1]
    A = A.float()
    Q = torch.linalg.qr(A @ torch.randn(A.shape[1], rank + OVERSAMPLE, generator=generator)).Q
    for _ in range(PASSES):
        Q = torch.linalg.qr(A @ torch.linalg.qr(A.mT @ Q).Q).Q
    U, sigma, Vh = torch.linalg.svd((Q.mT @ A).double(), full_matrices=False)
    return Triplets(Q.double() @ U[:, :rank], sigma[:rank], Vh[:rank])


def decomposed(
    A: Update, method: Method, rank: int, generator: torch.Generator, kept: int
) -> tuple[Float[Tensor, " rank"], Triplets]:
    """Singular values of an update, and its `kept` leading triplets: one decomposition for both.

    All values by `full` and `gram`, those of its rank of a product, else the `rank` leading ones.
    """
    if isinstance(A, Product):
        found = A.triplets()
        return found.sigma, found.first(kept)
    if method == "randomised":
        found = leading_triplets(A, rank, generator)
        return found.sigma, found.first(kept)
    if method == "gram" and kept:
        return gram_decomposition(A, kept)
    if kept:
        whole = Triplets(*torch.linalg.svd(A.double(), full_matrices=False))
        return whole.sigma, whole.first(kept)
    sigma = gram_singular_values(A) if method == "gram" else torch.linalg.svdvals(A.double())
    return sigma, Triplets(A[:, :0], sigma[:0], A[:0])


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
    for W in weights:
        for block in blocks(W):
            variance = rounding_variance(W[block])
            rows[block] += variance.sum(1)
            cols += variance.sum(0)
    return float(rows.max().sqrt() + cols.max().sqrt())


def rounding_variance(W: Float[Tensor, "row col"]) -> Float[Tensor, "row col"]:
    """The variance of each weight's rounding to its type; zero for a weight that is zero."""
    _, exponent = torch.frexp(W.double())  # |w| = m 2^e with m in [1/2, 1)
    spacing = torch.exp2(exponent.double() - SIGNIFICAND[W.dtype])
    return torch.where(W == 0, 0.0, spacing.square() / 12)


def _whole(n: int) -> Method:
    """How all singular values are computed of a matrix with that shorter side."""
    return "full" if n <= LARGEST_DIRECT else "gram"


def _tall(A: Float[Tensor, "row col"]) -> Float[Tensor, "long short"]:
    return A if A.shape[1] <= A.shape[0] else A.mT


def _gram(tall: Float[Tensor, "long short"]) -> Float[Tensor, "short short"]:
    gram = torch.zeros(tall.shape[1], tall.shape[1], dtype=torch.float64)
    for rows in blocks(tall):
        block = tall[rows].double()
        gram.addmm_(block.mT, block)
    return gram


def _roots(eigenvalues: Float[Tensor, " rank"]) -> Float[Tensor, " rank"]:
    return eigenvalues.clamp(min=0).flip(0).sqrt()


def blocks(A: Float[Tensor, "row col"]) -> list[slice]:
    """Rows of a matrix, some at a time."""
    n = max(BLOCK // max(A.shape[1], 1), 1)
    return [slice(start, min(start + n, len(A))) for start in range(0, len(A), n)]
