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
from tests.pipeline.project import append, commit, git
from tools.compare import differs, main, numbers

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
        "seed": [0, 1, 2],
        "law": ["zipf", "zipf", "flat"],
        "right": [True, False, True],
        "loss": [0.5, 1e-6, 0.125],
        "residual": [1e-13, 4e-14, 0.0],
        "error": [math.nan, 0.25, math.inf],
        "sigma": [[3.0, 1e-9], [2.0], []],
    }
)
NUMBER = {"value": 2.0, "min": 2.0, "max": 2.0, "holds": True}


def of_another_machine(column: pd.Series) -> pd.Series:
    """Residuals that are others altogether, and other last digits."""
    if column.name == "residual":
        return pd.Series([3e-13, 0.0, 8e-13])
    return column if column.dtype != float else column * (1 + 3e-7)


@pytest.fixture
def two_machines(tmp_path):
    """Commits the results of one machine, then those of another, whose table the test may change
    further.
    """

    def commits(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Path:
        folder = tmp_path / "made"
        folder.mkdir()
        git("init", "--quiet", at=folder)
        for machine, scale in (("one", 1.0), ("other", 1 + 2e-7)):
            table = TABLE if machine == "one" else change(TABLE.apply(of_another_machine))
            write_table(table, folder / "metrics/a/b/tables/runs.parquet")
            residual = 2e-13 if machine == "one" else 7e-14
            tiny = {"value": residual, "min": residual, "max": residual, "holds": True}
            write_json(
                {"loss": {**NUMBER, "value": 2.0 * scale}, "tiny": tiny},
                folder / "metrics/claims.json",
            )
            write_json(
                {"loss": 2.0 * scale, "residual": residual},
                folder / "metrics/a/b/summary.json",
            )
            figure = folder / "plots/a/b/figures/f.svg"
            figure.parent.mkdir(parents=True, exist_ok=True)
            figure.write_text(CIRCLE.format(scale))
            (folder / "params.yaml").write_text("a: 1\n")
            commit(folder, machine)
        return folder

    return commits


def test_nothing_is_marked_where_residuals_and_last_digits_alone_differ(
    two_machines, tmp_path, capsys
):
    said, page = compared(two_machines(lambda table: table), tmp_path, capsys)
    assert not any(marked(page).values())
    assert "figures: 0 changed\nfigures: 1 drawn anew from the same numbers" in said.replace(
        "\n  \n", "\n"
    )
    assert "<img" not in page


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.assign(loss=[0.5, 1e-6, 0.126]),
        lambda table: table.assign(residual=[1e-13, 4e-9, 0.0]),
        lambda table: table.assign(law=["zipf", "flat", "zipf"]),
        lambda table: table.assign(sigma=[[3.0, 1.0], [2.0], []]),
        lambda table: table.iloc[:2],
        lambda table: table.rename(columns={"loss": "losses"}),
    ],
)
def test_a_figure_has_changed_where_a_table_behind_it_has(two_machines, tmp_path, capsys, change):
    said, page = compared(two_machines(change), tmp_path, capsys)
    assert "figures: 1 changed\n  plots/a/b/figures/f.svg" in said
    assert page.count("<img") == 2
