"""One self-contained HTML page: the claims with their verdicts, and every figure."""

import html
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from lib.io.command import run
from lib.io.files import atomic
from lib.io.tables import read_json


def main(claims: Path, template: Path, page: Path, figures: list[Path]) -> None:
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawn = {str(svg): inline(svg) for folder in figures for svg in sorted(folder.glob("*.svg"))}
    text = environment.get_template(template.name).render(claims=read_json(claims), figures=drawn)
    with atomic(page) as part:
        part.write_text(text, encoding="utf-8")
    print(f"the report is {page}")


def inline(svg: Path) -> Markup:
    """The figure as an SVG element whose ids are its own, with its name for screen readers."""
    text = svg.read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    key = re.sub(r"\W", "-", str(svg.with_suffix("")))
    text = re.sub(r'\bid="([^"]+)"', rf'id="{key}-\1"', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\1{key}-", text)
    label = html.escape(f"{svg.parent.name}: {svg.stem.replace('-', ' ')}", quote=True)
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1))  # noqa: S704


if __name__ == "__main__":
    run(main)
