"""A data set of encoded images: Arrow files, which are mapped and never read whole, and a manifest.

A row is an image as its file had it (JPEG bytes), its label, and its file's name within its class,
by which errors name the image.
"""

import json
import mmap
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
from jaxtyping import Int64
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from lib.files.files import InputError, atomic, sha256, write_files
from lib.files.params import Count, Interval, Name, Positive

PIXELS = "images.safetensors"  # a folder has either this, or Arrow files and a manifest
MANIFEST = "manifest.json"
PARTS = ("train", "test")
SCHEMA = pa.schema([("image", pa.binary()), ("label", pa.int32()), ("name", pa.string())])
BATCH_ROWS = 64
MOST_BYTES = 1 << 25  # that an image may have: a column of a record batch holds less than 2 GiB
OF_CHANNELS = Field(min_length=3, max_length=3)
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class Shard:
    """One Arrow file of a data set, as the manifest lists it."""

    __pydantic_config__ = STRICT

    name: Name
    rows: Count
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a folder of Arrow files holds.

    A label is a place in `classes`; `files` has the shards of "train" and of "test" in order;
    `skipped` names the broken images that were left out. `mean` and `deviation` are those of each
    channel, in units of pixels 0..255. A model sees squares of `size` pixels; the middle one takes
    the share `centre` of the shorter side.
    """

    __pydantic_config__ = STRICT

    classes: list[str]
    files: dict[str, list[Shard]]
    skipped: list[str]
    mean: Annotated[list[float], OF_CHANNELS]
    deviation: Annotated[list[Positive], OF_CHANNELS]
    size: Count
    centre: Annotated[float, Interval("(0, 1]")]

    def __post_init__(self) -> None:
        if sorted(self.files) != sorted(PARTS) or not all(self.files.values()):
            got = {part: len(shards) for part, shards in self.files.items()}
            raise ValueError(f"files: wanted one or more of train and of test, got {got}")

    def n_images(self, part: str) -> int:
        """The number of images of "train" or "test"."""
        return sum(shard.rows for shard in self.files[part])


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder of Arrow files, its numbers to the last digit."""
    text = json.dumps(asdict(manifest), indent=2, ensure_ascii=False)
    write_files(folder, {MANIFEST: f"{text}\n".encode()})


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder of Arrow files.

    Raises `InputError` where it is missing or broken, or where a file that it lists is missing.
    """
    path = folder / MANIFEST
    try:
        manifest = TypeAdapter(Manifest).validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: wanted the manifest of a data set, got: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{step}: " for step in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        raise InputError(
            f"{path}: wanted the manifest of a data set, got: {place}{said}, "
            f"in {first['input']!r:.80}"
        ) from error
    for part in PARTS:
        for shard in manifest.files[part]:
            if not (folder / shard.name).is_file():
                raise InputError(f"{folder}: wanted the file {shard.name}, which {MANIFEST} lists")
    return manifest


def write_shard(path: Path, rows: Iterable[tuple[bytes, int, str]]) -> None:
    """Write images with their labels and names as one Arrow file, whole or not at all.

    At most `BATCH_ROWS` images are held at once. Raises `InputError` for an image that is too
    large.
    """
    with atomic(path) as part, pa.ipc.new_file(str(part), SCHEMA) as writer:
        for batch in _batches(rows):
            images, labels, names = zip(*batch, strict=True)
            columns = {"image": images, "label": labels, "name": names}
            writer.write_batch(pa.record_batch(columns, SCHEMA))


def _batches(rows: Iterable[tuple[bytes, int, str]]) -> Iterator[list[tuple[bytes, int, str]]]:
    left = iter(rows)
    while batch := list(islice(left, BATCH_ROWS)):
        for image, _, name in batch:
            if len(image) > MOST_BYTES:
                raise InputError(
                    f"{name}: wanted an image of at most {MOST_BYTES} bytes, got {len(image)}"
                )
        yield batch


def described(path: Path) -> Shard:
    """An Arrow file as the manifest lists it."""
    return Shard(path.name, len(Shards([path])), sha256(path))


class Shards:
    """The images of several Arrow files, one after another.

    A file is mapped when a row of it is first asked for, in each process anew: what is handed to
    another process is paths and numbers of rows. Raises `InputError` where a file is missing,
    broken, or none of `write_shard`.
    """

    def __init__(self, paths: Sequence[Path]):
        self.paths = list(paths)
        self.rows = [_Mapped(path).n_rows for path in paths]
        self._starts = [0, *accumulate(self.rows)]
        self._open: dict[int, _Mapped] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_open": {}}

    def __len__(self) -> int:
        return self._starts[-1]

    def image(self, index: int) -> bytes:
        """An image; raises `InputError` where its file is broken."""
        mapped, within = self._place(index)
        return mapped.image(within)

    def name(self, index: int) -> str:
        """The name of an image; raises `InputError` where its file is broken."""
        mapped, within = self._place(index)
        return mapped.name(within)

    def _place(self, index: int) -> tuple["_Mapped", int]:
        shard = bisect_right(self._starts, index) - 1
        if shard not in self._open:
            self._open[shard] = _Mapped(self.paths[shard])
        return self._open[shard], index - self._starts[shard]

    def labels(self) -> Int64[np.ndarray, " n"]:
        """The labels of all rows."""
        found = [_Mapped(path).labels() for path in self.paths]
        return np.concatenate(found).astype(np.int64)


def open_part(folder: Path, manifest: Manifest, part: str) -> Shards:
    """Open the images of "train" or "test"; raises `InputError` where they are not as listed."""
    shards = manifest.files[part]
    found = Shards([folder / shard.name for shard in shards])
    for shard, rows in zip(shards, found.rows, strict=True):
        if rows != shard.rows:
            raise InputError(f"{folder / shard.name}: wanted {shard.rows} images, got {rows}")
    return found


class _Mapped:
    """An Arrow file, mapped by hand: Arrow's own map has the system read a record batch of 64
    images wherever one of them is asked for.
    """

    def __init__(self, path: Path):
        self.path = path
        with self._whole():
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            self._map.madvise(mmap.MADV_RANDOM)
            buffer = pa.py_buffer(self._map)
            self._start = buffer.address
            self._reader = pa.ipc.open_file(buffer)
        if not self._reader.schema.equals(SCHEMA):
            got = str(self._reader.schema).replace("\n", ", ")
            raise InputError(f"{path}: wanted columns image, label and name, got {got:.200}")

    @property
    def n_rows(self) -> int:
        """The number of rows; every record batch but the last has `BATCH_ROWS`."""
        last = self._reader.num_record_batches - 1
        with self._whole():
            return last * BATCH_ROWS + self._reader.get_batch(last).num_rows if last >= 0 else 0

    def labels(self) -> np.ndarray:
        with self._whole():
            return self._reader.read_all().column("label").to_numpy()

    @cached_property
    def _images(self) -> list[tuple[int, int]]:
        """Where each image begins and ends in the file: to ask Arrow for each takes longer."""
        found: list[tuple[int, int]] = []
        for i in range(self._reader.num_record_batches):
            batch = self._reader.get_batch(i)
            _, ends, data = batch.column("image").buffers()
            start = data.address - self._start
            places = start + np.frombuffer(ends, np.int32, batch.num_rows + 1).astype(np.int64)
            found += pairwise(places.tolist())
        return found

    def image(self, index: int) -> bytes:
        with self._whole():
            first, end = self._images[index]
            page = first // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_WILLNEED, page, end - page)  # at once, not page by page
            return self._map[first:end]

    def name(self, index: int) -> str:
        with self._whole():
            batch = self._reader.get_batch(index // BATCH_ROWS)
            return batch.column("name")[index % BATCH_ROWS].as_py()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Have every error about a broken file name it."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, IndexError) as error:
            said = " ".join(str(error).split())
            raise InputError(
                f"{self.path}: wanted a whole Arrow file of images, got: {said}"
            ) from error
