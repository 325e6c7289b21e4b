"""Follow adapters from LoRA's start, B = 0, until they have learned every direction, by the flow
and by Adam, beside what the start alone says.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, get_args

import pandas as pd

from lib.files.files import InputError
from lib.files.params import Interval, Positive, Seeds, read_cases
from lib.gradual_rank.adapted_layers import Adam, factors_of, pull_of_head, pull_of_matrix
from lib.gradual_rank.adapter_start import (
    LEARNED,
    LinearPull,
    expected_at,
    forecasts,
    pace,
    times_in_flow,
)
from lib.gradual_rank.tables.adapter_start import COURSES, FOLDER
from lib.gradual_rank.tasks import Size
from lib.training.devices import use_threads
from lib.work.cells import Job, Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined

Name = Literal["apart", "close", "head", "plus", "scaled", "both", "output", "adam"]
END = 100  # a flow is followed at most so many times as long as to the last forecast
BESIDE = -1.0  # log10 of the scale of A where B alone starts small
ADAM = Adam(rate=1e-3, n_steps=1000)


@dataclass(frozen=True)
class Case(Seeds):
    """A group of adapters: how they are trained and start, the layer, and what they have to learn.

    Without samples the layer is a matrix under the squared distance from its target.
    """

    name: Name
    rule: Literal["flow", "adam"]
    start: Literal["zero", "both", "output"]
    n_samples: Annotated[int, Interval("[0, 1e6]")]
    seq_len: Size
    d_model: Annotated[int, Interval("[2, 1000]")]
    targets: tuple[Positive, ...]
    scaling: Positive
    ranks: tuple[Size, ...]
    ratios: tuple[Positive, ...]
    log10_init_scales: tuple[Annotated[float, Interval("[-100, 2]")], ...]

    def __post_init__(self) -> None:
        n = len(self.targets)
        if not 0 < n <= min(self.d_model, *self.ranks):
            most = min(self.d_model, *self.ranks)
            raise ValueError(f"targets: wanted 1..{most}, the least of d_model and ranks, got {n}")

    @property
    def by_seed(self) -> "list[Case]":
        """The case of every seed alone."""
        return [replace(self, n_seeds=1, first_seed=seed) for seed in self.seeds]


def main(adapters: Path, followed: OutFolder) -> None:
    """Write `learned` and `courses`."""
    use_threads(1)
    cases = read_cases(adapters, Case)
    missing = sorted(set(get_args(Name)) - {case.name for case in cases})
    if missing:
        raise InputError(
            f"{adapters}: wanted a line for each of {get_args(Name)}, got no {missing}"
        )
    jobs: list[Job] = [
        (learn, one, one.first_seed == case.first_seed) for case in cases for one in case.by_seed
    ]
    found = spread_cells({"": jobs}, label="gradual_rank.adapter_start", unit="draw")[""]
    write_joined(FOLDER, found, followed)


def learn(case: Case, drawn: bool) -> Tables:
    """Every adapter of one draw: when it learns what; and the courses, where they are drawn."""
    [seed] = case.seeds
    if case.n_samples:
        pull = pull_of_head(seed, case.n_samples, case.seq_len, case.d_model, case.targets)
    else:
        pull = pull_of_matrix(seed, case.d_model, case.targets)
    tables = [
        adapt(case, pull, rank, ratio, scale, drawn)
        for rank in case.ranks
        for ratio in case.ratios
        for scale in case.log10_init_scales
    ]
    return {name: pd.concat([one[name] for one in tables]) for name in FOLDER}


def adapt(
    case: Case, pull: LinearPull, rank: int, ratio: float, scale: float, drawn: bool
) -> Tables:
    """One adapter: a row for each direction, and for each look at it where it is drawn."""
    [seed] = case.seeds
    n = len(case.targets)
    factors = factors_of(seed, case.d_model, rank, scale, case.start, BESIDE)
    kappa = pace(case.scaling, ratio)
    _, sigma, V = pull.triplets(n)
    target = sigma / pull.curvatures(n)
    said = forecasts(pull, factors[1], n, kappa)
    aims = LEARNED * target
    if case.rule == "adam":
        times, looks, course = ADAM.times(pull, factors, aims, case.scaling)
    else:
        end = END * float(said.forecast.max())
        times, looks, course = times_in_flow(
            pull, factors, aims, scaling=case.scaling, ratio=ratio, end=end
        )
    cell = {"case": case.name, "log10_init_scale": scale, "rank": rank, "ratio": ratio}
    learned = pd.DataFrame(
        {
            "pace": kappa,
            "direction": range(n),
            "sigma": sigma,
            "a_squared": ((factors[1] @ V) ** 2).sum(0),
            "measured": times,
            **said._asdict(),
        }
    ).assign(seed=seed, **cell)
    courses = [
        pd.DataFrame(
            {
                "direction": i,
                "target": target[i],
                "time": looks,
                "learned": course[:, i],
                "expected": expected_at(course[:, i], target[i], said.counted[i], kappa, sigma[i]),
            }
        ).assign(**cell)
        for i in range(n if drawn else 0)
    ]
    return {"learned": learned, "courses": COURSES.frame(pd.concat(courses) if drawn else [])}


if __name__ == "__main__":
    run(main)
