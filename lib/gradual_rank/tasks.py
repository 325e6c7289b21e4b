"""Sequences of independent Gaussian tokens, and random points of the size of a network."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file
from torch import Tensor

from lib.files.files import InputError
from lib.files.params import Interval, read_cases, read_params
from lib.training.devices import generator

Schema = TypeVar("Schema")

# The columns of the table of problems; each stage reads some of them.
PROBLEM = (
    "name n_seeds first_seed n_samples seq_len d_model teacher start n_layers n_heads d_mlp frames "
    "max_stages flow_scales forecast_scales n_times curvature_share atol drawn loss gradient "
    "n_products"
)

Samples = Annotated[int, Interval("[1, 1e6]")]
Size = Annotated[int, Interval("[1, 1000]")]
Law = Literal["gaussian", "uniform"]
Frames = Literal["own", "common", "standard"]
Pair = tuple[Float[Tensor, " size"], Float[Tensor, " size"]]


@dataclass(frozen=True, kw_only=True)
class HeadSizes:
    """The sizes of a toy task: how many sequences of how many tokens, and the width of a head."""

    n_samples: Samples
    seq_len: Annotated[int, Interval("[2, 1000]")]
    d_model: Size


def gaussian_sequences(
    n_samples: int, seq_len: int, d_model: int, generator: torch.Generator
) -> Float[Tensor, "sample token d_model"]:
    """Tokens with independent N(0, 1) entries, in float64 (Boix-Adserà et al. 2023)."""
    return torch.randn(n_samples, seq_len, d_model, generator=generator, dtype=torch.float64)


def tokens_of(
    seeds: Sequence[int], n_samples: int, seq_len: int, d_model: int, purpose: str = "tokens"
) -> Float[Tensor, "seed sample token d_model"]:
    """The `gaussian_sequences` of every seed."""
    sources = [generator(seed, purpose) for seed in seeds]
    return torch.stack([gaussian_sequences(n_samples, seq_len, d_model, one) for one in sources])


def gaussian_pair(size: int, generator: torch.Generator) -> Pair:
    """Two vectors u, v with independent N(0, 1) entries: a teacher's weights, or a start."""
    u, v = torch.randn(2, size, generator=generator, dtype=torch.float64)
    return u, v


def uniform_pair(size: int, generator: torch.Generator) -> Pair:
    r"""Two vectors with independent entries, uniform on $(-\sqrt 3, \sqrt 3)$, of variance 1."""
    u, v = math.sqrt(3) * (2 * torch.rand(2, size, generator=generator, dtype=torch.float64) - 1)
    return u, v


PAIRS: dict[Law, Callable[[int, torch.Generator], Pair]] = {
    "gaussian": gaussian_pair,
    "uniform": uniform_pair,
}


def frozen_blocks(
    n_layers: int,
    n_heads: int,
    d_model: int,
    d_mlp: int,
    kind: Frames,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """A transformer's orthogonal frames and feed-forward blocks, whose entries are N(0, 1 / rows).

    Every head has a frame of its `own`, or the heads of a layer share a `common` one, or all have
    the `standard` basis, in which a head is diagonal as Example 3.2 says.
    """

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    n_frames = n_heads if kind == "own" else 1
    if kind == "standard":
        frames = torch.eye(d_model, dtype=torch.float64).expand(n_layers, 1, -1, -1)
    else:
        frames = torch.linalg.qr(normal(n_layers, n_frames, d_model, d_model)).Q
    return {
        "frames": frames.expand(-1, n_heads, -1, -1).contiguous(),
        "W_1": normal(n_layers, d_model, d_mlp) / d_model**0.5,
        "W_2": normal(n_layers, d_mlp, d_model) / d_mlp**0.5,
    }


@dataclass(frozen=True)
class Start:
    """The direction (u, v) of the start of every seed: all that a loss of one's own needs."""

    seeds: Int[Tensor, " seed"]
    u: Float[Tensor, "seed p"]
    v: Float[Tensor, "seed p"]

    @property
    def size(self) -> int:
        """The number of products."""
        return self.u.shape[1]


@dataclass(frozen=True)
class Toy(Start):
    """The toy task of every seed.

    It has tokens X, targets Y = teacher(X), the teacher's products, and the direction (u, v) of the
    start. A transformer has, besides, the frames of its heads and its frozen feed-forward blocks.
    """

    X: Float[Tensor, "seed sample token d_model"]
    Y: Float[Tensor, "seed sample token d_model"]
    teacher: Float[Tensor, "seed p"]
    frames: Float[Tensor, "seed layer head d_model d_model"] | None = None
    W_1: Float[Tensor, "seed layer d_model d_mlp"] | None = None
    W_2: Float[Tensor, "seed layer d_mlp d_model"] | None = None

    def network(self, index: int) -> dict[str, Tensor]:
        """The tokens and targets of a seed, and its frames and blocks where it has some."""
        parts = {name: getattr(self, name) for name in ("X", "Y", "frames", "W_1", "W_2")}
        return {name: tensor[index] for name, tensor in parts.items() if tensor is not None}

    def places(self, seeds: Sequence[int], section: str) -> list[int]:
        """The places of these seeds; raises `InputError`, which names the section, for unknown
        seeds.
        """
        known = self.seeds.tolist()
        if not set(seeds) <= set(known):
            raise InputError(f"{section}: wanted seeds of {known}, got {list(seeds)}")
        return [known.index(seed) for seed in seeds]


def read_start(path: Path) -> Start:
    """Read the start of a problem, which is a `Toy` where it is of a head or a transformer.

    Its file holds the tensors under their names.
    """
    tensors = load_file(path)
    return Toy(**tensors) if "X" in tensors else Start(**tensors)


def read_toy(path: Path) -> Toy:
    """Read a toy task; raises `InputError` for the start of a loss of one's own."""
    found = read_start(path)
    if not isinstance(found, Toy):
        raise InputError(f"{path}: wanted a head or a transformer, got a loss of one's own")
    return found


def read_head(path: Path) -> Toy:
    """Read the toy task of one head; raises `InputError` for a transformer's."""
    toy = read_toy(path)
    if toy.frames is not None:
        raise InputError(f"{path}: wanted a problem of one head, got a transformer")
    return toy


def read_problems(file: Path, schema: type[Schema], usual: str) -> tuple[Schema, ...]:
    """The lines of the table of problems, with the columns that the schema has.

    An empty cell takes its value from the section `usual` of the params.
    """
    columns = PROBLEM.split()
    shared = read_params(usual, dict)
    for key in shared:
        if key not in columns:
            raise InputError(f"params.yaml: {usual}: unknown key {key!r}, wanted {sorted(columns)}")
    return read_cases(file, schema, columns=columns, shared=shared)


def read_studied(key: str, problems: Collection[str]) -> str:
    """The name of a problem that params have under the key.

    Raises `InputError` if there is no problem of that name.
    """
    name = read_params(key, str)
    if name not in problems:
        raise InputError(f"{key}: wanted one of the problems {sorted(problems)}, got {name!r}")
    return name
