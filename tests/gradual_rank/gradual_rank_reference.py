"""What the tests of gradual_rank's stages compare with: a head, its flow and its Algorithm 1, by
scipy.

Flows are followed by the integral of g: w± = |u ± v| have the logarithmic velocities ±g, and u v =
(w+² - w-²) / 4.
"""

import math

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file
from scipy.integrate import solve_ivp
from scipy.optimize import root

SOLVER = {
    "threshold": 0.02,
    "margin": 3,
    "kick": 1e-4,
    "stationary": 1e-5,
    "max_events": 20,
    "rtol": 1e-5,
    "atol": 1e-5,
    "curvature_share": 0.7,
}
TIGHT = {"method": "LSODA", "rtol": 1e-8, "atol": 1e-8}


def draw_toy(path, seeds, sizes, numbers):
    """Write a toy task and return it: for every seed, a head's own data of these sizes, drawn from
    a number.
    """
    draws = [torch.Generator().manual_seed(number) for number in numbers]

    def normal(*shape):
        return torch.stack(
            [torch.randn(*shape, generator=draw, dtype=torch.float64) for draw in draws]
        )

    size = 2 * sizes[-1]
    toy = {
        "seeds": torch.tensor(seeds),
        "X": normal(*sizes),
        "teacher": normal(size) * normal(size),
    }
    toy |= {"u": normal(size), "v": normal(size)}
    Y = torch.stack([head(X, p) for X, p in zip(toy["X"], toy["teacher"], strict=True)])
    toy["Y"] = Y + 0.3 * normal(*sizes)  # no head's
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(toy, path)
    return toy


def write_problems(path, problems):
    """A table of problems, one line each, by their names; what one lacks is an empty cell."""
    columns = ["name", *dict.fromkeys(key for problem in problems.values() for key in problem)]
    rows = [{"name": name, **problem} for name, problem in problems.items()]
    lines = [columns, *([str(row.get(key, "")) for key in columns] for row in rows)]
    path.write_text("\n".join("\t".join(line) for line in lines))
    return path


def compare(found, rows, usual, **near):
    """The table has these rows in this order, of these columns alone: each to its own tolerances,
    or to the usual ones.
    """
    wanted = pd.DataFrame(rows)
    assert set(found) == set(wanted)
    for name in wanted:
        tolerances = usual | near.get(name, {})
        pd.testing.assert_series_equal(
            found[name], wanted[name], check_dtype=False, check_index=False, **tolerances
        )


def head(X, p):
    """The output of a head with diagonal weights, whose products are p, one matrix after the
    other.
    """
    W_KQ, W_VO = (torch.diag(half) for half in p.chunk(2))
    return torch.softmax(X @ W_KQ @ X.mT, -1) @ X @ W_VO


class Head:
    """The mean squared error as a function of the products, above those of a base."""

    def __init__(self, X, Y, base=None):
        self.size = 2 * X.shape[-1]
        self.X, self.Y = X, Y
        self.base = torch.zeros(self.size, dtype=X.dtype) if base is None else base

    def value(self, p):
        return (head(self.X, self.base + p) - self.Y).square().mean()

    def relative(self, p):
        """The loss over that of p = 0."""
        return float(
            self.value(torch.tensor(p)) / self.value(torch.zeros(self.size, dtype=torch.float64))
        )

    def g(self, p):
        """The negative gradient, by hand: autograd takes five times as long on so few numbers."""
        X, Y = self.X.numpy(), self.Y.numpy()
        a, b = (p + self.base.numpy()).reshape(2, -1)
        logits = X * a @ X.swapaxes(1, 2)
        A = np.exp(logits - logits.max(-1, keepdims=True))
        A /= A.sum(-1, keepdims=True)
        Z = A @ X
        of_output = 2 / Y.size * (Z * b - Y)
        of_A = of_output * b @ X.swapaxes(1, 2)
        of_logits = A * (of_A - (A * of_A).sum(-1, keepdims=True))
        return -np.concatenate([(of_logits @ X * X).sum((0, 1)), (of_output * Z).sum((0, 1))])


def head_of(toy, i):
    """The loss of a seed's head."""
    return Head(toy["X"][i], toy["Y"][i])


class Bowl:
    """The loss (p - p*)ᵀ H (p - p*) / 2."""

    def __init__(self, H, minimum):
        self.H, self.minimum, self.size = np.array(H), np.array(minimum), len(minimum)

    def g(self, p):
        return self.H @ (self.minimum - p)


class Start:
    """Where a flow starts: the logarithms of w+ and w-, which move with g and -g."""

    def __init__(self, u, v, log10_init_scale):
        both = np.array([u + v, u - v])
        self.log_w = np.log(np.abs(both)) + log10_init_scale * math.log(10)

    def log_weights(self, G):
        """log w+ and log w- where the integral of g is G."""
        return self.log_w + np.array([G, -G])

    def products(self, G):
        plus, minus = np.exp(2 * self.log_weights(G))
        return (plus - minus) / 4

    def begun(self, threshold):
        """The coordinates that are on from the start, as events (time, coordinate, sign, rises),
        and as a mask.
        """
        p = self.products(np.zeros(self.log_w.shape[1]))
        on = np.abs(p) >= threshold
        return [(0.0, i, int(np.sign(p[i])), True) for i in np.flatnonzero(on).tolist()], on


def start_of(toy, i, log10_init_scale):
    """Where a seed's flow starts from a scale."""
    return Start(toy["u"][i].numpy(), toy["v"][i].numpy(), log10_init_scale)


def flow(loss, start, end, threshold, times=()):
    """The integral of g at the times, and the events up to the end.

    One that is off rises at the threshold, one that is on falls at half of it.
    """
    kinds = [(i, rises) for i in range(loss.size) for rises in (True, False)]
    found = solve_ivp(
        lambda _, G: loss.g(start.products(G)),
        (0, end),
        np.zeros(loss.size),
        t_eval=times,
        events=[crossing(start, *kind, threshold) for kind in kinds],
        **TIGHT,
    )
    moments = [
        (float(time), i, int(np.sign(start.products(G)[i])), rises)
        for (i, rises), times, places in zip(kinds, found.t_events, found.y_events, strict=True)
        for time, G in zip(times, places, strict=True)
    ]
    events, on = start.begun(threshold)
    for event in sorted(moments):
        _, i, _, rises = event
        if rises != on[i]:
            events.append(event)
            on[i] = rises
    return np.transpose(found.y), events


def crossing(start, i, rises, threshold):
    """An event in scipy's sense: a product crosses its level in the direction that counts."""

    def height(_, G):
        return np.abs(start.products(G)[i]) - (threshold if rises else threshold / 2)

    height.direction = 1 if rises else -1
    return height


def staged_events(loss, start, end, threshold):
    """The events of the finite-scale form: what never joined counts as zero in g. No stage is cut
    short.
    """
    time, G = 0.0, np.zeros(loss.size)
    events, on = start.begun(threshold)
    joined = on.copy()
    while True:
        crossings = [crossing(start, i, not on[i], threshold) for i in range(loss.size)]
        for one in crossings:
            one.terminal = True
        found = solve_ivp(
            lambda _, G: loss.g(joined * start.products(G)),
            (time, end),
            G,
            events=crossings,
            **TIGHT,
        )
        if found.status == 0:
            return events
        time, G = float(found.t[-1]), found.y[:, -1]
        i = next(i for i, moments in enumerate(found.t_events) if len(moments))
        p = start.products(G)
        joins = not joined[i]
        joined[i] = True
        if joins and p[i] * loss.g(joined * p)[i] < 0:
            continue
        on[i] = not on[i]
        events.append((time, i, int(np.sign(p[i])), bool(on[i])))


class Halves:
    """Products q₊ - q₋ of a loss, and weight decay as a slope on both."""

    def __init__(self, loss, decay):
        self.loss, self.decay, self.size = loss, decay, 2 * loss.size

    def g(self, q):
        plus, minus = q.reshape(2, -1)
        g = self.loss.g(plus - minus)
        g[np.abs(g) < 1e-12] = 0  # at rest, where the other half would join some day
        return np.concatenate([g, -g]) - self.decay


def algorithm_1(loss, lowest=-1.0):
    """Stage after stage, as dictionaries: a charge that comes to 1, or to the lowest, joins, and
    the flow without scale runs to rest.
    """
    p, charge, time = np.zeros(loss.size), np.zeros(loss.size), 0.0
    joined, sign, dropped = -1, 0, []
    while True:
        g = np.where(p == 0, loss.g(p), 0.0)
        wait = np.array(
            [
                ((1 if s > 0 else lowest) - b) / s if s else math.inf
                for s, b in zip(g, charge, strict=True)
            ]
        )
        first, second = np.sort(wait)[:2]
        gap = second - first if math.isfinite(second) else math.inf
        yield {
            "time": time,
            "next_time": time + first,
            "gap": gap,
            "coordinate": joined,
            "sign": sign,
            "dropped": dropped,
            "p": p,
            "g": loss.g(p),
            "charge": charge.copy(),
        }
        if not math.isfinite(first):
            return
        charge, time = charge + g * first, time + first
        joined = int(np.argmin(wait))
        sign = int(np.sign(g[joined]))
        charge[joined] = sign
        charge[p != 0] = np.sign(p[p != 0])
        before = p + sign * 1e-6 * (np.arange(loss.size) == joined)
        p = rest(loss, before)
        dropped = np.flatnonzero((p == 0) & (before != 0)).tolist()
        charge[p != 0] = np.sign(p[p != 0])


def rest(loss, p):
    """Where the flow of the products that are not zero, d log|p_i| / dt = 2 sign(p_i) g_i, comes to
    rest.
    """
    on, sign = np.flatnonzero(p), np.sign(p[p != 0])

    def whole(q):
        return np.bincount(on, q, len(p))

    found = solve_ivp(
        lambda _, x: 2 * sign * loss.g(whole(sign * np.exp(x)))[on],
        (0, 1e5),
        np.log(np.abs(p[on])),
        **TIGHT,
    )
    q = sign * np.exp(found.y[:, -1])
    on, q = on[np.abs(q) > 1e-8], q[np.abs(q) > 1e-8]
    return whole(root(lambda q: loss.g(whole(q))[on], q, tol=1e-14).x)
