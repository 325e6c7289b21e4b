"""The report as a reader's browser shows it: all is on the page, and nothing comes from outside."""

import html
import io
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lib.files.inputs import read_json
from lib.files.params import load_yaml
from tests.pipeline.browser import (
    READABLE,
    colours_of_texts,
    contrast,
    luminance,
    needs_browser,
    opened,
)
from tests.pipeline.project import ROOT, run, stages

WIDTHS = {"wide": 1440, "a phone": 390}
SHOWN = re.compile(
    r'(?s)class="picture p\d+" role="img" aria-label="([^"]+)".*?<figcaption><b>.*?</b>(.*?)<small>'
    r".*?<code>(.*?)</code>"
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


def committed(name: str) -> dict[str, dict]:
    return read_json(ROOT / "metrics" / f"{name}.json", digest=True)


def figures() -> set[str]:
    """Every figure of the pipeline, and those of the published runs that a claim names."""
    drawn = {path.relative_to(ROOT).as_posix() for path in (ROOT / "plots").rglob("figures/*.svg")}
    named = {
        one["figure"]
        for one in (*committed("claims").values(), *committed("items").values())
        if "figure" in one
    }
    return drawn | named


def test_every_figure_is_shown_with_its_caption(text):
    shown = {path: html.unescape(caption) for _, caption, path in SHOWN.findall(text)}
    assert set(shown) == figures()
    assert [path for path, caption in shown.items() if len(caption.split()) < 5] == []
    said = [load_yaml(file) for file in ROOT.glob("stages/*/captions.yaml")]
    captions = {stem for paper in said for stem in paper["figures"]}
    assert {Path(path).stem for path in shown} - captions == set()


def test_nothing_comes_from_outside(text):
    assert re.findall(r'(?:src|href)="(?!data:|#)|url\((?!#|data:)|@import|<script', text) == []


def test_every_id_is_there_once_and_nothing_refers_to_one_that_is_missing(text):
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'href="#([^"]+)', text)) - set(ids) == set()


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_verdict_is_two_clicks_away_and_on_one_screen(page, width):
    """The family in the contents, then the item: its first claim is seen."""
    items = committed("items")
    tested = [name for name, item in items.items() if item["claims"]]
    with opened(page, width) as view:
        for name in tested[::7]:
            view.evaluate("window.scrollTo(0, 0)")
            link = view.locator(f'a[href="#{name}.claims"]')
            summary = view.locator("nav details", has=link).locator("summary")
            summary.click()
            view.locator("nav").locator(link).click()
            box = view.locator(f"#{items[name]['claims'][0]}").bounding_box()
            assert 0 <= box["y"] <= 900, name
            summary.click()


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_all_of_it(page, width, scheme):
    with opened(page, width, scheme) as view:
        view.evaluate("document.querySelectorAll('main details').forEach(e => e.open = true)")
        boxes = view.eval_on_selector_all(
            "main .zoom .picture", "all => all.map(e => [e.clientWidth, e.clientHeight])"
        )
        across = view.evaluate("document.documentElement.scrollWidth")
    assert len(boxes) >= len(figures())
    assert min(min(box) for box in boxes) > 50
    assert across <= width


@pytest.mark.slow
@needs_browser
def test_a_click_shows_a_figure_at_full_size_and_another_hides_it(page):
    with opened(page, 390) as view:
        view.evaluate("document.querySelectorAll('main details').forEach(e => e.open = true)")
        figure = view.locator("main .zoom").first
        picture = figure.locator(".picture")
        small = picture.bounding_box()["width"]
        natural = float(re.findall(r"--wide: (\d+)px", picture.get_attribute("style"))[0])
        figure.click()
        assert picture.bounding_box()["width"] >= natural > small
        figure.click()
        assert picture.bounding_box()["width"] == small


@pytest.mark.slow
@needs_browser
def test_it_can_be_printed(page):
    with opened(page) as view:
        printed = view.pdf()
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 5


@pytest.mark.slow
@needs_browser
def test_a_figure_is_never_inverted(page):
    """Captions name its colours: on a dark page, too, it is drawn on white paper."""
    with opened(page, scheme="dark") as view:
        view.evaluate("document.querySelectorAll('main details').forEach(e => e.open = true)")
        first = view.locator("main .zoom .picture").first
        first.scroll_into_view_if_needed()
        seen = np.asarray(Image.open(io.BytesIO(first.screenshot())).convert("L")).astype(int)
    assert np.median(seen) > 240
    assert seen.min() < 120


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
