"""Follow sign descent, Adam and gradient descent on the diagonal head, beside their flows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from lib.files.params import Interval, Positive, Seeds, read_params
from lib.gradual_rank.diagonal_descents import KINDS, SMALLEST, Case, Kind, Optimizer, Rates
from lib.gradual_rank.sign_flow import LONGEST
from lib.gradual_rank.step_counts import steps_to
from lib.gradual_rank.tables.signs import FOLDER
from lib.gradual_rank.tasks import HeadSizes
from lib.training.devices import use_threads
from lib.work.cells import Job, Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined


@dataclass(frozen=True)
class Signs(Seeds):
    """Where sign descent starts and ends, in τ.

    The rates are those of sign descent and Adam, of Adam's slope, and of gradient descent.
    """

    log10_init_scales: tuple[Annotated[float, Interval("[-30, 0)")], ...]
    end: Positive
    learning_rate: Positive
    slope_rate: Positive
    descent_rate: Positive


def main(section: str, problem: str, solver: str, followed: OutFolder) -> None:
    """Write `changes`, `events`, `paths`, `slopes`, `diagonal` and `rises`."""
    use_threads(1)
    params = read_params(section, Signs)
    sizes = read_params(problem, HeadSizes, part=True)
    learned = read_params(f"{solver}.threshold", float)
    shortest = min(params.learning_rate, LONGEST)
    steps_to(params.end, shortest, f"{section}: end, learning_rate")  # not too many
    rates = Rates(params.end, params.learning_rate, params.slope_rate, params.descent_rate)
    together = [params.seeds]
    each = [(seed,) for seed in params.seeds]

    def cells(
        kind: Kind,
        optimizer: Optimizer,
        scales: Iterable[float],
        groups: Sequence[tuple[int, ...]] = together,
    ) -> list[Job]:
        return [
            (follow, kind, Case(seeds, sizes, rates, learned, optimizer, scale))
            for scale in scales
            for seeds in groups
        ]

    scales = params.log10_init_scales
    largest = max(scales)
    smaller = [scale for scale in scales if scale != largest]
    jobs = [
        *cells("trained", "gd", [largest], each),  # who waits, waits for its own
        *cells("first rises", "gd", smaller, each),
        *cells("roots", "sign", [largest]),
        *cells("changes", "sign", dict.fromkeys((*scales, SMALLEST))),
        *cells("trained", "adam", [largest]),
        *cells("first rises", "adam", dict.fromkeys((*smaller, SMALLEST))),
        *cells("slopes", "adam", [largest]),
        *cells("sign flow", "sign", [largest], each),
        *cells("to rest", "gradient flow", scales, each),
    ]
    found = spread_cells({"": jobs}, label=section, unit="descent")[""]
    write_joined(FOLDER, found, followed)


def follow(kind: Kind, case: Case) -> Tables:
    """The tables of one optimiser or flow, of some seeds from one scale."""
    return KINDS[kind](case)


if __name__ == "__main__":
    run(main)
