"""Draw the sequences of patterns: each seed has its own patterns, training and test samples."""

from dataclasses import dataclass
from functools import partial

from safetensors.torch import save

from lib.files.files import atomic
from lib.files.inputs import with_digest
from lib.files.params import Seeds, read_params
from lib.low_rank_sparse.patterns import PatternSizes, draw_patterns, stacked
from lib.training.devices import generator, use_threads
from lib.work.command import OutFile, run


@dataclass(frozen=True)
class Generate(PatternSizes, Seeds):
    def __post_init__(self) -> None:
        self.task()  # which refuses sizes that make no sample


def main(section: str, dataset: OutFile) -> None:
    use_threads(1)
    params = read_params(section, Generate)
    drawn = [
        draw_patterns(params.task(), params.n_train, params.n_test, partial(generator, seed))
        for seed in params.seeds
    ]
    tensors = stacked(params.seeds, drawn).tensors()
    data = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    with atomic(dataset) as part:
        part.write_bytes(with_digest(data))
    print(
        f"{len(params.seeds)} seeds of {params.n_train} training and {params.n_test} test samples"
    )


if __name__ == "__main__":
    run(main)
