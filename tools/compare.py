"""Show what changed between two commits in claims, metrics, params and figures: `make compare
REV=HEAD~3`.

A number has changed where it moved by more than its spread over seeds (the larger of the two), by
more than 1e-3 of its size, and by more than what rounding leaves of a zero. A figure has changed
where it looks different and a number of the tables that it shows has changed in this sense, or the
code or params by which it is drawn. Another machine changes less than that. The page shows these
numbers beside the pictures, and no two pictures that are equal.
"""

import importlib
import inspect
import io
import json
import math
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import yaml
from rich.console import Console
from rich.table import Table

from lib.files.files import InputError
from lib.files.inputs import JSON_DIGEST, without_json_digest
from lib.files.tables import read_table
from lib.pages.claims import VERDICTS
from lib.pages.html import Picture, picture, write_page
from lib.pages.measures import parsed, summary
from lib.work.command import run
from tools.git import git

ROOT = Path(__file__).parents[1]
RELATIVE = 1e-3
FLOOR = 1e-10  # residuals of double precision end near 1e-13, and differ by as much as they are
SIDE = 720  # CSS pixels: the width of each of two figures side by side
PLACE = 1e-3  # of a figure's width: a smaller move is less than half a line's width
PLACES = ("d", "height", "points", "transform", "viewBox", "width", "x", "y")  # of an element
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
HASH = re.compile(r"(\b[mp]|_)[0-9a-f]{10}\b")  # in the names that matplotlib makes
DATA = (".json", ".parquet")
SUMMARISED = ("/measures.csv", "/summary.json")
UNITS = ("seed", "task", "run", "base", "fine_tune", "point")  # columns that name the repetitions
Mark = Literal["added", "removed", "changed", "same"]


@dataclass(frozen=True)
class Row:
    """A thing that both commits, or one of them, have."""

    name: str
    old: str
    new: str
    mark: Mark


@dataclass(frozen=True)
class Figure:
    """A figure that changed, as images, and the numbers that changed with it.

    A commit that has no figure has no picture; equal pictures are one, the new one.
    """

    path: str
    old: Picture | None
    new: Picture | None
    numbers: list[Row]
    same: bool  # whether the two pictures are equal


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
    """Each name with the two sides' values, None where a side has no value."""
    for name in dict.fromkeys([*old, *new]):
        yield name, old.get(name), new.get(name)


def marked(before: Any, after: Any, changed: bool) -> Mark:
    """The mark of a thing that both sides, or one of them, have."""
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
    """Every measure of every table metrics/**/measures.csv, and of every summary.json."""
    found = []
    for tree in (old, new):
        files = sorted(name for name in tree.names("metrics") if name.endswith(SUMMARISED))
        found.append(
            {
                f"{Path(file).parent.as_posix()}: {key}": value
                for file in files
                for key, value in leaves(summary_of(file, tree.read(file) or b""))
            }
        )
    yield from numbers(*found)


def summary_of(file: str, content: bytes) -> Any:
    """The means and spreads of a file's measures: those that it lists, or those of its table."""
    if file.endswith(".csv"):
        return summary(parsed(content.decode(), file))
    return json.loads(content)


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, tuple[float, float]]]:
    """The numbers of a nested structure, each with its spread: the sd of a mean, else zero."""
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
    """The figures that changed, and the names of those that differ by no more than rounding does.

    A figure has changed where it looks different, and where the tables that it shows have changed,
    or the code and params by which its stage draws. What no stage draws has changed where it looks
    different.
    """
    changed: list[Figure] = []
    same: list[str] = []
    differs: dict[str, bool] = {}  # by the name of a table
    judged = claims_by_figure(old, new)
    names = old.names("plots", "published") | new.names("plots", "published")
    for name in sorted(name for name in names if name.endswith(".svg")):
        before, after = old.read(name), new.read(name)
        if before == after:
            continue
        if before is not None and after is not None:
            otherwise = looks_different(before, after) and is_drawn_otherwise(
                old, new, name, differs
            )
            if not otherwise:
                same.append(name)
                continue
        pictures = [picture(svg, name, SIDE) if svg else None for svg in (before, after)]
        rows = [*judged.get(name, ()), *changed_numbers(old, new, name)]
        is_same = pictures[0] == pictures[1]
        if is_same and not rows:
            same.append(name)
            continue
        changed.append(Figure(name, None if is_same else pictures[0], pictures[1], rows, is_same))
    return changed, same


def looks_different(old: bytes, new: bytes) -> bool:
    """Whether two drawings differ in an element, a style or a text, or in a place."""
    before, after = list(elements(old)), list(elements(new))
    width = max(float(places.max(initial=0)) for _, places in before[:1])
    if [kind for kind, _ in before] != [kind for kind, _ in after]:
        return True
    pairs = zip(before, after, strict=True)
    return any(distance(a, b) > PLACE * width for (_, a), (_, b) in pairs)


def elements(svg: bytes) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """The elements of a drawing in their order: what each is, and its places, in points.

    Names that matplotlib makes of what is drawn (of markers and clipped areas) say nothing.
    """
    for element in ElementTree.fromstring(svg).iter():
        attributes = element.attrib.items()
        kind = [f"{key}={HASH.sub('', value)}" for key, value in attributes if key not in PLACES]
        found = [NUMBER.findall(value) for key, value in attributes if key in PLACES]
        numbers = [float(number) for places in found for number in places]
        if len(numbers) % 2:
            numbers.append(0.0)
        places = np.array(numbers, float).reshape(-1, 2)
        yield (element.tag, *kind, (element.text or "").strip()), places


def distance(old: np.ndarray, new: np.ndarray) -> float:
    """The distance between two sequences of places.

    Two paths may have different numbers of places on the same line: then it is the largest distance
    of a place of one path from the other path.
    """
    if old.shape == new.shape:
        return float(np.abs(old - new).max(initial=0))
    if min(len(old), len(new)) < 2:
        return math.inf
    return max(distance_from_path(old, new), distance_from_path(new, old))


def distance_from_path(points: np.ndarray, path: np.ndarray) -> float:
    """The largest distance of a point from a path of straight lines."""
    begin = path[:-1]
    along = path[1:] - begin
    length = np.square(along).sum(-1)
    farthest = 0.0
    for point in points:
        share = ((point - begin) * along).sum(-1) / np.where(length > 0, length, 1.0)
        nearest = begin + share.clip(0, 1)[:, None] * along
        farthest = max(farthest, float(np.linalg.norm(point - nearest, axis=-1).min()))
    return farthest


def claims_by_figure(old: Tree, new: Tree) -> dict[str, list[Row]]:
    """The claims that changed, by the figure that shows them."""
    found: dict[str, list[Row]] = {}
    judged = {**old.json("metrics/claims.json"), **new.json("metrics/claims.json")}
    for row in claims(old, new):
        if row.mark != "same" and "figure" in judged.get(row.name, {}):
            found.setdefault(judged[row.name]["figure"], []).append(row)
    return found


def is_drawn_otherwise(old: Tree, new: Tree, figure: str, differs: dict[str, bool]) -> bool:
    """Whether a figure is drawn of other tables, or by other code or params.

    `differs` keeps what is known of each table.
    """
    folder = Path(figure).parent.as_posix()
    before, after = (drawing_stage(tree, folder) for tree in (old, new))
    if not before or before != after:
        return True
    there, then = (files_read(tree, before) for tree in (old, new))
    if there != then or not there:
        return True
    shown = tables_shown(before["command"]).get(Path(figure).stem) or there
    for name in there & shown:
        if name not in differs:
            differs[name] = file_differs(name, old.read(name) or b"", new.read(name) or b"")
    return any(differs[name] for name in there & shown)


def files_read(tree: Tree, stage: dict[str, Any]) -> set[str]:
    """The tables and files of measures that a stage reads."""
    return {name for read in stage["reads"] for name in tree.names(read) if name.endswith(DATA)}


def changed_numbers(old: Tree, new: Tree, figure: str) -> Iterator[Row]:
    """What changed in the tables that a figure shows and that both commits have.

    A figure of a published run shows what stands in the folder of the run.
    """
    stage = drawing_stage(new, Path(figure).parent.as_posix())
    if stage:
        files = files_read(old, stage) & files_read(new, stage)
        files &= tables_shown(stage["command"]).get(Path(figure).stem) or files
    else:
        run = Path(figure).parents[1].as_posix()
        named = [{name for name in tree.names(run) if name.endswith(DATA)} for tree in (old, new)]
        files = set() if run in (".", "plots", "published") else named[0] & named[1]
    for name in sorted(files):
        before, after = old.read(name) or b"", new.read(name) or b""
        if before == after:
            continue
        if name.endswith(".parquet"):
            yield from table_changes(name, before, after)
        else:
            yield from measure_changes(Path(name).stem, json.loads(before), json.loads(after))


def drawing_stage(tree: Tree, folder: str) -> dict[str, Any]:
    """What the stage that draws into a folder depends on; nothing where no stage does.

    `reads` names its tables. Its command, its code and its params stand as they are.
    """
    stages = yaml.safe_load(tree.read("dvc.yaml") or b"{}").get("stages", {})
    for stage in stages.values():
        for out in map(path_of, stage.get("plots", [])):
            wanted = re.sub(r"\\\$\\{.*?\\}", "([^/]+)", re.escape(out))
            found = re.fullmatch(wanted, folder)
            if found is None:
                continue
            items = dict(zip(re.findall(r"\$\{.*?\}", out), found.groups(), strict=True))
            command, *deps = (
                reduce(lambda text, item: text.replace(*item), items.items(), text)
                for text in (stage["cmd"], *stage.get("deps", []))
            )
            code = {dep: tree.read(dep) for dep in deps if dep.endswith(".py")}
            sections = values(yaml.safe_load(tree.read("params.yaml") or b"{}"))
            names = tuple(f"{name}." for name in stage.get("params", []))
            used = {key: value for key, value in sections if f"{key}.".startswith(names)}
            reads = [dep for dep in deps if dep.startswith(("metrics/", "published/"))]
            return {"reads": reads, "command": command, "code": code, "params": used}
    return {}


@cache
def tables_shown(command: str) -> dict[str, set[str]]:
    """The tables that each figure of a stage shows, as today's code says it.

    A figure is missing here where its code does not say it: then it may show any of them. The
    command is that of the stage, whose `drawings` hands every figure its tables.
    """
    _, _, module, *words = shlex.split(command)
    given = [word.partition("=")[2] if word.startswith("--") else word for word in words]

    def read(path: Path, *args: Any, **options: Any) -> pd.DataFrame:
        table = read_table(path, *args, **options)
        table.attrs["file"] = path.as_posix()
        return table

    try:
        stage = importlib.import_module(module)
        draw = stage.drawings
        kinds = [one.annotation for one in inspect.signature(draw).parameters.values()]
        with (
            patch("lib.files.tables.read_table", read),
            patch("lib.work.schemas.read_table", read),
            patch.object(stage, "read_table", read, create=True),
        ):
            drawn = draw(*(kind(text) for kind, text in zip(kinds, given, strict=False)))
    except (ImportError, AttributeError, InputError):
        return {}
    shown = {name: [*files_of((one.args, one.keywords))] for name, one in drawn.items()}
    return {name: set(files) for name, files in shown.items() if "" not in files}


def files_of(value: Any) -> Iterator[str]:
    """The file of every table within a value; "" for one whose file is not known."""
    if isinstance(value, pd.DataFrame):
        yield value.attrs.get("file", "")
    elif isinstance(value, dict):
        yield from files_of(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from files_of(one)


def path_of(out: str | dict[str, Any]) -> str:
    """The path of an out of dvc.yaml, which may have settings behind it."""
    return out if isinstance(out, str) else next(iter(out))


def file_differs(name: str, old: bytes, new: bytes) -> bool:
    """Whether a table, or a file of measures, differs by more than its spread."""
    if old == new:
        return False
    if name.endswith(".parquet"):
        return table_differs(old, new)
    return measures_differ(json.loads(old), json.loads(new))


def measures_differ(old: Any, new: Any) -> bool:
    """Whether two JSON values differ; a list of numbers is a measure with a value per seed."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() != new.keys() or any(measures_differ(old[key], new[key]) for key in old)
    before, after = (pd.Series(one if isinstance(one, list) else [one]) for one in (old, new))
    if not (is_numeric(before) and is_numeric(after)):
        return old != new
    return column_differs(before, after, np.zeros(len(before), int))


def measure_changes(name: str, old: Any, new: Any) -> Iterator[Row]:
    """A row for each measure of a file that changed: its median here and there."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, before, after in both(old, new):
            below = name if key == "values" else f"{name}.{key}"
            if before is not None and after is not None:
                yield from measure_changes(below, before, after)
            elif key != JSON_DIGEST:
                here, there = ("–" if one is None else in_short(one) for one in (before, after))
                yield Row(below, here, there, marked(before, after, True))
    elif not name.endswith(JSON_DIGEST) and measures_differ(old, new):
        yield Row(name, in_short(old), in_short(new), "changed")


def in_short(value: Any) -> str:
    """A number, the median of several with how many there are, or a text."""
    if isinstance(value, dict):
        return f"{len(value)} values"
    column = pd.Series(value if isinstance(value, list) else [value])
    if not is_numeric(column):
        return f"{value:.60}" if isinstance(value, str) else f"{len(column)} values"
    return f"{column.median():.4g}" + (f" (n = {len(column)})" if len(column) > 1 else "")


def table_differs(old: bytes, new: bytes) -> bool:
    """Whether two tables differ in columns, rows or texts, or a number by more than its spread.

    A number is the mean over seeds (tasks, models), whose rows are matched by their texts and by
    their order. It has changed where it moved by more than the seeds are apart, by more than
    1e-3 of its size (in a list: of the largest in the list), and by more than rounding.
    """
    return any(True for _ in table_changes("", old, new))


def table_changes(name: str, old: bytes, new: bytes) -> Iterator[Row]:
    """A row for each column in which two tables differ: the number that moved farthest, by its own
    size, and how many moved.
    """
    before, after = (pd.read_parquet(io.BytesIO(table)) for table in (old, new))
    stem = Path(name).stem
    if list(before) != list(after):
        here, there = (", ".join(map(str, one)) for one in (before, after))
        yield Row(f"{stem}: columns", here, there, "changed")
        return
    if len(before) != len(after):
        yield Row(f"{stem}: rows", str(len(before)), str(len(after)), "changed")
        return
    columns = [str(column) for column in before]
    numeric = [one for one in columns if is_numeric(before[one]) and is_numeric(after[one])]
    texts = [column for column in columns if column not in numeric]
    for column in texts:
        differ = before[column].astype(str) != after[column].astype(str)
        if differ.any():
            here, there = (str(one[column][differ].iloc[0]) for one in (before, after))
            said = f"{stem}: {column}, {differ.sum()} of {len(before)}"
            yield Row(said, f"{here:.60}", f"{there:.60}", "changed")
    if not before[texts].astype(str).equals(after[texts].astype(str)):
        return
    cases = cases_of(before, texts)
    for column in numeric:
        if column in UNITS:
            continue
        moved, n = moved_numbers(before[column], after[column], cases)
        if moved is None:
            yield Row(f"{stem}: {column}", "lists", "lists of other lengths or gaps", "changed")
        elif len(moved):
            size = moved[["before", "after"]].abs().max(axis=1)
            farthest = int(((moved["after"] - moved["before"]).abs() / size).to_numpy().argmax())
            case = moved.index.get_level_values(0)[farthest]
            row = before[[one for one in texts if one not in UNITS]][cases == case].iloc[0]
            where = ", ".join(f"{row[key]}" for key in row.index)
            said = f"{stem}: {column}, {len(moved)} of {n}{f', most in {where}' if where else ''}"
            here, there = (f"{moved[side].iloc[farthest]:.4g}" for side in ("before", "after"))
            yield Row(said, here, there, "changed")


def is_numeric(column: pd.Series) -> bool:
    """Whether a column holds numbers, or lists of numbers."""
    if not len(column) or not isinstance(column.iloc[0], np.ndarray):
        return pd.api.types.is_numeric_dtype(column) and column.dtype != bool
    return all(np.issubdtype(one.dtype, np.number) or not len(one) for one in column)


def cases_of(table: pd.DataFrame, texts: Sequence[str]) -> np.ndarray:
    """A number for each row of a table, the same for the rows of a case with other seeds."""
    kinds = [name for name in texts if name not in UNITS]
    units = [name for name in table if name in UNITS]
    within = [*kinds, *units]
    if not units:
        return np.arange(len(table))
    order = table.groupby(within, sort=False, dropna=False, observed=True).cumcount()
    whole = table.assign(order=order).groupby([*kinds, "order"], dropna=False, observed=True)
    return whole.ngroup().to_numpy()


def column_differs(old: pd.Series, new: pd.Series, cases: np.ndarray) -> bool:
    """Whether a number of a column, or of its lists, moved."""
    moved, _ = moved_numbers(old, new, cases)
    return moved is None or len(moved) > 0


def moved_numbers(
    old: pd.Series, new: pd.Series, cases: np.ndarray
) -> tuple[pd.DataFrame | None, int]:
    """The numbers of a column, or of its lists, that moved, by case and place, and of how many.

    None where the two have other lengths, or other gaps.
    """
    n = old.map(np.size).to_numpy()
    if not np.array_equal(n, new.map(np.size)):
        return None, 0
    before, after = (
        np.hstack([np.ravel(value) for value in column] or [[]]).astype(float)
        for column in (old, new)
    )
    known = np.isfinite(before) & np.isfinite(after)
    if not np.array_equal(before[~known], after[~known], equal_nan=True):
        return None, 0
    case = np.repeat(cases, n)[known]
    place = (np.arange(len(known)) - np.repeat(n.cumsum() - n, n))[known]
    numbers = pd.DataFrame({"before": before[known], "after": after[known]})
    found = numbers.groupby([case, place])
    mean = found.mean()
    spread = (found.max() - found.min()).max(axis=1)
    size = mean.abs().max(axis=1).groupby(level=0).transform("max")
    moved = (mean["after"] - mean["before"]).abs()
    return mean[moved > np.maximum(spread, np.maximum(RELATIVE * size, FLOOR))], len(mean)


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
        said = "differ by no more than another machine makes them"
        console.print(f"figures: {len(redrawn)} {said}")
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
