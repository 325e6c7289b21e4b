"""What the tests of low_rank_sparse share: made samples and tables, its random draws repeated, and
its model and training in plain autograd.

All is written in float64, sample by sample where it costs nothing, from the equations of Li et al.
(2024).
"""

import itertools

import pandas as pd
import torch
from safetensors.torch import save_file

from tests.stages.made import generator, write_run


def orthonormal(d_model, n_patterns, generator):
    """The patterns: the first columns of the Q of a Gaussian matrix, as rows."""
    G = torch.randn(d_model, d_model, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(G)[0][:, :n_patterns].T.float()


def samples(task, classes, mu, n_samples, generator):
    """Samples of a task; `classes` lists the patterns of each class, the rest are irrelevant."""

    def uniform(*shape):
        return torch.rand(shape, generator=generator, dtype=torch.float64).tolist()

    def pick(choices, u):
        return choices[int(u * len(choices))]

    n_relevant, n_confusion = task["n_relevant"], task["n_confusion"]
    irrelevant = list(range(max(max(own) for own in classes) + 1, task["n_patterns"]))
    numbers = range(n_samples)
    labels = [i % len(classes) for i in torch.randperm(n_samples, generator=generator).tolist()]
    relevant = [pick(classes[y], u) for y, u in zip(labels, uniform(n_samples), strict=True)]
    of_other, of_pattern = uniform(n_samples, n_confusion), uniform(n_samples, n_confusion)
    of_rest = uniform(n_samples, task["seq_len"] - n_relevant - n_confusion)
    places = torch.rand(n_samples, task["seq_len"], generator=generator).tolist()
    patterns = []
    for i in numbers:
        # The other classes, counted on from the label's.
        others = [(labels[i] + 1 + j) % len(classes) for j in range(len(classes) - 1)]
        confusion = [
            pick(classes[pick(others, u)], v)
            for u, v in zip(of_other[i], of_pattern[i], strict=True)
        ]
        tokens = [relevant[i]] * n_relevant + confusion + [pick(irrelevant, u) for u in of_rest[i]]
        patterns.append([tokens[j] for j in sorted(range(len(tokens)), key=places[i].__getitem__)])
    noise = torch.randn(n_samples, task["seq_len"], mu.shape[1], generator=generator)
    return {
        "tokens": mu[torch.tensor(patterns)] + task["noise"] * noise,
        "labels": torch.tensor(labels),
        "patterns": torch.tensor(patterns),
        "relevant": torch.tensor(relevant),
    }


def start(d, n_neurons, scale, generator, sigma=0, delta=0):
    """The initial weights, σ and δ far from an orthogonal W_V and from W_Q = W_K = I; tokens act as
    x W.
    """

    def gaussian(rows):
        return torch.randn(rows, d, generator=generator, dtype=torch.float64)

    W_V = torch.linalg.qr(gaussian(d))[0] + sigma / d**0.5 * gaussian(d)
    W_O = scale * gaussian(n_neurons)
    W_Q, W_K = (torch.eye(d, dtype=torch.float64) + delta / d**0.5 * gaussian(d) for _ in "QK")
    return {name: W.float() for name, W in {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O}.items()}


def readout(kind, n_outputs, seq_len, n_neurons, generator):
    """A readout of ±1/√m for each output and neuron, and for each position where it is untied."""
    shape = (n_outputs, {"tied": 1, "untied": seq_len}[kind], n_neurons)
    return (
        torch.where(torch.randint(0, 2, shape, generator=generator) == 1, 1.0, -1.0)
        / n_neurons**0.5
    )


def batches(n_samples, size, n_steps, generator):
    """The samples of each step: epochs in new orders, without the incomplete batches at their
    ends.
    """
    found = []
    while len(found) < n_steps:
        order = torch.randperm(n_samples, generator=generator).tolist()
        found += [order[i * size : (i + 1) * size] for i in range(n_samples // size)]
    return found[:n_steps]


def attention(W, X):
    return torch.softmax(torch.einsum("nlq,nsq->nls", X @ W["W_Q"], X @ W["W_K"]), -1)


def margins(W, a, X, labels):
    """The margins y F, where class 0 is y = +1; for several outputs the true one minus the largest
    other."""
    hidden = torch.relu(attention(W, X) @ X @ W["W_V"] @ W["W_O"].T)
    F = torch.einsum("nlm,clm->nc", hidden, a.expand(-1, X.shape[1], -1)) / X.shape[1]
    if F.shape[1] == 1:
        return torch.where(labels == 0, F[:, 0], -F[:, 0])
    wrong = [
        torch.cat([row[:y], row[y + 1 :]]).max() for row, y in zip(F, labels.tolist(), strict=True)
    ]
    return F.gather(1, labels[:, None])[:, 0] - torch.stack(wrong)


def trained(leaves, weights_of, a, data, steps, learning_rate):
    """The leaves after 0, 1, ... steps of SGD on the mean hinge loss of `weights_of(leaves)`, and
    the loss of each step before it; all in float64.
    """
    X, a, labels = data["tokens"].double(), a.double(), data["labels"]
    states, losses = [{name: W.double() for name, W in leaves.items()}], []
    for index in steps:
        free = {name: W.clone().requires_grad_() for name, W in states[-1].items()}
        loss = torch.relu(1 - margins(weights_of(free), a, X[index], labels[index])).mean()
        slopes = torch.autograd.grad(loss, list(free.values()))
        moved = zip(states[-1].items(), slopes, strict=True)
        states.append({name: W - learning_rate * slope for (name, W), slope in moved})
        losses.append(loss.item())
    return states, losses


def training(problem, data, seed):
    """The readout, and the weights and losses of a training from one seed, after every step."""
    n, seq_len, d_model = data["tokens"].shape
    m = problem["n_neurons"]
    errors = problem["value_error"], problem["query_key_error"]
    W = start(d_model, m, problem["init_scale"], generator(seed, "weights"), *errors)
    n_outputs = problem.get("n_outputs", 1)
    a = readout(problem["readout"], n_outputs, seq_len, m, generator(seed, "readout"))
    if problem["permuted"]:
        order = torch.randperm(n, generator=generator(seed, "permuted labels"))
        data = data | {"labels": data["labels"][order]}
    order = generator(seed, "order")
    steps = batches(n, problem["batch_size"], problem["n_steps"], order)
    return a, *trained(W, dict, a, data, steps, problem["learning_rate"])


def best(W, rank):
    """The best approximation at a rank."""
    U, sigma, Vh = torch.linalg.svd(W, full_matrices=False)
    return (U[:, :rank] * sigma[:rank]) @ Vh[:rank]


def nulls(first, last, k, source):
    """The weights with each update in k random directions, and with Gaussian ones of its norm."""
    projected = {}
    noise = {}
    for name, W_0 in first.items():
        update = last[name] - W_0
        draw = {"generator": source("random directions", name), "dtype": torch.float64}
        some = torch.randn(update.shape[1], k, **draw)
        projected[name] = W_0 + update @ some @ torch.linalg.pinv(some)
        draw["generator"] = source("gaussian", name)
        G = torch.randn(update.shape, **draw)
        noise[name] = W_0 + G * update.norm() / G.norm()
    return projected, noise


def fitted_step(losses, threshold):
    """The first step whose loss is below the threshold, counted from 0; -1 where none is."""
    return next((i for i, loss in enumerate(losses) if loss < threshold), -1)


def scores(W, a, data):
    """What is measured of a model on samples."""
    W = {name: M.double() for name, M in W.items()}
    X = data["tokens"].double()
    margin = margins(W, a.double(), X, data["labels"])
    is_relevant = data["patterns"] == data["relevant"][:, None]
    shares = (attention(W, X) * is_relevant[:, None]).sum(-1)
    return {
        "hinge": (1 - margin).clamp(min=0).mean().item(),
        "accuracy": (margin > 0).double().mean().item(),
        "margin": margin.mean().item(),
        "least_margin": margin.min().item(),
        "attention": shares.mean().item(),
        "attention_of_relevant": shares[is_relevant].mean().item(),
    }


def write_samples(path, seeds, *, n_train, n_test, seq_len, d_model):
    """A data set in which nothing is equal: two classes, tokens of four patterns, no structure."""
    draw = torch.Generator().manual_seed(5)
    n = len(seeds)
    mu = 0.7 * torch.randn(n, 4, d_model, generator=draw)
    data = {"seeds": torch.tensor(seeds), "patterns": mu}
    for part, count in (("train", n_train), ("test", n_test)):
        relevant = torch.randint(0, 2, (n, count), generator=draw)
        patterns = torch.randint(0, 4, (n, count, seq_len), generator=draw)
        patterns[..., 1] = relevant  # a sample has label-relevant tokens
        labels = torch.where(torch.rand(n, count, generator=draw) < 0.8, relevant, 1 - relevant)
        noise = torch.randn(n, count, seq_len, d_model, generator=draw)
        tokens = torch.stack([mu[i][patterns[i]] for i in range(n)]) + 0.3 * noise
        parts = {"tokens": tokens, "labels": labels, "patterns": patterns, "relevant": relevant}
        data |= {f"{part}_{name}": tensor for name, tensor in parts.items()}
    save_file(data, path)
    return data


def write_weights(folder, cell, seeds, steps, snapshots):
    """A run of these snapshots, at these steps."""
    axes = {name: ["seed", "row", "col"] for name in ("W_Q", "W_K", "W_V", "W_O")}
    layout = {"family": "low_rank_sparse", "matrices": axes, "cell": cell, "seeds": seeds}
    rows = [
        {"snapshot": i, "seed": seed, "step": step}
        for i, step in enumerate(steps)
        for seed in seeds
    ]
    write_run(folder, layout, snapshots, rows)


def of_seed(data, part, seed):
    """The samples of a seed."""
    i = data["seeds"].tolist().index(seed)
    names = ("tokens", "labels", "patterns", "relevant")
    return {name: data[f"{part}_{name}"][i] for name in names}


def write_cases(path, cases):
    """A table of cases: tab-separated, a cell is empty where a case has no such value."""
    table = pd.DataFrame(cases, dtype=object)
    table = table.map(lambda value: str(value).replace("'", ""), na_action="ignore")
    table.to_csv(path, sep="\t", index=False)


def each(rows, **values):
    """Every row with every combination of the values."""
    more = [dict(zip(values, of, strict=True)) for of in itertools.product(*values.values())]
    return [{**row, **one} for row in rows for one in more]


def numbers(draw, rows, *columns):
    """A table of these rows, in no order, with numbers in more columns, no two alike."""
    table = pd.DataFrame(rows)
    for column in columns:
        table[column] = draw.uniform(0.05, 1.5, len(table))
    return table.iloc[draw.permutation(len(table))].reset_index(drop=True)


def chosen(table, column, **where):
    """A number per seed: the column in the only row of the seed that has these values."""
    for name, value in where.items():
        table = table[table[name] == value]
    assert table["seed"].is_unique
    return table.set_index("seed")[column].sort_index()
