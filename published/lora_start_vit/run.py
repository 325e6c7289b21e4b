"""When LoRA adapters of a vision transformer learn what: `python -m published.lora_start_vit.run`.

Transformers that were trained on the digits (`dvc repro vision_train@digits`) are tuned on digits
turned by a quarter, by adapters on every linear module of their blocks. As with language models
(`published/lora_start`), one backward pass before the first step and the draw of A say in how many
steps each of the first directions reaches a small size, by gradient descent and by Adam. Controls
are LoRA+'s ratio, two small factors, a rank below the number of directions, σ permuted, and all
modules trained whole. Each draw has a batch of its own.

Tables, the figure, measures and where they come from are kept beside this program; claims and
report read them. It takes some minutes of one CPU core; `remeasure` writes measures and figure
again from the tables that are kept.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cross_entropy

from lib.files.params import load_yaml
from lib.files.runs import open_run
from lib.files.tables import compact, read_table, write_table
from lib.gradual_rank.figures.lora_start import lora_start
from lib.pages.bars import read_bars
from lib.pages.measures import Row, write_measures
from lib.pages.style import as_svg
from lib.training.devices import generator, use_threads
from lib.vision.datasets import dataset_file
from lib.vision.images import read_images, standardise
from lib.vision.linear_modules import linear_modules, with_updates
from lib.vision.vit import logits
from lib.work.cells import Job, Tables, joined, spread_cells
from lib.work.command import run
from lib.work.compute import write_figures
from published.lora_start.controls import control_measures
from published.lora_start.run import SMALL, TABLES, drawn_orders, measured
from published.lora_start.trainings import Adapter
from published.lora_start.updates import WHOLE, Tuned, train
from tools.publish import write_provenance

OUT = Path("published/lora_start_vit")
CLAIMS = Path(__file__).parents[2] / "stages/vision/claims.yaml"  # whose bars are drawn
COMMAND = "python -m published.lora_start_vit.run"
HEADLINES = {"lora_start_vit_time_error": ("time_error", "descent")}
BASES = Path("data/vision/digits/runs/init_scale=1")
IMAGES = Path("data/vision/digits/images")
N_IMAGES = 64  # of a batch
QUARTERS = 1  # by which images are turned
ADAPTERS = (
    Adapter("descent", 8, 0.0, 1.0, 60, 0.004),
    Adapter("descent", 8, -1.0, 1.0, 60, 0.1),
    Adapter("descent", 8, -2.0, 1.0, 60, 0.15),
    Adapter("plus", 8, 0.0, 16.0, 40, 0.001),
    Adapter("plus", 8, -2.0, 16.0, 40, 0.15),
    Adapter("both", 8, -1.0, 1.0, 40, 0.1),
    Adapter("narrow", 2, -1.0, 1.0, 40, 0.15),
    *(Adapter("adam", 8, scale, 1.0, 40, 5e-5) for scale in (0.0, -1.0, -2.0)),
    Adapter(WHOLE, 0, 0.0, 1.0, 40, 4e-4),
)


def main(n_seeds: int = 8, first_seed: int = 0) -> None:
    use_threads(1)
    begun = time.monotonic()
    seeds = range(first_seed, first_seed + n_seeds)
    images = dataset_file(IMAGES)
    jobs: list[Job] = [(training, one, seed, BASES, images) for seed in seeds for one in ADAPTERS]
    found = spread_cells(
        {"": jobs}, label="lora_start_vit", unit="step", size=lambda one, *rest: one.n_steps
    )[""]
    tables = {name: [of for of in found if name in of] for name in TABLES}
    for name, parts in tables.items():
        write_table(compact(joined(parts, name)), OUT / "tables" / f"{name}.parquet")
    remeasure()
    noted = {
        "digits": load_yaml(Path("params.yaml"))["vision"]["digits"],
        "base": BASES.name,
        "n_images": N_IMAGES,
        "quarters": QUARTERS,
        "adapters": [vars(one) for one in ADAPTERS],
    }
    write_provenance(OUT, COMMAND, begun, noted, seeds)


def training(one: Adapter, seed: int, bases: Path, images: Path) -> Tables:
    """One training of the transformer of a seed, which has one of the bases in turn."""
    return train(tuned_vit(seed, bases, images), one, seed)


def tuned_vit(seed: int, bases: Path, images: Path) -> Tuned:
    """A trained transformer, and a batch of turned images that the seed draws."""
    opened = open_run(bases)
    stacked = opened.weights(-1)
    base = seed % len(opened.layout.seeds)
    weights = {name: tensor[base] for name, tensor in stacked.items()}
    found = read_images(images)
    drawn = torch.randperm(found.n_train, generator=generator(seed, "turned images"))[:N_IMAGES]
    x = standardise(found.train_images[drawn], *found.statistics())
    turned = torch.rot90(x, QUARTERS, (2, 3))
    labels = found.train_labels[drawn]

    def loss(updates: Mapping[str, Tensor]) -> Tensor:
        return cross_entropy(logits(with_updates(weights, updates), turned), labels)

    shapes = {name: (W.shape[0], W.shape[1]) for name, W in linear_modules(weights).items()}
    return Tuned("vit", shapes, loss, torch.float32)


def remeasure() -> None:
    """Write the measures and the figure of the tables as they are kept, without training again."""
    write_measures(all_measures(OUT), OUT, HEADLINES)
    write_figures(OUT / "figures", drawings(OUT), as_svg)


def all_measures(folder: Path) -> list[Row]:
    """The rows of every measure, from the tables in git. A unit is a draw of A and of a batch."""
    tables = {name: read_table(folder / "tables" / f"{name}.parquet") for name in TABLES}
    return measured(tables) + control_measures(tables["learned"])


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """How the figure is drawn, from what is kept in the folder."""
    learned, shares = (read_table(folder / "tables" / f"{name}.parquet") for name in TABLES)
    bars = read_bars(CLAIMS)
    asked = {
        "lora_start_times": bars["lora_start_vit_times"],
        "lora_start_order": bars["lora_start_vit_order"],
        "lora_start_outputs": bars["lora_start_vit_outputs"],
    }
    draw = partial(lora_start, learned, shares, drawn_orders(learned), SMALL, asked)
    return {"lora-start-vit": draw}


if __name__ == "__main__":
    run(main)
