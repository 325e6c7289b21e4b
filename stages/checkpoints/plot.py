"""Draw the figures of the tables in a folder: of the example, or of what is published."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from lib.checkpoints.figures import (
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
from lib.files.files import InputError
from lib.files.tables import read_tables
from lib.pages.bars import read_bars
from lib.pages.style import as_svg
from lib.work.command import OutFolder, run
from lib.work.compute import write_figures

# The tables of each figure, each with the columns by which it is known.
PLANS = {"plans": "model run budget rule shuffle share_lost ranks"}
FIGURES: dict[str, tuple[Callable[..., Figure], dict[str, str]]] = {
    "plans": (share_lost, PLANS),
    "ranks": (ranks_of_modules, PLANS | {"modules": "model run module rows cols"}),
    "pruning": (
        pruned,
        {"pruning": "model run what rate loss", "losses": "model run loss_tuned gain"},
    ),
    "rounding": (rounding, {"rounding": "model relative_update rank_90 rank_90_stored"}),
    "heads": (heads_through_training, {"heads": "model text step layer module stable_rank"}),
    "adapters": (trained_adapters, {"trained": "model rule fine_tune seed n_steps loss"}),
    "rules": (
        rules_by_architecture,
        {"rules": "architecture base kind budget rule shuffle share_lost"},
    ),
    "runtimes": (runtimes, {"runtimes": "adapter ranks peft llama_cpp"}),
    "fitted": (cut_or_trained, {"fitted": "architecture base loss_base loss_tuned cut trained"}),
}

CLAIMS = Path(__file__).with_name("claims.yaml")
BARS = {  # the claims whose bars are drawn, by figure
    "pruning": "smallest_updates_go_first",
    "rounding": "rounding_overstates_the_rank",
    "heads": "learned_rank_above_null",
    "adapters": "trained_attributed_beats_uniform",
    "rules": "attributed_beats_others_elsewhere",
    "runtimes": "equal_ranks_are_right_in_llama_cpp",
}


def main(tables: Path, figures: OutFolder) -> None:
    write_figures(figures, drawings(tables), as_svg)


def drawings(tables: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn whose tables are there."""
    there = {path.stem for path in tables.glob("*.parquet")}
    chosen = {name: figure for name, figure in FIGURES.items() if there.issuperset(figure[1])}
    if not chosen:
        raise InputError(f"{tables}: wanted the tables of a figure, got {sorted(there)}")
    bars = read_bars(CLAIMS)
    found: dict[str, Callable[[], Figure]] = {}
    for name, (draw, needed) in chosen.items():
        more = {"bar": bars[BARS[name]]} if name in BARS else {}
        found[name] = partial(draw, *read_tables(tables, needed).values(), **more)
    return found


if __name__ == "__main__":
    run(main)
