"""The pipeline as its tests see it: the stages with every matrix expanded, and copies of the
project to run them in.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from dvc.repo import Repo
from dvc.repo.index import Index

from lib.files.params import load_yaml
from tools.imports import is_code

ROOT = Path(__file__).parents[2]
DRAWS = {"plot", "claims", "report"}  # verbs of stages that read only what is in git
TRAINS = {
    "train",
    "flow",
    "descend",
    "full_weights",
}  # verbs of stages that cost too much to be done twice
PYTHON = str(Path(sys.executable).parent / "python")


@dataclass(frozen=True)
class Out:
    """What a stage makes; `in_git` where git keeps it and not DVC's cache."""

    path: str
    in_git: bool


@dataclass(frozen=True)
class Stage:
    """One stage of a dvc.yaml, its variables filled in; every path is relative to the project."""

    name: str
    desc: str | None
    cmd: str
    deps: tuple[str, ...]
    params: tuple[str, ...]  # dotted keys of params.yaml
    outs: tuple[Out, ...]

    @property
    def modules(self) -> list[str]:
        """The modules that `python -m` runs, one after another."""
        found = [re.match(r"python -m (\S+)", part) for part in self.cmd.split(" && ")]
        assert all(found), f"{self.name}: wanted 'python -m MODULE ... && ...', got {self.cmd!r}"
        return [one[1] for one in found if one]

    @property
    def module(self) -> str:
        """The first of them, which names the stage."""
        return self.modules[0]

    @property
    def verb(self) -> str:
        """What the stage does: the last word of its first module."""
        return self.module.rsplit(".", 1)[-1]

    @property
    def code(self) -> set[str]:
        """Its deps that are code: Python files, and folders of such."""
        return {dep for dep in self.deps if is_code(dep)}


@lru_cache
def stages(project: Path = ROOT, file: str = "dvc.yaml") -> tuple[Stage, ...]:
    """The stages of a project's dvc.yaml as DVC itself resolves them."""
    with Repo(str(project)) as repo:
        return tuple(
            _stage(stage, project) for stage in Index.from_file(repo, str(project / file)).stages
        )


def claim_files(project: Path = ROOT) -> list[Path]:
    """The files of all families' claims, in the order in which the stage `claims` reads them."""
    [claims] = [stage for stage in stages(project) if stage.name == "claims"]
    return [project / word for word in claims.cmd.split() if word.endswith("/claims.yaml")]


def different_stages() -> list[Stage]:
    """The stages of the project's dvc.yaml, of each matrix the last one alone."""
    return list({stage.name.partition("@")[0]: stage for stage in stages()}.values())


def _stage(stage: Any, project: Path) -> Stage:
    def path(item: Any) -> str:
        return Path(item.fs_path).relative_to(project).as_posix()

    plain = [dep for dep in stage.deps if not hasattr(dep, "params")]
    keys = [dep for dep in stage.deps if hasattr(dep, "params")]
    assert {path(dep) for dep in keys} <= {"params.yaml"}, (
        f"{stage.name}: wanted params of params.yaml alone"
    )
    return Stage(
        name=stage.name,
        desc=stage.desc,
        cmd=" && ".join(stage.cmd) if isinstance(stage.cmd, list) else stage.cmd,
        deps=tuple(path(dep) for dep in plain),
        params=tuple(key for dep in keys for key in dep.params),
        outs=tuple(Out(path(out), not out.use_cache) for out in stage.outs),
    )


def followers(begin: set[str], listed: tuple[Stage, ...]) -> set[str]:
    """The names of the stages in `begin` and of all that read what they make, directly or not."""
    found = set(begin)
    while True:
        made = {out.path for stage in listed if stage.name in found for out in stage.outs}
        more = {
            stage.name
            for stage in listed
            if any(_overlap(dep, out) for dep in stage.deps for out in made)
        }
        if more <= found:
            return found
        found |= more


def _overlap(a: str, b: str) -> bool:
    return a == b or a.startswith(b + "/") or b.startswith(a + "/")


def environment(project: Path, **changes: str) -> dict[str, str]:
    """The environment of a command in a copy of the project, whatever tool or hook the tests were
    started from.
    """
    own = ("DVC_", "GIT_", "PYTHON", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {
        **kept,
        "PATH": os.pathsep.join([str(Path(PYTHON).parent), os.environ.get("PATH", os.defpath)]),
        "DVC_SITE_CACHE_DIR": str(project / ".dvc" / "tmp" / "site"),
        "DVC_GLOBAL_CONFIG_DIR": str(project / ".dvc" / "tmp" / "none"),
        "DVC_SYSTEM_CONFIG_DIR": str(project / ".dvc" / "tmp" / "none"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "tests",
        "GIT_AUTHOR_EMAIL": "tests@localhost",
        "GIT_COMMITTER_NAME": "tests",
        "GIT_COMMITTER_EMAIL": "tests@localhost",
        **changes,
    }


@contextmanager
def one_core() -> Iterator[None]:
    """Let the commands that are started here have one core, where the system can do so: they spread
    no work.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(before)})
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder, whose files are served meanwhile."""
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def run(*command: str, at: Path, fails: bool | None = False, **variables: str) -> str:
    """Run a command in a project; what it said, on both channels.

    It must end well or, where it `fails`, badly; either will do where that is None.
    """
    done = subprocess.run(
        command,
        cwd=at,
        env=environment(at, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    ended = f"{' '.join(command)}: ended with {done.returncode}\n{done.stdout}"
    assert fails in (None, done.returncode != 0), ended
    return done.stdout


def git(*arguments: str, at: Path) -> str:
    return run("git", *arguments, at=at)


def dvc(*arguments: str, at: Path, fails: bool | None = False, **variables: str) -> str:
    return run(PYTHON, "-m", "dvc", *arguments, at=at, fails=fails, **variables)


def commit(project: Path, message: str) -> None:
    git("add", "--all", at=project)
    git("commit", "--quiet", "--allow-empty", "--message", message, at=project)


def checkout(folder: Path) -> Path:
    """A git repository with what a commit of the working tree would hold, in one commit; no data,
    no cache.
    """
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", at=ROOT)
    folder.mkdir(parents=True)
    for name in sorted(set(listed.split("\0")) - {""}):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    git("init", "--quiet", at=folder)
    commit(folder, "The project")
    return folder


def clone(project: Path, folder: Path) -> Path:
    """A fresh clone of what is committed in a project: no data, no cache."""
    git("clone", "--quiet", str(project), str(folder), at=project)
    return folder


def duplicate(project: Path, folder: Path, *left_out: str) -> Path:
    """A copy of a project with its data and cache, but for files and folders of the names that are
    `left_out`.
    """
    shutil.copytree(
        project, folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", *left_out)
    )
    return folder


def append(file: Path, text: str) -> None:
    file.write_text(file.read_text(encoding="utf-8") + text, encoding="utf-8")


def set_params(project: Path, params: dict[str, Any]) -> None:
    (project / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False), encoding="utf-8")


def params_of(project: Path) -> dict[str, Any]:
    return load_yaml(project / "params.yaml")


def contents(folder: Path, paths: list[str]) -> dict[str, bytes]:
    """The bytes of every file that `paths`, files or folders, hold; an empty folder is a name that
    ends in a slash.
    """
    found = {}
    for path in paths:
        for item in [folder / path, *sorted((folder / path).rglob("*"))]:
            name = item.relative_to(folder).as_posix()
            if item.is_file():
                found[name] = item.read_bytes()
            elif item.is_dir() and not any(item.iterdir()):
                found[name + "/"] = b""
    return found


def would_run(project: Path) -> list[str]:
    """The stages that `dvc repro` would run; where data are missing, none after the first that
    needs them.
    """
    said = dvc("repro", "--dry", "--allow-missing", at=project, fails=None)
    names = re.findall(r"^Running stage '(.+)':$|failed to reproduce '(.+?)'", said, re.MULTILINE)
    assert names or "ERROR" not in said, said
    return [running or failed for running, failed in names]
