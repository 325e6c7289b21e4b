"""Sequences of independent Gaussian tokens, and random points of the size of a network."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, get_args

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file
from torch import Tensor

from lib.files.files import InputError
from lib.files.params import read_cases, read_params

Schema = TypeVar("Schema")

# The columns of the table of problems, of which each stage reads a part.
PROBLEM = (
    "name",
    "n_seeds",
    "first_seed",
    "n_samples",
    "seq_len",
    "d_model",
    "teacher",
    "start",
    "n_layers",
    "n_heads",
    "d_mlp",
    "frames",
    "max_stages",
    "flow_scales",
    "forecast_scales",
    "n_times",
    "n_snapshots",
    "curvature_share",
    "atol",
    "drawn",
)

Law = Literal["gaussian", "uniform"]
Pair = tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]


def gaussian_sequences(
    n_samples: int, seq_len: int, d_model: int, generator: torch.Generator
) -> Float[Tensor, "sample token d_model"]:
    """Tokens with independent N(0, 1) entries, in float64: the inputs of the toy of Boix-Adserà et
    al. (2023).
    """
    return torch.randn(n_samples, seq_len, d_model, generator=generator, dtype=torch.float64)


def gaussian_pair(shape: int | tuple[int, ...], generator: torch.Generator) -> Pair:
    """Two arrays u, v of independent N(0, 1) entries, in float64: a teacher's weights or the
    direction of a start.
    """
    size = (shape,) if isinstance(shape, int) else shape
    u, v = torch.randn(2, *size, generator=generator, dtype=torch.float64)
    return u, v


def uniform_pair(shape: int | tuple[int, ...], generator: torch.Generator) -> Pair:
    r"""Two arrays of independent entries, uniform on $(-\sqrt 3, \sqrt 3)$: their variance is 1,
    too.
    """
    size = (shape,) if isinstance(shape, int) else shape
    u, v = math.sqrt(3) * (2 * torch.rand(2, *size, generator=generator, dtype=torch.float64) - 1)
    return u, v


PAIRS: dict[Law, Callable[[int | tuple[int, ...], torch.Generator], Pair]] = {
    "gaussian": gaussian_pair,
    "uniform": uniform_pair,
}
assert set(PAIRS) == set(get_args(Law))


@dataclass(frozen=True)
class Toy:
    """The toy task of every seed: tokens X, targets Y = teacher(X), teacher's products, a start's
    direction (u, v).

    A transformer has the frames of its heads and its frozen feed-forward blocks besides.
    """

    seeds: Int[Tensor, " seed"]
    X: Float[Tensor, "seed sample token d_model"]
    Y: Float[Tensor, "seed sample token d_model"]
    teacher: Float[Tensor, "seed p"]
    u: Float[Tensor, "seed p"]
    v: Float[Tensor, "seed p"]
    frames: Float[Tensor, "seed layer head d_model d_model"] | None = None
    W_1: Float[Tensor, "seed layer d_model d_mlp"] | None = None
    W_2: Float[Tensor, "seed layer d_mlp d_model"] | None = None

    @property
    def size(self) -> int:
        """The number of products."""
        return self.u.shape[1]

    def network(self, index: int) -> dict[str, Tensor]:
        """The data of one seed's network: its tokens, targets, frames and blocks, as far as there
        are.
        """
        parts = {name: getattr(self, name) for name in ("X", "Y", "frames", "W_1", "W_2")}
        return {name: tensor[index] for name, tensor in parts.items() if tensor is not None}


def read_toy(path: Path) -> Toy:
    """Read a toy task; its file holds the tensors under their names."""
    return Toy(**load_file(path))


def read_problems(file: Path, schema: type[Schema], usual: str) -> tuple[Schema, ...]:
    """What the schema knows of the table of problems; an empty cell is as in the section `usual`
    of params.
    """
    shared = read_params(usual, dict)
    for key in shared:
        if key not in PROBLEM:
            raise InputError(f"params.yaml: {usual}: unknown key {key!r}, wanted {sorted(PROBLEM)}")
    return read_cases(file, schema, columns=PROBLEM, shared=shared)
