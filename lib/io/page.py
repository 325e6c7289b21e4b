"""HTML pages that are one file: texts are escaped, figures are images in it, so that no script of either can run."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lib.io.files import atomic


def write_page(template: Path, path: Path, beside: Sequence[Path] = (), **values: Any) -> None:
    """Fill a template, which may include files of its folder and of those `beside` it, and write the page."""
    environment = Environment(
        loader=FileSystemLoader([template.parent, *beside]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template(template.name).render(**values)
    with atomic(path) as part:
        part.write_text(text, encoding="utf-8")


def image(svg: bytes) -> str:
    """The address of an image that holds the drawing itself (RFC 2397)."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
