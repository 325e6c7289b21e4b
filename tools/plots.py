"""Make the page of `dvc plots show` and `dvc plots diff` with all scripts in it.

Set-up runs this, so that the page needs no network.

DVC's own page loads Vega, Vega-Lite and Vega-Embed from the network. vl-convert-python carries the
same scripts; up to its version 1.7 they are those of Vega 5, for which DVC's templates are written.
"""

from pathlib import Path

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lib.files.files import atomic
from lib.work.command import run


def main(template: Path) -> None:
    """Write DVC's `plots.html_template` to TEMPLATE."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version="5.21")
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined
    )
    text = environment.get_template("plots.html").render(
        vega=bundle.replace("</script", "<\\/script")
    )
    with atomic(template) as part:
        part.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    run(main)
