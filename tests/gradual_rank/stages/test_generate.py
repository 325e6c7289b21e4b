"""The toy tasks are the draws of every seed's purposes, and a teacher's answers, computed token by
token.
"""

import math

import pytest
import torch
from safetensors.torch import load_file

from lib.files.files import InputError
from tests.gradual_rank.gradual_rank_reference import write_problems
from tests.stages.made import generator

SIZES = {"n_seeds": 1, "first_seed": 3, "n_samples": 2, "seq_len": 3, "d_model": 2}
LAWS = {"teacher": "gaussian", "start": "uniform"}
USUAL = LAWS | {"seq_len": 9, "max_stages": 5}  # of what a line leaves empty
HEADS = {
    "one": {**SIZES, "n_seeds": 2, "first_seed": 6, "n_times": "[1, 2]"},
    "two": {**SIZES, "d_model": 3, "teacher": "uniform", "start": "gaussian"},
}
TRANSFORMERS = {
    "free": {"n_layers": 2, "n_heads": 2, "d_mlp": 3, "frames": "own"},
    "bound": {"n_layers": 1, "n_heads": 3, "d_mlp": 4, "frames": "common"},
    "plain": {"n_layers": 3, "n_heads": 2, "d_mlp": 4, "frames": "standard"},
}


def make(stage, folder, problems, usual):
    table = write_problems(folder / "problems.tsv", problems)
    stage("gradual_rank.generate", {"a.usual": usual}, "a.usual", table, folder / "t")
    return {file.stem: load_file(file) for file in sorted((folder / "t").iterdir())}


def head(X, p):
    """What a diagonal head says of one sequence, product by product."""
    length, d = X.shape
    Y = torch.zeros_like(X)
    for i in range(length):
        logits = [sum(float(p[m] * X[i, m] * X[j, m]) for m in range(d)) for j in range(length)]
        total = sum(math.exp(logit) for logit in logits)
        for j in range(length):
            Y[i] += math.exp(logits[j]) / total * X[j] * p[d:]
    return Y


def pair(law, size, *purpose):
    """Two draws of independent entries of variance 1."""
    draw = generator(*purpose)
    if law == "gaussian":
        return torch.randn(2, size, generator=draw, dtype=torch.float64)
    return (torch.rand(2, size, generator=draw, dtype=torch.float64) - 0.5) * math.sqrt(12)


def test_a_task_holds_the_draws_of_its_seeds_and_the_answers_of_their_teachers(stage, tmp_path):
    found = make(stage, tmp_path, HEADS, USUAL)
    for name, line in HEADS.items():
        sizes = USUAL | line
        task = found[name]
        seeds = range(sizes["first_seed"], sizes["first_seed"] + sizes["n_seeds"])
        assert task.keys() == {"seeds", "X", "Y", "teacher", "u", "v"}
        assert task["seeds"].tolist() == list(seeds)
        d = sizes["d_model"]
        for i, seed in enumerate(seeds):
            X = torch.randn(2, 3, d, generator=generator(seed, "tokens"), dtype=torch.float64)
            u, v = pair(sizes["teacher"], 2 * d, seed, "teacher")
            wanted = {"X": X, "teacher": u * v}
            wanted["Y"] = torch.stack([head(sequence, u * v) for sequence in X])
            wanted["u"], wanted["v"] = pair(sizes["start"], 2 * d, seed, "start")
            for key, value in wanted.items():
                torch.testing.assert_close(task[key][i], value, rtol=1e-11, atol=1e-13)


def test_a_transformer_has_frames_and_frozen_blocks_and_adds_what_its_heads_say(stage, tmp_path):
    found = make(stage, tmp_path, TRANSFORMERS, SIZES | LAWS)
    for name, sizes in TRANSFORMERS.items():
        task = found[name]
        n_layers, n_heads, d_mlp, _ = sizes.values()
        frames, W_1, W_2 = (task[part][0] for part in ("frames", "W_1", "W_2"))
        shapes = (n_layers, n_heads, 2, 2), (n_layers, 2, d_mlp), (n_layers, d_mlp, 2)
        assert (frames.shape, W_1.shape, W_2.shape) == shapes
        basis = torch.eye(2).double().expand_as(frames)
        torch.testing.assert_close(frames @ frames.mT, basis)
        assert torch.equal(frames[:, 0], frames[:, 1]) == (name != "free")
        assert torch.equal(frames, basis) == (name == "plain")
        for X, Y in zip(task["X"][0], task["Y"][0], strict=True):
            for layer in range(n_layers):
                p = task["teacher"][0].reshape(n_layers, n_heads, 4)[layer]
                said = [head(X @ Q, q) @ Q.T for Q, q in zip(frames[layer], p, strict=True)]
                X = X + torch.stack(said).sum(0)
                hidden = X @ W_1[layer]
                X = X + (hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2) @ W_2[layer]
            torch.testing.assert_close(X, Y, rtol=1e-11, atol=1e-13)


def test_half_a_transformer_is_refused(stage, tmp_path):
    lines = {"free": TRANSFORMERS["free"] | {"d_mlp": ""}}
    with pytest.raises(InputError, match=r"wanted all of .* for a transformer, or none for a head"):
        make(stage, tmp_path, lines, SIZES | LAWS)


@pytest.mark.parametrize("name", ["forecast", "limit"])
def test_a_problem_has_no_name_that_greedy_gives_to_what_it_computes_beside_them(
    stage, tmp_path, name
):
    lines = {name: TRANSFORMERS["free"]}
    with pytest.raises(InputError, match=f"wanted another than forecast and limit, got {name}"):
        make(stage, tmp_path, lines, SIZES | LAWS)
