"""Keep the results of a long run under published/, with where they come from: `make publish DATASET=... HOURS=...`.

Run it where the data set's stages have run, after a commit of the code that they ran with; or, with KEEP=folder, for
what came back from `make gpu`. Claims and report read
published/ and never make it: nobody reruns days of training to see its numbers.
"""

import platform
import re
import shutil
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from lib.data.images import read_images
from lib.io.base.command import run
from lib.io.base.files import InputError, clear, file_name, sha256
from lib.io.base.inputs import read_json
from lib.io.base.params import load_yaml
from lib.io.base.tables import write_json
from tools.gpu import archive_in, unpack

PACKAGES = ["torch", "numpy", "pandas", "pyarrow", "safetensors", "scipy"]
DETERMINES = ["lib", "stages", "dvc.yaml"]
SHARED = ["cut", "evaluate", "plot"]


def main(dataset: str, command: str = "", hours: float = 0.0, keep: Path | None = None) -> None:
    """Copy what git keeps of a vision data set's results, and write how they came about beside it.

    `command` made them, in `hours` of wall time; those in a folder `keep` of `make gpu` say that themselves. Raises
    `InputError` where the code is not that of a commit.
    """
    changed = _git("status", "--porcelain", "--", *DETERMINES)
    if changed:
        raise InputError(f"wanted the code of a commit, got changes:\n{changed}")
    if keep is not None:
        take(file_name(dataset), keep)
        return
    if not (command and hours):
        raise InputError(f"wanted COMMAND and HOURS of the results, or KEEP, got {command!r} and {hours:g}")
    sections = load_yaml(Path("params.yaml"))["vision"]
    known = [name for name, value in sections.items() if isinstance(value, dict) and "data" in value]
    if dataset not in known:
        raise InputError(f"DATASET: wanted one of {known}, the data sets of vision in params.yaml, got {dataset!r}")
    file_name(dataset)
    section = with_shared(sections[dataset], sections)
    section["data"].pop("source_folder", None)  # where this machine has the files says nothing: they are verified
    n_images = len(read_images(Path("data") / "vision" / dataset / "images.safetensors").train_labels)
    copy(dataset, provenance(section, n_images) | {"command": command, "wall_hours": hours})


def with_shared(section: dict[str, Any], vision: dict[str, Any]) -> dict[str, Any]:
    """The section of a data set with what all data sets share."""
    return section | {part: vision[part] | section.get(part, {}) for part in SHARED}


def copy(dataset: str, note: dict[str, Any], root: Path = Path()) -> None:
    """Copy a data set's results to the folder `published` beside them, with the note of where they come from."""
    metrics = root / "metrics" / "vision" / dataset
    figures = root / "plots" / "vision" / dataset / "figures"
    _replace(root / "published" / file_name(dataset), {".": metrics, "figures": figures}, note)


def take(dataset: str, keep: Path) -> None:
    """Copy a data set's results from what `make gpu` has kept, with the commit of the code that made them.

    Where there was no git, the code must be the code here.
    """
    packed = archive_in(keep)
    if packed is None:
        raise InputError(f"KEEP: wanted a folder with results of `make gpu`, got {keep}")
    with tempfile.TemporaryDirectory() as work:
        unpack(packed, Path(work), keep)
        kept = Path(work, "published")
        if not (kept / dataset / "provenance.json").exists():
            known = sorted(folder.name for folder in kept.glob("*"))
            raise InputError(f"DATASET: wanted one of {known}, those in {keep}, got {dataset!r}")
        note = read_json(kept / dataset / "provenance.json")
        for made in note["trainings"]:
            made["commit"] = _commit_of(made, keep)
        note["commit"] = note["trainings"][-1]["commit"]
        _replace(Path("published", dataset), {".": kept / dataset}, note)


def _commit_of(made: dict[str, Any], keep: Path) -> str:
    if re.fullmatch("[0-9a-f]{40}", made["commit"]):
        return made["commit"]
    if made["code"] != code(Path()):
        raise InputError(
            f"{keep}: wanted results of a commit or of the code here, got some of other code: check it out"
        )
    return commit()


def _replace(folder: Path, parts: dict[str, Path], note: dict[str, Any]) -> None:
    clear(folder, "*.json", "tables/*.parquet", "figures/*.svg")
    for name, part in parts.items():
        shutil.copytree(part, folder / name, dirs_exist_ok=True)
    write_json(note, folder / "provenance.json")
    print(f"published in {folder}", flush=True)


def provenance(section: dict[str, Any], n_images: int) -> dict[str, Any]:
    """Device, versions, commit, what was trained for how many epochs."""
    train = section["train"]
    first = train.get("first_seed", 0)
    device = torch.cuda.get_device_name(train["device"]) if train["device"] != "cpu" else f"CPU, {platform.machine()}"
    return {
        "device": device,
        "commit": commit(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "epochs": train["n_steps"] * train["batch_size"] / n_images,
        "augmentation": train["augmentation"],
        "seeds": list(range(first, first + train["n_seeds"])),
        "params": section,
    }


def commit() -> str:
    """The commit of this code, with a mark where files that determine results differ from it; `unknown` without git."""
    try:
        return _git("rev-parse", "HEAD") + (", changed" if _git("status", "--porcelain", "--", *DETERMINES) else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def code(root: Path) -> str:
    """The digest of all files that determine results."""
    files = [file for name in DETERMINES for file in [root / name, *(root / name).rglob("*")] if file.is_file()]
    digests = {file.relative_to(root).as_posix(): sha256(file) for file in sorted(files) if file.suffix != ".pyc"}
    return sha256(repr(digests).encode())


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    run(main, environment=True)
