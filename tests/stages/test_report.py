"""The report holds every claim, figure and provenance that it is given, each once and in its place."""

import base64
import html
import json
import re
from pathlib import Path

import pytest
from project import ROOT

from lib.io.files import InputError
from stages.report import items_of

ROW = re.compile(r'(?s)<tr id="([^"]+)">\n(.*?)</tr>')
CELL = re.compile(r"(?s)<td[^>]*>(.*?)</td>")
FIGURE = re.compile(
    r'(?s)<figure id="([^"]+)"><img src="data:image/svg\+xml;base64,([^"]+)" alt="([^"]+)">(.*?)</figure>'
)


def claim(family, figure, state, **others):
    """A verdict as the stage of claims writes it."""
    made = {
        "statement": f"{state} & <{family}>", "where": "theorem 1", "family": family, "kind": "theorem",
        "source": "[P]", "over": "mean", "bar": "[1, 2)", "figure": figure, "state": state,
        "command": f"dvc repro {family}_plot",
    }  # fmt: skip
    if state != "not run":
        made |= {"value": 1.23456, "spread": 0.1234, "interval_95": [1.0, None], "n": 2, "cases": ["4", "joint"]}
        made |= {"values": [1.5, None], "holds": state == "holds"}
    return made | others


CLAIMS = {
    "b_holds": claim(
        "vision", "plots/vision/toy/figures/b.svg", "holds", nulls={"a_fails": "fails", "gone": "not run"}
    ),
    "a_fails": claim("vision", "plots/vision/toy/figures/b.svg", "fails", expected="fails, because so", spread=None),
    "other": claim("own_family", "plots/own_family/figures/x.svg", "holds", command="make x"),
    "gone": claim("own_family", "plots/own_family/figures/none.svg", "not run"),
    "far": claim("vision", "published/long/figures/p.svg", "fails"),
}
FIGURES = ["plots/vision/toy/figures/a.svg", "plots/vision/toy/figures/b.svg", "plots/own_family/figures/x.svg"]
FIGURES += ["published/long/figures/p.svg"]
PROVENANCE = {
    "epochs": 4.6912, "device": "a <GPU>", "wall_hours": 0.123, "augmentation": "none", "seeds": [7, 1],
    "commit": "0123456789abcdef", "command": "dvc 'x'", "versions": {"torch": "2"}, "params": {"rate": 0.5},
}  # fmt: skip


@pytest.fixture
def report(stage, tmp_path):
    """Makes the page of these claims, some of them changed, and of the figures."""

    def make(**changes) -> str:
        for path in FIGURES:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(f"<svg>{path}</svg>")
        (tmp_path / "published/long/provenance.json").write_text(json.dumps(PROVENANCE))
        (tmp_path / "claims.json").write_text(json.dumps(CLAIMS | changes))
        folders = [Path(folder) for folder in dict.fromkeys(path.rpartition("/")[0] for path in FIGURES)]
        stage("report", {}, Path("claims.json"), ROOT / "stages" / "report.html", Path("report.html"), folders)
        return (tmp_path / "report.html").read_text(encoding="utf-8")

    return make


def plain(text: str) -> str:
    """The words of a piece of HTML."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())


def test_every_claim_has_a_row_with_all_that_its_verdict_says(report):
    rows = {name: [plain(cell) for cell in CELL.findall(row)] for name, row in ROW.findall(report())}
    value = "(2) cases 4: 1.5, joint: –"
    assert rows == {
        "b_holds": ["holds & <vision> theorem 1 [P] does not beat a fails", "theorem", f"1.235 ± 0.12 {value}",
                    "1 … –", "mean in [1, 2)", "holds"],
        "a_fails": ["fails & <vision> theorem 1 [P]", "theorem", f"1.235 {value}", "1 … –", "mean in [1, 2)",
                    "fails expected: fails, because so"],
        "other": ["holds & <own_family> theorem 1 [P]", "theorem", f"1.235 ± 0.12 {value}", "1 … –",
                  "mean in [1, 2)", "holds"],
        "far": ["fails & <vision> theorem 1 [P]", "theorem", f"1.235 ± 0.12 {value}", "1 … –", "mean in [1, 2)",
                "fails"],
    }  # fmt: skip


def test_every_figure_is_drawn_once_those_with_claims_first(report):
    text = report()
    found = {path: (base64.b64decode(svg).decode(), said, below) for path, svg, said, below in FIGURE.findall(text)}
    a, b, own, published = FIGURES
    assert list(found) == [b, a, own, published]
    assert {path: svg for path, (svg, _, _) in found.items()} == {path: f"<svg>{path}</svg>" for path in FIGURES}
    assert {path: html.unescape(said) for path, (_, said, _) in found.items()} == {
        a: "toy: a",
        b: "toy: b. holds & <vision>. fails & <vision>",
        own: "own_family: x. holds & <own_family>",
        published: "long: p. fails & <vision>",
    }
    made_by = {path: plain(below).split(" · made by ")[1:] for path, (_, _, below) in found.items()}
    repro = ["dvc repro vision_plot"]
    assert made_by == {a: repro, b: repro, own: ["make x"], published: repro}
    for path, section in re.findall(r'(?s)<section class="figure">\n<figure id="([^"]+)">(.*?)</section>', text):
        beside = [name for name, one in CLAIMS.items() if one["figure"] == path]
        assert [name for name, _ in ROW.findall(section)] == beside


def where(place, kind, state="holds"):
    return {"where": place, "kind": kind, "state": state}


def test_every_item_of_a_paper_stands_in_its_order_with_whose_claims_hold():
    claims = {
        "a": where("A 2023, theorem 4.5 and figure 6; the rate is ours", "our bar"),
        "b": where("A 2023, theorem 4.5", "theorem", "fails"),
        "c": where("A 2023, figures 10, 2 (c, d)", "paper's figure"),
        "d": where("ours, beside section 5, figure 2", "control", "not run"),
        "e": where("A 2023, Lemma D.4, and the third part of assumption 4.2", "assumption"),
        "f": where("A 2023, equations (10) and (17)", "our bar"),
        "g": where("B 2024, theorem 1 (ii), figure 3(A)", "our bar"),
        "h": where("ours (A 2023, theorem 1)", "our bar"),
        "i": where("ours", "our bar"),
        "j": where("algorithm 1", "control"),
    }
    counted = [
        (row["item"], *(" ".join(row["counts"][who]) for who in ("paper", "ours", "controls")), row["name"])
        for row in items_of(claims)
    ]
    assert counted == [
        ("theorem 1", "", "holds", "", "h"),
        ("theorem 1 (ii)", "", "holds", "", "g"),
        ("algorithm 1", "", "", "holds", "j"),
        ("assumption 4.2", "holds", "", "", "e"),
        ("theorem 4.5", "fails", "holds", "", "b"),
        ("equation (10)", "", "holds", "", "f"),
        ("equation (17)", "", "holds", "", "f"),
        ("lemma D.4", "holds", "", "", "e"),
        ("section 5", "", "", "not run", "d"),
        ("figure 2", "holds", "", "not run", "c"),
        ("figure 3", "", "holds", "", "g"),
        ("figure 6", "", "holds", "", "a"),
        ("figure 10", "holds", "", "", "c"),
    ]


def test_the_page_opens_with_the_items_of_each_paper(report):
    text = report()
    rows = [
        [plain(cell) for cell in CELL.findall(row)]
        for row in text.split('class="items"')[1:]
        for row in row.split("<tr>")[2:]
    ]
    assert rows[0] == ["theorem 1", "1 of 3", "–", "–", "holds & <vision> : 1.235 ± 0.12"]
    assert rows[1] == ["theorem 1", "1 of 2", "–", "–", "holds & <own_family> : 1.235 ± 0.12"]
    assert text.index('class="items"') < text.index("<figure")


def test_the_families_are_counted(report):
    [table] = re.findall(r"(?s)<tbody>\n(.*?)</tbody>", report())[:1]
    rows = [[plain(cell) for cell in CELL.findall(row)] for row in table.split("<tr>")[1:]]
    assert rows == [
        ["Vision transformers: does it carry over?", "3", "1", "2 (1 as expected)", "0"],
        ["own_family", "2", "1", "0", "1"],
    ]


def test_a_published_run_says_where_it_comes_from_and_the_rest_comes_before_it(report):
    before, _, after = report().partition('<h2 id="published">')
    assert [path for path, *_ in FIGURE.findall(after)] == FIGURES[3:]
    assert "<h3>toy</h3>" in before
    assert "<h3>own_family</h3>" not in before
    said = plain(after[: after.index("<details>")])
    assert "long 4.69 epochs on a <GPU> in 0.12 h; augmentation: none; seeds: 7, 1; commit 0123456789 ; dvc 'x'" in said
    [params] = re.findall("(?s)<pre>(.*?)</pre>", after)
    assert json.loads(html.unescape(params)) == {name: PROVENANCE[name] for name in ("versions", "params")}


def test_what_was_not_run_is_listed(report):
    assert re.findall("<li>(.*?)</li>", report()) == ["not run &amp; &lt;own_family&gt; <small>theorem 1</small>"]


def test_a_claim_whose_figure_is_not_there_is_refused(report):
    with pytest.raises(InputError, match=r"claims.json: b_holds: wanted one of the figures .*, got plots/nowhere.svg"):
        report(b_holds=claim("vision", "plots/nowhere.svg", "holds"))


def test_a_folder_without_figures_is_refused(stage, tmp_path):
    (tmp_path / "claims.json").write_text("{}")
    (tmp_path / "plots").mkdir()
    with pytest.raises(InputError, match="plots: wanted figures, got none"):
        stage("report", {}, Path("claims.json"), ROOT / "stages" / "report.html", Path("report.html"), [Path("plots")])
