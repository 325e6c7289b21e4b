"""What the trainings of sweeps come to: scores of each model, its cuts, its spectra and nulls."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

import torch
from torch import Tensor

from lib.low_rank_sparse.cuts import changed_updates
from lib.low_rank_sparse.energy import around_each
from lib.low_rank_sparse.one_layer import (
    MATRICES,
    SampleLoss,
    Weights,
    initial_weights,
    numbers,
    random_readout,
    score,
)
from lib.low_rank_sparse.patterns import draw_patterns, epochs, permuted
from lib.low_rank_sparse.sparsity import norm_groups
from lib.low_rank_sparse.sweeps import Problem, Row
from lib.matrices.low_rank import in_random_directions, truncated_models, update_spectra
from lib.training.devices import generator, use_device
from lib.training.gradient_descent import gradient_descent, last_and_fitted, until_rest


@torch.inference_mode()
def measure_seed(
    device: str, fitted_loss: float, problem: Problem, looks: Sequence[str], seed: int
) -> Row:
    """Train one problem from one seed, score the model, and look at its updates and neurons.

    `looks` are those of `look`; a batch is fitted at the first loss below `fitted_loss`.
    """
    place = use_device(device)
    source = partial(generator, seed)
    _, train, test = draw_patterns(problem.labelled, problem.n_train, problem.n_test, source)
    train = train.to(place)
    test = test.to(place)
    start = initial_weights(
        problem.d_model,
        problem.n_neurons,
        problem.init_scale,
        source("weights"),
        value_error=problem.value_error,
        query_key_error=problem.query_key_error,
    )
    initial = {name: start[name].to(place) for name in MATRICES}
    readout = random_readout(
        problem.readout, problem.n_outputs, problem.seq_len, problem.n_neurons, source("readout")
    ).to(place)
    labels = train.labels
    if problem.permuted:
        labels = permuted(labels, source("permuted labels"))
    loss = SampleLoss(readout, train.tokens, labels)
    batches = epochs(problem.n_train, problem.batch_size, problem.n_steps, source("order"))
    feed = ((index.to(place),) for index in batches)
    steps = gradient_descent(loss.gradient, initial, problem.learning_rate, feed)
    steps = until_rest(steps, loss.at_rest, problem.n_train // problem.batch_size)
    final, fitted = last_and_fitted(steps, initial, fitted_loss)

    def scored(weights: Weights) -> dict[str, float]:
        return numbers(score(weights, readout, test.tokens, test.labels, test.is_relevant))

    groups = norm_groups(final["W_O"].norm(dim=1).cpu())
    return {
        "seed": seed,
        **asdict(problem),
        "fitted_step": fitted,
        **scored(final),
        **look(initial, final, problem, looks, seed, scored),
        "small_share": groups["small_share"],
        "large_over_small": groups["large_norm"] / groups["small_norm"],
    }


def look(
    initial: Weights,
    final: Weights,
    problem: Problem,
    looks: Sequence[str],
    seed: int,
    scored: Callable[[Weights], dict[str, float]],
) -> Row:
    """What the updates are worth: the loss where they are cut, their spectra, and a null.

    Updates are cut to ranks around k, the number of label-relevant patterns, and the updates of W_Q
    and W_K are also left out. The null of a cut has all updates in k random directions.
    """
    k = problem.labelled.n_discriminative

    def projected(update: Tensor, name: str) -> Tensor:
        draw = generator(seed, "random directions", problem.labels, name)
        return in_random_directions(update, k, draw)

    row: Row = {}
    if "cuts" in looks:
        cut = truncated_models(final, initial, {2, k - 1, k})
        untrained = final | {name: initial[name] for name in ("W_Q", "W_K")}
        hinge = {rank: scored(model)["hinge"] for rank, model in cut.items()}
        row["hinge_at_rank_2"] = hinge[2]
        row["hinge_at_rank_below"] = hinge[k - 1]
        row["hinge_at_rank_k"] = hinge[k]
        row["hinge_without_attention"] = scored(untrained)["hinge"]
    if "spectra" in looks:
        row |= around_each(update_spectra(final, initial), k)
    if "nulls" in looks:
        other = changed_updates(final, initial, projected)
        row["hinge_in_random_directions"] = scored(other)["hinge"]
    return row
