"""Optimisers seed by seed: `python -m published.optimizers_by_seed.run`.

The trainings of the section `gradual_rank.optimizers` on seeds that no bar was chosen on and no
stage has: under noise, on 40 of them, and for the order from the smallest init scale, on 12. A
training is stuck where its last loss is above the teacher's on the same noisy targets: a better
minimum is known. Gradient descent goes on from there for five times as long.

Tables, a figure, measures and where they come from are kept beside this program; claims and report
read them. Five minutes of one CPU core; an interrupted run goes on.
"""

import math
import platform
import time
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from lib.files.files import write_files
from lib.files.params import read_cases, read_params
from lib.files.tables import compact, pick, write_json, write_measures, write_table
from lib.gradual_rank.figures.optimizers import color_of, listed, seeds
from lib.gradual_rank.full_heads import SharedTokensHead, products_of_ranks
from lib.gradual_rank.optimizers import RULES, descend
from lib.gradual_rank.step_counts import evenly
from lib.pages.style import READ_WIDTH, as_svg
from lib.training.devices import use_threads
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import run
from stages.gradual_rank.optimizers import (
    HALF,
    N_LOOKS,
    Head,
    Optimizer,
    Optimizers,
    drawn,
    taught,
    train,
)
from tools.publish import PACKAGES, commit

FIRST_SEED = 9
N_SEEDS = 40
N_ORDERED = 12
LONGER = 5
RISEN = 0.01  # a singular value of a product
OUT = Path("published/optimizers_by_seed")
COMMAND = "python -m published.optimizers_by_seed.run"
CELL = ["optimizer", "seed"]


def main(
    table: Path = Path("stages/gradual_rank/optimizers.tsv"), *, first_seed: int = FIRST_SEED
) -> None:
    use_threads(1)
    begun = time.monotonic()
    params = replace(read_params("gradual_rank.optimizers", Optimizers), first_seed=first_seed)
    sizes = read_params("gradual_rank.full_weights", Head, part=True)
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
    figure = as_svg(lambda: by_seed(noisy, orders))
    write_files(OUT / "figures", {"optimizers-by-seed.svg": figure})
    hours = (time.monotonic() - begun) / 3600
    write_json(provenance(params, sizes, cases, hours), OUT / "provenance.json")


def compute(name: str, cell: Any, params: Optimizers, sizes: Head, cases: Any, *more: Any) -> Any:
    """A table of every optimiser's."""
    jobs = [(cell, params, sizes, case, *more) for case in cases]
    return joined(spread_cells({"": jobs}, label=name, unit="optimiser")[""], "rows")


def follow(params: Optimizers, sizes: Head, case: Optimizer, longer: int = 1) -> Tables:
    """One optimiser on noisy targets, a row a seed: losses on the path and at the end, as shares of
    those at zero, and how near the products are to the teacher's.
    """
    n, scale = params.noisy_samples, params.few_log10_init_scale
    rank = min(params.teacher_rank, sizes.d_model)
    X, Y = taught(params, sizes, "tokens", n, [rank], params.noise)
    clean = taught(params, sizes, "tokens", n, [rank])[1]
    head = SharedTokensHead(X, Y)
    X_test, Y_test = taught(params, sizes, "test tokens", params.n_test, [rank])
    test = SharedTokensHead(X_test, Y_test)
    at_zero, test_at_zero = (T.square().mean((-3, -2, -1))[:, 0] for T in (Y, Y_test))
    teacher = products_of_ranks(drawn(params, sizes, "full teacher"), [rank])[0]
    start = {"factors": 10**scale * drawn(params, sizes, "full start").unsqueeze(-3)}
    rates = case.rates(scale, params.noisy_longer * longer)
    looks = evenly(N_LOOKS * longer, len(rates))
    test_losses = []
    half = torch.full((len(params.seeds),), torch.nan, dtype=torch.float64)
    last, loss = start["factors"], at_zero
    for step in descend(head.loss_and_slopes, start, RULES[case.rule](), rates):
        if step.number in looks:
            last, loss = step.weights["factors"][..., 0, :, :], step.loss[:, 0] / at_zero
            test_losses.append(test.loss_and_slopes(step.weights)[0][:, 0] / test_at_zero)
            keys = cosine(last[0, 0] @ last[1, 0].mT, teacher[0])
            half = torch.where(half.isnan() & (loss <= HALF), keys, half)
    products = last[0] @ last[1].mT
    slopes = torch.stack(head.loss_and_gradients(*products.unsqueeze(-3))[1:])[..., 0, :, :]
    floor = (Y - clean).square().mean((-3, -2, -1))[:, 0] / at_zero
    found = {
        "stuck": loss > floor,
        "loss": loss,
        "teacher_loss": floor,
        "best_test_loss": torch.stack(test_losses).amin(0),
        "last_test_loss": test_losses[-1],
        "cosine_KQ_half": half,
        "cosine_KQ": cosine(products[0], teacher[0]),
        "cosine_VO": cosine(products[1], teacher[1]),
        "wait": -scale * math.log(10) / growth_left(products, slopes) / sum(rates),
    }
    rows = {name: values.tolist() for name, values in found.items()}
    return {"rows": pd.DataFrame({"optimizer": case.name, "seed": list(params.seeds), **rows})}


def cosine(
    A: Float[Tensor, "*batch d d"], B: Float[Tensor, "*batch d d"]
) -> Float[Tensor, "*batch"]:
    r"""$\langle A, B \rangle / (\|A\|_F \|B\|_F)$."""
    norms = torch.linalg.matrix_norm(A) * torch.linalg.matrix_norm(B)
    return (A * B).sum((-2, -1)) / norms


def growth_left(
    W: Float[Tensor, "product seed d d"], G: Float[Tensor, "product seed d d"]
) -> Float[Tensor, " seed"]:
    r"""How fast the next direction of a product rises: the largest $\sigma_1(U^\top G V)$ of both.

    U and V are the singular vectors of W whose values have not risen; zero where all have.
    """
    U, sigma, Vh = torch.linalg.svd(W)
    low = (sigma <= RISEN).to(G)
    left = low[..., :, None] * (U.mT @ G @ Vh.mT) * low[..., None, :]
    return torch.linalg.svdvals(left)[..., 0].amax(0)


def ordered(params: Optimizers, sizes: Head, case: Optimizer) -> Tables:
    """The rows of one optimiser's trainings on many tokens, by both teachers."""
    scale = min(params.log10_init_scales)
    ranks = (sizes.d_model, min(params.teacher_rank, sizes.d_model))
    rows = train(params, sizes, case, tuple((scale, rank) for rank in ranks)).tables["runs"]
    kept = ["teacher_rank", "order", "separate", "stable_rank_half", "stable_rank_end", "loss"]
    return {"rows": rows[[*CELL, *kept]]}


def measures(noisy: pd.DataFrame, longer: pd.DataFrame, orders: pd.DataFrame) -> tuple[Any, Any]:
    """What claims judge, by seed, and what their sentences name."""
    gd = pick(noisy, optimizer="gd")
    groups = {"free": ~gd["stuck"], "stuck": gd["stuck"]}
    found: dict[str, pd.Series] = {}
    setup: dict[str, float | str] = {"n_seeds": N_SEEDS, "n_ordered": N_ORDERED, "longer": LONGER}
    full = orders["teacher_rank"] == orders["teacher_rank"].max()
    for name in listed(noisy["optimizer"]):
        own = pick(noisy, optimizer=name)
        setup[f"n_stuck_{name}"] = int(own["stuck"].sum())
        found[f"{name}_over_gd"] = own["best_test_loss"] / gd["best_test_loss"]
        for group, chosen in groups.items():
            found[f"{name}_over_gd_{group}"] = found[f"{name}_over_gd"][chosen]
        for group, chosen in (("free", ~own["stuck"]), ("stuck", own["stuck"])):
            found[f"{name}_best_test_{group}"] = own.loc[chosen, "best_test_loss"]
        found[f"{name}_order"] = pick(orders[full], optimizer=name)["order"]
        found[f"{name}_separate"] = pick(orders[~full], optimizer=name)["separate"]
    for group, chosen in groups.items():
        for column in ("cosine_KQ_half", "cosine_KQ", "cosine_VO", "wait"):
            found[f"gd_{column}_{group}"] = gd.loc[chosen, column]
    found["gd_excess_stuck"] = (gd["loss"] / gd["teacher_loss"])[gd["stuck"]]
    found["gd_excess_longer"] = longer["loss"] / longer["teacher_loss"]
    return {name: values for name, values in found.items() if len(values)}, setup


def by_seed(noisy: pd.DataFrame, orders: pd.DataFrame) -> Figure:
    """Losses by optimiser, a point a seed; what the keys have learned at half of the loss; orders.

    A cross is a seed in which gradient descent is stuck.
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
        axes.set_yscale("log")
    excess.set(ylabel="last training loss / the teacher's")
    ratio.set(ylabel="best test loss / gradient descent's")
    ratio.legend(loc="upper left", fontsize=7.5)
    for name in names:
        rows = own[own["optimizer"] == name]
        for stuck, marker in ((False, "o"), (True, "^")):
            chosen = rows[rows["stuck"] == stuck]
            x = chosen["cosine_KQ_half"]
            keys.plot(x, chosen["best_test_loss"], marker, color=color_of(name), ms=4)
    for marker, label in (("o", "not stuck"), ("^", "stuck")):
        keys.plot([], [], marker, color="black", ms=4, label=label)
    keys.legend(loc="lower left", fontsize=7.5)
    keys.set(yscale="log", xlabel="cosine of the keys at half of the loss", ylabel="best test loss")
    full = orders[orders["teacher_rank"] == orders["teacher_rank"].max()]
    seeds(order, full, names, "order", marker="o", label="")
    order.axhline(0, color="black", lw=0.8)
    order.set(ylabel="order: 1 largest first, −1 smallest first", ylim=(-1.05, 1.05))
    return figure


def provenance(params: Optimizers, sizes: Head, cases: Any, hours: float) -> dict[str, Any]:
    """Where the numbers come from."""
    versions = {name: version(name) for name in PACKAGES}
    return {
        "device": f"CPU, {platform.machine()}",
        "commit": commit(),
        "versions": {"python": platform.python_version()} | versions,
        "seeds": list(replace(params, n_seeds=N_SEEDS).seeds),
        "params": {
            "optimizers": asdict(params),
            "full_weights": asdict(sizes),
            "cases": [asdict(case) for case in cases],
        },
        "command": COMMAND,
        "wall_hours": hours,
    }


if __name__ == "__main__":
    run(main)
