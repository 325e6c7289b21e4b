"""Sequences of independent Gaussian tokens, and random points of the size of a network."""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file
from torch import Tensor


def gaussian_sequences(
    n_samples: int, seq_len: int, d_model: int, generator: torch.Generator
) -> Float[Tensor, "sample token d_model"]:
    """Tokens with independent N(0, 1) entries, in float64: the inputs of the toy of Boix-Adserà et al. (2023)."""
    return torch.randn(n_samples, seq_len, d_model, generator=generator, dtype=torch.float64)


def gaussian_pair(
    shape: int | tuple[int, ...], generator: torch.Generator
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Two arrays u, v of independent N(0, 1) entries, in float64: a teacher's weights or the direction of a start."""
    size = (shape,) if isinstance(shape, int) else shape
    u, v = torch.randn(2, *size, generator=generator, dtype=torch.float64)
    return u, v


@dataclass(frozen=True)
class Toy:
    """The toy task of every seed: tokens X, targets Y = teacher(X), teacher's products, a start's direction (u, v)."""

    seeds: Int[Tensor, " seed"]
    X: Float[Tensor, "seed sample token d_model"]
    Y: Float[Tensor, "seed sample token d_model"]
    teacher: Float[Tensor, "seed p"]
    u: Float[Tensor, "seed p"]
    v: Float[Tensor, "seed p"]


def read_toy(path: Path) -> Toy:
    """Read a toy task; its file holds the tensors under their names."""
    return Toy(**load_file(path))
