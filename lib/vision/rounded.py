r"""The transformer's loss in bfloat16 on a CPU, with its gradient written out.

Autocast rounds each weight whenever a product asks for it, and torch's compiler keeps what a whole
batch has computed until the backward pass: on a CPU, moving numbers then takes longer than the
products. Here weights are merged, scaled and rounded once a step (`merged`), and a batch is
computed part by part, so that a part's numbers stay in the caches and its memory is used again. All
between two products is in bfloat16; products and norms sum in float32, and so do the gradients of
the parts.

The affine part of a norm goes into the product behind it,
$(\hat x \odot g + c) W = \hat x \, (g \odot W) + c W$, and $1/\sqrt{d_\mathrm{head}}$ into W_Q.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, gelu, layer_norm

from lib.files.files import InputError
from lib.training.attention import merge_heads
from lib.vision.parts import computed
from lib.vision.vit import BIASES, GAIN, Weights, patches

PART = 64  # images: fewer are more sums of gradients, more leave the caches
NORM_EPS = 1e-5
PRODUCTS = ("patch", "QKV", "W_O", "W_1", "W_2", "b_QKV", "b_1", "b_2")  # rounded once a step
aten = torch.ops.aten


def rounded_loss(
    weights: Weights,
    images: Float[Tensor, "n channel height width"],
    labels: Int[Tensor, " n"],
) -> Float[Tensor, ""]:
    """The mean cross entropy on standardised images, in bfloat16.

    Its gradient is computed with it, and comes from it as from any other value. Raises `InputError`
    for models that are not written out here.
    """
    others = [name for name in (GAIN, *BIASES) if name in weights]
    if others:
        wanted = "wanted plain attention without biases where the gradient is written out"
        raise InputError(f"gradient: {wanted}, got {' '.join(others)}")

    def compute(*given: Tensor) -> tuple[Tensor, list[Tensor]]:
        named = dict(zip(weights, given, strict=True))
        return value_and_gradient(named, images, labels)

    return computed(compute, *weights.values())


def value_and_gradient(
    weights: Weights,
    images: Float[Tensor, "n channel height width"],
    labels: Int[Tensor, " n"],
    size: int = PART,
) -> tuple[Float[Tensor, ""], list[Tensor]]:
    """The mean cross entropy, and its gradient in each weight, in the order of the weights."""
    leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
    with torch.enable_grad():
        whole = merged(leaves)
    n_heads, _, d_head = weights["W_Q"].shape[1:]
    with torch.no_grad():
        step = Step(
            {name: W.bfloat16() if name in PRODUCTS else W.detach() for name, W in whole.items()},
            {name: torch.zeros_like(W) for name, W in whole.items()},
            n_heads,
            d_head,
        )
        parts = zip(images.split(size), labels.split(size), strict=True)
        value = torch.stack([step.add(x, y, len(images)) for x, y in parts]).sum()
    names = list(whole)
    found = torch.autograd.grad(
        [whole[name] for name in names],
        list(leaves.values()),
        [step.gradient[name] for name in names],
    )
    return value, list(found)


def merged(weights: Weights) -> Weights:
    """The weights as the products want them, in float32: heads side by side, and what is affine in
    a norm in the product behind it.
    """
    d_head = weights["W_Q"].shape[-1]
    W_Q = merge_heads(weights["W_Q"]) * d_head**-0.5
    QKV = torch.cat([W_Q, merge_heads(weights["W_K"]), merge_heads(weights["W_V"])], -1)
    start = torch.cat(
        [
            weights["class_token"][None],
            weights["patch_bias"].expand(len(weights["positions"]) - 1, -1),
        ]
    )
    return {
        "patch": weights["patch"],
        "start": start + weights["positions"],
        "QKV": weights["norm_1"][..., None] * QKV,
        "b_QKV": (weights["norm_1_bias"][:, None] @ QKV).squeeze(1),
        "W_O": merge_heads(weights["W_O"]).mT.contiguous(),
        "W_1": weights["norm_2"][..., None] * weights["W_1"],
        "b_1": (weights["norm_2_bias"][:, None] @ weights["W_1"]).squeeze(1) + weights["b_1"],
        "W_2": weights["W_2"],
        "b_2": weights["b_2"],
        **{name: weights[name] for name in ("norm", "norm_bias", "head", "head_bias")},
    }


class Block(NamedTuple):
    """What the backward pass of a block needs: its input, and what was computed from it."""

    X: Float[Tensor, "n_tokens d_model"]
    norm_1: tuple[Tensor, Tensor, Tensor]
    QKV: tuple[Tensor, ...]
    S: Float[Tensor, "n_maps query token"]
    Z: Float[Tensor, "n_queries inner"]
    Y: Float[Tensor, "n_queries d_model"]
    norm_2: tuple[Tensor, Tensor, Tensor]
    H: Float[Tensor, "n_queries d_mlp"]
    A: Float[Tensor, "n_queries d_mlp"]


@dataclass
class Step:
    """Merged weights, rounded where products take them, and the sum of the parts' gradients."""

    weights: Weights
    gradient: Weights
    n_heads: int
    d_head: int

    def add(self, images: Tensor, labels: Tensor, n: int) -> Float[Tensor, ""]:
        """The share of a part in the mean loss of `n` images; its gradient is added."""
        w = self.weights
        n_layers = len(w["W_1"])
        patch_size = round((w["patch"].shape[0] / images.shape[1]) ** 0.5)
        cut = patches(images.bfloat16(), patch_size).contiguous()
        X = w["start"].bfloat16().repeat(len(images), 1, 1)
        X[:, 1:] += cut @ w["patch"]
        X = X.flatten(0, 1)
        blocks = []
        for layer in range(n_layers):
            X, block = self.forward(X, layer, len(images))
            blocks.append(block)
        value, D = self.end(X, labels, n)
        for layer in reversed(range(n_layers)):
            D = self.backward(D, blocks.pop(), layer, len(images))
        D = D.view(len(images), -1, D.shape[-1])
        self.gradient["start"] += D.sum(0, dtype=torch.float32)
        self.gradient["patch"] += cut.flatten(0, 1).T @ D[:, 1:].flatten(0, 1)
        return value

    def end(self, X: Tensor, labels: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The loss of the class tokens, divided by n, and its gradient in them."""
        names = ("norm", "norm_bias", "head", "head_bias")
        leaves = [X.float(), *(self.weights[name] for name in names)]
        leaves = [leaf.detach().requires_grad_() for leaf in leaves]
        with torch.enable_grad():
            x, norm, norm_bias, head, head_bias = leaves
            logits = layer_norm(x, norm.shape, norm, norm_bias) @ head + head_bias
            value = cross_entropy(logits, labels, reduction="sum") / n
        D, *gradients = torch.autograd.grad(value, leaves)
        for name, gradient in zip(names, gradients, strict=True):
            self.gradient[name] += gradient
        return value.detach(), D.bfloat16()

    def forward(self, X: Tensor, layer: int, n: int) -> tuple[Tensor, Block]:
        """A block's output for n images, of the class token alone in the last one."""
        w = {name: self.weights[name][layer] for name in PRODUCTS[1:]}
        norm_1 = normalized(X)
        N = norm_1[0]
        inner = self.n_heads * self.d_head
        residual = X
        if self.is_last(layer):
            residual = of_class_token(X, n)
            query = torch.addmm(w["b_QKV"][:inner], of_class_token(N, n), w["QKV"][:, :inner])
            both = torch.addmm(w["b_QKV"][inner:], N, w["QKV"][:, inner:])
            QKV = (*self.by_head(query, n, 1), *self.by_head(both, n, 2))
        else:
            QKV = self.by_head(torch.addmm(w["b_QKV"], N, w["QKV"]), n, 3)
        Q, K, V = QKV
        S = torch.softmax(Q @ K.mT, -1)
        Z = torch.empty(len(residual), inner, dtype=X.dtype)
        self.side_by_side(S @ V, Z.view(n, -1, self.n_heads, self.d_head))
        Y = torch.addmm(residual, Z, w["W_O"])
        norm_2 = normalized(Y)
        H = torch.addmm(w["b_1"], norm_2[0], w["W_1"])
        A = gelu(H)
        out = (Y + w["b_2"]).addmm_(A, w["W_2"])
        return out, Block(X, norm_1, QKV, S, Z, Y, norm_2, H, A)

    def backward(self, D: Tensor, block: Block, layer: int, n: int) -> Tensor:
        """The gradient in a block's input from that in its output; those in weights are added."""
        w = {name: self.weights[name][layer] for name in PRODUCTS[1:]}
        g = {name: self.gradient[name][layer] for name in PRODUCTS[1:]}
        inner = self.n_heads * self.d_head
        g["W_2"] += block.A.T @ D
        g["b_2"] += summed(D)
        D_H = aten.gelu_backward(D @ w["W_2"].T, block.H)
        g["W_1"] += block.norm_2[0].T @ D_H
        g["b_1"] += summed(D_H)
        D = D + through_norm(D_H @ w["W_1"].T, block.Y, block.norm_2)
        g["W_O"] += block.Z.T @ D
        [D_Z] = self.by_head(D @ w["W_O"].T, n, 1)
        Q, K, V = block.QKV
        D_S = aten._softmax_backward_data(D_Z @ V.mT, block.S, -1, D.dtype)
        N = block.norm_1[0]
        heads = (self.n_heads, self.d_head)
        if self.is_last(layer):
            D_q = torch.empty(n, inner, dtype=D.dtype)
            D_kv = torch.empty(len(N), 2 * inner, dtype=D.dtype)
            parts = D_kv.view(n, -1, 2, *heads)
            self.side_by_side(D_S @ K, D_q.view(n, 1, *heads))
            self.side_by_side(D_S.mT @ Q, parts[:, :, 0])
            self.side_by_side(block.S.mT @ D_Z, parts[:, :, 1])
            g["QKV"][:, :inner] += of_class_token(N, n).T @ D_q
            g["QKV"][:, inner:] += N.T @ D_kv
            g["b_QKV"][:inner] += summed(D_q)
            g["b_QKV"][inner:] += summed(D_kv)
            D_N = D_kv @ w["QKV"][:, inner:].T
            D_N.view(n, -1, D.shape[-1])[:, 0] += D_q @ w["QKV"][:, :inner].T
            D_X = through_norm(D_N, block.X, block.norm_1)
            D_X.view(n, -1, D.shape[-1])[:, 0] += D
            return D_X
        D_qkv = torch.empty(len(N), 3 * inner, dtype=D.dtype)
        parts = D_qkv.view(n, -1, 3, *heads)
        self.side_by_side(D_S @ K, parts[:, :, 0])
        self.side_by_side(D_S.mT @ Q, parts[:, :, 1])
        self.side_by_side(block.S.mT @ D_Z, parts[:, :, 2])
        # A wide product is faster with the rows written out, and sums the bias's gradient with it.
        rows = N.new_ones(N.shape[1] + 1, len(N))
        rows[:-1] = N.T
        product = rows @ D_qkv
        g["QKV"] += product[:-1]
        g["b_QKV"] += product[-1]
        return D + through_norm(D_qkv @ w["QKV"].T, block.X, block.norm_1)

    def is_last(self, layer: int) -> bool:
        """Whether only the class token's query is computed."""
        return layer == len(self.weights["W_1"]) - 1

    def by_head(self, Y: Tensor, n: int, parts: int) -> tuple[Tensor, ...]:
        """Projections side by side, each as [batch*head, token, d_head]."""
        cut = Y.view(n, -1, parts, self.n_heads, self.d_head).permute(2, 0, 3, 1, 4)
        return cut.contiguous().flatten(1, 2).unbind()

    def side_by_side(self, Y: Tensor, out: Float[Tensor, "batch token head d_head"]) -> None:
        """Write the heads of [batch*head, token, d_head] side by side."""
        out.copy_(Y.view(len(out), self.n_heads, -1, self.d_head).transpose(1, 2))


def of_class_token(X: Float[Tensor, "n_tokens d"], n: int) -> Float[Tensor, "batch d"]:
    """The rows of the class tokens of n images."""
    return X.view(n, -1, X.shape[-1])[:, 0].contiguous()


def normalized(X: Float[Tensor, "row d"]) -> tuple[Tensor, Tensor, Tensor]:
    """The rows with mean 0 and variance 1, their means, and what they were divided by, inverted."""
    return aten.native_layer_norm(X, [X.shape[-1]], None, None, NORM_EPS)


def through_norm(
    D: Float[Tensor, "row d"], X: Float[Tensor, "row d"], norm: tuple[Tensor, Tensor, Tensor]
) -> Float[Tensor, "row d"]:
    """The gradient in X from that in its normalised rows."""
    shape = [X.shape[-1]]
    mask = [True, False, False]
    return aten.native_layer_norm_backward(D, X, shape, *norm[1:], None, None, mask)[0]


def summed(D: Float[Tensor, "row d"]) -> Float[Tensor, " d"]:
    """The sum of the rows, as a product, which sums in float32."""
    return (D.new_ones(1, len(D)) @ D).squeeze(0)
