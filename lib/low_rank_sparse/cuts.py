"""Cuts of a model's updates to low ranks, the nulls of such a cut, and what each leaves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from lib.low_rank_sparse.one_layer import MATRICES, numbers, score
from lib.low_rank_sparse.patterns import Samples
from lib.matrices.low_rank import in_random_directions, truncated_models
from lib.matrices.spectra import gaussian_of_equal_norm
from lib.training.devices import generator

Weights = Mapping[str, Tensor]
ALONE = {"W_Q and W_K": ("W_Q", "W_K"), "W_V": ("W_V",), "W_O": ("W_O",)}


class Cut(NamedTuple):
    """What was cut, to which rank, and the matrices then."""

    kind: str
    rank: int
    weights: Weights


def low_rank_models(
    W: Weights, W_0: Weights, ranks: Sequence[int], ranks_alone: Sequence[int]
) -> Iterator[Cut]:
    """Yield every cut; a matrix that is not cut is W's own tensor.

    All updates are cut to each of the ranks. The weights in place of the updates, and the updates
    of some matrices `ALONE`, are cut to each of `ranks_alone`. The last cut leaves the singular
    pairs 3 and 4 of all updates in place of 1 and 2.
    """
    cut = truncated_models(W, W_0, {*ranks, *ranks_alone, 2, 4})
    for rank in ranks:
        yield Cut("all", rank, cut[rank])
    whole = truncated_models(W, {name: 0 * W[name] for name in W}, ranks_alone)
    for rank in ranks_alone:
        yield Cut("weights, not updates", rank, whole[rank])
    for kind, names in ALONE.items():
        for rank in ranks_alone:
            yield Cut(kind, rank, {**W, **{name: cut[rank][name] for name in names}})
    yield Cut("pairs 3 and 4", 2, {name: W_0[name] + cut[4][name] - cut[2][name] for name in W})


def changed_updates(
    W: Weights, W_0: Weights, change: Callable[[Tensor, str], Tensor]
) -> dict[str, Tensor]:
    r"""The null of a cut: $W_0 + \Delta$ with another update for each matrix.

    `change` makes the other update from the one that training made, in float64 on the CPU, and the
    name of the matrix.
    """
    found: dict[str, Tensor] = {}
    for name in W_0:
        start = W_0[name].double().cpu()
        found[name] = (start + change(W[name].double().cpu() - start, name)).to(W[name])
    return found


def truncations(
    initial: Weights,
    model: Weights,
    test: Samples,
    *,
    ranks: Sequence[int],
    ranks_alone: Sequence[int],
    random_seed: int,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """Yield what each cut to a rank leaves, and each null of a cut to rank 2.

    The nulls of a training's `seed` are drawn from the `random_seed`.
    """
    begun = {name: initial[name] for name in MATRICES}
    ended = {name: model[name] for name in MATRICES}

    def projected(update: Tensor, name: str) -> Tensor:
        draw = generator(random_seed, "random directions", seed, name)
        return in_random_directions(update, 2, draw)

    def noise(update: Tensor, name: str) -> Tensor:
        draw = generator(random_seed, "gaussian", seed, name)
        return gaussian_of_equal_norm(update, draw)

    cuts = [
        *low_rank_models(ended, begun, ranks, ranks_alone),
        Cut("random directions", 2, changed_updates(ended, begun, projected)),
        Cut("gaussian", min(model["W_O"].shape), changed_updates(ended, begun, noise)),
    ]
    for cut in cuts:
        scores = score(
            {**cut.weights}, model["readout"], test.tokens, test.labels, test.is_relevant
        )
        yield {"kind": cut.kind, "rank": cut.rank, **numbers(scores)}
