"""Draw the example's figures from tables in git."""

from pathlib import Path

from lib.figures.checkpoints import heads_through_training, pruned, ranks_of_modules, rounding, share_lost
from lib.figures.style import rendered, styled
from lib.io.command import run
from lib.io.files import write_files
from lib.io.tables import read_table


def main(tables: Path, figures: Path) -> None:
    names = ("plans", "modules", "losses", "pruning", "rounding", "heads")
    plans, modules, losses, pruning, rounded, heads = (read_table(tables / f"{name}.parquet") for name in names)
    with styled():
        drawn = {
            "plans": share_lost(plans),
            "ranks": ranks_of_modules(plans, modules, int(plans["budget"].median())),
            "pruning": pruned(pruning, losses),
            "rounding": rounding(rounded),
            "heads": heads_through_training(heads),
        }
        write_files(figures, {f"{name}.svg": rendered(figure) for name, figure in drawn.items()})


if __name__ == "__main__":
    run(main)
