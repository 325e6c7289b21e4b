"""Optimisers seed by seed: `python -m published.optimizers_by_seed.run`.

The trainings of the section `gradual_rank.optimizers` on seeds that no bar was chosen on and no
stage has: under noise, on 24 of them, and for the order on many tokens, on 12. A
training is stuck where its last loss is above the teacher's on the same noisy targets: a better
minimum is known. Gradient descent goes on from there for five times as long.

Tables, a figure, measures and where they come from are kept beside this program; claims and report
read them. Twelve minutes of a busy CPU core; an interrupted run goes on.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from lib.files.params import read_cases, read_params
from lib.files.tables import compact, pick, read_table, write_table
from lib.gradual_rank.figures.optimizers import color_of, listed, seeds
from lib.gradual_rank.full_heads import FullSizes
from lib.pages.bars import Bar, draw_bar, read_bars
from lib.pages.measures import Row, rows_of, setup_rows, write_measures
from lib.pages.style import MATRIX_NAMES, READ_WIDTH, as_svg, number_panel
from lib.training.devices import use_threads
from lib.work.cells import joined, spread_cells
from lib.work.command import run
from lib.work.compute import write_figures
from published.optimizers_by_seed.trainings import follow, ordered
from stages.gradual_rank.optimizers import Optimizer, Optimizers
from tools.publish import write_provenance

FIRST_SEED = 9
N_SEEDS = 24
N_ORDERED = 12
LONGER = 5
OUT = Path("published/optimizers_by_seed")
CLAIMS = Path(__file__).parents[2] / "stages/gradual_rank/claims.yaml"  # whose bar is drawn
ASKED = "muon_tests_worse"
COMMAND = "python -m published.optimizers_by_seed.run"
HEADLINES = {"muon_over_gd": ("over_gd", "muon")}
OF_GD = {  # measures of gradient descent alone, and their columns
    "gd_cosine_KQ_half": "cosine_KQ_half",
    "gd_cosine_KQ": "cosine_KQ",
    "gd_cosine_VO": "cosine_VO",
    "gd_wait": "wait",
}


def main(
    table: Path = Path("stages/gradual_rank/optimizers.tsv"), *, first_seed: int = FIRST_SEED
) -> None:
    use_threads(1)
    begun = time.monotonic()
    params = replace(read_params("gradual_rank.optimizers", Optimizers), first_seed=first_seed)
    sizes = read_params("gradual_rank.full_weights", FullSizes, part=True)
    cases = read_cases(table, Optimizer)
    noisy = compute("noisy", follow, replace(params, n_seeds=N_SEEDS), sizes, cases)
    stuck = noisy[(noisy["optimizer"] == "gd") & noisy["stuck"]]
    on = [
        compute("on", follow, replace(params, first_seed=seed, n_seeds=1), sizes, cases[:1], LONGER)
        for seed in stuck["seed"].tolist()
    ]
    orders = compute("orders", ordered, replace(params, n_seeds=N_ORDERED), sizes, cases)
    write_table(compact(noisy), OUT / "tables" / "noisy.parquet")
    write_table(compact(orders), OUT / "tables" / "orders.parquet")
    longer = pd.concat(on).set_index("seed") if on else noisy[:0]
    write_measures(measures(noisy, longer, orders), OUT, HEADLINES)
    write_figures(OUT / "figures", drawings(OUT), as_svg)
    noted = {
        "optimizers": asdict(params),
        "full_weights": asdict(sizes),
        "cases": [asdict(case) for case in cases],
    }
    seeds = replace(params, n_seeds=N_SEEDS).seeds
    write_provenance(OUT, COMMAND, begun, noted, seeds)


def compute(
    name: str, cell: Any, params: Optimizers, sizes: FullSizes, cases: Any, *more: Any
) -> Any:
    """A table of every optimiser's."""
    jobs = [(cell, params, sizes, case, *more) for case in cases]
    return joined(spread_cells({"": jobs}, label=name, unit="optimiser")[""], "rows")


def measures(noisy: pd.DataFrame, longer: pd.DataFrame, orders: pd.DataFrame) -> list[Row]:
    """What claims judge, by seed, and what their sentences name."""
    gd = pick(noisy, optimizer="gd")
    found = setup_rows({"n_seeds": N_SEEDS, "n_ordered": N_ORDERED, "longer": LONGER})
    for name in listed(noisy["optimizer"]):
        own = pick(noisy, optimizer=name)
        stuck = own["stuck"]
        over = own["best_test_loss"] / gd["best_test_loss"]
        of_one = {
            "n_stuck": pd.Series({f"of {N_SEEDS} seeds": stuck.sum()}),
            "over_gd": over,
            "over_gd_free": over[~gd["stuck"]],
            "over_gd_stuck": over[gd["stuck"]],
            "best_test_free": own.loc[~stuck, "best_test_loss"],
            "best_test_stuck": own.loc[stuck, "best_test_loss"],
            "order": pick(orders, optimizer=name)["order"],
        }
        found += rows_of(of_one, name)
    trainings = noisy.assign(name="seed " + noisy["seed"].astype(str))
    trainings["name"] += ", " + trainings["optimizer"].astype(str)
    trainings = trainings.set_index("name")
    for case in ("free", "stuck"):
        ours = trainings[trainings["stuck"] == (case == "stuck")]
        found += rows_of({column: ours[column] for column in ("cosine_KQ", "cosine_VO")}, case)
        theirs = gd[gd["stuck"] == (case == "stuck")]
        found += rows_of({measure: theirs[column] for measure, column in OF_GD.items()}, case)
    stuck = gd[gd["stuck"]]
    excess = {"gd_excess": stuck["loss"] / stuck["teacher_loss"]}
    later = {"gd_excess": longer["loss"] / longer["teacher_loss"]}
    return found + rows_of(excess, "stuck") + rows_of(later, "longer")


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn, from what is kept in the folder."""
    noisy, orders = (
        read_table(folder / "tables" / f"{name}.parquet") for name in ("noisy", "orders")
    )
    return {"optimizers-by-seed": partial(by_seed, noisy, orders, read_bars(CLAIMS)[ASKED])}


def by_seed(noisy: pd.DataFrame, orders: pd.DataFrame, bar: Bar) -> Figure:
    """Losses by optimiser, a point a seed; how near the keys are to the teacher's; orders.

    A cross is a seed in which gradient descent is stuck. The bar is asked of Muon's test losses.
    """
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 4.2))
    (excess, ratio, keys, order) = panels
    names = listed(noisy["optimizer"])
    gd = pick(noisy, optimizer="gd")
    own = noisy.assign(
        excess=noisy["loss"] / noisy["teacher_loss"],
        ratio=noisy["best_test_loss"] / gd["best_test_loss"].loc[noisy["seed"]].to_numpy(),
    )
    free = own["seed"].isin(gd.index[~gd["stuck"]])
    for axes, column in ((excess, "excess"), (ratio, "ratio")):
        seeds(axes, own[free], names, column, marker="o", label="others")
        seeds(axes, own[~free], names, column, marker="x", label="descent is stuck")
        axes.axhline(1, color="black", lw=0.8)
    excess.set(ylabel="last training loss / the teacher's")
    ratio.set(ylabel="best test loss / gradient descent's", yscale="log")
    draw_bar(ratio, bar, label=f"{bar.words()}, of Muon")
    number_panel(ratio)
    ratio.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=7.5)
    for name in names:
        rows = own[own["optimizer"] == name]
        for stuck, marker in ((False, "o"), (True, "^")):
            chosen = rows[rows["stuck"] == stuck]
            x = chosen["cosine_KQ"]
            keys.plot(x, chosen["best_test_loss"], marker, color=color_of(name), ms=4)
    for marker, label in (("o", "not stuck"), ("^", "stuck")):
        keys.plot([], [], marker, color="black", ms=4, label=label)
    keys.legend(loc="lower left", fontsize=7.5)
    keys.set(yscale="log", ylabel="best test loss")
    keys.set_xlabel(f"cosine of {MATRIX_NAMES['W_KQ']} with the teacher's")
    seeds(order, orders, names, "order", marker="o", label="")
    order.axhline(0, color="black", lw=0.8)
    order.set(ylabel="order: 1 largest first, −1 smallest first", ylim=(-1.05, 1.05))
    return figure


if __name__ == "__main__":
    run(main)
