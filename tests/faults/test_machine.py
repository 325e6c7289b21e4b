"""What the machine lacks is said in one line, before the work where that can be known; Ctrl-C ends
a stage at once.
"""

import errno
import inspect
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import get_origin

import psutil
import pytest

from lib.work.command import OutFile, OutFolder, run
from lib.work.errors import WANTED, lacking
from tests.faults.harness import Reproduction, assert_same, not_yet_run, repeat, scratch_holds
from tests.pipeline.project import ROOT, stages

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows gives other errors")

CALLED = """
import sys
from pathlib import Path
from lib.work.command import OutFile, OutFolder, run
from lib.files.files import atomic

def main(out: Path) -> None:
    print("begun", flush=True)
    {body}

run(main)
"""
WRITES = "with atomic(out) as part: part.touch()"
# Without the privileges of root, for whom every place can be written to.
UNPRIVILEGED = """
import ctypes, os, sys
for capability in (1, 2):  # of DAC_OVERRIDE and DAC_READ_SEARCH
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def called(
    at: Path, body: str, out: str = "out", before: str = "", kind: str = "Path", **options
) -> subprocess.CompletedProcess[str]:
    """A program of that body, run in a folder, whose path is of that kind; `before` runs before it,
    in its process.
    """
    (at / "program.py").write_text(CALLED.format(body=body).replace("out: Path", f"out: {kind}"))
    command = (
        [sys.executable, "-c", before, "program.py", out]
        if before
        else [sys.executable, "program.py", out]
    )
    plain = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=at, env=plain, capture_output=True, text=True, timeout=60, **options
    )


def in_one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.fixture
def closed(tmp_path):
    """A folder that nobody may write in."""
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)


def test_a_folder_without_permission_is_noticed_before_the_work(tmp_path, closed):
    before = UNPRIVILEGED if os.getuid() == 0 else ""
    done = called(tmp_path, WRITES, "closed/new/out", before)
    assert "Permission denied: " in in_one_line(done)
    assert "wanted the permission for it" in done.stderr
    assert done.stdout == ""
    assert list(closed.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="mounts are Linux's")
def test_a_read_only_disk_is_noticed_before_the_work(tmp_path):
    (tmp_path / "fixed").mkdir()
    (tmp_path / "program.py").write_text(CALLED.format(body=WRITES))
    mount = 'mount -t tmpfs -o ro none fixed && echo mounted && exec "$@"'
    inside = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        mount,
        "sh",
        sys.executable,
        "program.py",
        "fixed/out",
    ]
    plain = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(inside, cwd=tmp_path, env=plain, capture_output=True, text=True)
    if "mounted" not in done.stdout:
        pytest.skip("a mount needs privileges")
    assert "Read-only file system: " in in_one_line(done)
    assert "wanted a disk that can be written to" in done.stderr
    assert "begun" not in done.stdout


def test_a_file_where_a_folder_is_wanted_is_noticed_before_the_work(tmp_path):
    (tmp_path / "file").write_text("precious")
    done = called(tmp_path, WRITES, "file/out")
    assert (
        in_one_line(done)
        == f"error: file/out: wanted a folder to write in, got the file {tmp_path}/file"
    )
    assert done.stdout == ""
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize(
    ("kind", "there", "said"),
    [
        ("OutFolder", "a file", "out: wanted a folder to write in, got a file"),
        ("OutFile", "a folder", "out: wanted a file to write, got a folder"),
    ],
)
def test_an_output_that_is_there_as_something_else_is_noticed_before_the_work(
    kind, there, said, tmp_path
):
    (tmp_path / "out").mkdir() if there == "a folder" else (tmp_path / "out").write_text("precious")
    done = called(tmp_path, WRITES, kind=kind)
    assert in_one_line(done) == f"error: {said}"
    assert done.stdout == ""
    assert (tmp_path / "out").is_dir() or (tmp_path / "out").read_text() == "precious"


@pytest.mark.parametrize(
    ("kind", "out"), [("OutFolder", "closed"), ("OutFile", "closed/out"), ("OutFolder", ".")]
)
def test_a_read_only_output_that_is_there_is_noticed_before_the_work(kind, out, tmp_path, closed):
    """The folder itself, the folder of a file, and a folder within the folder."""
    closed.chmod(0o755)
    (closed / "out").write_text("precious")
    closed.chmod(0o555)
    done = called(tmp_path, WRITES, out, UNPRIVILEGED if os.getuid() == 0 else "", kind)
    assert "wanted the permission for it" in in_one_line(done)
    assert done.stdout == ""
    assert [path.name for path in closed.iterdir()] == ["out"]


def test_a_read_only_file_is_replaced_as_a_whole(tmp_path):
    (tmp_path / "out").write_text("old")
    (tmp_path / "out").chmod(0o444)
    body = "with atomic(out) as part: part.write_text('new')"
    done = called(tmp_path, body, before=UNPRIVILEGED if os.getuid() == 0 else "", kind="OutFile")
    assert (done.returncode, done.stdout) == (0, "begun\n")
    assert (tmp_path / "out").read_text() == "new"


@pytest.mark.parametrize(
    "family",
    [
        "checkpoints",
        "decision_lists",
        "gradual_rank",
        "low_rank_sparse",
        "vision",
        "spectra",
        "report",
    ],
)
def test_every_path_that_a_stage_writes_is_marked_so(family):
    """As dvc.yaml lists them; and no path that it reads alone is."""
    for stage in stages():
        if stage.module.split(".")[1] != family:
            continue
        outs = {out.path for out in stage.outs}
        for part in stage.cmd.split(" && "):
            _, _, module, *arguments = part.split()
            parameters = inspect.signature(
                import_module(module).main, eval_str=True
            ).parameters.values()
            n_more = max(0, len(arguments) - len(parameters))  # of the one that is a list
            taken = [
                one
                for one in parameters
                for _ in range(1 + n_more * (get_origin(one.annotation) is list))
            ]
            for parameter, given in zip(taken, arguments, strict=False):
                kind = parameter.annotation
                kind = OutFolder if kind == list[OutFolder] else kind
                written = given in outs or any(out.startswith(given + "/") for out in outs)
                if kind in (OutFile, OutFolder, Path):
                    wanted = (OutFile if Path(given).suffix else OutFolder) if written else Path
                    assert kind == wanted, f"{module}: {parameter.name}"
            outs -= set(arguments)  # which the next part reads


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "(out.parent / 'file').write_text(''); write = out.parent / 'file' / 'one'; "
            "write.write_text('')",
            "a folder",
        ),
        ("Path('file').write_text(''); Path('file').mkdir()", "a folder, where a file is"),
        ("out.mkdir(); out.write_text('')", "a file, where a folder is"),
        (
            "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (20, 20)); a = [open('/dev/null') "
            "for _ in 'x' * 20]",
            "more open files",
        ),
    ],
    ids=["ENOTDIR", "EEXIST", "EISDIR", "EMFILE"],
)
def test_what_goes_wrong_in_the_work_is_one_line(body, said, tmp_path):
    done = called(tmp_path, body)
    assert f"wanted {said}" in in_one_line(done)
    assert done.stdout == "begun\n"


def test_scratch_on_a_disk_without_locks_is_one_line(tmp_path, capsys, monkeypatch):
    import fcntl

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    def main() -> None:
        from lib.work.scratch import Scratch

        with Scratch("stage", {"a": 1}, tmp_path):
            raise AssertionError

    monkeypatch.setattr(fcntl, "flock", no_locks)
    monkeypatch.setattr(sys, "argv", ["program"])
    with pytest.raises(
        SystemExit,
        match=r"No locks available.*: wanted a disk on which files can be locked; what is",
    ):
        run(main)


@pytest.mark.parametrize("number", sorted(WANTED))
def test_every_error_that_is_the_machines_is_said_in_one_line(number):
    said = lacking(OSError(number, os.strerror(number), "a\nb"))
    assert said is not None
    assert WANTED[number] in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "MemoryError: wanted more memory"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory:\nyou tried"),
            "wanted more memory",
        ),
        (
            type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory."),
            "CUDA out of memory.: wanted more",
        ),
        (ValueError("a fault"), None),
        (OSError("without a number"), None),
        (OSError(errno.ENOENT, "No such file"), None),
    ],
)
def test_what_is_lacking_is_told_from_a_fault(error, said):
    found = lacking(error)
    assert found is None if said is None else found is not None and said in found


def test_a_place_is_tried_and_left_as_it_was(tmp_path, monkeypatch):
    def main(there: Path, new: Path) -> None:
        found.append(sorted(tmp_path.rglob("*")))

    found: list[list[Path]] = []
    (tmp_path / "there").write_text("kept")
    monkeypatch.setattr(
        sys, "argv", ["program", str(tmp_path / "there"), str(tmp_path / "new" / "table")]
    )
    run(main)
    assert found == [[tmp_path / "there"]]


@pytest.fixture(autouse=True)
def listening():
    """Ctrl-C reaches this process and those that it starts, also where the tests run in the
    background.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(at: Path, body: str) -> tuple[float, int, str]:
    """The seconds that a program went on after Ctrl-C, its exit status, and what it said."""
    (at / "program.py").write_text(CALLED.format(body=body))
    plain = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "program.py", "out"]
    with subprocess.Popen(program, cwd=at, env=plain, stdout=-1, stderr=-1, text=True) as work:
        assert work.stdout is not None
        assert work.stdout.readline() == "begun\n"
        time.sleep(0.2)
        work.send_signal(signal.SIGINT)
        begin = time.monotonic()
        _, said = work.communicate(timeout=60)
        return time.monotonic() - begin, work.returncode, said


def test_ctrl_c_is_one_line_and_leaves_no_part(tmp_path):
    took, status, said = interrupted(
        tmp_path, "import time\n    with atomic(out) as part: part.touch(); time.sleep(60)"
    )
    assert (status, said) == (130, "\nerror: interrupted; what is unfinished is removed\n")
    assert took < 5
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def imports_packages(process):
    """Whether it has come to the project's code: before that an interrupt is Python's own to
    answer.
    """
    try:
        return any("site-packages" in part.path for part in process.memory_maps())
    except psutil.Error:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("begun", ["imports", "works"])
def test_ctrl_c_under_dvc_ends_a_stage_and_its_workers_within_five_seconds(
    begun, tiny_pipeline, tmp_path
):
    [stage] = [
        stage for stage in tiny_pipeline.stages if stage.module == "stages.gradual_rank.flow"
    ]
    project = not_yet_run(tiny_pipeline.folder, tmp_path / "project", stage)
    with Reproduction(project, stage) as work:
        if begun == "works":
            work.until(scratch_holds("gradual_rank_flow/*/*"))
        else:
            work.until(lambda _: any(map(imports_packages, work.find("stage"))))
        os.killpg(work.dvc.pid, signal.SIGINT)
        begin = time.monotonic()
        while any(map(work.find, ("worker", "stage"))):
            time.sleep(0.05)
        assert time.monotonic() - begin < 5
        said = work.ended()
        assert work.dvc.returncode != 0
    assert "Traceback" not in said
    if begun == "works":
        assert "error: interrupted; what is unfinished is removed" in said
    repeat(project, tiny_pipeline.folder, stage)
    assert_same(project, tiny_pipeline.folder, stage)
