"""The controls of the stage, repeated in plain autograd and scored on every sequence."""

import itertools
import math

import pandas as pd
import torch

from tests.decision_lists.decision_lists_made import Brute, task, write_tasks
from tests.stages.made import files

FIRST = task(
    "first",
    "some",
    4,
    2,
    "3 1 0 / 2 1 / 2 / 1 3",
    "2 0 3 1",
    "5 1 3 2 7 4",
    use="controls",
)
SECOND = task("second", "some", 3, 2, "1 0 / 2 1 / 2", "1 2 0", "1 6 4", use="controls")
WIDE = task(
    "wide",
    "wide",
    5,
    3,
    "1 2 3 0 / 4 1 / 3 0 2 / 3 / 1 0 4",
    "1 3 4 0 2",
    "50 1 20 1 30 2 90 1 10 3",
    use="controls",
)
OTHER = FIRST | {"name": "other", "use": "joint"}
SECTION = "decision_lists.control"
PARAMS = {"scale": 20, "learning_rate": 0.1, "n_steps": 4}


def adam(loss, weights, rate, n_steps):
    """Weights after steps of Adam whose rate falls to zero by half a cosine."""
    weights = weights.clone().requires_grad_()
    rule = torch.optim.Adam([weights], lr=rate)
    for step in range(n_steps):
        rule.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * step / n_steps)) / 2
        rule.zero_grad()
        loss(weights).backward()
        rule.step()
    return weights.detach()


def outputs_over_queries(tokens, W, V):
    """Log-probabilities of every position's labels where attention is normalised over the queries:
    wrong.
    """
    X = torch.eye(len(W), dtype=torch.float64)[:, tokens]
    return torch.log_softmax(V @ X @ torch.softmax(X.T @ W @ X, 1), 0)


def controls(one, c, rate, n_steps):
    brute, zero = Brute(one), 0 * Brute(one).P
    cP = c * brute.P

    def accuracy(W, V=cP, kept=brute.query >= 0):
        right = brute.logit_margins(W, V) > 0
        return float(brute.weight[right & kept].sum() / brute.weight[kept].sum())

    sequences = []  # chance, tokens, labels
    for s, p in zip(
        itertools.combinations(range(one["n_tokens"]), one["seq_len"]),
        one["probability"],
        strict=True,
    ):
        labels = [brute.pi[next(b for b in one["lists"][a] if b in s)] for a in s]
        sequences.append((p, list(s), torch.tensor(labels)))

    def over_queries(W):
        each = torch.arange(one["seq_len"])
        return -sum(
            p * outputs_over_queries(s, W, cP)[labels, each].mean() for p, s, labels in sequences
        )

    W = adam(lambda W: brute.loss(W, cP), zero, rate, n_steps)
    wrong = adam(over_queries, zero, rate, n_steps)
    head = brute.place == 1
    on_heads = adam(lambda W: (brute.weight * brute.losses(W, cP))[head].sum(), zero, rate, n_steps)
    V = adam(lambda V: brute.loss(zero, V), zero, rate, n_steps)
    right = [
        p * float((outputs_over_queries(s, wrong, cP).argmax(0) == y).double().mean())
        for p, s, y in sequences
    ]
    return {
        "trained": accuracy(W),
        "trained on sequences": accuracy(W),
        "W transposed": accuracy(W.T),
        "softmax over queries": sum(right),
        "only rows whose head is present": accuracy(on_heads),
        "the same, on those rows": accuracy(on_heads, kept=head),
        "W = 0 with the best V": accuracy(zero, V),
    }


def test_controls_are_trained_by_adam_and_scored_on_every_sequence(stage, tmp_path):
    write_tasks(tmp_path / "tables" / "old.parquet", FIRST)
    tasks = write_tasks(tmp_path / "tasks", SECOND, OTHER, WIDE, FIRST)
    stage("decision_lists.control", {SECTION: PARAMS}, SECTION, tasks, tmp_path / "tables")
    rows = []
    for one in (SECOND, WIDE, FIRST):
        found = controls(one, 20, 0.1, 4)
        rows += [
            {"task": one["name"], "control": name, "accuracy": value}
            for name, value in found.items()
        ]
    assert any(row["control"] == "trained" and row["accuracy"] < 1 for row in rows)
    found = pd.read_parquet(tmp_path / "tables" / "controls.parquet")
    pd.testing.assert_frame_equal(found, pd.DataFrame(rows), rtol=1e-8, atol=1e-12)
    assert files(tmp_path) == ["params.yaml", "tables/controls.parquet", "tasks"]


def test_without_a_control_there_is_no_table(stage, tmp_path):
    stage(
        "decision_lists.control",
        {SECTION: PARAMS},
        SECTION,
        write_tasks(tmp_path / "tasks", OTHER),
        tmp_path / "t",
    )
    assert files(tmp_path) == ["params.yaml", "tasks"]
