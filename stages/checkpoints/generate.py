"""Make the texts: one language, the same bytes in random order, and a second language.

To the second one models are tuned, and on other texts of it they are measured.
"""

from dataclasses import dataclass
from typing import Annotated

from lib.checkpoints.grammar import shuffled, text
from lib.files.files import write_files
from lib.files.inputs import write_sums
from lib.files.params import Interval, read_params
from lib.work.command import OutFolder, run

Bytes = Annotated[int, Interval("[1000, 1e9]")]
FIRST, SECOND = 0, 1  # seeds of the languages
TRAINED, MEASURED = 0, 1  # streams of a language: other texts


@dataclass(frozen=True)
class Generate:
    n_bytes: Bytes
    n_measured_bytes: Bytes


def main(section: str, texts: OutFolder) -> None:
    params = read_params(section, Generate)
    begun = text(FIRST, params.n_bytes, TRAINED)
    made = {
        "language.txt": begun,
        "permuted.txt": shuffled(begun, FIRST),
        "tuned.txt": text(SECOND, params.n_bytes, TRAINED),
        "measured.txt": text(SECOND, params.n_measured_bytes, MEASURED),
    }
    write_files(texts, made)
    write_sums(texts)


if __name__ == "__main__":
    run(main)
