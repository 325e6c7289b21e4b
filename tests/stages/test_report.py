"""The report holds every claim, figure and provenance that it is given, each once and in its
place.
"""

import base64
import html
import io
import json
import re
from pathlib import Path

import pytest
from PIL import Image

from lib.files.files import InputError
from stages.report import items_of
from tests.pipeline.project import ROOT

ROW = re.compile(r'(?s)<tr id="([^"]+)" data-state="([\w-]+)" data-kind="([\w-]+)">\n(.*?)</tr>')
CELL = re.compile(r"(?s)<td[^>]*>(.*?)</td>")
FIGURE = re.compile(
    r'(?s)<(section|details) class="figure" id="([^"]+)">(.*?)<figure><img '
    r'src="data:image/webp;base64,([^"]+)" '
    r'width="(\d+)" height="(\d+)" '
    r'alt="([^"]+)"[^>]*><figcaption>(.*?)</figcaption></figure>(.*?)\n</\1>'
)
CARD = re.compile(
    r'(?s)<div class="card"><a href="#([^"]+)"><img src="data:image/webp[^>]*></a>(.*?)</div>'
)


def claim(family, figure, state, **others):
    """A verdict as the stage of claims writes it."""
    made = {
        "statement": f"{state} & <{family}>",
        "where": "theorem 1",
        "family": family,
        "kind": "theorem",
        "source": "[P]",
        "over": "mean",
        "bar": "[1, 2)",
        "figure": figure,
        "state": state,
        "command": f"dvc repro {family}_plot",
    }
    if state != "not run":
        made |= {
            "value": 1.23456,
            "spread": 0.1234,
            "interval_95": [1.0, None],
            "n": 2,
            "cases": ["4", "joint"],
        }
        made |= {"values": [1.5, None], "holds": state == "holds"}
    return made | others


CLAIMS = {
    "b_holds": claim(
        "vision",
        "plots/vision/toy/figures/b.svg",
        "holds",
        nulls={"a_fails": "beats", "gone": "not run"},
    ),
    "a_fails": claim(
        "vision",
        "plots/vision/toy/figures/b.svg",
        "fails",
        expected="fails, because so",
        spread=None,
    ),
    "other": claim("own_family", "plots/own_family/figures/x.svg", "holds", command="make x"),
    "gone": claim("own_family", "plots/own_family/figures/none.svg", "not run"),
    "far": claim("vision", "published/long/figures/p.svg", "fails"),
}
FIGURES = [
    "plots/vision/toy/figures/a.svg",
    "plots/vision/toy/figures/b.svg",
    "plots/own_family/figures/x.svg",
]
FIGURES += ["published/long/figures/p.svg"]
COLOURS = {path: (10 + 60 * k, 90, 200 - 40 * k) for k, path in enumerate(FIGURES)}
DRAWING = """<svg xmlns="http://www.w3.org/2000/svg" width="60pt" height="30pt" viewBox="0 0 60 30">
<rect width="60" height="30" fill="rgb{}"/></svg>"""
SAID = {"title": "Vision & <sight>", "source": "a paper", "why": "we <look>", "unsaid": "much"}
FINDING = {"text": "It <fails>.", "figure": "b", "claims": ["a_fails"]}
VISION = {
    **SAID,
    "findings": [FINDING],
    "figures": {
        "a": {"title": "First & <last>", "caption": "See <a>.", "of": "figure 2"},
        "b": {"title": "Second", "caption": "See b."},
        "p": {"title": "Third", "caption": "See p.", "of": "figure 3"},
        "c": {"title": "Not drawn", "caption": "Nothing."},
    },
}
ABSENT = {**SAID, "figures": {}, "findings": [{"text": "Not here.", "figure": "c"}]}
PROVENANCE = {
    "epochs": 4.6912,
    "device": "a <GPU>",
    "wall_hours": 0.123,
    "augmentation": "none",
    "seeds": [7, 1],
    "commit": "0123456789abcdef",
    "command": "dvc 'x'",
    "versions": {"torch": "2"},
    "params": {"rate": 0.5},
}


@pytest.fixture
def report(stage, tmp_path):
    """Makes the page of these claims, some of them changed, of the figures and of what is said of
    them.
    """

    def make(vision=VISION, **changes) -> str:
        for path in FIGURES:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(DRAWING.format(COLOURS[path]))
        captions = {Path("absent/captions.yaml"): ABSENT, Path("vision/captions.yaml"): vision}
        for file, said in captions.items():
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(said))
        (tmp_path / "published/long/provenance.json").write_text(json.dumps(PROVENANCE))
        (tmp_path / "claims.json").write_text(json.dumps(CLAIMS | changes))
        folders = [
            Path(folder) for folder in dict.fromkeys(path.rpartition("/")[0] for path in FIGURES)
        ]
        template = ROOT / "stages" / "report.html"
        families = [*captions, *folders]
        stage("report", {}, Path("claims.json"), template, Path("report.html"), families)
        return (tmp_path / "report.html").read_text(encoding="utf-8")

    return make


def plain(text: str) -> str:
    """The words of a piece of HTML."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())


def test_every_claim_has_a_row_with_all_that_its_verdict_says(report):
    found = ROW.findall(report())
    assert {(state, kind) for _, state, kind, _ in found} == {
        ("holds", "theorem"),
        ("fails", "theorem"),
    }
    rows = {name: [plain(cell) for cell in CELL.findall(row)] for name, _, _, row in found}
    value = "(2) cases 4: 1.5, joint: –"
    assert rows == {
        "b_holds": [
            "holds & <vision> theorem 1 [P] beats a fails",
            "theorem",
            f"1.235 ± 0.12 {value}",
            "1 … –",
            "mean in [1, 2)",
            "holds",
        ],
        "a_fails": [
            "fails & <vision> theorem 1 [P]",
            "theorem",
            f"1.235 {value}",
            "1 … –",
            "mean in [1, 2)",
            "fails expected: fails, because so",
        ],
        "other": [
            "holds & <own_family> theorem 1 [P]",
            "theorem",
            f"1.235 ± 0.12 {value}",
            "1 … –",
            "mean in [1, 2)",
            "holds",
        ],
        "far": [
            "fails & <vision> theorem 1 [P]",
            "theorem",
            f"1.235 ± 0.12 {value}",
            "1 … –",
            "mean in [1, 2)",
            "fails",
        ],
    }


def test_every_figure_is_drawn_once_in_the_order_of_the_captions_with_its_claims(report):
    text = report()
    a, b, own, published = FIGURES
    found = {
        path: (tag, head, pixel(shown), (w, h), alt, said, below)
        for tag, path, head, shown, w, h, alt, said, below in FIGURE.findall(text)
    }
    assert list(found) == [a, b, own, published]
    assert text.count('class="figure"') == 4
    assert {path: one[2] for path, one in found.items()} == COLOURS
    assert {one[3] for one in found.values()} == {("80", "40")}
    assert {
        path: (tag, plain(head), html.unescape(alt), plain(said))
        for path, (tag, head, _, _, alt, said, _) in found.items()
    } == {
        a: ("section", "Figure 2. First & <last>", "First & <last>", "See <a>."),
        b: ("details", "Second 2 claims: 1 holds 1 fails", "Second", "See b."),
        own: ("details", "X 1 claim: 1 holds", "X", ""),
        published: ("details", "Third (figure 3) 1 claim: 1 fails", "Third", "See p."),
    }
    made_by = {path: plain(one[-1]).split(" · made by ")[1:] for path, one in found.items()}
    repro = ["dvc repro vision_plot"]
    assert made_by == {a: repro, b: repro, own: ["make x"], published: repro}
    for path, one in found.items():
        beside = [name for name, claimed in CLAIMS.items() if claimed["figure"] == path]
        assert [name for name, *_ in ROW.findall(one[-1])] == beside


def pixel(webp: str) -> tuple[int, ...]:
    """The colour in the middle of a picture."""
    return Image.open(io.BytesIO(base64.b64decode(webp))).convert("RGB").getpixel((40, 20))


def test_a_finding_stands_with_its_figure_and_the_verdicts_on_it(report):
    [(figure, said)] = CARD.findall(report())
    assert figure == FIGURES[1]
    assert plain(said) == "It <fails>. A claim on it fails , 1.235"
    assert re.findall('href="#([^"]+)"', said) == ["a_fails"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"figure": "z"}, "wanted one of its figures, got 'z'"),
        ({"claims": ["a_fails", "never"]}, r"wanted one of its claims, got \['never'\]"),
    ],
)
def test_a_finding_without_its_figure_or_claim_is_refused(report, changed, message):
    with pytest.raises(InputError, match=f"findings of vision: 'It <fails>.': {message}"):
        report(VISION | {"findings": [FINDING | changed]})


def test_what_is_said_of_a_figure_must_be_known(report):
    figures = {"a": {"title": "A", "captoin": "See a."}}
    with pytest.raises(
        InputError, match=r"^vision/captions.yaml.figures.a: unknown key 'captoin', wanted"
    ):
        report({**SAID, "figures": figures})


def test_families_stand_in_the_order_of_their_papers(report):
    text = report()
    assert re.findall(r'<h2 id="(\w+)">', text)[2:4] == ["vision", "own_family"]
    assert plain(text).count("Vision & <sight>") == 3
    assert "we <look>" in plain(text)
    assert "What the paper does not say. much" in plain(text)


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
        (
            row["item"],
            *(" ".join(row["counts"][who]) for who in ("paper", "ours", "controls")),
            row["name"],
        )
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
        ["Vision & <sight> a paper", "3", "1", "2 (1 as expected)", "0"],
        ["own_family", "2", "1", "0", "1"],
    ]


def test_a_published_run_says_where_it_comes_from_and_the_rest_comes_before_it(report):
    before, _, after = report().partition('<h2 id="published">')
    assert [path for _, path, *_ in FIGURE.findall(after)] == FIGURES[3:]
    assert "<h3>toy</h3>" in before
    assert "<h3>own_family</h3>" not in before
    said = plain(after[: after.index("<details>")])
    assert (
        "long 4.69 epochs on a <GPU> in 0.12 h; augmentation: none; seeds: 7, 1; commit "
        "0123456789 ; dvc 'x'" in said
    )
    [params] = re.findall("(?s)<pre>(.*?)</pre>", after)
    assert json.loads(html.unescape(params)) == {
        name: PROVENANCE[name] for name in ("versions", "params")
    }


def test_what_was_not_run_is_listed(report):
    listed = report().partition('<h2 id="not-run">')[2]
    assert re.findall("<li>(.*?)</li>", listed) == [
        "not run &amp; &lt;own_family&gt; <small>theorem 1</small>"
    ]


def test_a_claim_whose_figure_is_not_there_is_refused(report):
    with pytest.raises(
        InputError,
        match=r"claims.json: b_holds: wanted one of the figures .*, got plots/nowhere.svg",
    ):
        report(b_holds=claim("vision", "plots/nowhere.svg", "holds"))


def test_what_is_no_verdict_is_refused(report):
    with pytest.raises(
        InputError, match=r"claims.json: wanted claims with bar, command, .*, where, got 'gain'"
    ):
        report(gain={"cases": ["0"], "values": [1.0]})


def test_a_folder_without_figures_is_refused(stage, tmp_path):
    (tmp_path / "claims.json").write_text("{}")
    (tmp_path / "plots").mkdir()
    template = ROOT / "stages" / "report.html"
    with pytest.raises(InputError, match="plots: wanted figures, got none"):
        stage("report", {}, Path("claims.json"), template, Path("out.html"), [Path("plots")])
