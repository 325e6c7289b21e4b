"""The stage cut: every cut model, rebuilt and run by itself, the directions of the keys by least
squares, the neurons' norms by hand.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from tests.low_rank_sparse import low_rank_sparse_made as reference
from tests.stages.made import generator

D, SEQ_LEN, NEURONS = 6, 4, 9
NORMS = torch.tensor([0.2, 1.9, 0.5, 0.4, 2.8, 1.7, 0.1, 0.6, 0.7])  # of the neurons, about
GIVEN = {"labels": "given"}
RUNS = {
    "early": {"configuration": "first", "readout": "untied", "seeds": [2], "steps": [0, 7]} | GIVEN,
    "late": {"configuration": "second", "readout": "tied", "seeds": [9, 4], "steps": [0, 3, 8]}
    | GIVEN,
}
MATRICES = ("W_Q", "W_K", "W_V", "W_O")
PARAMS = {
    "ranks": [3, 0, 9],  # 9 is beyond the sizes of all matrices
    "ranks_alone": [5, 1],
    "rate_step": 0.3,
    "large_rate_step": 0.35,
    "values_rate": 0.3,
    "n_rescale_samples": 3,
    "random_seed": 11,
}
OUTS = ("truncate", "directions", "prune", "neurons")
CELL = ["configuration", "labels", "readout", "seed"]


@pytest.fixture
def made(tmp_path):
    """The samples, and by configuration, labels, readout and seed the weights at each step.

    The labels are what the last weights say, but for every fifth.
    """
    draw = torch.Generator().manual_seed(75)
    sizes = {"n_train": 10, "n_test": 8, "seq_len": SEQ_LEN, "d_model": D}
    data = reference.write_samples(tmp_path / "samples", [4, 2, 9], **sizes)
    models = {}
    for name, run in RUNS.items():
        seeds = run["seeds"]
        a = [reference.readout(run["readout"], 1, SEQ_LEN, NEURONS, draw) for _ in seeds]
        snapshots = []
        for number in range(len(run["steps"])):
            W = {m: 0.5 * torch.randn(len(seeds), D, D, generator=draw) for m in MATRICES[:3]}
            W_O = torch.randn(len(seeds), NEURONS, D, generator=draw)
            W["W_O"] = W_O * NORMS[:, None] if number else W_O
            snapshots.append(W | {"readout": torch.stack(a)})
        cell = {key: run[key] for key in CELL[:-1]}
        reference.write_weights(tmp_path / "runs" / name, cell, seeds, run["steps"], snapshots)
        for i, seed in enumerate(seeds):
            path = [{m: W[i].double() for m, W in weights.items()} for weights in snapshots]
            models[(*cell.values(), seed)] = dict(zip(run["steps"], path, strict=True))
            for part in ("train", "test"):
                samples = reference.of_seed(data, part, seed)
                wrong = margins(path[-1], samples | {"labels": 0 * samples["labels"]}) < 0
                every_fifth = torch.arange(len(wrong)) % 5 == 1
                samples["labels"].copy_(wrong ^ every_fifth)
    save_file(data, tmp_path / "samples")
    return data, models


@pytest.fixture
def cut(stage, tmp_path):
    """Run the stage; its four tables."""

    def run():
        params = {"cut": PARAMS, "train": {"device": "cpu", "n_neurons": "another's"}}
        given = {"section": "cut", "device": "train.device"}
        read = {"dataset": tmp_path / "samples", "runs": tmp_path / "runs"}
        written = {name: tmp_path / name for name in OUTS}
        stage("low_rank_sparse.cut", params, **given, **read, **written)
        return {name: pd.read_parquet(path) for name, path in written.items()}

    return run


def margins(W, samples):
    return reference.margins(
        W, W["readout"].double(), samples["tokens"].double(), samples["labels"]
    )


def check(table, keys, wanted, rel=2e-5):
    """The table has these rows; the models compute in float32."""
    rows = table.set_index([*CELL, *keys])
    assert sorted(rows.index) == sorted(wanted)
    for key, numbers in wanted.items():
        assert rows.loc[key].to_dict() == pytest.approx(numbers, rel=rel, abs=2e-6, nan_ok=True)


def low_rank(first, last, seed):
    """Every kind and rank with its weights."""
    update = {name: last[name] - first[name] for name in MATRICES}

    def at(rank, names=MATRICES):
        return {name: first[name] + reference.best(update[name], rank) for name in names}

    for rank in PARAMS["ranks"]:
        yield ("all", rank), at(rank)
    for rank in PARAMS["ranks_alone"]:
        weights = {name: reference.best(last[name], rank) for name in MATRICES}
        yield ("weights, not updates", rank), weights
        yield ("W_Q and W_K", rank), at(rank, ["W_Q", "W_K"])
        yield ("W_V", rank), at(rank, ["W_V"])
        yield ("W_O", rank), at(rank, ["W_O"])
    yield ("pairs 3 and 4", 2), {m: first[m] + at(4)[m] - at(2)[m] for m in MATRICES}
    start = {name: first[name] for name in MATRICES}
    projected, noise = reference.nulls(
        start, last, 2, lambda null, name: generator(11, null, seed, name)
    )
    yield ("random directions", 2), projected
    yield ("gaussian", D), noise


def test_every_cut_is_scored_on_the_test_samples(cut, made):
    data, models = made
    wanted = {}
    for cell, path in models.items():
        first, *_, last = path.values()
        test = reference.of_seed(data, "test", cell[-1])
        for place, weights in low_rank(first, last, cell[-1]):
            wanted[*cell, *place] = reference.scores(last | weights, last["readout"], test)
    check(cut()["truncate"], ["kind", "rank"], wanted)


def squared_cosines(span, columns):
    """How much of the columns' squares lies in the span of the rows, by least squares."""
    inside = span.T @ torch.linalg.lstsq(span.T, columns).solution
    return float((inside**2).sum() / (columns**2).sum())


def test_the_directions_of_the_keys_are_placed_by_least_squares(cut, made):
    data, models = made
    wanted = {}
    for cell, path in models.items():
        mu = data["patterns"][data["seeds"].tolist().index(cell[-1])].double()
        first, *_, last = path.values()
        # W_K acts on rows from the right: the left singular vectors are the tokens' side.
        leading = torch.linalg.svd(last["W_K"] - first["W_K"])[0][:, :2]
        with_mean = torch.stack([mu[0], mu[1], (mu[2] + mu[3]) / 2])
        for span, vectors in (("discriminative", mu[:2]), ("with mean irrelevant", with_mean)):
            wanted[*cell, span] = {"alignment": squared_cosines(vectors, leading)}
    check(cut()["directions"], ["span"], wanted, rel=1e-9)


def otsu(values):
    """How many values are small, by the least squared deviations in two groups."""
    values = values.sort().values
    within = [
        sum(float(part.var(correction=0)) * len(part) for part in (values[:k], values[k:]))
        for k in range(1, len(values))
    ]
    return 1 + within.index(min(within))


def without(W, gone, axis=0):
    """The matrix with some rows or columns zero."""
    left = W.clone()
    left.index_fill_(axis, torch.as_tensor(gone, dtype=torch.long), 0)
    return left


def pruned(weights, seed):
    """What is removed, in which order, at which rate; the matrix then, and the share of neurons
    that count.
    """
    W = weights["W_O"]
    norms = W.norm(dim=1)
    n_small = otsu(norms)
    rising = norms.argsort().tolist()
    shuffled = torch.randperm(NEURONS, generator=generator(11, "neurons", seed)).tolist()
    gone = {}
    for order, units in {"smallest": rising, "random": shuffled, "largest": rising[::-1]}.items():
        for rate in (0, 0.3, 0.6, 0.9):
            gone["neurons", order, rate] = units[: round(rate * NEURONS)]
        gone["as many as small", order, 1.0] = units[:n_small]
    for size, before, units, rates in (
        ("large", rising[:n_small], rising[n_small:], (0, 0.35, 0.7)),
        ("small", [], rising[:n_small], (0, 0.35, 0.7, 1.0)),
    ):
        source = generator(11, f"{size} neurons", seed)
        order = torch.randperm(len(units), generator=source)
        shuffled = torch.tensor(sorted(units))[order].tolist()
        for rate in rates:
            key = f"{size} neurons", "random", rate
            gone[key] = before + shuffled[: round(rate * len(units))]
    for key, units in gone.items():
        yield key, {"W_O": without(W, units)}, 1 - len(units) / NEURONS
    columns = weights["W_V"].norm(dim=0).argsort()[: round(0.3 * D)]
    left = without(weights["W_V"], columns, 1)
    yield ("rows of W_V", "smallest", 0.3), {"W_V": left}, 1


def test_every_pruned_model_is_measured_as_if_it_stood_alone(cut, made):
    """It is measured as it is, and with the factor that gives it the whole model's mean margin on
    three samples."""
    data, models = made
    wanted = {}
    for cell, path in models.items():
        weights = path[max(path)]
        test, train = (reference.of_seed(data, part, cell[-1]) for part in ("test", "train"))
        known = {name: of[:3] for name, of in train.items()}
        dense = margins(weights, known).mean()
        for place, changed, left in pruned(weights, cell[-1]):
            margin = margins(weights | changed, test)
            on_train = margins(weights | changed, known).mean()
            factor = dense / on_train if on_train > 0 else torch.tensor(torch.nan)
            found = reference.scores(weights | changed, weights["readout"], test)
            del found["attention"], found["attention_of_relevant"]
            found["rescaled_hinge"] = (1 - factor * margin).clamp(min=0).mean().item()
            wanted[*cell, *place] = found | {"weights": left}
    without_factor = [found for found in wanted.values() if np.isnan(found["rescaled_hinge"])]
    assert 0 < len(without_factor) < len(wanted) / 2
    check(cut()["prune"], ["what", "order", "rate"], wanted, rel=2e-4)


def test_every_neuron_is_counted_by_its_norm(cut, made):
    """Where the readout is tied, its cosine with the value of its pattern counts, too."""
    data, models = made
    table = cut()["neurons"]
    norms = table.set_index(CELL)["norms"]
    wanted = {}
    for cell, path in models.items():
        first, *_, last = path.values()
        of_last = last["W_O"].norm(dim=1)
        small, large = of_last.sort().values.tensor_split([otsu(of_last)])
        z = (of_last - of_last.mean()) / of_last.std(correction=0)
        mu = data["patterns"][data["seeds"].tolist().index(cell[-1])].double()
        own = torch.where(last["readout"][0, 0, :, None] > 0, mu[0], mu[1]) @ last["W_V"]
        cosines = torch.cosine_similarity(last["W_O"], own)[of_last > small[-1]]
        wanted[cell] = {
            "threshold": (small[-1] + large[0]).item() / 2,
            "small_share": len(small) / NEURONS,
            "small_norm": small.mean().item(),
            "large_norm": large.mean().item(),
            "initial_norm": first["W_O"].norm(dim=1).mean().item(),
            "bimodality": (((z**3).mean() ** 2 + 1) / (z**4).mean()).item(),
            "cosine": cosines.mean().item() if cell[CELL.index("readout")] == "tied" else torch.nan,
        }
        assert norms[cell].tolist() == pytest.approx(of_last.tolist(), rel=1e-6)
    check(table.drop(columns="norms"), [], wanted)
