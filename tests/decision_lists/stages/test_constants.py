"""The constants of the stage, and gradients from samples, against sums over every sequence."""

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.decision_lists.decision_lists_made import (
    Brute,
    equal,
    rarest,
    rarest_class,
    read_tables,
    task,
)
from tests.stages.made import files, generator

SECTION = "decision_lists.constants"
# Lists, and the chance of each pair of four tokens.
LISTS = "1 0 / 2 3 1 / 2 / 3"
PAIRS = [a * b for a, b in itertools.combinations((1, 2, 3, 4), 2)]
ONE = task("one", 2, LISTS, "0 1 2 3", PAIRS)
TWO = task("two", 2, LISTS, "0 1 2 3", "0 3 0 1 2 0")
LAWS = {"one": "frequencies 1 2 3 4", "two": "sequences 0 2 = 3 / 1 2 = 1 / 1 3 = 2"}
PARAMS = {
    "seed": 9,
    "list_lengths": [2, 1],
    "monte_carlo_samples": [50, 7],
    "monte_carlo_repeats": 2,
    "monte_carlo_task": "one",
}
# The theorem's least sequence lengths, from docs/decision_lists.md.
FEASIBLE = {1: 19, 2: 29}
NAMES = ["P_min", "delta", "gamma", "c", "bound"]
NAMES += ["P_set", "epsilon", "c_of_part_2", "earliest", "latest"]
# Only laid beside what is computed; gamma is the stage's own.
BY_HAND = {"one": [1, 2, 9, 4, 5, 6, 7, 8, 9, 10], "two": [0.5, 0.5, 9, *7 * [0.5]]}


def constants(one):
    """What the theorems say, with L_0 = log n at W = 0, where c/n is large."""
    P, L, n, m = rarest(one), 4, 2, 3
    P_set = rarest_class(one)
    epsilon, L_0 = n * math.log(n) / 18, math.log(n)
    values = [P, P / n, 9, 4 * n * n * math.log(L) / P, 4 * m / (9 * math.log(L)), P_set, epsilon]
    values.append(10 * n * n * L_0 / P_set + 4 * epsilon * n)
    values += [2 * m * L_0 / (2 / 3 * L_0) ** 2, epsilon / 2]
    return dict(zip(NAMES, values, strict=True))


def write_constants(file, by_hand):
    rows = [
        {"name": name, "n_tokens": 4, "seq_len": 2, "lists": LISTS, "law": LAWS[name]}
        | dict(zip(NAMES, values, strict=True))
        for name, values in by_hand.items()
    ]
    pd.DataFrame(rows).drop(columns="gamma").to_csv(file, sep="\t", index=False)
    return file


def run(stage, folder, **changed):
    file = write_constants(folder / "constants.tsv", BY_HAND)
    stage("decision_lists.constants", {SECTION: PARAMS | changed}, SECTION, file, folder / "tables")


def test_constants_lengths_and_gradients(stage, tmp_path):
    run(stage, tmp_path)
    found = read_tables(tmp_path / "tables")
    rows = []
    for one in (ONE, TWO):
        for (name, value), hand in zip(constants(one).items(), BY_HAND[one["name"]], strict=True):
            row = {"constant": name, "found": value, "by_hand": float(hand)}
            rows.append(row | {"task": one["name"]})
    equal(found["constants"], rows)
    equal(found["feasible"], [{"length": m, "least_n": FEASIBLE[m]} for m in (2, 1)])
    equal(found["monte_carlo"], samples())


def samples():
    brute, chances = Brute(ONE), torch.tensor(ONE["probability"], dtype=torch.float64)
    exact = brute.gradients(0 * brute.P, 10 * brute.P)[0]
    for n_samples, number in itertools.product([50, 7], range(2)):
        draw = generator(9, "monte carlo", n_samples, number)
        seen = torch.multinomial(chances, n_samples, replacement=True, generator=draw).tolist()
        share = [seen.count(k) / n_samples for k in range(len(chances))]
        found = Brute(ONE | {"probability": share}).gradients(0 * brute.P, 10 * brute.P)[0]
        error = ((found - exact) ** 2).sum().sqrt() / (exact**2).sum().sqrt()
        yield {"n_samples": n_samples, "error": float(error)}


def test_a_task_that_is_not_there_is_refused(stage, tmp_path):
    with pytest.raises(
        InputError, match=r"monte_carlo_task: wanted one of \['one', 'two'\], .* got 'third'"
    ):
        run(stage, tmp_path, monte_carlo_task="third")
    assert files(tmp_path) == ["constants.tsv", "params.yaml"]


def test_the_constants_of_six_small_tasks_are_those_derived_by_hand(stage, tmp_path):
    """The bounds are too loose for a run to notice a wrong factor: this would."""
    by_hand = Path(__file__).parents[3] / "stages/decision_lists/constants.tsv"
    params = PARAMS | {"list_lengths": [1], "monte_carlo_task": "m = 1"}
    stage("decision_lists.constants", {SECTION: params}, SECTION, by_hand, tmp_path / "tables")
    found = pd.read_parquet(tmp_path / "tables" / "constants.parquet")
    assert len(found) == 6 * len(NAMES)
    np.testing.assert_allclose(found["found"], found["by_hand"], rtol=1e-8)
