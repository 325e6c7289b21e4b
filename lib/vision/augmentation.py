"""Crops, mirror images and RandAugment (Cubuk et al. 2020) of a whole set of images where it lies,
with no loop over images.

Every operation of RandAugment maps uint8 images [n, 3, height, width] and a level to uint8 images,
pixel for pixel as Pillow does. All is integer arithmetic, or floating point rounded step by step in
Pillow's order: each device gives the same bits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from lib.files.params import Interval

MAX_MAGNITUDE = 30
CROPPED = 4096  # images cropped together: they stay in the processor's cache
CHUNK = (
    2**22
)  # values computed together: bounds the memory beside the images (some 25 bytes a value)

Pictures = UInt8[Tensor, "n 3 height width"]


@dataclass(frozen=True)
class RandAugment:
    """How strongly images are changed: N = `n_operations` in turn, each of strength M = `magnitude`
    of 30.
    """

    n_operations: Annotated[int, Interval("[0, 14]")]
    magnitude: Annotated[int, Interval("[0, 30]")]


@dataclass(frozen=True)
class Augmentation:
    """How training images are changed, every time that they are seen."""

    crop: Literal["none", "crop_flip", "resized_crop_flip"] = "none"
    randaugment: RandAugment | None = None


def augmented(
    draw: Callable[[str, int], torch.Generator],
    how: Augmentation,
    images: UInt8[Tensor, "n channel height width"],
    epoch: int,
) -> UInt8[Tensor, "n channel height width"]:
    """The images of an epoch: each shifted by up to an eighth of its width and perhaps mirrored;
    then RandAugment.
    """
    if how.crop == "crop_flip":
        images = crop_and_flip(images, images.shape[-1] // 8, draw("crop and flip", epoch))
    if how.randaugment is None:
        return images
    return randaugment(images, how.randaugment, draw("randaugment", epoch))


def crop_and_flip(
    images: UInt8[Tensor, "batch channel height width"], padding: int, generator: torch.Generator
) -> UInt8[Tensor, "batch channel height width"]:
    """Each image shifted by up to `padding` pixels in each direction, zeros coming in, and half of
    them mirrored.

    One gather per chunk of images, where they lie. The numbers are drawn on the generator's device,
    the CPU: every device sees the same images, and none waits for another.
    """
    height, width = images.shape[2:]
    n_shifts = 2 * padding + 1
    choice = torch.randint(0, 2 * n_shifts**2, (len(images),), generator=generator).to(
        images.device
    )
    down, across, mirrored = choice // 2 // n_shifts, choice // 2 % n_shifts, choice % 2
    row, column = (torch.arange(size, device=images.device) for size in (height, width))
    rows = down[:, None] + row
    columns = across[:, None] + torch.where(mirrored[:, None] == 1, width - 1 - column, column)
    every, channel = (
        torch.arange(n, device=images.device) for n in (min(CROPPED, len(images)), images.shape[1])
    )
    changed = []
    for part, r, c in zip(
        images.split(CROPPED), rows.split(CROPPED), columns.split(CROPPED), strict=True
    ):
        padded = torch.nn.functional.pad(part, [padding] * 4)
        image = every[: len(part), None, None, None]
        changed.append(
            padded[image, channel[:, None, None], r[:, None, :, None], c[:, None, None, :]]
        )
    return torch.cat(changed) if changed else images.clone()


def randaugment(images: Pictures, how: RandAugment, generator: torch.Generator) -> Pictures:
    """Each image changed by operations in turn, each drawn uniformly from 14, of one strength.

    Source: Cubuk, Zoph, Shlens & Le, "RandAugment" (2020). The paper leaves ranges and signs to its
    code; they are those of torchvision's `RandAugment`, with its nearest pixels, zeros from
    outside, and levels of magnitude 0 (solarize inverts pure white even there). Departures:
    operation and sign come from one draw for all images at once, so a seed gives other images than
    torchvision's; the sign of a geometric operation, fair either way, is Pillow's.
    """
    result = images.clone()
    # one number for (operation, sign): the images of one number are changed together
    signed = [
        (change, level)
        for change, levels in operations(how.magnitude, *images.shape[2:])
        for level in levels
    ]
    together = max(1, CHUNK // images.shape[1:].numel())
    for _ in range(how.n_operations):
        choice = torch.randint(0, len(signed), (len(images),), generator=generator)
        counts = torch.bincount(
            choice, minlength=len(signed)
        ).tolist()  # on the CPU: no device is waited for
        groups = choice.argsort(stable=True).to(images.device).split(counts)
        for (change, level), group in zip(signed, groups, strict=True):
            for members in group.split(together):
                result[members] = change(result[members], level)
    return result


def operations(
    magnitude: int, height: int, width: int
) -> list[tuple[Callable[[Pictures, float], Pictures], tuple[float, float]]]:
    """The 14 operations, each with its levels for the two signs; both are one where an operation
    has no sign.
    """
    share = magnitude / MAX_MAGNITUDE
    across, down = (150 * size * magnitude // (331 * MAX_MAGNITUDE) for size in (width, height))
    bits = 8 - round(4 * share)
    threshold = 255 - 8.5 * magnitude
    slopes = (0.3 * share, -0.3 * share)
    factors = (1 + 0.9 * share, 1 - 0.9 * share)
    return [
        (identity, (0, 0)),
        (shear_x, slopes),
        (shear_y, slopes),
        (translate_x, (across, -across)),
        (translate_y, (down, -down)),
        (rotate, (30 * share, -30 * share)),
        (brightness, factors),
        (colour, factors),
        (contrast, factors),
        (sharpness, factors),
        (posterize, (bits, bits)),
        (solarize, (threshold, threshold)),
        (autocontrast, (0, 0)),
        (equalize, (0, 0)),
    ]


def identity(images: Pictures, _level: float = 0) -> Pictures:
    """The images as they are."""
    return images


def affine(images: Pictures, matrix: tuple[float, float, float, float, float, float]) -> Pictures:
    """out(x, y) = in(a x + b y + c, d x + e y + f) at the nearest pixel, zero outside; a pixel's
    centre is at + 1/2.

    Coordinates are rounded to 16 binary places, as in Pillow's `Image.transform`.
    """
    height, width = images.shape[2:]
    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device)[:, None]

    def pixel(along_x: float, along_y: float, shift: float) -> Int[Tensor, "height width"]:
        start = shift + along_x * 0.5 + along_y * 0.5
        step_x, step_y, start = (
            math.floor(number * 2**16 + 0.5) for number in (along_x, along_y, start)
        )
        return (step_x * x + step_y * y + start) >> 16

    a, b, c, d, e, f = matrix
    column, row = pixel(a, b, c), pixel(d, e, f)
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    source = (row * width + column).where(inside, 0).flatten()
    values = images.flatten(2)
    return values.gather(2, source.expand_as(values)).view_as(images) * inside


def shear_x(images: Pictures, slope: float) -> Pictures:
    """The images with row y moved left by `slope` · y."""
    return affine(images, (1, slope, 0, 0, 1, 0))


def shear_y(images: Pictures, slope: float) -> Pictures:
    """The images with column x moved up by `slope` · x."""
    return affine(images, (1, 0, 0, slope, 1, 0))


def translate_x(images: Pictures, pixels: float) -> Pictures:
    """The images moved left by `pixels`."""
    return affine(images, (1, 0, pixels, 0, 1, 0))


def translate_y(images: Pictures, pixels: float) -> Pictures:
    """The images moved up by `pixels`."""
    return affine(images, (1, 0, 0, 0, 1, pixels))


def rotate(images: Pictures, degrees: float) -> Pictures:
    """The images turned about their centre, counter-clockwise."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x, y = images.shape[3] / 2, images.shape[2] / 2
    return affine(images, (cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y))


def blend(
    degenerate: UInt8[Tensor, "#n #channel #height #width"],
    images: UInt8[Tensor, "n channel height width"],
    factor: float,
) -> UInt8[Tensor, "n channel height width"]:
    """d + factor (image − d), cut to 0..255 and rounded down: away from the degenerate image d
    where factor > 1.
    """
    start = degenerate.float()
    # two steps, each rounded to float32: a fused multiply-add would differ in the last bit
    change = (images - start).mul_(factor)
    return change.add_(start).clamp_(0, 255).byte()


def brightness(images: Pictures, factor: float) -> Pictures:
    """The images moved away from black."""
    return blend(torch.zeros_like(images[:, :1, :1, :1]), images, factor)


def colour(images: Pictures, factor: float) -> Pictures:
    """Each image moved away from its own grey."""
    return blend(grey(images), images, factor)


def contrast(images: Pictures, factor: float) -> Pictures:
    """Each image moved away from its mean grey, a whole number."""
    shade = grey(images)
    n_pixels = shade.shape[1:].numel()
    mean = (2 * shade.sum((1, 2, 3), keepdim=True) + n_pixels) // (2 * n_pixels)
    return blend(mean.byte(), images, factor)


def sharpness(images: Pictures, factor: float) -> Pictures:
    """Each image moved away from itself smoothed by (1 1 1; 1 5 1; 1 1 1) / 13, whose edge pixels
    stay as they are.
    """
    values = images.short()
    rows = values[:, :, :-2] + values[:, :, 1:-1] + values[:, :, 2:]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    smooth = images.clone()
    smooth[:, :, 1:-1, 1:-1] = (2 * (box + 4 * values[:, :, 1:-1, 1:-1]) + 13) // 26
    return blend(smooth, images, factor)


def grey(images: Pictures) -> UInt8[Tensor, "n 1 height width"]:
    """Luma of ITU-R 601-2, (0.299, 0.587, 0.114) · (r, g, b), in units of 2⁻¹⁶ as in Pillow."""
    red, green, blue = images.int().split(1, dim=1)
    return ((19595 * red + 38470 * green + 7471 * blue + 2**15) >> 16).byte()


def posterize(images: Pictures, bits: float) -> Pictures:
    """The images of which only the upper `bits` of the eight stay."""
    return images & (256 - 2 ** (8 - int(bits)))


def solarize(images: Pictures, threshold: float) -> Pictures:
    """Values from `threshold` on are inverted: x becomes 255 − x, which is x xor 255."""
    return images ^ (255 * (images >= math.ceil(threshold)).byte())


def autocontrast(images: Pictures, _level: float = 0) -> Pictures:
    """255 (x − low) / (high − low) rounded down, for each image and channel; a channel of one value
    stays.
    """
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    flat = low == high
    low, high = low.masked_fill(flat, 0).double(), high.masked_fill(flat, 255).double()
    scale = torch.full_like(low, 255) / (
        high - low
    )  # 255 / tensor would multiply by a rounded reciprocal
    return (images * scale).sub_(low * scale).clamp_(0, 255).byte()


def equalize(images: Pictures, _level: float = 0) -> Pictures:
    """Each channel of each image with a histogram as even as its own values allow.

    Value v becomes (step / 2 + #{x < v}) / step, rounded down, where step = #{x < max} / 255,
    rounded down; a channel with step 0 (of one value, or nearly) stays.
    """
    values = images.flatten(2).long()
    n, n_channels = values.shape[:2]
    channel = torch.arange(n * n_channels, device=images.device).view(n, n_channels, 1)
    places = (values + 256 * channel).flatten()
    zeros = torch.zeros(256 * n * n_channels, dtype=torch.int64, device=images.device)
    histogram = zeros.scatter_add_(0, places, torch.ones_like(places)).view(n, n_channels, 256)
    below = histogram.cumsum(2) - histogram
    step = below.gather(2, values.amax(2, keepdim=True)) // 255
    even = ((step // 2 + below) // step.clamp_min(1)).clamp_max(255)
    table = even.where(step > 0, torch.arange(256, device=images.device)).byte()
    return table.gather(2, values).view_as(images)
