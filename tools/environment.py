"""Have .venv whole before a command of make runs: `python tools/environment.py [EXTRA ...]`.

Set-up ends with a mark, `.venv/installed`, which says where .venv is, for which Python, of which
requirements, and which packages it holds. What does not fit the mark is mended: a set-up that was
broken off, a folder that was moved or copied, a package that was installed by hand, requirements
that changed. An extra (docs, notebook, ray, s3, bench) has a mark and a file of requirements of its
own. With `TORCH=cpu` in the environment torch is the build for a CPU, which is a fifth as large.

What draws the report (report), and the site beside it (pages), needs a fiftieth of that: it is set
up apart, in .venv-report, so that neither set-up changes the other.

This runs before anything is installed, also on a Python that is too old: it needs the standard
library alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = Path(".venv")  # all paths are relative to the repository, where this works
BIN = VENV / "bin"
SMALL = Path(".venv-report")  # is VENV, once `main` is asked for a part of SMALL_PARTS
SMALL_PARTS = ("report", "pages")
PIP = "requirements.pip.txt"
MAIN = "requirements.txt"
UV = "requirements.uv.txt"
PLOTS = Path(".dvc/tmp/plots.html")
MADE_OF = {  # the files of which each part of the set-up is made
    "installed": [MAIN, "requirements.cuda.txt", PIP, UV, "tools/plots.py", "tools/plots.html"],
    "docs": ["requirements.docs.txt"],
    "notebook": ["requirements.notebook.txt"],
    "ray": ["requirements.ray.txt"],
    "s3": ["requirements.s3.txt"],
    "bench": ["benchmarks/requirements.txt"],
    "report": ["requirements.report.txt", PIP],
    "pages": ["requirements.pages.txt", "requirements.docs.txt"],
}
PIN = re.compile(r"^([A-Za-z0-9][^=\s]*)==(\S+)", re.MULTILINE)
OLDEST = (3, 11)
NEWEST = (3, 13)
# The first lines of a program of .venv that finds its Python beside itself, wherever that is.
BESIDE = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/python "$0" "$@"
' '''
"""


class SetUpError(Exception):
    """Why set-up cannot go on, in one line."""


def main(parts: list[str]) -> None:
    """Mend what is not as its mark says, of the packages that all need and of these extras."""
    os.chdir(ROOT)
    small = [part for part in parts if part in SMALL_PARTS]
    if small:
        work_in(SMALL)
    braces = sorted(set("{}") & set(str(ROOT)))
    if braces:
        raise SetUpError(
            f"{ROOT}: wanted a folder without braces in its path, which DVC takes for a template "
            f"of its own, got {' and '.join(braces)}: rename it"
        )
    first = SMALL_PARTS[0] if small else "installed"
    parts = [first, *(part for part in parts if part != first)]
    known = SMALL_PARTS if small else [part for part in MADE_OF if part not in SMALL_PARTS]
    unknown = [part for part in parts if part not in known]
    if unknown:
        raise SetUpError(f"wanted extras among {', '.join(known)}, got {', '.join(unknown)}")
    if not any(map(fault, parts)):
        return
    with alone():
        for part in parts:
            found = fault(part)  # another command may have mended it meanwhile
            if found:
                print(f"setting up {VENV}: {found}", flush=True)
                mend(part)
                left = fault(part, starts=version_of_venv() == version())
                if left:
                    raise SetUpError(f"{left}, also after set-up: remove {VENV} and run make again")


def work_in(venv: Path) -> None:
    """Work in this environment from now on, the only one that a process sets up."""
    global VENV, BIN
    VENV = venv
    BIN = venv / "bin"


def fault(part: str, *, starts: bool | None = None) -> str | None:
    """What differs from the mark of a part; None if nothing does.

    Make runs this by the Python of .venv if that starts, which then need not be tried again.
    """
    try:
        mark = json.loads((VENV / part).read_text(encoding="utf-8"))
        told = (mark["folder"], mark["python"], dict(mark["files"]), dict(mark["packages"]))
    except FileNotFoundError:
        return f"{part} was not finished here" if VENV.exists() else "none is here yet"
    except (OSError, ValueError, TypeError, KeyError):
        return f"the mark {VENV / part} is none of this version of it"
    folder, python, files, packages = told
    if folder != place():
        return f"it was made in {folder}"
    if python != version() or not (inside() if starts is None else starts):
        return f"it is of Python {python}, and its Python is another, or is gone"
    changed = [name for name, digest in digests(part).items() if files.get(name) != digest]
    if changed:
        return f"{', '.join(changed)} changed"
    if part == "installed" and not PLOTS.is_file():
        return f"{PLOTS} is gone"
    here = installed()
    for name, wanted in packages.items():
        got = here.get(name, [])
        if got != [wanted]:
            return f"{name}: wanted {wanted}, got {' and '.join(got) or 'none'}"
    return None


def mend(part: str) -> None:
    """Make a part of the set-up whole, whatever of it is there, and mark it."""
    mark = VENV / part
    mark.unlink(missing_ok=True)
    if part == "installed":
        make_venv()
        pip("--require-hashes", "-r", PIP)
        if os.environ.get("TORCH") == "cpu":
            torch_for_a_cpu()
        else:
            torch_of_a_folder()
        pip("--require-hashes", "-r", MAIN)
        run(str(BIN / "python"), "-m", "tools.plots", str(PLOTS))
        template = os.path.relpath(PLOTS, ".dvc")
        dvc = [str(BIN / "python"), "-m", "dvc", "config", "--local"]
        run(*dvc, "plots.html_template", template)
    else:  # its files have all that it needs and that what is installed first has not
        if part == SMALL_PARTS[0]:
            make_venv()
            pip("--require-hashes", "-r", PIP)
        for file in MADE_OF[part]:
            if file != PIP:
                pip("--require-hashes", "--no-deps", "-r", file)
    pinned = {plain(name) for file in MADE_OF[part] for name, _ in pins(file)} - {"pip"}
    packages = {name: found[0] for name, found in installed().items() if name in pinned}
    said = {"folder": place(), "python": version_of_venv(), "files": digests(part)}
    written = mark.with_name(f".{part}.part")
    written.write_text(json.dumps({**said, "packages": packages}, indent=1), encoding="utf-8")
    os.replace(written, mark)


def make_venv() -> None:
    """Have a virtual environment with pip: what can be used of one that is there stays."""
    if not (OLDEST <= sys.version_info[:2] <= NEWEST):
        wanted = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
        raise SetUpError(
            f"wanted Python {wanted}, got {version()} ({sys.executable}): "
            f"{f'remove {VENV}, and ' if inside() else ''}give another, as in "
            "`make PYTHON=python3.12 repro`"
        )
    base = getattr(sys, "_base_executable", None) or sys.executable
    if os.path.realpath(Path(base).parent) == os.path.realpath(BIN):  # .venv does not say its base
        base = os.path.realpath(base)
    if version_of_venv() != version():
        if VENV.exists():
            print(f"{VENV} is no environment of Python {version()}, or a part of one: made anew")
        run(base, "-I", "-m", "venv", "--clear", place())
    else:  # its scripts say where it is, and may say another place
        run(base, "-I", "-m", "venv", "--without-pip", place())
        for script in BIN.iterdir():
            find_python_beside(script)
    for folder in parts_of_packages():
        shutil.rmtree(folder)
    if not has_pip():
        with suppress(subprocess.CalledProcessError):
            subprocess.run(
                [BIN / "python", "-I", "-m", "ensurepip", "--upgrade"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )
    if not has_pip():
        run(base, "-I", "-m", "venv", "--clear", place())


def find_python_beside(script: Path) -> None:
    """Let a program of .venv whose first line names a Python of another place find the one beside
    it.
    """
    if script.is_symlink() or not script.is_file():
        return
    content = script.read_bytes()
    head, _, rest = content.partition(b"\n")
    if head == b"#!/bin/sh" and rest.startswith(b"'''exec'"):  # as pip writes it for a long path
        rest = rest.split(b"\n", 2)[2]
    elif not re.match(rb"#!.*/bin/python[0-9.]*$", head):
        return
    part = script.with_name(f".{script.name}.part")
    part.write_bytes(BESIDE + rest)
    shutil.copymode(script, part)
    os.replace(part, script)


def parts_of_packages() -> list[Path]:
    """What pip left when it was killed: it renames a package to ~ first, and writes RECORD last."""
    found = site_packages().glob("*.dist-info")
    halves = [path for path in found if not (path / "RECORD").is_file()]
    return [*halves, *(path for path in site_packages().glob("~*") if path.is_dir())]


def has_pip() -> bool:
    """Whether pip is there as a whole."""
    if not any(site_packages().glob("pip-*.dist-info/RECORD")):
        return False
    command = [BIN / "python", "-I", "-m", "pip", "--version"]
    return not subprocess.run(command, capture_output=True, check=False).returncode


def torch_of_a_folder() -> None:
    """Install torch's wheel for a CPU, where pip's settings name a folder that has it; without one
    the next step takes the wheel of the index.
    """
    text = Path(MAIN).read_text(encoding="utf-8")
    block = re.search(r"^torch==(?:.*\\\n)*.*\n", text, re.MULTILINE)
    if block is None:
        return
    file = VENV / "torch.txt"
    file.write_text(block[0], encoding="utf-8")
    offline = ("--no-index", "--no-deps", "--require-hashes", "-r", str(file))
    with (VENV / "torch.log").open("w") as log:
        subprocess.run(
            [BIN / "python", "-m", "pip", "install", "--quiet", *offline],
            stdout=log,
            stderr=log,
            check=False,
        )


def torch_for_a_cpu() -> None:
    """Install torch's build for a CPU, which pip's index lacks on Linux: uv knows where it is."""
    [number] = [number for name, number in pins(MAIN) if name == "torch"]
    pip("--require-hashes", "-r", UV)
    target = ("--python", str(BIN / "python"), "--torch-backend", "cpu", f"torch=={number}")
    run(str(BIN / "uv"), "pip", "install", "--quiet", *target)


def pip(*arguments: str) -> None:
    """Install with the pip of .venv."""
    quiet = ("--quiet", "--disable-pip-version-check")
    run(str(BIN / "python"), "-m", "pip", "install", *quiet, *arguments)


def run(*command: str) -> None:
    """Run a command; raises `SetUpError` where it fails, which has said why."""
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise SetUpError(
            f"{VENV}: wanted {' '.join(command)} to end well, got its error above; the next make "
            "goes on from here"
        )


def place() -> str:
    """Where .venv is, behind every link."""
    return os.path.realpath(VENV)


def version() -> str:
    """The version of this Python by which packages are installed: 3.11."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def inside() -> bool:
    """Whether this Python is that of .venv; make takes another one if that does not start."""
    return os.path.realpath(sys.prefix) == place()


def version_of_venv() -> str | None:
    """The version of the Python of .venv; None where it is no environment that starts."""
    asked = "import sys; print(sys.prefix != sys.base_prefix, *sys.version_info[:2])"
    try:
        done = subprocess.run(
            [BIN / "python", "-I", "-c", asked], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    found = done.stdout.split()
    return ".".join(found[1:]) if found[:1] == ["True"] else None


def site_packages() -> Path:
    """Where the packages of .venv are."""
    return VENV / "lib" / f"python{version()}" / "site-packages"


def installed() -> dict[str, list[str]]:
    """The versions of every package in .venv, by its name: more than one where pip was killed."""
    found: dict[str, list[str]] = {}
    for path in sorted(site_packages().glob("*.dist-info")):
        package, dash, number = path.stem.partition("-")
        if dash:
            found.setdefault(plain(package), []).append(number)
    return found


def plain(name: str) -> str:
    """A package's name as all of its spellings have it in common."""
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower()


def pins(file: str) -> list[tuple[str, str]]:
    """The names and versions that a file of requirements has."""
    if not file.endswith(".txt"):
        return []
    return PIN.findall(Path(file).read_text(encoding="utf-8"))


def digests(part: str) -> dict[str, str]:
    """The SHA-256 of each file from which a part is made."""
    return {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in MADE_OF[part]}


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other command of make sets up here, and keep others waiting meanwhile."""
    lock = Path(".dvc/tmp/environment.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        with suppress(ImportError):  # Windows has none
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                print(f"waiting: another command sets up {VENV}", flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SetUpError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {VENV}: {error}")
    except KeyboardInterrupt:
        print("\nerror: interrupted; the next make goes on from here", file=sys.stderr)
        sys.exit(130)
