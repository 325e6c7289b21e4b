"""Download a file whose size and SHA-256 are known: from mirrors in turn, resumed where it was cut,
and verified.

The addresses are tried in the order given. The part of the file that has come lies beside it as
`.part` and is continued by an HTTP range, also from another address or in another run; the name
itself appears only when the whole file is there and verified. (requests does the transfer; pooch,
which would also check the hash, can neither resume nor use mirrors.)
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from requests import RequestException
from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema, TooManyRedirects
from tqdm import tqdm
from urllib3.exceptions import HTTPError

from lib.files.files import InputError, sha256

CHUNK = 1 << 16


class _NotThereError(Exception):
    """This address does not have the file; the next one may."""


class _CutShortError(Exception):
    """Not all of the file came; this address may yet give the rest."""


def download(
    urls: Sequence[str],
    path: Path,
    digest: str,
    size: int,
    *,
    attempts: int = 5,
    pause: float = 1.0,
    timeout: float = 30.0,
) -> None:
    """Bring the file of that SHA-256 `digest` and `size` in bytes to `path`.

    An address is given up after `attempts` in a row that brought less than 1 % of the file, with
    pauses of `pause` seconds that double; at once, if it says that it has no such file, or if it
    has another one. A file that is there and verified is kept. Raises `InputError` where no address
    gave the file, with the reason of each, and where the file cannot be written. Only one process
    may do so at a time: lock the folder where there may be more.
    """
    if path.exists() and mismatch(path, digest, size) is None:
        return
    part = path.with_name(path.name + ".part")
    failures = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free + _length(part)
        if free < size:
            raise InputError(f"{path.parent}: wanted room for {size} bytes, got {free} bytes free")
        every = 0.1 if sys.stderr.isatty() else 20
        with (
            requests.Session() as session,
            tqdm(desc=path.name, total=size, unit="B", unit_scale=True, mininterval=every) as bar,
        ):
            for url in urls:
                source = _Source(session, url, part, size, timeout, bar)
                try:
                    source.bring(digest, attempts, pause)
                except _NotThereError as reason:
                    failures.append(f"{url}: {reason}")
                else:
                    part.replace(path)
                    return
    except OSError as error:
        raise InputError(f"{path}: wanted to write {size} bytes there, got: {error}") from error
    raise InputError(
        f"{path}: wanted the file of {size} bytes with SHA-256 {digest}, got it from no address:"
        + "".join(f"\n  {failure}" for failure in failures)
    )


def mismatch(path: Path, digest: str, size: int) -> str | None:
    """The difference between the file and that SHA-256 and size, in words; None without one."""
    length = path.stat().st_size
    if length != size:
        return f"{length} bytes, wanted {size}"
    got = sha256(path)
    return None if got == digest else f"SHA-256 {got}, wanted {digest}"


@dataclass
class _Source:
    """An address of the file, and what it has given so far."""

    session: requests.Session
    url: str
    part: Path
    size: int
    timeout: float
    bar: Any
    etag: str | None = None  # the version that it gives: a range of another version is not taken
    whole: bool = False  # whether all of `part` came in one answer of this address

    def bring(self, digest: str, attempts: int, pause: float) -> None:
        """Complete and verify `part` from this address."""
        failed = 0
        best = _length(self.part)
        while True:
            try:
                self.receive()
                difference = mismatch(self.part, digest, self.size)
                if difference is None:
                    return
                self.part.unlink()
                if self.whole:
                    raise _NotThereError(f"gives another file, {difference}")
                reason = f"the pieces do not make up the file, {difference}"
            except (MissingSchema, InvalidSchema, InvalidURL, TooManyRedirects) as error:
                raise _NotThereError(str(error)) from error
            except (RequestException, HTTPError, _CutShortError) as error:
                reason = str(error)
            grown = _length(self.part) - best
            failed = 0 if grown >= max(1, self.size // 100) else failed + 1
            best += max(0, grown)
            if failed >= attempts:
                raise _NotThereError(f"{reason} ({attempts} attempts)")
            time.sleep(pause * 2 ** max(0, failed - 1))

    def receive(self) -> None:
        """Append what `part` lacks, or begin anew where the server gives no range."""
        have = _length(self.part)
        if have >= self.size:  # an earlier run ended before it could verify this
            self.whole = False
            return
        # The bytes as they lie on the server: a .tar.gz must not be unpacked on the way.
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
            if self.etag:
                headers["If-Range"] = self.etag
        with self.session.get(
            self.url, headers=headers, stream=True, timeout=self.timeout
        ) as answer:
            self.check(answer, have)
            etag = answer.headers.get("ETag", "")
            self.etag = etag if etag.startswith('"') else None
            self.whole = answer.status_code == 200
            with self.part.open("wb" if self.whole else "ab") as file:
                self.bar.update(file.tell() - self.bar.n)
                for chunk in answer.raw.stream(CHUNK, decode_content=False):
                    file.write(chunk)
                    self.bar.update(len(chunk))
                    if file.tell() > self.size:
                        break
                file.flush()
                os.fsync(file.fileno())
        length = _length(self.part)
        if length > self.size:
            self.part.unlink()
            raise _NotThereError(f"gives more than the wanted {self.size} bytes")
        if length < self.size:
            raise _CutShortError(f"ended after {length} of {self.size} bytes")

    def check(self, answer: requests.Response, have: int) -> None:
        """Raise where the answer is not (the rest of) the file: no byte of `part` is lost."""
        status = f"{answer.status_code} {answer.reason}"
        if answer.status_code in (408, 425, 429) or answer.status_code >= 500:
            raise _CutShortError(status)
        if answer.status_code == 206:
            given = answer.headers.get("Content-Range", "none")
            if not re.fullmatch(rf"bytes {have}-\d+/({self.size}|\*)", given):
                raise _NotThereError(
                    f"gives the range {given}, wanted bytes {have}-{self.size - 1}/{self.size}"
                )
        elif answer.status_code == 200:
            length = answer.headers.get("Content-Length", str(self.size))
            if length != str(self.size):
                kind = answer.headers.get("Content-Type", "no stated type")
                raise _NotThereError(
                    f"gives another file, {length} bytes of {kind}, wanted {self.size}"
                )
        else:
            raise _NotThereError(status)


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
