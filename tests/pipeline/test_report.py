"""The report as a reader's browser shows it: all is on the page, and nothing comes from outside."""

import html
import io
import re
import shlex
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from lib.files.inputs import read_json
from lib.files.params import load_yaml
from lib.pages.boards import MARKS
from tests.pipeline.browser import (
    READABLE,
    colours_of_texts,
    contrast,
    luminance,
    needs_browser,
    opened,
)
from tests.pipeline.project import PYTHON, ROOT, run, stages
from tools.environment import PIN, plain

WIDTHS = {"wide": 1440, "a phone": 390}
ALONE = """
import runpy
import sys
from importlib.abc import MetaPathFinder

NEEDED = {needed}

class Refusal(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        own = top in ("lib", "stages") or top in sys.stdlib_module_names or top.startswith("_sys")
        if not own and top not in NEEDED:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refusal())
sys.path.insert(0, ".")
try:
    import pandas
except ModuleNotFoundError:
    print("no pandas", flush=True)
runpy.run_module("{module}", run_name="__main__", alter_sys=True)
"""
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
    run(*shlex.split(report.cmd.replace(f"={out.path}", f"={folder / out.path}")), at=ROOT)
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


def test_the_row_of_an_item_leads_to_each_of_its_claims_that_fails(text):
    """A claim fails here, or on seeds that set no bar; of another one the row says nothing."""
    rows = re.findall(r'(?s)<tr class="entry.*?</tr>', text)
    led = [name for row in rows for name in re.findall(r'<a href="#([^"]+)" class="bad">', row)]
    failing = [
        name
        for name, claim in committed("claims").items()
        if claim["holds"] is False
        or (claim["holds"] and False in [one["holds"] for one in claim.get("unseen", {}).values()])
    ]
    assert len(failing) > 10
    assert sorted(led) == sorted(failing)


OUTSIDE = re.compile(
    r"""(?:src|href)=["'](?!data:|#)|url\((?!#|"data:image/svg\+xml,")|@import|<script"""
)


def test_nothing_comes_from_outside(text):
    drawn = re.compile(r'url\("data:image/svg\+xml,([^"]*)"\)')
    drawings = [unquote(drawing) for drawing in drawn.findall(text)]
    assert len(drawings) == len(figures())
    assert OUTSIDE.findall(drawn.sub("", text)) == []
    assert [found for drawing in drawings for found in OUTSIDE.findall(drawing)] == []


def test_every_id_is_there_once_and_nothing_refers_to_one_that_is_missing(text):
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'href="#([^"]+)', text)) - set(ids) == set()


def test_the_report_needs_only_what_is_installed_for_it(page, text, tmp_path):
    """It is made in a Python in which no other package can be imported."""
    pinned = PIN.findall((ROOT / "requirements.report.txt").read_text(encoding="utf-8"))
    packages = {plain(name) for name, _ in pinned}
    owners = metadata.packages_distributions()
    needed = {top for top, of in owners.items() if packages & set(map(plain, of))}
    [report] = [stage for stage in stages() if stage.name == "report"]
    _, _, module, *given = shlex.split(report.cmd)
    made = [word.replace(f"={page.name}", f"={tmp_path / page.name}") for word in given]
    program = ALONE.format(needed=sorted(needed), module=module)
    assert "no pandas\n" in run(PYTHON, "-c", program, *made, at=ROOT)
    assert (tmp_path / page.name).read_text(encoding="utf-8") == text


def test_what_is_installed_for_the_report_and_the_site_is_as_in_the_whole_set_up():
    whole = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    for name in ("report", "pages"):
        text = (ROOT / f"requirements.{name}.txt").read_text(encoding="utf-8")
        blocks = re.findall(r"^\w(?:.*\\\n)*.*\n", text, re.MULTILINE)
        assert len(blocks) >= 10
        assert [block for block in blocks if block not in whole] == []


@pytest.mark.slow
@needs_browser
def test_a_board_fits_a_screen_with_nothing_cut_off_and_a_row_leads_to_its_item(page):
    items = committed("items")
    hidden = """all => all.filter(e => getComputedStyle(e).overflow !== "visible")
        .filter(e => e.scrollHeight > e.clientHeight).map(e => e.textContent)"""
    with opened(page, 1440) as view:
        assert view.eval_on_selector_all(".board td div", hidden) == []
        for board in view.locator(".board-of").all():
            assert board.bounding_box()["height"] <= 900
        for name in list(items)[::9]:
            view.evaluate("window.scrollTo(0, 0)")
            view.locator(f'.board a[href="#{name}"]').click()
            box = view.locator(f'[id="{name}"] .found').bounding_box()
            assert 0 <= box["y"] <= 900, name


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_filter_leaves_its_items_alone_and_a_link_shows_one_all_the_same(page, width):
    items = committed("items")
    failed = [name for name, item in items.items() if MARKS[item["answer"]] == "bad"]
    with opened(page, width) as view:
        shown = "all => all.filter(e => e.offsetParent).map(e => e.id)"
        assert view.eval_on_selector_all("section.item", shown) == list(items)
        view.locator("#show-bad").check()
        assert view.eval_on_selector_all("section.item", shown) == failed
        assert view.locator(".board tr.entry:visible").count() == len(failed)
        view.evaluate("name => location.hash = name", next(iter(items)))
        assert next(iter(items)) in view.eval_on_selector_all("section.item", shown)


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
    """The board stays a table on A4, and a page's dark colours are those of a screen alone."""
    with opened(page, 700, "dark") as view:
        view.emulate_media(media="print")
        cell = "e => getComputedStyle(e).display"
        assert view.locator(".board td").first.evaluate(cell) == "table-cell"
        ink = colours_of_texts(view)[0][0]
        printed = view.pdf(prefer_css_page_size=True)
    assert luminance(ink) < 0.1
    assert re.findall(rb"/MediaBox\s*\[0 0 59[45][.\d]* 84[12]", printed)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 5


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("scheme", "paper"), [("light", 255), ("dark", 25)])
def test_a_figure_has_the_paper_of_its_page_and_hues_of_its_own(page, scheme, paper):
    """Captions name its colours: on a dark page, too, blue is blue."""
    with opened(page, scheme=scheme) as view:
        first = view.locator("main .diagram .picture").first
        first.scroll_into_view_if_needed()
        seen = np.asarray(Image.open(io.BytesIO(first.screenshot())).convert("RGB")).astype(int)
    grey = seen.mean(axis=2)
    assert abs(np.median(grey) - paper) < 10
    assert np.abs(grey - paper).max() > 150, "what is drawn can be seen"
    red, green, blue = np.moveaxis(seen, 2, 0)
    assert ((blue > red + 60) & (blue > green + 30)).sum() > 500
    assert ((red > blue + 100) & (red > green + 30)).sum() > 500


@pytest.mark.slow
@needs_browser
def test_one_of_the_frames_is_shown_and_a_button_shows_another(page):
    with opened(page) as view:
        frames = view.locator(".frames:visible").first
        picture = frames.locator(".picture")
        frames.scroll_into_view_if_needed()
        seen = [picture.screenshot()]
        for button in frames.locator("input[type=radio]").all()[1:]:
            button.check()
            seen.append(picture.screenshot())
    assert len(seen) >= 5
    assert len(set(seen)) == len(seen)


@pytest.mark.slow
@needs_browser
def test_the_panel_of_the_number_stands_alone_until_a_click_shows_the_whole(page):
    """The picture has the panel's shape, and then the figure's, to a pixel or two."""

    def shape():
        box = picture.bounding_box()
        return box["width"] / box["height"]

    with opened(page) as view:
        figure = view.locator(".large .cut-out").first
        picture = figure.locator(".picture")
        style = picture.get_attribute("style")
        wanted = {
            name: float(width) / float(height)
            for name, width, height in re.findall(r"--([\w-]*ratio): (\d+) / (\d+)", style)
        }
        assert shape() == pytest.approx(wanted["part-ratio"], rel=0.02)
        figure.locator(".zoom").click()
        assert shape() == pytest.approx(wanted["ratio"], rel=0.02)


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
