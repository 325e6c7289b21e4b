"""No script that a figure or a text holds runs in a page of the project."""

import json
import re
from pathlib import Path

import pytest

from stages import report
from tests.pipeline.browser import needs_browser, opened
from tests.pipeline.project import ROOT, commit, git
from tests.stages.made import with_digest
from tools import compare

HOSTILE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9" onload="document.title = 'ran'">
<script>document.title = 'ran'; parent.document.title = 'ran'</script>
<a href="javascript:document.title = 'ran'"><circle r="{}" onclick="document.title = 'ran'"/></a></svg>"""
TEXT = (
    "</code><script>document.title = 'ran'</script><img src=x onerror=\"document.title = 'ran'\">"
)
FIGURES = Path("plots/any/figures")
CAPTIONS = dict.fromkeys(("title", "source", "why", "unsaid"), TEXT)
CAPTIONS |= {"figures": {"a": dict.fromkeys(("title", "caption", "of"), TEXT)}}
UNSEEN = {"seeds_from": TEXT, "commit": TEXT, "offsets": [TEXT]}
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">')


def reported(folder: Path) -> Path:
    """A report of a hostile figure and a claim of hostile texts."""
    (folder / FIGURES).mkdir(parents=True)
    (folder / FIGURES / "a.svg").write_text(HOSTILE.format(4))
    texts = dict.fromkeys(("statement", "kind", "command", "bar", "stood", "missing"), TEXT)
    drawn = {"family": "any", "figure": str(FIGURES / "a.svg")}
    claim = {**texts, **drawn, "item": "any.one", "holds": None, "n": 0}
    claim |= {"bar": f"{TEXT} in [0, 1]", "interval": "[0, 1]", "better": "near", "over": "every"}
    (folder / "claims.json").write_text(with_digest({"one": claim}))
    said = dict.fromkeys(("title", "says", "limits", "number", "null", "proof", "measured"), TEXT)
    item = {**said, **drawn, "answer": "not tested", "claims": ["one"]}
    (folder / "items.json").write_text(with_digest({"any.one": item}))
    (folder / "any").mkdir()
    (folder / "any" / "captions.yaml").write_text(json.dumps(CAPTIONS))
    template = ROOT / "stages" / "report.html"
    page = folder / "report.html"
    published = Path("published")
    (folder / published / "unseen").mkdir(parents=True)
    for name, said_there in (("claims", {}), ("items", {}), ("provenance", UNSEEN)):
        (folder / published / "unseen" / f"{name}.json").write_text(json.dumps(said_there))
    given = [Path("any/captions.yaml"), FIGURES]
    report.main(
        families=given,
        claims=Path("claims.json"),
        items=Path("items.json"),
        published=published,
        template=template,
        page=page,
    )
    return folder / "report.html"


def compared(folder: Path) -> Path:
    """Two commits with a hostile figure and a hostile param."""
    git("init", "--quiet", at=folder)
    for radius in (3, 4):
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
        (folder / FIGURES / "a.svg").write_text(HOSTILE.format(radius))
        (folder / "params.yaml").write_text(json.dumps({TEXT: f"{TEXT}{radius}"}))
        commit(folder, str(radius))
    compare.main("HEAD~1", "HEAD", folder / "compare.html", folder)
    return folder / "compare.html"


PAGES = [reported, compared]


@pytest.fixture(params=PAGES, ids=lambda make: make.__name__)
def page(request, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return request.param(tmp_path)


def test_a_figure_is_an_image_and_a_text_is_a_text(page):
    text = page.read_text(encoding="utf-8")
    [policy] = POLICY.findall(text)
    assert policy.startswith("default-src 'none'; ")
    assert "script-src" not in policy
    assert re.findall(r"<script|<svg|<img src=x|javascript:", text) == []
    shown = re.findall(r'(?:<img src="|image: url\("?)(data:[^,]+),', text)
    assert set(shown) in ({"data:image/webp;base64"}, {"data:image/svg+xml"})


@pytest.mark.slow
@needs_browser
def test_no_script_of_a_figure_runs_in_a_browser(page):
    before = re.findall("(?s)<title>(.*?)</title>", page.read_text(encoding="utf-8"))[0]
    with opened(page) as view:
        shown = "[...document.querySelectorAll('img, .picture')]"
        assert view.evaluate(f"{shown}.map(picture => picture.click()).length")
        assert view.title() == before
