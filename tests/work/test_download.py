"""Downloads from a local HTTP server that cuts, lies, refuses, and sometimes serves."""

import gzip
import hashlib
import re
import shutil
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lib.files.files import InputError
from lib.work.download import download

CONTENT = np.random.default_rng(0).bytes(1_000_000)
OTHER = np.random.default_rng(1).bytes(1_000_000)


@dataclass
class Site:
    """What one address of the server does with each request, and what it was asked."""

    content: bytes
    statuses: list[int] = field(
        default_factory=list
    )  # of the first answers (0: hangs up); then it serves
    moved_to: str | None = None
    cuts: list[int] = field(
        default_factory=list
    )  # bytes that the first answers carry; then it serves all
    always_cut: int | None = None
    ranges: bool = True
    says_ranges: bool = True
    honest: bool = True  # states the length of what it sends
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0
    url: str = ""
    asked: list[str | None] = field(default_factory=list)
    sent: int = 0


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        site = self.server.sites[self.path]
        wanted = self.headers.get("Range")
        site.asked.append(wanted)
        time.sleep(site.delay)
        if site.statuses:
            status = site.statuses.pop(0)
            if status:
                self.send_error(status)
            return
        if site.moved_to:
            self.send_response(301)
            self.send_header("Location", site.moved_to)
            self.end_headers()
            return
        content = site.content
        start = 0
        if wanted and site.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            given = f"bytes {start}-{len(content) - 1}/{len(content)}"
            if site.says_ranges:
                self.send_header("Content-Range", given)
        else:
            self.send_response(200)
        if site.honest:
            self.send_header("Content-Length", str(len(content) - start))
        for name, value in site.headers.items():
            self.send_header(name, value)
        self.end_headers()
        carried = site.cuts.pop(0) if site.cuts else site.always_cut
        body = content[start:][:carried]
        try:
            self.wfile.write(body)
            site.sent += len(body)
        except ConnectionError:
            pass


@pytest.fixture
def web(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.sites = {}
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()

    def serve(content=CONTENT, **behaviour):
        path = f"/{len(server.sites)}/file.bin"
        server.sites[path] = site = Site(content, **behaviour)
        site.url = f"http://127.0.0.1:{server.server_address[1]}{path}"
        return site

    yield serve
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "downloads" / "file.bin"


def get(*sites, path: Path, content=CONTENT, attempts=3, timeout=10.0):
    urls = [site if isinstance(site, str) else site.url for site in sites]
    digest = hashlib.sha256(content).hexdigest()
    download(urls, path, digest, len(content), attempts=attempts, pause=0.0, timeout=timeout)


def left_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def part_with(path: Path, content: bytes) -> Path:
    part = path.with_name("file.bin.part")
    part.parent.mkdir()
    part.write_bytes(content)
    return part


@pytest.mark.parametrize("cut", [150_000, 333_333, 999_999])
def test_a_connection_that_is_cut_again_and_again_goes_on_where_it_was_cut(web, path, cut):
    site = web(always_cut=cut)
    get(site, path=path)
    assert path.read_bytes() == CONTENT
    assert site.asked[0] is None
    assert all(asked.startswith("bytes=") for asked in site.asked[1:])
    assert len(site.asked) > 1
    assert site.sent < 2 * len(CONTENT)


def test_a_later_run_continues_the_part_of_an_earlier_one(web, path):
    part_with(path, CONTENT[:400_000])
    site = web()
    get(site, path=path)
    assert path.read_bytes() == CONTENT
    assert site.asked == ["bytes=400000-"]
    assert left_in(path.parent) == ["file.bin"]


def test_a_part_that_is_complete_is_verified_and_not_asked_for(web, path):
    part_with(path, CONTENT)
    site = web()
    get(site, path=path)
    assert path.read_bytes() == CONTENT
    assert site.asked == []


def test_a_mirror_continues_what_another_address_began(web, path):
    first, second = web(cuts=[500_000, 0, 0, 0]), web()
    get(first, second, path=path)
    assert path.read_bytes() == CONTENT
    assert second.sent < len(CONTENT)


def test_a_server_that_knows_no_ranges_begins_anew(web, path):
    site = web(ranges=False, cuts=[300_000, 600_000])
    get(site, path=path)
    assert path.read_bytes() == CONTENT
    assert len(site.asked) == 3


@pytest.mark.parametrize(
    "stale", [OTHER[:400_000], OTHER, OTHER + b"more"], ids=["cut", "full", "longer"]
)
def test_a_part_of_another_file_is_thrown_away_and_the_same_address_asked_again(web, path, stale):
    part_with(path, stale)
    get(web(), path=path)
    assert path.read_bytes() == CONTENT
    assert left_in(path.parent) == ["file.bin"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"content": OTHER},
        {"content": b"<html>please log in</html>", "headers": {"Content-Type": "text/html"}},
        {"content": CONTENT + b"more", "honest": False},
        {"content": CONTENT[:-1], "honest": False},
        {"statuses": [404]},
        {"statuses": [503, 429, 0]},
        {"always_cut": 0},
    ],
)
def test_an_address_without_the_file_is_passed_over_for_the_next(web, path, wrong):
    good = web()
    get(web(**wrong), good, path=path)
    assert path.read_bytes() == CONTENT
    assert left_in(path.parent) == ["file.bin"]
    assert good.asked


def test_a_refusal_is_taken_at_its_word_and_a_failure_is_tried_again(web, path):
    refusing, failing = web(statuses=[404, 404]), web(statuses=[500, 503])
    get(refusing, failing, path=path)
    assert len(refusing.asked) == 1
    assert len(failing.asked) == 3


def test_a_download_is_continued_at_the_address_that_the_file_moved_to(web, path):
    new = web(cuts=[300_000, 300_000])
    get(web(moved_to=new.url), path=path)
    assert path.read_bytes() == CONTENT
    assert new.asked == [None, "bytes=300000-", "bytes=600000-"]


def test_the_pauses_between_attempts_double(web, path, monkeypatch):
    pauses = []
    monkeypatch.setattr("lib.work.download.time", SimpleNamespace(sleep=pauses.append))
    site = web(statuses=[500] * 4)
    download([site.url], path, hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
    assert pauses == [1, 2, 4, 8]


def test_a_login_page_does_not_cost_the_part_that_is_there(web, path):
    part = part_with(path, CONTENT[:400_000])
    page = web(b"<html>please log in</html>", ranges=False)
    with pytest.raises(InputError, match="gives another file, 26 bytes"):
        get(page, path=path)
    assert part.read_bytes() == CONTENT[:400_000]


@pytest.mark.parametrize(
    ("content", "says_ranges", "given"),
    [(CONTENT, False, "none"), (CONTENT + b"more", True, "bytes 400000-1000003/1000004")],
)
def test_a_range_that_is_not_the_rest_is_not_appended(web, path, content, says_ranges, given):
    part = part_with(path, CONTENT[:400_000])
    said = f"gives the range {given}, wanted bytes 400000-999999"
    with pytest.raises(InputError, match=said):
        get(web(content, says_ranges=says_ranges), path=path)
    assert part.read_bytes() == CONTENT[:400_000]


def test_the_attempts_at_an_address_that_always_begins_anew_are_bounded(web, path):
    site = web(always_cut=400_000, ranges=False)
    with pytest.raises(InputError, match=r"\(3 attempts\)"):
        get(site, path=path)
    assert len(site.asked) == 4


def test_a_server_that_keeps_silent_is_given_up(web, path):
    silent, good = web(delay=0.5), web()
    get(silent, good, path=path, attempts=1, timeout=0.1)
    assert path.read_bytes() == CONTENT


def test_the_error_names_every_address_and_why_it_failed(web, path):
    missing, other, short = web(statuses=[404]), web(OTHER), web(always_cut=5_000)
    with pytest.raises(InputError) as raised:
        get(missing, other, short, "http://127.0.0.1:1/", "nonsense", "file:///etc", path=path)
    first, *lines = str(raised.value).splitlines()
    assert f"{path}: wanted the file of 1000000 bytes with SHA-256" in first
    wanted = [
        f"{missing.url}: 404 Not Found",
        f"{other.url}: gives another file, SHA-256 {hashlib.sha256(OTHER).hexdigest()}",
        f"{short.url}: .*attempts",
        "http://127.0.0.1:1/: .*refused",
        "nonsense: Invalid URL",
        "file:///etc: No connection adapters",
    ]
    for line, said in zip(lines, wanted, strict=True):
        assert re.match(f" *{said}", line)
    assert not path.exists()


def test_a_wrong_file_leaves_nothing(web, path):
    with pytest.raises(InputError, match="gives another file"):
        get(web(OTHER), path=path)
    assert left_in(path.parent) == []


def test_a_verified_file_is_not_asked_for_again(web, path):
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    get("http://127.0.0.1:1/", path=path)
    assert path.read_bytes() == CONTENT


def test_an_altered_file_is_replaced_when_and_only_when_a_verified_one_has_come(web, path):
    path.parent.mkdir()
    path.write_bytes(OTHER)
    with pytest.raises(InputError, match="404"):
        get(web(statuses=[404]), path=path)
    assert path.read_bytes() == OTHER
    get(web(), path=path)
    assert path.read_bytes() == CONTENT


def test_an_archive_is_kept_packed_whatever_encoding_the_server_states(web, path):
    packed = gzip.compress(CONTENT[:1000], mtime=0)
    get(web(packed, headers={"Content-Encoding": "gzip"}), path=path, content=packed)
    assert path.read_bytes() == packed


def test_a_body_of_unstated_length_that_ends_early_is_continued(web, path):
    site = web(honest=False, cuts=[300_000])
    get(site, path=path)
    assert path.read_bytes() == CONTENT
    assert site.asked == [None, "bytes=300000-"]


def test_a_folder_that_cannot_be_written_is_named(web, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError, match=r"wanted to write 1000000 bytes there, got: .*file"):
        get(web(), path=tmp_path / "file" / "file.bin")


def test_too_little_room_is_noticed_before_anything_is_asked_for(web, path, monkeypatch):
    usage = shutil.disk_usage(path.parents[1])._replace(free=999)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    site = web()
    with pytest.raises(InputError, match="wanted room for 1000000 bytes, got 999 bytes free"):
        get(site, path=path)
    assert site.asked == []


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="no /dev/full, the device that is always full"
)
def test_a_disk_that_fills_up_is_named(web, path):
    path.parent.mkdir()
    path.with_name("file.bin.part").symlink_to("/dev/full")
    with pytest.raises(InputError, match="No space left on device"):
        get(web(), path=path)
    assert not path.exists()
