"""Make the toy tasks: Gaussian tokens, a diagonal teacher, one direction of the start."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from safetensors.torch import save
from torch import Tensor

from lib.files.files import clear, write_files
from lib.files.inputs import with_digest
from lib.files.params import Interval, Name, Seeds
from lib.gradual_rank.diagonal_heads import taught
from lib.gradual_rank.tasks import (
    PAIRS,
    Frames,
    Law,
    Samples,
    Size,
    frozen_blocks,
    gaussian_sequences,
    read_problems,
)
from lib.training.devices import generator, use_threads
from lib.work.command import OutFolder, run


@dataclass(frozen=True, kw_only=True)
class Problem(Seeds):
    """A head of width `d_model`, or a transformer with its layers, heads and width of blocks."""

    name: Name
    n_samples: Samples
    seq_len: Annotated[int, Interval("[2, 1000]")]
    d_model: Size
    teacher: Law
    start: Law
    n_layers: Size | None = None
    n_heads: Size | None = None
    d_mlp: Size | None = None
    frames: Frames | None = None

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in ("n_layers", "n_heads", "d_mlp", "frames")}
        if len({value is None for value in given.values()}) > 1:
            raise ValueError(
                f"wanted all of {list(given)} for a transformer, or none for a head, got {given}"
            )

    @property
    def size(self) -> int:
        """The number of products: two for each entry of each head."""
        return 2 * (self.n_layers or 1) * (self.n_heads or 1) * self.d_model


def main(usual: str, problems: Path, tasks: OutFolder) -> None:
    """Write the task of each problem; empty cells of the table are as in the section `usual`."""
    use_threads(1)
    cases = read_problems(problems, Problem, usual)
    clear(tasks, "*.safetensors")
    for problem in cases:
        write_files(tasks, {f"{problem.name}.safetensors": make(problem)})
        print(f"{problem.name}: {problem.n_seeds} seeds of {problem.n_samples} sequences")


def make(problem: Problem) -> bytes:
    """The tensors of a `Toy`, as a safetensors file."""
    drawn = [draw(problem, seed) for seed in problem.seeds]
    tensors = {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}
    return with_digest(save({**tensors, "seeds": torch.tensor(problem.seeds)}))


def draw(problem: Problem, seed: int) -> dict[str, Tensor]:
    """The tensors of one seed."""
    sizes = (problem.n_samples, problem.seq_len, problem.d_model)
    X = gaussian_sequences(*sizes, generator(seed, "tokens"))
    w_u, w_v = PAIRS[problem.teacher](problem.size, generator(seed, "teacher"))
    u, v = PAIRS[problem.start](problem.size, generator(seed, "start"))
    teacher = w_u * w_v
    blocks: dict[str, Tensor] = {}
    if problem.n_layers and problem.n_heads and problem.d_mlp and problem.frames:
        sizes = (problem.n_layers, problem.n_heads, problem.d_model, problem.d_mlp)
        blocks = frozen_blocks(*sizes, problem.frames, generator(seed, "frozen"))
    Y = taught(teacher, X=X, **blocks)
    return {"X": X, "Y": Y, "teacher": teacher, "u": u, "v": v, **blocks}


if __name__ == "__main__":
    run(main)
