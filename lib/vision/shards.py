"""Data sets of image files, whose own bytes are put into Arrow files."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from lib.files.files import clear, sha256
from lib.files.inputs import read_json
from lib.files.memory import check_disk
from lib.files.tables import write_json
from lib.vision.arrow import MANIFEST, Manifest, Shard, described, write_manifest, write_shard
from lib.vision.sources import OwnImages
from lib.vision.squares import say_broken, statistics_of, whole
from lib.work.cells import Cell, key_of
from lib.work.compute import spread

SHARD = 1 << 28  # bytes of images in an Arrow file, about


def write_jpegs(
    folder: Path,
    source: OwnImages,
    official: Path,
    parts: dict[str, pd.DataFrame],
    section: str,
) -> None:
    """Write the files' bytes as Arrow files, then the manifest; finished files wait in scratch."""
    shards = {
        f"{part}-{number:05d}.arrow": group
        for part, files in parts.items()
        for number, (_, group) in enumerate(files.groupby(files["bytes"].cumsum() // SHARD))
    }
    n_bytes = sum(int(files["bytes"].sum()) for files in parts.values())
    print(f"{n_bytes / 1e9:.3g} GB of images; DVC's cache may hold them a second time", flush=True)
    check_disk(folder, n_bytes, "the Arrow files")
    with Cell("vision_generate", key_of(kept_shard, source, official)) as cell:
        jobs = [(source, cell.folder / name, group) for name, group in shards.items()]
        records = list(spread(kept_shard, jobs, label=f"{section}, Arrow files", unit="file"))
        statistics = statistics_of(source, parts["train"], section)
        clear(folder, "*.arrow", MANIFEST)
        folder.mkdir(parents=True, exist_ok=True)
        for name in shards:
            shutil.move(cell.folder / name, folder / name)
    manifest = Manifest(
        classes=sorted(parts["train"]["class"].unique()),
        files={part: shards_of(part, records) for part in parts},
        skipped=[name for record in records for name in record["broken"]],
        size=source.size,
        centre=source.centre,
        **statistics,
    )
    write_manifest(folder, manifest)
    say_broken(manifest.skipped)
    print(f"{manifest.n_images('train')} training and {manifest.n_images('test')} test images")


def shards_of(part: str, records: Sequence[dict[str, Any]]) -> list[Shard]:
    """The Arrow files of a part as the manifest lists them."""
    found = [Shard(**record["shard"]) for record in records]
    return [shard for shard in found if shard.name.startswith(f"{part}-")]


def kept_shard(source: OwnImages, path: Path, files: pd.DataFrame) -> dict[str, Any]:
    """Write some files as an Arrow file, where it is not there: its record, and what is broken."""
    beside = path.with_suffix(".json")
    if path.is_file() and beside.is_file():
        record = read_json(beside)
        if record["shard"]["sha256"] == sha256(path):
            return record
    broken: list[str] = []
    images = whole(source, files, broken)
    write_shard(path, ((image.data, image.label, image.name) for image in images))
    record = {"shard": asdict(described(path)), "broken": broken}
    write_json(record, beside)
    return record
