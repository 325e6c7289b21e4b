r"""Gradient flow of networks with diagonal weights, exactly reduced to one coordinate a pair.

For a loss of the products $p = u \odot v$ with $g(p) = -\partial L / \partial p$, gradient flow
(equations 3 and 4 of Boix-Adserà et al. 2023) is $\dot u = v \odot g$, $\dot v = u \odot g$. Then
$w_\pm = |u \pm v|$ obey $\dot w_\pm = \pm g w_\pm$, the signs of u ± v and $c = w_+ w_- = |u^2 -
v^2|$ (Lemma 4.1) stay, and with $y = \frac12 \log(w_+ / w_-)$

    dy/dt = g(p),   p = (c/2) sinh 2y,   dp/dt = sqrt(c² + 4p²) g(p).

Half the equations are left, and the scale of the start stands in log c alone: 1e-1000 is no harder
than 1e-8. Times are those of the flow (step × learning rate); arrays are of float64.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lib.files.params import Count, Interval, Positive
from lib.training.stiff_flow import (
    NEAR,
    Loss,
    Method,
    StalledError,
    Step,
    Vector,
    along,
    crossing_of,
    gradient,
    stiff_flow,
)

Tolerance = Annotated[float, Interval("(0, 0.1]")]
LogScale = Annotated[float, Interval("[-1000, 0)")]
# what tells the cells of a table of flows apart
CAP = 1e6  # |p| is cut here in trial steps of the implicit solver, which would overflow
# A smaller |p| is zero: beside what a gradient has at zero it is nothing, even squared. Its square
# would be a subnormal number, with which a processor takes many times as long.
LEAST = 1e-140


class Shared(Loss, Protocol):
    """A loss that has a cheaper one of nearly the same curvature."""

    def on_share(self, share: float) -> Loss:
        """The loss on that share of the samples."""
        ...


@dataclass(frozen=True)
class Solver:
    """How flows are followed and stages are predicted, and how accurately.

    `threshold` is the |p| that counts as learned, `kick` that at which a new coordinate starts,
    `stationary` the share of g at which a stage is at rest, `curvature_share` that of the samples
    from which the implicit solver builds its matrix. A flow ends at the time of Algorithm 1's last
    stage, in log(1 / init_scale) plus the margin.
    """

    threshold: Positive
    margin: Positive
    kick: Annotated[float, Interval("(1e-8, 1e-2]")]
    stationary: Tolerance
    max_events: Count
    rtol: Tolerance
    atol: Tolerance
    curvature_share: Annotated[float, Interval("(0, 1]")]

    def end(self, last: float, log_scale: float) -> float:
        """When a flow ends, from the time of the last stage."""
        return last * (-log_scale + self.margin)

    def on(self, loss: Shared) -> dict[str, Any]:
        """How accurately `log_flow`, `staged_flow` and `greedy` follow a loss."""
        curvature = loss.on_share(self.curvature_share)
        return {"rtol": self.rtol, "atol": self.atol, "curvature": curvature}

    def predicted(self, loss: Shared, start: "LogCoordinates", end: float) -> "Iterator[Event]":
        """The events of `staged_flow`."""
        return staged_flow(
            loss,
            start,
            end,
            threshold=self.threshold,
            stationary=self.stationary,
            max_events=self.max_events,
            **self.on(loss),
        )


@dataclass(frozen=True)
class LogCoordinates:
    r"""A point (u, v) up to conserved signs.

    $y = \frac12 \log(|u+v| / |u-v|)$ and $\log c = \log|u^2 - v^2|$.
    """

    y: Vector
    log_c: Vector

    @classmethod
    def of(cls, u: Vector, v: Vector, log_scale: float = 0.0) -> "LogCoordinates":
        """The coordinates of e^log_scale (u, v); raises `ValueError` where |u| = |v|."""
        plus = np.abs(u + v)
        minus = np.abs(u - v)
        if not (np.all(plus > 0) and np.all(minus > 0)):
            raise ValueError(
                "u, v: wanted |u| and |v| to differ in every coordinate, got equal ones"
            )
        return cls((np.log(plus) - np.log(minus)) / 2, 2 * log_scale + np.log(plus) + np.log(minus))

    def products(self, y: Vector | None = None) -> Vector:
        r"""$p = (c/2) \sinh 2y$, here or at another y of the same c; cut at `CAP` in size.

        It is zero below `LEAST`.
        """
        y = self.y if y is None else y
        away = np.abs(y)
        exponent = np.minimum(self.log_c + 2 * away, np.log(4 * CAP))
        size = np.exp(exponent) * -np.expm1(-4 * away) / 4
        return np.where(size < LEAST, 0.0, np.copysign(size, y))

    def speed(self, p: Vector) -> Vector:
        r"""$dp/dy = \sqrt{c^2 + 4 p^2}$."""
        return np.hypot(np.exp(np.minimum(self.log_c, np.log(CAP))), 2 * p)

    def level(self, q: float | Vector) -> Vector:
        r"""The |y| at which |p| = q: $Y(q) = \frac12 \operatorname{asinh}(2 q / c)$.

        q is one for all, or one a coordinate. By logarithms where c is tiny.
        """
        log_ratio = np.log(2 * q) - self.log_c
        large = log_ratio > 300
        return (
            np.where(
                large, log_ratio + np.log(2), np.arcsinh(np.exp(np.where(large, 0.0, log_ratio)))
            )
            / 2
        )

    def shares(self, which: Int[np.ndarray, " k"], sign: int) -> Float[np.ndarray, " k"]:
        r"""The shares of coordinates with one g in what they grow to together.

        They hold where p is large beside c. The y of all grow by the same amount G, and $p_i
        \approx s\, c_i e^{2 s (y_i + s G)} / 4$: the ratios are those of $w_{\pm,i}^2 = c_i e^{\pm
        2 y_i}$ here, whatever the scale of the start.
        """
        exponent = self.log_c[which] + 2 * sign * self.y[which]
        share = np.exp(exponent - exponent.max())
        return share / share.sum()

    def weights(self, y: Vector, plus: Vector, minus: Vector) -> tuple[Vector, Vector]:
        """u and v at y, for the conserved signs of u + v and u - v; zero where they underflow."""
        w_plus = plus * np.exp(self.log_c / 2 + y)
        w_minus = minus * np.exp(self.log_c / 2 - y)
        return (w_plus + w_minus) / 2, (w_plus - w_minus) / 2


def log_flow(
    loss: Loss,
    start: LogCoordinates,
    end: float,
    *,
    rtol: float,
    atol: float,
    curvature: Loss | None = None,
    active: Bool[np.ndarray, " p"] | None = None,
    begin: float = 0.0,
    method: Method = "LSODA",
) -> Iterator[Step]:
    """Yield the flow from `begin` to `end`, a step of `stiff_flow` at a time.

    Its Newton matrix, where it is stiff, is built from the Hessian of `curvature`, a cheaper loss
    where there is one (a share of the samples), in the coordinates whose products are not
    negligible: it changes the steps, not the solution. With `active`, the products of the other
    coordinates are held at zero. Raises `StalledError`.
    """
    bent = loss if curvature is None else curvature
    n = len(start.y)
    mask = np.ones(n, bool) if active is None else active

    def velocity(y: Vector) -> Vector:
        return gradient(loss, np.where(mask, start.products(y), 0.0))

    reached = [start.y]

    def jacobian(_: Vector) -> Float[np.ndarray, "p p"]:
        # Where the solver stands, not where it extrapolates to: there p may be large beyond all
        # measure, and Newton's corrections so small that they pass for converged.
        p = np.where(mask, start.products(reached[0]), 0.0)
        speed = np.where(mask, start.speed(p), 0.0)
        found = np.zeros((n, n))
        support = np.flatnonzero(speed > 1e-6 * max(1e-6, speed.max(initial=0.0)))
        if len(support):
            H = bent.hessian(torch.from_numpy(p), torch.from_numpy(support)).numpy()
            found[:, support] = -H * speed[support]
        return found

    for step in stiff_flow(
        velocity, jacobian, start.y, end, rtol=rtol, atol=atol, begin=begin, method=method
    ):
        if not np.all(np.abs(start.products(step.state)[mask]) < CAP / 2):
            raise StalledError(
                f"time {step.time:.6g}: wanted products below {CAP / 2:g}, got larger ones"
            )
        yield step
        reached[0] = step.state


def path_to_rest(
    flow: Iterable[Step], start: LogCoordinates, value: Callable[[Tensor], Tensor], share: float
) -> tuple[Float[np.ndarray, " time"], Float[np.ndarray, "time p"]]:
    """Four times of every step, and the products there, until the loss has fallen far enough.

    Far enough is at most `share` of the loss at zero. `value` takes products [1, p].
    """

    def at(p: Vector) -> float:
        return float(value(torch.from_numpy(p)[None]))

    left = share * at(np.zeros_like(start.y))
    steps = list(takewhile(lambda step: at(start.products(step.origin)) > left, flow))
    times = np.concatenate([np.linspace(step.before, step.time, 5)[1:] for step in steps])
    return times, np.stack([start.products(y) for y in along(steps, times)])


@dataclass(frozen=True)
class Event:
    """A coordinate enters (`rises`) or leaves the support."""

    time: float
    coordinate: int
    sign: int
    rises: bool


class Crossings:
    """An observer of a flow, asked at each step in turn: a coordinate rises to the threshold or
    falls to half of it.

    One level to rise and a lower one to fall, so that what lingers at the threshold is counted
    once. A coordinate beyond the threshold from the start rises at the beginning of the flow.
    """

    def __init__(self, start: LogCoordinates, threshold: float):
        self._up = start.level(threshold)
        self._down = start.level(threshold / 2)
        self._active = np.zeros(len(self._up), bool)

    def seen(self, step: Step) -> list[Event]:
        """The events in the step, in order."""
        begun = np.flatnonzero(~self._active & (np.abs(step.origin) >= self._up))
        events = [Event(step.before, int(i), int(np.sign(step.origin[i])), True) for i in begun]
        self._active[begun] = True
        events += _events(step, self._active, self._up, self._down)
        for event in events:
            self._active[event.coordinate] = event.rises
        return events


class Samples:
    """An observer of a flow, asked at each step in turn: the states at rising times."""

    def __init__(self, start: Vector, times: Sequence[float]):
        self._start = start
        self._times = times
        self._next = 0

    def seen(self, step: Step) -> list[tuple[int, Vector]]:
        """The states at those of the times that lie in the step, each with the number of its time.

        At time 0 it is the start.
        """
        found = []
        while self._next < len(self._times) and self._times[self._next] <= step.time:
            time = self._times[self._next]
            found.append((self._next, self._start if time == 0 else step.path(time)))
            self._next += 1
        return found


def with_events(
    flow: Iterable[Step], start: LogCoordinates, threshold: float
) -> Iterator[tuple[Step, list[Event]]]:
    """Yield each step of a flow with the events in it, as `Crossings` sees them."""
    crossings = Crossings(start, threshold)
    for step in flow:
        yield step, crossings.seen(step)


def _events(step: Step, active: Bool[np.ndarray, " p"], up: Vector, down: Vector) -> list[Event]:
    """The events of a step, in order; a product that changes its sign falls, and may rise again."""
    after = np.abs(step.state)
    turned = step.origin * step.state < 0
    falling = active & ((after <= down) | turned)
    rising = (~active | (falling & turned)) & (after >= up)
    found = []
    for i in np.flatnonzero(falling).tolist():
        sign = int(np.sign(step.origin[i]))
        found.append(Event(crossing_of(step, i, sign * float(down[i])), i, sign, False))
    for i in np.flatnonzero(rising).tolist():
        sign = int(np.sign(step.state[i]))
        found.append(Event(crossing_of(step, i, sign * float(up[i])), i, sign, True))
    return sorted(found, key=lambda event: (event.time, event.coordinate))


def staged_flow(
    loss: Loss,
    start: LogCoordinates,
    end: float,
    *,
    threshold: float,
    stationary: float,
    rtol: float,
    atol: float,
    max_events: int,
    curvature: Loss | None = None,
) -> Iterator[Event]:
    r"""Algorithm 1 at a finite scale: predict every activation from the initial point alone.

    A coordinate is active while $|p_i| \ge$ `threshold`.
    A coordinate off the support has p = 0 in the gradient, and only its y moves. It joins the
    support where |y| comes to Y = `start.level(threshold)`. On the support the flow runs, with the
    real c, until some coordinate crosses a level or g on the support is stationary (a share of the
    smaller of max|g(0)| and the g of the newest). From there g is constant, and the next coordinate
    joins after $\min_j (\mathrm{sign}(g_j) Y_j - y_j) / g_j$. Events are counted as in the flow: a
    product rises to the threshold, and falls to half of it; one that is beyond the threshold at the
    start has risen at time 0. Ends at `end`, where nothing moves any more, or after `max_events`
    (`StalledError`).

    Two departures keep what rests below the threshold from joining and leaving without end. What
    has joined stays in the gradient, as in the flow, however small its product becomes. And where
    g, with the newcomer at the threshold, pulls it back, the flow would not have lifted it there:
    it joins without an event, and rises when the flow on the support lifts it to the threshold.

    Unlike the greedy limit it counts the time inside of stages, and uses the c of the start: the
    prediction holds at scales at which networks are trained. Departure: on the support $p =
    (c/2)\sinh 2y$, not $\pm e^x$ (c = 0), so that it is right, too, where c is not small; and no
    Newton steps at the end of a stage, as rest is a share of the smallest g.
    """
    up = start.level(threshold)
    down = start.level(threshold / 2)
    y = start.y.copy()
    time = 0.0
    active = np.abs(y) >= up
    risen = active.copy()
    yield from (Event(0.0, int(i), int(np.sign(y[i])), True) for i in np.flatnonzero(risen))
    first = float(np.max(np.abs(gradient(loss, np.zeros_like(y)))))
    newest = first
    for _ in range(max_events):
        found = None
        if active.any():
            if time >= end:
                return
            here = LogCoordinates(y, start.log_c)
            tolerance = stationary * min(first, newest)
            for step in log_flow(
                loss,
                here,
                end,
                rtol=rtol,
                atol=atol,
                curvature=curvature,
                active=active,
                begin=time,
                method="BDF",
            ):
                found = next(iter(_events(step, risen, up, down)), None)
                time = step.time if found is None else found.time
                y = step.state if found is None else step.path(time)
                if found is not None:
                    break
                if np.max(np.abs(step.mean_velocity[active])) <= NEAR * tolerance:
                    g = gradient(loss, np.where(active, start.products(y), 0.0))
                    if np.max(np.abs(g[active])) <= tolerance:
                        break
            else:
                return
        if found is None:
            g = gradient(loss, np.where(active, start.products(y), 0.0))
            i, wait = _next_to_rise(g, y, active, up)
            if not time + wait < end:
                return
            y[~active] += g[~active] * wait
            time += wait
            found = Event(time, i, int(np.sign(g[i])), True)
        i = found.coordinate
        y[i] = found.sign * float((up if found.rises else down)[i])
        if not active[i]:
            active[i] = True
            pull = float(gradient(loss, np.where(active, start.products(y), 0.0))[i])
            newest = abs(pull) or first
            if found.sign * pull < 0:
                continue
        risen[i] = found.rises
        yield found
    raise StalledError(f"time {time:.6g}: wanted at most {max_events} events, got more")


def _next_to_rise(
    g: np.ndarray, y: np.ndarray, active: np.ndarray, up: np.ndarray
) -> tuple[int, float]:
    """The coordinate off the support that reaches its level first, and after how long."""
    wait = np.full_like(y, np.inf)
    moves = ~active & (g != 0)
    wait[moves] = (np.sign(g[moves]) * up[moves] - y[moves]) / g[moves]
    i = int(np.argmin(wait))
    return i, float(wait[i])
