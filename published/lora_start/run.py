"""When LoRA adapters of two small language models learn what: `python -m published.lora_start.run`.

The base models of the example (`dvc repro checkpoints_train`) get an adapter on every linear
module, and train it on one batch of the text to which they are tuned elsewhere. One backward pass
before the first step gives the gradient of every module. From its singular triplets and from the
random A follows in how many steps each of its first directions reaches a small size p, by gradient
descent and by Adam. A has the library's own draw, a tenth or a hundredth of it. Controls are the
ratio of learning rates of LoRA+, two small factors, and a rank below the number of directions.

Tables, the figure, measures and where they come from are kept beside this program; claims and
report read them. It takes eight minutes of one CPU core; `remeasure` writes measures and figure
again from the tables that are kept.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.files.params import load_yaml
from lib.files.tables import compact, read_table, write_table
from lib.gradual_rank.activation_times import order_agreement
from lib.gradual_rank.figures.lora_start import lora_start
from lib.gradual_rank.measures import by_scale
from lib.pages.bars import read_bars
from lib.pages.measures import Row, rows_of, setup_rows, write_measures
from lib.pages.style import as_svg
from lib.training.devices import use_threads
from lib.work.cells import Job, joined, spread_cells
from lib.work.command import run
from lib.work.compute import write_figures
from published.lora_start.trainings import FALLEN, SIZES, WINDOWS, Adapter, train
from tools.publish import PACKAGES, write_provenance

MODELS = ("llama", "gpt2")
SMALL = SIZES[0]
NEAR = 0.1  # of a forecast: so near a time is on time
NULLS = ("shuffled", "equal", "two")
DATA = Path("data/checkpoints")
OUT = Path("published/lora_start")
CLAIMS = Path(__file__).parents[2] / "stages/gradual_rank/claims.yaml"  # whose bars are drawn
COMMAND = "python -m published.lora_start.run"
TABLES = ("learned", "shares")
SIDES = {
    "out": "share_out",
    "in": "share_in",
    "random_out": "random_out",
    "random_in": "random_in",
}
HEADLINES = {"lora_start_time_error": ("time_error", "descent")}
ADAPTERS = (
    Adapter("descent", 8, 0.0, 1.0, 100, 0.015),
    Adapter("descent", 8, -1.0, 1.0, 100, 0.15),
    Adapter("descent", 8, -2.0, 1.0, 100, 0.15),
    Adapter("plus", 8, 0.0, 16.0, 60, 0.004),
    Adapter("plus", 8, -2.0, 16.0, 60, 0.15),
    Adapter("both", 8, -1.0, 1.0, 60, 0.15),
    Adapter("narrow", 2, -1.0, 1.0, 60, 0.15),
    *(Adapter("adam", 8, scale, 1.0, 60, 5e-5) for scale in (0.0, -1.0, -2.0)),
)


def main(n_seeds: int = 8, first_seed: int = 0) -> None:
    use_threads(1)
    begun = time.monotonic()
    seeds = range(first_seed, first_seed + n_seeds)
    jobs: list[Job] = [
        (train, model, one, seed, DATA / model / "base/model.safetensors", DATA / "texts/tuned.txt")
        for model in MODELS
        for seed in seeds
        for one in ADAPTERS
    ]
    found = spread_cells(
        {"": jobs}, label="lora_start", unit="step", size=lambda _, one, *rest: one.n_steps
    )[""]
    for name in TABLES:
        write_table(compact(joined(found, name)), OUT / "tables" / f"{name}.parquet")
    remeasure()
    noted = {
        "example": load_yaml(Path("params.yaml"))["checkpoints"]["example"],
        "adapters": [vars(one) for one in ADAPTERS],
        "windows": WINDOWS,
    }
    write_provenance(OUT, COMMAND, begun, noted, seeds, [*PACKAGES, "transformers", "peft"])


def remeasure() -> None:
    """Write the measures and the figure of the tables as they are kept, without training again."""
    tables = {name: read_table(OUT / "tables" / f"{name}.parquet") for name in TABLES}
    write_measures(measured(tables), OUT, HEADLINES)
    write_figures(OUT / "figures", drawings(OUT), as_svg)


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """How the figure is drawn, from what is kept in the folder."""
    learned, shares = (read_table(folder / "tables" / f"{name}.parquet") for name in TABLES)
    asked = read_bars(CLAIMS)
    return {"lora-start": partial(lora_start, learned, shares, drawn_orders(learned), SMALL, asked)}


def measured(tables: dict[str, pd.DataFrame]) -> list[Row]:
    """The rows of every measure, from the tables in git. A unit is a model and a seed."""
    learned, shares = (plain(tables[name]) for name in TABLES)
    n_modules = learned.groupby("model")["module"].nunique()
    n_models = learned["model"].nunique()
    said = {"n_seeds": learned["seed"].nunique() // n_models, "n_modules": int(n_modules.sum())}
    n_directions = learned["direction"].nunique()
    found = setup_rows(said | {"n_directions": n_directions, "fallen": f"{FALLEN:.0%}"})
    for case, rows in learned.groupby("case"):
        forecast = "signs" if case == "adam" else "forecast"
        said_of = (one(rows, forecast) for one in (errors, orders, late))
        found += [row for one in said_of for row in rows_of(one, str(case))]
    found += rows_of(cuts(learned), "plus")
    drawn = shares["case"].isin(["descent", "adam"]) & (shares["size"] == SMALL)
    for case, rows in shares[drawn].groupby("case"):
        means = rows.groupby(["log10_init_scale", "seed"])[list(SIDES)].mean().reset_index()
        taken = {name: by_scale(means, column) for column, name in SIDES.items()}
        found += rows_of(taken, str(case))
    return found


def plain(table: pd.DataFrame) -> pd.DataFrame:
    """A table of plain types, whose `seed` is the model and its seed."""
    units = [f"{m} {s}" for m, s in zip(table["model"], table["seed"], strict=True)]
    words = dict.fromkeys(("case", "model", "module"), str)
    return table.astype(words).assign(seed=units)


def by_adapter(rows: pd.DataFrame, names: tuple[str, ...], measure: Callable[..., Any]) -> Any:
    """Measures of the rows of each adapter, by scale and unit; one without rows is left out."""
    found = []
    for (scale, unit), own in rows.groupby(["log10_init_scale", "seed"]):
        values = dict(zip(names, measure(own), strict=True))
        found.append({"log10_init_scale": scale, "seed": unit, **values})
    table = pd.DataFrame(found, columns=["log10_init_scale", "seed", *names])
    return {name: by_scale(table, name) for name in names}


def errors(rows: pd.DataFrame, forecast: str) -> Any:
    """The largest error of a time at the small size, also by the nulls, and the median one.

    They are of the directions that the forecast has there before the loss has fallen, `n_near` of
    them. What was not reached has an infinite error.
    """
    near = rows[(rows["size"] == SMALL) & (rows[forecast] <= rows["horizon"])]
    names = {"time_error": forecast} | {f"time_error_{of}": of for of in NULLS}

    def measure(own: pd.DataFrame) -> list[float]:
        off = [(own["measured"] / own[of] - 1).abs() for of in names.values()]
        return [len(own), off[0].median(), *(one.max() for one in off)]

    return by_adapter(near, ("n_near", "median_error", *names), measure)


def orders(rows: pd.DataFrame, forecast: str) -> Any:
    """Kendall's tau of the order of all directions, by `taus`."""
    own = rows[rows["size"] == SMALL]
    names = tuple(taus(own, forecast))
    return by_adapter(own, names, lambda one: [*taus(one, forecast).values()])


def taus(rows: pd.DataFrame, forecast: str) -> dict[str, float]:
    """Kendall's tau of the times with what is forecast, and with σ alone.

    What was not reached comes last. Where Adam trains, `order_descent` is descent's forecast.
    """
    said = {"order": rows[forecast], "order_sigma": -rows["sigma"]}
    said["order_shuffled"] = rows["shuffled"]
    if forecast == "signs":
        said["order_descent"] = rows["forecast"]
    times = rows["measured"].to_numpy(float)
    return {name: order_agreement(times, of.to_numpy(float)) for name, of in said.items()}


def drawn_orders(learned: pd.DataFrame) -> pd.DataFrame:
    """The taus of each adapter by descent and by Adam, a row each."""
    rows = plain(learned[learned["size"] == SMALL])
    found = []
    for case in ("descent", "adam"):
        own = rows[rows["case"] == case]
        for (scale, unit), one in own.groupby(["log10_init_scale", "seed"]):
            told = {"case": case, "log10_init_scale": scale, "seed": unit}
            found.append(told | taus(one, "signs" if case == "adam" else "forecast"))
    return pd.DataFrame(found)


def late(rows: pd.DataFrame, forecast: str) -> Any:
    """The shares of directions that come within a tenth of their forecast, and of late ones.

    They are of all that are forecast within the training, at each size. `came_last` is the share of
    the last directions of modules, of those forecast within its first half, that come at all.
    """
    within = rows[rows[forecast] <= rows["n_steps"]]
    last = within["direction"] == rows["direction"].max()
    half = within[forecast] <= within["n_steps"] / 2
    small, larger = (within["size"] == size for size in SIZES)

    def measure(own: pd.DataFrame) -> list[float]:
        ratio = own["measured"] / own[forecast]
        return [((ratio - 1).abs() <= NEAR).mean(), (ratio > 1 + NEAR).mean()]

    def came(own: pd.DataFrame) -> list[float]:
        return [np.isfinite(own["measured"]).mean()]

    return {
        **by_adapter(within[small], ("on_time", "late"), measure),
        **by_adapter(within[larger], ("on_time_larger", "late_larger"), measure),
        **by_adapter(within[small & last & half], ("came_last",), came),
    }


def cuts(learned: pd.DataFrame) -> Any:
    """The median share to which λ cuts a time, of directions that both adapters have while their
    updates are small, what is forecast, and 1 / √λ.
    """
    key = ["log10_init_scale", "seed", "module", "direction"]
    small = learned[(learned["size"] == SMALL) & (learned["forecast"] <= learned["horizon"])]
    plus, plain_one = (small[small["case"] == case] for case in ("plus", "descent"))
    both = plus.merge(plain_one, on=key, suffixes=("", "_one"))
    rates = both["rate"] / both["rate_one"]
    both["cut"] = rates * both["measured"] / both["measured_one"]
    both["said"] = rates * both["forecast"] / both["forecast_one"]

    def measure(own: pd.DataFrame) -> list[float]:
        over = (own["cut"] / own["said"]).median()
        return [own["cut"].median(), over, (own["cut"] * own["ratio"] ** 0.5).median()]

    return by_adapter(both, ("cut", "cut_over_said", "cut_over_root"), measure)


if __name__ == "__main__":
    run(main)
