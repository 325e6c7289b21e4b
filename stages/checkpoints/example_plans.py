"""The plans and adapters of the example's models, in one process: libraries load once."""

from lib.files.inputs import verify
from lib.files.memory import check_disk
from lib.files.params import read_params
from lib.work.command import OutFolder, run
from stages.checkpoints import adapt, plan
from stages.checkpoints.plan import Measure


def main(section: str, measure: str, text: str, models: list[OutFolder]) -> None:
    work, n_bytes = [], 0
    budgets = read_params(measure, Measure).budgets
    for folder in models:
        base, tuned = (folder / part for part in ("base", "tuned"))
        for part in (base, tuned):
            verify(part)
        of_model, of_plans = plan.prepared(
            section, measure, base, tuned, text, folder / "spectra.parquet"
        )
        work.append(of_model)
        n_bytes += of_plans + adapt.room(base, tuned, budgets)
    check_disk(models[0], n_bytes, section)
    for folder, of_model in zip(models, work, strict=True):
        plan.make(of_model, folder / "plans")
        adapt.main(folder / "base", folder / "tuned", folder / "plans", folder / "adapters")


if __name__ == "__main__":
    run(main)
