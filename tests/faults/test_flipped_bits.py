"""A bit that flips in a file that stages read is refused, by the name of the file, or it changes
nothing that is read.

What git keeps is left out: git has digests of its own. A table is read by the names of its columns:
they stand in the one part of a Parquet file that no checksum covers.
"""

import random
import shutil
from pathlib import Path

import pandas as pd
import pytest

from lib.files.files import InputError
from lib.files.inputs import verify
from lib.files.runs import open_run
from lib.files.tables import read_table, write_table
from lib.vision.digits import read_digits

N_FLIPS = 100


def read(file: Path, in_run: bool, columns: list[str]) -> pd.DataFrame | None:
    """Read a file as a stage does: the run, the data set, or the table by its columns, whose values
    are returned.
    """
    if in_run:
        run = open_run(file.parent)
        for snapshot in run.snapshots:
            run.weights(snapshot)
        return None
    if file.suffix == ".parquet":
        return read_table(file, columns)
    if file.name == "digits.csv.gz":
        try:
            read_digits(file.parent, 360, 0)
        except ValueError as error:
            raise InputError(str(error)) from error
        return None
    verify(file.parent)
    return None


def flip(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


@pytest.mark.slow
def test_a_flipped_bit_in_any_file_that_stages_read_is_refused_by_name_or_changes_nothing(
    tiny_pipeline, tmp_path
):
    draw, project = random.Random(0), tiny_pipeline.folder
    wanted = {
        dep for stage in tiny_pipeline.stages for dep in stage.deps if dep.startswith("data/")
    }
    files = {
        file
        for dep in wanted
        for file in [project / dep, *(project / dep).rglob("*")]
        if file.is_file()
    }
    kinds: dict[tuple[str, str], list[Path]] = {}
    for file in sorted(files):  # as many flips of each family and kind of file
        kinds.setdefault((file.relative_to(project).parts[1], file.suffix), []).append(file)
    chosen = [
        draw.choice(kinds[kind]) for kind in sorted(kinds) for _ in range(-(-N_FLIPS // len(kinds)))
    ]
    assert len(chosen) >= N_FLIPS
    refused = 0
    for number, original in enumerate(chosen):
        in_run = (original.parent / "steps.parquet").exists()
        folder = shutil.copytree(original.parent, tmp_path / str(number))
        file = folder / original.name
        columns = list(read_table(file)) if file.suffix == ".parquet" else []
        flip(file, draw)
        try:
            found = read(file, in_run, columns)
        except InputError as error:
            assert file.name in str(error) or "SHA256SUMS" in str(error), error
            assert "\n" not in str(error)
            refused += 1
        else:
            assert found is not None, f"{original}: a flipped bit was not noticed"
            pd.testing.assert_frame_equal(found, read_table(original))
        shutil.rmtree(folder)
    assert refused > 0.8 * len(chosen)


def test_a_flipped_bit_in_a_table_is_refused_or_changes_nothing(tmp_path):
    rows = {
        "step": [1, 2, 3],
        "loss": [0.5, 0.25, 0.125],
        "name": ["a", "b", "c"],
        "list": [[1.0], [2.0, 3.0], []],
    }
    path, whole = tmp_path / "table.parquet", pd.DataFrame(rows)
    write_table(whole, path)
    data, whole, refused = path.read_bytes(), read_table(path), 0
    for place in range(0, 8 * len(data), 23):
        content = bytearray(data)
        content[place // 8] ^= 1 << place % 8
        path.write_bytes(content)
        try:
            found = read_table(path, list(rows))
        except InputError as error:
            assert str(error).startswith(f"{path}: wanted ")
            refused += 1
        else:
            pd.testing.assert_frame_equal(found, whole)
    assert refused > 0.5 * 8 * len(data) / 23
