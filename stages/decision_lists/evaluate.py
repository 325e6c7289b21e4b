"""Make what git keeps of the family: tables for figures, metrics, and measures for claims."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd

from lib.decision_lists.lists import read_tasks
from lib.decision_lists.measures import measures, setup
from lib.decision_lists.shown import condensed, run_shown
from lib.decision_lists.tables.certify import FOLDER as CERTIFY
from lib.decision_lists.tables.check import FOLDER as CHECK
from lib.decision_lists.tables.control import FOLDER as CONTROL
from lib.decision_lists.tables.descend import FOLDER as DESCEND
from lib.decision_lists.tables.drawn import DRAWN
from lib.decision_lists.tables.factored import FOLDER as FACTORED
from lib.decision_lists.tables.flow import FOLDER as FLOW
from lib.decision_lists.tables.follow import FOLDER as FOLLOW
from lib.decision_lists.tables.scales import FOLDER as SCALES
from lib.decision_lists.tables.spectra import SPECTRA
from lib.decision_lists.tables.train import FOLDER as TRAIN
from lib.files.files import InputError
from lib.files.params import Fraction, Interval, Positive, Seed, read_params
from lib.files.tables import compact, write_csv
from lib.pages.measures import setup_rows, write_measures
from lib.work.command import OutFile, OutFolder, run
from lib.work.schemas import read_tables_there, write_tables_of

HEADLINES = {"late_slope": ("late_slope", "")}
CURVES = ["task", "step", "cosine", "centred_cosine", "accuracy"]


@dataclass(frozen=True)
class Evaluate:
    """What the claims and figures look at.

    The time law from scales of `law_from` on; the rank, of singular values above `rtol` of the
    largest, between `early_begin` and `early_end`; by name, the tasks whose course is drawn, at
    about `path_points` points, and the one, with its seed, whose weights and attention are.
    """

    paths: tuple[str, ...]
    path_points: Annotated[int, Interval("[2, 10000]")]
    shown_task: str
    shown_seed: Seed
    shown_sequences: Annotated[int, Interval("[1, 6]")]
    law_from: Positive
    early_begin: Positive
    early_end: Positive
    rtol: Fraction


def main(
    section: str,
    of_flow: Path,
    of_scales: Path,
    of_train: Path,
    flow: Path,
    scales: Path,
    descend: Path,
    train: Path,
    control: Path,
    check: Path,
    certify: Path,
    factored: Path,
    follow: Path,
    joint: Path,
    spectra: Path,
    metrics: OutFolder,
    curves: OutFile,
) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` in metrics, and the curves of V."""
    params = read_params(section, Evaluate)
    tasks = {task.name: task for task in read_tasks(of_flow, of_scales, of_train)}
    if params.shown_task not in tasks:
        raise InputError(
            f"{section}.shown_task: wanted a task of {of_train}, got {params.shown_task!r}"
        )
    tables = {
        **read_tables_there(FLOW, flow),
        **read_tables_there(SCALES, scales),
        **read_tables_there(DESCEND, descend),
        **read_tables_there(TRAIN, train),
        **read_tables_there(CONTROL, control),
        **read_tables_there(CHECK, check),
        **read_tables_there(CERTIFY, certify),
        **read_tables_there(FACTORED, factored),
        **read_tables_there(FOLLOW, follow),
        "spectra": SPECTRA.read(spectra),
    }
    tables |= condensed(
        tables,
        tasks,
        paths=params.paths,
        n_points=params.path_points,
        rtol=params.rtol,
        early=(params.early_begin, params.early_end),
        where=f"{section}.paths",
    )
    tables |= run_shown(tasks[params.shown_task], joint, params.shown_seed, params.shown_sequences)

    said = setup(tables) | {
        "law_from": params.law_from,
        "early": f"{params.early_begin:g} to {params.early_end:g}",
        "rtol": params.rtol,
    }
    measured = setup_rows(said) + measures(tables, params.law_from)
    drawn = {name: one for name, one in DRAWN.items() if name in tables}
    # Times span more decades than single precision has.
    small = {name: compact(tables[name], single_precision=False) for name in drawn}
    write_tables_of(drawn, small, metrics / "tables")
    write_measures(measured, metrics, HEADLINES)
    course = tables.get("alignment", pd.DataFrame(columns=CURVES))
    write_csv(course[CURVES].rename(columns={"task": "variant"}), curves)


if __name__ == "__main__":
    run(main)
