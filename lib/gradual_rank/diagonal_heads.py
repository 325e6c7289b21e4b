r"""Networks with diagonal weights (Definition 3.1 of Boix-Adserà et al. 2023), as losses of the
products p = u ⊙ v.

Tokens are rows. The attention head is equation (1) of the paper: no 1/√d, no residual, no bias,

    attention(X; W_K, W_Q, W_V, W_O) = softmax(X W_K W_Qᵀ Xᵀ) X W_V W_Oᵀ,

and its diagonal form has W_K = diag(w_K) and so on. It depends on the weights through the products
a = w_K ⊙ w_Q and b = w_V ⊙ w_O alone; here p = (a, b), u = (w_K, w_V), v = (w_Q, w_O). Every loss
offers its value, the negative gradient g(p) = -∂L/∂p, and a principal part of its Hessian; by
automatic differentiation unless it has a closed form.
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import ndtr
from torch import Tensor
from torch.nn.functional import gelu

Products = Float[Tensor, "*batch p"]
BLOCK = 1 << 16  # numbers in a block of samples: half a megabyte of float64
SAFE = 300.0  # a logit whose exponential, and sums of it and its inverse, float64 can write
QUIET = np.errstate(
    all="ignore"
)  # numpy's products of what is not finite go on as torch's, without a warning


class DiagonalLoss(ABC):
    r"""The loss $L(p)$ of a network $h(x; u \odot v)$ whose weights are `size` pairs; float64.

    A network is defined by its `value`; any twice differentiable one will do.
    """

    size: int

    @abstractmethod
    def value(self, p: Products) -> Float[Tensor, "*batch"]:
        """L(p)."""

    def gradient(self, p: Products) -> Products:
        r"""$g(p) = -\partial L / \partial p$, so that gradient flow is $\dot u = v \odot g$, $\dot
        v = u \odot g$.
        """
        with torch.enable_grad():
            p = p.detach().requires_grad_()
            return -torch.autograd.grad(self.value(p).sum(), p)[0]

    def hessian(self, p: Float[Tensor, " p"], support: Int[Tensor, " k"]) -> Float[Tensor, "p k"]:
        r"""The columns of $\partial^2 L / \partial p^2$ in the support, all rows."""
        with torch.enable_grad():
            p = p.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.value(p), p, create_graph=True)
            if not len(support):
                return p.new_zeros(len(p), 0)
            units = torch.eye(len(p), dtype=p.dtype)[support]
            (rows,) = torch.autograd.grad(slope, p, units, is_grads_batched=True)
        return rows.T.contiguous()

    def restricted(self, support: Int[Tensor, " k"]) -> "DiagonalLoss":
        """The loss as a function of the k products in the support (rising), the others zero."""
        return _Restricted(self, support)


class _Restricted(DiagonalLoss):
    """Any loss, restricted."""

    def __init__(self, loss: DiagonalLoss, support: Int[Tensor, " k"]):
        self.loss, self.support, self.size = loss, support, len(support)

    def _whole(self, p: Products) -> Tensor:
        return p.new_zeros(*p.shape[:-1], self.loss.size).index_copy(-1, self.support, p)

    def value(self, p: Products) -> Float[Tensor, "*batch"]:
        """L(p)."""
        return self.loss.value(self._whole(p))

    def gradient(self, p: Products) -> Products:
        """g(p) in the support."""
        return self.loss.gradient(self._whole(p))[..., self.support]

    def hessian(self, p: Float[Tensor, " p"], support: Int[Tensor, " k"]) -> Float[Tensor, "p k"]:
        """Columns of the second derivatives, all numbered within the support."""
        return self.loss.hessian(self._whole(p), self.support[support])[self.support]


class Quadratic(DiagonalLoss):
    r"""$L(p) = \frac12 (p - p_*)^\top H (p - p_*)$: a linear network, whose stages can be worked
    out by hand.
    """

    def __init__(self, H: Float[Tensor, "p p"], minimum: Float[Tensor, " p"]):
        self.H, self.minimum, self.size = H.double(), minimum.double(), len(minimum)

    def value(self, p: Products) -> Float[Tensor, "*batch"]:
        """L(p)."""
        off = p - self.minimum
        return ((off @ self.H) * off).sum(-1) / 2

    def gradient(self, p: Products) -> Products:
        r"""$H (p_* - p)$."""
        return (self.minimum - p) @ self.H

    def hessian(self, p: Float[Tensor, " p"], support: Int[Tensor, " k"]) -> Float[Tensor, "p k"]:
        """The columns of H in the support, for every p."""
        return self.H[:, support]


class _HeadPart(DiagonalLoss):
    r"""A head with some of its products, the others zero: `keys` of a, through whose columns of X
    tokens attend, and `values` of b, the only columns of its output.

    Where few products are at work its derivatives cost few columns. Batch axes of X, Y and p go
    together.
    """

    def __init__(
        self, X: Tensor, Y: Tensor, keys: Tensor, values: Tensor, base: Tensor | None = None
    ):
        self.size, self._n_keys, self._base = len(keys) + len(values), len(keys), base
        self._scale = 2.0 / (X.shape[-3] * X.shape[-2] * X.shape[-1])
        split = max(1, BLOCK // (X.shape[-2] * X.shape[-1]))
        pairs = zip(X.split(split, -3), Y.split(split, -3), strict=True)
        self._blocks = [_Block.of(*pair, keys, values) for pair in pairs]
        self._elsewhere = (
            Y.square().sum((-3, -2)).index_fill(-1, values, 0.0).sum(-1)
        )  # where the output is zero

    def value(self, p: Products) -> Float[Tensor, "*batch"]:
        """Mean squared error."""
        a, b = self._halves(p)
        off = [_head(one.keys, one.values, a, b).add(one.negative_target) for one in self._blocks]
        off = [R.square().sum((-3, -2, -1)) for R in off]
        return (self._elsewhere + torch.stack(off).sum(0)) * (self._scale / 2)

    @QUIET
    def gradient(self, p: Products) -> Products:
        r"""$g(p)$ in closed form; see `_parts`."""
        found = None
        for block in self._blocks:
            _, Z, _, R, D = self._parts(block, p)
            g_a = _product(D, block.K).mul_(block.keys).sum((-3, -2))
            g_b = R.mul_(Z).sum((-3, -2))
            here = torch.cat([g_a, g_b], -1)
            found = here if found is None else found.add_(here)
        return torch.zeros_like(p) if found is None else found.mul_(-self._scale)

    @QUIET
    def hessian(self, p: Float[Tensor, " p"], support: Int[Tensor, " k"]) -> Float[Tensor, "p k"]:
        r"""Columns of the Hessian in closed form.

        For query token i, attention weights $A_{ij}$ and mean token $z_i = \sum_j A_{ij} x_j$,
        write $V_{ijl} = x_{il} (x_{jl} - z_{il})$, so that $\partial z_i / \partial a_l = \sum_j
        A_{ij} V_{ijl} x_j$. With $R = f - Y$, $s = \partial^2 L / \partial f^2$, and s D the
        gradient in the logits,

        $H_{aa} = s \sum_{ij} V_{ijl}
        (\sum_{j'} A_{ij} A_{ij'} x_j^\top \mathrm{diag}(b^2)\, x_{j'} V_{ij'k} + D_{ij} V_{ijk})$,
        $H_{ab} = s \sum_{ij} A_{ij} V_{ijl} x_{jm} (z_{im} b_m + R_{im})$,
        $H_{bb} = s\, \mathrm{diag}\,(\sum_i z_{im}^2)$.
        """
        n = self._n_keys
        of_a = support < n
        a = support[of_a]
        b = support[~of_a] - n
        H_a = p.new_zeros(self.size, len(a))
        H_b = p.new_zeros(self.size, len(b))
        for block in self._blocks:
            K = block.keys
            X = block.values
            A, Z, w, R, D = self._parts(block, p)
            w_VO = w[..., 0, 0, :]
            V = K[:, :, None] * (K[:, None] - (A @ K)[:, :, None])
            flat = V.flatten(0, 2)
            mixed = torch.addcmul(R, Z, w_VO)
            H_b[:n] += (flat * A.reshape(-1, 1)).T @ (
                X[:, None, :, b] * mixed[:, :, None, b]
            ).flatten(0, 2)
            H_b[n + b, torch.arange(len(b))] += Z[..., b].square().sum((0, 1))
            if len(a):
                V_a = V[..., a]
                gram = _product(X * w_VO.square(), block.V_T)
                curved = (A[..., :, None] * A[..., None, :] * gram[:, None]) @ V_a + D[
                    ..., None
                ] * V_a
                H_a[:n] += flat.T @ curved.flatten(0, 2)
                H_a[n:] += ((A[..., None] * V_a).mT @ X[:, None] * mixed[:, :, None]).sum((0, 1)).T
        found = p.new_zeros(self.size, len(support))
        found[:, of_a], found[:, ~of_a] = H_a, H_b
        return found.mul_(self._scale)

    def _parts(self, block: "_Block", p: Products) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        r"""A, Z = A X, b beside tokens, R = f - Y, and D: L changes by s R with the output, by s D
        with the logits.
        """
        a, b = self._halves(p)
        A = _softmax(_product(block.keys * a, block.K_T))
        Z = _product(A, block.V)
        R = torch.addcmul(block.negative_target, Z, b)
        back = _product(R * b, block.V_T).mul_(A)
        D = torch.addcmul(back, A, back.sum(-1, keepdim=True), value=-1)
        return A, Z, b, R, D

    def _halves(self, p: Products) -> tuple[Tensor, ...]:
        """a and b beside tokens."""
        p = p if self._base is None else p + self._base
        return p.unflatten(-1, (1, 1, -1)).split_with_sizes(
            (self._n_keys, self.size - self._n_keys), -1
        )


class DiagonalHead(_HeadPart):
    r"""One diagonal attention head under the mean squared error over all samples, tokens and
    entries.

    With `base` the trained products are added to frozen ones, $h(x; p_0 + u \odot v)$, as an
    adapter's are. Batch axes of X, Y and p go together: an ensemble of heads, each with its own
    data.
    """

    def __init__(
        self,
        X: Float[Tensor, "*batch sample token d"],
        Y: Float[Tensor, "*batch sample token d"],
        base: Float[Tensor, "*batch p"] | None = None,
    ):
        self.X, self.Y, self.base = X.double(), Y.double(), base
        every = torch.arange(X.shape[-1])
        super().__init__(self.X, self.Y, every, every, base)

    def on_share(self, share: float) -> "DiagonalHead":
        """The loss on the first of the samples, one at least: a cheaper one of nearly the same
        curvature.
        """
        n = max(1, round(share * self.X.shape[-3]))
        return DiagonalHead(self.X[..., :n, :, :], self.Y[..., :n, :, :], self.base)

    def restricted(self, support: Int[Tensor, " k"]) -> DiagonalLoss:
        """The loss of the products in the support (rising), the others zero, at the cost of their
        columns.
        """
        if self.base is not None:
            return super().restricted(support)
        d = self.X.shape[-1]
        return _HeadPart(self.X, self.Y, support[support < d], support[support >= d] - d)


class _Block(NamedTuple):
    """Some of the samples, few enough to stay in the processor's cache, in the columns that are at
    work.

    K and V are the same numbers as `keys` and `values`, and beside them transposed, for products by
    numpy.
    """

    keys: Tensor
    values: Tensor
    negative_target: Tensor
    K: np.ndarray
    K_T: np.ndarray
    V: np.ndarray
    V_T: np.ndarray

    @classmethod
    def of(cls, X: Tensor, Y: Tensor, keys: Tensor, values: Tensor) -> "_Block":
        K = X if len(keys) == X.shape[-1] else X[..., keys]
        V = K if torch.equal(keys, values) else X[..., values]
        K_T = K.mT.contiguous()
        V_T = K_T if V is K else V.mT.contiguous()
        return cls(K, V, -Y[..., values], K.numpy(), K_T.numpy(), V.numpy(), V_T.numpy())


def _softmax(S: Tensor) -> Tensor:
    """Softmax of short rows, which are overwritten; torch's own takes six times as long on them in
    float64.

    Where every exponential is far from overflow and underflow, nothing is taken off the rows first:
    that is faster and rounds once less.
    """
    if not (S.amax().item() < SAFE and S.amin().item() > -SAFE):
        S.sub_(S.amax(-1, keepdim=True))
    E = S.exp_()
    return E.mul_(E.sum(-1, keepdim=True).reciprocal_())


def _product(A: Tensor, B: np.ndarray) -> Tensor:
    """A B of many small matrices, by numpy, whose BLAS takes a third of the time of torch's bmm on
    them.
    """
    return torch.from_numpy(np.matmul(A.numpy(), B))


def diagonal_head(
    X: Float[Tensor, "*batch sample token d"], p: Products
) -> Float[Tensor, "*batch sample token d"]:
    r"""$\mathrm{softmax}(X\,\mathrm{diag}(a) X^\top) X\,\mathrm{diag}(b)$ for p = (a, b)."""
    return _head(X, X, *(half[..., None, None, :] for half in p.chunk(2, -1)))


def _head(K: Tensor, V: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The head, of the columns of its tokens that are at work."""
    S = (
        (K * a) @ K.mT
    )  # is symmetric: softmax over columns, a fifth of the time of that over short rows, is Aᵀ
    return torch.softmax(S, -2).mT @ V * b


class DiagonalTransformer(DiagonalLoss):
    r"""A transformer with diagonal attention weights and frozen feed-forward blocks (Example 3.2).

    Each layer is $X \mapsto X + \sum_h \mathrm{head}_h(X)$, then $X \mapsto X + \mathrm{GELU}(X
    W_1) W_2$. Every head is diagonal in its own frozen orthogonal frame $Q_h$ (its input is $X
    Q_h$, its output is turned back): in one common frame two heads of a layer have the same
    gradient wherever their a vanish, the second activation is tied with the first, and Assumption
    4.2 fails. p = (a, b) of every head, layer by layer.
    """

    def __init__(
        self,
        X: Float[Tensor, "sample token d"],
        frames: Float[Tensor, "layer head d d"],
        W_1: Float[Tensor, "layer d d_mlp"],
        W_2: Float[Tensor, "layer d_mlp d"],
        Y: Float[Tensor, "sample token d"],
    ):
        self.X, self.frames, self.W_1, self.W_2, self.Y = X, frames, W_1, W_2, Y
        self.size = 2 * frames.shape[0] * frames.shape[1] * frames.shape[2]

    def on_share(self, share: float) -> "DiagonalTransformer":
        """The loss on the first of the samples, one at least."""
        n = max(1, round(share * len(self.X)))
        return DiagonalTransformer(self.X[:n], self.frames, self.W_1, self.W_2, self.Y[:n])

    def output(self, p: Float[Tensor, " p"]) -> Float[Tensor, "sample token d"]:
        """The last layer's tokens."""
        X = self.X
        heads = p.reshape(*self.frames.shape[:2], -1)
        for Q, W_1, W_2, layer in zip(self.frames, self.W_1, self.W_2, heads, strict=True):
            X = X + (diagonal_head(X @ Q[:, None], layer) @ Q.mT[:, None]).sum(0)
            X = X + gelu(X @ W_1) @ W_2
        return X

    def value(self, p: Products) -> Float[Tensor, "*batch"]:
        """Mean squared error."""
        rows = [(self.output(row) - self.Y).square().mean() for row in p.reshape(-1, p.shape[-1])]
        return torch.stack(rows).reshape(p.shape[:-1])

    def gradient(self, p: Products) -> Products:
        r"""$g(p)$ by backpropagation, written out: automatic differentiation of so small a network
        takes twice as long.

        With $T = X Q_h$, attention weights A, $Z = A T$ and the loss's gradient G in a head's
        output, seen in its frame: $\partial L / \partial b = \sum G \odot Z$ over samples and
        tokens, and with $B = (G b) T^\top$ and $D = A \odot (B - (A \odot B) 1 1^\top)$, the
        gradient in the logits, $\partial L / \partial a = \sum (D T) \odot T$.
        """
        rows = [self._slope(row) for row in p.detach().reshape(-1, p.shape[-1]).numpy()]
        return torch.from_numpy(np.stack(rows)).reshape(p.shape).neg_()

    def _slope(self, p: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
        _, n_tokens, d = self.X.shape
        X = self.X.numpy().reshape(-1, d)
        found = []
        heads = p.reshape(*self.frames.shape[:2], 2, 1, d)
        layers = []
        for *frozen, layer in zip(
            self.frames.numpy(), self.W_1.numpy(), self.W_2.numpy(), heads, strict=True
        ):
            Q, W_1, W_2 = frozen
            a = layer[:, 0]
            b = layer[:, 1]
            T = (X @ Q).reshape(-1, n_tokens, d)
            T_a = _by_head(T, a)
            S = T_a @ T.swapaxes(1, 2).copy()
            A = np.exp(S - S.max(-1, keepdims=True))
            A /= A.sum(-1, keepdims=True)
            Z = A @ T
            X = X + (_by_head(Z, b).reshape(len(Q), -1, d) @ Q.swapaxes(1, 2)).sum(0)
            U = X @ W_1
            share = ndtr(U)
            X = X + (U * share) @ W_2
            bent = share + U * np.exp(U * U / -2) / math.sqrt(2 * math.pi)
            layers.append((*frozen, a, b, T, T_a, A, Z, bent))
        G = (X - self.Y.numpy().reshape(-1, d)) * (2 / X.size)
        for Q, W_1, W_2, a, b, T, T_a, A, Z, bent in reversed(layers):
            G = G + ((G @ W_2.T) * bent) @ W_1.T
            seen = (G @ Q).reshape(T.shape)
            back = _by_head(seen, b)
            D = (back @ T.swapaxes(1, 2).copy()) * A
            D -= A * D.sum(-1, keepdims=True)
            D_T = D @ T
            of_a, of_b = ((one.reshape(len(Q), -1, d)).sum(1) for one in (D_T * T, seen * Z))
            found.append(np.stack([of_a, of_b], 1))
            into = A.swapaxes(1, 2).copy() @ back + _by_head(D_T, a) + D.swapaxes(1, 2).copy() @ T_a
            G = G + (into.reshape(len(Q), -1, d) @ Q.swapaxes(1, 2)).sum(0)
        return np.stack(found[::-1]).reshape(p.shape)


def _by_head(T: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Tokens of all heads, one head's samples after another's, times a vector of each head."""
    return (T.reshape(len(w), -1, T.shape[-1]) * w).reshape(T.shape)


def diagonal_network(
    X: Float[Tensor, "sample token d"],
    Y: Float[Tensor, "sample token d"],
    frames: Float[Tensor, "layer head d d"] | None = None,
    W_1: Float[Tensor, "layer d d_mlp"] | None = None,
    W_2: Float[Tensor, "layer d_mlp d"] | None = None,
) -> DiagonalHead | DiagonalTransformer:
    """The loss of one head, or, where its frames and feed-forward blocks are given, of a
    transformer of Example 3.2.
    """
    if frames is None or W_1 is None or W_2 is None:
        return DiagonalHead(X, Y)
    return DiagonalTransformer(X, frames, W_1, W_2, Y)


def taught(
    p: Float[Tensor, " p"], X: Float[Tensor, "sample token d"], **blocks: Tensor
) -> Float[Tensor, "sample token d"]:
    """The output of a network of `diagonal_network` with products p: the targets that a teacher
    gives.
    """
    return DiagonalTransformer(X, Y=X, **blocks).output(p) if blocks else diagonal_head(X, p)


def adapted_head(
    X: Float[Tensor, "sample token d"],
    base: Float[Tensor, " p"],
    places: Int[Tensor, " k"],
    change: Float[Tensor, " k"],
) -> DiagonalHead:
    """The loss of what is added to a trained head, whose teacher differs from it in some places."""
    return DiagonalHead(X, diagonal_head(X, base.index_add(0, places, change)), base)


def same_entry(
    frames: Float[Tensor, "layer head d d"], coordinate: int
) -> Int[np.ndarray, " head"]:
    """Of a transformer's products, that of a coordinate's entry in every head of its layer, its own
    among them.
    """
    n_layers, n_heads, d, _ = frames.shape
    places = np.arange(n_layers * n_heads * 2 * d).reshape(n_layers, n_heads, 2 * d)
    layer, _, entry = (int(k[0]) for k in np.nonzero(places == coordinate))
    return places[layer, :, entry]
