r"""The heads of checkpoints as transformers stores them, cut into the house's convention (`x W_Q`,
a matrix per head).

A layout says, for an architecture, which tensors hold the projections of a layer, how they are
joined, and what stands before them: a norm's gain (and the centring of a LayerNorm) is folded in,
so that a head's score of two normalised rows is

$$ s_{ij} = x_i\, W_Q R_{i-j} W_K^\top x_j^\top \qquad (x \text{ centred, or not, over its norm;
biases left out}) $$

with R the rotation of rotary positions. Query head h of grouped heads reads the key and value head
h // (n_q / n_kv). The scale 1/√d_head is left out. Gains of query and key norms are folded too:
their division by the data's norm is not.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lib.checkpoints.folders import NUMBER
from lib.files.files import InputError

Load = Callable[[str], Tensor]  # a tensor of a checkpoint by its name


@dataclass(frozen=True)
class Layout:
    """Names, without the layer's prefix, and how they are joined.

    `projections` are three names (query, key, value) or one that holds all; `by_columns` where a
    matrix is stored as in × out; `norm` is the gain before the projections; `head_norms` those of
    queries and keys.
    """

    layer: str
    projections: tuple[str, ...]
    output: str
    joined: Literal["", "blocks", "per head"] = ""
    by_columns: bool = False
    norm: str = ""
    centred: bool = False
    gain_offset: float = 0.0
    head_norms: tuple[str, ...] = ()
    rotary: bool = False


_LLAMA = Layout(
    layer="layers",
    projections=tuple(f"self_attn.{name}_proj.weight" for name in "qkv"),
    output="self_attn.o_proj.weight",
    norm="input_layernorm.weight",
    rotary=True,
)
LAYOUTS: dict[str, Layout] = {
    **dict.fromkeys(("llama", "mistral", "qwen2"), _LLAMA),
    "qwen3": replace(_LLAMA, head_norms=("self_attn.q_norm.weight", "self_attn.k_norm.weight")),
    "gemma": replace(_LLAMA, gain_offset=1.0),
    "phi3": replace(_LLAMA, projections=("self_attn.qkv_proj.weight",), joined="blocks"),
    "gpt2": Layout(
        layer="h",
        projections=("attn.c_attn.weight",),
        output="attn.c_proj.weight",
        joined="blocks",
        by_columns=True,
        norm="ln_1.weight",
        centred=True,
    ),
    "gpt_neox": Layout(
        layer="layers",
        projections=("attention.query_key_value.weight",),
        output="attention.dense.weight",
        joined="per head",
        norm="input_layernorm.weight",
        centred=True,
        rotary=True,
    ),
    "bert": Layout(
        layer="layer",
        projections=tuple(f"attention.self.{name}.weight" for name in ("query", "key", "value")),
        output="attention.output.dense.weight",
    ),
    "vit": Layout(
        layer="layer",
        projections=tuple(
            f"attention.attention.{name}.weight" for name in ("query", "key", "value")
        ),
        output="attention.output.dense.weight",
        norm="layernorm_before.weight",
        centred=True,
    ),
}


class Heads(NamedTuple):
    """The four projections of a layer's query heads; keys and values of grouped heads are
    repeated.
    """

    W_Q: Float[Tensor, "head d_model d_head"]
    W_K: Float[Tensor, "head d_model d_head"]
    W_V: Float[Tensor, "head d_model d_head"]
    W_O: Float[Tensor, "head d_model d_head"]


def attention_tensors(config: Mapping[str, Any], names: Iterable[str]) -> dict[int, dict[str, str]]:
    """For each layer, counted from 1, the names of the tensors that `heads` needs, by what they are
    in the layout.

    Empty where the architecture has no layout here, or a checkpoint's names do not fit it.
    """
    layout = LAYOUTS.get(str(config.get("model_type")))
    if layout is None:
        return {}
    wanted = [*layout.projections, layout.output, *filter(None, [layout.norm]), *layout.head_norms]
    found: dict[int, dict[str, str]] = {}
    for name in names:
        place = re.search(rf"(?:^|\.){layout.layer}\.({NUMBER})\.(.+)$", name)
        if place and place[2] in wanted:
            found.setdefault(int(place[1]) + 1, {})[place[2]] = name
    return {layer: parts for layer, parts in sorted(found.items()) if set(parts) == set(wanted)}


def heads(
    config: Mapping[str, Any],
    parts: Mapping[str, str],
    load: Load,
    *,
    fold_norms: bool,
    repeated: bool = True,
) -> Heads:
    """The heads of a layer, in float64, from the tensors that `attention_tensors` names.

    Where they are not `repeated`, keys and values are those of the groups.
    """
    layout = LAYOUTS[str(config["model_type"])]
    n_heads, n_kept, d_head = head_sizes(config)

    def matrix(part: str) -> Float[Tensor, "in out"]:
        W = load(parts[part]).double()
        return W if layout.by_columns else W.mT

    if layout.joined == "per head":
        whole = matrix(layout.projections[0]).unflatten(1, (n_heads, 3, d_head))
        queries, keys, values = (whole[:, :, i].movedim(1, 0) for i in range(3))
    else:
        sizes = [n_heads * d_head, n_kept * d_head, n_kept * d_head]
        joined = [matrix(part) for part in layout.projections]
        split = joined[0].split(sizes, dim=1) if layout.joined == "blocks" else joined
        queries, keys, values = (W.unflatten(1, (-1, d_head)).movedim(1, 0) for W in split)
    if layout.head_norms and fold_norms:
        queries, keys = (
            W * (load(parts[name]).double() + layout.gain_offset)
            for W, name in zip((queries, keys), layout.head_norms, strict=True)
        )
    output = (
        matrix(layout.output).unflatten(0, (n_heads, d_head)).mT
    )  # W_O of `W_V W_Oᵀ`: d_model × d_head
    if layout.norm and fold_norms:
        gain = load(parts[layout.norm]).double() + layout.gain_offset
        queries, keys, values = (_folded(W, gain, layout.centred) for W in (queries, keys, values))
    group = n_heads // len(keys) if repeated else 1
    return Heads(
        queries, keys.repeat_interleave(group, 0), values.repeat_interleave(group, 0), output
    )


class Factor(NamedTuple):
    r"""A projection of heads at the base and as it was tuned, in a basis of its own.

    With the base's $W_0 = Q R$ the tuned one is $W = [Q, Q_\perp]\,(M + [R; 0])$.
    """

    R: Float[Tensor, "head d_head d_head"]
    M: Float[Tensor, "head twice d_head"]

    def turned(self, rotation: Float[Tensor, "d_head d_head"]) -> "Factor":
        """Both times a matrix from the right: the basis stays."""
        return Factor(self.R @ rotation, self.M @ rotation)

    def repeated(self, n: int) -> "Factor":
        """Each head, n times."""
        return Factor(*(one.repeat_interleave(n, 0) for one in self))


def factor(
    W_0: Float[Tensor, "head d_model d_head"], W: Float[Tensor, "head d_model d_head"]
) -> Factor:
    """Decompose a projection once, for every product that it is in: two QRs, in float64.

    d_model is to be at least twice d_head.
    """
    Q, R = torch.linalg.qr(W_0.double())
    move = W.double() - W_0.double()
    inside = Q.mT @ move
    outside = torch.linalg.qr(move - Q @ inside, mode="r").R
    return Factor(R, torch.cat([inside, outside], -2))


def initial_values(A: Factor, B: Factor) -> Float[Tensor, "head d_head"]:
    r"""The singular values of the base's products $A_0 B_0^\top$, in which the bases cancel."""
    return torch.linalg.svdvals(A.R @ B.R.mT)


def update_values(A: Factor, B: Factor) -> Float[Tensor, "head twice"]:
    r"""The singular values of $A B^\top - A_0 B_0^\top$: those of the small core
    $M_A (M_B + [R_B; 0])^\top + [R_A; 0] M_B^\top$.
    """
    d_head = A.R.shape[-1]
    ended = B.M.clone()
    ended[..., :d_head, :] += B.R
    core = A.M @ ended.mT
    core[..., :d_head, :] += A.R @ B.M.mT
    return torch.linalg.svdvals(core)


def head_sizes(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Query heads, key and value heads, and the width of a head.

    Raises `InputError` where a config says none, or no whole number above 0.
    """
    n_heads = _size(config, "num_attention_heads", "n_head")
    d_model = _size(config, "hidden_size", "n_embd")
    n_kept = config.get("num_key_value_heads")
    d_head = config.get("head_dim")
    return (
        n_heads,
        n_heads if n_kept is None else _size(config, "num_key_value_heads"),
        d_model // n_heads if d_head is None else _size(config, "head_dim"),
    )


def _size(config: Mapping[str, Any], *names: str) -> int:
    """The first of these keys that a config has."""
    name = next((name for name in names if name in config), names[0])
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"config.json: {name}: wanted a whole number above 0, got {value!r}")
    return value


def rotation(config: Mapping[str, Any], offset: int) -> Float[Tensor, "d_head d_head"] | None:
    r"""$R_\delta$ of the score $x_i W_Q R_\delta W_K^\top x_j^\top$ of rows at positions i and $j =
    i - \delta$.

    A row q at position i becomes $q R(i)$, where R(i) turns the pair (k, k + n/2) of its first n
    entries by the angle $i\,\theta^{-2k/n}$ (Su et al. 2021, in the order of halves); $R_\delta =
    R(i) R(j)^\top = R(\delta)$. The identity where the architecture has no rotary positions; None
    where they are scaled in a way that is not written here.
    """
    d_head = head_sizes(config)[2]
    if not LAYOUTS[str(config["model_type"])].rotary or offset == 0:
        return torch.eye(d_head).double()
    rotary = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if rotary.get("rope_type", rotary.get("type", "default")) != "default":
        return None
    theta = float(
        rotary.get("rope_theta")
        or config.get("rope_theta")
        or config.get("rotary_emb_base")
        or 10000.0
    )
    share = (
        rotary.get("partial_rotary_factor")
        or config.get("partial_rotary_factor")
        or config.get("rotary_pct")
        or 1.0
    )
    n = int(d_head * float(share))
    angles = offset * theta ** (-torch.arange(0, n, 2).double() / n)
    R = torch.eye(d_head).double()
    first, second = torch.arange(n // 2), torch.arange(n // 2) + n // 2
    R[first, first] = R[second, second] = angles.cos()
    R[first, second], R[second, first] = angles.sin(), -angles.sin()
    return R


def _folded(
    W: Float[Tensor, "head d_model d_head"], gain: Float[Tensor, " d_model"], centred: bool
) -> Tensor:
    """diag(gain) W, and the centring of a row before it: (I - 11ᵀ/d) diag(gain) W."""
    W = gain[:, None] * W
    return W - W.mean(-2, keepdim=True) if centred else W
