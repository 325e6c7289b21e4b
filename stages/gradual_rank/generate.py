"""Make the toy tasks: Gaussian tokens, a diagonal teacher head, and one direction of the start for all scales."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from safetensors.torch import save

from lib.data.gaussian_sequences import gaussian_pair, gaussian_sequences
from lib.io.command import run
from lib.io.compute import generator, use_threads
from lib.io.files import write_files
from lib.io.params import Interval, Seeds, read_params
from lib.models.diagonal_attention import diagonal_head


@dataclass(frozen=True)
class Task(Seeds):
    n_samples: Annotated[int, Interval("[1, 1e6]")]
    d_model: Annotated[int, Interval("[1, 1000]")]


@dataclass(frozen=True)
class Generate:
    small: Task
    paper: Task
    seq_len: Annotated[int, Interval("[2, 1000]")]


def main(section: str, tasks: Path) -> None:
    use_threads(1)
    params = read_params(section, Generate)
    for name, task in (("small", params.small), ("paper", params.paper)):
        write_files(tasks, {f"{name}.safetensors": make(task, params.seq_len)})
        print(f"{name}: {task.n_seeds} seeds of {task.n_samples} sequences")


def make(task: Task, seq_len: int) -> bytes:
    """The tensors of a `Toy`, as a safetensors file."""
    size = 2 * task.d_model
    rows = []
    for seed in task.seeds:
        X = gaussian_sequences(task.n_samples, seq_len, task.d_model, generator(seed, "tokens"))
        w_u, w_v = gaussian_pair(size, generator(seed, "teacher"))
        u, v = gaussian_pair(size, generator(seed, "start"))
        teacher = w_u * w_v
        rows.append({"X": X, "Y": diagonal_head(X, teacher), "teacher": teacher, "u": u, "v": v})
    tensors = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return save({**tensors, "seeds": torch.tensor(task.seeds)})


if __name__ == "__main__":
    run(main)
