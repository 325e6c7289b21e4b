"""Image files decoded, and cut to the square that a model sees."""

import io
from collections.abc import Callable
from struct import error as struct_error

import numpy as np
from jaxtyping import Float32, Int64, UInt8
from PIL import Image, ImageOps, PpmImagePlugin, TiffImagePlugin

from lib.files.files import InputError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
DEEP = ("I", "F")  # modes of Pillow with more than eight bits a colour
ORIENTATION = 0x0112  # the tag by which a camera says how it was held
SIDEWAYS = (5, 6, 7, 8)
PNG_BIT_DEPTH = 24  # the byte of a PNG that has the bits of a colour
BITS_PER_SAMPLE = 258  # the tag of a TIFF that has them

Box = tuple[float, float, float, float]  # left, top, right, bottom
Pixels = UInt8[np.ndarray, "size size 3"]

BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    IndexError,
    struct_error,
    Image.DecompressionBombError,
)


def decoded(data: bytes, size: int, choose: Callable[[int, int], Box]) -> Image.Image:
    """What stands in a box of an encoded image, in RGB and `size` × `size` pixels.

    `choose(width, height)` gives the box in the image as it is upright. It is resized bilinearly,
    with antialiasing; a JPEG whose box is at least twice as large as wanted is decoded at a half, a
    quarter or an eighth of its size. Raises `InputError` where the data are no whole image, or one
    of more than eight bits a colour.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if _is_deep(image, data):
                raise ValueError(f"more than eight bits a colour (mode {image.mode})")
            if image.format == "TIFF":
                image.load()  # Pillow turns a TIFF upright itself, and takes the tag away
            held = image.getexif().get(ORIENTATION)
            width, height = reversed(image.size) if held in SIDEWAYS else image.size
            box = choose(width, height)
            larger = int(min(box[2] - box[0], box[3] - box[1]) / size)
            scale = _drafted(image, larger)
            image.load()
            if held is not None:
                ImageOps.exif_transpose(image, in_place=True)
            left, top, right, bottom = (side / scale for side in box)
            box = (left, top, right, bottom)
            return _rgb(image).resize((size, size), Image.Resampling.BILINEAR, box)
    except BROKEN as error:
        raise InputError(f"wanted a whole image, got: {error}") from error


def _is_deep(image: Image.Image, data: bytes) -> bool:
    """Whether an opened image has more than eight bits a colour.

    Pillow would cut them off or scale them without a word, and the mode shows only some of them:
    colours of 16 bits are opened as RGB.
    """
    if image.mode.startswith(DEEP):
        return True
    if image.format == "PNG":
        return data[PNG_BIT_DEPTH] > 8
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return max(image.tag_v2.get(BITS_PER_SAMPLE, (1,))) > 8
    if isinstance(image, PpmImagePlugin.PpmImageFile):
        _, _, _, how = image.tile[0]
        return isinstance(how, tuple) and how[1] > 255  # the largest value of a colour
    return False


def _drafted(image: Image.Image, larger: int) -> float:
    """Have an image decoded at a part of its size, and return how many times smaller it comes."""
    width, height = image.size
    drafted = image.draft(None, (width // larger, height // larger)) if larger > 1 else None
    if drafted is None:
        return 1.0
    _, (_, _, right, _) = drafted  # where the whole image ends now, which need be no pixel's end
    return width / right


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        return image
    if image.mode == "P":  # its transparency, if any, is said in a way that RGB would warn of
        image = image.convert("RGBA")
    return image.convert("RGB")


def centre_square(data: bytes, size: int, centre: float) -> Pixels:
    """The middle of an encoded image: a square of the share `centre` of its shorter side.

    At `centre` 1 an image of `size` × `size` pixels stays as it is. Raises `InputError` for a
    broken one.
    """

    def box(width: int, height: int) -> Box:
        side = centre * min(width, height)
        left = (width - side) / 2
        top = (height - side) / 2
        return (left, top, left + side, top + side)

    return np.asarray(decoded(data, size, box))


def channel_counts(
    images: UInt8[np.ndarray, "n channel height width"],
) -> Int64[np.ndarray, "channel 256"]:
    """How often each channel has each value."""
    channels = (images[:, c].ravel() for c in range(images.shape[1]))
    return np.stack([np.bincount(values, minlength=256) for values in channels])


def channel_moments(
    counts: Int64[np.ndarray, "channel 256"],
) -> tuple[Float32[np.ndarray, " channel"], Float32[np.ndarray, " channel"]]:
    """Mean and standard deviation of each channel, exact but for the rounding to float32."""
    values = np.arange(256)
    mean = counts @ values / counts.sum(1)
    variance = counts @ values**2 / counts.sum(1) - mean**2
    deviation = np.sqrt(np.maximum(variance, 1e-12))
    return mean.astype(np.float32), deviation.astype(np.float32)
