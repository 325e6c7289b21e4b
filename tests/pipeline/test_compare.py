"""What `make compare` says of two commits."""

import html
import math
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml

from lib.files.files import InputError
from lib.files.tables import write_json, write_table
from lib.pages.measures import rows_of as measured
from lib.pages.measures import setup_rows, write_measures
from tests.pipeline.project import ROOT, append, commit, git
from tools.compare import (
    differs,
    looks_different,
    main,
    measures_differ,
    numbers,
    tables_shown,
)

OLD = yaml.safe_load("""
metrics/claims.json:
  noisy: {holds: true, max: 1.1, min: 0.9, value: 1.0}
  moved: {holds: true, max: 1.1, min: 0.9, value: 1.0}
  flipped: {holds: true, max: 1.0, min: 1.0, value: 1.0}
  gone: {holds: null}
metrics/a/summary.json:
  rank: {mean: 2.0, sd: 0.5}
  count: 7
""")
NEW = yaml.safe_load("""
metrics/claims.json:
  noisy: {holds: true, max: 1.15, min: 0.95, value: 1.05}
  moved: {holds: true, max: 1.4, min: 1.2, value: 1.3}
  flipped: {holds: false, max: 1.0005, min: 1.0005, value: 1.0005}
  fresh: {holds: true, max: 3.0, min: 3.0, value: 3.0}
metrics/a/summary.json:
  rank: {mean: 2.2, sd: 0.1}
  count: 8
""")
RADII = [  # of the circle that each figure draws
    {"plots/same.svg": 5, "plots/moved.svg": 1, "plots/gone.svg": 3},
    {"plots/same.svg": 5, "plots/moved.svg": 2, "published/run/figures/fresh.svg": 4},
]
CIRCLE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="90pt" height="90pt" viewBox="0 0 9 '
    '9"><circle r="{}"/></svg>'
)
CELL = r"<td[^>]*>(.*?)</td>"
ROW = re.compile(rf'<tr class="(added|removed|changed|same)">{CELL}{CELL}{CELL}')
Row = tuple[str, str, str, str]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A repository of two commits."""
    folder = tmp_path_factory.mktemp("compared")
    git("init", "--quiet", at=folder)
    for steps, files, radii in zip((100, 200), (OLD, NEW), RADII, strict=True):
        for name, content in files.items():
            write_json(content, folder / name)
        for figure in folder.rglob("*.svg"):
            figure.unlink()
        for name, radius in radii.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(CIRCLE.format(radius))
        (folder / "params.yaml").write_text(f"a:\n  steps: {steps}\n  seeds:\n    - 0\n")
        commit(folder, f"{steps} steps")
    return folder


def test_the_measures_of_a_table_are_compared_by_measure_and_case(tmp_path, capsys):
    git("init", "--quiet", at=tmp_path)
    for value in (1.0, 4.0):
        rows = measured({"error": pd.Series([value, value + 1.0])}, "small")
        write_measures([*setup_rows({"d_model": 8}), *rows], tmp_path / "metrics/a", {})
        write_json({}, tmp_path / "metrics/claims.json")
        (tmp_path / "params.yaml").write_text("a: 1\n")
        commit(tmp_path, f"from {value}")
    _, page = compared(tmp_path, tmp_path, capsys)
    assert rows_of(page)["metrics"] == [
        ("metrics/a: error.small", "1.5 ± 0.71", "4.5 ± 0.71", "changed")
    ]


def compared(
    project: Path, tmp_path: Path, capsys, old: str = "HEAD~1", new: str = "HEAD"
) -> tuple[str, str]:
    """What was said, and the page."""
    main(old, new, tmp_path / "compare.html", project)
    return capsys.readouterr().out, (tmp_path / "compare.html").read_text(encoding="utf-8")


def rows_of(page: str) -> dict[str, list[Row]]:
    """The rows of each part: what, before, after, and how it is marked."""
    parts = re.split(r'<h2 id="(\w+)">', page)[1:]
    found = {name: ROW.findall(text) for name, text in zip(*2 * [iter(parts)], strict=True)}
    return {
        part: [(*map(html.unescape, cells), mark) for mark, *cells in rows]
        for part, rows in found.items()
    }


def marked(page: str) -> dict[str, list[tuple[str, str]]]:
    """What is marked as not the same, and how."""
    return {
        part: [(row[0], row[3]) for row in rows if row[3] != "same"]
        for part, rows in rows_of(page).items()
    }


def test_only_what_moved_beyond_its_spread_is_marked(project, tmp_path, capsys):
    said, page = compared(project, tmp_path, capsys)
    assert rows_of(page) == {
        "claims": [
            ("moved", "holds 1 ± 0.1", "holds 1.3 ± 0.1", "changed"),
            ("flipped", "holds 1", "does not hold 1", "changed"),
            ("gone", "not run –", "– –", "removed"),
            ("fresh", "– –", "holds 3", "added"),
            ("noisy", "holds 1 ± 0.1", "holds 1.05 ± 0.1", "same"),
        ],
        "metrics": [
            ("metrics/a: count", "7", "8", "changed"),
            ("metrics/a: rank", "2 ± 0.5", "2.2 ± 0.1", "same"),
        ],
        "params": [("a.steps", "100", "200", "changed"), ("a.seeds", "[0]", "[0]", "same")],
        "figures": [],
    }
    assert "claims: 4 of 5 changed" in said
    assert (
        "figures: 3 changed\n  plots/gone.svg\n  plots/moved.svg\n  "
        "published/run/figures/fresh.svg\n" in said
    )


def test_figures_that_changed_stand_side_by_side_within_the_page(project, tmp_path, capsys):
    _, page = compared(project, tmp_path, capsys)
    assert re.findall(
        r'<img src="data:image/webp;base64,[^"]+" width="\d+" height="\d+" alt="([^"]+)"', page
    ) == [
        "plots/gone.svg of HEAD~1",
        "plots/moved.svg of HEAD~1",
        "plots/moved.svg of HEAD",
        "published/run/figures/fresh.svg of HEAD",
    ]
    assert page.count("<p>none</p>") == 2
    assert "plots/same.svg" not in page
    assert "://" not in page


def test_the_working_tree_is_compared_where_no_second_commit_is_named(project, tmp_path, capsys):
    append(project / "params.yaml", "  extra: 1\n")
    try:
        _, page = compared(project, tmp_path, capsys, "HEAD", "")
    finally:
        git("checkout", "--quiet", ".", at=project)
    assert marked(page)["params"] == [("a.extra", "added")]
    assert marked(page)["claims"] == []


def test_an_experiment_of_dvc_is_a_commit_too(project, tmp_path, capsys):
    git("update-ref", "refs/exps/ab/cdef/brave-name", "HEAD", at=project)
    said, page = compared(project, tmp_path, capsys, "HEAD~1", "brave-name")
    assert "claims: 4 of 5 changed" in said
    assert "<code>brave-name</code>" in page


def test_a_commit_that_is_not_there_is_refused(project, tmp_path):
    with pytest.raises(InputError, match=r"rev-parse .*nowhere"):
        main("nowhere", "", tmp_path / "compare.html", project)


# Before, after, their spread, and what is said.
CHANGES = """
1       1.2      0.1   changed
1.2     1        0.1   changed
1       1.05     0.1   same
1       1.5      0.5   same
1000    1002     5     same
1000    1000.5   0.1   same
1000    1002     0.1   changed
-1      -1.0009  0     same
-1      -1.002   0     changed
0       1e-09    0     changed
1e-13   9e-13    0     same
0       9e-11    0     same
"""


@pytest.mark.parametrize("line", CHANGES.strip().splitlines())
def test_a_change_is_one_beyond_both_the_spread_and_a_thousandth(line):
    *numbers, said = line.split()
    assert differs(*map(float, numbers)) is (said == "changed")


@pytest.mark.parametrize(("before", "after"), [(0.1, 0.5), (0.5, 0.1)])
def test_the_larger_of_two_spreads_counts(before, after):
    old, new = ({"inside": (1.0, s), "beyond": (1.0, s)} for s in (before, after))
    new["inside"], new["beyond"] = (1.4, after), (1.6, after)
    assert [(row.name, row.mark) for row in numbers(old, new)] == [
        ("inside", "same"),
        ("beyond", "changed"),
    ]


TABLE = pd.DataFrame(
    {
        "law": ["zipf", "zipf", "zipf", "flat"],
        "seed": [0, 1, 2, 0],
        "right": [True, True, True, False],
        "loss": [0.5, 0.51, 0.52, 0.125],
        "residual": [1e-13, 4e-14, 0.0, 1e-14],
        "error": [math.nan, 0.25, 0.5, math.inf],
        "sigma": [[3.0, 1e-9], [3.3, 2e-9], [3.1, 0.0], [2.0]],
    }
)
NUMBER = {"value": 2.0, "min": 2.0, "max": 2.0, "holds": True}
STAGES = """
stages:
  a_plot:
    matrix: {dataset: [b]}
    cmd: python -m stages.a.plot a.plot metrics/a/${item.dataset}/tables plots/a/${item.dataset}
    params: [a.plot]
    deps: ["metrics/a/${item.dataset}/tables", lib/files, stages/a/plot.py]
    plots:
      - plots/a/${item.dataset}/figures: {cache: false}
"""
# A curve of three places, and one beside it.
CURVES = """<svg xmlns="http://www.w3.org/2000/svg" width="800pt" height="90pt" viewBox="0 0 800 90">
<g id="line2d_1"><path d="M 10 20 \nL 400 {middle} {more}\nL 790 60" clip-path="url(#p{hash})"
style="stroke: {colour}"/><path d="M 10 30 \nL 790 70"/></g></svg>"""


def curves(middle: float, more: str = "", hashed: str = "8e8bda47d1", colour: str = "red") -> str:
    return CURVES.format(middle=middle, more=more, hash=hashed, colour=colour)


def of_another_machine(column: pd.Series) -> pd.Series:
    """Residuals that are others altogether, and other last digits."""
    if column.name == "residual":
        return pd.Series([3e-13, 0.0, 8e-13, 5e-13])
    return column if column.dtype != float else column * (1 + 3e-7)


Change = Callable[[pd.DataFrame], pd.DataFrame]


@pytest.fixture
def two_machines(tmp_path):
    """Commits the results of one machine, then those of another, whose table and figure the test
    may change further.
    """

    def commits(
        change: Change = lambda table: table,
        figure: str = curves(40 + 4e-5),
        code: str = "draw",
        colour: str = "red",
    ) -> Path:
        folder = tmp_path / "made"
        folder.mkdir()
        git("init", "--quiet", at=folder)
        for machine, scale in (("one", 1.0), ("other", 1 + 2e-7)):
            first = machine == "one"
            table = TABLE if first else change(TABLE.apply(of_another_machine))
            write_table(table, folder / "metrics/a/b/tables/runs.parquet")
            residual = 2e-13 if first else 7e-14
            tiny = {"value": residual, "min": residual, "max": residual, "holds": True}
            write_json(
                {"loss": {**NUMBER, "value": 2.0 * scale}, "tiny": tiny},
                folder / "metrics/claims.json",
            )
            write_json(
                {"loss": 2.0 * scale, "residual": residual},
                folder / "metrics/a/b/summary.json",
            )
            for name, text in {
                "plots/a/b/figures/f.svg": curves(40) if first else figure,
                "stages/a/plot.py": "draw" if first else code,
                "params.yaml": f"a:\n  plot: {'red' if first else colour}\n",
                "dvc.yaml": STAGES,
            }.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
            commit(folder, machine)
        return folder

    return commits


def changed_figures(said: str) -> list[str]:
    found = re.search(r"figures: (\d+) changed\n((?:  \S*\n)*)", said)
    assert found is not None
    names = found[2].split()
    assert len(names) == int(found[1])
    return names


SEEN = curves(43)  # one curve, three points lower
FIGURE = ["plots/a/b/figures/f.svg"]


@pytest.mark.parametrize(
    "figure",
    [
        curves(40 + 4e-5),
        curves(40, hashed="0123456789"),
        curves(40, more="\nL 595 50"),  # one more place on the same line
        SEEN,  # as its table moved by less than its seeds are apart
    ],
)
def test_nothing_is_marked_where_residuals_and_last_digits_alone_differ(
    two_machines, tmp_path, capsys, figure
):
    said, page = compared(two_machines(figure=figure), tmp_path, capsys)
    assert not any(marked(page).values())
    assert changed_figures(said) == []
    assert "figures: 1 differ by no more than another machine makes them" in said
    assert "<img" not in page


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.assign(loss=[0.5, 0.51, 0.52, 0.126]),
        lambda table: table.assign(loss=[0.53, 0.54, 0.55, 0.125]),
        lambda table: table.assign(residual=[1e-13, 4e-14, 0.0, 4e-9]),
        lambda table: table.assign(law=["zipf", "zipf", "flat", "zipf"]),
        lambda table: table.assign(right=[True, True, False, False]),
        lambda table: table.assign(sigma=[[3.0, 1.0], [3.3, 1.0], [3.1, 1.0], [2.0]]),
        lambda table: table.assign(sigma=[[3.0, 1e-9], [3.3], [3.1, 0.0], [2.0]]),
        lambda table: table.assign(error=[0.25, 0.25, 0.5, math.inf]),
        lambda table: table.iloc[:2],
        lambda table: table.rename(columns={"loss": "losses"}),
    ],
)
def test_a_figure_has_changed_where_one_curve_has_and_a_table_behind_it(
    two_machines, tmp_path, capsys, change
):
    said, page = compared(two_machines(change, SEEN), tmp_path, capsys)
    assert changed_figures(said) == FIGURE
    assert page.count("<img") == 2


def test_the_numbers_that_changed_stand_beside_the_pictures(two_machines, tmp_path, capsys):
    made = two_machines(lambda table: table.assign(loss=[0.7, 0.72, 0.71, 0.125]), SEEN)
    _, page = compared(made, tmp_path, capsys)
    [numbers] = re.findall(r'(?s)<table class="numbers">.*?<tbody>(.*?)</tbody>', page)
    [row] = re.findall(rf"(?s)<tr>{CELL}{CELL}{CELL}</tr>", numbers)
    assert row == ("runs: loss, 1 of 2, most in zipf, True", "0.51", "0.71")


def test_two_equal_pictures_are_one_beside_the_numbers_that_changed(two_machines, tmp_path, capsys):
    moved = two_machines(
        lambda table: table.assign(loss=[0.7, 0.72, 0.71, 0.125]), curves(40, colour="#ff0000")
    )
    said, page = compared(moved, tmp_path, capsys)
    assert changed_figures(said) == FIGURE
    assert page.count("<img") == page.count("The two pictures are equal at this size.") == 1
    assert '<table class="numbers">' in page


def test_a_figure_whose_picture_and_numbers_are_equal_has_not_changed(
    two_machines, tmp_path, capsys
):
    made = two_machines(figure=curves(40, colour="#ff0000"), code="draw more")
    said, page = compared(made, tmp_path, capsys)
    assert changed_figures(said) == []
    assert "<img" not in page


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.assign(loss=[0.51, 0.52, 0.50, 0.125]),
        lambda table: table.assign(sigma=[[3.3, 1e-9], [3.0, 2e-9], [3.3, 0.0], [2.0]]),
    ],
)
def test_a_figure_has_not_changed_where_a_table_moved_by_less_than_its_seeds_are_apart(
    two_machines, tmp_path, capsys, change
):
    assert changed_figures(compared(two_machines(change, SEEN), tmp_path, capsys)[0]) == []


@pytest.mark.parametrize("otherwise", [{"code": "draw more"}, {"colour": "blue"}])
def test_a_figure_has_changed_where_it_is_drawn_otherwise(
    two_machines, tmp_path, capsys, otherwise
):
    figure = curves(40, colour="blue")
    made = two_machines(figure=figure, **otherwise)
    assert changed_figures(compared(made, tmp_path, capsys)[0]) == FIGURE


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (curves(40), False),
        (curves(40.7), False),
        (curves(40.9), True),
        (curves(40, colour="blue"), True),
        (curves(40, more="\nL 595 50"), False),
        (curves(40, more="\nL 595 53"), True),
        (curves(40).replace("</g>", "<path/></g>"), True),
        (curves(40).replace("</g>", "<text>0.12</text></g>"), True),
    ],
)
def test_a_figure_looks_different_from_a_thousandth_of_its_width_on(other, said):
    assert looks_different(curves(40).encode(), other.encode()) is said


def test_a_figure_shows_the_tables_that_its_stage_hands_it(monkeypatch):
    monkeypatch.chdir(ROOT)
    folder = "metrics/checkpoints/tables"
    shown = tables_shown(f"python -m stages.checkpoints.plot --tables={folder}")
    assert shown["pruning"] == {f"{folder}/pruning.parquet", f"{folder}/losses.parquet"}
    assert tables_shown("python -m stages.none.plot") == {}


def test_a_measure_has_changed_where_it_moved_by_more_than_its_seeds_are_apart():
    old = {"setup": {"name": "a"}, "loss": {"cases": ["0", "1"], "values": [1.0, 1.1]}}
    near = {**old, "loss": {"cases": ["0", "1"], "values": [1.09, 1.15]}}
    far = {**old, "loss": {"cases": ["0", "1"], "values": [1.3, 1.4]}}
    other = {**old, "setup": {"name": "b"}}
    assert [measures_differ(old, one) for one in (old, near, far, other)] == [
        False,
        False,
        True,
        True,
    ]
