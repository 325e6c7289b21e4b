"""Trained models whose updates are cut to a rank, or that lose weights, MLP neurons or heads."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor
from torch.linalg import vector_norm

from lib.files.files import InputError
from lib.files.runs import Run, open_runs
from lib.matrices.low_rank import doubling_ranks, truncated_models
from lib.matrices.pruning import Order, magnitude_masks, n_pruned, removal_order
from lib.training.attention import merge_heads, split_heads
from lib.vision.vit import ATTENTION, MATRICES, Weights, forward_flops, remove_heads, remove_neurons

Models = Iterator[tuple[dict[str, Any], Weights]]  # each with what was done to it


def plain_runs(runs: Path, init_scales: tuple[float, ...], section: str) -> list[Run]:
    """The plain runs of these init scales; raises `InputError` where there is none."""
    plain = [one for one in open_runs(runs, "vision") if one.layout.cell["control"] == "none"]
    chosen = [one for one in plain if one.layout.cell["init_scale"] in init_scales]
    if not chosen:
        known = sorted(one.layout.cell["init_scale"] for one in plain)
        wanted = f"wanted some of {known}, the plain runs in {runs}"
        raise InputError(f"{section}.init_scales: {wanted}; got {list(init_scales)}")
    return chosen


def truncated(initial: Weights, final: Weights) -> Models:
    """The model with updates cut to each rank: all matrices together, then each kind alone.

    The update of a matrix is W(T) - W(0), over all heads at once (d_model × heads · d_head), as a
    LoRA adapter would see it. What is not a matrix of a block (embedding, norms, biases, head)
    stays as trained. Rank 0 puts the initial matrices back.
    """
    W_0, W = ({name: whole(part[name], name) for name in MATRICES} for part in (initial, final))
    ranks = doubling_ranks(max(min(M.shape[-2:]) for M in W.values()))
    cut = truncated_models(W, W_0, ranks)
    for kind in ("all", *MATRICES):
        names = MATRICES if kind == "all" else [kind]
        for rank in ranks:
            parts = {name: in_heads(cut[rank][name], name, final) for name in names}
            yield {"kind": kind, "rank": rank}, final | parts


def whole(W: Tensor, name: str) -> Tensor:
    """A matrix over all heads."""
    return merge_heads(W) if name in ATTENTION else W


def in_heads(W: Tensor, name: str, model: Weights) -> Tensor:
    """The inverse of `whole`."""
    return split_heads(W, model[name].shape[1]) if name in ATTENTION else W


def pruned(model: Weights, rates: list[float], source: Callable[[str], torch.Generator]) -> Models:
    """The model without a share of its weights, neurons or heads: smallest first, at random, and
    largest first.

    Weights are ranked by magnitude, those of all matrices of the blocks together, and set to zero.
    Neurons are ranked within a layer by the product of the norms of what feeds a neuron and of what
    it feeds, heads by the norm of W_VO; both are really removed. `removed` is the share that is
    gone: where there are few heads, a rate is rounded to a number of them.
    """
    matrices = {name: model[name] for name in MATRICES}
    n_weights = sum(W.numel() for W in matrices.values())
    for order in get_args(Order):
        for rate, masks in magnitude_masks(matrices, rates, order, source("weights")):
            masked = {name: W * masks[name] for name, W in matrices.items()}
            n_left = sum(int(W.count_nonzero()) for W in masked.values())
            row = {"what": "weights", "order": order, "rate": rate}
            yield row | {"removed": 1 - n_left / n_weights}, model | masked
    of_neurons = vector_norm(model["W_1"], dim=1) * vector_norm(model["W_2"], dim=2)
    of_heads = vector_norm(model["W_V"] @ model["W_O"].mT, dim=(2, 3))
    units = {"neurons": (of_neurons, remove_neurons), "heads": (of_heads, remove_heads)}
    for what, (magnitudes, remove) in units.items():
        n_units = magnitudes.shape[1]
        for order in get_args(Order):
            removal = removal_order(magnitudes.cpu(), order, source(what))
            for rate in rates:
                kept = removal[:, n_pruned(n_units, rate) :].sort(dim=1).values
                row = {"what": what, "order": order, "rate": rate}
                yield row | {"removed": 1 - kept.shape[1] / n_units}, remove(model, kept)


def costs(smaller: Weights, model: Weights) -> dict[str, float]:
    """Parameters and operations of a pruned model, over those of the whole one."""
    n_smaller, n = (sum(w.numel() for w in one.values()) for one in (smaller, model))
    flops = forward_flops(smaller) / forward_flops(model)
    return {"parameters": n_smaller / n, "flops": flops}
