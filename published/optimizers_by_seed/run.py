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
from lib.files.tables import compact, pick, read_table, write_measures, write_table
from lib.gradual_rank.figures.optimizers import color_of, listed, seeds
from lib.gradual_rank.full_heads import FullSizes
from lib.pages.bars import Bar, draw_bar, read_bars
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
    measured, setup = measures(noisy, longer, orders)
    write_measures(measured, OUT, setup, headlines=["muon_over_gd"])
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


def measures(noisy: pd.DataFrame, longer: pd.DataFrame, orders: pd.DataFrame) -> tuple[Any, Any]:
    """What claims judge, by seed, and what their sentences name."""
    gd = pick(noisy, optimizer="gd")
    groups = {"free": ~gd["stuck"], "stuck": gd["stuck"]}
    found: dict[str, pd.Series] = {}
    setup = {"n_seeds": N_SEEDS, "n_ordered": N_ORDERED, "longer": LONGER}
    for name in listed(noisy["optimizer"]):
        own = pick(noisy, optimizer=name)
        found[f"{name}_n_stuck"] = pd.Series({f"of {N_SEEDS} seeds": own["stuck"].sum()})
        found[f"{name}_over_gd"] = own["best_test_loss"] / gd["best_test_loss"]
        for group, chosen in groups.items():
            found[f"{name}_over_gd_{group}"] = found[f"{name}_over_gd"][chosen]
        for group, chosen in (("free", ~own["stuck"]), ("stuck", own["stuck"])):
            found[f"{name}_best_test_{group}"] = own.loc[chosen, "best_test_loss"]
        found[f"{name}_order"] = pick(orders, optimizer=name)["order"]
    for group, chosen in (("free", ~noisy["stuck"]), ("stuck", noisy["stuck"])):
        trainings = noisy[chosen].assign(name="seed " + noisy["seed"].astype(str))
        trainings["name"] += ", " + trainings["optimizer"].astype(str)
        for column in ("cosine_KQ", "cosine_VO"):
            found[f"{column}_{group}"] = trainings.set_index("name")[column]
    for group, chosen in groups.items():
        for column in ("cosine_KQ_half", "cosine_KQ", "cosine_VO", "wait"):
            found[f"gd_{column}_{group}"] = gd.loc[chosen, column]
    found["gd_excess_stuck"] = (gd["loss"] / gd["teacher_loss"])[gd["stuck"]]
    found["gd_excess_longer"] = longer["loss"] / longer["teacher_loss"]
    return {name: values for name, values in found.items() if len(values)}, setup


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
