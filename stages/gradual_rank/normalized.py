"""Follow heads whose queries and keys are normalised, and plain ones from the same start.

Each is followed by gradient flow from several init scales, and normalised ones once more in the
limit of small weights, in which no scale occurs.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from lib.files.params import Interval, Name, Positive, Seeds, read_cases, read_params
from lib.gradual_rank.limit_flows import limit_courses, rise_in_the_limit
from lib.gradual_rank.normalized_draws import drawn
from lib.gradual_rank.normalized_heads import Heads, products, singular_values
from lib.gradual_rank.tables.normalized import FOLDER
from lib.gradual_rank.tasks import Samples, Size
from lib.gradual_rank.turn_looks import events, looks_along
from lib.matrices.ranks import stable_rank
from lib.training.devices import use_threads
from lib.work.cells import Job, Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined


@dataclass(frozen=True)
class Flow:
    """How flows are followed, and what counts."""

    turned: Positive  # the share of its norm by which W_KQ has moved when it has turned
    small: Positive  # the singular value of W_VO at which it is seen how far keys have turned
    stiffness: Positive
    longest: Annotated[float, Interval("(0, 0.1]")]
    end: Positive  # the flow's time


@dataclass(frozen=True)
class Case(Seeds):
    """Heads whose attention is made in one way: their labels, sizes and init scales."""

    name: Name
    qk_norm: bool
    learned_gain: bool
    pre_norm: bool
    permuted: bool
    risen: Positive
    n_samples: Samples
    seq_len: Size
    d_model: Size
    log10_init_scales: tuple[Annotated[float, Interval("[-6, 0)")], ...]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The number of samples, their length and the width of their tokens."""
        return self.n_samples, self.seq_len, self.d_model


def main(section: str, cases: Path, followed: OutFolder) -> None:
    """Write `heads`, `limits` and `courses`."""
    use_threads(1)
    params = read_params(section, Flow)
    jobs: list[Job] = [(follow, case, params) for case in read_cases(cases, Case)]
    found = spread_cells({"": jobs}, label="gradual_rank.normalized", unit="case")[""]
    write_joined(FOLDER, found, followed)


def follow(case: Case, params: Flow) -> Tables:
    """The flows of a case from every scale, and in the limit."""
    X, Y, unscaled = drawn(case.seeds, case.sizes, permuted=case.permuted, pre_norm=case.pre_norm)
    heads = Heads(X, Y, case.qk_norm, params.stiffness, case.learned_gain)
    scales = sorted(case.log10_init_scales, reverse=True)
    cells = [(scale, seed) for scale in scales for seed in case.seeds]
    places = np.tile(np.arange(case.n_seeds), len(scales))
    sizes = 10.0 ** np.array([scale for scale, _ in cells])
    start = unscaled.only(places).scaled(sizes)
    rows: list[dict[str, Any]] = []
    courses: list[pd.DataFrame] = []
    followed = looks_along(
        heads.only(places), start, params.longest, params.turned, case.risen, params.end
    )
    first = stable_rank(singular_values(products(unscaled).KQ))
    for place, (scale, seed), looks in zip(places, cells, followed, strict=True):
        cell = {"case": case.name, "seed": seed, "log10_init_scale": scale}
        row = events(looks, params.turned, case.risen, params.small)
        rows.append({**cell, **row, "rank_at_start": first[place]})
        if seed == case.seeds[0]:
            courses.append(looks.assign(**cell))
    smallest = unscaled.scaled(np.full(case.n_seeds, 10.0 ** scales[-1]))
    limits = pd.DataFrame({"case": case.name, "seed": case.seeds})
    limits["start_growth"] = heads.growth(smallest)
    limits["turn"] = math.inf
    limits["growth"] = limits["start_growth"]
    if case.qk_norm:
        linear = replace(heads, linear=True, learned=False)
        begin, end = rise_in_the_limit(case.risen, scales)
        undecayed = np.zeros(case.n_seeds)
        said = limit_courses(linear, unscaled, params.longest, params.turned, end, undecayed)
        limits["turn"] = [own.turn(params.turned) for own in said]
        limits["growth"] = [own.rate(begin, end) for own in said]
    return {"heads": pd.DataFrame(rows), "limits": limits, "courses": pd.concat(courses)}


if __name__ == "__main__":
    run(main)
