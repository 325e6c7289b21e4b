"""Every spectrum of the example's models, in one process: libraries load once.

Of each: what its fine-tunes added, what training from scratch added beside its null, and what bfloat16 would store.
"""

from lib.io.command import OutFolder, run
from lib.io.inputs import verify
from stages.checkpoints import round as rounding
from stages.checkpoints import spectra


def main(section: str, models: list[OutFolder]) -> None:
    for folder in models:
        base, tuned, pretrained = (folder / part for part in ("base", "tuned", "pretrained"))
        for part in (base, tuned, pretrained):
            verify(part)
        spectra.main(section, base, tuned, folder / "spectra.parquet")
        spectra.main(section, pretrained / "language" / "step-00000", pretrained, folder / "pretrained.parquet")
        rounding.main(base, tuned, folder / "rounding.parquet")


if __name__ == "__main__":
    run(main)
