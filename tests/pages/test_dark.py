"""A drawing on a dark page has other colours of the same hues, which can be seen there."""

import colorsys
import re

import pytest

from lib.pages import style
from lib.pages.dark import for_dark, in_the_dark

PAGE = "#171923"  # the dark page of stages/page.css
PALETTE = {
    name: value
    for name, value in vars(style).items()
    if isinstance(value, str) and re.fullmatch("#[0-9a-f]{6}", value) and name != "SHADE"
}
SVG = b"""<svg xmlns="http://www.w3.org/2000/svg"><path style="fill: #ffffff; stroke: #2b6cb0"/>
<path style="fill: none; stroke: #2b6cb0"/><text>a</text></svg>
"""


def shares(colour):
    return [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]


def luminance(colour):
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares(colour)]
    return sum(w * s for w, s in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def test_paper_is_the_dark_page_and_ink_can_be_read_on_it():
    assert in_the_dark("#ffffff") == PAGE
    assert contrast(in_the_dark("#000000"), PAGE) > 7
    assert luminance(PAGE) < luminance(in_the_dark("#e2e8f0")) < 0.05, "a grid stays in the back"


@pytest.mark.parametrize("colour", [*PALETTE.values(), "#440154", "#fde725"])
def test_a_colour_keeps_its_hue_and_can_be_seen(colour):
    """WCAG 2.2 asks of lines that mean something for a contrast of three (1.4.11)."""
    dark = in_the_dark(colour)
    hues = [colorsys.rgb_to_hls(*shares(one))[0] for one in (colour, dark)]
    turned = abs(hues[0] - hues[1])
    assert min(turned, 1 - turned) < 0.08
    assert contrast(dark, PAGE) > 3


def test_every_colour_has_one_rule_and_what_is_written_twice_is_written_once():
    twice = for_dark(for_dark(SVG))
    assert twice == for_dark(SVG)
    assert twice.startswith(SVG[: SVG.index(b"</svg>")]), "nothing else changes"
    [rules] = re.findall(rb"@media \(prefers-color-scheme: dark\)\{(.*)\}</style>", twice)
    found = re.findall(rb'\[style\*="(\w+: #\w+)"\]\{(\w+):(#\w+)!important\}', rules)
    assert found == [
        (b"fill: #ffffff", b"fill", PAGE.encode()),
        (b"stroke: #2b6cb0", b"stroke", in_the_dark("#2b6cb0").encode()),
    ]
