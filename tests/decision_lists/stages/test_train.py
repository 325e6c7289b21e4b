"""The trainings of the stage, repeated in plain autograd from the same draws, and measured over
every sequence.
"""

import itertools
import math

import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.decision_lists.decision_lists_made import Brute, certified, task, write_tasks
from tests.stages.made import files, generator, read_run, table

SECTION = "decision_lists.train"
FIRST = task(
    "joint-0",
    "joint",
    4,
    2,
    "3 1 0 / 2 1 / 2 / 1 3",
    "2 0 3 1",
    "5 1 3 2 7 4",
    law="first law",
    use="joint",
)
SECOND = task(
    "joint-1",
    "joint",
    3,
    2,
    "1 0 / 2 1 / 2",
    "1 2 0",
    "1 6 4",
    law="second law",
    use="joint",
)
EASY = task(
    "easy",
    "easy",
    4,
    3,
    "1 0 / 2 3 1 / 2 / 0 3",
    "3 0 2 1",
    "9 4 8 5",
    law="third law",
    use="starts",
)
FAILING = FIRST | {"name": "failing", "group": "failing", "use": "starts"}
EVEN = EASY | {"name": "even", "use": "alignment"}
TWICE = task(
    "twice",
    "twice",
    3,
    3,
    "2 1 0 / 0 1 / 2",
    "2 0 1",
    "1 4 3 2",
    repeats=True,
    law="triples",
    use="alignment",
)
OTHER = FIRST | {"name": "other", "use": "controls"}
TASKS = (TWICE, SECOND, EASY, OTHER, EVEN, FIRST, FAILING)
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
    arguments = (
        write_tasks(folder / "tasks", *TASKS),
        folder / "starts.tsv",
        folder / "tables",
        folder / "runs",
    )
    stage("decision_lists.train", {SECTION: params}, SECTION, *arguments)


KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    """Every table and run that the stage makes, in folders with something old in them."""
    if not KEPT:
        for old in ("tables/old.parquet", "runs/old/steps.parquet"):
            write_tasks(tmp_path / old, FIRST)
        train(stage, tmp_path)
        KEPT.update({file.stem: pd.read_parquet(file) for file in (tmp_path / "tables").iterdir()})
        KEPT["runs"] = {folder.name: read_run(folder) for folder in (tmp_path / "runs").iterdir()}
        KEPT["files"] = files(tmp_path / "tables")
    return KEPT


def descent(brute, W, V, rate, moving=(1, 1)):
    """The weights at every step, with their gradients."""
    while True:
        gradients = brute.gradients(W, V)
        yield (W, V), gradients
        W, V = (X - rate * m * g for X, g, m in zip((W, V), gradients, moving, strict=True))


def cosine(A, B):
    norms = float((A**2).sum().sqrt() * (B**2).sum().sqrt())
    return float((A * B).sum()) / norms if norms else 0.0


def measured(brute, W, V):
    centred = [X - X.mean(0) for X in (V, brute.P)]
    row = {
        "accuracy": brute.accuracy(W, V),
        "cosine": cosine(V, brute.P),
        "centred_cosine": cosine(*centred),
    }
    row["argmax_right"] = (
        sum(int(V[:, b].argmax()) == brute.pi[b] for b in range(brute.L)) / brute.L
    )
    return row | {"attention_to_star": float(brute.weight @ brute.attention_to_star(W))}


def start_weights(one, start, seed):
    L, draw = one["n_tokens"], generator(seed, "start", one["name"], start["name"])

    def normal():
        return torch.randn(L, L, generator=draw, dtype=torch.float64)

    W, P = start["W_scale"] * normal(), Brute(one).P
    if (
        start["W"] == "reverse order"
    ):  # the head of a list lowest, its last entry one scale below the others
        W = torch.zeros(L, L, dtype=torch.float64)
        for a, entries in enumerate(one["lists"]):
            for place, b in enumerate(entries):
                W[b, a] = -start["W_scale"] * (len(entries) - place)
    if start["V"] == "gaussian":
        return W, start["V_scale"] * normal()
    wrong = torch.zeros_like(P)
    for b in range(L):
        wrong[(one["permutation"][b] + 1) % L, b] = 1
    return W, start["V_scale"] * {"P": P, "-P": -P, "wrong P": wrong}[start["V"]] + 0.01 * normal()


def course(one, start, seed, n_steps, whole):
    """The rows of a descent on W and V, and its weights at every step."""
    brute, rows, path = Brute(one), [], []
    found = descent(
        brute, *start_weights(one, start, seed), PARAMS["step_per_token"] * one["n_tokens"]
    )
    for step, ((W, V), gradients) in enumerate(itertools.islice(found, n_steps + 1)):
        path.append((W, V))
        if step % PARAMS["every"] == 0 or step == n_steps:
            row = {"step": step, "loss": float(brute.loss(W, V)), **measured(brute, W, V)}
            row |= {
                f"certified_{name}": certified(one, W, V, name == "all") for name in ("sets", "all")
            }
            row["gradient"] = math.sqrt(sum(float((g**2).sum()) for g in gradients))
            row |= {"task": one["name"], "start": start["name"], "seed": seed, "law": one["law"]}
            longest = max(len(entries) for entries in one["lists"])
            rows.append(row | {"n_tokens": one["n_tokens"], "length": longest})
            if not whole and row["accuracy"] > 1 - 1e-12:
                break
    return rows, path


def equal(found, rows):
    pd.testing.assert_frame_equal(found, pd.DataFrame(rows), rtol=1e-8, atol=1e-12)


def test_joint_training_is_descent_on_both_from_small_gaussian_weights(tables):
    rows = []
    start = {
        "name": "small Gaussian",
        "W": "gaussian",
        "W_scale": 0.4,
        "V": "gaussian",
        "V_scale": 0.4,
    }
    for one in (SECOND, FIRST):
        layout, snapshots, steps = tables["runs"][one["name"]]
        cell = {"task": one["name"], "group": "joint", "law": one["law"], "init_scale": 0.4}
        assert layout == {
            "family": "decision_lists",
            "matrices": {"W": ["seed", "row", "col"], "V": ["seed", "row", "col"]},
            "products": {},
            "gauge": {"W": "column shift"},
            "cell": cell,
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
    assert tables["runs"].keys() == {"joint-0", "joint-1"}


def test_other_starts_are_followed_until_all_is_right(tables):
    cells = itertools.product((EASY, FAILING), STARTS, (0, 1))
    found = [course(one, start, seed, 21, False)[0] for one, start, seed in cells]
    assert {rows[-1]["step"] for rows in found} > {8, 21}
    assert {(rows[-1]["certified_sets"], rows[-1]["certified_all"]) for rows in found} == {
        (True, True),
        (True, False),
        (False, False),
    }
    equal(tables["starts"], [row for rows in found for row in rows])


def test_alignment_is_descent_on_the_labels_under_uniform_attention(tables):
    rows = []
    for one in (TWICE, EVEN):
        brute = Brute(one)
        path = descent(brute, 0 * brute.P, 0 * brute.P, 4 * one["n_tokens"], (0, 1))
        for step, ((W, V), _) in enumerate(itertools.islice(path, 7)):
            if step in (1, 2, 4, 6):
                row = {"step": step, "loss": float(brute.loss(W, V))}
                row["along_P"] = float((V * brute.P).sum()) / (step * 4 * one["n_tokens"])
                row["least_rate"] = 1 / one["seq_len"] - 1 / one["n_tokens"]
                row |= {**measured(brute, W, V), "task": one["name"]}
                row |= {"law": one["law"], "length": max(len(entries) for entries in one["lists"])}
                rows.append(row | {"repeats": one["repeats"]})
    equal(tables["alignment"], rows)


def minibatches(seed):
    settings = PARAMS["minibatch"]
    L, n, draw = settings["n_tokens"], settings["seq_len"], generator(seed, "minibatch")
    orders = [torch.randperm(L, generator=draw).tolist() for _ in range(L)]
    lists = [
        [*[b for b in order if b != a][: settings["list_length"] - 1], a]
        for a, order in enumerate(orders)
    ]
    pi = list(range(L))
    while all(pi[pi[b]] == b for b in range(L)):
        pi = torch.randperm(L, generator=draw).tolist()
    W, V = (
        settings["init_scale"] * torch.randn(L, L, generator=draw, dtype=torch.float64)
        for _ in range(2)
    )
    sets = list(itertools.combinations(range(L), n))
    one = task("any", "any", L, n, lists, pi, [1])
    for step in range(1, settings["n_steps"] + 1):
        keys = torch.rand(settings["batch_size"], L, generator=draw)
        drawn = [tuple(sorted(row.argsort()[:n].tolist())) for row in keys]
        brute = Brute(one | {"probability": [drawn.count(s) / len(drawn) for s in sets]})
        loss, gradients = float(brute.loss(W, V)), brute.gradients(W, V)
        rate = (
            settings["learning_rate"]
            * (1 + math.cos(math.pi * (step - 1) / settings["n_steps"]))
            / 2
        )
        W, V = (X - rate * g for X, g in zip((W, V), gradients, strict=True))
        if step % settings["certify_every"] == 0 or step == settings["n_steps"]:
            row = {"step": step, "loss": loss}
            row |= {
                f"certified_{name}": certified(one, W, V, name == "all") for name in ("sets", "all")
            }
            yield row | {"seed": seed, "n_tokens": L, "batch_size": settings["batch_size"]}


def test_minibatches_are_fresh_subsets_and_their_weights_are_certified(tables):
    rows = [row for seed in (1, 2, 3) for row in minibatches(seed)]
    assert {(row["certified_sets"], row["certified_all"]) for row in rows} == {
        (True, False),
        (False, False),
    }
    equal(tables["minibatch"], rows)


def test_what_is_written_is_nothing_else(tables):
    names = ("alignment", "joint", "minibatch", "starts")
    assert tables["files"] == [f"{name}.parquet" for name in names]


@pytest.mark.parametrize(
    ("section", "changed", "said"),
    [
        (
            "minibatch",
            {"seq_len": 7},
            "n_tokens: wanted at least 2, seq_len and list_length, got 6",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(stage, tmp_path, section, changed, said):
    with pytest.raises(InputError, match=said):
        train(stage, tmp_path, **{section: changed})
    assert files(tmp_path) == ["params.yaml", "starts.tsv", "tasks"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "small"}, "starts.tsv: line 3: wanted a case of its own, got 'small' again"),
    ],
)
def test_starts_that_make_no_sense_are_refused(stage, tmp_path, changed, said):
    with pytest.raises(InputError, match=said):
        train(stage, tmp_path, [STARTS[0], STARTS[1] | changed])
    assert files(tmp_path) == ["params.yaml", "starts.tsv", "tasks"]
