"""The learning rates of descents, as shares of the limit up to which they are stable."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from lib.files.files import InputError
from lib.gradual_rank.flow import Solver
from lib.gradual_rank.step_counts import steps_to


def rates_and_steps(
    stages: pd.DataFrame,
    seeds: Sequence[int],
    share_of_limit: float,
    log_scale: float,
    solver: Solver,
    *,
    most: int,
    file: Path,
) -> tuple[list[float], list[int]]:
    r"""The learning rate $\eta$ of every seed, and the number of steps $\lceil t / \eta \rceil$ to
    the time t at which its flow ends.

    The limit of a seed is the least of its `stages` by Algorithm 1. Raises `InputError` for a seed
    that has none, naming the `file` of the stages, and for more than `most` steps.
    """
    by_seed = stages.groupby("seed")
    chosen = list(seeds)
    limits = by_seed["learning_rate_limit"].min().loc[chosen].to_numpy()
    if not np.isfinite(limits).all():
        raise InputError(
            f"{file}: wanted seeds that have a stage with a limit of the learning rate, got "
            f"{limits}"
        )
    rates = (share_of_limit * limits).tolist()
    share = f"share_of_limit {share_of_limit:g}"
    ends = [solver.end(last, log_scale) for last in by_seed["time"].max().loc[chosen]]
    return rates, [
        steps_to(end, rate, share, most=most) for end, rate in zip(ends, rates, strict=True)
    ]
