"""The descents of the stage, against plain autograd: every step, its curvature, and the theorem's constants."""

import itertools
import math
from contextlib import nullcontext

import pandas as pd
import pytest
import torch
from decision_lists_made import Brute, every_sequence, order_margin, rarest, task, write_tasks
from made import files, generator
from scipy.optimize import brentq

from lib.io.files import InputError

SECTIONS = ("decision_lists.descend", "decision_lists.control", "decision_lists.solver.descend")
ONE = task(
    "one", "small", 4, 2, [[3, 1, 0], [2, 1], [2], [1, 3]], [2, 0, 3, 1], [5, 1, 3, 2, 7, 4],
    law="first law", use="both",
)  # fmt: skip
TWO = task(
    "two", "large", 4, 3, [[2, 0], [0, 1], [1, 3, 2], [3]], [1, 3, 0, 2], [2, 4, 1, 9], law="second law", use="both"
)  # fmt: skip
STEEP = task(
    "steep", "steep", 4, 3, [[1, 0], [2, 3, 1], [2], [0, 3]], [3, 0, 2, 1], [9, 4, 8, 4], law="third law", use="both"
)  # fmt: skip
# Long sequences of few tokens, whose lists decide nothing: here the theorem's conditions hold.
LONG = task(
    "long", "long", 20, 19, [[a] for a in range(20)], [*range(1, 20), 0], [3, 4, 5], law="fourth law", use="both"
)  # fmt: skip
TASKS = (LONG, STEEP, TWO, ONE)
OTHERS = tuple(ONE | {"name": f"for {use}", "use": use} for use in ("theorem", "joint"))
PARAMS = {"attention_alone": ["two", "one"], "noise": ["adversarial", "none", "uniform"], "noise_seed": 5}
CONTROL = {"scale": 1, "learning_rate": 1, "n_steps": 1}  # see test_control.py
SOLVE = {"spare": 0.01, "n_samples": 2, "max_steps": 6, "max_repeats": 15, "lanczos_iterations": 2}


class Descent:
    """W and V from a start, by steps of the inverse of the largest curvature found along the path."""

    def __init__(self, brute, W, V, moving, right, curvature, params):
        self.brute, self.moving = brute, moving
        self.initial = self.largest = curvature(W, V)
        for _ in range(params["max_repeats"]):
            self.eta = 1 / ((1 + params["spare"]) * self.largest)
            self.path = [(W, V)]
            while not right(*self.path[-1]) and len(self.path) <= params["max_steps"] and self.fits():
                self.step(params["n_samples"], curvature)
            if self.fits():
                break

    def fits(self):
        return self.largest * self.eta <= 1

    def step(self, samples, curvature):
        at = self.path[-1]
        gradients = self.brute.gradients(*at)
        to = tuple(X - self.eta * g * m for X, g, m in zip(at, gradients, self.moving, strict=True))
        for j in range(1, samples + 1):  # denser near the step's start
            share = (j / samples) ** 2
            between = (X + share * (Y - X) for X, Y in zip(at, to, strict=True))
            self.largest = max(self.largest, curvature(*between))
        self.path.append(to)

    def failures(self):
        """The steps that descend by less than the descent lemma says, η |∇|² / 2."""
        found = 0
        for a, b in itertools.pairwise(self.path):
            square = sum(float((g**2).sum()) * m for g, m in zip(self.brute.gradients(*a), self.moving, strict=True))
            found += float(self.brute.loss(*b)) > float(self.brute.loss(*a)) - self.eta / 2 * square + 1e-13
        return found


def in_attention(brute):
    """The largest eigenvalue of the Hessian in W."""

    def curvature(W, V):
        H = torch.autograd.functional.hessian(lambda X: brute.loss(X, V), W, vectorize=True)
        return float(torch.linalg.eigvalsh(H.reshape(W.numel(), W.numel()))[-1])

    return curvature


def in_both(brute, n_iterations):
    """The largest Ritz value in the Krylov space of the gradient's direction plus a random one's, of equal norms."""

    def curvature(W, V):
        W, V = (X.clone().requires_grad_() for X in (W, V))
        flat = torch.cat([g.flatten() for g in torch.autograd.grad(brute.loss(W, V), (W, V), create_graph=True)])
        random = torch.randn(len(flat), generator=generator(0, "curvature"), dtype=torch.float64)

        def product(x):
            return torch.cat([h.flatten() for h in torch.autograd.grad(flat, (W, V), x, retain_graph=True)])

        space = [flat.detach() / flat.detach().norm() + random / random.norm()]
        for _ in range(n_iterations - 1):
            space.append(product(space[-1]))
            space[-1] /= space[-1].norm()
        Q = torch.linalg.qr(torch.stack(space, 1))[0]
        return float(torch.linalg.eigvalsh(Q.T @ torch.stack([product(q) for q in Q.T], 1))[-1])

    return curvature


def alone(one, params):
    brute = Brute(one)
    L, n = one["n_tokens"], one["seq_len"]
    c = 4 * n * n * math.log(L) / rarest(one)

    def right(W, _):
        return brute.margins(W).min() > 0

    return c, Descent(brute, 0 * brute.P, c * brute.P, (1, 0), right, in_attention(brute), params)


def both(one, noise, params):
    brute = Brute(one)
    L, n, delta = one["n_tokens"], one["seq_len"], min(p for p in one["probability"])
    W = 0 * brute.P

    def residual(c, offset, epsilon):
        L_0 = float(brute.loss(W, c * brute.P + offset))
        return c - 10 * n * n * L_0 / delta - 4 * (n * L_0 / 18 if epsilon is None else epsilon) * n

    most = 11 * n * n * math.log(L) / delta
    c = brentq(residual, 1, most, (0, None), xtol=1e-13 * most, rtol=1e-15)
    epsilon = n * float(brute.loss(W, c * brute.P)) / 18
    if noise == "uniform":
        offset = (
            epsilon
            / 2
            * (
                2
                * torch.rand(L, L, generator=generator(params["noise_seed"], "noise", one["name"]), dtype=torch.float64)
                - 1
            )
        )
    elif noise == "adversarial":
        offset = torch.zeros(L, L, dtype=torch.float64)
        for b in range(L):
            offset[(one["permutation"][b] + 1) % L, b] = epsilon / 2
    else:
        offset = 0 * W
    c = brentq(residual, 1, 3 * most, (offset, epsilon), xtol=1e-13 * most, rtol=1e-15)
    V = c * brute.P + offset

    def right(W, V):
        return brute.logit_margins(W, V).min() > 0

    return c, epsilon, Descent(brute, W, V, (1, 1), right, in_both(brute, params["lanczos_iterations"]), params)


def least_margin(one, W, V):
    """The least lead of the label over another in any sequence of distinct tokens.

    In sums over its tokens b of e^W V, where e^W is taken over its largest among the tokens that may occur.
    """
    brute, found = Brute(every_sequence(one, False)), []
    for counts, a, place, label in zip(brute.counts, brute.query, brute.place, brute.label, strict=True):
        allowed = [b for b in range(brute.L) if b not in one["lists"][a][: place - 1]]
        z = V @ (counts * (W[:, a] - W[allowed, a].max()).exp())
        found += [float(z[label] - z[k]) for k in range(brute.L) if k != label]
    return min(found)


def descend(stage, folder, tasks, **changed):
    own, solve = ({k: changed.get(k, v) for k, v in section.items()} for section in (PARAMS, SOLVE))
    params = dict(zip(SECTIONS, (own, CONTROL, solve), strict=True))
    stage("decision_lists.descend", params, *SECTIONS, write_tasks(folder / "tasks", *tasks), folder / "tables")


@pytest.fixture
def tables(stage, tmp_path):
    """Both tables, beside nothing that was there before."""
    write_tasks(tmp_path / "tables" / "old.parquet", ONE)
    descend(stage, tmp_path, (*OTHERS, *TASKS))
    assert files(tmp_path / "tables") == ["alone.parquet", "both.parquet", "controls.parquet"]
    assert files(tmp_path) == ["params.yaml", *(f"tables/{name}" for name in files(tmp_path / "tables")), "tasks"]
    return [pd.read_parquet(tmp_path / "tables" / f"{name}.parquet") for name in ("alone", "both")]


def test_every_descent_is_that_of_autograd_and_stands_beside_its_bounds(tables):
    wanted = []
    for one in (TWO, ONE):
        c, found = alone(one, SOLVE)
        L, m = one["n_tokens"], max(len(entries) for entries in one["lists"])
        row = {"task": one["name"], "law": one["law"], "scale": c, "step_size": found.eta}
        row |= {"n_steps": len(found.path) - 1, "bound": 2 * 4 * m / (9 * math.log(L)) / found.eta}
        row |= {"margin": order_margin(one, found.path[-1][0]), "failures": found.failures()}
        wanted.append(row | {"curvature_growth": found.largest / found.initial})
    pd.testing.assert_frame_equal(tables[0], pd.DataFrame(wanted), rtol=1e-7, atol=0)
    wanted = [row_of_both(one, noise) for one in TASKS for noise in PARAMS["noise"]]
    found = tables[1]
    residual = found.pop("residual")
    assert ((residual >= 0) & (residual < 1e-12)).all()
    pd.testing.assert_frame_equal(found, pd.DataFrame(wanted), rtol=1e-6, atol=1e-10)
    assert {row["failures"] for row in wanted} == {0, 1}
    assert {row["preconditions"] for row in wanted} == {False, True}


def row_of_both(one, noise):
    c, epsilon, found = both(one, noise, PARAMS | SOLVE)
    brute, n, m = found.brute, one["seq_len"], max(len(entries) for entries in one["lists"])
    (W_0, V_0), (W, V) = found.path[0], found.path[-1]
    L_0 = float(brute.loss(W_0, V_0))
    A = L_0 - 6 * epsilon / n
    row = {"task": one["name"], "law": one["law"], "noise": noise, "n_tokens": one["n_tokens"], "seq_len": n}
    row |= {"length": m, "preconditions": A > 0 and 4 * m * L_0 / epsilon < A**2, "scale": c, "L_0": L_0}
    row |= {"epsilon": epsilon, "step_size": found.eta, "n_steps": len(found.path) - 1}
    row |= {"earliest": 2 * m * L_0 / A**2 / found.eta, "latest": epsilon / 2 / found.eta}
    row |= {"margin": least_margin(one, W, V), "failures": found.failures()}
    row |= {"curvature_growth": found.largest / found.initial}
    deviations = [float((V - c * brute.P).abs().max()) for _, V in found.path]
    row |= {"start_deviation": deviations[0], "deviation": max(deviations), "V_moved": float((V - V_0).abs().max())}
    return row | {"largest_attention": max(n * float(brute.attention(W).max()) for W, _ in found.path)}


def test_a_task_that_is_not_there_is_refused(stage, tmp_path):
    said = r"decision_lists\.descend\.attention_alone: wanted tasks of .*tasks, got 'none'"
    with pytest.raises(InputError, match=said):
        descend(stage, tmp_path, TASKS, attention_alone=["one", "none"])
    assert files(tmp_path) == ["params.yaml", "tasks"]


def test_a_step_size_that_never_fits_its_path_is_an_error(stage, tmp_path):
    assert not alone(TWO, SOLVE | {"max_repeats": 1})[1].fits()
    for n, fits in [(1, False), (15, True)]:
        with nullcontext() if fits else pytest.raises(ArithmeticError, match=f"got none in {n} descents"):
            descend(stage, tmp_path, [TWO | {"use": "theorem"}], attention_alone=["two"], max_repeats=n)
