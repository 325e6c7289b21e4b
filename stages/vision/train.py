"""Train a vision transformer for every variant and seed, and write their snapshots.

A variant has an init scale, an optimiser and labels, which may be permuted.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lib.files.inputs import read_as
from lib.files.params import Positive, Seeds, read_params
from lib.files.runs import clear_runs
from lib.training.stacked import groups
from lib.vision.datasets import dataset_file, read_dataset
from lib.vision.trainings import (
    Recipe,
    Training,
    check_fit,
    publish,
    rule_of,
    say_cost,
    scratch_of,
    train,
)
from lib.vision.variants import InitScale, chosen_variants
from lib.work.cells import key_of, unfinished
from lib.work.command import OutFolder, run
from lib.work.compute import spread
from lib.work.live import Curves
from lib.work.progress import advance
from lib.work.ranks import is_first, join, launch, leave, n_ranks, of_first


@dataclass(frozen=True, kw_only=True)
class Train(Seeds, Recipe):
    """The trainings that are made, and how; `controls` are names in the table of cases."""

    init_scales: tuple[InitScale, ...]
    controls: tuple[str, ...] = ()
    max_hours: Positive

    def __post_init__(self) -> None:
        if not self.init_scales and not self.controls:
            raise ValueError("init_scales, controls: wanted at least one of them, got none")
        super().__post_init__()


def main(section: str, controls: Path, images: Path, runs: OutFolder) -> None:
    params = read_params(section, Train)
    if launch(params.parts, params.device):
        return
    variants = chosen_variants(controls, params.controls, params.init_scales)
    file = dataset_file(images)
    dataset = read_as("a data set of images", read_dataset, file)
    trainings = [Training(variant, seed) for variant in variants for seed in params.seeds]
    join(params.device)
    if is_first():
        check_fit(params, dataset)
        say_cost(params, dataset, len(trainings), params.max_hours, images.parent)
        clear_runs(runs)
    key = key_of(train_together, file, device=params.device)
    rules = groups(trainings, partial(rule_of, params), params.cells_together)
    done = spread(
        train_together,
        [(section, file, params, alike, key) for alike in rules],
        label=section,
        total=len(trainings) * params.n_steps,
        n_threads=params.threads,
        device=params.device,
        n_processes=1 if n_ranks() > 1 else None,
    )
    list(done)
    if is_first():
        for variant in variants:
            publish(runs, variant, params.seeds, params, key)
    leave()


def train_together(
    section: str, dataset: Path, recipe: Recipe, trainings: list[Training], key: dict[str, Any]
) -> None:
    """Train several as one, going on where an interrupted call left off."""
    places = {
        one: (
            scratch_of(recipe, one, key),
            Curves(f"{section}/{one.variant.run}/seed={one.seed}"),
        )
        for one in trainings
    }
    with unfinished(places, recipe.steps) if is_first() else nullcontext({}) as found:
        wanted = {one: found.get(one) for one in of_first(lambda: list(found))}
        advance(recipe.n_steps * (len(trainings) - len(wanted)))
        if wanted:
            train(read_dataset(dataset), recipe, wanted)


if __name__ == "__main__":
    run(main)
