r"""The one-layer Transformer of Li et al. (2024): outputs, exact gradient, and what is measured.

$$F_c(X) = \frac1L \sum_{l=1}^L a_{c,l}^\top \mathrm{ReLU}\Bigl(W_O \sum_s W_V x_s\,
\mathrm{softmax}_s\bigl(x_s^\top W_K^\top W_Q x_l\bigr)\Bigr)$$

No scale in the softmax, no bias, no residual. The readout a is fixed. The paper has one output and
y = ±1: here class 0 is y = +1. Its letter a_(l) can be read in two ways: `tied`, one a for all
positions, or `untied`, one for each.

The paper has tokens as columns. Here tokens are rows: with the paper's matrices transposed, $W_Q,
W_K$ are d_model × d_head, $W_V$ is d_model × d_value, and a token acts as $x W_Q$; $W_O$ is as in
the paper, one row per neuron, n_neurons × d_value. So $W_{KQ} = W_K W_Q^\top$ and $W_{VO} = W_V
W_O^\top$, as for every model of this laboratory.

All functions take further leading axes, alike in weights and samples (a stack of seeds), which are
computed together.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lib.files.params import Interval

Weights = dict[str, Tensor]
Neurons = Annotated[int, Interval("[2, 1e6]")]
Error = Annotated[float, Interval("[0, 100]")]
Readout = Literal["tied", "untied"]
BLOCK = 400_000  # outputs of neurons that are computed at a time: they fit into a core's cache
SPARE = 1e-5  # beyond a margin of 1: however float32 groups the samples, it is not below 1
MATRICES = {name: ["row", "col"] for name in ("W_Q", "W_K", "W_V", "W_O")}


def initial_weights(
    d_model: int,
    n_neurons: int,
    init_scale: float,
    generator: torch.Generator,
    *,
    value_error: float = 0.0,
    query_key_error: float = 0.0,
) -> Weights:
    r"""The "pre-trained" start: $W_Q = W_K = I$, $W_V$ random orthogonal, $W_O \sim N(0, \xi^2)$.

    `init_scale` is ξ. `value_error` σ and `query_key_error` δ add $\sigma G / \sqrt d$ and $\delta
    G / \sqrt d$, G standard Gaussian: with orthonormal patterns, Assumption 1 of Li et al. (2023)
    then holds up to these errors.
    """

    def gaussian(rows: int) -> Tensor:
        return torch.randn(rows, d_model, generator=generator, dtype=torch.float64)

    def near(ideal: Tensor, error: float) -> Tensor:
        return ideal + error * gaussian(d_model) / d_model**0.5

    identity = torch.eye(d_model).double()
    weights = {
        "W_V": near(torch.linalg.qr(gaussian(d_model)).Q, value_error),
        "W_O": init_scale * gaussian(n_neurons),
        "W_Q": near(identity, query_key_error),
        "W_K": near(identity, query_key_error),
    }
    return {name: W.float() for name, W in weights.items()}


def random_readout(
    kind: Readout, n_outputs: int, seq_len: int, n_neurons: int, generator: torch.Generator
) -> Float[Tensor, "output position neuron"]:
    r"""The fixed $a_{(l)} \in \{\pm 1/\sqrt m\}^m$ of each output, for each position or for all."""
    n_positions = 1 if kind == "tied" else seq_len
    signs = torch.randint(0, 2, (n_outputs, n_positions, n_neurons), generator=generator)
    return (2.0 * signs - 1) / n_neurons**0.5


def attention_pattern(
    weights: Weights, X: Float[Tensor, "*stack sample token d_model"]
) -> Float[Tensor, "*stack sample query token"]:
    r"""$\mathrm{softmax}_s(x_s^\top W_K^\top W_Q x_l)$, a row for each query l."""
    return torch.softmax(_project(X, weights["W_Q"]) @ _project(X, weights["W_K"]).mT, -1)


def relevant_attention(
    S: Float[Tensor, "*stack sample query token"], is_relevant: Bool[Tensor, "*stack sample token"]
) -> tuple[Float[Tensor, "*stack"], Float[Tensor, "*stack"]]:
    """The sum of attention on label-relevant tokens: its mean over all queries, and over the
    label-relevant ones.
    """
    share = (S @ is_relevant.to(S.dtype)[..., None])[..., 0]
    relevant = share * is_relevant
    return share.mean((-1, -2)), relevant.sum((-1, -2)) / is_relevant.sum((-1, -2))


def outputs(
    weights: Weights,
    readout: Float[Tensor, "*stack output position neuron"],
    X: Float[Tensor, "*stack sample token d_model"],
    S: Float[Tensor, "*stack sample query token"] | None = None,
) -> Float[Tensor, "*stack sample output"]:
    """F_c for every sample and output c; S is their attention pattern, where it is known."""
    S = attention_pattern(weights, X) if S is None else S
    return _read_in_blocks(weights, readout, _project(S @ X, weights["W_V"]))


def score(
    weights: Weights,
    readout: Float[Tensor, "*stack output position neuron"],
    X: Float[Tensor, "*stack sample token d_model"],
    labels: Int[Tensor, "*stack sample"],
    is_relevant: Bool[Tensor, "*stack sample token"],
) -> dict[str, Float[Tensor, "*stack"]]:
    """What is measured of a model on samples: `margin_scores`, and `relevant_attention`."""
    S = attention_pattern(weights, X)
    attention, of_relevant = relevant_attention(S, is_relevant)
    return {
        **margin_scores(margins(outputs(weights, readout, X, S), labels), X.dtype),
        "attention": attention,
        "attention_of_relevant": of_relevant,
    }


def margin_scores(
    margin: Float[Tensor, "*stack sample"], dtype: torch.dtype
) -> dict[str, Float[Tensor, "*stack"]]:
    """The mean hinge loss, the accuracy (a number of that type), the mean and the least margin."""
    return {
        "hinge": hinge(margin).mean(-1),
        "accuracy": (margin > 0).to(dtype).mean(-1),
        "margin": margin.mean(-1),
        "least_margin": margin.min(-1).values,
    }


def numbers(measured: dict[str, Float[Tensor, ""]]) -> dict[str, float]:
    """What is measured of one model, as numbers."""
    return {name: value.item() for name, value in measured.items()}


def neuron_margins(
    weights: Weights,
    readout: Float[Tensor, "1 position neuron"],
    X: Float[Tensor, "sample token d_model"],
    labels: Int[Tensor, " sample"],
) -> Float[Tensor, "sample neuron"]:
    r"""What neurons add to margins: $\frac{y}{L} \sum_l a_{(l)i} \mathrm{ReLU}(W_{O,i} \cdot v_l)$.

    The model has one output; the numbers are float64. The margin is the sum over neurons. Without
    some neurons (rows of W_O) it is the sum over the others, so that one pass serves every way to
    prune neurons.
    """
    V = _project(attention_pattern(weights, X) @ X, weights["W_V"])
    blocks = V.split(_block_size(weights, V.shape[-2]))
    parts = [(_hidden(weights, block) * readout[0]).sum(-2) for block in blocks]
    added = (torch.cat(parts) / X.shape[-2]).double()
    return added * _signs(added, labels)[:, None]


def value_cosines(
    weights: Weights, readout: Float[Tensor, "1 1 neuron"], mu: Float[Tensor, "pattern d_model"]
) -> Float[Tensor, " neuron"]:
    """The cosine of each neuron with the value vector of its pattern.

    A neuron's pattern is the one whose class has the neuron's sign in the tied readout.
    """
    values = torch.nn.functional.normalize(mu[:2] @ weights["W_V"], dim=1)
    own = values[(readout[0, 0] < 0).long()]
    return (torch.nn.functional.normalize(weights["W_O"], dim=1) * own).sum(1)


def margins(
    F: Float[Tensor, "*stack sample output"], labels: Int[Tensor, "*stack sample"]
) -> Float[Tensor, "*stack sample"]:
    r"""The margin of each sample: $yF$ for one output, else $F_y - \max_{c \ne y} F_c$.

    A sample is classified correctly where it is positive; for several outputs, its hinge loss is
    that of Crammer & Singer (2001).
    """
    if F.shape[-1] == 1:
        return _signs(F, labels) * F[..., 0]
    true, wrong, _ = _true_and_wrong(F, labels)
    return true - wrong


def hinge(margin: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """The hinge loss, max(0, 1 - margin)."""
    return (1 - margin).clamp_min(0)


@dataclass(frozen=True)
class SampleLoss:
    """The training loss of samples, for a fixed readout; also of several trainings, stacked."""

    readout: Float[Tensor, "*stack output position neuron"]
    tokens: Float[Tensor, "*stack sample token d_model"]
    labels: Int[Tensor, "*stack sample"]

    def gradient(self, weights: Weights, *index: Tensor) -> tuple[Tensor, Weights]:
        """The loss on the samples of an index, and its gradient (`loss_gradient`)."""
        return loss_gradient(weights, self.readout, self.tokens[index], self.labels[index])

    def at_rest(self, weights: Weights) -> bool:
        """Whether every margin is a little above 1: then no batch has a gradient any more."""
        margin = margins(outputs(weights, self.readout, self.tokens), self.labels)
        return bool((margin >= 1 + SPARE).all())


def rescaled_hinge(
    margin: Float[Tensor, " sample"], known: Float[Tensor, " other"], mean: Float[Tensor, ""]
) -> float:
    """The hinge loss of the samples with margins `margin`, with one factor on the output.

    It gives the samples with margins `known` the mean margin `mean`. NaN where the mean of the
    known is not positive.
    """
    factor = mean / known.mean() if known.mean() > 0 else torch.tensor(torch.nan)
    return hinge(factor * margin).mean().item()


def loss_gradient(
    weights: Weights,
    readout: Float[Tensor, "*stack output position neuron"],
    X: Float[Tensor, "*stack sample token d_model"],
    labels: Int[Tensor, "*stack sample"],
) -> tuple[Float[Tensor, "*stack"], Weights]:
    r"""The mean hinge loss over all samples, and its exact gradient in closed form.

    With $v_l = z_l W_V$, $z_l = \sum_s S_{ls} x_s$, $g_l = b_l \odot 1[v_l W_O^\top > 0]$ where b_l
    is the readout weighted by the slopes of the loss, $u_l = g_l W_O$, $c_{ls} = u_l \cdot (x_s
    W_V)$ and $A_{ls} = S_{ls}(c_{ls} - \sum_{s'} S_{ls'} c_{ls'})$, the sums over samples and
    queries l are

        dW_O = Σ g_lᵀ v_l                dW_V = Σ z_lᵀ u_l
        dW_Q = Σ x_lᵀ (A X)_l W_K        dW_K = Σ (A X)_lᵀ x_l W_Q

    Because the softmax centres A, the rows of A X are differences of tokens: dW_K has its columns,
    and dW_Q through W_K its rows, in their span. This is the source of the low rank. Samples of
    zero loss are left out of the sums.
    """
    n_samples, n_tokens = X.shape[-3:-1]
    S = attention_pattern(weights, X)
    Z = S @ X
    V = _project(Z, weights["W_V"])
    dW_O = torch.zeros_like(weights["W_O"])
    losses: list[Tensor] = []
    actives: list[Tensor] = []
    Us: list[Tensor] = []
    size = _block_size(weights, n_tokens)
    for start in range(0, n_samples, size):
        block = slice(start, start + size)
        V_b = V[..., block, :, :]
        labels_b = labels[..., block]
        R = _hidden(weights, V_b)
        F = _read(R, readout)
        margin = margins(F, labels_b)
        losses.append(hinge(margin))
        slopes = _hinge_slopes(F, labels_b, margin) / (n_samples * n_tokens)
        active = (slopes != 0).any(-1).reshape(-1, margin.shape[-1]).any(0).nonzero()[:, 0]
        if len(active) < margin.shape[-1]:
            R = R.index_select(-3, active)
            V_b = V_b.index_select(-3, active)
            slopes = slopes.index_select(-2, active)
        b = (slopes @ readout.flatten(-2)).unflatten(-1, readout.shape[-2:])
        # b where a neuron is on, else 0, which takes a quarter of the time of torch.where.
        G = _flat(R.sign_().mul_(b))
        dW_O += (_flat(V_b).mT @ G).mT  # which takes two thirds of the time of G.mT @ _flat(V_b)
        Us.append((G @ weights["W_O"]).unflatten(-2, V_b.shape[-3:-1]))
        actives.append(start + active)
    U = torch.cat(Us, -3)
    active = torch.cat(actives)
    if len(active) < n_samples:
        X, S, Z = (T.index_select(-3, active) for T in (X, S, Z))
    C = U @ _project(X, weights["W_V"]).mT
    A = C.sub_((S * C).sum(-1, keepdim=True)).mul_(S)
    AX = _flat(A @ X)
    X = _flat(X)
    return torch.cat(losses, -1).mean(-1), {
        "W_Q": X.mT @ (AX @ weights["W_K"]),
        "W_K": AX.mT @ (X @ weights["W_Q"]),
        "W_V": _flat(Z).mT @ _flat(U),
        "W_O": dW_O,
    }


def _flat(T: Float[Tensor, "*stack sample token col"]) -> Float[Tensor, "*stack row col"]:
    """The tensor with samples and tokens as one axis, so that a matrix takes one product."""
    return T.flatten(-3, -2)


def _project(
    X: Float[Tensor, "*stack sample token row"], W: Float[Tensor, "*stack row col"]
) -> Float[Tensor, "*stack sample token col"]:
    return (_flat(X) @ W).unflatten(-2, X.shape[-3:-1])


def _hidden(
    weights: Weights, V: Float[Tensor, "*stack sample token d_value"]
) -> Float[Tensor, "*stack sample token neuron"]:
    """What the neurons give: ReLU(W_O v)."""
    return _project(V, weights["W_O"].mT).relu_()


def _read(
    R: Float[Tensor, "*stack sample token neuron"],
    readout: Float[Tensor, "*stack output position neuron"],
) -> Float[Tensor, "*stack sample output"]:
    """The readout of all neurons, averaged over the tokens."""
    if readout.shape[-2] == 1:
        return _project(R, readout[..., 0, :].mT).mean(-2)
    return R.flatten(-2) @ readout.flatten(-2).mT / R.shape[-2]


def _read_in_blocks(
    weights: Weights, readout: Tensor, V: Tensor
) -> Float[Tensor, "*stack sample output"]:
    """The outputs, some samples at a time: all neurons of all samples would need far more memory.

    With a tied readout all tokens are rows until they are averaged, which takes a sixth less time.
    """
    size = _block_size(weights, V.shape[-2])
    if readout.shape[-2] > 1:
        blocks = (_read(_hidden(weights, block), readout) for block in V.split(size, -3))
        return torch.cat(list(blocks), -2)
    W_O = weights["W_O"].mT
    a = readout[..., 0, :].mT
    rows = _flat(V).split(size * V.shape[-2], -2)
    F = torch.cat([(block @ W_O).relu_() @ a for block in rows], -2)
    return F.unflatten(-2, V.shape[-3:-1]).mean(-2)


def _block_size(weights: Weights, n_tokens: int) -> int:
    """How many samples are computed at a time."""
    return max(1, BLOCK // (n_tokens * weights["W_O"].shape[-2]))


def _signs(F: Tensor, labels: Tensor) -> Tensor:
    return 1 - 2 * labels.to(F.dtype)


def _true_and_wrong(F: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The output of the true class, the largest of the others, and which that is."""
    true = F.gather(-1, labels[..., None])[..., 0]
    largest = F.scatter(-1, labels[..., None], -torch.inf).max(-1)
    return true, largest.values, largest.indices


def _hinge_slopes(
    F: Tensor, labels: Tensor, margin: Tensor
) -> Float[Tensor, "*stack sample output"]:
    """The slope of each sample's hinge loss in each output, in the first of equal wrong ones."""
    active = (margin < 1).to(F.dtype)
    if F.shape[-1] == 1:
        return -(active * _signs(F, labels))[..., None]
    _, _, wrong = _true_and_wrong(F, labels)
    slopes = torch.zeros_like(F).scatter(-1, wrong[..., None], active[..., None])
    return slopes.scatter(-1, labels[..., None], -active[..., None])
