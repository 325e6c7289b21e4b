"""QK-norm under gradient descent: `python -m published.digits_qk_norm_descent.run`.

Do keys turn at a time that does not depend on the init scale, and do values still wait, in a vision
transformer, as docs/qk_norm.md says of gradient flow? Small transformers learn digits by gradient
descent on all their images at once, from three init scales of W_Q, W_K, W_V and W_O, with QK-norm
and with plain attention from the same weights, on true and on permuted labels. They are followed
until half of a head's W_K W_Qᵀ has moved and W_V W_Oᵀ has come to a small size. On the first seed
steps of half the length are the check.

The table, the figure, measures and where they come from are kept beside this program; claims and
report read them. It takes ten to twenty minutes of one CPU core; `remeasure` writes measures and
figure again from the table that is kept.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lib.files.tables import compact
from lib.pages.measures import Row, setup_rows, write_measures
from lib.pages.style import as_svg
from lib.training.devices import use_threads
from lib.vision.datasets import dataset_file
from lib.vision.descent import Descent, Labels, chosen, follow, small_attention
from lib.vision.figures.descent import turns_and_rises
from lib.vision.images import read_images
from lib.vision.measures import plain_typed
from lib.vision.tables.descent import FOLLOWED, OF_DESCENT
from lib.vision.vit import Attention, ViT
from lib.vision.waits import events, measured, waits
from lib.work.cells import Job, Tables, joined, spread_cells
from lib.work.command import run
from lib.work.compute import write_figures
from lib.work.schemas import write_tables_of
from tools.publish import write_provenance

OUT = Path("published/digits_qk_norm_descent")
COMMAND = "python -m published.digits_qk_norm_descent.run"
IMAGES = Path("data/vision/digits/images")
HEADLINES = {
    "qk_norm_descent_turn_ratio": ("turn_over_that_of_scale_before", "qk_norm"),
    "qk_norm_descent_turn_ratio_plain": ("turn_over_that_of_scale_before", "plain"),
}
MODEL = ViT(patch_size=4, d_model=32, n_heads=2, d_head=16, d_mlp=32, n_layers=2)
INIT_SCALES = (0.1, 0.01, 0.001)
ATTENTIONS: tuple[Attention, ...] = ("qk_norm", "plain")
LABELS: tuple[Labels, ...] = ("true", "permuted")
WHOLE = Descent(n_images=256, step=0.05, share=0.05, turned=0.5, risen=0.003, until=200.0)
HALVED = replace(WHOLE, step=WHOLE.step / 2, share=WHOLE.share / 2)
CHECKED_SCALE = 0.01  # of the trainings by steps of half the length


def main(n_seeds: int = 6, first_seed: int = 0) -> None:
    use_threads(1)
    begun = time.monotonic()
    seeds = range(first_seed, first_seed + n_seeds)
    images = dataset_file(IMAGES)
    kinds = [(attention, labels) for attention in ATTENTIONS for labels in LABELS]
    jobs: list[Job] = [
        (training, *kind, WHOLE, "whole", scale, seed, images)
        for seed in seeds
        for scale in INIT_SCALES
        for kind in kinds
    ]
    jobs += [
        (training, *kind, HALVED, "halved", CHECKED_SCALE, first_seed, images) for kind in kinds
    ]
    found = spread_cells({"": jobs}, label="descent", unit="training")[""]
    write_tables_of(OF_DESCENT, {"followed": compact(joined(found, "followed"))}, OUT / "tables")
    remeasure()
    noted = {"model": vars(MODEL), "init_scales": INIT_SCALES, "descent": vars(WHOLE)}
    write_provenance(OUT, COMMAND, begun, noted, seeds)


def training(
    attention: Attention,
    labels: Labels,
    how: Descent,
    steps: str,
    init_scale: float,
    seed: int,
    images: Path,
) -> Tables:
    """One training; `steps` says how long its steps are."""
    found = read_images(images)
    weights = small_attention(MODEL, found, init_scale, attention, seed)
    rows = follow(weights, *chosen(found, how.n_images, labels, seed), how)
    told = {"attention": attention, "labels": labels, "steps": steps}
    told |= {"init_scale": init_scale, "seed": seed}
    return {"followed": FOLLOWED.frame([told | row for row in rows])}


def remeasure() -> None:
    """Write the measures and the figure of the table as it is kept, without training again."""
    write_measures(all_measures(kept(OUT)), OUT, HEADLINES)
    write_figures(OUT / "figures", drawings(OUT), as_svg)


def kept(folder: Path) -> pd.DataFrame:
    """The states that are kept in the folder."""
    return FOLLOWED.read(folder / "tables" / "followed.parquet")


def all_measures(followed: pd.DataFrame) -> list[Row]:
    """The rows of every measure, and what statements name."""
    said = {"turned": WHOLE.turned, "risen": WHOLE.risen, "n_images": WHOLE.n_images}
    return setup_rows(said) + measured(followed, WHOLE.turned, WHOLE.risen)


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """How the figure is drawn, from what is kept in the folder."""
    followed = plain_typed(kept(folder))
    found = events(followed, WHOLE.turned, WHOLE.risen)
    draw = partial(
        turns_and_rises, followed, found, waits(followed, found), WHOLE.turned, WHOLE.risen
    )
    return {"qk-norm-descent": draw}


if __name__ == "__main__":
    run(main)
