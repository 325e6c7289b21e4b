"""Make the texts: of one language, the same bytes in random order, of a second language to tune to and measure on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lib.data.grammar import shuffled, text
from lib.io.command import run
from lib.io.files import write_files
from lib.io.params import Interval, Seed, read_params

Bytes = Annotated[int, Interval("[1000, 1e9]")]
TRAINED, MEASURED = 0, 1  # streams of a language: no sentence is drawn twice


@dataclass(frozen=True)
class Generate:
    language: Seed
    tuned_language: Seed
    n_bytes: Bytes
    n_measured_bytes: Bytes

    def __post_init__(self) -> None:
        if self.language == self.tuned_language:
            raise ValueError(f"tuned_language: wanted another than language, got {self.tuned_language} for both")


def main(section: str, texts: Path) -> None:
    params = read_params(section, Generate)
    begun = text(params.language, params.n_bytes, TRAINED)
    made = {
        "language.txt": begun,
        "permuted.txt": shuffled(begun, params.language),
        "tuned.txt": text(params.tuned_language, params.n_bytes, TRAINED),
        "measured.txt": text(params.tuned_language, params.n_measured_bytes, MEASURED),
    }
    write_files(texts, made)


if __name__ == "__main__":
    run(main)
