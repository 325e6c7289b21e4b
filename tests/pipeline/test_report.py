"""The report as a reader's browser shows it: everything is on the page, nothing comes from outside, links work."""

import base64
import html
import json
import re
import shlex
from pathlib import Path

import pytest
from browser import (
    READABLE,
    colours_of_texts,
    contrast,
    luminance,
    misdrawn,
    n_colours,
    needs_browser,
    opened,
    pictures,
)
from project import ROOT, run, stages

WIDTHS = {"wide": 1280, "a phone": 390}
FIGURE = re.compile(r'<figure id="([^"]+)"><img src="data:image/svg\+xml;base64,([^"]+)" alt="([^"]+)">')
SECTION = re.compile(r'(?s)<section class="figure">\s*<figure id="([^"]+)">(.*?)</section>')
ROW = re.compile(r'(?s)<tr id="([^"]+)">\s*<td>(.*?)<br>.*?<td data-label="verdict"><span class="([^"]+)">(.*?)</span>')


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """The report of the claims and figures that are in git."""
    [report] = [stage for stage in stages() if stage.name == "report"]
    folder = tmp_path_factory.mktemp("report")
    [out] = report.outs
    run(*shlex.split(report.cmd.replace(f" {out.path} ", f" {folder / out.path} ")), at=ROOT)
    return folder / out.path


@pytest.fixture(scope="module")
def text(page) -> str:
    return page.read_text(encoding="utf-8")


def figures() -> list[str]:
    """Every figure of the pipeline and of the published runs."""
    found = [path for folder in ("plots", "published") for path in (ROOT / folder).glob("**/figures/*.svg")]
    assert found
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def test_every_claim_stands_once_beside_its_figure_with_its_verdict(text):
    judged = json.loads((ROOT / "metrics" / "claims.json").read_text(encoding="utf-8"))
    rows = [
        (figure, name, html.unescape(statement), mark, state)
        for figure, section in SECTION.findall(text)
        for name, statement, mark, state in ROW.findall(section)
    ]
    beside = {name: claim for name, claim in judged.items() if claim["figure"] in figures()}
    assert sorted(rows) == sorted(
        (claim["figure"], name, claim["statement"], claim["state"].replace(" ", "-"), claim["state"])
        for name, claim in beside.items()
    )
    assert {judged[name]["state"] for name in judged.keys() - beside.keys()} <= {"not run"}
    listed = re.findall(r"<li>(.*?) <small>", text.partition('<h2 id="not-run">')[2])
    missing = [claim["statement"] for claim in judged.values() if claim["state"] == "not run"]
    assert sorted(map(html.unescape, listed)) == sorted(missing)


def test_every_figure_stands_once_as_its_file_draws_it(text):
    drawn = {path: base64.b64decode(svg) for path, svg, _ in FIGURE.findall(text)}
    assert len(FIGURE.findall(text)) == len(drawn)
    assert drawn == {path: (ROOT / path).read_bytes() for path in figures()}


def test_a_figure_is_described_by_what_is_claimed_of_it(text):
    judged = json.loads((ROOT / "metrics" / "claims.json").read_text(encoding="utf-8"))
    for path, _, said in FIGURE.findall(text):
        statements = [claim["statement"] for claim in judged.values() if claim["figure"] == path]
        assert html.unescape(said).split(": ", 1)[1].startswith(Path(path).stem.replace("-", " "))
        assert html.unescape(said).endswith(". ".join(statements))


def test_every_id_is_there_once_and_nothing_refers_to_one_that_is_missing(text):
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) - set(ids) == set()


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_all_of_it(page, width, scheme):
    with opened(page, width, scheme) as view:
        shown = view.eval_on_selector_all("figure:has(> img)", "all => all.map(e => e.id)")
        drawings = pictures(view, "svg, img")
        colours = dict(zip(shown, n_colours(view, "figure > img"), strict=True))
        across = view.evaluate("document.documentElement.scrollWidth")
        printed = view.pdf()
    assert sorted(shown) == figures()
    assert len(drawings) == len(shown)
    assert misdrawn(drawings, width) == []
    assert [path for path, n in colours.items() if n <= 10] == [], "a figure is blank"
    assert across <= width
    assert printed.startswith(b"%PDF")


@pytest.mark.slow
@needs_browser
def test_every_text_can_be_read_on_a_light_and_on_a_dark_page(page):
    colours = {}
    for scheme in ("light", "dark"):
        with opened(page, scheme=scheme) as view:
            colours[scheme] = colours_of_texts(view)
        assert len(colours[scheme]) > 1
        assert [pair for pair in colours[scheme] if contrast(*pair) < READABLE] == [], scheme
    (light_ink, light_paper), (dark_ink, dark_paper) = colours["light"][0], colours["dark"][0]
    assert luminance(light_ink) < luminance(light_paper)
    assert luminance(dark_ink) > luminance(dark_paper)
    assert contrast(light_paper, dark_paper) > READABLE
    assert contrast(light_ink, dark_ink) > READABLE
