"""The trainings of the stage, repeated in plain autograd from the same draws, and measured over
every sequence.
"""

import itertools
import math

import pytest
import torch

from lib.files.files import InputError
from tests.decision_lists.decision_lists_made import (
    EASY,
    NEAR,
    SMALL,
    TWICE,
    Brute,
    certified,
    equal,
    longest,
    ordered,
    random_lists,
    random_permutation,
    read_tables,
    task,
    write_tasks,
)
from tests.stages.made import files, generator, read_run, table

SECTION = "decision_lists.train"
JOINT = [one | {"use": "joint"} for one in (SMALL, NEAR)]
BEGUN = [EASY | {"use": "starts"}, NEAR | {"name": "failing", "use": "starts"}]
ALIGNED = [TWICE | {"use": "alignment"}, EASY | {"name": "even", "use": "alignment"}]
TASKS = (*ALIGNED, NEAR | {"name": "idle"}, *BEGUN, *JOINT)
STARTS = table("""
name     W               W_scale V        V_scale
small    gaussian        .3      gaussian .2
reverse  'reverse order' 2       P        3
negative gaussian        0       -P       1.5
wrong    gaussian        .5      'wrong P' 2
""").to_dict("records")
PARAMS = {
    "step_per_token": 4,
    "every": 4,
    "joint": {"init_scale": 0.4, "first_seed": 6, "n_seeds": 2, "n_steps": 18},
    "starts": {"n_seeds": 2, "n_steps": 21},
    "alignment_steps": 6,
    "minibatch": {
        "n_tokens": 6,
        "seq_len": 3,
        "list_length": 3,
        "init_scale": 0.3,
        "batch_size": 9,
        "learning_rate": 15,
        "n_steps": 16,
        "certify_every": 3,
        "first_seed": 1,
        "n_seeds": 3,
    },
}


def train(stage, folder, starts=STARTS, **changed):
    params = PARAMS | {name: PARAMS[name] | values for name, values in changed.items()}
    lines = ["\t".join(STARTS[0]), *("\t".join(map(str, start.values())) for start in starts)]
    (folder / "starts.tsv").write_text("\n".join(lines) + "\n")
    inputs = write_tasks(folder / "tasks", *TASKS), folder / "starts.tsv"
    outs = folder / "tables", folder / "runs"
    stage("decision_lists.train", {SECTION: params}, SECTION, *inputs, *outs)


KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    """Every table and run that the stage makes, in folders with something old in them."""
    if not KEPT:
        write_tasks(tmp_path / "runs/old/steps.parquet", NEAR)
        train(stage, tmp_path)
        KEPT.update(read_tables(tmp_path / "tables"))
        KEPT["runs"] = {folder.name: read_run(folder) for folder in (tmp_path / "runs").iterdir()}
    return KEPT


def descent(brute, W, V, rate, moving=(1, 1)):
    """The weights at every step."""
    while True:
        gradients = brute.gradients(W, V)
        yield W, V
        W, V = (X - rate * m * g for X, g, m in zip((W, V), gradients, moving, strict=True))


def cosine(A, B):
    norms = float((A**2).sum().sqrt() * (B**2).sum().sqrt())
    return float((A * B).sum()) / norms if norms else 0.0


def measured(brute, W, V):
    centred = [X - X.mean(0) for X in (V, brute.P)]
    row = {"accuracy": brute.accuracy(W, V), "cosine": cosine(V, brute.P)}
    row["centred_cosine"] = cosine(*centred)
    row["argmax_right"] = sum(int(V[:, b].argmax()) == y for b, y in enumerate(brute.pi)) / brute.L
    return row


def start_weights(one, start, seed):
    L, draw = one["n_tokens"], generator(seed, "start", one["name"], start["name"])

    def normal():
        return torch.randn(L, L, generator=draw, dtype=torch.float64)

    W, P = start["W_scale"] * normal(), Brute(one).P
    if start["W"] == "reverse order":  # the head of a list lowest
        W = -start["W_scale"] * ordered(one["lists"])
    if start["V"] == "gaussian":
        return W, start["V_scale"] * normal()
    wrong = torch.zeros_like(P)
    for b in range(L):
        wrong[(one["permutation"][b] + 1) % L, b] = 1
    return W, start["V_scale"] * {"P": P, "-P": -P, "wrong P": wrong}[start["V"]] + 0.01 * normal()


def course(one, start, seed, n_steps, whole):
    """The rows of a descent on W and V, and its weights at every step."""
    brute, rows, path = Brute(one), [], []
    rate = PARAMS["step_per_token"] * one["n_tokens"]
    found = descent(brute, *start_weights(one, start, seed), rate)
    for step, (W, V) in enumerate(itertools.islice(found, n_steps + 1)):
        path.append((W, V))
        if step % PARAMS["every"] == 0 or step == n_steps:
            row = {"step": step, "loss": float(brute.loss(W, V)), **measured(brute, W, V)}
            row["certified_all"] = certified(one, W, V)["certified_all"]
            row |= {"task": one["name"], "start": start["name"], "seed": seed, "law": one["law"]}
            rows.append(row | {"n_tokens": one["n_tokens"], "length": longest(one)})
            if not whole and row["accuracy"] > 1 - 1e-12:
                break
    return rows, path


def test_joint_training_is_descent_on_both_from_small_gaussian_weights(tables):
    rows = []
    start = STARTS[0] | {"name": "small Gaussian", "W_scale": 0.4, "V_scale": 0.4}
    for one in JOINT:
        layout, snapshots, steps = tables["runs"][one["name"]]
        cell = {name: one[name] for name in ("group", "law")}
        assert layout == {
            "family": "decision_lists",
            "matrices": {"W": ["seed", "row", "col"], "V": ["seed", "row", "col"]},
            "products": {},
            "gauge": {"W": "column shift"},
            "cell": cell | {"task": one["name"], "init_scale": 0.4},
            "seeds": [6, 7],
            "format": "transformer dynamics run 1",
        }
        courses = [course(one, start, seed, 18, True) for seed in (6, 7)]
        rows += [row for found, _ in courses for row in found]
        kept = []
        for number, (step, weights) in enumerate(
            zip([0, 1, 2, 4, 8, 16, 18], snapshots, strict=True)
        ):
            W, V = (torch.stack([path[step][i] for _, path in courses]) for i in (0, 1))
            torch.testing.assert_close(weights, {"W": W, "V": V}, rtol=1e-8, atol=1e-12)
            for seed, (_, path) in zip((6, 7), courses, strict=True):
                loss = float(Brute(one).loss(*path[step]))
                kept.append({"snapshot": number, "seed": seed, "step": step, "loss": loss})
        equal(steps, kept)
    equal(tables["joint"], rows)
    assert tables["runs"].keys() == {one["name"] for one in JOINT}


def test_other_starts_are_followed_until_all_is_right(tables):
    cells = itertools.product(BEGUN, STARTS, (0, 1))
    found = [course(one, start, seed, 21, False)[0] for one, start, seed in cells]
    assert {rows[-1]["step"] for rows in found} > {8, 21}
    assert {rows[-1]["certified_all"] for rows in found} == {True, False}
    equal(tables["starts"], [row for rows in found for row in rows])


def test_alignment_is_descent_on_the_labels_under_uniform_attention(tables):
    rows = []
    for one in ALIGNED:
        brute = Brute(one)
        path = descent(brute, 0 * brute.P, 0 * brute.P, 4 * one["n_tokens"], (0, 1))
        for step, (W, V) in enumerate(itertools.islice(path, 7)):
            if step in (1, 2, 4, 6):
                row = {"step": step, "loss": float(brute.loss(W, V))}
                row["along_P"] = float((V * brute.P).sum()) / (step * 4 * one["n_tokens"])
                after = [
                    (label + 1) % brute.L for label in brute.pi
                ]  # a wrong label for each token
                along = sum(float(V[label, b]) for b, label in enumerate(after))
                row["along_wrong_P"] = along / (step * 4 * one["n_tokens"])
                top = V.argmax(0).tolist()
                hits = [got == label for got, label in zip(top, after, strict=True)]
                row["argmax_wrong"] = sum(hits) / brute.L
                row["least_rate"] = 1 / one["seq_len"] - 1 / one["n_tokens"]
                row |= {**measured(brute, W, V), "task": one["name"]}
                row |= {"law": one["law"], "length": longest(one)}
                rows.append(row | {"repeats": one["repeats"]})
    equal(tables["alignment"], rows)


def minibatches(seed):
    settings = PARAMS["minibatch"]
    L, n, draw = settings["n_tokens"], settings["seq_len"], generator(seed, "minibatch")
    lists = random_lists(L, settings["list_length"], draw)
    pi = random_permutation(L, draw)
    W, V = (
        settings["init_scale"] * torch.randn(L, L, generator=draw, dtype=torch.float64)
        for _ in range(2)
    )
    sets = list(itertools.combinations(range(L), n))
    one = task("any", n, lists, pi, [1])
    for step in range(1, settings["n_steps"] + 1):
        keys = torch.rand(settings["batch_size"], L, generator=draw)
        drawn = [tuple(sorted(row.argsort()[:n].tolist())) for row in keys]
        brute = Brute(one | {"probability": [drawn.count(s) / len(drawn) for s in sets]})
        loss, gradients = float(brute.loss(W, V)), brute.gradients(W, V)
        half = (1 + math.cos(math.pi * (step - 1) / settings["n_steps"])) / 2
        rate = settings["learning_rate"] * half
        W, V = (X - rate * g for X, g in zip((W, V), gradients, strict=True))
        if step % settings["certify_every"] == 0 or step == settings["n_steps"]:
            row = {"step": step, "loss": loss, **certified(one, W, V)}
            yield row | {"seed": seed, "n_tokens": L, "batch_size": settings["batch_size"]}


def test_minibatches_are_fresh_subsets_and_their_weights_are_certified(tables):
    rows = [row for seed in (1, 2, 3) for row in minibatches(seed)]
    assert {(row["certified_sets"], row["certified_all"]) for row in rows} == {
        (True, False),
        (False, False),
    }
    equal(tables["minibatch"], rows)


def test_sizes_that_do_not_fit_are_refused(stage, tmp_path):
    message = "n_tokens: wanted at least 2, seq_len and list_length, got 6"
    with pytest.raises(InputError, match=message):
        train(stage, tmp_path, minibatch={"seq_len": 7})
    assert files(tmp_path) == ["params.yaml", "starts.tsv", "tasks"]
