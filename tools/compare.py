"""What changed between two commits: claims, metrics, params and figures. `make compare REV=HEAD~3`.

A number has changed where it moved by more than its spread over seeds (the larger of the two) and by more than 1e-3 of
its size: less is what another machine would change too.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from rich.console import Console
from rich.table import Table

from lib.io.command import run
from lib.io.files import InputError
from lib.io.page import image, write_page

ROOT = Path(__file__).parents[1]
RELATIVE = 1e-3
Mark = Literal["added", "removed", "changed", "same"]


@dataclass(frozen=True)
class Row:
    """One thing that both commits, or one of them, have."""

    name: str
    old: str
    new: str
    mark: Mark


@dataclass(frozen=True)
class Figure:
    """A figure that changed, as images; None where a commit has none."""

    path: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Tree:
    """The files of a commit, or of the working tree where `revision` is None."""

    root: Path
    revision: str | None

    def names(self, *folders: str) -> set[str]:
        if self.revision is None:
            return {path.relative_to(self.root).as_posix() for f in folders for path in (self.root / f).rglob("*.*")}
        return set(git(self.root, "ls-tree", "-r", "--name-only", self.revision, "--", *folders).decode().splitlines())

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None where there is none."""
        if self.revision is None:
            return (self.root / name).read_bytes() if (self.root / name).is_file() else None
        return git(self.root, "show", f"{self.revision}:{name}") if name in self.names(name) else None

    def json(self, name: str) -> Any:
        return json.loads(self.read(name) or b"{}")


def git(root: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    if done.returncode:
        raise InputError(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout


def differs(old: float, new: float, spread: float) -> bool:
    """Whether a number moved by more than its spread, and by more than a thousandth."""
    return abs(new - old) > max(spread, RELATIVE * max(abs(old), abs(new)))


def numbers(old: dict[str, tuple[float, float]], new: dict[str, tuple[float, float]]) -> Iterator[Row]:
    """Rows of numbers, each given with its spread."""
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name), new.get(name)
        mark: Mark = "same"
        if before is None or after is None:
            mark = "added" if before is None else "removed"
        elif differs(before[0], after[0], max(before[1], after[1])):
            mark = "changed"
        yield Row(name, number(before), number(after), mark)


def number(value: tuple[float, float] | None) -> str:
    if value is None:
        return "–"
    return f"{value[0]:.4g}" + (f" ± {value[1]:.2g}" if value[1] else "")


def claims(old: Tree, new: Tree) -> Iterator[Row]:
    """Every claim: its verdict and its value."""
    judged = [tree.json("metrics/claims.json") for tree in (old, new)]
    values = [
        {name: (c["value"], c["spread"] or 0.0) for name, c in found.items() if c.get("value") is not None}
        for found in judged
    ]
    moved = {row.name: row for row in numbers(*values)}
    for name in dict.fromkeys([*judged[0], *judged[1]]):
        states = [found[name]["state"] if name in found else None for found in judged]
        row = moved.get(name, Row(name, "–", "–", "same"))
        mark: Mark = row.mark
        if None in states:
            mark = "added" if states[0] is None else "removed"
        elif states[0] != states[1]:
            mark = "changed"
        before, after = (state or "–" for state in states)
        yield Row(name, f"{before} {row.old}", f"{after} {row.new}", mark)


def metrics(old: Tree, new: Tree) -> Iterator[Row]:
    """Every number of every metrics/**/summary.json."""
    found = []
    for tree in (old, new):
        names = sorted(name for name in tree.names("metrics") if name.endswith("/summary.json"))
        found.append({f"{Path(n).parent.as_posix()}: {key}": v for n in names for key, v in leaves(tree.json(n))})
    yield from numbers(*found)


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, tuple[float, float]]]:
    """The numbers of a nested structure, with their spread: that of `{"mean": ..., "sd": ...}`, else zero."""
    if isinstance(value, dict) and isinstance(value.get("mean"), int | float):
        yield name, (float(value["mean"]), float(value.get("sd") or 0.0))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{name}.{key}" if name else key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, (float(value), 0.0)


def params(old: Tree, new: Tree) -> Iterator[Row]:
    """Every value of params.yaml; a list is one value."""
    found = [dict(values(yaml.safe_load(tree.read("params.yaml") or b"{}"))) for tree in (old, new)]
    for name in dict.fromkeys([*found[0], *found[1]]):
        before, after = (side.get(name) for side in found)
        mark: Mark = "same" if before == after else "changed"
        if before is None or after is None:
            mark = "added" if before is None else "removed"
        yield Row(name, before or "–", after or "–", mark)


def values(section: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(section, dict):
        for key, item in section.items():
            yield from values(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, json.dumps(plain(section))


def plain(value: Any) -> Any:
    """The value with numbers that YAML 1.1 reads as texts, such as 1e-4, as numbers."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def figures(old: Tree, new: Tree) -> list[Figure]:
    """The figures whose bytes changed."""
    names = sorted(n for n in old.names("plots", "published") | new.names("plots", "published") if n.endswith(".svg"))
    contents = [(name, old.read(name), new.read(name)) for name in names]
    return [
        Figure(name, *(None if svg is None else image(svg) for svg in sides))
        for name, *sides in contents
        if sides[0] != sides[1]
    ]


def main(rev: str = "HEAD", to: str = "", page: Path = Path("compare.html"), root: Path = ROOT) -> None:
    """Compare a commit, or an experiment of DVC, with another, or with the working tree."""
    trees = Tree(root, resolved(root, rev)), Tree(root, resolved(root, to) if to else None)
    parts = {"claims": list(claims(*trees)), "metrics": list(metrics(*trees)), "params": list(params(*trees))}
    drawn = figures(*trees)
    console = Console(width=None if sys.stdout.isatty() else 160)
    for title, rows in parts.items():
        marked = [row for row in rows if row.mark != "same"]
        if marked:
            table = Table(title=f"{title}: {len(marked)} of {len(rows)} changed", title_justify="left")
            for column in (title, rev, to or "working tree", ""):
                table.add_column(column, overflow="fold")
            for row in marked:
                table.add_row(row.name, row.old, row.new, row.mark)
            console.print(table)
        else:
            console.print(f"{title}: none of {len(rows)} changed")
    console.print(f"figures: {len(drawn)} changed", *(figure.path for figure in drawn), sep="\n  ")
    template, style = Path(__file__).with_name("compare.html"), ROOT / "stages"
    write_page(template, page, [style], old=rev, new=to or "working tree", parts=parts, figures=drawn)
    console.print(f"side by side: {page}")


def resolved(root: Path, revision: str) -> str:
    """The commit of a name, a DVC experiment's too; raises `InputError` where there is none."""
    experiments = git(root, "for-each-ref", "--format=%(objectname)", f"refs/exps/*/*/{revision}").decode().split()
    name = experiments[0] if experiments else revision
    return git(root, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").decode().strip()


if __name__ == "__main__":
    run(main, environment=True)
