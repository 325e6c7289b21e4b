"""A run on disk: the one thing that families share.

A run is a folder with

- `steps.parquet`: a row for each saved step (and seed), with `snapshot` (the number of the file),
  `step` or `time`, and what was measured there (loss, accuracy, ...);
- `snapshot-0000.safetensors`, ...: the weights at each saved step; snapshot 0 is the initial state.
  Matrices are stored per head in the papers' row convention (`x W_Q`), with the axes `seed, layer,
  head, row, col` as far as they exist. One metadata key, `run`, holds the `Layout` as sorted JSON;
- `SHA256SUMS`: the digest of every other file, as `sha256sum --check` reads it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from lib.files.files import InputError, atomic, clear, file_name, sha256
from lib.files.inputs import header_of, read_sums
from lib.files.tables import read_table, write_table

FORMAT = "transformer dynamics run 1"
AXES = ("seed", "layer", "head", "row", "col")
Weights = Mapping[
    str, Any
]  # torch's tensors by name; torch is loaded only where they are read or written
FILES = ("snapshot-*.safetensors", "steps.parquet", "SHA256SUMS")  # all that a run holds


@dataclass(frozen=True)
class Layout:
    """The meaning of the tensors of a run.

    `matrices` maps each matrix to its axes; `products` maps a product such as `W_KQ` to its factors
    (`W_K`, `W_Q`), meaning W_K W_Qᵀ; `gauge` names the matrices of which a part is free, e.g.
    `{"W": "column shift"}`; `cell` holds what distinguishes this run from its neighbours (init
    scale, optimiser, ...); `seeds` are those of the seed axis.
    """

    family: str
    matrices: dict[str, list[str]]
    products: dict[str, list[str]] = field(default_factory=dict)
    gauge: dict[str, str] = field(default_factory=dict)
    cell: dict[str, Any] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, axes in self.matrices.items():
            known = [axis for axis in AXES if axis in axes]
            if list(axes) != known or known[-2:] != ["row", "col"]:
                raise InputError(f"{name}: wanted axes in the order {AXES}, got {axes}")
        for name, factors in self.products.items():
            if len(factors) != 2 or any(factor not in self.matrices for factor in factors):
                raise InputError(f"{name}: wanted two of {sorted(self.matrices)}, got {factors}")

    def check(self, shapes: Mapping[str, Sequence[int]], where: Path) -> None:
        """Raise `InputError` where a matrix is missing or has other axes."""
        for name, axes in self.matrices.items():
            if name not in shapes or len(shapes[name]) != len(axes):
                got = list(shapes[name]) if name in shapes else sorted(shapes)
                raise InputError(f"{where}: wanted {name} with axes {axes}, got {got}")


class RunWriter:
    """A writer of the snapshots of one run, in order; see `write_run`."""

    def __init__(self, folder: Path, layout: Layout):
        self.folder = folder
        self._metadata = {"run": json.dumps({"format": FORMAT, **asdict(layout)}, sort_keys=True)}
        self._layout = layout
        self._rows: list[dict[str, Any]] = []
        self._digests: dict[str, str] = {}

    def add(self, weights: Weights, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write one snapshot, and the rows (one per seed, or one) that `steps.parquet` gets for
        it.
        """
        from safetensors.torch import save

        self._layout.check({name: tensor.shape for name, tensor in weights.items()}, self.folder)
        number = len(self._digests)
        data = save(
            {name: weights[name].detach().cpu().contiguous() for name in sorted(weights)},
            self._metadata,
        )
        self._put(_snapshot_name(number), data)
        self._rows += [{"snapshot": number, **row} for row in rows]

    def _put(self, name: str, data: bytes) -> None:
        with atomic(self.folder / name) as part:
            part.write_bytes(data)
        self._digests[name] = sha256(data)

    def close(self) -> None:
        """Write the table of steps and the digests; a folder without them is not a run."""
        write_table(pd.DataFrame(self._rows), self.folder / "steps.parquet")
        self._digests["steps.parquet"] = sha256(self.folder / "steps.parquet")
        lines = [f"{digest}  {name}\n" for name, digest in sorted(self._digests.items())]
        self._put("SHA256SUMS", "".join(lines).encode())


def clear_runs(folder: Path) -> None:
    """Remove the runs of a folder of runs; where it holds anything else, remove nothing and raise
    `InputError`.
    """
    clear(folder, *(f"*/{name}" for name in FILES))


@contextmanager
def write_run(runs: Path, name: str, layout: Layout) -> Iterator[RunWriter]:
    """Write a run into the folder of that name in a folder of runs; it is complete when the block
    ends without an error.

    A run of that name is replaced. Raises `InputError` where the name leads out of the folder
    (`..`, an absolute path), and where its place, or the folder of runs, is a link or holds
    anything but runs.
    """
    folder = runs / file_name(name)
    if runs.is_symlink():
        raise InputError(f"{runs}: wanted a folder to write in, got a link to {runs.resolve()}")
    clear(folder, *FILES)
    writer = RunWriter(folder, layout)
    yield writer
    writer.close()


@dataclass(frozen=True)
class Run:
    """An open run; its snapshots are read, and verified, one at a time."""

    folder: Path
    layout: Layout
    steps: pd.DataFrame
    digests: dict[str, str]

    @property
    def snapshots(self) -> list[int]:
        """The numbers of the snapshots, in order."""
        return sorted(int(number) for number in self.steps["snapshot"].unique())

    def weights(self, snapshot: int) -> dict[str, Any]:
        """The tensors of a snapshot; -1 is the last. Raises `InputError` where the file is
        altered.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load

        name = _snapshot_name(self.snapshots[snapshot])
        data, _ = _read_snapshot(self.folder, name, self.digests)
        try:
            return load(data)
        except (SafetensorError, ValueError, KeyError) as error:
            raise InputError(
                f"{self.folder / name}: wanted a snapshot of a run, got: {error!r}"
            ) from error


def open_run(folder: Path, family: str | None = None) -> Run:
    """Open the folder of a run; raises `InputError` where it is missing, incomplete, altered, no
    run, or a run of another family.
    """
    digests = read_sums(folder, "a run")
    for name in sorted(
        {path.name for path in folder.iterdir() if path.is_file()} - {"SHA256SUMS", *digests}
    ):
        raise InputError(f"{folder}: wanted no file that its SHA256SUMS does not list, got {name}")
    if (
        "steps.parquet" not in digests
        or sha256(folder / "steps.parquet") != digests["steps.parquet"]
    ):
        raise InputError(f"{folder}/steps.parquet: the content does not fit its SHA256SUMS")
    steps = read_table(folder / "steps.parquet")
    if "snapshot" not in steps or steps["snapshot"].dtype.kind != "i":
        raise InputError(
            f"{folder}/steps.parquet: wanted a column snapshot of whole numbers, got "
            f"{dict(steps.dtypes)}"
        )
    wanted = {_snapshot_name(number) for number in steps["snapshot"].tolist()} | {"steps.parquet"}
    if wanted != set(digests):
        raise InputError(f"{folder}: wanted the files {sorted(wanted)}, got {sorted(digests)}")
    _, layout = _read_snapshot(folder, _snapshot_name(0), digests)
    if family is not None and layout.family != family:
        raise InputError(f"{folder}: wanted a run of {family}, got one of {layout.family}")
    return Run(folder, layout, steps, digests)


def open_runs(folder: Path, family: str | None = None) -> list[Run]:
    """Open every run in a folder of runs, in the order of their names; raises `InputError` where
    there is none, or one of another family.
    """
    names = (
        sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    )
    if not names:
        raise InputError(f"{folder}: wanted a folder of runs, got none")
    return [open_run(folder / name, family) for name in names]


def _snapshot_name(number: int) -> str:
    return f"snapshot-{number:04d}.safetensors"


def _read_snapshot(folder: Path, name: str, digests: dict[str, str]) -> tuple[bytes, Layout]:
    """The bytes of a snapshot, verified, and the layout that its header holds."""
    path = folder / name
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: wanted a snapshot, got: {error}") from error
    if name not in digests or sha256(data) != digests[name]:
        raise InputError(f"{path}: the content does not fit the SHA256SUMS of its run")
    try:
        header, _ = header_of(data)
        description = json.loads(header.pop("__metadata__")["run"])
        found = description.pop("format", None)
        shapes = {tensor: list(entry["shape"]) for tensor, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: wanted a snapshot of a run, got: {error!r}") from error
    if found != FORMAT:
        raise InputError(f"{path}: wanted the format {FORMAT!r}, got {found!r}")
    try:
        layout = Layout(**description)
    except (TypeError, AttributeError) as error:
        raise InputError(f"{path}: wanted the layout of a run, got: {error}") from error
    layout.check(shapes, path)
    return data, layout
