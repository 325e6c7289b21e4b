"""Make the texts: one language, the same bytes in random order, and a second language.

To the second one models are tuned, and on other texts of it they are measured.
"""

from dataclasses import dataclass
from typing import Annotated

from lib.checkpoints.grammar import shuffled, text
from lib.files.files import write_files
from lib.files.inputs import write_sums
from lib.files.params import Interval, Seed, read_params
from lib.work.command import OutFolder, run

Bytes = Annotated[int, Interval("[1000, 1e9]")]
TRAINED, MEASURED = 0, 1  # streams of a language: other texts


@dataclass(frozen=True)
class Generate:
    seed: Seed  # of the first language; that of the second is the next
    n_bytes: Bytes
    n_measured_bytes: Bytes


def main(section: str, texts: OutFolder) -> None:
    params = read_params(section, Generate)
    first = params.seed
    second = params.seed + 1
    begun = text(first, params.n_bytes, TRAINED)
    made = {
        "language.txt": begun,
        "permuted.txt": shuffled(begun, first),
        "tuned.txt": text(second, params.n_bytes, TRAINED),
        "measured.txt": text(second, params.n_measured_bytes, MEASURED),
    }
    write_files(texts, made)
    write_sums(texts)


if __name__ == "__main__":
    run(main)
