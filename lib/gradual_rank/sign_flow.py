r"""Sign descent on a diagonal network from an infinitesimal start, event by event.

It is the counterpart of Algorithm 1.

The flow is $\dot u = \mathrm{sign}(v g)$, $\dot v = \mathrm{sign}(u g)$ with $g = -\partial
L/\partial p$, p = u ⊙ v. It keeps ||u| - |v||, which is zero in the limit: then $p = q |q|$ with
the signed root q, and

$$\dot q_i = \mathrm{sign}\, g_i(q |q|).$$

All coordinates leave zero at once along a ray, q = s τ. Where g_i comes to 0 its two sides may push
towards each other: then q_i slides along g_i = 0, with a velocity $e_i \in [-1, 1]$ that keeps it
there (Filippov), and it is free again where |e_i| comes to 1. Otherwise it turns. No init scale
appears in any of this.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.integrate import RK23
from scipy.optimize import brentq

from lib.training.stiff_flow import Loss as Differentiable

Vector = Float[np.ndarray, " p"]
Mask = Bool[np.ndarray, " p"]
Times = Float[np.ndarray, " time"]
Course = Float[np.ndarray, "time p"]
Path = Callable[[float], Vector]
# until this time all coordinates are on the first ray; what has no gradient at 0 has one there
RAY = 1e-4
# from this time on a path with a finite start is compared with the ray; the start still shows there
SEEN = 0.01
N_LOOKS = 200  # at so many times along the ray we look for a g that changes its sign
LONGEST = 0.02  # the solver's longest step: a coordinate seldom has two events in one


@runtime_checkable
class Loss(Differentiable, Protocol):
    """A loss of products with what is needed here: their number, g, and the columns of the Hessian
    of L.
    """

    size: int


class Event(NamedTuple):
    """What happens to a coordinate at a time.

    Where g_i comes to 0 it `slides` or `turns`, it `leaves` when it is free again, and it `passes`
    where p_i passes 0.
    """

    time: float
    coordinate: int
    kind: Literal["slides", "turns", "leaves", "passes"]


class Piece(NamedTuple):
    """The flow up to a time: q there, and the events since the last piece."""

    time: float
    q: Vector
    events: list[Event]

    @property
    def p(self) -> Vector:
        """The products."""
        return self.q * np.abs(self.q)


def first_ray(loss: Loss) -> Vector:
    """The signs with which all coordinates leave zero.

    A coordinate with a gradient at 0 follows its sign. The others follow the gradient that these
    coordinates make.
    """
    g = _gradient(loss, np.zeros(loss.size))
    s = np.where(np.abs(g) > 1e-9 * np.abs(g).max(), np.sign(g), 0.0)
    return np.where(s != 0, s, np.sign(_gradient(loss, RAY * s)))


def first_change(loss: Loss, end: float) -> tuple[float, int]:
    """When g first changes its sign on the first ray, and in which coordinate.

    They are infinity and -1 if it does not until the end.
    """
    s = first_ray(loss)
    times = np.linspace(RAY, end, N_LOOKS)
    before = RAY
    for time in times[1:]:
        changed = np.flatnonzero(s * _gradient(loss, time * s) < 0)
        if len(changed):
            roots = [
                brentq(lambda t, i=i: float(s[i] * _gradient(loss, t * s)[i]), before, float(time))
                for i in changed
            ]
            first = int(np.argmin(roots))
            return float(roots[first]), int(changed[first])
        before = float(time)
    return np.inf, -1


def changes_of_sign(times: Times, values: Course) -> Vector:
    """When each value first falls from positive to negative; infinite if it never does.

    Between two times a value is taken as a straight line.
    """
    falls = (values[:-1] > 0) & (values[1:] < 0)
    k = falls.argmax(0)
    each = np.arange(values.shape[1])
    before = values[k, each]
    after = values[k + 1, each]
    with np.errstate(divide="ignore", invalid="ignore"):  # for values that never fall
        found = times[k] + before / (before - after) * (times[k + 1] - times[k])
    return np.where(falls.any(0), found, np.inf)


def ray_error(times: Times, products: Course, until: float) -> float:
    r"""The largest $|\sqrt{|p_i|} / \tau - 1|$ over i and `SEEN` ≤ τ < `until`.

    It is zero on the first ray itself, and NaN if there is no such τ.
    """
    on_ray = (times >= SEEN) & (times < until)
    if not on_ray.any():
        return math.nan
    return float(np.abs(np.sqrt(np.abs(products[on_ray])) / times[on_ray, None] - 1).max())


def against_ray(loss: Loss, end: float, times: Times, p: Course, g: Course) -> dict[str, Any]:
    """The first change of sign by the ray and in a descent, and how far the descent is from the
    ray.

    The descent has the products p and the negative gradients g at the `times`.
    """
    predicted, coordinate = first_change(loss, end)
    changes = changes_of_sign(times, first_ray(loss) * g)
    first = int(np.argmin(changes))
    measured = float(changes[first])
    return {
        "predicted": predicted,
        "predicted_coordinate": coordinate,
        "measured": measured,
        "measured_coordinate": first,
        "ray_error": ray_error(times, p, measured),
    }


def sign_flow(loss: Loss, end: float, *, rtol: float, atol: float) -> Iterator[Piece]:
    """Yield the flow from zero to the end, piece by piece.

    A piece ends at an event, or where the solver's step does.
    """
    s = first_ray(loss)
    q = RAY * s
    time = RAY
    sliding = np.zeros(loss.size, bool)
    yield Piece(time, q, [])
    while time < end:

        def velocity(_: float, q: Vector, s: Vector = s, sliding: Mask = sliding) -> Vector:
            return _velocity(loss, q, s, sliding)

        solver = RK23(velocity, time, q, end, rtol=rtol, atol=atol, max_step=LONGEST)
        while solver.status == "running":
            solver.step()
            path = solver.dense_output()
            last = np.where(sliding, 1 - np.abs(solver.f), s * _gradient(loss, solver.y))
            found = _first_event(loss, path, solver.t_old, solver.t, s, sliding, last)
            passed = _passed(path, solver.t_old, found[0] if found else solver.t)
            if found is not None:
                break
            time = solver.t
            q = solver.y.copy()
            yield Piece(time, q, passed)
        else:
            return
        time, i = found
        q = path(time)
        s, sliding, kind = _after(loss, q, s, sliding, i)
        yield Piece(time, q, [*passed, Event(time, i, kind)])
        if sliding.all():  # g = 0: a minimum
            yield Piece(end, q, [])
            return


def _gradient(loss: Loss, q: Vector) -> Vector:
    return loss.gradient(torch.from_numpy(q * np.abs(q))).numpy()


def _velocity(loss: Loss, q: Vector, s: Vector, sliding: Mask) -> Vector:
    """The velocity: ±1 where a coordinate is free, and what keeps g_i = 0 where it slides."""
    if not sliding.any():
        return s
    of = np.flatnonzero(sliding)
    J = loss.hessian(torch.from_numpy(q * np.abs(q)), torch.from_numpy(of)).numpy().T * (
        2 * np.abs(q)
    )
    free = np.where(sliding, 0.0, s)
    found = free.copy()
    found[of] = np.linalg.lstsq(J[:, of], -J @ free, rcond=None)[0]
    return found


def _first_event(
    loss: Loss, path: Path, begin: float, end: float, s: Vector, sliding: Mask, last: Vector
) -> tuple[float, int] | None:
    """The first event in a step: its time and its coordinate; None if there is none.

    The g of a free coordinate comes to 0, or a sliding one comes to full speed. `last` is how far
    each is from that at the end of the step, where the solver knows the speeds.
    """

    def margin(time: float, i: int) -> float:
        q = path(time)
        return float(
            1 - np.abs(_velocity(loss, q, s, sliding)[i])
            if sliding[i]
            else s[i] * _gradient(loss, q)[i]
        )

    found = []
    for i in np.flatnonzero(last < 0).tolist():
        if margin(begin, i) <= 0:  # it has just become so: the event is at the beginning
            found.append((begin, i))
        else:
            found.append((float(brentq(margin, begin, end, (i,), xtol=1e-12)), i))
    return min(found) if found else None


def _passed(path: Path, begin: float, end: float) -> list[Event]:
    """The events in a part of a step in which a product changes its sign."""
    before = path(begin)
    after = path(end)
    found = []
    for i in np.flatnonzero(before * after < 0):
        time = brentq(lambda t, i=i: float(path(t)[i]), begin, end)
        found.append(Event(float(time), int(i), "passes"))
    return sorted(found)


def _after(
    loss: Loss, q: Vector, s: Vector, sliding: Mask, i: int
) -> tuple[Vector, Mask, Literal["slides", "turns", "leaves"]]:
    """The signs and the sliding coordinates after the event of coordinate i, and its kind.

    A free coordinate slides where it can and turns otherwise; a sliding one leaves.
    """
    s = s.copy()
    sliding = sliding.copy()
    if sliding[i]:
        s[i] = np.sign(_velocity(loss, q, s, sliding)[i])
        sliding[i] = False
        return s, sliding, "leaves"
    sliding[i] = True
    if abs(_velocity(loss, q, s, sliding)[i]) < 1:
        return s, sliding, "slides"
    sliding[i] = False
    s[i] = -s[i]
    return s, sliding, "turns"
