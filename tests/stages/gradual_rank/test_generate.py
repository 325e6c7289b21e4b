"""The toy tasks are the draws of every seed's purposes, and a teacher's answers, computed token by token."""

import math

import pytest
import torch
from made import files, generator
from safetensors import safe_open

from lib.io.files import InputError

SMALL = {"n_seeds": 2, "first_seed": 6, "n_samples": 3, "d_model": 2}
PAPER = {"n_seeds": 1, "n_samples": 2, "d_model": 3}
PARAMS = {"small": SMALL, "paper": PAPER, "seq_len": 4}
SEEDS = {"small": [6, 7], "paper": [0]}


def answer(X, p):
    """What a diagonal head says of one sequence, product by product."""
    length, d = X.shape
    Y = torch.zeros_like(X)
    for i in range(length):
        logits = [sum(float(p[m] * X[i, m] * X[j, m]) for m in range(d)) for j in range(length)]
        total = sum(math.exp(logit) for logit in logits)
        for j in range(length):
            Y[i] += math.exp(logits[j]) / total * X[j] * p[d:]
    return Y


def test_a_task_holds_the_draws_of_its_seeds_and_the_answers_of_their_teachers(stage, tmp_path):
    stage("gradual_rank.generate", {"any.generate": PARAMS}, "any.generate", tmp_path / "t")
    assert files(tmp_path) == ["params.yaml", "t/paper.safetensors", "t/small.safetensors"]
    for name, task in {"small": SMALL, "paper": PAPER}.items():
        with safe_open(tmp_path / "t" / f"{name}.safetensors", "pt") as opened:
            found = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 (no mapping)
        assert found.keys() == {"seeds", "X", "Y", "teacher", "u", "v"}
        assert found["seeds"].dtype == torch.int64
        assert found["seeds"].tolist() == SEEDS[name]
        assert {len(tensor) for tensor in found.values()} == {len(SEEDS[name])}
        size, d = (task["n_samples"], 4, task["d_model"]), task["d_model"]
        for i, seed in enumerate(SEEDS[name]):
            X = torch.randn(size, generator=generator(seed, "tokens"), dtype=torch.float64)
            u, v = torch.randn(2, 2 * d, generator=generator(seed, "teacher"), dtype=torch.float64)
            start = torch.randn(2, 2 * d, generator=generator(seed, "start"), dtype=torch.float64)
            assert torch.equal(found["X"][i], X)
            torch.testing.assert_close(found["teacher"][i], u * v, rtol=1e-14, atol=0)
            assert torch.equal(torch.stack([found["u"][i], found["v"][i]]), start)
            Y = torch.stack([answer(sequence, u * v) for sequence in X])
            torch.testing.assert_close(found["Y"][i], Y, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["small", "paper"])
def test_a_task_without_seeds_is_refused(stage, tmp_path, name):
    tasks = {**PARAMS, name: {**PARAMS[name], "n_seeds": 0}}
    with pytest.raises(InputError, match=rf"any\.generate\.{name}\.n_seeds: wanted a number in .*, got 0"):
        stage("gradual_rank.generate", {"any.generate": tasks}, "any.generate", tmp_path / "t")
    assert files(tmp_path) == ["params.yaml"]


def test_what_is_printed_names_every_task_with_its_seeds_and_sequences(stage, tmp_path, capsys):
    stage("gradual_rank.generate", {"any.generate": PARAMS}, "any.generate", tmp_path / "t")
    assert capsys.readouterr().out == "small: 2 seeds of 3 sequences\npaper: 1 seeds of 2 sequences\n"
