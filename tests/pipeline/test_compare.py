"""What `make compare` says of two commits."""

import re
from pathlib import Path

import pytest
from browser import needs_browser, opened
from project import append, commit, git

from docs.compare import differs, main
from lib.io.files import InputError
from lib.io.tables import write_json

OLD = {
    "metrics/claims.json": {
        "noisy": {"state": "holds", "value": 1.0, "spread": 0.1},
        "moved": {"state": "holds", "value": 1.0, "spread": 0.1},
        "flipped": {"state": "holds", "value": 1.0, "spread": None},
        "gone": {"state": "not run"},
    },
    "metrics/a/summary.json": {"rank": {"mean": 2.0, "sd": 0.5}, "count": 7},
}
NEW = {
    "metrics/claims.json": {
        "noisy": {"state": "holds", "value": 1.05, "spread": 0.1},
        "moved": {"state": "holds", "value": 1.3, "spread": 0.1},
        "flipped": {"state": "fails", "value": 1.0005, "spread": None},
        "fresh": {"state": "holds", "value": 3.0, "spread": 0.0},
    },
    "metrics/a/summary.json": {"rank": {"mean": 2.2, "sd": 0.1}, "count": 8},
}
CIRCLE = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle r="{}"/></svg>'
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A repository of two commits."""
    folder = tmp_path_factory.mktemp("compared")
    git("init", "--quiet", at=folder)
    for radius, files in ((1, OLD), (2, NEW)):
        for name, content in files.items():
            write_json(content, folder / name)
        (folder / "plots").mkdir(exist_ok=True)
        (folder / "plots" / "same.svg").write_text(CIRCLE.format(5))
        (folder / "plots" / "moved.svg").write_text(CIRCLE.format(radius))
        (folder / "params.yaml").write_text(f"a:\n  steps: {radius}00\n  seeds:\n    - 0\n")
        commit(folder, f"Radius {radius}")
    return folder


def compared(project: Path, tmp_path: Path, capsys, old: str = "HEAD~1", new: str = "HEAD") -> tuple[str, str]:
    """What was said, and the page."""
    main(old, new, tmp_path / "compare.html", project)
    return capsys.readouterr().out, (tmp_path / "compare.html").read_text(encoding="utf-8")


def marked(page: str) -> dict[str, list[tuple[str, str]]]:
    """The rows of each part that are marked: what, and how."""
    parts = re.split(r'<h2 id="(\w+)">', page)[1:]
    row = re.compile(r'<tr class="(added|removed|changed)"><td>(.+?)</td>')
    return {name: [(n, mark) for mark, n in row.findall(text)] for name, text in zip(*2 * [iter(parts)], strict=True)}


def test_only_what_moved_beyond_its_spread_is_marked(project, tmp_path, capsys):
    said, page = compared(project, tmp_path, capsys)
    assert marked(page) == {
        "claims": [("moved", "changed"), ("flipped", "changed"), ("gone", "removed"), ("fresh", "added")],
        "metrics": [("metrics/a: count", "changed")],
        "params": [("a.steps", "changed")],
        "figures": [],
    }
    assert "claims: 4 of 5 changed" in said
    assert "figures: 1 changed\n  plots/moved.svg\n" in said


def test_figures_that_changed_stand_side_by_side_within_the_page(project, tmp_path, capsys):
    _, page = compared(project, tmp_path, capsys)
    assert page.count('<img src="data:image/svg+xml;base64,') == 2
    assert "plots/same.svg" not in page
    assert "http" not in page


def test_a_commit_does_not_differ_from_itself(project, tmp_path, capsys):
    said, page = compared(project, tmp_path, capsys, "HEAD", "HEAD")
    assert not any(marked(page).values())
    assert "params: none of 2 changed" in said


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


def test_a_change_is_one_beyond_the_spread_and_a_thousandth():
    assert differs(1.0, 1.2, 0.1)
    assert not differs(1.0, 1.05, 0.1)
    assert not differs(1.0, 1.0009, 0.0)
    assert differs(1.0, 1.002, 0.0)
    assert differs(0.0, 1e-9, 0.0)


def last_results() -> list[str]:
    """The two newest commits of results in this repository, the older one first."""
    revisions = git("log", "--format=%H", "-2", "--", "metrics/claims.json", at=ROOT).split()
    if len(revisions) < 2:
        pytest.skip("this clone holds no two commits of results")
    return revisions[::-1]


def test_the_two_last_results_of_this_repository_can_be_compared(tmp_path, capsys):
    main(*last_results(), tmp_path / "compare.html")
    assert "claims: " in capsys.readouterr().out


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", [1280, 390], ids=["wide", "a phone"])
def test_a_browser_shows_both_sides_of_every_figure(project, tmp_path, capsys, width):
    for folder, revisions in ((project, ["HEAD~1", "HEAD"]), (ROOT, last_results())):
        said, _ = compared(folder, tmp_path, capsys, *revisions)
        with opened(tmp_path / "compare.html", width) as view:
            images = view.eval_on_selector_all(
                ".pair img",
                "all => Promise.all(all.map(async e => (await e.decode(), e.getBoundingClientRect())))"
                ".then(boxes => boxes.map(b => [b.left, b.right, b.height]))",
            )
            missing = view.locator(".pair p").count()
            across = view.evaluate("document.documentElement.scrollWidth")
        n_changed = int(re.findall(r"figures: (\d+) changed", said)[0])
        assert len(images) + missing == 2 * n_changed > 0
        assert [box for box in images if box[0] < 0 or box[1] > width or box[2] < 50] == []
        assert across <= width
