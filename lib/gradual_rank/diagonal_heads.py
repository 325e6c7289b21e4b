r"""Losses of networks with diagonal weights, as functions of the products p = u ⊙ v.

The networks are those of Definition 3.1 of Boix-Adserà et al. (2023).

Tokens are rows. The attention head is equation (1) of the paper: no 1/√d, no residual, no bias,

    attention(X; W_K, W_Q, W_V, W_O) = softmax(X W_K W_Qᵀ Xᵀ) X W_V W_Oᵀ,

and its diagonal form has W_K = diag(w_K) and so on. It depends on the weights through the products
a = w_K ⊙ w_Q and b = w_V ⊙ w_O alone; here p = (a, b), u = (w_K, w_V), v = (w_Q, w_O). Every loss
offers its value, the negative gradient g(p) = -∂L/∂p, and columns of its Hessian. They come from
automatic differentiation unless the loss has a closed form.
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
BLOCK = 1 << 16  # how many numbers a block of samples has: half a megabyte of float64
# float64 can hold the exponential of such a logit, its inverse, and sums of them
SAFE = 300.0
# numpy multiplies numbers that are not finite without a warning, as torch does
QUIET = np.errstate(all="ignore")


class DiagonalLoss(ABC):
    r"""The loss $L(p)$ of a network $h(x; u \odot v)$ with `size` pairs of weights, in float64.

    A network is defined by its `value`; any twice differentiable function will do.
    """

    size: int

    @abstractmethod
    def value(self, p: Products) -> Float[Tensor, "*batch"]:
        """The loss L(p)."""

    def gradient(self, p: Products) -> Products:
        r"""The negative gradient $g(p) = -\partial L / \partial p$.

        Gradient flow is $\dot u = v \odot g$, $\dot v = u \odot g$.
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
        """The loss as a function of the k products in the support (in rising order), the others
        zero.
        """
        return _Restricted(self, support)


class _Restricted(DiagonalLoss):
    """A loss as a function of some of its products, the others zero."""

    def __init__(self, loss: DiagonalLoss, support: Int[Tensor, " k"]):
        self.loss, self.support, self.size = loss, support, len(support)

    def _whole(self, p: Products) -> Tensor:
        return p.new_zeros(*p.shape[:-1], self.loss.size).index_copy(-1, self.support, p)

    def value(self, p: Products) -> Float[Tensor, "*batch"]:
        """The loss L(p)."""
        return self.loss.value(self._whole(p))

    def gradient(self, p: Products) -> Products:
        """The negative gradient g(p) in the support."""
        return self.loss.gradient(self._whole(p))[..., self.support]

    def hessian(self, p: Float[Tensor, " p"], support: Int[Tensor, " k"]) -> Float[Tensor, "p k"]:
        """The columns of the second derivatives; rows and columns are numbered in the support."""
        return self.loss.hessian(self._whole(p), self.support[support])[self.support]


class Quadratic(DiagonalLoss):
    r"""The loss $L(p) = \frac12 (p - p_*)^\top H (p - p_*)$ of a linear network.

    Its stages can be worked out by hand.
    """

    def __init__(self, H: Float[Tensor, "p p"], minimum: Float[Tensor, " p"]):
        self.H, self.minimum, self.size = H.double(), minimum.double(), len(minimum)

    def value(self, p: Products) -> Float[Tensor, "*batch"]:
        """The loss L(p)."""
        off = p - self.minimum
        return ((off @ self.H) * off).sum(-1) / 2

    def gradient(self, p: Products) -> Products:
        """The negative gradient $H (p_* - p)$."""
        return (self.minimum - p) @ self.H

    def hessian(self, p: Float[Tensor, " p"], support: Int[Tensor, " k"]) -> Float[Tensor, "p k"]:
        """The columns of H in the support, for every p."""
        return self.H[:, support]


class _HeadPart(DiagonalLoss):
    """A head in which some products are at work and the others are zero.

    At work are the entries `keys` of a, through whose columns of X tokens attend, and the entries
    `values` of b, the only columns of the output. Where few products are at work, the derivatives
    cost few columns. The batch axes of X, Y and p go together.
    """

    def __init__(
        self, X: Tensor, Y: Tensor, keys: Tensor, values: Tensor, base: Tensor | None = None
    ):
        self.size, self._n_keys, self._base = len(keys) + len(values), len(keys), base
        self._scale = 2.0 / (X.shape[-3] * X.shape[-2] * X.shape[-1])
        split = max(1, BLOCK // (X.shape[-2] * X.shape[-1]))
        pairs = zip(X.split(split, -3), Y.split(split, -3), strict=True)
        self._blocks = [_Block.of(*pair, keys, values) for pair in pairs]
        # the squared error in the columns in which the output is zero
        self._elsewhere = Y.square().sum((-3, -2)).index_fill(-1, values, 0.0).sum(-1)

    def value(self, p: Products) -> Float[Tensor, "*batch"]:
        """The mean squared error."""
        a, b = self._halves(p)
        off = [_head(one.keys, one.values, a, b).add(one.negative_target) for one in self._blocks]
        off = [R.square().sum((-3, -2, -1)) for R in off]
        return (self._elsewhere + torch.stack(off).sum(0)) * (self._scale / 2)

    @QUIET
    def gradient(self, p: Products) -> Products:
        """The negative gradient g(p) in closed form; see `_parts`."""
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
        r"""The columns of the Hessian in the support, in closed form.

        For query token i, attention weights $A_{ij}$ and mean token $z_i = \sum_j A_{ij} x_j$,
        write $V_{ijl} = x_{il} (x_{jl} - z_{il})$, so that $\partial z_i / \partial a_l = \sum_j
        A_{ij} V_{ijl} x_j$. With $R = f - Y$, $s = \partial^2 L / \partial f^2$, and s D as the
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
        # H_ab is then the transpose of what H_b has
        whole = torch.equal(support, torch.arange(self.size))
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
            if len(b):
                right = X[:, None, :, b] * mixed[:, :, None, b]
                H_b[:n] += (flat * A.reshape(-1, 1)).T @ right.flatten(0, 2)
                H_b[n + b, torch.arange(len(b))] += Z[..., b].square().sum((0, 1))
            if len(a):
                V_a = V if whole else V[..., a]
                gram = _product(X * w_VO.square(), block.V_T)
                inner = (A[..., :, None] * A[..., None, :]).mul_(gram[:, None])
                inner.diagonal(dim1=-2, dim2=-1).add_(D)
                H_a[:n] += flat.T @ _product(inner, V_a.numpy()).flatten(0, 2)
                if not whole:
                    through = _product((A[..., None] * V_a).mT, X[:, None].numpy())
                    H_a[n:] += through.mul_(mixed[:, :, None]).sum((0, 1)).T
        if whole:
            H_a[n:] = H_b[:n].T
        found = p.new_zeros(self.size, len(support))
        found[:, of_a], found[:, ~of_a] = H_a, H_b
        return found.mul_(self._scale)

    def _parts(self, block: "_Block", p: Products) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """A, Z = A X, b with axes for samples and tokens, R = f - Y, and D.

        s R is the gradient of L in the output f, and s D that in the logits.
        """
        a, b = self._halves(p)
        bound = float((np.abs(a.numpy()[..., 0, 0, :]) * block.largest).sum(-1).max())
        A = _softmax(_product(block.keys * a, block.K_T), bound)
        Z = _product(A, block.V)
        R = torch.addcmul(block.negative_target, Z, b)
        back = _product(R * b, block.V_T).mul_(A)
        D = torch.addcmul(back, A, back.sum(-1, keepdim=True), value=-1)
        return A, Z, b, R, D

    def _halves(self, p: Products) -> tuple[Tensor, ...]:
        """The halves a and b of p, with axes for samples and tokens."""
        p = p if self._base is None else p + self._base
        return p.unflatten(-1, (1, 1, -1)).split_with_sizes(
            (self._n_keys, self.size - self._n_keys), -1
        )


class DiagonalHead(_HeadPart):
    r"""A diagonal attention head under the mean squared error over samples, tokens and entries.

    With `base` the trained products are added to frozen ones, $h(x; p_0 + u \odot v)$, as an
    adapter's are. The batch axes of X, Y and p go together: they make an ensemble of heads, each
    with its own data.
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
        """The loss on the first samples: this share of all, and at least one.

        It is cheaper, and its curvature is nearly the same.
        """
        n = max(1, round(share * self.X.shape[-3]))
        return DiagonalHead(self.X[..., :n, :, :], self.Y[..., :n, :, :], self.base)

    def restricted(self, support: Int[Tensor, " k"]) -> DiagonalLoss:
        """The loss as a function of the products in the support (in rising order), the others zero.

        It costs the columns of these products alone.
        """
        if self.base is not None:
            return super().restricted(support)
        d = self.X.shape[-1]
        return _HeadPart(self.X, self.Y, support[support < d], support[support >= d] - d)


class _Block(NamedTuple):
    """Some of the samples, few enough to stay in the processor's cache, in the columns at work.

    K and V are the same numbers as `keys` and `values`, K_T and V_T their transposes, all for
    products by numpy. `largest` is the largest square in each column of K: no logit is larger in
    size than the sum of |a| times it.
    """

    keys: Tensor
    values: Tensor
    negative_target: Tensor
    K: np.ndarray
    K_T: np.ndarray
    V: np.ndarray
    V_T: np.ndarray
    largest: np.ndarray

    @classmethod
    def of(cls, X: Tensor, Y: Tensor, keys: Tensor, values: Tensor) -> "_Block":
        K = X if len(keys) == X.shape[-1] else X[..., keys]
        V = K if torch.equal(keys, values) else X[..., values]
        K_T = K.mT.contiguous()
        V_T = K_T if V is K else V.mT.contiguous()
        arrays = K.numpy(), K_T.numpy(), V.numpy(), V_T.numpy()
        return cls(K, V, -Y[..., values], *arrays, K.square().amax((-3, -2)).numpy())


def _softmax(S: Tensor, bound: float) -> Tensor:
    """The softmax of short rows, which are overwritten; no entry is larger in size than the bound.

    torch's own takes six times as long on them in float64. Where every exponential is far from
    overflow and underflow, no maximum is subtracted first: that is faster and rounds once less.
    """
    if not bound < SAFE and not (S.amax().item() < SAFE and S.amin().item() > -SAFE):
        S.sub_(S.amax(-1, keepdim=True))
    E = S.exp_()
    return E.mul_(E.sum(-1, keepdim=True).reciprocal_())


def _product(A: Tensor, B: np.ndarray) -> Tensor:
    """The products A B of many small matrices, by numpy.

    Its BLAS takes a third of the time of torch's bmm on them.
    """
    return torch.from_numpy(np.matmul(A.numpy(), B))


def diagonal_head(
    X: Float[Tensor, "*batch sample token d"], p: Products
) -> Float[Tensor, "*batch sample token d"]:
    r"""The output $\mathrm{softmax}(X\,\mathrm{diag}(a) X^\top) X\,\mathrm{diag}(b)$ of a diagonal
    head with p = (a, b).
    """
    return _head(X, X, *(half[..., None, None, :] for half in p.chunk(2, -1)))


def _head(K: Tensor, V: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The output of a head from the columns of its tokens at work: K for a, and V for b."""
    S = (K * a) @ K.mT
    # S is symmetric: softmax over its columns is Aᵀ, in a fifth of the time of that over short rows
    return torch.softmax(S, -2).mT @ V * b


class DiagonalTransformer(DiagonalLoss):
    r"""A transformer with diagonal attention weights and frozen feed-forward blocks (Example 3.2).

    Each layer is $X \mapsto X + \sum_h \mathrm{head}_h(X)$, then $X \mapsto X + \mathrm{GELU}(X
    W_1) W_2$. Every head is diagonal in its own frozen orthogonal frame $Q_h$: its input is $X
    Q_h$, and its output is turned back. In one common frame two heads of a layer would have the
    same gradient wherever their a vanish; the second activation would tie with the first, and
    Assumption 4.2 would fail. p holds (a, b) of every head, layer by layer.
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
        """The loss on the first samples: this share of all, and at least one."""
        n = max(1, round(share * len(self.X)))
        return DiagonalTransformer(self.X[:n], self.frames, self.W_1, self.W_2, self.Y[:n])

    def output(self, p: Float[Tensor, " p"]) -> Float[Tensor, "sample token d"]:
        """The tokens after the last layer."""
        X = self.X
        heads = p.reshape(*self.frames.shape[:2], -1)
        for Q, W_1, W_2, layer in zip(self.frames, self.W_1, self.W_2, heads, strict=True):
            X = X + (diagonal_head(X @ Q[:, None], layer) @ Q.mT[:, None]).sum(0)
            X = X + gelu(X @ W_1) @ W_2
        return X

    def value(self, p: Products) -> Float[Tensor, "*batch"]:
        """The mean squared error."""
        rows = [(self.output(row) - self.Y).square().mean() for row in p.reshape(-1, p.shape[-1])]
        return torch.stack(rows).reshape(p.shape[:-1])

    def gradient(self, p: Products) -> Products:
        r"""The negative gradient $g(p)$, by backpropagation written out by hand.

        Automatic differentiation of so small a network takes twice as long.

        With $T = X Q_h$, attention weights A, $Z = A T$ and the loss's gradient G in a head's
        output, seen in its frame, $\partial L / \partial b = \sum G \odot Z$ over samples and
        tokens. With $B = (G b) T^\top$, the gradient in the logits is $D = A \odot (B - (A \odot B)
        1 1^\top)$, and $\partial L / \partial a = \sum (D T) \odot T$.
        """
        rows = [self._slope(row) for row in p.detach().reshape(-1, p.shape[-1]).numpy()]
        return torch.from_numpy(np.stack(rows)).reshape(p.shape).neg_()

    def hessian(self, p: Float[Tensor, " p"], support: Int[Tensor, " k"]) -> Float[Tensor, "p k"]:
        r"""The columns of the Hessian in the support: the derivatives of `gradient`, by hand.

        Every intermediate of the gradient is followed along all k directions at once, as the axis
        [k] in front. Automatic differentiation, twice, takes about six times as long.
        """
        n_layers, n_heads, d, _ = self.frames.shape
        k = len(support)
        layers, X = self._layers(p.detach().numpy())
        if not k:
            return p.new_zeros(self.size, 0)
        along = np.zeros((k, self.size))
        along[np.arange(k), support.numpy()] = 1.0
        moves = along.reshape(k, n_layers, n_heads, 2, 1, 1, d)
        dX = np.zeros((k, *X.shape))
        changes = []
        for number, layer in enumerate(layers):
            change, dX = layer.forward_along(dX, *np.moveaxis(moves[:, number], 2, 0))
            changes.append(change)
        scale = 2 / X.size
        G = (X - self.Y.numpy().reshape(-1, d)) * scale
        dG = dX * scale
        found = []
        for layer, change in zip(reversed(layers), reversed(changes), strict=True):
            slopes, G, dG = layer.backward_along(G, dG, change)
            found.append(slopes)
        rows = np.stack(found[::-1], 1).reshape(k, self.size)
        return torch.from_numpy(np.ascontiguousarray(rows.T))

    def _layers(self, p: Float[np.ndarray, " p"]) -> "tuple[list[_Layer], np.ndarray]":
        """What the layers have computed at p, and the tokens after the last, as rows."""
        _, n_tokens, d = self.X.shape
        X = self.X.numpy().reshape(-1, d)
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
            layers.append(_Layer(Q, W_1, W_2, a, b, T, T_a, A, Z, U, bent))
        return layers, X

    def _slope(self, p: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
        d = self.X.shape[-1]
        layers, X = self._layers(p)
        found = []
        G = (X - self.Y.numpy().reshape(-1, d)) * (2 / X.size)
        for layer in reversed(layers):
            slopes, G = layer.backward(G)
            found.append(slopes)
        return np.stack(found[::-1]).reshape(p.shape)


class _Change(NamedTuple):
    """The derivatives of what a layer has computed, along k directions."""

    a: np.ndarray
    b: np.ndarray
    T: np.ndarray
    A: np.ndarray
    Z: np.ndarray
    U: np.ndarray


class _Layer(NamedTuple):
    r"""What a layer has computed: T to Z as [head × sample, token, d], U and `bent` as rows.

    `bent` is the derivative of the GELU at U, $\Phi + U \varphi$.
    """

    Q: np.ndarray
    W_1: np.ndarray
    W_2: np.ndarray
    a: np.ndarray
    b: np.ndarray
    T: np.ndarray
    T_a: np.ndarray
    A: np.ndarray
    Z: np.ndarray
    U: np.ndarray
    bent: np.ndarray

    def backward(self, G: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slopes in a and b, and the gradient in the layer's tokens, from G after it."""
        Q, W_1, W_2, a, b, T, T_a, A, Z, *_ = self
        d = T.shape[-1]
        G = G + ((G @ W_2.T) * self.bent) @ W_1.T
        seen = (G @ Q).reshape(T.shape)
        back = _by_head(seen, b)
        D = (back @ T.swapaxes(1, 2).copy()) * A
        D -= A * D.sum(-1, keepdims=True)
        D_T = D @ T
        of_a, of_b = ((one.reshape(len(Q), -1, d)).sum(1) for one in (D_T * T, seen * Z))
        into = A.swapaxes(1, 2).copy() @ back + _by_head(D_T, a) + D.swapaxes(1, 2).copy() @ T_a
        G = G + (into.reshape(len(Q), -1, d) @ Q.swapaxes(1, 2)).sum(0)
        return np.stack([of_a, of_b], 1), G

    def forward_along(
        self, dX: np.ndarray, da: np.ndarray, db: np.ndarray
    ) -> tuple[_Change, np.ndarray]:
        """The derivatives here, and of the tokens after the layer, from those of its tokens [k].

        da and db are the directions, [k, head, 1, 1, d].
        """
        Q, W_1, W_2, a, b, T, T_a, A, Z, *_ = self.by_head()
        d = T.shape[-1]
        dT = (dX[:, None] @ Q).reshape(-1, *T.shape)
        dS = (dT * a + T * da) @ _turned(T) + T_a @ _turned(dT)
        dA = A * (dS - (A * dS).sum(-1, keepdims=True))
        dZ = dA @ T + A @ dT
        out = (dZ * b + Z * db).reshape(len(dX), len(Q), -1, d)
        dX = dX + (out @ _turned(Q)).sum(1)
        dU = dX @ W_1
        return _Change(da, db, dT, dA, dZ, dU), dX + (self.bent * dU) @ W_2

    def backward_along(
        self, G: np.ndarray, dG: np.ndarray, change: _Change
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The derivatives of the slopes [k, head, 2, d], and G in the layer's tokens and its own.

        G and dG are those after the layer.
        """
        Q, W_1, W_2, a, b, T, T_a, A, Z, U, bent = self.by_head()
        da, db, dT, dA, dZ, dU = change
        k, d = len(dG), T.shape[-1]
        M = G @ W_2.T
        turning = np.exp(U * U / -2) * (2 - U * U) / math.sqrt(2 * math.pi)  # of the GELU
        dM = (dG @ W_2.T) * bent + (M * turning) * dU
        G = G + (M * bent) @ W_1.T
        dG = dG + dM @ W_1.T
        seen = (G @ Q).reshape(T.shape)
        dseen = (dG[:, None] @ Q).reshape(k, *T.shape)
        back = seen * b
        dback = dseen * b + seen * db
        T_T = _turned(T)
        B = back @ T_T
        dB = dback @ T_T + back @ _turned(dT)
        B -= (A * B).sum(-1, keepdims=True)
        dB -= (dA * B + A * dB).sum(-1, keepdims=True)  # the sums of a row of dA vanish
        D = A * B
        dD = dA * B + A * dB
        D_T = D @ T
        dD_T = dD @ T + D @ dT
        of_a = (dD_T * T + D_T * dT).sum((2, 3))
        of_b = (dseen * Z + seen * dZ).sum((2, 3))
        into = _turned(A) @ back + D_T * a + _turned(D) @ T_a
        dinto = _turned(dA) @ back + _turned(A) @ dback + dD_T * a + D_T * da
        dinto += _turned(dD) @ T_a + _turned(D) @ (dT * a + T * da)
        turn = _turned(Q)
        G = G + (into.reshape(len(Q), -1, d) @ turn).sum(0)
        dG = dG + (dinto.reshape(k, len(Q), -1, d) @ turn).sum(1)
        return np.stack([of_a, of_b], 2), G, dG

    def by_head(self) -> "_Layer":
        """The same with an axis for heads: T to Z as [head, sample, token, d]."""
        n_heads = len(self.Q)
        parts = {name: getattr(self, name) for name in ("T", "T_a", "A", "Z")}
        shaped = {name: T.reshape(n_heads, -1, *T.shape[1:]) for name, T in parts.items()}
        return self._replace(a=self.a[:, None], b=self.b[:, None], **shaped)


def _turned(T: np.ndarray) -> np.ndarray:
    """The transposed matrices, as numpy's BLAS wants them."""
    return T.swapaxes(-1, -2).copy()


def _by_head(T: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The tokens of all heads, head after head, each multiplied by its head's vector."""
    return (T.reshape(len(w), -1, T.shape[-1]) * w).reshape(T.shape)


def diagonal_network(
    X: Float[Tensor, "sample token d"],
    Y: Float[Tensor, "sample token d"],
    frames: Float[Tensor, "layer head d d"] | None = None,
    W_1: Float[Tensor, "layer d d_mlp"] | None = None,
    W_2: Float[Tensor, "layer d_mlp d"] | None = None,
) -> DiagonalHead | DiagonalTransformer:
    """The loss of one head, or of a transformer of Example 3.2.

    It is a transformer where frames and feed-forward blocks are given.
    """
    if frames is None or W_1 is None or W_2 is None:
        return DiagonalHead(X, Y)
    return DiagonalTransformer(X, frames, W_1, W_2, Y)


def taught(
    p: Float[Tensor, " p"], X: Float[Tensor, "sample token d"], **blocks: Tensor
) -> Float[Tensor, "sample token d"]:
    """The targets that a teacher gives: the output of a `diagonal_network` with the products p."""
    return DiagonalTransformer(X, Y=X, **blocks).output(p) if blocks else diagonal_head(X, p)


def adapted_head(
    X: Float[Tensor, "sample token d"],
    base: Float[Tensor, " p"],
    places: Int[Tensor, " k"],
    change: Float[Tensor, " k"],
) -> DiagonalHead:
    """The loss of what is added to a trained head whose teacher differs from it in some places."""
    return DiagonalHead(X, diagonal_head(X, base.index_add(0, places, change)), base)


def same_entry(
    frames: Float[Tensor, "layer head d d"], coordinate: int
) -> Int[np.ndarray, " head"]:
    """The indices of the same diagonal entry in all heads of the coordinate's layer.

    The coordinate itself is among them.
    """
    n_layers, n_heads, d, _ = frames.shape
    places = np.arange(n_layers * n_heads * 2 * d).reshape(n_layers, n_heads, 2 * d)
    layer, _, entry = (int(k[0]) for k in np.nonzero(places == coordinate))
    return places[layer, :, entry]
