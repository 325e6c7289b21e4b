"""Which ranks, and which entries, keep what a training gained: plans at equal budgets and pruning.

`lib/checkpoints/measured_plans.py` says what is measured. Without TEXT (`-`) nothing is. The file
`without` names modules that no plan has, such as those that peft refuses (`{module: why}` in JSON).

With `thorough=no` only what decides or is quoted is measured: no shuffles and no pruning; of each
budget the losses of the chosen rule and of uniform alone; on the samples that choose, rules that
are far above the best after some parts go no further; and the search for least budgets takes half
of the measured samples where these are certain. What was not measured is no number. The ends of the
gain, which the check of a text measures, are not measured again.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lib.checkpoints.adapters import whether
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.known_structures import known_places
from lib.checkpoints.measured_plans import Plan, n_losses, tables_of_plans
from lib.checkpoints.memory import check_plan_memory
from lib.checkpoints.models import check_architecture
from lib.checkpoints.snapshots import last_of_runs
from lib.checkpoints.split_texts import Measure
from lib.checkpoints.tables.decomposed import RANKED
from lib.checkpoints.tables.planned import FOLDER
from lib.files.files import clear
from lib.files.memory import available_memory
from lib.files.params import read_params
from lib.files.tables import read_json
from lib.training.devices import use_device
from lib.work.cells import Tables
from lib.work.command import OutFolder, run
from lib.work.compute import available_cores, spread
from lib.work.schemas import write_joined


def main(
    section: str,
    measure: str,
    base: Path,
    tuned: Path,
    text: str,
    spectra: Path,
    factors: Path,
    plans: OutFolder,
    modules_to_save: str = "no",
    without: str = "-",
    thorough: str = "yes",
) -> None:
    saved = whether("modules_to_save", modules_to_save)
    wholly = whether("thorough", thorough)
    left = [] if without == "-" else list(read_json(Path(without)))
    params = read_params(section, Plan)
    if not wholly:
        params = replace(params, n_shuffles=0, pruning_rates=())
    sizes = read_params(measure, Measure)
    use_device(params.device)
    begun = open_checkpoint(base)
    last = last_of_runs(begun, tuned)
    if text != "-" or known_places(begun) is None:
        check_architecture(base, begun.config)  # the library is loaded once, before workers would
    n_bytes = check_plan_memory(begun, text, params.device)
    table = RANKED.read(spectra)
    clear(plans, *(f"{name}.parquet" for name in FOLDER))
    jobs = []
    for name, one in last.items():
        rows = table[(table["run"] == name) & (table["step"] == one.step)]
        folders = (base, one.checkpoint.folder, factors / name)
        jobs.append((params, sizes, *folders, text, rows, name, saved, left, wholly))
    n_fit = available_memory() // n_bytes if params.device == "cpu" else 1
    found = spread(
        planned,
        jobs,
        label=f"plans of {tuned}",
        unit="checkpoint" if text == "-" else "loss",
        total=None if text == "-" else len(jobs) * n_losses(params, sizes, thorough=wholly),
        n_processes=max(1, min(available_cores(), n_fit)),
        n_bytes=n_bytes,
        device=params.device,
    )
    write_joined(FOLDER, list(found), plans)


def planned(
    params: Plan,
    sizes: Measure,
    base: Path,
    tuned: Path,
    factors: Path,
    text: str,
    rows: pd.DataFrame,
    name: str,
    saved: bool,
    left: Collection[str],
    thorough: bool,
) -> Tables:
    """The tables of one tuned checkpoint, of whose modules some are left out."""
    how = {"saved": saved, "left": left, "thorough": thorough}
    found = tables_of_plans(params, sizes, base, tuned, factors, text, rows, **how)
    return {key: one.assign(run=name) for key, one in found.items()}


if __name__ == "__main__":
    run(main)
