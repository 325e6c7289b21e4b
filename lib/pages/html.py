"""HTML pages that are one file and run no script: texts are escaped, figures are drawings or
pictures.
"""

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lib.files.files import InputError, atomic
from lib.pages.dark import for_dark
from lib.pages.maths import typeset

if TYPE_CHECKING:
    from PIL import Image

COLUMN = 1140  # the width of a page's column, in CSS pixels: a figure is never shown wider
# of a picture: a drawing looks the same in fewer bytes, and no tint takes another one's place
COLOURS = 32
# CSS pixels on a side: of a larger drawing, the renderer ends the whole process for want of memory
MOST = 10_000
PIXELS = {
    None: 1.0,
    "px": 1.0,
    "pt": 96 / 72,
    "pc": 16.0,
    "in": 96.0,
    "cm": 96 / 2.54,
    "mm": 96 / 25.4,
}
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
PLAIN = " !$'()*+,-./:;=?@[]^_`{|}~"  # within the quotes of CSS's url("...")
LENGTH = re.compile(r"([0-9.]+(?:[eE][+]?[0-9]+)?)(px|pt|pc|in|cm|mm)?")


@dataclass(frozen=True)
class View:
    """A part of a picture: its size in CSS pixels, and what CSS needs to show it alone."""

    width: int
    height: int
    size: str  # of the whole picture, as background-size
    at: str  # as background-position


@dataclass(frozen=True)
class Picture:
    """An image that a page holds itself: its address (RFC 2397), and its size in CSS pixels.

    Some parts have a name: `number` is the panel that shows the figure's number; others are frames.
    """

    address: str
    width: int
    height: int
    views: dict[str, View] = field(default_factory=dict)


def write_page(template: Path, path: Path, beside: Sequence[Path] = (), **values: Any) -> None:
    """Fill a template and write the page; it may include files of its folder and those `beside`."""
    environment = Environment(
        loader=FileSystemLoader([template.parent, *beside]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["typeset"] = typeset
    text = environment.get_template(template.name).render(**values)
    with atomic(path) as part:
        part.write_text(text, encoding="utf-8")


def drawing(svg: bytes, where: str) -> Picture:
    """The drawing itself, sharp at every size, in fewer bytes: without what nobody sees.

    It has colours for light and for dark pages. Equal drawings give equal bytes.

    Raises:
        InputError: It is no SVG drawing, or says no size; says `where` it stands.
    """
    try:
        root = ElementTree.fromstring(for_dark(svg))  # noqa: S314 (figures of the repository)
        if root.tag != f"{{{SVG}}}svg":
            raise ValueError(f"the element {root.tag}")
        width, height = _sides(svg)
        views = _views(root)
    except (ElementTree.ParseError, ValueError) as error:
        raise InputError(f"{where}: wanted an SVG drawing, got {svg[:60]!r}: {error}") from error
    _without_what_nobody_sees(root)
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    text = ElementTree.tostring(root, encoding="unicode").replace("'", "&apos;")
    text = re.sub(r"<[^>]*>", lambda tag: tag[0].replace('"', "'"), text)  # three bytes to one
    address = "data:image/svg+xml," + quote(text, safe=PLAIN)
    return Picture(address, round(width), round(height), views)


def _views(root: ElementTree.Element) -> dict[str, View]:
    """The views of a drawing by name, which are taken out of it: CSS shows them."""
    found = {}
    for one in root.findall(f"{{{SVG}}}view"):
        root.remove(one)
        left, top, wide, high = _box(root)
        x, y, width, height = _box(one)
        across = 0.0 if width >= wide else (x - left) / (wide - width)
        down = 0.0 if height >= high else (y - top) / (high - height)
        found[one.get("id", "")] = View(
            width=round(width * PIXELS["pt"]),
            height=round(height * PIXELS["pt"]),
            size=f"{100 * wide / width:.2f}% {100 * high / height:.2f}%",
            at=f"{100 * across:.2f}% {100 * down:.2f}%",
        )
    return found


def _box(element: ElementTree.Element) -> list[float]:
    """The place and the sides of a view box; four numbers, or a ValueError where it is used."""
    return [float(side) for side in element.get("viewBox", "").replace(",", " ").split()]


def _without_what_nobody_sees(root: ElementTree.Element) -> None:
    """Take metadata, names to which nothing refers, and empty room out of a drawing, and with them
    scripts and links to other places, which a browser does not follow in a picture.
    """
    elements = list(root.iter())
    texts = [text for one in elements for text in (*one.attrib.values(), one.text or "")]
    named = {name for text in texts for name in re.findall(r"#([\w.-]+)", text)}
    for one in elements:
        for hidden in ("metadata", "script"):
            for inside in one.findall(f"{{{SVG}}}{hidden}"):
                one.remove(inside)
        for key, value in list(one.attrib.items()):
            leads_out = key.endswith("href") and not value.startswith(("#", "data:image/"))
            if key.startswith("on") or leads_out:
                one.attrib.pop(key)
        if one.get("id") not in named:
            one.attrib.pop("id", None)
        if one.tag not in (f"{{{SVG}}}text", f"{{{SVG}}}tspan"):
            one.text = (one.text or "").strip()
        one.tail = (one.tail or "").strip() if one.tag != f"{{{SVG}}}tspan" else one.tail
        if "d" in one.attrib:
            one.set("d", re.sub(r"\s*([MLCQZz])\s*", r"\1", one.attrib["d"]))


def picture(svg: bytes, where: str, width: int = COLUMN) -> Picture:
    """The drawing as lossless WebP of few colours, at most `width` CSS pixels wide.

    Pixels in place of paths: a page of eighty figures has a sixth of the bytes, and a browser shows
    it at once. Equal drawings give equal bytes.

    Raises:
        InputError: It is no SVG drawing, or one too large to be drawn; says `where` it stands.
    """
    try:
        largest = max(_sides(svg), default=0)
        if largest > MOST:
            raise ValueError(f"a side of {largest:.0f} pixels, more than {MOST}")
        drawn = _on_paper(svg, 1.0)
        if drawn.width > width:
            drawn = _on_paper(svg, width / drawn.width)
    except (ValueError, RuntimeError) as error:
        said = str(error).partition("\n")[0]
        raise InputError(f"{where}: wanted an SVG drawing, got {svg[:60]!r}: {said}") from error
    from PIL import Image

    few = drawn.quantize(
        COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE
    ).convert("RGB")
    file = io.BytesIO()
    few.save(file, format="WEBP", lossless=True, quality=100, method=4)
    address = "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
    return Picture(address, few.width, few.height)


def _sides(svg: bytes) -> list[float]:
    """The width and the height that a drawing gives itself, in CSS pixels."""
    tag = re.search(r"<svg\b[^>]*", svg.decode())
    said = dict(re.findall(r"""([\w:-]+)\s*=\s*["']([^"']*)""", tag[0] if tag else ""))
    given = [LENGTH.fullmatch(said.get(side, "")) for side in ("width", "height")]
    if not all(given):  # a share of the page, or nothing: then it is drawn as large as its box
        given = [
            LENGTH.fullmatch(side) for side in said.get("viewBox", "").replace(",", " ").split()[2:]
        ]
    return [float(one[1]) * PIXELS[one[2]] for one in given if one]


def _on_paper(svg: bytes, scale: float) -> "Image.Image":
    """The drawing on white, `scale` pixels for each CSS pixel."""
    import vl_convert  # holds a renderer of SVG; takes a second to load, and pages alone need it
    from PIL import Image

    with Image.open(io.BytesIO(vl_convert.svg_to_png(svg.decode(), scale=scale))) as drawn:
        paper = Image.new("RGB", drawn.size, "white")
        paper.paste(drawn, mask=drawn.getchannel("A") if "A" in drawn.getbands() else None)
    return paper
