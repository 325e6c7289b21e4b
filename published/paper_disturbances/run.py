"""Figures 9 and 10 at the paper's size: `python -m published.paper_disturbances.run`.

The head is the problem `whole` (`dvc repro gradual_rank_greedy`); what disturbs it is the section
`gradual_rank.assumptions`, but for one seed, coarser tolerances, no stages that begin elsewhere,
and the duration. The loss is a mean over entries, so that g is the smaller the larger d: 1000 units
of time are 12 times T₁ of the first stage here, and 17 to 105 times in the small heads. So the
flows go on for 9000, 105 times T₁, and are looked at after 1000 as well.

Tables, figures, measures and where they come from are kept beside this program; claims and report
read them. Eight minutes of one CPU core.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from lib.files.params import read_params
from lib.files.tables import compact, read_table, write_table
from lib.gradual_rank.figures.disturbances import disturbed_at_a_rise, disturbed_at_random
from lib.gradual_rank.measures import assumption_measures, by_case, end_distances
from lib.gradual_rank.tasks import read_head
from lib.pages.bars import read_bars
from lib.pages.measures import read_measures, rows_of, setup_rows, write_measures
from lib.pages.style import as_svg
from lib.training.devices import use_threads
from lib.work.cells import joined, spread_cells
from lib.work.command import run
from lib.work.compute import write_figures
from stages.gradual_rank.assumptions import Assumptions, disturb
from tools.publish import write_provenance

# not as in the section
OWN = {"n_seeds": 1, "n_kicks": 0, "rtol": 1e-6, "atol": 1e-5, "duration": 9000.0}
EARLY = 1000.0  # the paper's duration
CURVATURE_SHARE = 0.125
OUT = Path("published/paper_disturbances")
CLAIMS = Path(__file__).parents[2] / "stages/gradual_rank/claims.yaml"  # whose bar is drawn
COMMAND = "python -m published.paper_disturbances.run"
HEADLINES = {"return_share_independent": ("return_share_independent", "")}


@dataclass(frozen=True)
class Bars:
    """When what is disturbed has come back."""

    returned: float
    near: float


def main(
    task: Path = Path("data/gradual_rank/tasks/whole.safetensors"),
    stages: Path = Path("data/gradual_rank/predictions/whole_stages.parquet"),
) -> None:
    use_threads(1)
    begun = time.monotonic()
    params = replace(read_params("gradual_rank.assumptions", Assumptions), **OWN)
    bars = read_params("gradual_rank.bars", Bars, part=True)
    jobs = [(disturb, task, stages, params, CURVATURE_SHARE, seed) for seed in params.seeds]
    found = spread_cells({"": jobs}, label="paper_disturbances", unit="seed")[""]
    returns, paths, kicks = (joined(found, name) for name in ("returns", "paths", "kicks"))
    ends = end_distances(paths)
    early = end_distances(paths[paths["after"] <= EARLY])
    independent = paths[paths["noise"] == "independent"]
    tables = {"returns": returns, "path_ends": ends, "early": early, "paths": independent}
    for name, table in tables.items():
        write_table(compact(table), OUT / "tables" / f"{name}.parquet")
    d = read_head(task).X.shape[-1]
    setup = {"d_model": d, "duration": params.duration, "early": EARLY, **asdict(bars)}
    measured = assumption_measures(returns, kicks, ends, bars.returned, bars.near)
    rows = setup_rows(setup) + rows_of(measured)
    for case, table in {"early": early, "late": ends}.items():
        own = table[table["noise"] == "independent"].groupby("kind")
        for measure, kind in (("random_distance", "random"), ("rise_distance", "rise")):
            values = by_case(own.get_group(kind), "distance", "point")
            rows += rows_of({measure: values}, case)
    write_measures(rows, OUT, HEADLINES)
    write_figures(OUT / "figures", drawings(OUT), as_svg)
    noted = {"assumptions": asdict(params), "curvature_share": CURVATURE_SHARE}
    write_provenance(OUT, COMMAND, begun, noted, params.seeds)


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn, from what is kept in the folder."""
    paths = read_table(folder / "tables" / "paths.parquet")
    d_model = int(read_measures(folder / "measures.csv")["setup"]["d_model"])
    asked = read_bars(CLAIMS)["size_disturbed_returns"]
    return {
        "figure-9-size": partial(disturbed_at_random, paths, d_model, asked),
        "figure-10-size": partial(disturbed_at_a_rise, paths, d_model, asked),
    }


if __name__ == "__main__":
    run(main)
