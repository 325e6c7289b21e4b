"""Figures on a dark page: the one drawing says its colours for both.

A browser takes the second set where its reader has chosen a dark scheme; it prints the first.
"""

import re

DARK = b"prefers-color-scheme: dark"
COLOUR = re.compile(rb"\b(fill|stroke|stop-color): (#[0-9a-f]{6})\b")
END = re.compile(rb"</svg>\s*$")
PAGE = "#171923"  # a dark page
PAPER = 0.215  # its lightness
INK = 0.92  # the lightness of its text
LEAST = 0.5  # the lightness of whatever is no paper, at least: then it can be seen
LIGHT = 0.85  # from this lightness on a colour without a hue is paper, a grid or a shade
HUELESS = 0.04  # the chroma below which a colour has no hue
FROM_RGB = (  # Ottosson 2020, "A perceptual color space for image processing"
    ((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566),
     (0.0883024619, 0.2817188376, 0.6299787005)),
    ((0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099),
     (0.0259040371, 0.7827717662, -0.8086757660)),
)  # fmt: skip
TO_RGB = (
    ((1.0, 0.3963377774, 0.2158037573), (1.0, -0.1055613458, -0.0638541728),
     (1.0, -0.0894841775, -1.2914855480)),
    ((4.0767416621, -3.3077115913, 0.2309699292), (-1.2684380046, 2.6097574011, -0.3413193965),
     (-0.0041960863, -0.7034186147, 1.7076147010)),
)  # fmt: skip
Vector = tuple[float, float, float]


def for_dark(svg: bytes) -> bytes:
    """The drawing with a second colour for each of its colours; if it has them it stays as it is.

    Hues are kept, as captions name them. Pictures inside a drawing stay as they are.
    """
    if DARK in svg:
        return svg
    rules = [
        f'[style*="{name.decode()}: {colour.decode()}"]'
        f"{{{name.decode()}:{in_the_dark(colour.decode())}!important}}"
        for name, colour in dict.fromkeys(COLOUR.findall(svg))
    ]
    ink = f"svg{{fill:{in_the_dark('#000000')}}}"  # that of texts, which name none
    style = f"<style>@media ({DARK.decode()}){{{ink}{''.join(rules)}}}</style>"
    return END.sub(lambda end: style.encode() + b"\n" + end[0], svg)


def in_the_dark(colour: str) -> str:
    """A colour of the same hue for a dark page: paper is dark, and dark ink is light.

    COLOUR and what is returned are written as #rrggbb.
    """
    if colour == "#ffffff":
        return PAGE
    L, a, b = oklab(colour)
    if L > LIGHT and (a * a + b * b) ** 0.5 < HUELESS:
        L = PAPER + 0.8 * (1 - L)
    else:
        L = INK - (INK - LEAST) * L
    return written((L, a, b))


def oklab(colour: str) -> Vector:
    """The lightness from 0 to 1 of a colour #rrggbb, and its two coordinates of hue."""
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    light = tuple(s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4
                  for s in (red, green, blue))  # fmt: skip
    first, second = FROM_RGB
    return times(second, tuple(share ** (1 / 3) for share in times(first, light)))


def written(color: Vector) -> str:
    """A colour of `oklab` as #rrggbb; what a screen cannot show is cut off."""
    first, second = TO_RGB
    light = times(second, tuple(root**3 for root in times(first, color)))
    shown = [min(max(s, 0.0), 1.0) for s in light]
    shares = [12.92 * s if s <= 0.0031308 else 1.055 * s ** (1 / 2.4) - 0.055 for s in shown]
    return "#" + "".join(f"{round(255 * share):02x}" for share in shares)


def times(matrix: tuple[Vector, Vector, Vector], vector: tuple[float, ...]) -> Vector:
    """The product of a matrix and a vector of three numbers."""
    one, two, three = (
        sum(entry * x for entry, x in zip(row, vector, strict=True)) for row in matrix
    )
    return one, two, three
