"""Make the toy tasks: Gaussian tokens, a diagonal teacher, and one direction of the start for all
scales.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from safetensors.torch import save
from torch import Tensor

from lib.files.files import clear, write_files
from lib.files.inputs import with_digest
from lib.files.params import Interval, Name, Seeds
from lib.gradual_rank.diagonal_heads import taught
from lib.gradual_rank.tasks import PAIRS, Law, gaussian_sequences, read_problems
from lib.training.devices import generator, use_threads
from lib.work.command import OutFolder, run

Size = Annotated[int, Interval("[1, 1000]")]


@dataclass(frozen=True, kw_only=True)
class Problem(Seeds):
    """A head of width `d_model`, or a transformer of so many layers and heads, and its feed-forward
    blocks' width.
    """

    name: Name
    n_samples: Annotated[int, Interval("[1, 1e6]")]
    seq_len: Annotated[int, Interval("[2, 1000]")]
    d_model: Size
    teacher: Law
    start: Law
    n_layers: Size | None = None
    n_heads: Size | None = None
    d_mlp: Size | None = None
    frames: Literal["own", "common"] | None = None

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
    """Write the task of each problem; cells of the table that are empty are as in the section
    `usual`.
    """
    use_threads(1)
    cases = read_problems(problems, Problem, usual)
    clear(tasks, "*.safetensors")
    for problem in cases:
        write_files(tasks, {f"{problem.name}.safetensors": make(problem)})
        print(f"{problem.name}: {problem.n_seeds} seeds of {problem.n_samples} sequences")


def make(problem: Problem) -> bytes:
    """The tensors of a `Toy`, as a safetensors file."""
    rows = []
    for seed in problem.seeds:
        X = gaussian_sequences(
            problem.n_samples, problem.seq_len, problem.d_model, generator(seed, "tokens")
        )
        w_u, w_v = PAIRS[problem.teacher](problem.size, generator(seed, "teacher"))
        u, v = PAIRS[problem.start](problem.size, generator(seed, "start"))
        teacher = w_u * w_v
        blocks = frozen_parts(problem, seed)
        rows.append(
            {
                "X": X,
                "Y": taught(teacher, X=X, **blocks),
                "teacher": teacher,
                "u": u,
                "v": v,
                **blocks,
            }
        )
    tensors = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return with_digest(save({**tensors, "seeds": torch.tensor(problem.seeds)}))


def frozen_parts(problem: Problem, seed: int) -> dict[str, Tensor]:
    """A transformer's orthogonal frames and feed-forward blocks, whose entries are N(0, 1 / rows);
    a head has none.
    """
    if problem.n_layers is None or problem.n_heads is None or problem.d_mlp is None:
        return {}
    source = generator(seed, "frozen")
    n_frames = problem.n_heads if problem.frames == "own" else 1
    d = problem.d_model
    d_mlp = problem.d_mlp
    n_layers = problem.n_layers

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    frames = torch.linalg.qr(normal(n_layers, n_frames, d, d)).Q.expand(-1, problem.n_heads, -1, -1)
    W_1 = normal(n_layers, d, d_mlp) / d**0.5
    W_2 = normal(n_layers, d_mlp, d) / d_mlp**0.5
    return {"frames": frames.contiguous(), "W_1": W_1, "W_2": W_2}


if __name__ == "__main__":
    run(main)
