"""Check both lemmas on random cases."""

from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd

from lib.decision_lists.random_cases import QUESTIONS
from lib.files.params import Interval, Seed, read_params
from lib.training.devices import generator, use_threads
from lib.work.cells import Tables, spread_cells, write_tables
from lib.work.command import OutFolder, run

CASES_A_CHUNK = 1000  # drawn from one random generator, by one process


@dataclass(frozen=True)
class Check:
    """Random cases for each lemma, of up to `most_tokens`."""

    seed: Seed
    n_cases: Annotated[int, Interval("[1, 10000000]")]
    most_tokens: Annotated[int, Interval("[4, 9]")]


def main(section: str, tables: OutFolder) -> None:
    use_threads(1)
    params = read_params(section, Check)
    starts = range(0, params.n_cases, CASES_A_CHUNK)
    jobs = {name: [(sample, name, start, params) for start in starts] for name in QUESTIONS}
    write_tables(tables, spread_cells(jobs, label=section, unit="chunk"))


def sample(question: str, start: int, params: Check) -> Tables:
    """One chunk of random cases of one question, from the case `start` on."""
    draw = generator(params.seed, question.replace("_", " "), start // CASES_A_CHUNK)
    wanted = min(CASES_A_CHUNK, params.n_cases - start)
    rows: list[dict[str, Any]] = []
    while len(rows) < wanted:
        rows += QUESTIONS[question](draw, params.most_tokens)
    return {question: pd.DataFrame(rows[:wanted])}


if __name__ == "__main__":
    run(main)
