"""Write a LoRA adapter for each budget of a plan, by the rule that was chosen for it.

That is the rule with which the base has the lowest measured loss, where it is below that of one
uniform rank by more than the noise; where nothing was measured, one uniform rank. An adapter is the
update of the linear modules, cut. With `modules_to_save`, as the plan was measured with, it carries
whole what else was tuned: embeddings, head, norms, biases; then live models are opened, where else
weights alone are read. With `ranks` equal every module is padded to the largest rank, which
runtimes without patterns need. `name` is the base's, where it is not that of the hub. `without`
names the modules that no plan has, and why. `adapters.json` says what each is, and what it lacks.
"""

from pathlib import Path

import pandas as pd

from lib.checkpoints.adapters import FILES, LISTED, whether
from lib.checkpoints.cut_adapters import Fit, module_factors, write_adapters
from lib.checkpoints.factors import read_factors
from lib.checkpoints.folders import aligned, hub_name, open_checkpoint
from lib.checkpoints.snapshots import last_of_runs
from lib.checkpoints.tables.planned import ADAPTED
from lib.files.files import clear
from lib.files.tables import read_json, write_json
from lib.work.command import OutFolder, run
from lib.work.schemas import read_tables_of


def main(
    base: Path,
    tuned: Path,
    plans: Path,
    factors: Path,
    adapters: OutFolder,
    modules_to_save: str = "no",
    ranks: str = "mixed",
    name: str = "",
    without: str = "-",
) -> None:
    refused = {} if without == "-" else read_json(Path(without))
    whole = whether("modules_to_save", modules_to_save)
    equal = whether("ranks", ranks, ("equal", "mixed"))
    begun = open_checkpoint(base)
    last = last_of_runs(begun, tuned)
    tables = read_tables_of(ADAPTED, plans)
    all_plans = tables["plans"]
    all_modules = tables["modules"]
    of_run = {row["run"]: row for row in tables["losses"].to_dict("records")}
    fits = [
        Fit(
            run=name,
            checkpoint=one.checkpoint,
            folder=adapters / name if len(last) > 1 else adapters,
            plans=chosen(all_plans[all_plans["run"] == name]),
            modules=all_modules[all_modules["run"] == name],
            losses=of_run[name],
        )
        for name, one in last.items()
    ]
    files = [depth + name for depth in ("rank-*/", "*/rank-*/") for name in FILES]
    clear(adapters, LISTED, *files)
    named = name or hub_name(begun)  # a name on the hub, or a path
    listed = []
    for fit in fits:
        own = aligned(begun, fit.checkpoint)
        of_module = module_factors(own, fit, read_factors(factors / fit.run))
        how = {"whole": whole, "equal": equal, "refused": refused}
        listed += write_adapters(own, fit, of_module, adapters, named, **how)
    write_json(listed, adapters / LISTED)


def chosen(plans: pd.DataFrame) -> pd.DataFrame:
    """The chosen plan at each budget, or one uniform rank where nothing was measured."""
    plans = plans[plans["shuffle"] == 0]
    if "chosen" not in plans:
        return plans[plans["rule"] == "uniform"]
    return plans[plans["chosen"].astype(bool)]


if __name__ == "__main__":
    run(main)
