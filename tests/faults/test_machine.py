"""What the machine lacks is said in one line, before the work where that can be known; Ctrl-C ends
a stage at once.
"""

import errno
import inspect
import os
import re
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import get_args, get_origin

import psutil
import pytest

from lib.work.command import OutFile, OutFolder, run
from lib.work.errors import WANTED, absent, lacking
from tests.faults.harness import Reproduction, not_yet_run, repeat, scratch_holds
from tests.pipeline.project import ROOT, contents, different_stages

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows gives other errors")

CALLED = """
import sys
from pathlib import Path
from lib.work.command import OutFile, OutFolder, run
from lib.files.files import atomic

def main(out: {kind}) -> None:
    print("begun", flush=True)
    {body}

run(main)
"""
PLAIN = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT)}
CLOSED = ".*wanted the permission for it.*"
Done = subprocess.CompletedProcess[str]
# Without the privileges of root, for whom every place can be written to.
UNPRIVILEGED = """
import ctypes, os, sys
for capability in (1, 2):  # of DAC_OVERRIDE and DAC_READ_SEARCH
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def called(at: Path, body: str, out: str = "out", kind: str = "Path") -> Done:
    """A program of that body, run in a folder; its path is of that kind."""
    (at / "program.py").write_text(CALLED.format(body=body, kind=kind))
    command = [sys.executable, "program.py", out]
    if os.getuid() == 0:
        command[1:1] = ["-c", UNPRIVILEGED]
    return subprocess.run(command, cwd=at, env=PLAIN, capture_output=True, text=True, timeout=60)


@pytest.fixture
def places(tmp_path):
    """A file, a folder, and a folder with a file in which nobody may write."""
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "out").write_text("precious")
    closed.chmod(0o555)
    yield tmp_path
    closed.chmod(0o755)


@pytest.mark.parametrize(
    ("kind", "out", "said"),
    [
        ("Path", "file/out", "file/out: wanted a folder to write in, got the file .*/file"),
        ("OutFolder", "file", "file: wanted a folder to write in, got a file"),
        ("OutFile", "folder", "folder: wanted a file to write, got a folder"),
        ("Path", "closed/new/out", CLOSED),
        ("OutFile", "closed/out", CLOSED),
        ("OutFolder", "closed", CLOSED),
        ("OutFolder", ".", CLOSED),  # as a folder within it is
    ],
)
def test_a_place_where_nothing_can_be_written_is_noticed_before_the_work(places, kind, out, said):
    before = contents(places, ["."])
    done = called(places, "out.touch()", out, kind)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(f"error: {said}\n", done.stderr)
    assert contents(places, ["."]) == before | contents(places, ["program.py"])


def test_a_read_only_file_is_replaced_as_a_whole(tmp_path):
    (tmp_path / "out").write_text("old")
    (tmp_path / "out").chmod(0o444)
    done = called(tmp_path, "with atomic(out) as part: part.write_text('new')", kind="OutFile")
    assert (done.returncode, done.stdout) == (0, "begun\n")
    assert (tmp_path / "out").read_text() == "new"


def kinds(main, arguments):
    """Each argument with its kind.

    A parameter that is a list takes as many as are left, or those behind `--NAME`.
    """
    parameters = inspect.signature(main, eval_str=True).parameters
    named = {}
    left = []
    taking = left
    for one in arguments:
        name, equals, given = one.removeprefix("--").partition("=")
        if not one.startswith("--"):
            taking.append(one)
        elif equals:
            named[name.replace("-", "_")] = [given]
        else:
            taking = named[name.replace("-", "_")] = []
    for name, given in named.items():
        kind = parameters[name].annotation
        for one in given:
            yield one, get_args(kind)[0] if get_origin(kind) is list else kind
    annotations = [one.annotation for name, one in parameters.items() if name not in named]
    found = []
    for kind in annotations:
        many = get_origin(kind) is list
        n = 1 + many * max(0, len(left) - len(annotations))
        found += [get_args(kind)[0] if many else kind] * n
    yield from zip(left, found, strict=False)


@pytest.mark.parametrize("stage", different_stages(), ids=lambda stage: stage.name)
def test_every_path_that_a_stage_writes_is_marked_so_and_no_other(stage):
    outs = {out.path for out in stage.outs}
    for part in stage.cmd.split(" && "):
        _, _, module, *arguments = part.split()
        main = import_module(module).main
        handed = list(kinds(main, arguments))
        for given, kind in handed:
            if kind in (OutFile, OutFolder, Path):
                written = any((out + "/").startswith(given + "/") for out in outs)
                wanted = (OutFile if Path(given).suffix else OutFolder) if written else Path
                assert kind == wanted, given
        outs -= {given for given, _ in handed}  # which the next part reads


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
        (
            ImportError("libtorch_cpu.so: failed to map segment from shared object"),
            "failed to map segment from shared object: wanted more memory",
        ),
        (ImportError("cannot import name 'x' from 'y'"), None),
        (ValueError("a fault"), None),
        (OSError("without a number"), None),
        (OSError(errno.ENOENT, "No such file"), None),
    ],
)
def test_what_is_lacking_is_told_from_a_fault(error, said):
    found = lacking(error)
    assert found is None if said is None else found is not None and said in found


@pytest.mark.parametrize("module", ["stages.vision.train", "tools.lora"])
@pytest.mark.parametrize("kilobytes", [200_000, 600_000, 1_000_000, 1_300_000])
def test_a_limit_too_small_to_load_the_libraries_is_said_in_one_line(module, kilobytes):
    command = f"ulimit -v {kilobytes} && exec {sys.executable} -m {module}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env=PLAIN, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert re.fullmatch(
        r"error: wanted at least 1\.25 GiB of memory to load the libraries, got a limit of "
        r"[\d.]+ \(`ulimit -v`\)\n",
        done.stderr,
    )


@pytest.mark.parametrize("module", ["stages.vision.train", "tools.lora"])
def test_a_python_without_the_packages_is_said_in_one_line(module):
    command = [sys.executable, "-S", "-m", module]
    done = subprocess.run(command, cwd=ROOT, env=PLAIN, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    wanted = (
        r"error: wanted the package \w+, got none in .*: activate .venv, or let `make` make .*\n"
    )
    assert re.fullmatch(wanted, done.stderr)


def test_a_module_of_ours_that_is_not_there_is_a_fault():
    assert absent(ModuleNotFoundError("x", name="lib.files.none")) is None
    assert absent(ImportError("x", name="numpy")) is None


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
    (at / "program.py").write_text(CALLED.format(body=body, kind="Path"))
    program = [sys.executable, "program.py", "out"]
    with subprocess.Popen(program, cwd=at, env=PLAIN, stdout=-1, stderr=-1, text=True) as work:
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
    stage = tiny_pipeline.stage("gradual_rank_flow")
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
