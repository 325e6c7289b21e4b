"""Tasks of decision lists made by hand, and what brute force over their sequences says, without
anything from lib.
"""

import itertools
import math

import pandas as pd
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from tests.stages.made import generator

Task = dict[str, object]


def numbers(text):
    return [float(word) if "." in word else int(word) for word in text.split()]


def task(name, seq_len, lists, permutation, weights, repeats=False, **more):
    """A task as a row of the table: classes of sequences have chances in proportion to `weights`,
    repeated in turn. A text is read number by number, list by list.
    """
    if isinstance(lists, str):
        lists = [numbers(entries) for entries in lists.split("/")]
    permutation, weights = (
        numbers(found) if isinstance(found, str) else found for found in (permutation, weights)
    )
    n_tokens = len(lists)
    n_classes = len(classes(n_tokens, seq_len, repeats))
    weights = list(itertools.islice(itertools.cycle(weights), n_classes))
    about = {"name": name, "group": "some group", "n_tokens": n_tokens, "seq_len": seq_len}
    about |= {"repeats": repeats, "lists": lists, "permutation": permutation}
    about["probability"] = [weight / sum(weights) for weight in weights]
    return {**about, "law": "some law", "use": "none"} | more


def ordered(lists):
    """W that is 0 outside of a list, and one more for each place towards its head."""
    W = torch.zeros(len(lists), len(lists), dtype=torch.float64)
    for a, entries in enumerate(lists):
        for place, b in enumerate(entries):
            W[b, a] = len(entries) - place
    return W


def longest(one):
    """The length of the longest list."""
    return max(len(entries) for entries in one["lists"])


def rarest_class(one):
    """The least positive chance of a class of sequences."""
    return min(p for p in one["probability"] if p > 0)


def cyclic(L, m):
    """Lists of the tokens before each one on a circle."""
    return [[(a - back) % L for back in range(m - 1, -1, -1)] for a in range(L)]


def random_lists(L, m, draw):
    """Lists of other tokens in random order, before each one."""
    orders = [torch.randperm(L, generator=draw).tolist() for _ in range(L)]
    return [[*[b for b in order if b != a][: m - 1], a] for a, order in enumerate(orders)]


def random_permutation(L, draw):
    """The first permutation drawn that is not its own inverse."""
    while True:
        pi = torch.randperm(L, generator=draw).tolist()
        if any(pi[pi[b]] != b for b in range(L)):
            return pi


def random_weights(n, draw):
    """The weights of a law that is as likely as any other."""
    return -torch.log1p(-torch.rand(n, generator=draw, dtype=torch.float64))


def write_tasks(path, *tasks):
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(list(tasks)).to_parquet(path)
    return path


def read_tables(folder):
    """Every table of a folder, by its name."""
    return {file.stem: pd.read_parquet(file) for file in folder.iterdir()}


def equal(found, rows, **tolerance):
    """The table has these rows."""
    close = {"rtol": 1e-8, "atol": 1e-12} | tolerance
    pd.testing.assert_frame_equal(found, pd.DataFrame(rows), **close)


def classes(n_tokens, seq_len, repeats):
    """Every class of sequences, by its tokens in order."""
    kind = itertools.combinations_with_replacement if repeats else itertools.combinations
    return list(kind(range(n_tokens), seq_len))


NEAR = task("near", 2, "3 1 0 / 2 1 / 2 / 1 3", "2 0 3 1", "5 1 3 2 7 4")
OTHER = task("other", 3, "2 0 / 0 1 / 1 3 2 / 3", "2 0 3 1", "2 4 1 9")
EASY = task("easy", 3, "1 0 / 2 3 1 / 2 / 0 3", "3 0 2 1", "9 4 8 5")
SMALL = task("small", 2, "1 0 / 2 1 / 2", "1 2 0", "1 6 4")
AGAIN = task("again", 4, "1 0 / 1", "1 0", "1 0.001 5 3 2", repeats=True)
TWICE = task("twice", 3, "2 1 0 / 0 1 / 2", "2 0 1", "1 4 3 2", repeats=True)


def every_sequence(task, repeats):
    """The task with another law: all sequences, with repeats or without, equally likely."""
    n_classes = len(classes(task["n_tokens"], task["seq_len"], repeats))
    return task | {"repeats": repeats, "probability": [1 / n_classes] * n_classes}


class Brute:
    """The loss of a task and what else is asked of weights, from a loop over its sequences and the
    tokens in them.

    W is [key, query], V is [label, token]; a row is a class of sequences of positive chance and a
    token a in it.
    """

    def __init__(self, task):
        self.L, self.n, self.lists = task["n_tokens"], task["seq_len"], task["lists"]
        self.pi = task["permutation"]
        found = []
        every = classes(self.L, self.n, task["repeats"])
        for tokens, chance in zip(every, task["probability"], strict=True):
            for a in sorted(set(tokens)) if chance > 0 else ():
                place, star = next((i, b) for i, b in enumerate(self.lists[a], 1) if b in tokens)
                counts = [float(tokens.count(b)) for b in range(self.L)]
                found.append((counts, a, star, place, float(chance) * tokens.count(a) / self.n))
        counts, query, star, place, weight = zip(*found, strict=True)
        self.counts, self.weight = (torch.tensor(x, dtype=torch.float64) for x in (counts, weight))
        self.query, self.star, self.place = (torch.tensor(each) for each in (query, star, place))
        self.label = torch.tensor(self.pi)[self.star]
        self.every = torch.arange(len(found))
        self.P = torch.zeros(self.L, self.L, dtype=torch.float64)
        self.P[self.pi, range(self.L)] = 1

    def attention(self, W):
        scores = self.counts * W.T[self.query].exp()
        return scores / scores.sum(1, keepdim=True)

    def losses(self, W, V):
        return -torch.log_softmax(self.attention(W) @ V.T, 1)[self.every, self.label]

    def loss(self, W, V):
        return (self.weight * self.losses(W, V)).sum()

    def gradients(self, W, V):
        W, V = (X.clone().requires_grad_() for X in (W, V))
        return torch.autograd.grad(self.loss(W, V), (W, V))

    def attention_to_star(self, W):
        return self.attention(W)[self.every, self.star]

    def margins(self, W):
        """How far the label's token is ahead of every other, in log N + W."""
        scores = self.counts.log() + W.T[self.query]
        rivals = scores.clone()
        rivals[self.every, self.star] = -torch.inf
        return scores[self.every, self.star] - rivals.amax(1)

    def logit_margins(self, W, V):
        z = self.attention(W) @ V.T
        rivals = z.clone()
        rivals[self.every, self.label] = -torch.inf
        return z[self.every, self.label] - rivals.amax(1)

    def accuracy(self, W, V):
        return float(self.weight[self.logit_margins(W, V) > 0].sum())

    def first_failing(self, wrong):
        """The first query with a wrong row, and the smallest place of its list that determines
        one.
        """
        return min(
            (int(a), int(i)) for a, i in zip(self.query[wrong], self.place[wrong], strict=True)
        )


def certified(task, W, V):
    """Whether every sequence of distinct tokens is right, and whether every sequence at all is."""
    found = {}
    for name, repeats in (("sets", False), ("all", True)):
        margins = Brute(every_sequence(task, repeats)).logit_margins(W, V)
        found[f"certified_{name}"] = bool((margins > 0).all())
    return found


def rarest(task):
    """The least positive chance that a query, the entry that determines its label and a rival come
    together.
    """
    sets = classes(task["n_tokens"], task["seq_len"], task["repeats"])
    found = []
    for a, entries in enumerate(task["lists"]):
        for i, best in enumerate(entries):
            for k in set(range(task["n_tokens"])) - set(entries[: i + 1]):
                held = [{a, best, k} <= set(s) and not set(entries[:i]) & set(s) for s in sets]
                found.append(
                    sum(p for p, here in zip(task["probability"], held, strict=True) if here)
                )
    return min(p for p in found if p > 0)


def noisy_start(one, noise, seed):
    """c, ε and V_0 − cP, by the equation for c."""
    brute = Brute(one)
    L, n, delta = one["n_tokens"], one["seq_len"], rarest_class(one)
    W = 0 * brute.P

    def residual(c, offset, epsilon):
        L_0 = float(brute.loss(W, c * brute.P + offset))
        return c - 10 * n * n * L_0 / delta - 4 * (n * L_0 / 18 if epsilon is None else epsilon) * n

    most = 30 * n * n * math.log(L) / delta
    plain = brentq(residual, 1, most, (0, None), xtol=1e-13 * most, rtol=1e-15)
    epsilon = n * float(brute.loss(W, plain * brute.P)) / 18
    offset = 0 * W
    if noise == "uniform":
        source = generator(seed, "noise", one["name"])
        draw = torch.rand(L, L, generator=source, dtype=torch.float64)
        offset = epsilon * (draw - 0.5)
    elif noise == "adversarial":
        for _ in range(20):  # it goes up the loss, to the corner of the box where no sign changes
            gradient = brute.gradients(W, plain * brute.P + offset)[1]
            offset = epsilon / 2 * gradient.sign() * (gradient.abs() > 1e-12)
    c = brentq(residual, 1, 3 * most, (offset, epsilon), xtol=1e-13 * most, rtol=1e-15)
    return c, epsilon, offset


class Flow:
    """dx/dt = -gradient(x) from 0 up to `end`; x is a matrix of values of about `size`."""

    def __init__(self, brute, gradient, end, size=1.0):
        self.brute, self.zero = brute, torch.zeros_like(brute.P)
        self.velocity = lambda x: -gradient(x)
        solved = solve_ivp(
            lambda _, x: self.velocity(self.matrix(x)).flatten().numpy(),
            (0, end),
            self.zero.flatten().numpy(),
            "LSODA",
            rtol=1e-10,
            atol=1e-10 * size,
            dense_output=True,
        )
        self.times, self.path = solved.t, solved.sol

    def matrix(self, x):
        return torch.from_numpy(x).view_as(self.zero)

    def at(self, t):
        return self.matrix(self.path(t)) if t else self.zero

    def margin(self, t):
        return float(self.brute.margins(self.at(t)).min())

    def at_once(self):
        """Whether the first velocity alone puts every row right."""
        repeats = (self.brute.counts > 1).any()
        return not repeats and float(self.brute.margins(self.velocity(self.zero)).min()) > 0

    def first(self):
        """The first time at which all is right; NaN where there is none."""
        if self.at_once():
            return 0.0
        for a, b in itertools.pairwise(self.times):
            if self.margin(b) > 0:
                return brentq(self.margin, a, b, xtol=1e-14 * b, rtol=1e-14)
        return math.nan


def of_loss(task, c, end):
    """The flow of W on the loss, at V = cP."""
    brute = Brute(task)
    return Flow(brute, lambda W: brute.gradients(W, c * brute.P)[0], end, 1 / c)


def of_choices(task, end):
    """The limit: Luce's choice model among the tokens of a sequence, their values u / n."""
    brute = Brute(task)

    def gradient(u):
        u = u.clone().requires_grad_()
        logits = brute.counts.log() + u.T[brute.query] / brute.n
        losses = -torch.log_softmax(logits, 1)[brute.every, brute.star]
        return torch.autograd.grad((brute.weight * losses).sum(), u)[0]

    return Flow(brute, gradient, end)
