"""Why Transformers depart from Algorithm 1: `python -m published.transformers_seed_by_seed.run`.

The problem `transformer` on more seeds and from smaller scales. From the scale that is studied each
seed is followed thrice: as it is, by a finer solver, and from an equal start, u = α and v = 0 in
every coordinate, which has no offset of its own. Algorithm 1 is run thrice: as it is, from a
smaller kick, and counted at the finite scale. All samples give the implicit solver's matrix.

Tables, the figure, measures and where they come from are kept beside this program; claims and
report read them. Some 140 seconds of one CPU core, and nearly none where the cells are kept.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from safetensors.torch import load, save

from lib.files.files import write_files
from lib.files.params import read_params
from lib.files.tables import compact, read_table, write_table
from lib.gradual_rank.departures import (
    agrees_from,
    difference,
    in_common,
    joins,
    off_plateaus,
    rises,
)
from lib.gradual_rank.figures.departures import departures
from lib.gradual_rank.flow import Solver
from lib.gradual_rank.measures import by_scale, departed
from lib.gradual_rank.tasks import read_problems
from lib.pages.bars import read_bars
from lib.pages.measures import Row, rows_of, setup_rows, write_measures
from lib.pages.style import as_svg
from lib.training.devices import use_threads
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import run
from lib.work.compute import write_figures
from stages.gradual_rank import flow, generate, greedy
from tools.publish import write_provenance

NAME = "transformer"
SEEDS = range(12)
SCALES = (-4.0, -8.0, -16.0, -32.0, -64.0, -128.0, -256.0, -1000.0)  # log10
STUDIED = -32.0
KICK = 1e-6  # a hundredth of the usual one
FINER = {"rtol": 1e-9, "atol": 1e-7}  # a thousandth of the usual ones
NEAR = 0.05  # products that are closer to Algorithm 1's follow it
OUT = Path("published/transformers_seed_by_seed")
CLAIMS = Path(__file__).parents[2] / "stages/gradual_rank/claims.yaml"  # whose bar is drawn
COMMAND = "python -m published.transformers_seed_by_seed.run"
HEADLINES = {"foretold": ("foretold", "")}
Schema = TypeVar("Schema")


@dataclass(frozen=True)
class Numbers:
    """What params say of flows and of Algorithm 1, and which plateaus last."""

    rest: float
    grown: float
    stop_loss: float
    lasting: float
    significant: float
    solver: Solver


def main() -> None:
    use_threads(1)
    begun = time.monotonic()
    numbers = read_numbers()
    with TemporaryDirectory() as folder:
        found = [follow(seed, numbers, Path(folder)) for seed in SEEDS]
    seeds = pd.DataFrame([seed_row(tables, numbers) for tables in found])
    plateaus = joined(found, "off_plateaus")
    orders = joined(found, "orders")
    tables = {"seeds": seeds, "plateaus": plateaus, "orders": orders}
    for name, table in tables.items():
        write_table(compact(table), OUT / "tables" / f"{name}.parquet")
    ends = last_plateaus(seeds, plateaus)
    write_measures(setup_rows(said(seeds)) + measures(seeds, ends), OUT, HEADLINES)
    write_figures(OUT / "figures", drawings(OUT), as_svg)
    scales = {"log10_init_scales": list(SCALES), "studied": STUDIED, "kick": KICK, "near": NEAR}
    noted = {"solver": asdict(numbers.solver), "finer": FINER, **scales}
    write_provenance(OUT, COMMAND, begun, noted, SEEDS)


def last_plateaus(seeds: pd.DataFrame, plateaus: pd.DataFrame) -> pd.DataFrame:
    """The last plateau of each seed that lasts, at every init scale, with the kind of the seed."""
    last = seeds[["seed", "last_stage", "kind"]].rename(columns={"last_stage": "stage"})
    return plateaus.merge(last, on=["seed", "stage"])


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn, from what is kept in the folder."""
    seeds, plateaus, orders = (
        read_table(folder / "tables" / f"{name}.parquet")
        for name in ("seeds", "plateaus", "orders")
    )
    ends = last_plateaus(seeds, plateaus)
    studied = plateaus[plateaus["log10_init_scale"] <= STUDIED]
    asked = read_bars(CLAIMS)["transformer_products"]
    return {"transformers-seeds": partial(departures, ends, studied, orders, NEAR, asked)}


def read_numbers() -> Numbers:
    """The params, but for the flow's own tolerances and the curvature of all samples."""
    flows, stages, evaluated = (
        read_params(f"gradual_rank.{name}", dict) for name in ("flow", "greedy", "evaluate")
    )
    tolerances = {name: flows[name] for name in ("rtol", "atol")}
    common = read_params("gradual_rank.solver", Solver)
    return Numbers(
        rest=flows["rest"],
        grown=flows["grown"],
        stop_loss=stages["stop_loss"],
        lasting=evaluated["lasting"],
        significant=evaluated["significant"],
        solver=replace(common, **tolerances, curvature_share=1.0),
    )


def of_problem(schema: type[Schema]) -> Schema:
    """The problem's line of the table of problems."""
    table = Path(read_params("gradual_rank.cases", dict)["problems"])
    problems = read_problems(table, schema, "gradual_rank.problem")
    return next(one for one in problems if vars(one)["name"] == NAME)


def follow(seed: int, numbers: Numbers, folder: Path) -> Tables:
    """A seed's stages, its plateaus and events from every scale, and what checks them."""
    files = {name: folder / f"{name}.safetensors" for name in ("own", "equal")}
    own = generate.make(replace(of_problem(generate.Problem), n_seeds=1, first_seed=seed))
    toy = load(own)
    equal = save({**toy, "u": torch.ones_like(toy["u"]), "v": torch.zeros_like(toy["v"])})
    write_files(folder, {"own.safetensors": own, "equal.safetensors": equal})
    ask = (greedy.predict, files["own"], of_problem(greedy.Problem).max_stages, numbers.stop_loss)
    kicked = replace(numbers.solver, kick=KICK)
    no_own = (None, None)  # no loss of one's own
    both = {
        "usual": [(*ask, numbers.solver, 0, *no_own)],
        "kicked": [(*ask, kicked, 0, *no_own)],
    }
    predicted = spread_cells(both, label=f"seed {seed}", unit="prediction")
    stages = joined(predicted["usual"], "stages")
    last = float(stages["time"].max())
    file = folder / "stages.parquet"
    write_table(stages, file)
    problem = replace(of_problem(flow.Problem), n_times=2)

    def job(start: str, scale: float, solver: Solver) -> tuple[Any, ...]:
        alone = replace(problem, flow_scales=(scale,))
        files_of = (files[start], file)
        return (flow.follow, *files_of, alone, numbers.rest, numbers.grown, solver, 0, True, None)

    ways = {
        "finite": [(greedy.foretell, files["own"], last, STUDIED, numbers.solver, 0, *no_own)],
        "own": [job("own", scale, numbers.solver) for scale in SCALES],
        "equal": [job("equal", STUDIED, numbers.solver)],
        "finer": [job("own", STUDIED, replace(numbers.solver, **FINER))],
    }
    flows = spread_cells(ways, label=f"seed {seed}", unit="flow")
    plateaus = {way: joined(cells, "plateaus") for way, cells in flows.items()}
    at = f"log10_init_scale == {STUDIED}"
    found = {
        "stages": stages,
        "kicked": joined(predicted["kicked"], "stages"),
        "finite": joined(flows["finite"], "events"),
        "events": joined(flows["own"], "events").query(at),
        "plateaus": plateaus["own"].query(at),
        "finer": plateaus["finer"],
        "off_plateaus": off_plateaus(stages, plateaus["own"]),
        "off_equal": off_plateaus(stages, plateaus["equal"]),
    }
    return found | {"orders": orders_of(found)}


def seed_row(found: Tables, numbers: Numbers) -> dict[str, Any]:
    """What a seed does on its last plateau that lasts, and what its departure may be due to."""
    stages = found["stages"]
    later = stages[stages["stage"] > 0]
    ahead = stages[np.isfinite(stages["next_time"])]
    last = int(later.loc[later["next_time"] / later["time"] - 1 > numbers.lasting, "stage"].max())
    off = found["off_plateaus"]
    there = off[(off["stage"] == last) & (off["log10_init_scale"] == STUDIED)].iloc[0]
    near = there["error"] <= NEAR
    errors = off[off["stage"] == last].set_index("log10_init_scale")["error"]
    kind, which = difference(stages, found["plateaus"], last, numbers.significant)
    algorithm, risen = joins(stages), rises(found["events"])
    finite = rises(found["finite"])
    parts = in_common(algorithm, risen)
    other = parts < min(len(algorithm), len(risen))
    equal = found["off_equal"].set_index("stage")
    return {
        "seed": int(stages["seed"].iloc[0]),
        "kind": "follows" if near else kind,
        "which": which,
        "last_stage": last,
        "error": there["error"],
        "relaxations": there["relaxations"],
        "parts_at": parts + 1 if other else 0,
        "joins": algorithm[parts][0] if other else -1,
        "rises": risen[parts][0] if other else -1,
        "n_dropped": int(later.loc[later["stage"] <= last, "n_dropped"].sum()),
        "error_equal": equal.loc[last, "error"],
        "error_finer": apart(found["finer"], found["plateaus"]),
        "error_kick": apart(found["kicked"], stages),
        "least_gap": (ahead["gap"] / ahead["next_time"]).min(),
        "least_strictness": later["strictness_weights"].min(),
        "least_pull": departed(stages)["pull"].min(),
        "agrees_from": agrees_from(errors, NEAR),
        "foretold": in_common(finite, risen) / len(finite),
        "foretold_limit": parts / len(algorithm),
    }


def apart(one: pd.DataFrame, other: pd.DataFrame) -> float:
    """The largest difference of a product over the stages."""
    both = one.merge(other, on="stage")
    return max(float(np.abs(p - q).max()) for p, q in zip(both["p_x"], both["p_y"], strict=True))


def orders_of(found: Tables) -> pd.DataFrame:
    """When what rises does so in the flow, and by the finite-scale form and by Algorithm 1."""
    unit = -STUDIED * math.log(10)
    key = ["seed", "coordinate", "sign"]
    flows, finite = (
        found[name].query("rises").groupby(key)["time"].min() / unit
        for name in ("events", "finite")
    )
    limit = found["stages"].query("stage > 0").groupby(key)["time"].min()
    return pd.DataFrame({"flow": flows, "finite": finite, "limit": limit}).reset_index()


def measures(seeds: pd.DataFrame, ends: pd.DataFrame) -> list[Row]:
    """What claims say, by seed; of what departs, and of what follows, where the name says so."""
    rows = seeds.set_index("seed")
    departs = rows[rows["kind"] != "follows"]
    of_all = ("error_finer", "error_kick", "least_gap", "least_strictness", "least_pull")
    ways = ("foretold", "foretold_limit")
    found: dict[str, Any] = {name: rows[name].dropna() for name in (*of_all, *ways)}
    found["error"] = by_scale(ends, "error")
    found["departed_error_equal"] = departs["error_equal"]
    found["departed_dropped"] = departs["n_dropped"]
    found["following_dropped"] = rows["n_dropped"].drop(departs.index)
    relaxed = [
        row
        for kind, own in rows.groupby("kind")
        for row in rows_of({"relaxations": own["relaxations"]}, str(kind))
    ]
    return rows_of(found) + relaxed


def said(seeds: pd.DataFrame) -> dict[str, float | str]:
    """What statements say of the seeds, and how they were followed."""
    kinds = seeds["kind"].value_counts()
    departs = seeds[seeds["kind"] != "follows"]
    counts = {f"n_{kind}": int(kinds.get(kind, 0)) for kind in ("follows", "late", "another")}
    problem = of_problem(generate.Problem)
    return {
        **counts,
        "n_seeds": len(seeds),
        "n_departed": len(departs),
        "n_departed_equal": int((departs["error_equal"] > NEAR).sum()),
        "n_flat": int((seeds["least_strictness"] <= 0).sum()),
        "n_layers": problem.n_layers or 1,
        "n_heads": problem.n_heads or 1,
        "studied": f"1e{STUDIED:g}",
        "agrees_from": f"1e{departs['agrees_from'].min():g}",
        "near": NEAR,
    }


if __name__ == "__main__":
    run(main)
