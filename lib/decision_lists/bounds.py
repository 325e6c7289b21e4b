r"""The convergence theorems of attention on decision lists: their constants, times and lemmas.

The abstract leaves the law of the sequences, delta, gamma, m and A undefined. The definitions here
are derived [D] (the proofs are in docs/decision_lists.md) and reproduce every constant that the
abstract states; they are one consistent reading of it. Sequences are of n distinct tokens out of L,
and logarithms are natural.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from jaxtyping import Bool, Float, Int
from torch import Tensor

from lib.decision_lists.attention import Rows, attention_to_star
from lib.decision_lists.lists import Task

N_EPSILONS = 1000  # the number of ε at which `least_feasible_length` looks, for each n


def rarest_conflict(task: Task) -> float:
    r"""$P_{\min}$, the least positive $P(F_{a,i,k})$.

    It is taken over queries a, places i and tokens $k \notin \{a_1 .. a_i\}$. F is the event that
    a, $a_i$ and k are in the sequence and none of $a_1 .. a_{i-1}$ is: k competes with the right
    token.
    """
    present = (task.counts > 0).double()
    least = math.inf
    for a, entries in enumerate(task.lists):
        for i in range(1, len(entries) + 1):
            chance = (task.chances * (task.place[:, a] == i)) @ present
            chance[list(entries[:i])] = 0.0
            if (chance > 0).any():
                least = min(least, float(chance[chance > 0].min()))
    return least


def rarest_conflict_of_uniform(n_tokens: int, seq_len: int, length: int) -> float:
    r"""$P_{\min}$ of uniform subsets and lists of one length.

    In F some 2 or 3 tokens occur, and i - 1 others do not.
    """
    chances = []
    for i in range(1, length + 1):
        held = 2 if i == length else 3
        for together in {held, 2}:
            if together <= seq_len <= n_tokens - (i - 1):
                possible = math.comb(n_tokens - (i - 1) - together, seq_len - together)
                chances.append(possible / math.comb(n_tokens, seq_len))
    return min(chances)


@dataclass(frozen=True)
class FlowBound:
    """Theorem 1': gradient flow on W from 0, V = scale · P, is perfect at some t up to `time`."""

    P_min: float
    scale: float
    delta: float
    gamma: float
    time: float


def flow_bound(
    P_min: float, n_tokens: int, seq_len: int, length: int, share: float = 1.0
) -> FlowBound:
    r"""$c = 4n \log L / \delta$, $\gamma = (4 P_{\min} / (n\delta) - 1)^2$, time $4M / (\gamma \log
    L)$.

    $\delta$ = `share` · $P_{\min} / n$, 0 < share < 4; with share 1, $\gamma = 9$. M is the length
    of the longest list.
    """
    delta = share * P_min / seq_len
    gamma = (4 / share - 1) ** 2
    log_L = math.log(n_tokens)
    scale = 4 * seq_len * log_L / delta
    return FlowBound(P_min, scale, delta, gamma, 4 * length / (gamma * log_L))


def flow_bound_of(task: Task, share: float = 1.0) -> FlowBound:
    """The bound of a task, from its law and its longest list."""
    return flow_bound(rarest_conflict(task), task.n_tokens, task.seq_len, task.longest, share)


def initial_loss(n_tokens: int, seq_len: int, scale: float) -> float:
    r"""$L_0 = \log(n + (L - n) e^{-c/n})$: the loss at W = 0, V = cP, distinct tokens."""
    return math.log(seq_len + (n_tokens - seq_len) * math.exp(-scale / seq_len))


@dataclass(frozen=True)
class DescentBound:
    """The theorem on gradient descent on W and V: its constants and preconditions.

    `delta` is the least probability of a set, `L_0` the loss at the start. The number of steps T
    lies in [`earliest`, `latest`] over the step size. All are preconditions: `feasible` constants,
    a start within ε / 2 of cP, and a step size up to the inverse of the largest curvature on the
    way.
    """

    delta: float
    epsilon: float
    L_0: float
    seq_len: int
    length: int

    @property
    def scale(self) -> float:
        r"""$c = 10 n^2 L_0/\delta + 4\epsilon n$."""
        return 10 * self.seq_len**2 * self.L_0 / self.delta + 4 * self.epsilon * self.seq_len

    @property
    def A(self) -> float:  # noqa: N802
        r"""$A = (1 - 10^{-9})(L_0 - 6\epsilon/n)$."""
        return (1 - 1e-9) * (self.L_0 - 6 * self.epsilon / self.seq_len)

    @property
    def earliest(self) -> float:
        """2 m L_0 / A², to be divided by the step size."""
        return 2 * self.length * self.L_0 / self.A**2

    @property
    def latest(self) -> float:
        """ε / 2, to be divided by the step size."""
        return self.epsilon / 2

    @property
    def feasible(self) -> bool:
        """Whether the constants allow a T: L_0 − 6ε/n > A > 0 and A² > 4 m L_0 / ε."""
        return self.A > 0 and 4 * self.length * self.L_0 / self.epsilon < self.A**2

    def met(
        self, residual: float, start_deviation: float, step_size: float, curvature: float
    ) -> bool:
        """Whether every precondition holds; `residual` is that of the scale, relative to it."""
        rounding = 1e-15 * self.scale  # the rounding of c in V_0
        near = start_deviation <= self.epsilon / 2 * (1 + 1e-9) + rounding
        return self.feasible and residual <= 1e-9 and near and step_size * curvature <= 1


def descent_bound_of(task: Task) -> DescentBound:
    r"""The constants of a task at V_0 = cP, with the best $\epsilon = n L_0 / 18$.

    They follow from the probability of its rarest class and its longest list. $L_0$ is the
    `initial_loss` at c: a fixed point, found by iteration.
    """
    n = task.seq_len
    rarest = min(p for p in task.probability if p > 0)

    def at(L_0: float) -> DescentBound:
        return DescentBound(rarest, n * L_0 / 18, L_0, n, task.longest)

    bound = at(math.log(task.n_tokens))
    for _ in range(100):
        before = bound
        bound = at(initial_loss(task.n_tokens, n, bound.scale))
        if bound == before:
            break
    return bound


def least_feasible_length(length: int) -> int:
    r"""The least n for which some $\epsilon$ meets the preconditions, at V_0 = cP, L = n + 1.

    The search tries `N_EPSILONS` values of $\epsilon$ evenly spaced up to $n L_0 / 6$, $L_0$ being
    the `initial_loss` at the c of each, under the uniform law ($\delta = 1 / L$). It does not use
    that the best is $\epsilon = n L_0 / 18$, and n the `closed_form_length`: a comparison shows it.
    """

    def feasible(n: int, k: int) -> bool:
        epsilon = k / N_EPSILONS * n * math.log(n) / 6
        plain = DescentBound(1 / (n + 1), epsilon, math.log(n), n, length)
        L_0 = initial_loss(n + 1, n, plain.scale)
        return DescentBound(plain.delta, epsilon, L_0, n, length).feasible

    return next(n for n in count(2) if any(feasible(n, k) for k in range(1, N_EPSILONS)))


def closed_form_length(length: int) -> int:
    r"""The least n with $n \log^2 n > 162\, m$."""
    return next(n for n in count(2) if n * math.log(n) ** 2 > 162 * length)


def late_limit(task: Task) -> float:
    r"""The limit of $c^2 t\,$ loss, $|\hat u|^2$; NaN where the law may leave some order open.

    $\hat u$ is the least u that orders the tokens of every row with a lead of n. In the limit of
    large scales the flow is that of a separable regression, whose loss falls as $|\hat u|^2 / \tau$
    (Soudry et al. 2018), whatever the law, if every sequence of distinct tokens is possible. From
    n = 3 on a column of $\hat u$ has n for a, one n more for each place before it, and 0 elsewhere,
    less the mean; with n = 2 no third token is there, and all places before a are equal.
    """
    few = task.n_tokens - task.longest < task.seq_len - 1
    if task.repeats or min(task.probability) == 0 or few:
        return math.nan
    total = 0.0
    for entries in task.lists:
        m = len(entries)
        steps = range(1, m + 1) if task.seq_len > 2 else [1, *[2] * (m - 1)]
        total += sum(i * i for i in steps) - sum(steps) ** 2 / task.n_tokens
    return task.seq_len**2 * total


def first_failing_place(
    wrong: Bool[Tensor, " row"], query: Int[Tensor, " row"], place: Int[Tensor, " row"]
) -> tuple[int, int] | None:
    """The first query with a wrong row, and the smallest place of its list that determines one.

    It is None if all is right. The smallest place matters: with the largest, Lemma 1 is false.
    """
    if not wrong.any():
        return None
    a = int(query[wrong].min())
    return a, int(place[wrong & (query == a)].min())


def descent_along_list(
    gradient: Float[Tensor, "key query"], lists: Sequence[Sequence[int]], at: tuple[int, int]
) -> float:
    r"""$-\langle \nabla_W, U \rangle$ of both lemmas, $U = \sum_{i' \le i} e_{a_{i'}}$ in column a.

    `at` has the query a, and the smallest place i of one of its misclassified rows.
    """
    a, i = at
    return -float(gradient[list(lists[a][:i]), a].sum())


def lemma_1_bound(
    W: Float[Tensor, "key query"],
    rows: Rows,
    wrong: Bool[Tensor, " row"],
    scale: float,
    at: tuple[int, int],
) -> float:
    r"""Lemma 1, V = cP: $-\langle \nabla_W, U \rangle \ge \frac{c}{2} \sum \mu\, \alpha_*$.

    The sum is over the wrong rows of the query and the place `at`.
    """
    a, i = at
    failing = wrong & (rows.query == a) & (rows.place == i)
    return scale / 2 * float((rows.weight * attention_to_star(W, rows))[failing].sum())


def lemma_2_bound(L_0: float, seq_len: int, epsilon: float) -> float:
    r"""Lemma 2, V within $\epsilon$ of cP.

    $-\langle \nabla_W, U \rangle \ge 2.5 (1 - 1/n) L_0 - 3 \epsilon / n$.
    """
    return 2.5 * (1 - 1 / seq_len) * L_0 - 3 * epsilon / seq_len
