"""Arrow files of images give back what was written; what is broken is refused with its name."""

import json
import os
import pickle
import re
from pathlib import Path

import pyarrow as pa
import pytest

from lib.files.files import InputError
from lib.vision.arrow import Shards, open_part, read_manifest, write_shard
from tests.vision.arrow_made import rows_of, write_data

ROWS = rows_of([f"image {i}".encode() for i in range(200)])


def test_rows_come_back_in_order_from_several_files(tmp_path):
    manifest = write_data(tmp_path, ROWS, rows_a_file=70)
    shards = open_part(tmp_path, manifest, "train")
    assert [shard.rows for shard in manifest.files["train"]] == [70, 70, 60]
    images, labels, names = (list(column) for column in zip(*ROWS, strict=True))
    assert [shards.image(i) for i in range(len(shards))] == images
    assert [shards.name(i) for i in range(len(shards))] == names
    assert shards.labels().tolist() == labels


def test_another_process_gets_paths_and_no_images(tmp_path):
    write_shard(tmp_path / "a.arrow", [(bytes(100_000), 0, "a")])
    shards = Shards([tmp_path / "a.arrow"])
    shards.image(0)
    handed = pickle.dumps(shards)
    assert len(handed) < 2000
    assert pickle.loads(handed).image(0) == bytes(100_000)


def test_a_shard_whose_images_fail_midway_is_not_written(tmp_path):
    def rows():
        yield from ROWS
        raise InputError("the disk of the images is gone")

    with pytest.raises(InputError, match="is gone"):
        write_shard(tmp_path / "a.arrow", rows())
    assert list(tmp_path.iterdir()) == []


def test_an_image_that_no_column_could_hold_64_times_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("lib.vision.arrow.MOST_BYTES", 10)
    with pytest.raises(InputError, match=r"b\.png: wanted an image of at most 10 bytes, got 11"):
        write_shard(tmp_path / "a.arrow", [(bytes(10), 0, "a.png"), (bytes(11), 0, "b.png")])


def test_a_manifest_comes_back(tmp_path):
    manifest = write_data(tmp_path, ROWS)
    assert read_manifest(tmp_path) == manifest
    assert manifest.n_images("train") == 200


SHARD = {"name": "train-00000.arrow", "rows": 70, "sha256": "0"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"size": 0}, "size: wanted a number in [1, 1e9], got 0"),
        ({"size": "8"}, "size: Input should be a valid integer, in '8'"),
        ({"mean": [1.0, 2.0]}, "mean: List should have at least 3 items after validation, not 2"),
        ({"deviation": [1.0] * 4}, "deviation: List should have at most 3 items after validation"),
        ({"deviation": [1.0, 0.0, 1.0]}, "deviation: 1: wanted a number in (0, 1e9], got 0.0"),
        ({"files": {"train": [SHARD]}}, "files: wanted one or more of train and of test"),
        ({"files": {"train": [SHARD], "test": []}}, "files: wanted one or more of train"),
        (
            {"files": {"train": [{**SHARD, "name": "../a.arrow"}], "test": [SHARD]}},
            "files: train: 0: name: wanted a name of at most 100 letters",
        ),
        ({"more": 1}, "more: Unexpected keyword argument"),
    ],
)
def test_a_broken_manifest_is_refused(tmp_path, changed, message):
    write_data(tmp_path, ROWS)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    start = r"manifest\.json: wanted the manifest of a data set, got: "
    with pytest.raises(InputError, match=start + re.escape(message)):
        read_manifest(tmp_path)


def test_a_manifest_cut_short_is_refused(tmp_path):
    write_data(tmp_path, ROWS)
    path = tmp_path / "manifest.json"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"manifest\.json: wanted the manifest of a data set"):
        read_manifest(tmp_path)


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"manifest\.json: wanted the manifest of a data set"):
        read_manifest(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    write_data(tmp_path, ROWS)
    (tmp_path / "train-00001.arrow").unlink()
    with pytest.raises(InputError, match=r"wanted the file train-00001\.arrow, which manifest"):
        read_manifest(tmp_path)


def test_a_file_of_other_images_than_listed_is_named(tmp_path):
    manifest = write_data(tmp_path, ROWS)
    write_shard(tmp_path / "train-00001.arrow", ROWS[:3])
    with pytest.raises(InputError, match=r"train-00001\.arrow: wanted 70 images, got 3"):
        open_part(tmp_path, manifest, "train")


@pytest.mark.parametrize("kept", [0, 0.5, 0.99])
def test_a_file_cut_short_is_named(tmp_path, kept):
    path = tmp_path / "a.arrow"
    write_shard(path, ROWS)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(InputError, match=r"a\.arrow: wanted a whole Arrow file of images, got: "):
        Shards([path])


def test_an_arrow_file_of_other_columns_is_named(tmp_path):
    table = pa.table({"image": [b""], "caption": ["a cat"]})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(InputError, match=r"a\.arrow: wanted columns image, label and name, got "):
        Shards([tmp_path / "a.arrow"])


@pytest.mark.skipif(not Path("/proc/self/io").is_file(), reason="only Linux tells it")
def test_a_row_is_read_from_disk_without_its_neighbours(tmp_path):
    path = tmp_path / "a.arrow"
    write_shard(path, [(bytes(200_000), 0, f"{i}") for i in range(64)])
    shards = Shards([path])
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # forget what was written
    before = bytes_read()
    shards.image(30)
    assert bytes_read() - before < 1_000_000


def bytes_read():
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))
