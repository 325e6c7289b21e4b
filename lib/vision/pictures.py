"""Image files decoded, and cropped to the square that a model sees."""

import io
import warnings

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

# Colours of more than eight bits: Pillow would cut them off, not scale them.
DEEP = ("I", "F")

Pixels = UInt8[np.ndarray, "height width 3"]


def decoded(data: bytes, at_least: tuple[int, int] | None = None) -> Image.Image:
    """The picture in a file's bytes, in red, green and blue, upright as its camera says.

    A JPEG may be decoded at a half, a quarter or an eighth of its size, where both sides stay
    `at_least` so long: that saves most of the work. Raises `ValueError` where the bytes are no
    whole picture, one of more than eight bits a colour, or one too large.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as file:
                if file.mode.startswith(DEEP):
                    raise ValueError(f"more than eight bits a colour (mode {file.mode})")
                if at_least is not None:
                    file.draft("RGB", at_least)
                file.load()
                upright = ImageOps.exif_transpose(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of transparent palettes, whose colours stay
            return upright.convert("RGB")
    except (
        OSError,
        SyntaxError,
        ValueError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise ValueError(f"wanted a whole picture, got: {error}") from error


def centre_square(picture: Image.Image, size: int, share: float = 1.0) -> Pixels:
    """The middle of a picture, resized to `size` pixels a side (bilinear, antialiased).

    A square of `share` of the shorter side: 7/8 is the usual crop of 224 pixels of a shorter side
    of 256. A picture that has this size already stays as it is.
    """
    bleed = (1 - share) / 2
    square = ImageOps.fit(picture, (size, size), Image.Resampling.BILINEAR, bleed=bleed)
    return np.asarray(square)
