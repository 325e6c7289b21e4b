"""The site of `make docs` has every page, and shows it without a network. What builds it is the
extra `docs`.
"""

import os
import re
import sys

import pytest

from tests.pipeline.project import PYTHON, ROOT, run
from tools.site import PAGES, listed, on_page_content, packages


def test_every_page_of_the_documentation_is_on_the_site():
    pages = [
        path.relative_to(ROOT).as_posix()
        for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
    ]
    assert sorted(listed(PAGES)) == sorted(pages)


def test_what_builds_the_site_is_pinned():
    assert packages()
    assert all("==" in package for package in packages())


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


@pytest.mark.slow
def test_the_site_is_built_strictly_and_asks_for_nothing_outside(tmp_path):
    """A link that leads nowhere fails; addresses that a reader may follow are no requests."""
    pytest.importorskip("mkdocs")
    run(PYTHON, "-m", "tools.site", str(tmp_path), at=ROOT, PYTHONPATH=os.pathsep.join(sys.path))
    for name in ("index", "docs/gradual_rank", "docs/claims", "api/matrices/ranks"):
        page = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert re.findall(r"<h1", page), name
        assert re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="https?:', page) == [], name
    assert "<math" in (tmp_path / "docs" / "gradual_rank.html").read_text(encoding="utf-8")
