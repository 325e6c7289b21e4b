"""The flow at the theorem's scale: when all is right, and when something is wrong again."""

import math
from dataclasses import dataclass, field
from typing import Any

from lib.decision_lists.bounds import flow_bound_of
from lib.decision_lists.flow import ScaledFlow
from lib.decision_lists.lists import Task
from lib.training.stiff_flow import first_crossing

Row = dict[str, Any]


def followed_to_bound(
    task: Task, share: float, rtol: float, rtol_to_bound: float
) -> tuple[Row, list[dict[str, float]]]:
    r"""What a flow does at the theorem's scale with $\delta$ = `share` · $P_{\min} / n$; its path.

    It ends when all is right, or at the bound where the task is for that (`use`): from when all is
    right on, at the tolerance `rtol_to_bound`.
    """
    bound = flow_bound_of(task, share)
    flow = ScaledFlow(task, bound.scale)
    followed = Followed(flow)
    end = bound.time * bound.scale**2
    followed.follow(end, rtol, until_right=True)
    at_bound = math.nan
    if task.use == "bound":
        if followed.end < end:
            followed.follow(end, rtol_to_bound, until_right=False)
        at_bound = float(followed.right)
    row = {
        "task": task.name,
        "n_tokens": task.n_tokens,
        "seq_len": task.seq_len,
        "length": task.longest,
        "law": task.law,
        "gamma": bound.gamma,
        "scale": bound.scale,
        "bound": bound.time,
        "at_once": flow.at_once(),
        "first_time": followed.first,
        "perfect_at_bound": at_bound,
        "lost": followed.n_lost,
        "lost_time": followed.lost,
        "regained_time": followed.regained,
        "largest_attention": followed.largest_attention,
    }
    return row, followed.path


@dataclass
class Followed:
    """The notes of a flow on its way: its path, and when all is right, lost and regained."""

    flow: ScaledFlow
    path: list[dict[str, float]] = field(default_factory=list)
    first: float = math.nan  # the time at which all is right for the first time
    lost: float = math.nan  # the last time at which something becomes wrong again
    regained: float = math.nan  # the last time at which all is right again
    n_lost: int = 0
    largest_attention: float = 1.0

    def __post_init__(self) -> None:
        self.state = self.flow.start
        self.end = 0.0
        self.path.append({"time": 0.0, **self.flow.measured(self.state)})

    @property
    def right(self) -> bool:
        """Whether all is right where the flow is now."""
        return self.path[-1]["margin"] > 0

    def follow(self, end: float, rtol: float, *, until_right: bool) -> None:
        """Go on from where the flow is, to the rescaled time `end` or until all is right."""
        flow = self.flow
        c2 = self.flow.scale**2
        for step in flow.steps(end, rtol, state=self.state, begin=self.end):
            was = self.right
            self.state = step.state
            self.end = step.time
            self.path.append({"time": step.time / c2, **flow.measured(step.state)})
            if self.right != was:
                sign = 1 if self.right else -1
                self._crossed(first_crossing(step, lambda x, sign=sign: sign * flow.margin(x)) / c2)
            if until_right:
                attention = flow.largest_attention(step.state)
                self.largest_attention = max(self.largest_attention, attention)
                if self.right:
                    break

    def _crossed(self, time: float) -> None:
        if not self.right:
            self.lost = time
            self.n_lost += 1
        elif math.isnan(self.first):
            self.first = time
        else:
            self.regained = time
