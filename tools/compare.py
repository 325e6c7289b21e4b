"""What changed between two commits: claims, metrics, params and figures. `make compare REV=HEAD~3`.

A number has changed where it moved by more than its spread over seeds (the larger of the two), by
more than 1e-3 of its size, and by more than what rounding leaves of a zero. A figure has changed
where the tables behind it have, by the same measures: less is what another machine would change
too.
"""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import yaml
from rich.console import Console
from rich.table import Table

from lib.files.files import InputError
from lib.pages.html import Picture, picture, write_page
from lib.work.command import run

ROOT = Path(__file__).parents[1]
RELATIVE = 1e-3
FLOOR = 1e-10  # residuals of double precision end near 1e-13, and differ by as much as they are
SIDE = 720  # CSS pixels: the width of a figure beside another
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
    old: Picture | None
    new: Picture | None


@dataclass(frozen=True)
class Tree:
    """The files of a commit, or of the working tree where `revision` is None."""

    root: Path
    revision: str | None

    def names(self, *folders: str) -> set[str]:
        if self.revision is None:
            return {
                path.relative_to(self.root).as_posix()
                for f in folders
                for path in (self.root / f).rglob("*.*")
            }
        return set(
            git(self.root, "ls-tree", "-r", "--name-only", self.revision, "--", *folders)
            .decode()
            .splitlines()
        )

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None where there is none."""
        if self.revision is None:
            return (self.root / name).read_bytes() if (self.root / name).is_file() else None
        return (
            git(self.root, "show", f"{self.revision}:{name}") if name in self.names(name) else None
        )

    def json(self, name: str) -> Any:
        return json.loads(self.read(name) or b"{}")


def git(root: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    if done.returncode:
        raise InputError(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout


def differs(old: float, new: float, spread: float) -> bool:
    """Whether a number moved by more than its spread, by more than a thousandth, and by more than
    rounding does.
    """
    return abs(new - old) > max(spread, RELATIVE * max(abs(old), abs(new)), FLOOR)


def numbers(
    old: dict[str, tuple[float, float]], new: dict[str, tuple[float, float]]
) -> Iterator[Row]:
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
        {
            name: (c["value"], c["spread"] or 0.0)
            for name, c in found.items()
            if c.get("value") is not None
        }
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
        found.append(
            {
                f"{Path(n).parent.as_posix()}: {key}": v
                for n in names
                for key, v in leaves(tree.json(n))
            }
        )
    yield from numbers(*found)


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, tuple[float, float]]]:
    """The numbers of a nested structure, with their spread: that of `{"mean": ..., "sd": ...}`,
    else zero.
    """
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


def figures(old: Tree, new: Tree) -> tuple[list[Figure], list[str]]:
    """The figures that changed, and the names of those that were drawn anew from the same numbers.

    A figure whose bytes differ has changed where the tables of its family have, or where it has
    none.
    """
    names = sorted(
        n
        for n in old.names("plots", "published") | new.names("plots", "published")
        if n.endswith(".svg")
    )
    contents = [(name, old.read(name), new.read(name)) for name in names]
    redrawn = [(name, *sides) for name, *sides in contents if sides[0] != sides[1]]
    folders = {
        name: Path(name).parents[1].as_posix().replace("plots/", "metrics/", 1) + "/tables"
        for name, *_ in redrawn
    }
    moved = {folder for folder in set(folders.values()) if tables_differ(old, new, folder)}
    changed = [row for row in redrawn if None in row or folders[row[0]] in moved]
    same = [row[0] for row in redrawn if row not in changed]
    pictured = [
        (name, [picture(svg, name, SIDE) if svg else None for svg in sides])
        for name, *sides in changed
    ]
    return [Figure(name, *sides) for name, sides in pictured], same


def tables_differ(old: Tree, new: Tree, folder: str) -> bool:
    """Whether a folder has other tables, or one with other columns, rows or numbers; also where
    there are none.
    """
    names = [
        {name for name in tree.names(folder) if name.endswith(".parquet")} for tree in (old, new)
    ]
    if names[0] != names[1] or not names[0]:
        return True
    return any(table_differs(old.read(name) or b"", new.read(name) or b"") for name in names[0])


def table_differs(old: bytes, new: bytes) -> bool:
    """Whether two tables differ in columns, rows, texts or numbers."""
    if old == new:
        return False
    before, after = (pq.read_table(io.BytesIO(table)) for table in (old, new))
    if before.column_names != after.column_names or len(before) != len(after):
        return True
    return any(
        column_differs(a, b)
        for (_, a), (_, b) in zip(
            *(table.to_pandas().items() for table in (before, after)), strict=True
        )
    )


def column_differs(old: pd.Series, new: pd.Series) -> bool:
    """Whether two columns differ: texts at all, numbers and lists of them by a thousandth of the
    column's largest.
    """
    if old.map(np.size).tolist() != new.map(np.size).tolist():
        return True
    try:
        before, after = (
            np.hstack([np.ravel(value) for value in column] or [[]]).astype(float)
            for column in (old, new)
        )
    except (TypeError, ValueError):
        return old.map(str).tolist() != new.map(str).tolist()
    known = np.isfinite(before) & np.isfinite(after)
    if not np.array_equal(before[~known], after[~known], equal_nan=True):
        return True
    before, after = before[known], after[known]
    largest = np.abs([before, after]).max(initial=0)
    return bool((np.abs(after - before) > max(RELATIVE * largest, FLOOR)).any())


def main(
    rev: str = "HEAD", to: str = "", page: Path = Path("compare.html"), root: Path = ROOT
) -> None:
    """Compare a commit, or an experiment of DVC, with another, or with the working tree."""
    trees = Tree(root, resolved(root, rev)), Tree(root, resolved(root, to) if to else None)
    parts = {
        "claims": list(claims(*trees)),
        "metrics": list(metrics(*trees)),
        "params": list(params(*trees)),
    }
    drawn, redrawn = figures(*trees)
    console = Console(width=None if sys.stdout.isatty() else 160)
    for title, rows in parts.items():
        marked = [row for row in rows if row.mark != "same"]
        if marked:
            table = Table(
                title=f"{title}: {len(marked)} of {len(rows)} changed", title_justify="left"
            )
            for column in (title, rev, to or "working tree", ""):
                table.add_column(column, overflow="fold")
            for row in marked:
                table.add_row(row.name, row.old, row.new, row.mark)
            console.print(table)
        else:
            console.print(f"{title}: none of {len(rows)} changed")
    console.print(f"figures: {len(drawn)} changed", *(figure.path for figure in drawn), sep="\n  ")
    if redrawn:
        console.print(f"figures: {len(redrawn)} drawn anew from the same numbers")
    template, style = Path(__file__).with_name("compare.html"), ROOT / "stages"
    sides = {"old": rev, "new": to or "working tree"}
    write_page(template, page, [style], **sides, parts=parts, figures=drawn, redrawn=redrawn)
    console.print(f"side by side: {page}")


def resolved(root: Path, revision: str) -> str:
    """The commit of a name, a DVC experiment's too; raises `InputError` where there is none."""
    experiments = (
        git(root, "for-each-ref", "--format=%(objectname)", f"refs/exps/*/*/{revision}")
        .decode()
        .split()
    )
    name = experiments[0] if experiments else revision
    return (
        git(root, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        .decode()
        .strip()
    )


def command(rev: str = "HEAD", to: str = "", page: Path = Path("compare.html")) -> None:
    """Compare a commit, or an experiment of DVC, of this project with another, or with the working
    tree.
    """
    main(rev, to, page)


if __name__ == "__main__":
    run(command, environment=True)
