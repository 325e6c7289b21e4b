"""Draw the figures of the tables in a folder: of the example, or of published/rank_patterns."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from lib.checkpoints.figures import (
    early_ranks,
    heads_through_training,
    pruned,
    ranks_of_modules,
    rounding,
    share_lost,
    trained_adapters,
)
from lib.files.files import InputError, clear, write_files
from lib.files.tables import read_table
from lib.pages.style import as_svg
from lib.work.command import OutFolder, run
from lib.work.compute import spread_by_name

# The tables of each figure.
FIGURES: dict[str, tuple[Callable[..., Figure], tuple[str, ...]]] = {
    "plans": (share_lost, ("plans",)),
    "ranks": (ranks_of_modules, ("plans", "modules")),
    "pruning": (pruned, ("pruning", "losses")),
    "rounding": (rounding, ("rounding",)),
    "ranks-through-tuning": (early_ranks, ("ranks",)),
    "heads": (heads_through_training, ("heads",)),
    "adapters": (trained_adapters, ("trained",)),
}


def main(tables: Path, figures: OutFolder) -> None:
    jobs = {f"{name}.svg": (draw,) for name, draw in drawings(tables).items()}
    drawn = spread_by_name(as_svg, jobs, label="figures", unit="figure")
    clear(figures, "*.svg")
    write_files(figures, drawn)


def drawings(tables: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn whose tables are there."""
    there = {path.stem for path in tables.glob("*.parquet")}
    chosen = {
        name: (draw, names) for name, (draw, names) in FIGURES.items() if there.issuperset(names)
    }
    if not chosen:
        raise InputError(f"{tables}: wanted the tables of a figure, got {sorted(there)}")
    read = {
        name: read_table(tables / f"{name}.parquet")
        for name in {n for _, names in chosen.values() for n in names}
    }
    return {
        name: partial(draw, *(read[n] for n in names)) for name, (draw, names) in chosen.items()
    }


if __name__ == "__main__":
    run(main)
