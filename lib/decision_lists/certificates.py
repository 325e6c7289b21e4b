r"""Certificates that list attention is right on ALL sequences, in polynomial time.

Columns of W are queries, rows are keys; columns of V are tokens, rows are labels (see
lib/decision_lists/attention.py). `repeats` says which sequences: all of [L]^n, or only those of n
distinct tokens. A tie counts as an error. What is certified is every sequence, and so perfection on
the support of a law only where the law gives all of them weight.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def list_order_margin(
    W: Float[Tensor, "key query"], lists: Sequence[Sequence[int]], seq_len: int, repeats: bool
) -> float:
    r"""The least margin $W_{a_i,a} - W_{k,a} - \mathrm{thr}$ over the triples that occur.

    For V = cP, c > 0, all is right if and only if it is positive. An error is a sequence that holds
    a and $a_i$, none of $a_1 .. a_{i-1}$, and a token $k \notin \{a_1 .. a_i\}$ that gets as much
    attention as $a_i$. Distinct tokens: thr = 0, strict order of each column by its list. With
    repeats k may take every free position: thr = $\log(n + 1 - |\{a, a_i, k\}|)$. Infinite where no
    sequence can be an error.
    """
    query, best, allowed = _cases(lists, W.shape[0], seq_len, repeats)
    token = torch.arange(W.shape[0])
    together = torch.where(query == best, 2, 3)[:, None].expand(allowed.shape)
    held = torch.where(token == query[:, None], 2, together)  # k = a is in the sequence already
    rivals = allowed & (token != best[:, None]) & (held <= seq_len)
    threshold = (seq_len + 1 - held).clamp(min=1).double().log() if repeats else 0.0
    margin = W[best, query][:, None] - W.T[query] - threshold
    return float(torch.where(rivals, margin, torch.inf).min()) if rivals.any() else torch.inf


def logit_margin(
    W: Float[Tensor, "key query"],
    V: Float[Tensor, "label token"],
    lists: Sequence[Sequence[int]],
    permutation: Sequence[int],
    seq_len: int,
    repeats: bool,
) -> float:
    r"""For any V: the least $\min_N \sum_b N_b\, e^{W_{b,a}} (V_{y,b} - V_{k,b})$.

    It is taken over a, i and labels k other than y. All is right if and only if it is positive. The
    sum is linear in the counts N: beside a and $a_i$, once each, the free positions go to the worst
    allowed token (repeats) or to the worst distinct ones. The weights $e^{W_{b,a}}$ are divided by
    the largest among the allowed tokens.
    """
    query, best, allowed = _cases(lists, W.shape[0], seq_len, repeats)
    held = torch.zeros_like(allowed).scatter(1, torch.stack([query, best], 1), True)
    free = seq_len - held.sum(1)
    possible = free >= 0
    if not possible.any():
        return torch.inf
    query, best, allowed, held, free = (
        each[possible] for each in (query, best, allowed, held, free)
    )
    y = torch.tensor(permutation)[best]
    columns = torch.where(allowed, W.T[query], -torch.inf)
    weights = (columns - columns.amax(1, keepdim=True)).exp()
    D = weights[:, None] * (V[y][:, None] - V)  # case, label, token
    margin = (D * held[:, None]).sum(2)
    if repeats:
        margin = margin + free[:, None] * torch.where(allowed[:, None], D, torch.inf).amin(2)
    else:
        others = (allowed & ~held)[:, None]
        worst = torch.where(others, D, torch.inf).sort(2).values
        chosen = (torch.arange(W.shape[0]) < free[:, None])[:, None] & worst.isfinite()
        margin = margin + torch.where(chosen, worst, 0.0).sum(2)
    return float(margin.scatter(1, y[:, None], torch.inf).min())


def longest_certified(
    W: Float[Tensor, "key query"], lists: Sequence[Sequence[int]], most: int
) -> int:
    r"""The largest n' ≤ `most` such that V = cP with W is perfect on all of [L]^n, for every n up
    to n'.

    The thresholds of `list_order_margin` grow with n: pair margins above $\log(n' - 1)$ suffice.
    """
    n = 1
    while n < most and list_order_margin(W, lists, n + 1, repeats=True) > 0:
        n += 1
    return n


def _cases(
    lists: Sequence[Sequence[int]], n_tokens: int, seq_len: int, repeats: bool
) -> tuple[Int[Tensor, " case"], Int[Tensor, " case"], Bool[Tensor, "case token"]]:
    """Every query, every token that may determine its label, and the tokens that then may occur."""
    return _cases_of(tuple(map(tuple, lists)), n_tokens, 0 if repeats else seq_len)


@lru_cache(maxsize=64)  # as weights of one task are asked again and again
def _cases_of(
    lists: tuple[tuple[int, ...], ...], n_tokens: int, least: int
) -> tuple[Int[Tensor, " case"], Int[Tensor, " case"], Bool[Tensor, "case token"]]:
    found = [
        (a, best, i)
        for a, entries in enumerate(lists)
        for i, best in enumerate(entries)
        if n_tokens - i >= least
    ]
    query, best, _ = torch.tensor(found, dtype=torch.long).view(-1, 3).T
    excluded = torch.zeros(len(found), n_tokens, dtype=torch.bool)
    for case, (a, _, i) in enumerate(found):
        excluded[case, list(lists[a][:i])] = True
    return query, best, ~excluded
