"""The report holds every item, claim and figure that it is given, each once and in its place."""

import html
import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from lib.files.files import InputError
from lib.pages.boards import in_short
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
NUMBERS = {"value": 1.2345, "interval_95": [None, None], "min": 1.0, "max": 1.9, "n": 2}


def claim(item, figure, *, holds, **others):
    """A verdict as the stage of claims writes it."""
    made = {
        "family": "toy",
        "item": item,
        "statement": f"{item} & <{figure}>",
        "kind": "paper",
        "stood": "before",
        "bar": "every in [1, 2)",
        "interval": "[1, 2)",
        "over": "every",
        "better": "less",
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
        "number": "2",
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
CLAIMS["one"] |= {"unseen": {"70": {"holds": False, "value": 7.0}}, "fragile": True}
CLAIMS["one"] |= {"repeated": True}
RUN = {"one": {"holds": False, "value": 1.5, "min": 1.0, "max": 7.0, "n": 2}}
TURNED = {"items": ["toy.t"], "claims": ["one"]}
UNSEEN = [{"seeds_from": 70, "commit": "abcdef0123456", "turned": TURNED}]
UNSEEN[0]["judged"] = {"items": 3, "claims": 4}


@pytest.fixture
def report(stage, tmp_path):
    """Makes the page of these claims, some of them changed; gives its text."""

    def make(claims=CLAIMS, items=ITEMS, drawn="plots/toy/figures"):
        for path in FIGURES:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(DRAWING.format(COLOURS[path]))
        (tmp_path / "published" / "long" / "provenance.json").write_text(json.dumps(PROVENANCE))
        (tmp_path / "toy").mkdir(exist_ok=True)
        (tmp_path / "toy" / "captions.yaml").write_text(yaml.safe_dump(SAID, sort_keys=False))
        (tmp_path / "claims.json").write_text(with_digest(claims))
        (tmp_path / "items.json").write_text(with_digest(items))
        root = Path(__file__).parents[2]
        given = [Path("toy/captions.yaml"), Path(drawn)]
        (tmp_path / "published/unseen.json").write_text(json.dumps(UNSEEN))
        (tmp_path / "published/unseen/70").mkdir(parents=True, exist_ok=True)
        (tmp_path / "published/unseen/70/claims.json").write_text(json.dumps(RUN))
        template = root / "stages" / "report.html"
        stage(
            "report",
            {},
            families=given,
            claims=Path("claims.json"),
            items=Path("items.json"),
            published=Path("published"),
            template=template,
            page=Path("r.html"),
        )
        return (tmp_path / "r.html").read_text()

    return make


def plain(text):
    """The words of a piece of HTML."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def items_of(text):
    """Each item of the page by its name: its section."""
    found = re.findall(r'(?s)<section class="item entry[^"]*" id="([^"]+)">(.*?)</section>', text)
    return dict(found)


def test_every_item_says_its_answer_what_was_found_and_its_marks_in_the_order_of_reading(report):
    found = {name: plain(section) for name, section in items_of(report()).items()}
    said = ["A theorem & <more> #", "The paper says: It is <so>.", "reproduced in part fragile"]
    said += ["The first & <claim>.", "the bar, every in [1, 2); a value, their median; the null, "]
    said.insert(4, "Limits. Only <here>.")
    said += ["First & <last>. See <a>. Figure 2 of the paper.", "Size: d < 8."]
    said += [
        "Unseen seeds: fragile: the answer is not reproduced on seeds +70 (bar: every value less "
    ]
    said += ["than 2; here: median 1.23, worst 1.9; on seeds +70: median 1.5, worst 7)."]
    said += ["Bar: ours, set before the first run.", "t & <plots/toy/figures/a.svg> #"]
    said += ["Scope. So <far>.", "Second. See b.", "The command that makes it dvc repro toy_plot"]
    places = [found["toy.t"].find(words) for words in said]
    assert -1 not in places, said[places.index(-1)]
    assert places == sorted(places)
    assert found["toy.q"].startswith("A question # We ask: Is it? yes")
    assert "Unseen seeds: not repeated: a published run." in found["toy.q"]
    assert found["toy.u"] == "Untested # The paper says: So. not tested"


def boards_of(text):
    """The rows of the boards by the item to which each leads: its kinds, and its words."""
    rows = re.findall(r'(?s)<tr class="entry([^"]*)">(.*?)</tr>', text)
    return {
        re.findall(r'href="#([^"]+)"', row)[0]: (kinds.split(), plain(row)) for kinds, row in rows
    }


def test_a_board_has_every_item_with_its_number_its_null_and_its_marks(report):
    text = report()
    boards = boards_of(text)
    asked = [name for key in ("says", "asks") for name, item in ITEMS.items() if key in item]
    assert list(boards) == asked, "the paper's items, and then ours"
    assert boards["toy.t"][1] == (
        "reproduced in part fragile A theorem & <more> The first & <claim>. Null , chance & <co>: "
        "9 beside 1.23. fails on seeds +70 : median 1.5, worst 7. More that fails: 1 . "
        "smaller turned before"
    )
    further = re.findall(r'<a href="#([^"]+)" class="bad"><span title="([^"]+)">1<', text)
    assert [(claim, html.unescape(words)) for claim, words in further] == [
        ("two", "fails: t & <plots/toy/figures/b.svg> median 1.23, worst 1.9")
    ]
    assert boards["toy.q"][1] == "yes A question – not repeated"
    assert boards["toy.u"][1] == "not tested Untested"


def test_the_filters_show_what_failed_what_is_fragile_the_papers_size_and_ours(report):
    items = ITEMS | {"toy.n": {**ITEMS["toy.q"], "answer": "no", "size": "the paper's, and ours"}}
    text = report(items=items)
    kinds = {name: kinds for name, (kinds, _) in boards_of(text).items()}
    assert kinds == {
        "toy.t": ["is-all", "is-fragile"],
        "toy.q": ["is-all", "is-ours"],
        "toy.u": ["is-all"],
        "toy.n": ["is-all", "is-bad", "is-full", "is-ours"],
    }
    shown = re.findall(r'id="show-(\w+)"[^>]*> ([^<]+) <small>(\d+)', html.unescape(text))
    assert shown == [
        ("all", "all", "4"),
        ("bad", "failed", "1"),
        ("fragile", "fragile", "1"),
        ("full", "the paper's size", "1"),
        ("ours", "ours", "2"),
    ]
    for kind, *_ in shown[1:]:
        assert f"body:has(#show-{kind}:checked) :is(.entry:not(.is-{kind}" in text


def test_the_sentence_of_the_board_is_that_of_what_was_asked():
    assert in_short(
        "We did this. It is 2 (1 to 3); at most 4 was asked of every seed here. So."
    ) == ("It is 2 (1 to 3); at most 4 was asked of every seed here.")
    assert in_short("We did. It is 2 (1 to 3). At most 4 was asked. So.") == (
        "It is 2 (1 to 3). At most 4 was asked."
    )
    assert in_short("It is 2. It is 3.") == "It is 2."
    assert in_short("It is 2, where 4 was asked; a null is 1. So.") == "It is 2, where 4 was asked."


def test_every_claim_stands_once_in_its_item_with_its_verdict(report):
    opened = items_of(report())
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
    said = "holds seeds +70: does not hold , median 1.5, worst 7 t & <plots/toy/figures/a.svg> #"
    assert one.startswith(said)
    bar = "claim: the paper's; bar: every value less than 2; threshold: ours, set before the first "
    assert bar in one
    assert "median 1.23 (1 to 1.9; n = 2)" in one
    null = "9 chance & <co>; beaten: difference -7.7 (-8 to -7) beaten in 1 of 2 cases"
    assert one.endswith(null)
    assert "4: 1, 5: 1.47" in plain(opened["toy.t"])
    assert two.startswith("does not hold limit")
    assert "it is <so>" in two
    assert three.startswith("not run")
    assert "no <measure>" in three


def test_every_figure_is_one_sharp_drawing_that_its_items_show(report):
    text = report()
    drawings = dict(
        re.findall(r'\.(p\d+) { background-image: url\("data:image/svg\+xml,(.*?)"\)', text)
    )
    shown = dict(re.findall(r'(?s)class="picture (p\d+)" role="img".*?<code>(.*?)</code>', text))
    assert sorted(shown.values()) == sorted(FIGURES[:4])
    for name, path in shown.items():
        drawing = unquote(drawings[name])
        assert f"rgb{COLOURS[path]}" in drawing
        assert drawing.startswith("<svg ")
    opened = items_of(text)
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
    assert "70 abcdef0123 1 of 3: A theorem & <more> 1 of 4: one" in text


def test_equal_results_give_an_equal_page(report):
    assert report() == report()


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


def test_figures_of_no_family_are_refused(report):
    with pytest.raises(InputError, match=r"plots/toys: wanted figures .* families \['toy'\]"):
        report(drawn="plots/toys")


VIEWS = '<view id="{}" viewBox="0 {} 60 10"/>'


def test_frames_have_a_button_each_and_a_panel_of_the_number_is_cut_out(
    report, tmp_path, monkeypatch
):
    """The figure's frames stand behind it in every item that has it, and a diagram above all."""
    more = {
        "plots/toy/figures/a-frames.svg": VIEWS.format("1e-1", 0) + VIEWS.format("1e-2", 20),
        "plots/toy/figures/diagram.svg": "",
    }
    number = DRAWING.replace("</svg>", VIEWS.format("number", 10) + "</svg>")
    for path, views in more.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        drawn = DRAWING.format((1, 2, 3)).replace("</svg>", views + "</svg>")
        (tmp_path / path).write_text(drawn)
    monkeypatch.setitem(SAID["figures"], "a-frames", SAID["figures"]["b"] | {"frames": "a scale"})
    monkeypatch.setattr("tests.stages.test_report.DRAWING", number)
    text = report()
    item = items_of(text)["toy.t"]
    [large] = re.findall(r'(?s)<div class="large">(.*?)</figure>', item)
    assert 'class="shown cut-out"' in large
    assert "--part-ratio: 80 / 13; --part-size: 100.00% 300.00%; --part-at: 0.00% 50.00%" in large
    assert 'aria-label="First &amp; &lt;last&gt;. See &lt;a&gt;."' in large
    [frames] = re.findall(
        r'(?s)<figure class="shown cut-out frames of-(p\d+)">(.*?)</fieldset>', item
    )
    name, buttons = frames
    assert plain(buttons) == "a scale 1e-1 1e-2"
    assert buttons.count("checked") == 1
    chosen = re.findall(
        rf"\.of-{name}:has\(fieldset label:nth-of-type\((\d)\).*?--part-at: (.*?) !", text
    )
    assert chosen == [("1", "0.00% 0.00%"), ("2", "0.00% 100.00%")]
    above, _, _ = text.partition('<section class="item')
    assert above.count("plots/toy/figures/diagram.svg") == 1
    assert text.count("<code>plots/toy/figures/diagram.svg</code>") == 1
