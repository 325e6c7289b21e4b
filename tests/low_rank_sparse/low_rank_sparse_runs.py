"""Made input that the test of cut uses: a data set, two runs on it, and the paper's model in
loops.
"""

import numpy as np
import torch
from safetensors.torch import save_file

from tests.stages.made import write_run

D, M, L, NEURONS, N_TRAIN, N_TEST = 6, 5, 4, 9, 10, 8
SEEDS = [4, 2, 9]
MATRICES = ("W_Q", "W_K", "W_V", "W_O")
CELLS = {
    "early": {"configuration": "first", "readout": "untied", "seeds": [2], "steps": [0, 7]},
    "late": {"configuration": "second", "readout": "tied", "seeds": [9, 4], "steps": [0, 3, 8]},
}
# The place of each seed of each run, by what a table says of it.
KEYS = {
    (cell["configuration"], cell["readout"], seed): (name, i)
    for name, cell in CELLS.items()
    for i, seed in enumerate(cell["seeds"])
}


def write_samples(path):
    """Samples of three seeds: two tokens of a pattern of the class, one of the other class, one
    irrelevant.
    """
    draw = torch.Generator().manual_seed(1)
    mu = torch.stack([torch.linalg.qr(torch.randn(D, D, generator=draw)).Q[:M] for _ in SEEDS])
    tensors = {"seeds": torch.tensor(SEEDS), "patterns": mu}
    for part, n in (("train", N_TRAIN), ("test", N_TEST)):
        labels = torch.randint(0, 2, (len(SEEDS), n), generator=draw)
        relevant = labels + 2 * (torch.rand(len(SEEDS), n, generator=draw) < 0.3)
        patterns = torch.stack([relevant, relevant, 1 - labels, torch.full_like(labels, M - 1)], -1)
        patterns = patterns.gather(-1, torch.rand(patterns.shape, generator=draw).argsort(-1))
        tokens = torch.stack([mu[i][patterns[i]] for i in range(len(SEEDS))])
        tensors |= {
            f"{part}_tokens": tokens + 0.2 * torch.randn(tokens.shape, generator=draw),
            f"{part}_labels": labels,
            f"{part}_patterns": patterns,
            f"{part}_relevant": relevant,
        }
    save_file(tensors, path)
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def write_runs(folder, samples):
    """Two runs of other seeds, readouts and steps; their weights by run, a list of snapshots each.

    A few neurons are large, others small, in no order, and each helps on most samples.
    """
    draw = torch.Generator().manual_seed(75)
    sizes = torch.tensor([0.2, 1.9, 0.5, 0.4, 2.8, 1.7, 0.1, 0.6, 0.7])
    written = {}
    for name, cell in CELLS.items():
        n = len(cell["seeds"])
        snapshots = []
        for number in range(len(cell["steps"])):
            W = {
                m: torch.randn(n, D, D, generator=draw) * (1 if m == "W_V" else 0.5)
                for m in MATRICES[:3]
            }
            W["W_O"] = torch.randn(n, NEURONS, D, generator=draw) * (
                sizes[:, None] if number else 1
            )
            snapshots.append(W)
        readout = torch.stack(
            [signs(samples, snapshots[-1], i, seed) for i, seed in enumerate(cell["seeds"])]
        )
        if cell["readout"] == "untied":
            readout = readout * (1 - 2.0 * (torch.rand(n, 1, L, NEURONS, generator=draw) < 0.2))
        snapshots = [W | {"readout": readout} for W in snapshots]
        layout = {
            "family": "low_rank_sparse",
            "matrices": {m: ["seed", "row", "col"] for m in MATRICES},
            "cell": {key: cell[key] for key in ("configuration", "readout")},
            "seeds": cell["seeds"],
        }
        rows = [
            {"snapshot": i, "seed": seed, "step": step}
            for i, step in enumerate(cell["steps"])
            for seed in cell["seeds"]
        ]
        write_run(folder / name, layout, snapshots, rows)
        written[name] = [
            {m: W.double().numpy() for m, W in weights.items()} for weights in snapshots
        ]
    return written


def signs(samples, weights, i, seed):
    """The readout under which every neuron adds to the mean margin on training samples: 1, 1,
    neuron.
    """
    single = {name: weights[name][i].double().numpy() for name in MATRICES}
    train = of_seed(samples, "train", seed)
    added = [
        margins(single | {"readout": one[None, None]}, train).mean() for one in np.eye(NEURONS)
    ]
    return torch.tensor([1.0 if mean > 0 else -1.0 for mean in added])[None, None] / NEURONS**0.5


def of_seed(samples, part, seed):
    """The samples of a seed as (tokens, labels, which tokens are relevant) of each."""
    i = SEEDS.index(seed)
    tokens, labels, patterns, relevant = (
        samples[f"{part}_{name}"][i] for name in ("tokens", "labels", "patterns", "relevant")
    )
    return [
        (X.astype(float), y, p == r)
        for X, y, p, r in zip(tokens, labels, patterns, relevant, strict=True)
    ]


def forward(weights, X):
    """The paper's F(X), token by token, and the attention of each query on each token."""
    Q, K, V = (weights[name].T for name in MATRICES[:3])  # the paper's matrices act on columns
    readout, F, attention = weights["readout"][0], 0.0, []
    for place in range(L):
        scores = np.exp((K @ X.T).T @ (Q @ X[place]))
        share = scores / scores.sum()
        hidden = np.maximum(0, weights["W_O"] @ (V @ X.T @ share))
        F += readout[0 if len(readout) == 1 else place] @ hidden / L
        attention.append(share)
    return F, np.array(attention)


def margins(weights, samples):
    """y F of each sample; class 0 is y = +1."""
    return np.array([(1 if y == 0 else -1) * forward(weights, X)[0] for X, y, _ in samples])
