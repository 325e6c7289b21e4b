"""Checks that what a program reads is whole: data sets carry digests, and headers say sizes before
anything is unpacked.

A data set in one safetensors file has the digest of its content under the key `sha256` of its own
metadata; a JSON file that stages exchange has it under a key of its own (`JSON_DIGEST`); a folder
of other files has `SHA256SUMS`, as runs have. This module needs the standard library alone.
"""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from lib.files.files import InputError, atomic, sha256

Read = TypeVar("Read")

SUMS = "SHA256SUMS"
MOST_HEADER = 100_000_000  # bytes, as safetensors itself has it
MOST_JSON = 1 << 28
JSON_DIGEST = "sha256_of_the_rest"
NAMED = {
    4: "F4",
    6: "F6_E2M3 F6_E3M2",
    8: "BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0",
    16: "U16 I16 F16 BF16",
    32: "U32 I32 F32",
    64: "U64 I64 F64 C64",
}
BITS = {name: bits for bits, names in NAMED.items() for name in names.split()}


@dataclass(frozen=True)
class Entry:
    """The file, the shape and the type of a tensor."""

    file: Path
    shape: tuple[int, ...]
    dtype: str


def read_json(path: Path, *, digest: bool = False) -> Any:
    """Read JSON; raises `InputError` where the file is missing, broken, too large or too deep.

    An object that carries the digest of its content must fit it, and comes without it. With
    `digest` it must carry one.
    """
    try:
        size = path.stat().st_size
        if size > MOST_JSON:
            raise InputError(f"{path}: wanted a JSON file of at most {MOST_JSON} bytes, got {size}")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: wanted a JSON file, got: {error}") from error
    if digest and isinstance(found, dict) and JSON_DIGEST not in found:
        raise InputError(f"{path}: wanted the digest of its content, {JSON_DIGEST!r}, got none")
    return without_json_digest(found, str(path))


def with_json_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with the digest of its content as its last key."""
    return {**content, JSON_DIGEST: _json_digest(content)}


def without_json_digest(found: Any, where: str) -> Any:
    """What JSON holds beside its digest; raises `InputError` where it does not fit that.

    The digest is of the values and of their order, however the text is laid out.
    """
    if not isinstance(found, dict) or JSON_DIGEST not in found:
        return found
    content = {key: value for key, value in found.items() if key != JSON_DIGEST}
    wanted, got = found[JSON_DIGEST], _json_digest(content)
    if wanted != got:
        raise InputError(
            f"{where}: wanted the content of its digest, {wanted!s:.12}, got another, {got:.12}: "
            "the file was altered"
        )
    return content


def _json_digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content).encode())


def read_header(
    file: Path, what: str = "a safetensors file", names: Collection[str] = ()
) -> dict[str, Entry]:
    """The tensors of a safetensors file, as its header alone lists them.

    Raises `InputError` where it is no such file, or a part of one, or lacks a tensor of the
    `names` that make it what is wanted.
    """
    entries, _, _ = _opened(file, what)
    if not set(names) <= set(entries):
        raise InputError(
            f"{file}: wanted {what}, with tensors {sorted(names)}, got {sorted(entries)[:9]}"
        )
    return {name: Entry(file, tuple(one["shape"]), one["dtype"]) for name, one in entries.items()}


def read_as(what: str, reader: Callable[[Path], Read], file: Path) -> Read:
    """The result of a reader for a file; where it fails, raises `InputError` with what the file
    holds.
    """
    try:
        return reader(file)
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        FileNotFoundError,
    ) as error:
        if isinstance(error, InputError):
            raise
        got = (
            f"tensors {sorted(read_header(file, what))[:9]}"
            if file.suffix == ".safetensors"
            else repr(error)
        )
        raise InputError(f"{file}: wanted {what}, got {got}") from error


def header_of(data: bytes) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, and where its content starts."""
    start = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:start]), start


def with_digest(data: bytes) -> bytes:
    """A safetensors file without metadata, as bytes, with the digest of its content added."""
    header, start = header_of(data)
    content = data[start:]
    metadata = {"sha256": _digest(header, content)}
    text = json.dumps({"__metadata__": metadata, **header}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content


def write_sums(folder: Path) -> None:
    """Write the digests of all files in a folder beside them, as `sha256sum --check` reads them."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    with atomic(folder / SUMS) as part:
        part.write_text("".join(f"{sha256(folder / name)}  {name}\n" for name in names))


def read_sums(folder: Path, what: str = "a data set") -> dict[str, str]:
    """The digests of a folder's files by name; raises `InputError` where a file is missing."""
    try:
        lines = (folder / SUMS).read_bytes().decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{folder}: wanted {what} (no {SUMS} is there), got: {error}") from error
    digests = {}
    if lines.pop() != "":
        raise InputError(f"{folder}/{SUMS}: wanted lines that end, got a part of one")
    for line in lines:
        digest, separator, name = line.partition("  ")
        if len(digest) != 64 or not separator or Path(name).name != name:
            raise InputError(f"{folder}/{SUMS}: wanted 'digest  name' lines, got {line!r}")
        digests[name] = digest
    for name in sorted(digests):
        if not (folder / name).is_file():
            raise InputError(f"{folder}: wanted the file {name}, which its {SUMS} lists")
    return digests


def verify(path: Path) -> None:
    """Raise `InputError`, with the file's name, where a data set does not fit its digest.

    A path is a file or a folder. Runs are passed over, as they are verified when they are read. So
    are files without a digest, except that a safetensors file must have one unless it is a part of
    a checkpoint.
    """
    if path.is_file():
        if path.suffix == ".safetensors":
            _verify_tensors(path)
        elif (path.parent / SUMS).is_file():
            _verify_file(path, read_sums(path.parent))
        return
    folders = {file.parent for pattern in (SUMS, "*.safetensors") for file in path.rglob(pattern)}
    for folder in sorted(folders):
        if (folder / "steps.parquet").is_file():
            continue
        if (folder / SUMS).is_file():
            digests = read_sums(folder)
            for name in digests:
                _verify_file(folder / name, digests)
        elif not any(folder.glob("*config.json")):
            for file in sorted(folder.glob("*.safetensors")):
                _verify_tensors(file)


def _verify_file(file: Path, digests: Mapping[str, str]) -> None:
    if digests.get(file.name) != sha256(file):
        raise InputError(f"{file}: the content does not fit its {SUMS}")


def _verify_tensors(file: Path) -> None:
    entries, metadata, start = _opened(file)
    if "sha256" not in metadata:
        raise InputError(
            f"{file}: wanted a data set with its digest, as `generate` writes it, got one without"
        )
    with file.open("rb") as opened:
        opened.seek(start)
        content = hashlib.sha256(json.dumps(entries, sort_keys=True).encode())
        while part := opened.read(1 << 22):
            content.update(part)
    if metadata["sha256"] != content.hexdigest():
        raise InputError(f"{file}: the content does not fit the digest in its header")


def _digest(entries: Mapping[str, Any], content: bytes) -> str:
    found = hashlib.sha256(json.dumps(entries, sort_keys=True).encode())
    found.update(content)
    return found.hexdigest()


def _opened(
    file: Path, what: str = "a safetensors file"
) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The entries of a safetensors file's header, its metadata, and where its content starts."""
    try:
        with file.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            length = int.from_bytes(opened.read(8), "little")
            if not 2 <= length <= min(MOST_HEADER, size - 8):
                raise ValueError(f"a header of {length} bytes in {size}")
            header = json.loads(opened.read(length))
        metadata = header.pop("__metadata__", {})
        spans = sorted(_span(name, one) for name, one in header.items())
        if not isinstance(metadata, dict):
            raise TypeError("metadata that are no texts by name")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{file}: wanted {what}, got: {error or type(error).__name__}") from error
    end = 0
    for first, last in spans:
        if first != end:
            raise InputError(
                f"{file}: wanted tensors one behind the other, got one at byte {first} behind "
                f"byte {end}"
            )
        end = last
    if 8 + length + end != size:
        raise InputError(f"{file}: wanted {8 + length + end} bytes, as its header says, got {size}")
    return header, metadata, 8 + length


def _span(name: str, one: Any) -> tuple[int, int]:
    """The first byte of a tensor and the one behind its last, checked against shape and type."""
    shape = one["shape"]
    first, last = one["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, first, last)):
        raise ValueError(f"{name}: sizes and places that are no whole numbers")
    bits = BITS.get(one["dtype"])  # for an unknown type the file alone says how long the tensor is
    if bits and 8 * (last - first) != bits * prod(shape):
        raise ValueError(f"{name}: {last - first} bytes for {shape} of {one['dtype']}")
    return first, last
