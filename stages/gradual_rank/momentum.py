"""Descend with momentum, Adam at several ε, and through a warm-up, until each head first rises."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd

from lib.files.params import Interval, Name, Positive, Seeds, Steps, read_cases, read_params
from lib.gradual_rank.first_rises import Momentum, Saddle, until_risen
from lib.gradual_rank.full_heads import FullSizes, SharedTokensHead
from lib.gradual_rank.full_trainings import Tokens
from lib.gradual_rank.optimizers import Adam
from lib.gradual_rank.step_counts import evenly
from lib.gradual_rank.tables.momentum import FOLDER
from lib.gradual_rank.tasks import Samples
from lib.gradual_rank.waits import warmed_up
from lib.training.devices import use_threads
from lib.work.cells import Job, Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined

N_LOOKS = 121  # points of a course that are kept
Memory = Annotated[float, Interval("[0, 1)")]


@dataclass(frozen=True)
class Case:
    """A line of the table: an optimiser, its rates, and where it starts."""

    name: Name
    rule: Literal["sgd", "nesterov", "adam"]
    learning_rate: Positive
    beta: Memory
    beta_2: Memory
    eps: Annotated[float, Interval("[0, 1]")]
    warmup: Annotated[int, Interval("[0, 1e6]")]
    log10_init_scales: tuple[Annotated[float, Interval("[-100, 0)")], ...]

    def __post_init__(self) -> None:
        if self.rule == "adam" and not self.eps > 0:
            raise ValueError(f"eps: wanted one above 0 for Adam, got {self.eps:g}")

    def optimizer(self) -> Momentum | Adam:
        """The rule of one descent."""
        if self.rule == "adam":
            return Adam(self.beta, self.beta_2, self.eps)
        return Momentum(self.beta, nesterov=self.rule == "nesterov")


@dataclass(frozen=True)
class Waits(Seeds):
    """The heads, and the most steps that a descent may take."""

    n_samples: Samples
    n_steps: Steps


def main(section: str, head: str, cases: Path, followed: OutFolder) -> None:
    """Write `rises` and `courses`."""
    use_threads(1)
    params = read_params(section, Waits)
    sizes = read_params(head, FullSizes, part=True)
    jobs: list[Job] = [(follow, case, params, sizes) for case in read_cases(cases, Case)]
    found = spread_cells({"": jobs}, label="gradual_rank.momentum", unit="case")[""]
    write_joined(FOLDER, found, followed)


def follow(case: Case, params: Waits, sizes: FullSizes) -> Tables:
    """The heads of all seeds under one optimiser, from each of its scales."""
    tokens = Tokens(params.seeds, sizes.seq_len, sizes.d_model)
    X, Y = tokens.taught("tokens", params.n_samples, [sizes.d_model])

    def heads(places: np.ndarray) -> SharedTokensHead:
        return SharedTokensHead(X[places], Y[places])

    saddle = Saddle.of(heads(np.arange(params.n_seeds)), params.n_seeds, sizes.d_model)
    start = tokens.factors("full start")
    rates = warmed_up(case.learning_rate, case.warmup, params.n_steps)
    settings = asdict(case)
    scales = settings.pop("log10_init_scales")
    settings["case"] = settings.pop("name")
    rises: list[pd.DataFrame] = []
    courses: list[pd.DataFrame] = []
    for scale in sorted(scales, reverse=True):
        rule = case.optimizer()
        descent = until_risen(heads, saddle, 10.0**scale * start, rule, rates, sizes.threshold)
        steps = descent.rises(sizes.threshold)
        growth, growth_2 = descent.growths(steps).T
        columns = {
            "seed": params.seeds,
            "log10_init_scale": scale,
            "sigma": saddle.sigma[:, 0].numpy(),
            "sigma_2": saddle.sigma[:, 1].numpy(),
            "joint": saddle.joint(start),
            "rise": steps,
            "growth": growth,
            "growth_2": growth_2,
            "second": descent.seconds(steps),
        }
        rises.append(pd.DataFrame(columns).assign(**settings))
        last = min(steps[0], len(descent.sigma) - 1)  # a head may have been left after its rise
        looks = evenly(N_LOOKS, math.ceil(last))
        course = pd.DataFrame({"step": looks, "value": descent.sigma[looks, 0, 0]})
        own = {"case": case.name, "seed": params.seeds[0], "log10_init_scale": scale}
        courses.append(course.assign(**own))
    return {"rises": pd.concat(rises), "courses": pd.concat(courses)}


if __name__ == "__main__":
    run(main)
