"""The toy tasks are the draws of every seed's purposes, and a teacher's answers, computed token by
token.
"""

import math

import pytest
import torch
from safetensors import safe_open

from lib.files.files import InputError
from tests.stages.made import files, generator

HEADER = [
    "name",
    "n_seeds",
    "first_seed",
    "n_samples",
    "seq_len",
    "d_model",
    "n_layers",
    "n_heads",
    "d_mlp",
    "frames",
    "teacher",
    "start",
    "n_times",
]
HEADS = {
    "one": (2, 6, 3, 4, 2, "gaussian"),
    "two": (1, 0, 2, 3, 3, "uniform"),
}  # sizes, and the law of the teacher
TABLE = [
    ["one", 2, 6, 3, 4, 2, "", "", "", "", "gaussian", "uniform", "[1, 2]"],
    ["two", 1, 0, 2, 3, 3, "", "", "", "", "uniform", "gaussian", "[]"],
    ["free", 1, 3, 2, 2, 2, 2, 2, 3, "own", "gaussian", "gaussian", ""],
    ["bound", 1, 3, 2, 2, 2, 1, 3, 4, "common", "gaussian", "gaussian", ""],
    ["plain", 1, 3, 2, 2, 2, 3, 2, 4, "standard", "gaussian", "gaussian", ""],
]


def write(folder, rows):
    """A table of problems; it has columns that other stages read."""
    lines = ["# a comment", "\t".join(HEADER), *("\t".join(map(str, row)) for row in rows)]
    (folder / "problems.tsv").write_text("\n".join(lines))
    return folder / "problems.tsv"


def make(stage, folder, rows=TABLE, **usual):
    stage("gradual_rank.generate", {"a.usual": usual}, "a.usual", write(folder, rows), folder / "t")
    found = {}
    for file in sorted((folder / "t").iterdir()):
        with safe_open(file, "pt") as opened:
            found[file.stem] = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 (no mapping)
    return found


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
    found = make(stage, tmp_path)
    assert sorted(found) == ["bound", "free", "one", "plain", "two"]
    for name, (n_seeds, first, n_samples, seq_len, d, law) in HEADS.items():
        task, seeds = found[name], [*range(first, first + n_seeds)]
        assert task.keys() == {"seeds", "X", "Y", "teacher", "u", "v"}
        assert task["seeds"].dtype == torch.int64
        assert task["seeds"].tolist() == seeds
        assert {len(tensor) for tensor in task.values()} == {n_seeds}
        for i, seed in enumerate(seeds):
            X = torch.randn(
                (n_samples, seq_len, d), generator=generator(seed, "tokens"), dtype=torch.float64
            )
            u, v = pair(law, 2 * d, seed, "teacher")
            start = pair({"gaussian": "uniform", "uniform": "gaussian"}[law], 2 * d, seed, "start")
            assert torch.equal(task["X"][i], X)
            torch.testing.assert_close(task["teacher"][i], u * v, rtol=1e-14, atol=1e-16)
            torch.testing.assert_close(
                torch.stack([task["u"][i], task["v"][i]]), start, rtol=1e-13, atol=1e-15
            )
            Y = torch.stack([head(sequence, u * v) for sequence in X])
            torch.testing.assert_close(task["Y"][i], Y, rtol=1e-11, atol=1e-13)


def test_a_transformer_has_frames_and_frozen_blocks_and_adds_what_its_heads_say(stage, tmp_path):
    found = make(stage, tmp_path)
    sizes = {"free": (2, 2, 3), "bound": (1, 3, 4), "plain": (3, 2, 4)}
    for name, (n_layers, n_heads, d_mlp) in sizes.items():
        task = found[name]
        frames, W_1, W_2 = (task[part][0] for part in ("frames", "W_1", "W_2"))
        assert (frames.shape, W_1.shape, W_2.shape) == (
            (n_layers, n_heads, 2, 2),
            (n_layers, 2, d_mlp),
            (n_layers, d_mlp, 2),
        )
        torch.testing.assert_close(
            frames @ frames.mT, torch.eye(2).double().expand(n_layers, n_heads, 2, 2)
        )
        assert torch.equal(frames[:, 0], frames[:, 1]) == (name != "free")
        basis = torch.eye(2).double().expand_as(frames)
        assert torch.equal(frames, basis) == (name == "plain")
        for X, Y in zip(task["X"][0], task["Y"][0], strict=True):
            for layer in range(n_layers):
                p = task["teacher"][0].reshape(n_layers, n_heads, 4)[layer]
                said = [head(X @ Q, q) @ Q.T for Q, q in zip(frames[layer], p, strict=True)]
                X = X + torch.stack(said).sum(0)
                hidden = X @ W_1[layer]
                X = X + (hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2) @ W_2[layer]
            torch.testing.assert_close(X, Y, rtol=1e-11, atol=1e-13)


def test_what_a_line_leaves_empty_is_as_usual(stage, tmp_path):
    usual = {"n_seeds": 1, "n_samples": 3, "d_model": 9, "start": "uniform", "max_stages": 5}
    first, *others = TABLE
    line = [first[0], "", first[2], "", *first[4:11], "", *first[12:]]
    found = make(stage, tmp_path, [line, *others], **usual)
    whole = make(stage, tmp_path, [[first[0], 1, *first[2:]], *others])
    assert found["one"].keys() == whole["one"].keys()
    assert all(
        torch.equal(found[name][key], whole[name][key]) for name in whole for key in whole[name]
    )


def test_a_task_without_seeds_is_refused(stage, tmp_path):
    rows = [[*TABLE[0]], [*TABLE[1]]]
    rows[1][1] = 0
    with pytest.raises(
        InputError, match=r"problems\.tsv: line 4, column n_seeds: wanted a number in .*, got 0"
    ):
        make(stage, tmp_path, rows)
    assert files(tmp_path) == ["params.yaml", "problems.tsv"]


def test_half_a_transformer_is_refused(stage, tmp_path):
    rows = [[*TABLE[2]]]
    rows[0][HEADER.index("d_mlp")] = ""
    with pytest.raises(InputError, match=r"wanted all of .* for a transformer, or none for a head"):
        make(stage, tmp_path, rows)
