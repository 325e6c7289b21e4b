"""Check both lemmas on random cases, and seek the least n for which part 2 can be met."""

from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd

from lib.decision_lists.bounds import least_feasible_length
from lib.decision_lists.random_cases import QUESTIONS
from lib.decision_lists.tables.check import FOLDER
from lib.files.params import Interval, Seed, read_params
from lib.training.devices import generator, use_threads
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_tables_there

Jobs = dict[str, list[tuple[Any, ...]]]

CASES_A_CHUNK = 1000  # cases that one process draws from one random generator


@dataclass(frozen=True)
class Check:
    """The random cases of each lemma, up to `most_tokens`, and the list lengths for the least n."""

    seed: Seed
    n_cases: Annotated[int, Interval("[1, 10000000]")]
    most_tokens: Annotated[int, Interval("[4, 9]")]
    list_lengths: tuple[Annotated[int, Interval("[1, 16]")], ...]


def main(section: str, checked: OutFolder) -> None:
    use_threads(1)
    params = read_params(section, Check)
    starts = range(0, params.n_cases, CASES_A_CHUNK)
    jobs: Jobs = {name: [(sample, name, start, params) for start in starts] for name in QUESTIONS}
    jobs["feasible"] = [(feasible, length) for length in params.list_lengths]
    write_tables_there(FOLDER, spread_cells(jobs, label=section, unit="job"), checked)


def sample(question: str, start: int, params: Check) -> Tables:
    """One chunk of random cases of one question, from the case `start` on."""
    draw = generator(params.seed, question.replace("_", " "), start // CASES_A_CHUNK)
    wanted = min(CASES_A_CHUNK, params.n_cases - start)
    rows: list[dict[str, Any]] = []
    while len(rows) < wanted:
        rows += QUESTIONS[question](draw, params.most_tokens)
    return {question: pd.DataFrame(rows[:wanted])}


def feasible(length: int) -> Tables:
    """The least n at which part 2 can be met, whichever ε is chosen, for lists of that length."""
    row = {"length": length, "least_n": least_feasible_length(length)}
    return {"feasible": pd.DataFrame([row])}


if __name__ == "__main__":
    run(main)
