"""The report as a reader's browser shows it: everything is on the page, nothing comes from outside,
links work.
"""

import base64
import html
import io
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lib.files.params import load_yaml
from lib.pages.html import picture
from tests.pipeline.browser import (
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
from tests.pipeline.project import ROOT, run, stages

SHOWN = """chosen => [...document.querySelectorAll(chosen)].filter(
    e => e.checkVisibility({contentVisibilityAuto: true})).map(e => e.id)"""
SQUARES = """async ([source, width, height]) => {
    const image = Object.assign(new Image(), {src: source});
    await image.decode();
    const context = Object.assign(document.createElement("canvas"), {width, height}).getContext("2d");
    context.drawImage(image, 0, 0, width, height);
    const data = context.getImageData(0, 0, width, height).data;
    const columns = Math.floor(width / 8), sums = new Array(columns * Math.floor(height / 8)).fill(0);
    for (let y = 0; y < Math.floor(height / 8) * 8; y++)
        for (let x = 0; x < columns * 8; x++)
            sums[Math.floor(y / 8) * columns + Math.floor(x / 8)] += data[4 * (y * width + x) + 1];
    return sums;
}"""
WIDTHS = {"wide": 1280, "a phone": 390}
FIGURE = re.compile(
    r'(?s)class="figure" id="([^"]+)">.*?<figure><img src="(data:image/webp;base64,[^"]+)" '
    r'width="(\d+)" '
    r'height="(\d+)" alt="([^"]+)"[^>]*><figcaption>(.*?)</figcaption>'
)
SECTION = re.compile(r'(?s)<(section|details) class="figure" id="([^"]+)">(.*?)\n</\1>')
ROW = re.compile(
    r'(?s)<tr id="([^"]+)" data-state="[\w-]+" data-kind="[\w-]+">\s*'
    r'<td>(.*?)<br>.*?<td data-label="verdict"><span class="([^"]+)">(.*?)</span>'
)


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
    """Every figure of the pipeline, and those of the published runs that a claim names."""
    drawn, kept = ((ROOT / folder).glob("**/figures/*.svg") for folder in ("plots", "published"))
    judged = json.loads((ROOT / "metrics" / "claims.json").read_text(encoding="utf-8")).values()
    named = {claim["figure"] for claim in judged}
    found = [path.relative_to(ROOT).as_posix() for path in (*drawn, *kept)]
    return sorted(path for path in found if path.startswith("plots/") or path in named)


def test_every_claim_stands_once_beside_its_figure_with_its_verdict(text):
    judged = json.loads((ROOT / "metrics" / "claims.json").read_text(encoding="utf-8"))
    rows = [
        (figure, name, html.unescape(statement), mark, state)
        for _, figure, section in SECTION.findall(text)
        for name, statement, mark, state in ROW.findall(section)
    ]
    beside = {name: claim for name, claim in judged.items() if claim["figure"] in figures()}
    assert sorted(rows) == sorted(
        (
            claim["figure"],
            name,
            claim["statement"],
            claim["state"].replace(" ", "-"),
            claim["state"],
        )
        for name, claim in beside.items()
    )
    assert {judged[name]["state"] for name in judged.keys() - beside.keys()} <= {"not run"}
    listed = re.findall(r"<li>(.*?) <small>", text.partition('<h2 id="not-run">')[2])
    missing = [claim["statement"] for claim in judged.values() if claim["state"] == "not run"]
    assert sorted(map(html.unescape, listed)) == sorted(missing)


def test_every_figure_stands_once_as_its_file_draws_it(text):
    """The picture is that of the file: see tests/pages/test_html.py for the picture of a
    drawing.
    """
    drawn = {path: (shown, int(w), int(h)) for path, shown, w, h, *_ in FIGURE.findall(text)}
    assert len(FIGURE.findall(text)) == len(drawn)
    assert sorted(drawn) == figures()
    for path in figures()[::15]:
        made = picture((ROOT / path).read_bytes(), path)
        assert drawn[path] == (made.address, made.width, made.height)


def test_every_figure_has_a_caption_and_each_is_of_one(text):
    said = [load_yaml(file) for file in ROOT.glob("stages/*/captions.yaml")]
    captions = {stem for paper in said for stem in paper["figures"]}
    assert {Path(path).stem for path in figures()} - captions == set()
    for path, *_, title, caption in FIGURE.findall(text):
        assert title
        assert len(html.unescape(caption).split()) >= 5, path


def test_the_page_is_light(text):
    assert len(text.encode()) <= 2.5e6
    assert len(re.findall(r"<\w", text)) <= 15_000
    assert re.findall(r'(?:src|href)="(?!data:|#)|url\((?!#)|@import|<script', text) == []


def test_every_id_is_there_once_and_nothing_refers_to_one_that_is_missing(text):
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) - set(ids) == set()


@pytest.mark.slow
@needs_browser
def test_every_picture_looks_as_a_browser_draws_the_file(page, text):
    """Drawn by Chromium, of which the pictures know nothing; the green of squares of eight pixels
    is compared.
    """
    shown = {path: (address, int(w), int(h)) for path, address, w, h, *_ in FIGURE.findall(text)}
    alike = {}
    with opened(page) as view:
        for path, (address, w, h) in list(shown.items())[::12]:
            file = (
                "data:image/svg+xml;base64," + base64.b64encode((ROOT / path).read_bytes()).decode()
            )
            ours, theirs = (
                np.array(view.evaluate(SQUARES, [source, w, h])) for source in (address, file)
            )
            alike[path] = float(np.corrcoef(ours, theirs)[0, 1])
    assert len(alike) >= 5
    assert {path: value for path, value in alike.items() if value < 0.98} == {}


@pytest.mark.slow
@needs_browser
def test_it_is_read_in_twenty_screens(page):
    with opened(page, 1440) as view:
        assert view.evaluate("document.documentElement.scrollHeight") <= 20 * 900
        assert view.evaluate("document.querySelectorAll('*').length") <= 15_000


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_contents_stay_while_one_reads(page, width):
    with opened(page, width) as view:
        view.evaluate("window.scrollTo(0, 5000)")
        box = view.locator("nav").bounding_box()
    assert 0 <= box["y"] <= 20
    assert box["height"] <= 900


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(
    ("state", "kind"), [("fails", "all"), ("all", "theorem"), ("holds", "control")]
)
def test_a_filter_shows_the_claims_that_it_names_and_their_figures_alone(page, state, kind):
    judged = json.loads((ROOT / "metrics" / "claims.json").read_text(encoding="utf-8"))
    wanted = {
        name: claim["figure"]
        for name, claim in judged.items()
        if state in ("all", claim["state"]) and kind in ("all", claim["kind"])
    }
    assert wanted
    with opened(page) as view:
        closed = set(view.evaluate(SHOWN, "tr[data-state]"))
        view.check(f"#state-{state}")
        view.check(f"#kind-{kind}")
        claims, drawn = (view.evaluate(SHOWN, chosen) for chosen in ("tr[data-state]", ".figure"))
    assert closed == set()
    assert sorted(claims) == sorted(wanted)
    assert set(drawn) == set(wanted.values())


@pytest.mark.slow
@needs_browser
def test_a_link_to_a_folded_claim_opens_it(page):
    judged = json.loads((ROOT / "metrics" / "claims.json").read_text(encoding="utf-8"))
    name = next(name for name, claim in judged.items() if claim["state"] == "fails")
    with opened(page) as view:
        view.evaluate("name => { location.hash = name }", name)
        assert view.evaluate(SHOWN, "tr[data-state]")
        assert view.locator(f"#{name}").bounding_box()["y"] < 900


@pytest.mark.slow
@needs_browser
def test_no_picture_is_a_white_panel_on_a_dark_page(page):
    """What a reader sees of the first figure: its corner is as dark as the page, and its lines are
    light.
    """
    with opened(page, scheme="dark") as view:
        first = view.locator("section.figure img").first
        first.scroll_into_view_if_needed()
        view.wait_for_function("image => image.complete", arg=first.element_handle())
        seen = np.asarray(Image.open(io.BytesIO(first.screenshot())).convert("L")).astype(int)
    assert seen[2, 2] < 60
    assert np.median(seen) < 60
    assert seen.max() > 180


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_all_of_it(page, width, scheme):
    with opened(page, width, scheme) as view:
        view.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
        shown = view.eval_on_selector_all(".figure:has(figure > img)", "all => all.map(e => e.id)")
        drawings = pictures(view, "svg, figure > img")
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
