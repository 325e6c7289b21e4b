"""Draw the sequences of patterns: for each seed its own patterns, training samples and test samples."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from safetensors.torch import save

from lib.data.patterns import PatternTask, draw_patterns, stacked
from lib.io.base.command import OutFile, run
from lib.io.base.files import atomic
from lib.io.base.inputs import with_digest
from lib.io.base.params import Count, Interval, Seeds, read_params
from lib.io.workers.compute import generator, use_threads

Size = Annotated[int, Interval("[1, 16384]")]
Tokens = Annotated[int, Interval("[0, 16384]")]


@dataclass(frozen=True)
class Generate(Seeds):
    n_train: Count
    n_test: Count
    d_model: Size
    n_patterns: Size
    seq_len: Size
    n_relevant: Size
    n_confusion: Tokens
    noise: Annotated[float, Interval("[0, 100]")]

    def __post_init__(self) -> None:
        self.task()

    @property
    def memory(self) -> int:
        """Bytes: tokens, and the pattern of each, in all copies on the way to the file; the patterns themselves."""
        tokens = (self.n_train + self.n_test) * self.seq_len
        return self.n_seeds * (5 * tokens * (4 * self.d_model + 8) + 12 * self.d_model**2)

    @property
    def disk(self) -> int:
        """Bytes: tokens, the pattern of each, labels, and the patterns themselves."""
        of_sample = self.seq_len * (4 * self.d_model + 8) + 16
        return self.n_seeds * ((self.n_train + self.n_test) * of_sample + 4 * self.d_model * self.n_patterns) + 2000

    def task(self) -> PatternTask:
        names = ("d_model", "n_patterns", "seq_len", "n_relevant", "n_confusion", "noise")
        return PatternTask(**{name: getattr(self, name) for name in names})


def main(section: str, dataset: OutFile) -> None:
    use_threads(1)
    params = read_params(section, Generate)
    sizes = params.task(), params.n_train, params.n_test
    drawn = [draw_patterns(*sizes, partial(generator, seed)) for seed in params.seeds]
    tensors = stacked(params.seeds, drawn).tensors()
    with atomic(dataset) as part:
        part.write_bytes(with_digest(save({name: tensor.contiguous() for name, tensor in tensors.items()})))
    print(f"{len(params.seeds)} seeds of {params.n_train} training and {params.n_test} test samples")


if __name__ == "__main__":
    run(main)
