"""The figures in git: they are what the code draws of the tables in git; a claim of what a paper
says is drawn in the figure that it names, where another number makes another figure.
"""

import importlib
import inspect
import math
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from lib.files.tables import read_table, write_table
from lib.pages.claims import Family, Run, claims_of, kind_of, read_families
from lib.pages.html import COLUMN
from lib.pages.style import LEAST_TEXT, READ_WIDTH, as_svg, styled
from tests.pipeline.project import ROOT, claim_files, stages


@dataclass(frozen=True)
class Shown:
    """A column of a table, and a figure that shows it, of the stage that draws into a folder."""

    family: str
    folder: str
    figure: str
    drawn: str


def shown_by(family: Family) -> Iterator[tuple[str, Run]]:
    """What a claim says that its figure shows, where it does, with the run of the figure."""
    for item, _, claim in claims_of(family):
        entry = family.items[item]
        run = family.run_of(entry, next(iter(claim.measures.values())))
        yield claim.figure or entry.figure, run


FAMILIES = read_families(claim_files())
SHOWN = sorted(
    {
        Shown(family, run.figures, *figure.split(", from "))
        for family, of in FAMILIES.items()
        for figure, run in shown_by(of)
        if ", from " in figure
    },
    key=repr,
)


def test_what_a_paper_says_is_drawn():
    """This is asked where one column shows it; a claim of several cases may need more than one."""
    kinds = [
        (", from " in (claim.figure or of.items[item].figure))
        for of in FAMILIES.values()
        for item, _, claim in claims_of(of)
        if kind_of(of.items[item], claim) == "paper"
    ]
    assert sum(kinds) > len(kinds) / 3


def drawings(
    family: str, folder: str
) -> tuple[Callable[..., dict[str, Callable[[], Figure]]], list[Any]]:
    """The function that draws a family's figures, and the arguments with which dvc.yaml calls it.

    A published run has its tables in its folder, and draws by its program or by the stage.
    """
    draw = importlib.import_module(f"stages.{family}.plot").drawings
    kinds = [parameter.annotation for parameter in inspect.signature(draw).parameters.values()]
    if folder.startswith("published"):
        kept = (ROOT / folder).parent
        if kept.joinpath("run.py").exists():
            program = importlib.import_module(f"published.{kept.name}.run")
            if hasattr(program, "drawings"):
                return program.drawings, [kept]
        given = [f"{family}.plot", f"published/{kept.name}/tables"][-len(kinds) :]
    else:
        [command] = [s.cmd for s in stages() if any(out.path == folder for out in s.outs)]
        words = shlex.split(command)[3:-1]
        given = [word.partition("=")[2] if word.startswith("--") else word for word in words]
    return draw, [
        ROOT / value if kind is Path else value for kind, value in zip(kinds, given, strict=True)
    ]


@cache
def redrawn(family: str, folder: str) -> dict[str, tuple[Figure, str]]:
    """Every figure of the tables in git, by its name, and the file that would be written of it."""
    draw, given = drawings(family, folder)
    found = {}
    for name, make in draw(*given).items():
        with styled():
            figure = make()
        found[name] = figure, as_svg(lambda figure=figure: figure).decode()
    return found


def moved(values: pd.Series) -> list[Any]:
    """The numbers of a column, each by three tenths of itself larger, or by a tenth where it is 0;
    a truth inverted; a whole number is whole again, above that.
    """

    def one(value: Any) -> Any:
        if isinstance(value, bool | np.bool_):
            return not value
        number = np.asarray(value, float)
        found = np.where(number == 0, 0.1, 1.3 * number)
        if pd.api.types.is_integer_dtype(values.dtype):
            return math.ceil(found)
        return found if found.ndim else float(found)

    return [one(value) for value in values]


@pytest.mark.parametrize(
    "shown",
    SHOWN,
    ids=lambda shown: f"{Path(shown.folder).parent.name}-{shown.figure}-{shown.drawn}",
)
def test_another_number_makes_another_figure(shown, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    draw, given = drawings(shown.family, shown.folder)
    name, column = shown.drawn.split(".")
    for i, value in enumerate(given):
        if isinstance(value, Path) and value.is_dir():
            given[i] = shutil.copytree(value, tmp_path / f"{i}-{value.name}")
    kept = {file: read_table(file) for file in tmp_path.rglob(f"{name}.parquet")}
    found = {file: table for file, table in kept.items() if column in table}
    assert found
    for file, table in found.items():
        write_table(table.assign(**{column: moved(table[column])}), file)
    _, before = redrawn(shown.family, shown.folder)[shown.figure]
    same = as_svg(draw(*given)[shown.figure]).decode() == before
    assert not same, f"{shown.figure} does not show {shown.drawn}"


AS_DIGITS = ("published/digits_long/figures", "published/cifar10_short/figures")
FOLDERS = sorted(
    {
        (family, run.figures)
        for family, of in FAMILIES.items()
        for run in of.all_runs.values()
        if run.figures not in AS_DIGITS  # which the same lines draw
    }
)
every_folder = pytest.mark.parametrize(
    ("family", "folder"), FOLDERS, ids=lambda value: value.split("/")[-2] if "/" in value else ""
)


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def alike(svg: str, other: str) -> bool:
    """Whether two drawings differ by less than a twentieth of a point in every place.

    So much may come from another processor; names of markers and paths follow it.
    """
    drawings = [re.sub(r"(\b[mp]|_)[0-9a-f]{10}\b", "", drawing) for drawing in (svg, other)]
    if len({NUMBER.sub("", drawing) for drawing in drawings}) > 1:
        return False
    places, others = (np.array(NUMBER.findall(drawing), float) for drawing in drawings)
    return np.allclose(places, others, rtol=0, atol=0.05)


@every_folder
def test_every_figure_in_git_is_what_the_code_draws_of_the_tables_in_git(
    family, folder, monkeypatch
):
    monkeypatch.chdir(ROOT)
    drawn = redrawn(family, folder)
    kept = {file.stem: file.read_text("utf-8") for file in (ROOT / folder).glob("*.svg")}
    assert set(kept) == set(drawn)
    assert [name for name, (_, svg) in drawn.items() if not alike(svg, kept[name])] == []


@every_folder
def test_every_text_is_at_least_seven_points_where_the_figure_is_read(family, folder, monkeypatch):
    """That is in the report's column, into which no figure needs to be shrunk; texts of ticks and
    legends count, too.
    """
    monkeypatch.chdir(ROOT)
    small = {}
    for name, (figure, _) in redrawn(family, folder).items():
        assert figure.get_figwidth() <= READ_WIDTH, name
        texts = [
            text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()
        ]
        assert len(texts) > 3, name
        sizes = {(name, text.get_text()): float(text.get_fontsize()) for text in texts}
        small |= {text: size for text, size in sizes.items() if round(size, 1) < LEAST_TEXT}
    assert small == {}


def test_a_figure_is_as_wide_as_the_column_of_the_report():
    assert READ_WIDTH * 96 == COLUMN


def test_colours_have_one_palette():
    """No figure brings its own: a colour stands in lib/pages/style.py, under the name of what it
    shows.
    """
    files = [
        *ROOT.glob("lib/*/figures/*.py"),
        *ROOT.glob("lib/*/figures.py"),
        *ROOT.glob("lib/pages/*.py"),
    ]
    own = {file: re.findall(r"#[0-9a-fA-F]{6}\b", file.read_text()) for file in files}
    assert len(own.pop(ROOT / "lib" / "pages" / "style.py")) > 5
    own.pop(ROOT / "lib" / "pages" / "dark.py")  # which turns the colours of any figure
    assert {name: found for name, found in own.items() if found} == {}
