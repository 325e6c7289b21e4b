"""The site of `make docs` has every page, and shows it without a network. What builds it is the
extra `docs`.
"""

import os
import sys

import pytest

from tests.pipeline.browser import CHROMIUM, needs_browser
from tests.pipeline.project import PYTHON, ROOT, run, served
from tools.site import PAGES, listed, on_page_content

SHOWN = ("index.html", "docs/gradual_rank.html", "docs/claims.html", "api/matrices/ranks.html")


def test_every_page_of_the_documentation_is_on_the_site():
    pages = [
        path.relative_to(ROOT).as_posix()
        for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
    ]
    assert sorted(listed(PAGES)) == sorted(pages)


def test_a_formula_becomes_mathml_and_its_signs_are_kept():
    pytest.importorskip("latex2mathml")
    page = (
        '<p>a <span class="arithmatex">\\(a &lt; b_1\\)</span> c</p><div '
        'class="arithmatex">\\[x^2\\]</div>'
    )
    shown = on_page_content(page)
    assert "arithmatex" not in shown
    assert shown.count("<math") == 2
    assert "<msub><mi>b</mi><mn>1</mn></msub>" in shown
    assert 'display="block"' in shown.partition("</p>")[2]


def test_a_letter_with_an_index_becomes_mathml_except_in_code():
    pytest.importorskip("latex2mathml")
    shown = on_page_content("<p>W_K <code>W_K</code> many_machines</p>")
    assert shown.count("<math>") == 1
    assert "<code>W_K</code> many_machines" in shown


# What of a page is cut off at its right side, and what is printed with a raw underscore.
CUT = """[...document.querySelectorAll("pre code")]
    .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"""
RAW = """(() => {
    const walker = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT);
    const found = [];
    while (walker.nextNode()) {
        const e = walker.currentNode;
        if (!e.parentElement.closest("pre, code, math") && /(^|[^\\w])[A-Z]_[A-Z]/.test(e.data))
            found.push(e.data);
    }
    return found;
})()"""


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", [1440, 390], ids=["wide", "a phone"])
def test_a_browser_shows_the_pages_and_asks_for_nothing_outside(site, width):
    from playwright.sync_api import sync_playwright

    asked, said = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": width, "height": 900})
        view.on("request", lambda request: asked.append(request.url))
        view.on("console", lambda message: said.append(message.text))
        view.on("pageerror", lambda error: said.append(str(error)))
        for page in SHOWN:
            answer = view.goto(site + page)
            assert answer.ok, page
            assert view.evaluate("document.documentElement.scrollWidth") <= width, page
            assert (
                view.evaluate("[...document.images].filter(i => !i.naturalWidth).map(i => i.src)")
                == []
            ), page
            assert view.locator("h1").count() >= 1, page
            assert view.evaluate(CUT) == [], page
            assert view.evaluate(RAW) == [], page
        view.goto(site + "docs/gradual_rank.html")
        assert view.locator("math").count() >= 1
        browser.close()
    assert [url for url in asked if not url.startswith((site, "data:"))] == []
    assert said == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the site, built strictly: a link that leads nowhere fails."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    run(PYTHON, "-m", "tools.site", str(folder), at=ROOT, PYTHONPATH=os.pathsep.join(sys.path))
    with served(folder) as address:
        yield address
