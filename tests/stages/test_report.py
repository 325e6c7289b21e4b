"""The report holds every item, claim and figure that it is given, each once and in its place."""

import html
import io
import json
import re
from base64 import b64decode
from pathlib import Path

import pytest
import yaml
from PIL import Image

from lib.files.files import InputError
from tests.stages.made import with_digest

DRAWING = """<svg xmlns="http://www.w3.org/2000/svg" width="60pt" height="30pt" viewBox="0 0 60 30">
<rect width="60" height="30" fill="rgb{}"/></svg>"""
FIGURES = [
    "plots/toy/figures/a.svg",
    "plots/toy/figures/b.svg",
    "plots/toy/figures/alone.svg",
    "published/long/figures/p.svg",
    "published/long/figures/unnamed.svg",
]
COLOURS = {path: (10 + 40 * k, 90, 200 - 40 * k) for k, path in enumerate(FIGURES)}
NUMBERS = {"value": 1.2345, "interval_95": [None, None], "min": 1.0, "max": 2.0, "n": 2}


def claim(item, figure, *, holds, **others):
    """A verdict as the stage of claims writes it."""
    made = {
        "family": "toy",
        "item": item,
        "statement": f"{item} & <{figure}>",
        "kind": "paper",
        "stood": "before",
        "bar": "every in [1, 2)",
        "figure": figure,
        "command": "dvc repro toy_plot",
        "holds": holds,
        "n": 0,
    }
    if holds is not None:
        case = {**NUMBERS, "case": "a case", "holds": holds, "names": ["4", "5"]}
        made |= {**NUMBERS, "cases": [{**case, "values": [1.0, 1.469]}]}
    return made | others


CLAIMS = {
    "one": claim("t", FIGURES[0], holds=True),
    "two": claim("t", FIGURES[1], holds=False, outcome="limit", why="it is <so>"),
    "three": claim("t", FIGURES[1], holds=None, missing="no <measure>"),
    "far": claim("q", FIGURES[3], holds=True),
}
CLAIMS["one"]["null"] = {
    "what": "chance & <co>",
    "value": 9.0,
    "difference": -7.7,
    "interval_95": [-8.0, -7.0],
    "n": 6,
    "beats": True,
}
ITEMS = {
    "toy.t": {
        "family": "toy",
        "title": "A theorem & <more>",
        "says": "It is <so>.",
        "answer": "reproduced in part",
        "size": "d < 8",
        "found": "The first & <claim>.",
        "scope": "So <far>.",
        "limits": "Only <here>.",
        "stood": "set before the first run",
        "repeated": True,
        "fragile": True,
        "unseen": {"70": {"answer": "not reproduced", "number": "7"}},
        "figure": FIGURES[0],
        "claims": ["one", "two", "three"],
    },
    "toy.q": {
        "family": "toy",
        "title": "A question",
        "asks": "Is it?",
        "answer": "yes",
        "repeated": False,
        "figure": FIGURES[3],
        "claims": ["far"],
    },
    "toy.u": {"family": "toy", "title": "Untested", "says": "So.", "answer": "not tested"},
}
ITEMS["toy.u"]["claims"] = []
SAID = {
    "title": "Toys & <co>",
    "source": "a paper",
    "why": "we <look>",
    "unsaid": "much",
    "figures": {
        "a": {"title": "First & <last>", "caption": "See <a>.", "of": "figure 2"},
        "b": {"title": "Second", "caption": "See b."},
        "p": {"title": "Third", "caption": "See p."},
        "gone": {"title": "Not drawn", "caption": "Nothing."},
    },
}
PROVENANCE = {"device": "a <GPU>", "wall_hours": 0.123, "commit": "0123456789abcdef"}
PROVENANCE |= {"command": "dvc 'x'", "versions": {"torch": "2"}, "params": {"rate": 0.5}}


CLAIMS["one"] |= {"nulls": {"beaten": 1, "cases": 2}}
CLAIMS["one"] |= {"unseen": {"70": {"holds": False, "value": 7.0}}}
TURNED = {"items": ["toy.t"], "claims": ["one"]}
UNSEEN = [{"seeds_from": 70, "commit": "abcdef0123456", "turned": TURNED}]
UNSEEN[0]["judged"] = {"items": 3, "claims": 4}


@pytest.fixture
def report(stage, tmp_path):
    """Makes the page of these claims, some of them changed; gives its text."""

    def make(claims=CLAIMS, items=ITEMS):
        for path in FIGURES:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(DRAWING.format(COLOURS[path]))
        (tmp_path / "published" / "long" / "provenance.json").write_text(json.dumps(PROVENANCE))
        (tmp_path / "toy").mkdir(exist_ok=True)
        (tmp_path / "toy" / "captions.yaml").write_text(yaml.safe_dump(SAID, sort_keys=False))
        (tmp_path / "claims.json").write_text(with_digest(claims))
        (tmp_path / "items.json").write_text(with_digest(items))
        root = Path(__file__).parents[2]
        given = [Path("toy/captions.yaml"), Path("plots/toy/figures")]
        (tmp_path / "published/unseen.json").write_text(json.dumps(UNSEEN))
        template = root / "stages" / "report.html"
        judged = (Path("claims.json"), Path("items.json"), Path("published"))
        stage("report", {}, *judged, template, Path("r.html"), given)
        return (tmp_path / "r.html").read_text()

    return make


def plain(text):
    """The words of a piece of HTML."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def items_of(text):
    """Each item of the page by its name: its summary, and what it opens."""
    found = re.findall(
        r'(?s)<details class="item" id="([^"]+)"><summary>(.*?)</summary>(.*?)</div></details>',
        text,
    )
    return {name: (summary, opened) for name, summary, opened in found}


def test_every_item_says_its_answer_what_was_found_and_its_marks(report):
    found = {name: plain(summary) for name, (summary, _) in items_of(report()).items()}
    marks = "Size: d < 8. Unseen seeds: fragile (seeds +70: not reproduced, 7). "
    assert found == {
        "toy.t": "A theorem & <more> reproduced in part fragile It is <so>. The first & <claim>. "
        f"Limits. Only <here>. {marks}Bar: set before the first run.",
        "toy.q": "A question yes Is it? Unseen seeds: not repeated: a published run.",
        "toy.u": "Untested not tested So.",
    }


def test_a_board_has_every_answer_before_the_items(report):
    boards = plain(report().partition('<details class="item"')[0].partition("the answers")[2])
    assert (
        "reproduced in part fragile A theorem & <more> The first & <claim>. Size: d < 8" in boards
    )
    assert "not tested Untested" in boards


def test_every_claim_stands_once_in_its_item_with_its_verdict(report):
    text = report()
    opened = {name: part for name, (_, part) in items_of(text).items()}
    rows = {
        name: re.findall(r'(?s)<tr id="(\w+)"[^>]*>(.*?)</tr>', part)
        for name, part in opened.items()
    }
    assert {name: [one for one, _ in found] for name, found in rows.items()} == {
        "toy.t": ["one", "two", "three"],
        "toy.q": ["far"],
        "toy.u": [],
    }
    one, two, three = (plain(row) for _, row in rows["toy.t"])
    said = "holds seeds +70: does not hold 7 t & <plots/toy/figures/a.svg> the paper says so; every"
    assert one.startswith(said)
    assert "every in [1, 2), set before the first run" in one
    assert "1.23 (1 to 2; n = 2)" in one
    null = "9 chance & <co>; beaten: difference -7.7 (-8 to -7) beaten in 1 of 2 cases"
    assert one.endswith(null)
    assert "4: 1, 5: 1.47" in one
    assert two.startswith("does not hold limit")
    assert "it is <so>" in two
    assert three.startswith("not run")
    assert "no <measure>" in three


def test_every_figure_is_one_picture_that_its_items_show(report):
    text = report()
    pictures = dict(
        re.findall(r"\.(p\d+) { background-image: url\(data:image/webp;base64,(.*?)\)", text)
    )
    shown = dict(re.findall(r'(?s)class="picture (p\d+)" role="img".*?<code>(.*?)</code>', text))
    assert sorted(shown.values()) == sorted(FIGURES[:4])
    for name, path in shown.items():
        with Image.open(io.BytesIO(b64decode(pictures[name]))) as drawn:
            assert drawn.size == (80, 40)
            assert drawn.convert("RGB").getpixel((40, 20)) == COLOURS[path]
    opened = {name: part for name, (_, part) in items_of(text).items()}
    assert re.findall(r"<code>(p[^<]*svg)</code>", opened["toy.t"]) == FIGURES[:2]
    assert re.findall(r"<code>(p[^<]*svg)</code>", opened["toy.q"]) == FIGURES[3:4]
    [others] = re.findall(r'(?s)<details class="others">(.*?)</details>', text)
    assert re.findall(r"<code>(p[^<]*svg)</code>", others) == [FIGURES[2]]


def test_a_figure_has_its_caption_and_a_published_run_its_origin(report):
    text = plain(report().partition("<main>")[2])
    assert "First & <last>. See <a>. Figure 2 of the paper." in text
    assert "Alone. plots/toy/figures/alone.svg" in text
    assert "long a <GPU>, 0.12 h, commit 0123456789 dvc 'x'" in text
    assert "Not drawn" not in text
    assert "70 abcdef0123 1 of 3: toy.t 1 of 4: one" in text


def test_a_drawing_that_has_not_changed_is_not_drawn_again(report, monkeypatch):
    before = report()
    drawn = []
    monkeypatch.setattr("stages.report.picture", lambda svg, where: drawn.append(where))
    assert report() == before
    assert drawn == []


def test_what_turned_since_the_last_commit_is_said(report, capsys, monkeypatch):
    before = {name: one | {"holds": True} for name, one in CLAIMS.items() if name != "one"}
    monkeypatch.setattr("stages.report.committed", lambda file: before)
    report()
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("the report is r.html: 3 items, 4 figures, 0.")
    assert said[1].startswith("turned: two: holds (1.2345) in the last commit, does not hold")
    assert said[2].startswith("turned: three: holds (None) in the last commit, not run")
    assert len(said) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"claims": {"one": {"family": "toy"}}}, "claims.json: wanted claims with .*, got 'one'"),
        ({"items": 3}, "items.json: wanted items with"),
        (
            {"claims": {**CLAIMS, "lost": claim("t", "plots/x.svg", holds=True)}},
            "lost: wanted one of the figures .*, got plots/x.svg",
        ),
    ],
)
def test_what_is_not_of_the_stage_of_claims_is_refused(report, changes, message):
    with pytest.raises(InputError, match=message):
        report(**changes)
