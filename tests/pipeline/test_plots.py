"""The pages of `dvc plots show` and `dvc plots diff` as a browser shows them, with the template
that `make` sets up.
"""

import re
from pathlib import Path

import pytest

from tests.pipeline.browser import needs_browser, opened
from tests.pipeline.project import PYTHON, ROOT, dvc, run

INKED = """all => all.map(c => c.getContext("2d").getImageData(0, 0, c.width, c.height).data)
    .map(d => new Set(Array.from({length: d.length / 4}, (_, i) => d.slice(4 * i, 4 * i + 4).join())).size)"""


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """The template, made as the set-up makes it."""
    path = tmp_path_factory.mktemp("template") / "plots.html"
    run(PYTHON, "-m", "tools.plots", str(path), at=ROOT)
    return path


def test_the_template_asks_for_nothing_from_outside(template):
    text = template.read_text(encoding="utf-8")
    assert text.count("{plot_divs}") == 1
    assert "{scripts}" not in text, "there DVC would put the addresses of its scripts"
    outside_of_scripts = re.sub(r"(?s)<script>.*?</script>", "", text)
    assert re.findall(r"""<script|(?:src|href)="(?!data:)""", outside_of_scripts) == []
    assert "Content-Security-Policy\" content=\"default-src 'none'; " in outside_of_scripts


@pytest.mark.slow
@needs_browser
def test_a_browser_without_a_network_draws_all_plots(tiny_pipeline, template, tmp_path):
    page = tmp_path / "page"
    options = ("--out", str(page), "--html-template", str(template))
    dvc("plots", "diff", "HEAD~2", "HEAD", *options, at=tiny_pipeline.folder)
    outs = [out.path for stage in tiny_pipeline.stages for out in stage.outs]
    n_charts = sum(path.startswith("plots/") and path.endswith(".csv") for path in outs)
    drawn = "document.querySelectorAll('.vega-embed canvas').length"
    with opened(page / "index.html", beside="static") as view:
        view.wait_for_function(f"{drawn} == {n_charts}")
        colours = view.eval_on_selector_all(".vega-embed canvas", INKED)
        loaded = view.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert min(colours) > 10, "a chart is blank"
    assert loaded
    assert all(loaded)
