"""Draw the sequences of patterns: for each seed its own patterns, training samples and test
samples.
"""

from dataclasses import dataclass
from functools import partial

from safetensors.torch import save

from lib.files.files import atomic
from lib.files.inputs import with_digest
from lib.files.params import Seeds, read_params
from lib.low_rank_sparse.patterns import PatternSizes, PatternTask, draw_patterns, stacked
from lib.training.devices import generator, use_threads
from lib.work.command import OutFile, run


@dataclass(frozen=True)
class Generate(PatternSizes, Seeds):
    def __post_init__(self) -> None:
        self.task()

    @property
    def memory(self) -> int:
        """Bytes: tokens, and the pattern of each, in all copies on the way to the file; the
        patterns themselves.
        """
        tokens = (self.n_train + self.n_test) * self.seq_len
        return self.n_seeds * (5 * tokens * (4 * self.d_model + 8) + 12 * self.d_model**2)

    @property
    def disk(self) -> int:
        """Bytes: tokens, the pattern of each, labels, and the patterns themselves."""
        of_sample = self.seq_len * (4 * self.d_model + 8) + 16
        return (
            self.n_seeds
            * ((self.n_train + self.n_test) * of_sample + 4 * self.d_model * self.n_patterns)
            + 2000
        )

    def task(self) -> PatternTask:
        return PatternTask(**self.of_task)


def main(section: str, dataset: OutFile) -> None:
    use_threads(1)
    params = read_params(section, Generate)
    sizes = params.task(), params.n_train, params.n_test
    drawn = [draw_patterns(*sizes, partial(generator, seed)) for seed in params.seeds]
    tensors = stacked(params.seeds, drawn).tensors()
    with atomic(dataset) as part:
        part.write_bytes(
            with_digest(save({name: tensor.contiguous() for name, tensor in tensors.items()}))
        )
    print(
        f"{len(params.seeds)} seeds of {params.n_train} training and {params.n_test} test samples"
    )


if __name__ == "__main__":
    run(main)
