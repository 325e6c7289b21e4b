"""Make the toy tasks: Gaussian tokens, a diagonal teacher, one direction of the start."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save

from lib.files.files import clear, write_files
from lib.files.inputs import with_digest
from lib.files.params import Name, Seeds
from lib.gradual_rank.random_toys import BlockSizes, random_toy
from lib.gradual_rank.tasks import PAIRS, Frames, HeadSizes, Law, Size, read_problems
from lib.training.devices import generator, use_threads
from lib.work.command import OutFolder, run

TAKEN = ("forecast", "limit")  # the names of what the stage greedy computes beside the problems


@dataclass(frozen=True, kw_only=True)
class Problem(Seeds, HeadSizes):
    """A head of width `d_model`, or a transformer with its layers, heads and width of blocks, or a
    loss of one's own with `n_products` products, which has a start alone.
    """

    name: Name
    teacher: Law
    start: Law
    n_layers: Size | None = None
    n_heads: Size | None = None
    d_mlp: Size | None = None
    frames: Frames | None = None
    loss: str | None = None
    n_products: Size | None = None

    def __post_init__(self) -> None:
        if self.name in TAKEN:
            raise ValueError(f"name: wanted another than {' and '.join(TAKEN)}, got {self.name}")
        given = {name: getattr(self, name) for name in ("n_layers", "n_heads", "d_mlp", "frames")}
        if len({value is None for value in given.values()}) > 1:
            raise ValueError(
                f"wanted all of {list(given)} for a transformer, or none for a head, got {given}"
            )
        if (self.loss is None) != (self.n_products is None):
            got = f"got {self.loss} and {self.n_products}"
            raise ValueError(f"wanted both of loss and n_products, or none of them, {got}")
        if self.loss is not None and self.n_layers is not None:
            raise ValueError(f"n_layers: wanted none beside a loss, got {self.n_layers}")


def main(usual: str, problems: Path, tasks: OutFolder) -> None:
    """Write the task of each problem; empty cells of the table are as in the section `usual`."""
    use_threads(1)
    cases = read_problems(problems, Problem, usual)
    clear(tasks, "*.safetensors")
    for problem in cases:
        write_files(tasks, {f"{problem.name}.safetensors": make(problem)})
        of = f"{problem.n_products} products" if problem.loss else f"{problem.n_samples} sequences"
        print(f"{problem.name}: {problem.n_seeds} seeds of {of}")


def make(problem: Problem) -> bytes:
    """The tensors of a `Toy`, or of a `Start` for a loss of one's own, as a safetensors file."""
    if problem.n_products:
        size = problem.n_products
        pairs = [PAIRS[problem.start](size, generator(seed, "start")) for seed in problem.seeds]
        u, v = (torch.stack(both) for both in zip(*pairs, strict=True))
        return with_digest(save({"u": u, "v": v, "seeds": torch.tensor(problem.seeds)}))
    blocks = None
    if problem.n_layers and problem.n_heads and problem.d_mlp and problem.frames:
        blocks = BlockSizes(problem.n_layers, problem.n_heads, problem.d_mlp, problem.frames)
    laws = (problem.teacher, problem.start)
    drawn = [random_toy(seed, problem, *laws, blocks) for seed in problem.seeds]
    tensors = {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}
    return with_digest(save({**tensors, "seeds": torch.tensor(problem.seeds)}))


if __name__ == "__main__":
    run(main)
