"""Follow heads from starts of many sizes until W_KQ rises; say what theory has of these events."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from lib.files.params import Interval, Name, Seeds, read_cases, read_params
from lib.gradual_rank.connections import connection
from lib.gradual_rank.full_heads import FullSizes, gaussian_factors
from lib.gradual_rank.full_trainings import Tokens
from lib.gradual_rank.normalized_heads import Heads
from lib.gradual_rank.saddles import Saddles
from lib.gradual_rank.second_events import in_the_limit, rises_and_courses
from lib.gradual_rank.tables.second_event import FOLDER
from lib.gradual_rank.tasks import Samples, Size
from lib.training.devices import use_threads
from lib.work.cells import Job, Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined


@dataclass(frozen=True)
class Case:
    """A line of the table: the teacher's rank, and where heads start."""

    name: Name
    teacher_rank: Size
    log10_init_scales: tuple[Annotated[float, Interval("[-100, -2]")], ...]


@dataclass(frozen=True)
class SecondEvent(Seeds):
    """The heads, and how they are followed."""

    n_samples: Samples
    longest: Annotated[float, Interval("(0, 0.1]")]


def main(section: str, head: str, cases: Path, followed: OutFolder) -> None:
    """Write `heads`, `rises` and `courses`."""
    use_threads(1)
    params = read_params(section, SecondEvent)
    sizes = read_params(head, FullSizes, part=True)
    jobs: list[Job] = [(follow, case, params, sizes) for case in read_cases(cases, Case)]
    found = spread_cells({"": jobs}, label="gradual_rank.second_event", unit="case")[""]
    write_joined(FOLDER, found, followed)


def follow(case: Case, params: SecondEvent, sizes: FullSizes) -> Tables:
    """The heads of all seeds by the teachers of one rank, from each of its scales."""
    d = sizes.d_model
    tokens = Tokens(params.seeds, sizes.seq_len, d)
    X, Y = tokens.taught("tokens", params.n_samples, [min(case.teacher_rank, d)])
    heads = Heads(X.numpy(), Y[:, 0].numpy(), normalized=False, stiffness=1.0)
    (W_K, W_V), (W_Q, W_O) = gaussian_factors(d, params.seeds, "full start").numpy()
    factors = np.stack([W_K, W_Q, W_V, W_O])
    saddles = Saddles.of(heads)
    ways = [connection(saddles, n, factors) for n in range(params.n_seeds)]
    limits = in_the_limit(saddles).assign(case=case.name, seed=params.seeds)
    limits["crossing"] = [way.crossing(sizes.threshold) for way in ways]
    rises, courses = rises_and_courses(
        case.log10_init_scales,
        params.seeds,
        params.longest,
        sizes.threshold,
        saddles,
        ways,
        factors,
        limits,
    )
    return {
        "heads": limits,
        "rises": rises.assign(case=case.name),
        "courses": courses.assign(case=case.name),
    }


if __name__ == "__main__":
    run(main)
