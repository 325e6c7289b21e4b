"""Tables such as plan, round and spectra write of two models, of numbers that mean nothing, and
what evaluate makes of them.
"""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd

from lib.checkpoints.tables.drawn import DRAWN
from stages.checkpoints import evaluate as stage
from tests.stages.made import whole

MODELS = ("llama", "gpt2")
RUNS = ("large-0", "large-1", "gentle-0", "gentle-1")
RULES = ("uniform", "energy", "water-filling", "attributed", "gains-first")
PRUNED = ("weights, smallest first", "updates, smallest first", "updates, at random")


def rows(**values):
    """A row for each combination of the values."""
    found = [dict(zip(values, of, strict=True)) for of in itertools.product(*values.values())]
    return pd.DataFrame(found)


def numbers(draw, table, *columns, low=0.05, high=1.5):
    """The table with numbers in more columns, no two alike."""
    found = {name: draw.uniform(low, high, len(table)) for name in columns}
    return table.assign(**found)


def made_tables():
    """The tables by name, those of both models together."""
    draw = np.random.default_rng(2)
    of = {"model": MODELS, "run": RUNS}
    plans = rows(**of, budget=(1, 4, 2), rule=RULES, shuffle=(0, 1, 2))
    plans = plans[(plans["shuffle"] == 0) | (plans["rule"] == "attributed")]
    plans = numbers(draw, plans, "share_lost", "loss", "loss_on_base")
    plans["parameters"] = 100 * plans["budget"] + (plans["rule"] == "uniform")
    plans["ranks"] = [[i, n % 5] for i, n in enumerate(range(len(plans)))]
    modules = numbers(draw, rows(**of, module=("layers.0.up", "layers.1.up")), "earned", "norm")
    losses = ("loss_tuned", "loss_without_linear", "gain", "drop", "attributed", "loss_base")
    rounding = rows(**of, step=(1, 9), module=("a", "b", "c"))
    rounding = numbers(draw, rounding, "noise_over_edge", low=1, high=9)
    for name in ("rank_90", "rank_90_stored", "above_edge", "above_edge_stored"):
        rounding[name] = 1 + draw.permutation(len(rounding))
    rounding["relative_update"] = rounding["step"] / 90 * draw.uniform(0.5, 1.5, len(rounding))
    pruning = rows(**of, what=PRUNED, rate=(0.3, 0.5, 0.9))
    heads = rows(
        model=MODELS,
        run=("language", "permuted"),
        step=(0, 1, 8),
        layer=[1],
        head=(0, 1, 2),
        module=("W_KQ", "W_VO"),
        offset=(0, 16),
        of=("initial", "update"),
    )
    made = {
        "plans": plans,
        "modules": modules.assign(tensor=modules["module"] + ".weight", rows=8, cols=4),
        "losses": numbers(draw, rows(**of), *losses),
        "pruning": numbers(draw, pruning, "loss", low=2, high=3),
        "rounding": rounding,
    }
    pretrained = numbers(draw, heads, "norm", "stable_rank", low=1, high=2)
    tables = {name: whole(table, DRAWN[name]) for name, table in made.items()}
    return tables | {"pretrained": pretrained}


def evaluate(tables):
    """Run the stage on the tables in the working folder; gives the folder of its metrics."""
    for name, table in tables.items():
        inside = name if name in ("rounding", "pretrained") else f"plans/{name}"
        for model, part in table.groupby("model"):
            file = Path(f"{model}/{inside}.parquet")
            file.parent.mkdir(parents=True, exist_ok=True)
            part.drop(columns="model").to_parquet(file)
    metrics = Path("metrics").absolute()
    stage.main(models=[Path(model) for model in MODELS], metrics=metrics)
    return metrics
