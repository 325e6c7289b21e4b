"""The controls of the stage, repeated in plain autograd and scored on every sequence."""

import itertools
import math

import torch

from tests.decision_lists.decision_lists_made import (
    NEAR,
    SMALL,
    Brute,
    equal,
    read_tables,
    task,
    write_tasks,
)

WIDE = task("wide", 3, "1 2 3 0 / 4 1 / 3 0 2 / 3 / 1 0 4", "1 3 4 0 2", "50 1 20 1 30 2 90 1 10 3")
USED = [one | {"use": "controls"} for one in (SMALL, WIDE, NEAR)]
IDLE = NEAR | {"name": "idle"}
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
    """The log-probabilities of every position's labels where attention is, wrongly, normalised over
    the queries.
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
    sets = itertools.combinations(range(one["n_tokens"]), one["seq_len"])
    for s, p in zip(sets, one["probability"], strict=True):
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
    write_tasks(tmp_path / "tables" / "old.parquet", IDLE)
    tasks = write_tasks(tmp_path / "tasks", *USED[:1], IDLE, *USED[1:])
    stage("decision_lists.control", {SECTION: PARAMS}, SECTION, tasks, tmp_path / "tables")
    rows = []
    for one in USED:
        found = controls(one, 20, 0.1, 4).items()
        rows += [{"task": one["name"], "control": name, "accuracy": of} for name, of in found]
    assert any(row["control"] == "trained" and row["accuracy"] < 1 for row in rows)
    tables = read_tables(tmp_path / "tables")
    assert list(tables) == ["controls"]
    equal(tables["controls"], rows)
