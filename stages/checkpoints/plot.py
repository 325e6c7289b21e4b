"""Draw the figures of the tables in a folder: of the example, or of what is published."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from lib.checkpoints.figures.fine_tunes import (
    cut_or_trained,
    heads_through_training,
    pruned,
    ranks_of_modules,
    rounding,
    rules_by_architecture,
    runtimes,
    share_lost,
    trained_adapters,
)
from lib.checkpoints.tables.drawn import DRAWN
from lib.checkpoints.tables.published import PUBLISHED
from lib.files.files import InputError
from lib.pages.bars import read_bars
from lib.pages.style import as_svg
from lib.work.command import OutFolder, run
from lib.work.compute import write_figures
from lib.work.schemas import read_tables_there

# The function that draws each figure, and the tables that it takes.
FIGURES: dict[str, tuple[Callable[..., Figure], list[str]]] = {
    "plans": (share_lost, ["plans"]),
    "ranks": (ranks_of_modules, ["plans", "modules"]),
    "pruning": (pruned, ["pruning", "losses"]),
    "rounding": (rounding, ["rounding"]),
    "heads": (heads_through_training, ["heads"]),
    "adapters": (trained_adapters, ["trained"]),
    "rules": (rules_by_architecture, ["rules"]),
    "runtimes": (runtimes, ["runtimes"]),
    "fitted": (cut_or_trained, ["fitted"]),
}

CLAIMS = Path(__file__).with_name("claims.yaml")
BARS = {  # the claims whose bars are drawn, by figure
    "pruning": "smallest_updates_go_first",
    "rounding": "rounding_overstates_the_rank",
    "heads": "learned_rank_above_null",
    "adapters": "trained_attributed_beats_uniform",
    "rules": "attributed_beats_others_elsewhere",
    "runtimes": "equal_ranks_are_right_in_llama_cpp",
    "fitted": "trained_beats_cut",
}


def main(tables: Path, figures: OutFolder) -> None:
    write_figures(figures, drawings(tables), as_svg)


def drawings(tables: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn whose tables are there."""
    read = read_tables_there(DRAWN | PUBLISHED, tables)
    chosen = {name: figure for name, figure in FIGURES.items() if read.keys() >= {*figure[1]}}
    if not chosen:
        raise InputError(f"{tables}: wanted the tables of a figure, got {sorted(read)}")
    bars = read_bars(CLAIMS)
    found: dict[str, Callable[[], Figure]] = {}
    for name, (draw, needed) in chosen.items():
        more = {"bar": bars[BARS[name]]} if name in BARS else {}
        found[name] = partial(draw, *(read[one] for one in needed), **more)
    return found


if __name__ == "__main__":
    run(main)
