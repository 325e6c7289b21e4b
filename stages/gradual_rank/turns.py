"""Follow normalised heads far after their turn, with gains of their own, and under weight decay.

Plain heads from the same starts are the control, with pre-norm and without.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd

from lib.files.params import Interval, Name, Positive, Seeds, read_cases, read_params
from lib.gradual_rank.decayed_turns import DecayedHeads, turns_and_rates
from lib.gradual_rank.limit_flows import rise_in_the_limit
from lib.gradual_rank.normalized_draws import drawn
from lib.gradual_rank.normalized_heads import Heads, singular_values
from lib.gradual_rank.saddles import slopes_at
from lib.gradual_rank.tables.turns import FOLDER
from lib.gradual_rank.tasks import Samples, Size
from lib.gradual_rank.traces import (
    Tracing,
    Until,
    course,
    directions,
    end_of_keys,
    events,
    traces,
)
from lib.training.devices import use_threads
from lib.work.cells import Job, Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined

Decay = Annotated[float, Interval("[0, 10]")]


@dataclass(frozen=True)
class Case(Seeds):
    """Heads whose attention is made in one way, what decays in them, and where they start."""

    name: Name
    qk_norm: bool
    gain: Literal["fixed", "learned", "small"]  # small: learned, and scaled as the weights are
    pre_norm: bool
    decay_keys: Decay  # over sigma_1(G(0)) of uniform attention
    decay_values: Decay
    until: Until
    end: Positive  # at the latest, over (log(1 / init scale) + margin) / sigma_1(G(0))
    n_samples: Samples
    seq_len: Size
    d_model: Annotated[int, Interval("[2, 1000]")]
    log10_init_scales: tuple[Annotated[float, Interval("[-6, 0)")], ...]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The number of samples, their length and the width of their tokens."""
        return self.n_samples, self.seq_len, self.d_model


def main(section: str, cases: Path, followed: OutFolder) -> None:
    """Write `heads`, `limits`, `directions` and `courses`."""
    use_threads(1)
    params = read_params(section, Tracing)
    jobs: list[Job] = [(follow, case, params) for case in read_cases(cases, Case)]
    found = spread_cells({"": jobs}, label="gradual_rank.turns", unit="case")[""]
    write_joined(FOLDER, found, followed)


def follow(case: Case, params: Tracing) -> Tables:
    """The flows of a case from every scale, and what the limit of small weights says of them."""
    X, Y, unscaled = drawn(case.seeds, case.sizes, permuted=False, pre_norm=case.pre_norm)
    plain = Heads(X, Y, normalized=False, stiffness=1.0)
    G = slopes_at(plain, np.zeros((case.n_seeds, case.d_model, case.d_model))).VO
    sigma, sigma_2 = singular_values(G)[:, :2].T
    heads = DecayedHeads(
        X,
        Y,
        case.qk_norm,
        params.stiffness,
        case.gain != "fixed",
        keys=case.decay_keys * sigma,
        values=case.decay_values * sigma,
    )
    scales = sorted(case.log10_init_scales, reverse=True)
    cells = [(scale, seed) for scale in scales for seed in case.seeds]
    places = np.tile(np.arange(case.n_seeds), len(scales))
    sizes = 10.0 ** np.array([scale for scale, _ in cells])
    start = unscaled.only(places).scaled(sizes)
    if case.gain == "small":
        start = start._replace(gain=start.gain * sizes)
    ends = params.ends(case.end, sizes, sigma[places])
    far = case.until == "end"
    rows: list[dict[str, Any]] = []
    rising: list[pd.DataFrame] = []
    courses: list[pd.DataFrame] = []
    paths = traces(heads.only(places), start, params, ends, case.until)
    for (scale, seed), path in zip(cells, paths, strict=True):
        cell = {"case": case.name, "seed": seed, "log10_init_scale": scale}
        rows.append(cell | events(path, params))
        if far:
            rows[-1] |= end_of_keys(path, params.risen)
            rising.append(directions(path).assign(**cell))
            if seed == case.seeds[0]:
                courses.append(course(path).assign(**cell))
    limits = pd.DataFrame(
        {"case": case.name, "seed": case.seeds, "sigma": sigma, "sigma_2": sigma_2}
    )
    limits["growth"] = sigma - heads.values
    limits["decay"] = heads.values
    limits[["turn", "turn_undecayed"]] = math.inf
    if case.qk_norm and case.gain != "small":
        rise = rise_in_the_limit(params.risen, scales)
        said = turns_and_rates(heads, unscaled, params.longest, params.turned, *rise)
        limits = limits.assign(**said)
    found = {"heads": pd.DataFrame(rows), "limits": limits}
    if far:
        found |= {"directions": pd.concat(rising), "courses": pd.concat(courses)}
    return found


if __name__ == "__main__":
    run(main)
