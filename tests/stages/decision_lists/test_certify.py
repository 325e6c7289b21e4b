"""The certificates and lemmas of the stage, on the same random cases, against every sequence and autograd."""

import itertools

import pandas as pd
import pytest
import torch
from decision_lists_made import Brute, certified, classes, every_sequence, task, write_tasks
from made import files, generator, write_run

from lib.io.files import InputError

SECTION = "decision_lists.certify"
LISTS, PI, WEIGHTS = [[3, 1, 0], [2, 1], [2], [1, 3]], [2, 0, 3, 1], [5, 1, 3, 2, 7, 4]
FIRST = task("first", "some", 4, 3, LISTS, PI, WEIGHTS, law="first law")
SECOND = task("second", "other", 3, 2, [[1, 0], [2, 1], [2]], [1, 2, 0], [1, 6, 4], law="second law")
TASKS = (SECOND, FIRST)
PARAMS = {
    "seed": 9,
    "n_cases": 60,
    "most_tokens": 5,
    "list_lengths": [3, 1, 8, 5],
    "longest_sequence": 6,
    "monte_carlo_samples": [50, 7],
    "monte_carlo_repeats": 2,
    "monte_carlo_task": "first",
}
# The theorem's least sequence lengths, from docs/decision_lists.md.
FEASIBLE = {1: 19, 2: 29, 3: 38, 4: 45, 5: 52, 8: 72}


def ordered(lists):
    """0 outside of a list, and one more for each place towards its head."""
    W = torch.zeros(len(lists), len(lists), dtype=torch.float64)
    for a, entries in enumerate(lists):
        for place, b in enumerate(entries):
            W[b, a] = len(entries) - place
    return W


def noise(name, *shape):
    return torch.randn(*shape, generator=generator(0, "a test", name), dtype=torch.float64)


def write_runs(folder):
    """Weights of W alone, and of W and V for two seeds, right and wrong, after an earlier snapshot of others."""
    shift = 3 * noise("shift", 1, 4)  # of whole columns, which changes nothing
    alone = [
        {"W": (factor * ordered(LISTS) + part * noise(str(factor), 4, 4) + shift)[None]}
        for factor, part in ((0.5, 0.05), (2.5, 0.3), (0.2, 1))
    ]
    earlier = {name: noise(name, 2, 3, 3) for name in ("W", "V")}
    W = torch.stack([3 * ordered(SECOND["lists"]), 0.3 * ordered(SECOND["lists"])]) + 0.2 * noise("joint", 2, 3, 3)
    last = {"W": W, "V": 3 * Brute(SECOND).P + 0.8 * noise("labels", 2, 3, 3)}
    axes = ["seed", "row", "col"]
    of_first = {"family": "decision_lists", "matrices": {"W": axes}, "cell": {"task": "first"}, "seeds": [4]}
    of_second = of_first | {"matrices": {"W": axes, "V": axes}, "cell": {"task": "second"}, "seeds": [8, 3]}
    rows = [{"snapshot": i, "time": float(i)} for i in (0, 1)]
    for i, name in enumerate("abc"):
        write_run(folder / "flows" / name, of_first, [alone[i - 1], alone[i]], rows)
    write_run(folder / "joint" / "d", of_second, [earlier, last], rows)
    return [*((FIRST, weights, [4]) for weights in alone), (SECOND, last, [8, 3])]


def certify(stage, folder, **changed):
    tasks = write_tasks(folder / "tasks", *TASKS)
    folders = [folder / name for name in ("flows", "joint", "tables")]
    stage("decision_lists.certify", {SECTION: PARAMS | changed}, SECTION, tasks, *folders)


CHUNKS = (35, 25)  # a chunk is made to hold 35 cases
KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path, monkeypatch):
    """Every table that the stage makes, in a folder with something old in it."""
    if not KEPT:
        KEPT["runs"] = write_runs(tmp_path)
        write_tasks(tmp_path / "tables" / "old.parquet", FIRST)
        monkeypatch.setattr("stages.decision_lists.certify.CASES_A_CHUNK", CHUNKS[0])
        certify(stage, tmp_path)
        KEPT["files"] = files(tmp_path / "tables")
        KEPT.update({file.stem: pd.read_parquet(file) for file in (tmp_path / "tables").iterdir()})
    return KEPT


def equal(found, rows, **tolerance):
    pd.testing.assert_frame_equal(found, pd.DataFrame(rows), **({"rtol": 1e-9, "atol": 1e-12} | tolerance))


def fewest_kept(W, perfect):
    """The least number of entries, largest first, with which all is right, and with every larger number too."""
    order = W.abs().flatten().argsort(descending=True)
    fewest = W.numel() + 1
    for kept in range(W.numel(), -1, -1):
        mask = torch.zeros(W.numel(), dtype=torch.float64)
        mask[order[:kept]] = 1
        if not perfect(W * mask.view(W.shape)):
            break
        fewest = kept
    return fewest


def longest(one, W, most):
    """The longest sequences, with repeats, up to which those of every length are right at V = P."""
    lengths = [n for n in range(1, most + 1) if Brute(every_sequence(one | {"seq_len": n}, True)).margins(W).min() > 0]
    return next(n for n in range(1, most + 1) if n + 1 not in lengths)


def test_trained_weights_are_certified_by_every_sequence_and_pruned_entry_by_entry(tables):
    rows = []
    for one, weights, seeds in tables["runs"]:
        for i, seed in enumerate(seeds):
            W, V = weights["W"][i], weights["V"][i] if "V" in weights else Brute(one).P

            def perfect(pruned, one=one, V=V):
                return certified(one, pruned, V, False)

            row = {"task": one["name"], "group": one["group"], "law": one["law"], "seed": seed}
            row |= {f"certified_{name}": certified(one, W, V, name == "all") for name in ("sets", "all")}
            row["longest"] = -1 if "V" in weights else longest(one, W, 6)
            row |= {"n_entries": W.numel(), "list_entries": sum(len(entries) for entries in one["lists"])}
            middle = W.sort(0).values[(len(W) - 1) // 2]
            row |= {"kept_in_gauge": fewest_kept(W - middle, perfect), "kept_raw": fewest_kept(W, perfect)}
            rows.append(row)
    equal(tables["trained"], rows)


def drawn(question):
    """The generators of the chunks of a question, with a case's numbers."""
    return [generator(PARAMS["seed"], question, chunk) for chunk in range(len(CHUNKS))]


def chunks(question, ask):
    rows = []
    for n_cases, draw in zip(CHUNKS, drawn(question), strict=True):
        found = []
        while len(found) < n_cases:
            found += ask(draw)
        rows += found[:n_cases]
    return rows


def whole(draw, low, high):
    return int(torch.randint(low, high + 1, (), generator=draw))


def uniform(draw, low, high):
    return low + (high - low) * float(torch.rand((), generator=draw, dtype=torch.float64))


def normal(draw, n):
    return torch.randn(n, n, generator=draw, dtype=torch.float64)


def random_task(draw, repeats=None):
    """A task of 3 tokens or more: with lists of any length up to 4, and any law, sequences of 2 to 5 tokens."""
    L = whole(draw, 3, PARAMS["most_tokens"])
    repeats = whole(draw, 0, 1) == 1 if repeats is None else repeats
    n = whole(draw, 2, min(5, L - 1))
    length = whole(draw, 1, min(4, L))
    orders = [torch.randperm(L, generator=draw).tolist() for _ in range(L)]
    lists = [[*[b for b in order if b != a][: length - 1], a] for a, order in enumerate(orders)]
    lists = [entries[whole(draw, 0, len(entries) - 1) :] for entries in lists]
    exponential = -torch.log1p(-torch.rand(len(classes(L, n, repeats)), generator=draw, dtype=torch.float64))
    pi = list(range(L))
    while all(pi[pi[b]] == b for b in range(L)):
        pi = torch.randperm(L, generator=draw).tolist()
    return task("any", "any", L, n, lists, pi, exponential.tolist(), repeats=repeats)


def certificates(draw):
    one = random_task(draw)
    L, brute = one["n_tokens"], Brute(one)
    W = uniform(draw, 0.5, 4) * ordered(one["lists"]) + uniform(draw, 0, 1.2) * normal(draw, L)
    V = brute.P + uniform(draw, 0, 0.5) * normal(draw, L)
    every = Brute(every_sequence(one, one["repeats"]))
    for name, margins in (("V = cP", lambda b: b.margins(W)), ("any V", lambda b: b.logit_margins(W, V))):
        row = {"certificate": name, "repeats": one["repeats"], "certified": bool((margins(every) > 0).all())}
        yield row | {"right": bool((margins(brute) > 0).all())}


def test_certificates_agree_with_every_sequence(tables):
    rows = chunks("certificates", certificates)
    assert len({tuple(row.values()) for row in rows}) == 8
    equal(tables["certificates"], rows)


def along_the_list(one, W, V, wrong):
    """The loss's descent along the entries of the first failing list up to its failing place; those rows."""
    brute = Brute(one)
    a, i = brute.first_failing(wrong)
    gradient = brute.gradients(W, V)[0]
    rows = wrong & (brute.query == a) & (brute.place == i)
    return -sum(float(gradient[b, a]) for b in one["lists"][a][:i]), rows


def lemma_1(draw):
    one = random_task(draw)
    c = 10 ** uniform(draw, -1, 4)
    brute = Brute(one)
    for _ in range(8):
        W = 10 ** uniform(draw, -3, 0.7) * normal(draw, brute.L) + uniform(draw, 0, 2) * ordered(one["lists"])
        wrong = brute.margins(W) <= 0
        if wrong.any():
            derivative, rows = along_the_list(one, W, c * brute.P, wrong)
            bound = c / 2 * float((brute.weight * brute.attention_to_star(W))[rows].sum())
            yield {"repeats": one["repeats"], "scale": c, "derivative": derivative, "bound": bound}


def test_lemma_1_has_both_its_sides(tables):
    rows = chunks("lemma 1", lemma_1)
    assert {row["repeats"] for row in rows} == {False, True}
    equal(tables["lemma_1"], rows, rtol=1e-8, atol=1e-10)


def constants(one):
    """c, ε and L_0 at V_0 = cP with the best ε = n L_0 / 18, for the least chance of a set."""
    n, delta, L_0 = one["seq_len"], min(one["probability"]), 1.0
    for _ in range(200):
        epsilon = n * L_0 / 18
        c = 10 * n * n * L_0 / delta + 4 * epsilon * n
        brute = Brute(one)
        L_0 = float(brute.loss(0 * brute.P, c * brute.P))
        if abs(n * L_0 / 18 - epsilon) < 1e-15:
            break
    return c, epsilon, L_0


def lemma_2(draw):
    one = random_task(draw, False)
    brute, n = Brute(one), one["seq_len"]
    c, epsilon, L_0 = constants(one)
    offset = epsilon * (2 * torch.rand(brute.L, brute.L, generator=draw, dtype=torch.float64) - 1)
    if whole(draw, 0, 1):
        offset = epsilon * offset.sign()
    V = c * brute.P + offset
    for _ in range(8):
        W = uniform(draw, 0, 2) * ordered(one["lists"]) + 10 ** uniform(draw, -1, 0.3) * normal(draw, brute.L)
        W = W * 10 ** uniform(draw, 0, 2) / c
        wrong = brute.logit_margins(W, V) <= 0
        if wrong.any() and float(brute.loss(W, V)) <= L_0:
            derivative, _ = along_the_list(one, W, V, wrong)
            row = {"derivative": derivative, "bound": 2.5 * (1 - 1 / n) * L_0 - 3 * epsilon / n, "L_0": L_0}
            yield row | {"abstract": L_0 - 6 * epsilon / n}


def test_lemma_2_has_both_its_sides(tables):
    rows = chunks("lemma 2", lemma_2)
    equal(tables["lemma_2"], rows, rtol=1e-7, atol=1e-10)


def test_samples_of_the_law_miss_the_gradient_by_so_much(tables):
    brute, rows = Brute(FIRST), []
    chances = torch.tensor(FIRST["probability"], dtype=torch.float64)
    exact = brute.gradients(0 * brute.P, 10 * brute.P)[0]
    for n_samples, number in itertools.product([50, 7], range(2)):
        draw = generator(9, "monte carlo", n_samples, number)
        seen = torch.multinomial(chances, n_samples, replacement=True, generator=draw).tolist()
        share = [seen.count(k) / n_samples for k in range(len(chances))]
        found = Brute(FIRST | {"probability": share}).gradients(0 * brute.P, 10 * brute.P)[0]
        error = ((found - exact) ** 2).sum().sqrt() / (exact**2).sum().sqrt()
        rows.append({"n_samples": n_samples, "error": float(error)})
    equal(tables["monte_carlo"], rows)


def test_the_least_feasible_lengths_are_those_of_the_document(tables):
    equal(tables["feasible"], [{"length": m, "least_n": FEASIBLE[m]} for m in PARAMS["list_lengths"]])


def test_what_is_written_is_nothing_else(tables):
    names = ("certificates", "feasible", "lemma_1", "lemma_2", "monte_carlo", "trained")
    assert tables["files"] == [f"{name}.parquet" for name in names]


def test_a_task_that_is_not_there_is_refused(stage, tmp_path):
    with pytest.raises(InputError, match=r"monte_carlo_task: wanted one of \['first', 'second'\], got 'third'"):
        certify(stage, tmp_path, monte_carlo_task="third")
    assert files(tmp_path) == ["params.yaml", "tasks"]
