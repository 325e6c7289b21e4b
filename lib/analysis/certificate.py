r"""Certificates of perfect classification by list attention on ALL sequences, in polynomial time.

Columns of W are queries, rows are keys; columns of V are tokens, rows are labels (see lib/models/list_attention.py).
`repeats` says which sequences: all of [L]^n, or only those of n distinct tokens. A tie counts as an error. What is
certified is every sequence, and so perfection on the support of a law only where the law gives all of them weight.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def list_order_margin(
    W: Float[Tensor, "key query"], lists: Sequence[Sequence[int]], seq_len: int, repeats: bool
) -> float:
    r"""The least margin $W_{a_i,a} - W_{k,a} - \mathrm{thr}$ over the triples that occur; perfect iff it is positive.

    For V = cP, c > 0: an error is a sequence that holds a and $a_i$, none of $a_1 .. a_{i-1}$, and a token
    $k \notin \{a_1 .. a_i\}$ that gets as much attention as $a_i$. Distinct tokens: thr = 0: strict order of
    each column by its list. With repeats k may take every free position: thr = $\log(n + 1 - |\{a, a_i, k\}|)$.
    Infinite where no sequence can be an error.
    """
    n_tokens = W.shape[0]
    least = torch.inf
    for a, i, allowed in _cases(lists, n_tokens, seq_len, repeats):
        best = lists[a][i]
        rivals = allowed.clone()
        rivals[best] = False
        together = 2 if best == a else 3
        held = torch.full((n_tokens,), float(together), dtype=torch.float64)
        held[a] = 2.0  # k = a is held already
        rivals &= held <= seq_len
        if rivals.any():
            threshold = (seq_len + 1 - held).log() if repeats else 0.0
            least = min(least, float((W[best, a] - W[:, a] - threshold)[rivals].min()))
    return least


def logit_margin(
    W: Float[Tensor, "key query"],
    V: Float[Tensor, "label token"],
    lists: Sequence[Sequence[int]],
    permutation: Sequence[int],
    seq_len: int,
    repeats: bool,
) -> float:
    r"""For any V: the least $\min_N \sum_b N_b\, e^{W_{b,a}} (V_{y,b} - V_{k,b})$ over a, i and labels k other than y.

    Perfect if and only if it is positive. The sum is linear in the counts N: beside a and $a_i$, once each, the free
    positions go to the worst allowed token (repeats) or to the worst distinct ones. The weights $e^{W_{b,a}}$ are over
    the largest of those allowed.
    """
    n_tokens = W.shape[0]
    least = torch.inf
    for a, i, allowed in _cases(lists, n_tokens, seq_len, repeats):
        best = lists[a][i]
        y = permutation[best]
        column = torch.where(allowed, W[:, a], -torch.inf)
        D = (column - column.max()).exp() * (V[y] - V)  # label, token
        held = sorted({a, best})
        free = seq_len - len(held)
        if free < 0:
            continue
        margin = D[:, held].sum(1)
        if free and repeats:
            margin = margin + free * D[:, allowed].amin(1)
        elif free:
            others = allowed.clone()
            others[held] = False
            margin = margin + D[:, others].sort(1).values[:, :free].sum(1)
        margin[y] = torch.inf
        least = min(least, float(margin.min()))
    return least


def longest_certified(W: Float[Tensor, "key query"], lists: Sequence[Sequence[int]], most: int) -> int:
    r"""The largest n' ≤ `most` such that V = cP with W is perfect on all of [L]^n, for every n up to n'.

    The thresholds of `list_order_margin` grow with n: pair margins above $\log(n' - 1)$ suffice.
    """
    n = 1
    while n < most and list_order_margin(W, lists, n + 1, repeats=True) > 0:
        n += 1
    return n


def _cases(
    lists: Sequence[Sequence[int]], n_tokens: int, seq_len: int, repeats: bool
) -> Iterator[tuple[int, int, Tensor]]:
    """Each query, place (from 0) of the determining token, and the tokens that may then occur, if any sequence can."""
    for a, entries in enumerate(lists):
        for i in range(len(entries)):
            allowed = torch.ones(n_tokens, dtype=torch.bool)
            allowed[list(entries[:i])] = False
            if repeats or n_tokens - i >= seq_len:
                yield a, i, allowed
