"""The trainings of `published.optimizers_by_seed.run`: a row a seed of each."""

import math

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from lib.gradual_rank.full_heads import FullSizes, SharedTokensHead, products_of_ranks
from lib.gradual_rank.full_trainings import HALF, N_LOOKS, Tokens
from lib.gradual_rank.optimizers import RULES, descend
from lib.gradual_rank.step_counts import evenly
from lib.work.cells import Tables
from stages.gradual_rank.optimizers import Optimizer, Optimizers, train

RISEN = 0.01  # a singular value of a product


def follow(params: Optimizers, sizes: FullSizes, case: Optimizer, longer: int = 1) -> Tables:
    """One optimiser on noisy targets, a row a seed: losses on the path and at the end, as shares of
    those at zero, and how near the products are to the teacher's.
    """
    tokens = Tokens(params.seeds, sizes.seq_len, sizes.d_model)
    n, scale = params.noisy_samples, params.few_log10_init_scale
    rank = min(params.teacher_rank, sizes.d_model)
    X, Y = tokens.taught("tokens", n, [rank], params.noise)
    clean = tokens.taught("tokens", n, [rank])[1]
    head = SharedTokensHead(X, Y)
    X_test, Y_test = tokens.taught("test tokens", params.n_test, [rank])
    test = SharedTokensHead(X_test, Y_test)
    at_zero, test_at_zero = (T.square().mean((-3, -2, -1))[:, 0] for T in (Y, Y_test))
    teacher = products_of_ranks(tokens.factors("full teacher"), [rank])[0]
    start = {"factors": 10**scale * tokens.factors("full start").unsqueeze(-3)}
    rates = case.rates(scale, params.noisy_longer * longer)
    looks = evenly(N_LOOKS * longer, len(rates))
    test_losses = []
    half = torch.full((len(params.seeds),), torch.nan, dtype=torch.float64)
    last, loss = start["factors"], at_zero
    for step in descend(head.loss_and_slopes, start, RULES[case.rule](), rates):
        if step.number in looks:
            last, loss = step.weights["factors"][..., 0, :, :], step.loss[:, 0] / at_zero
            test_losses.append(test.loss_and_slopes(step.weights)[0][:, 0] / test_at_zero)
            keys = cosine(last[0, 0] @ last[1, 0].mT, teacher[0])
            half = torch.where(half.isnan() & (loss <= HALF), keys, half)
    products = last[0] @ last[1].mT
    slopes = torch.stack(head.loss_and_gradients(*products.unsqueeze(-3))[1:])[..., 0, :, :]
    floor = (Y - clean).square().mean((-3, -2, -1))[:, 0] / at_zero
    found = {
        "stuck": loss > floor,
        "loss": loss,
        "teacher_loss": floor,
        "best_test_loss": torch.stack(test_losses).amin(0),
        "last_test_loss": test_losses[-1],
        "cosine_KQ_half": half,
        "cosine_KQ": cosine(products[0], teacher[0]),
        "cosine_VO": cosine(products[1], teacher[1]),
        "wait": -scale * math.log(10) / growth_left(products, slopes) / sum(rates),
    }
    rows = {name: values.tolist() for name, values in found.items()}
    return {"rows": pd.DataFrame({"optimizer": case.name, "seed": list(params.seeds), **rows})}


def cosine(
    A: Float[Tensor, "*batch d d"], B: Float[Tensor, "*batch d d"]
) -> Float[Tensor, "*batch"]:
    r"""$\langle A, B \rangle / (\|A\|_F \|B\|_F)$."""
    norms = torch.linalg.matrix_norm(A) * torch.linalg.matrix_norm(B)
    return (A * B).sum((-2, -1)) / norms


def growth_left(
    W: Float[Tensor, "product seed d d"], G: Float[Tensor, "product seed d d"]
) -> Float[Tensor, " seed"]:
    r"""How fast the next direction of a product rises: the largest $\sigma_1(U^\top G V)$ of both.

    U and V are the singular vectors of W whose values have not risen; zero where all have.
    """
    U, sigma, Vh = torch.linalg.svd(W)
    low = (sigma <= RISEN).to(G)
    left = low[..., :, None] * (U.mT @ G @ Vh.mT) * low[..., None, :]
    return torch.linalg.svdvals(left)[..., 0].amax(0)


def ordered(params: Optimizers, sizes: FullSizes, case: Optimizer) -> Tables:
    """In which order one optimiser ends the directions of a full teacher, on many tokens."""
    trainings = ((params.few_log10_init_scale, sizes.d_model),)
    rows = train(params, sizes, case, trainings).tables["runs"]
    return {"rows": rows[["optimizer", "seed", "order", "stable_rank_half", "stable_rank_end"]]}
