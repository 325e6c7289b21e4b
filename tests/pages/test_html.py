"""A page holds its figures as pictures that are small and look like the drawing."""

import base64
import io
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from lib.files.files import InputError
from lib.pages.html import COLOURS, COLUMN, picture
from lib.pages.html import drawing as sharp

DRAWING = """<svg xmlns="http://www.w3.org/2000/svg" width="{w}pt" height="{h}pt" viewBox="0 0 {w} {h}">
<rect width="30" height="60" fill="#2b6cb0"/><rect x="30" width="30" height="60" fill="#dd7b1a"/>{more}</svg>"""


HEAVY = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
 width="60pt" height="30pt" viewBox="0 0 60 30"><metadata>a date</metadata><!-- a text -->
 <style>*{stroke-linecap: butt}</style><g id="axes_1"><path id="m1" d="M 0 0 \nL 60 30.5 \nz" style="font: 'A'"/>
 <use xlink:href="#m1" clip-path="url(#c&amp;)"/></g><text>50 % "W" &lt; 1</text></svg>"""


def drawing(w: int = 120, h: int = 60, more: str = "") -> bytes:
    return DRAWING.format(w=w, h=h, more=more).encode()


def pixels(address: str) -> np.ndarray:
    kind, _, content = address.partition(",")
    assert kind == "data:image/webp;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))).convert("RGB"))


def test_a_point_is_four_thirds_of_a_pixel_and_colours_are_those_of_the_drawing():
    made = picture(drawing(), "a.svg")
    shown = pixels(made.address)
    assert (made.width, made.height) == (160, 80)
    assert shown.shape == (80, 160, 3)
    assert [tuple(shown[40, x]) for x in (20, 60, 120)] == [
        (0x2B, 0x6C, 0xB0),
        (0xDD, 0x7B, 0x1A),
        (255, 255, 255),
    ]


@pytest.mark.parametrize("width", [COLUMN, 400])
def test_no_picture_is_wider_than_its_column(width):
    made = picture(drawing(w=1200), "a.svg", width)
    assert (made.width, made.height) == (width, round(width * 60 / 1200))
    assert tuple(pixels(made.address)[2, 2]) == (0x2B, 0x6C, 0xB0)


def test_many_colours_become_few_that_are_near():
    """A ramp of 256 greys: with the colours that are left no pixel is off by more than a step
    between them.
    """
    ramp = "".join(
        f'<rect x="{k}" y="20" width="1" height="40" fill="rgb({k},{k},{k})"/>' for k in range(256)
    )
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="256" height="64">{ramp}</svg>'.encode()
    shown = pixels(picture(svg, "a.svg").address)
    assert len(np.unique(shown.reshape(-1, 3), axis=0)) <= COLOURS
    assert np.abs(shown[40, :, 0].astype(int) - np.arange(256)).max() <= 2 * 256 / COLOURS


def test_equal_drawings_give_equal_bytes_and_others_do_not():
    assert picture(drawing(), "a.svg") == picture(drawing(), "b.svg")
    assert picture(drawing(), "a.svg") != picture(
        drawing(more='<circle cx="90" cy="30" r="9"/>'), "a.svg"
    )


@pytest.mark.parametrize(
    "size", ['width="750000pt" height="9"', 'width="9" height="10417in"', 'viewBox="0,0 9 1e6"']
)
def test_a_drawing_too_large_for_the_renderer_is_refused_by_its_file(size):
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size}/>'.encode()
    with pytest.raises(
        InputError,
        match=r"^a\.svg: wanted an SVG drawing, .*: a side of 1000\d{3} pixels, more than",
    ):
        picture(svg, "a.svg")


@pytest.mark.parametrize("bad", [b"", b"no drawing", b"<svg", b"\xff\xfe", b"<html></html>"])
def test_what_is_no_drawing_is_refused_in_a_line(bad):
    with pytest.raises(InputError, match=r"^a\.svg: wanted an SVG drawing, got b.*$") as refused:
        picture(bad, "a.svg")
    assert "\n" not in str(refused.value)


def test_a_sharp_drawing_is_the_same_drawing_without_what_nobody_sees():
    made = sharp(HEAVY.encode(), "a.svg")
    kind, _, content = made.address.partition(",")
    assert (kind, made.width, made.height) == ("data:image/svg+xml", 80, 40)
    assert set('"<>&\\\n#') & set(content) == set()  # it stands in CSS and in HTML as it is
    svg = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(unquote(content))
    assert [one.tag.removeprefix(svg) for one in root.iter()] == [
        *("svg", "style", "g", "path", "use", "text", "style")
    ]
    path = root.find(f".//{svg}path")
    assert path.attrib == {"id": "m1", "d": "M0 0L60 30.5z", "style": "font: 'A'"}
    assert root.find(f".//{svg}g").attrib == {}
    assert root.find(f"{svg}text").text == '50 % "W" < 1'
    assert root.find(f"{svg}style").text == "*{stroke-linecap: butt}"
    assert sharp(HEAVY.encode(), "b.svg") == made


@pytest.mark.parametrize("bad", [b"", b"<svg", b"\xff\xfe", b"<html></html>"])
def test_what_is_no_drawing_is_no_sharp_one_either(bad):
    with pytest.raises(InputError, match=r"^a\.svg: wanted an SVG drawing, got b.*$"):
        sharp(bad, "a.svg")


def test_a_view_is_what_css_needs_to_show_a_part_alone():
    """The part has 40 by 30 points from (20, 10), of 120 by 60: the picture is three and two times
    as large, and a quarter and a third of what is left over stand before the part.
    """
    view = '<view id="number" viewBox="20 10 40 30"/>'
    made = sharp(drawing(more=view), "a.svg")
    assert "view%20id" not in made.address
    assert "<view" not in unquote(made.address)
    part = made.views["number"]
    assert (part.width, part.height) == (53, 40)
    assert (part.size, part.at) == ("300.00% 200.00%", "25.00% 33.33%")
    assert sharp(drawing(), "a.svg").views == {}


def test_a_view_without_a_box_is_refused_in_a_line():
    with pytest.raises(InputError, match=r"^a\.svg: wanted an SVG drawing"):
        sharp(drawing(more='<view id="number"/>'), "a.svg")


def test_a_sharp_drawing_has_colours_for_a_dark_page():
    made = sharp(drawing(more='<path style="stroke: #000000" d="M 0 0"/>'), "a.svg")
    said = unquote(made.address)
    assert "@media (prefers-color-scheme: dark){" in said
    assert '[style*="stroke: #000000"]{stroke:#e' in said
