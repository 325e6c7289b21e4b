"""What changed between two commits: claims, metrics, params and figures. `make compare REV=HEAD~3`.

A number has changed where it moved by more than its spread over seeds (the larger of the two), by
more than 1e-3 of its size, and by more than what rounding leaves of a zero. A figure has changed
where the tables behind it have. Another machine, too, changes less than that.
"""

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import yaml
from rich.console import Console
from rich.table import Table

from lib.files.inputs import without_json_digest
from lib.pages.claims import VERDICTS
from lib.pages.html import Picture, picture, write_page
from lib.work.command import run
from tools.git import git

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
            files = [path for folder in folders for path in (self.root / folder).rglob("*.*")]
            return {path.relative_to(self.root).as_posix() for path in files}
        listed = git("ls-tree", "-r", "--name-only", self.revision, "--", *folders, at=self.root)
        return set(listed.decode().splitlines())

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None where there is none."""
        if self.revision is None:
            return (self.root / name).read_bytes() if (self.root / name).is_file() else None
        there = name in self.names(name)
        return git("show", f"{self.revision}:{name}", at=self.root) if there else None

    def json(self, name: str) -> Any:
        return without_json_digest(json.loads(self.read(name) or b"{}"), name)


def differs(old: float, new: float, spread: float) -> bool:
    """Whether a number moved by more than its spread, a thousandth of it, and rounding."""
    return abs(new - old) > max(spread, RELATIVE * max(abs(old), abs(new)), FLOOR)


def numbers(
    old: dict[str, tuple[float, float]], new: dict[str, tuple[float, float]]
) -> Iterator[Row]:
    """Rows of numbers, each given with its spread."""
    for name, before, after in both(old, new):
        moved = before and after and differs(before[0], after[0], max(before[1], after[1]))
        yield Row(name, number(before), number(after), marked(before, after, bool(moved)))


def both(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What each side has by a name, None where it has nothing."""
    for name in dict.fromkeys([*old, *new]):
        yield name, old.get(name), new.get(name)


def marked(before: Any, after: Any, changed: bool) -> Mark:
    """What became of a thing that both sides, or one of them, have."""
    if before is None or after is None:
        return "added" if before is None else "removed"
    return "changed" if changed else "same"


def number(value: tuple[float, float] | None) -> str:
    if value is None:
        return "–"
    return f"{value[0]:.4g}" + (f" ± {value[1]:.2g}" if value[1] else "")


def claims(old: Tree, new: Tree) -> Iterator[Row]:
    """Every item's answer, then every claim: its verdict and its value."""
    answers = [tree.json("metrics/items.json") for tree in (old, new)]
    for name, *items in both(*answers):
        before, after = (item and item.get("answer") for item in items)
        yield Row(name, before or "–", after or "–", marked(before, after, before != after))
    judged = [tree.json("metrics/claims.json") for tree in (old, new)]
    values = [
        {
            name: (claim["value"], (claim["max"] - claim["min"]) / 2)
            for name, claim in found.items()
            if None not in (claim.get("value"), claim.get("max"))
        }
        for found in judged
    ]
    moved = {row.name: row for row in numbers(*values)}
    for name, *judgements in both(*judged):
        before, after = (claim and VERDICTS[claim.get("holds")] for claim in judgements)
        row = moved.get(name, Row(name, "–", "–", "same"))
        mark = marked(before, after, before != after or row.mark != "same")
        yield Row(name, f"{before or '–'} {row.old}", f"{after or '–'} {row.new}", mark)


def metrics(old: Tree, new: Tree) -> Iterator[Row]:
    """Every number of every metrics/**/summary.json."""
    found = []
    for tree in (old, new):
        files = sorted(name for name in tree.names("metrics") if name.endswith("/summary.json"))
        found.append(
            {
                f"{Path(file).parent.as_posix()}: {key}": value
                for file in files
                for key, value in leaves(tree.json(file))
            }
        )
    yield from numbers(*found)


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, tuple[float, float]]]:
    """The numbers of a nested structure, each with its spread: zero but for a mean with its sd."""
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
    for name, before, after in both(*found):
        mark = marked(before, after, before != after)
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

    A figure whose bytes differ has changed where the tables of its family have, or where there are
    none.
    """
    changed: list[Figure] = []
    same: list[str] = []
    moved: dict[str, bool] = {}  # by the folder of tables
    names = old.names("plots", "published") | new.names("plots", "published")
    for name in sorted(name for name in names if name.endswith(".svg")):
        sides = [tree.read(name) for tree in (old, new)]
        if sides[0] == sides[1]:
            continue
        folder = Path(name).parents[1].as_posix().replace("plots/", "metrics/", 1) + "/tables"
        if folder not in moved:
            moved[folder] = tables_differ(old, new, folder)
        if moved[folder] or None in sides:
            drawn = [picture(svg, name, SIDE) if svg else None for svg in sides]
            changed.append(Figure(name, *drawn))
        else:
            same.append(name)
    return changed, same


def tables_differ(old: Tree, new: Tree, folder: str) -> bool:
    """Whether the tables of a folder differ, or there are none."""
    before, after = (
        {name for name in tree.names(folder) if name.endswith(".parquet")} for tree in (old, new)
    )
    if before != after or not before:
        return True
    return any(table_differs(old.read(name) or b"", new.read(name) or b"") for name in before)


def table_differs(old: bytes, new: bytes) -> bool:
    """Whether two tables differ in columns, rows, texts or numbers."""
    if old == new:
        return False
    before, after = (pd.read_parquet(io.BytesIO(table)) for table in (old, new))
    if list(before) != list(after) or len(before) != len(after):
        return True
    return any(column_differs(before[name], after[name]) for name in before)


def column_differs(old: pd.Series, new: pd.Series) -> bool:
    """Whether two columns differ: numbers by a thousandth of the largest, texts at all."""
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
    largest = np.abs([before[known], after[known]]).max(initial=0)
    moved = np.abs(after[known] - before[known])
    return bool((moved > max(RELATIVE * largest, FLOOR)).any())


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
        moved = [row for row in rows if row.mark != "same"]
        if not moved:
            console.print(f"{title}: none of {len(rows)} changed")
            continue
        table = Table(title=f"{title}: {len(moved)} of {len(rows)} changed", title_justify="left")
        for column in (title, rev, to or "working tree", ""):
            table.add_column(column, overflow="fold")
        for row in moved:
            table.add_row(row.name, row.old, row.new, row.mark)
        console.print(table)
    console.print(f"figures: {len(drawn)} changed", *(figure.path for figure in drawn), sep="\n  ")
    if redrawn:
        console.print(f"figures: {len(redrawn)} drawn anew from the same numbers")
    write_page(
        Path(__file__).with_name("compare.html"),
        page,
        [ROOT / "stages"],  # its style
        old=rev,
        new=to or "working tree",
        parts=parts,
        figures=drawn,
        redrawn=redrawn,
    )
    console.print(f"side by side: {page}")


def resolved(root: Path, revision: str) -> str:
    """The commit of a name, a DVC experiment's too; raises `InputError` where there is none."""
    listed = git("for-each-ref", "--format=%(objectname)", f"refs/exps/*/*/{revision}", at=root)
    name = [*listed.decode().split(), revision][0]
    commit = git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}", at=root)
    return commit.decode().strip()


def command(rev: str = "HEAD", to: str = "", page: Path = Path("compare.html")) -> None:
    """Compare a commit, or an experiment of DVC, with another, or with the working tree."""
    main(rev, to, page)


if __name__ == "__main__":
    run(command, environment=True)
