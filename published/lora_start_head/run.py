"""When LoRA adapters of a trained head learn what: `python -m published.lora_start_head.run`.

A head is trained on one task and tuned on another, by adapters on W_K W_Qᵀ and W_V W_Oᵀ. As with
language models (`published/lora_start`), one backward pass before the first step and the draw of A
say in how many steps each of the first directions reaches a small size, by gradient descent and by
Adam. Controls are LoRA+'s ratio, two small factors, a rank below the number of directions, σ
permuted, and both products trained whole.

Tables, the figure, measures and where they come from are kept beside this program; claims and
report read them. It takes a minute or two of one CPU core; `remeasure` writes measures and figure
again from the tables that are kept.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure

from lib.files.tables import compact, read_table, write_table
from lib.gradual_rank.figures.lora_start import lora_start
from lib.gradual_rank.heads_to_tune import HeadTask, head_to_tune
from lib.pages.bars import read_bars
from lib.pages.measures import Row, rows_of, write_measures
from lib.pages.style import as_svg
from lib.training.attention import PRODUCTS
from lib.training.devices import use_threads
from lib.work.cells import Job, Tables, joined, spread_cells
from lib.work.command import run
from lib.work.compute import write_figures
from published.lora_start.controls import control_measures
from published.lora_start.run import SMALL, TABLES, drawn_orders, measured
from published.lora_start.trainings import Adapter
from published.lora_start.updates import WHOLE, Tuned, train
from tools.publish import write_provenance

OUT = Path("published/lora_start_head")
CLAIMS = Path(__file__).parents[2] / "stages/gradual_rank/claims.yaml"  # whose bars are drawn
COMMAND = "python -m published.lora_start_head.run"
HEADLINES = {"lora_start_head_time_error": ("time_error", "descent")}
TASK = HeadTask(
    n_samples=200,
    seq_len=10,
    d_model=12,
    init_scale=0.5,
    learning_rate=0.4,
    n_steps=3000,
    changes=(1.0, 0.7, 0.45, 0.3),
    deviations=(0.5, 1.5),
)
ADAPTERS = (
    Adapter("descent", 8, 0.0, 1.0, 200, 5e-4),
    Adapter("descent", 8, -1.0, 1.0, 200, 0.02),
    Adapter("descent", 8, -2.0, 1.0, 200, 0.05),
    Adapter("plus", 8, 0.0, 16.0, 200, 1e-4),
    Adapter("plus", 8, -2.0, 16.0, 200, 0.05),
    Adapter("both", 8, -1.0, 1.0, 200, 0.02),
    Adapter("narrow", 2, -1.0, 1.0, 200, 0.02),
    Adapter("adam", 8, 0.0, 1.0, 100, 2e-5),
    Adapter("adam", 8, -1.0, 1.0, 100, 1e-4),
    Adapter("adam", 8, -2.0, 1.0, 100, 2e-4),
    Adapter(WHOLE, 0, 0.0, 1.0, 200, 1e-4),
)


def main(n_seeds: int = 8, first_seed: int = 0) -> None:
    use_threads(1)
    begun = time.monotonic()
    seeds = range(first_seed, first_seed + n_seeds)
    jobs: list[Job] = [(trainings, seed) for seed in seeds]
    n_steps = sum(one.n_steps for one in ADAPTERS)
    found = spread_cells(
        {"": jobs}, label="lora_start_head", unit="step", size=lambda seed: n_steps
    )[""]
    for name in (*TABLES, "bases"):
        write_table(compact(joined(found, name)), OUT / "tables" / f"{name}.parquet")
    remeasure()
    noted = {"task": asdict(TASK), "adapters": [vars(one) for one in ADAPTERS]}
    write_provenance(OUT, COMMAND, begun, noted, seeds)


def trainings(seed: int) -> Tables:
    """Every training of the head of a seed, and how its base was trained."""
    head = head_to_tune(seed, TASK)
    sizes = (TASK.d_model, TASK.d_model)
    tuned = Tuned("head", dict.fromkeys(PRODUCTS, sizes), head.loss, torch.float64)
    found = [train(tuned, one, seed) for one in ADAPTERS]
    begun = float(head.loss(tuned.zeros()).detach())
    bases = pd.DataFrame({"seed": [seed], "left": [head.left], "loss": [begun]})
    tables = {name: [one[name] for one in found if name in one] for name in TABLES}
    joined_up = {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}
    return joined_up | {"bases": bases}


def remeasure() -> None:
    """Write the measures and the figure of the tables as they are kept, without training again."""
    write_measures(all_measures(OUT), OUT, HEADLINES)
    write_figures(OUT / "figures", drawings(OUT), as_svg)


def all_measures(folder: Path) -> list[Row]:
    """The rows of every measure, from the tables in git. A unit is a head."""
    tables = {n: read_table(folder / "tables" / f"{n}.parquet") for n in (*TABLES, "bases")}
    bases = tables["bases"].set_index("seed")
    of_bases = rows_of({"left": bases["left"]})
    return measured(tables) + control_measures(tables["learned"]) + of_bases


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """How the figure is drawn, from what is kept in the folder."""
    learned, shares = (read_table(folder / "tables" / f"{name}.parquet") for name in TABLES)
    bars = read_bars(CLAIMS)
    asked = {
        "lora_start_times": bars["lora_start_head_times"],
        "lora_start_order": bars["lora_start_head_order"],
        "lora_start_outputs": bars["lora_start_head_outputs"],
    }
    draw = partial(lora_start, learned, shares, drawn_orders(learned), SMALL, asked)
    return {"lora-start-head": draw}


if __name__ == "__main__":
    run(main)
