"""The report as a reader's browser shows it: everything is on the page, nothing comes from outside, links work."""

import re
import shlex
from pathlib import Path

import pytest
from browser import needs_browser, opened
from project import ROOT, run, stages

WIDTHS = {"wide": 1280, "a phone": 390}


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """The report of the claims and figures that are in git."""
    [report] = [stage for stage in stages() if stage.name == "report"]
    folder = tmp_path_factory.mktemp("report")
    [out] = report.outs
    run(*shlex.split(report.cmd.replace(f" {out.path} ", f" {folder / out.path} ")), at=ROOT)
    return folder / out.path


def test_every_claim_and_every_figure_stands_on_the_page_once(page):
    text = page.read_text(encoding="utf-8")
    figures = [path for stage in stages() if stage.verb == "plot" for out in stage.outs for path in svgs(out.path)]
    assert figures
    for svg in figures:
        assert text.count(f'<figure id="{svg}">') == 1
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(ids)) == len(ids)


def svgs(folder: str) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / folder).glob("*.svg"))]


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_all_of_it(page, width, scheme):
    with opened(page, width, scheme) as view:
        boxes = view.eval_on_selector_all(
            "figure svg[role=img]",
            "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.right, b.height])",
        )
        broken = view.eval_on_selector_all(
            "a[href^='#']",
            "all => all.map(e => e.getAttribute('href').slice(1)).filter(id => !document.getElementById(id))",
        )
        unnamed = view.eval_on_selector_all("svg[role=img]", "all => all.filter(e => !e.ariaLabel).length")
        across = view.evaluate("document.documentElement.scrollWidth")
        printed = view.pdf()
    assert len(boxes) > 10
    assert [box for box in boxes if box[0] < 0 or box[1] > width or box[2] < 50] == []
    assert across <= width
    assert broken == []
    assert unnamed == 0
    assert printed.startswith(b"%PDF")
