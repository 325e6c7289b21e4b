"""Every spectrum of the example's models, in one process: libraries load once.

Of each: what its fine-tunes added, what training from scratch added beside its null, and what
bfloat16 would store.
"""

from lib.files.inputs import verify
from lib.files.memory import check_disk
from lib.work.command import OutFolder, run
from stages.checkpoints import round as rounding
from stages.checkpoints import spectra


def main(section: str, models: list[OutFolder]) -> None:
    work, n_bytes = [], 0
    for folder in models:
        base, tuned, pretrained = (folder / part for part in ("base", "tuned", "pretrained"))
        for part in (base, tuned, pretrained):
            verify(part)
        begun = pretrained / "language" / "step-00000"
        for name, first, snapshots in (("spectra", base, tuned), ("pretrained", begun, pretrained)):
            jobs, of_table = spectra.prepared(section, first, snapshots)
            work.append((jobs, snapshots, folder / f"{name}.parquet"))
            n_bytes += of_table
        n_bytes += rounding.room(base, tuned)
    check_disk(models[0], n_bytes, section)
    for one in work:
        spectra.measure(*one)
    for folder in models:
        rounding.main(folder / "base", folder / "tuned", folder / "rounding.parquet")


if __name__ == "__main__":
    run(main)
