"""The vision transformer of section 5 of Boix-Adserà et al. (2023), as a function of its weights.

Pre-norm blocks, GELU, a class token, learned positions, no dropout (Dosovitskiy et al. 2021). The
weights are a dict of tensors with the layers stacked, attention cut per head in the papers' row
convention (see `attention`); so a snapshot of a training needs no translation. The MLP and the head
have biases, attention where it is asked for [C]. Queries and keys are normalised where the weights
have gains for it (`with_qk_norm`).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, gelu, layer_norm

from lib.files.files import InputError
from lib.files.params import Interval
from lib.training.attention import attention
from lib.vision.qk_norm import normalized_attention

Weights = dict[str, Tensor]
Attention = Literal["plain", "qk_norm"]
Scaled = Literal["layers", "all but patch embedding"]
Precision = Literal["float32", "bfloat16"]
Size = Annotated[int, Interval("[1, 16384]")]

ATTENTION = ("W_Q", "W_K", "W_V", "W_O")
MATRICES = {
    **{name: ["layer", "head", "row", "col"] for name in ATTENTION},
    **{name: ["layer", "row", "col"] for name in ("W_1", "W_2")},
}
BLOCK = (*ATTENTION, "W_1", "b_1", "W_2", "b_2")
BIASES = ("b_Q", "b_K", "b_V", "b_O")
GAIN = "gain_QK"  # of the scores of every layer and head, with QK-norm
LAYERS = (*BLOCK, *BIASES, "head", "head_bias")
NORMS = ("norm_1", "norm_1_bias", "norm_2", "norm_2_bias")


@dataclass(frozen=True)
class ViT:
    """The sizes of a vision transformer."""

    patch_size: Size
    d_model: Size
    n_heads: Size
    d_head: Size
    d_mlp: Size
    n_layers: Annotated[int, Interval("[1, 256]")]
    attention_biases: bool = False

    def initial_weights(
        self,
        image_shape: tuple[int, ...],
        n_classes: int,
        init_scale: float,
        scaled: Scaled,
        generator: torch.Generator,
    ) -> Weights:
        r"""The library's default initialisation, times `init_scale` where the paper scales it.

        Weights and biases are uniform on $\pm 1/\sqrt{\mathrm{fan\ in}}$ (`torch.nn.Linear`),
        positions N(0, 0.1²), the class token zero. "The initial value of every layer is multiplied"
        (section 5) leaves open what a layer is: `scaled="layers"` multiplies q, k, v, o, MLP and
        head, weights and biases; `"all but patch embedding"` also multiplies the norms, the
        positions and the class token.
        """
        channels, height, width = image_shape
        if height % self.patch_size or width % self.patch_size:
            wanted = f"wanted a divisor of {height} and {width}"
            raise InputError(f"patch_size: {wanted}, got {self.patch_size}")
        n_patches = (height // self.patch_size) * (width // self.patch_size)
        d_patch = channels * self.patch_size**2
        d, h, e, m, n = self.d_model, self.n_heads, self.d_head, self.d_mlp, self.n_layers

        def uniform(*shape: int, fan_in: int) -> Tensor:
            return (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(fan_in)

        weights = {
            "patch": uniform(d_patch, d, fan_in=d_patch),
            "patch_bias": uniform(d, fan_in=d_patch),
            "positions": 0.1 * torch.randn(n_patches + 1, d, generator=generator),
            "class_token": torch.zeros(d),
            "W_Q": uniform(n, h, d, e, fan_in=d),
            "W_K": uniform(n, h, d, e, fan_in=d),
            "W_V": uniform(n, h, d, e, fan_in=d),
            "W_O": uniform(n, h, d, e, fan_in=h * e),
            "W_1": uniform(n, d, m, fan_in=d),
            "b_1": uniform(n, m, fan_in=d),
            "W_2": uniform(n, m, d, fan_in=m),
            "b_2": uniform(n, d, fan_in=m),
            "norm_1": torch.ones(n, d),
            "norm_1_bias": torch.zeros(n, d),
            "norm_2": torch.ones(n, d),
            "norm_2_bias": torch.zeros(n, d),
            "norm": torch.ones(d),
            "norm_bias": torch.zeros(d),
            "head": uniform(d, n_classes, fan_in=d),
            "head_bias": uniform(n_classes, fan_in=d),
        }
        if self.attention_biases:
            weights |= {name: uniform(n, h, e, fan_in=d) for name in ("b_Q", "b_K", "b_V")}
            weights["b_O"] = uniform(n, d, fan_in=h * e)
        patch = ("patch", "patch_bias")
        chosen = LAYERS if scaled == "layers" else tuple(w for w in weights if w not in patch)
        return {
            name: init_scale * weight if name in chosen else weight
            for name, weight in weights.items()
        }


def with_qk_norm(weights: Weights) -> Weights:
    r"""The model whose queries and keys are normalised, with a gain $\sqrt{d_\mathrm{head}}$ for
    every layer and head.

    The gain is that of RMSNorm on queries and keys before the usual scores. It is learned, as that
    of every norm here, and no init scale multiplies it [C].
    """
    n_layers, n_heads, _, d_head = weights["W_Q"].shape
    return weights | {GAIN: weights["W_Q"].new_full((n_layers, n_heads), math.sqrt(d_head))}


def training_cost(model: ViT, image_shape: tuple[int, ...], n_classes: int) -> tuple[int, int]:
    """Floating-point operations of a training step per image, and the bytes of the weights."""
    with torch.device("meta"):  # shapes alone
        weights = model.initial_weights(
            image_shape, n_classes, 1.0, "layers", torch.Generator("cpu")
        )
    return 3 * forward_flops(weights), sum(w.numel() * w.element_size() for w in weights.values())


def patches(
    images: Float[Tensor, "batch channel height width"], patch_size: int
) -> Float[Tensor, "batch patch d_patch"]:
    """Cut images into square patches, row by row, each flattened channel by channel."""
    cut = images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)
    return cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def logits(
    weights: Weights, images: Float[Tensor, "batch channel height width"], *, fused: bool = True
) -> Float[Tensor, "batch n_classes"]:
    """Class logits of a batch of standardised images.

    In the last block only the class token's query is computed, and only its output is passed on,
    since nothing else is read: the same function for about a sixth (six layers) to a fifth (three
    layers) less work.
    """
    d_model = weights["patch"].shape[1]
    patch_size = math.isqrt(weights["patch"].shape[0] // images.shape[1])
    X = patches(images, patch_size) @ weights["patch"] + weights["patch_bias"]
    X = torch.cat([weights["class_token"].to(X.dtype).expand(len(X), 1, -1), X], 1)
    X = X + weights["positions"]
    biases = BIASES if "b_Q" in weights else ()
    parts = [weights[name].unbind() for name in (*BLOCK, *NORMS, *biases)]
    blocks = list(zip(*parts, strict=True))
    gains = weights[GAIN].unbind() if GAIN in weights else ()
    for layer, block in enumerate(blocks, 1):
        W_Q, W_K, W_V, W_O, W_1, b_1, W_2, b_2, norm_1, bias_1, norm_2, bias_2, *b = block
        N = layer_norm(X, (d_model,), norm_1, bias_1)
        N_query = N
        if layer == len(blocks):
            X, N_query = X[:, :1], N[:, :1]
        heads = (N_query, N, W_Q, W_K, W_V, W_O)
        if gains:
            X = X + normalized_attention(*heads, gains[layer - 1], b, fused=fused)
        else:
            X = X + attention(*heads, b, fused=fused)
        N = layer_norm(X, (d_model,), norm_2, bias_2)
        X = X + gelu(N @ W_1 + b_1) @ W_2 + b_2
    X = layer_norm(X[:, 0], (d_model,), weights["norm"], weights["norm_bias"])
    return X @ weights["head"] + weights["head_bias"]


def training_loss(
    weights: Weights,
    images: Float[Tensor, "n channel height width"],
    labels: Int[Tensor, " n"],
    precision: Precision,
    *,
    fused: bool = True,
) -> Float[Tensor, ""]:
    """Mean cross entropy on standardised images."""
    return cross_entropy(computed_logits(weights, images, precision, fused=fused), labels)


def computed_logits(
    weights: Weights, images: Tensor, precision: Precision, *, fused: bool = True
) -> Tensor:
    """The logits, in float32, of matrix products in that precision."""
    if precision == "float32":
        return logits(weights, images, fused=fused)
    with torch.autocast(images.device.type, torch.bfloat16):
        return logits(weights, images, fused=fused).float()


@torch.no_grad()
def score(
    weights: Weights,
    images: Float[Tensor, "n channel height width"],
    labels: Int[Tensor, " n"],
    batch_size: int = 1000,
) -> dict[str, Float[Tensor, ""]]:
    """As `score_batches`, on standardised images."""
    batches = zip(images.split(batch_size), labels.split(batch_size), strict=True)
    return score_batches(weights, batches)


@torch.no_grad()
def score_batches(
    weights: Weights,
    batches: Iterable[tuple[Tensor, Tensor]],
    precision: Precision = "float32",
    *,
    fused: bool = True,
) -> dict[str, Float[Tensor, ""]]:
    """Mean cross entropy and accuracy on standardised images, in float64, of logits as in training.

    They are tensors on the images' device: who reads them waits for it.
    """
    device = weights["patch"].device
    loss, right = torch.zeros(2, dtype=torch.float64, device=device)
    n = 0
    for x, y in batches:
        found = computed_logits(weights, x, precision, fused=fused)
        loss = loss + cross_entropy(found, y, reduction="sum")
        right = right + (found.argmax(1) == y).sum()
        n += len(y)
    return {"test_loss": loss / n, "test_accuracy": right / n}


def forward_flops(weights: Weights) -> int:
    """Floating-point operations of `logits` for one image, a multiplication and an addition counted
    as two.

    Matrix products alone are counted, as they are done: in the last block only the class token's
    query is computed. A training step costs three times as much.
    """
    n_layers, n_heads, d_model, d_head = weights["W_Q"].shape
    d_mlp, n_tokens = weights["W_1"].shape[2], weights["positions"].shape[0]
    d_inner = n_heads * d_head

    def block(n_query: int) -> int:
        projections = 2 * d_model * d_inner * (2 * n_query + 2 * n_tokens)
        return projections + 4 * n_query * n_tokens * d_inner + 4 * n_query * d_model * d_mlp

    ends = 2 * (n_tokens - 1) * weights["patch"].numel() + 2 * weights["head"].numel()
    return ends + (n_layers - 1) * block(n_tokens) + block(1)


def keep_units(
    W: Float[Tensor, "layer ..."], units: Int[Tensor, "layer kept"], axis: int
) -> Float[Tensor, "layer ..."]:
    """W with only the chosen units of an axis, layer by layer: smaller, not masked."""
    return torch.stack(
        [w.index_select(axis - 1, kept) for w, kept in zip(W, units.to(W.device), strict=True)]
    )


def remove_neurons(weights: Weights, kept: Int[Tensor, "layer kept"]) -> Weights:
    """The model with only these MLP neurons in each layer, really smaller."""
    cut = {"W_1": 2, "b_1": 1, "W_2": 1}
    return weights | {name: keep_units(weights[name], kept, axis) for name, axis in cut.items()}


def remove_heads(weights: Weights, kept: Int[Tensor, "layer kept"]) -> Weights:
    """The model with only these heads in each layer, really smaller."""
    cut = [name for name in (*ATTENTION, "b_Q", "b_K", "b_V", GAIN) if name in weights]
    return weights | {name: keep_units(weights[name], kept, 1) for name in cut}
