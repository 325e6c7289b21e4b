"""The plans and adapters of the example's models, in one process: libraries load once."""

from lib.io.command import OutFolder, run
from lib.io.inputs import verify
from stages.checkpoints import adapt, plan


def main(section: str, measure: str, text: str, models: list[OutFolder]) -> None:
    for folder in models:
        base, tuned, plans = (folder / part for part in ("base", "tuned", "plans"))
        for part in (base, tuned):
            verify(part)
        plan.main(section, measure, base, tuned, text, folder / "spectra.parquet", plans)
        adapt.main(base, tuned, plans, folder / "adapters")


if __name__ == "__main__":
    run(main)
