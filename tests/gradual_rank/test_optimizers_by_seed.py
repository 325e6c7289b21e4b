"""The published optimisers seed by seed: rows beside those of the stage and of plain softmax heads,
measures by hand.
"""

import json
import math
from itertools import islice

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from lib.gradual_rank.full_heads import FullSizes
from lib.pages.measures import read_measures
from published.optimizers_by_seed import run as published
from published.optimizers_by_seed import trainings
from stages.gradual_rank import optimizers
from tests.gradual_rank.full_reference import descent, normal, output, taught, teacher
from tests.stages.made import generator

D = 3
N_LOOKS = 1000  # more than there are steps
PARAMS = {
    "n_seeds": 1,
    "first_seed": 5,
    "log10_init_scales": [-1, -2],
    "n_samples": 6,
    "teacher_rank": 2,
    "significant": 0.05,
    "few_samples": [1],
    "few_log10_init_scale": -1,
    "noisy_samples": 3,
    "noise": 0.5,
    "noisy_longer": 2,
    "n_test": 4,
}
TABLE = """name\trule\tlearning_rate\tn_steps\trescaled_end\tannealed
gd\tslopes\t0.3\t60\t2\t0
muon\tpolar_factors\t0.02\t30\t0\t0.5
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What is published of small heads."""
    at = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(at)
        patch.delenv("DVC_ROOT", raising=False)
        patch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
        patch.setattr(published, "N_SEEDS", 6)
        patch.setattr(trainings, "N_LOOKS", N_LOOKS)
        patch.setattr(published, "N_ORDERED", 2)
        head = {"d_model": D, "seq_len": 4, "threshold": 0.04}
        sections = {"gradual_rank": {"optimizers": PARAMS, "full_weights": head}}
        (at / "params.yaml").write_text(yaml.safe_dump(sections))
        (at / "optimizers.tsv").write_text(TABLE)
        published.main(at / "optimizers.tsv", first_seed=20)
    return at / "published" / "optimizers_by_seed"


def descended(seed, n_steps):
    """The last loss of gradient descent by autograd, the teacher's on the same targets, and the
    cosines, all by their definitions.
    """
    X = normal(seed, "tokens", 3, 4, D)
    W_K, W_Q, W_V, W_O = teacher(seed, D, 2)
    clean = taught(X, seed, 2)
    Y = clean + 0.5 * clean.std() * normal(seed, "noise", *X.shape)
    power = Y.square().mean()
    start = 0.1 * normal(seed, "full start", 4, D, D)
    every = descent(
        lambda W: (output(X, *W) - Y).square().mean() / power,
        start,
        lambda W, g: W - 0.3 * power * g,
    )
    losses, W = zip(*islice(every, n_steps + 1), strict=True)
    half = next((w for loss, w in zip(losses, W, strict=True) if loss <= 0.5), None)
    of_keys, of_values = W_K @ W_Q.T, W_V @ W_O.T
    cosines = [
        math.nan if half is None else cosine(half[0] @ half[1].T, of_keys),
        cosine(W[-1][0] @ W[-1][1].T, of_keys),
        cosine(W[-1][2] @ W[-1][3].T, of_values),
    ]
    return losses[-1], float((Y - clean).square().mean() / power), cosines


def cosine(A, B):
    return float((A * B).sum() / torch.linalg.matrix_norm(A) / torch.linalg.matrix_norm(B))


def test_rows_are_those_of_the_stage_and_of_autograd(folder, monkeypatch):
    monkeypatch.setattr(optimizers, "N_LOOKS", N_LOOKS)
    table = pd.read_parquet(folder / "tables" / "noisy.parquet")
    assert len(table) == 12
    params = optimizers.Optimizers(**PARAMS | {"first_seed": 20, "n_seeds": 6})
    sizes = FullSizes(seq_len=4, d_model=D, threshold=0.04)
    case = optimizers.Optimizer("gd", "slopes", 0.3, 60, 2, 0)
    wanted = optimizers.train_on_few(params, sizes, case, 3, 0.5)["few"]
    own = table[table["optimizer"] == "gd"].reset_index()
    for column in ("best_test_loss", "last_test_loss"):
        np.testing.assert_allclose(own[column], wanted[column], rtol=1e-5)
    n_steps = 2 * (60 + math.ceil(2 * math.log(10) / 0.3))
    for row in own[:2].to_dict("records"):
        loss, of_teacher, cosines = descended(row["seed"], n_steps)
        assert row["loss"] == pytest.approx(loss, rel=1e-5)
        assert row["teacher_loss"] == pytest.approx(of_teacher, rel=1e-5)
        assert row["stuck"] == (loss > of_teacher)
        names = ("cosine_KQ_half", "cosine_KQ", "cosine_VO")
        assert [row[name] for name in names] == pytest.approx(cosines, rel=1e-4, nan_ok=True)
    assert 0 < own["stuck"].sum() < 6
    assert sorted(file.name for file in (folder / "figures").iterdir()) == [
        "optimizers-by-seed.svg"
    ]


def test_measures_tell_the_seeds_in_which_descent_is_stuck_from_others(folder):
    table = pd.read_parquet(folder / "tables" / "noisy.parquet")
    gd, muon = (table[table["optimizer"] == name].set_index("seed") for name in ("gd", "muon"))
    measures = read_measures(folder / "measures.csv")
    assert measures["n_stuck.gd"]["values"] == [gd["stuck"].sum()]
    ratios = muon["best_test_loss"] / gd["best_test_loss"]
    for group, chosen in (("stuck", gd["stuck"]), ("free", ~gd["stuck"])):
        found = measures[f"over_gd_{group}.muon"]
        assert found["cases"] == [str(seed) for seed in gd.index[chosen]]
        np.testing.assert_allclose(found["values"], ratios[chosen], rtol=1e-5)
    longer = measures["gd_excess.longer"]
    assert longer["cases"] == measures["gd_excess.stuck"]["cases"]
    assert (np.array(longer["values"]) < measures["gd_excess.stuck"]["values"]).all()
    orders = pd.read_parquet(folder / "tables" / "orders.parquet")
    own = orders[orders["optimizer"] == "muon"]
    np.testing.assert_allclose(measures["order.muon"]["values"], own["order"], rtol=1e-5)
    assert json.loads((folder / "provenance.json").read_text())["seeds"] == list(range(20, 26))


def test_the_growth_that_is_left_is_that_outside_what_has_risen():
    U, V = torch.linalg.qr(torch.randn(2, D, D, generator=generator(0), dtype=torch.float64))[0]
    G, some, every = (
        (U * torch.tensor(values, dtype=torch.float64)) @ V.T
        for values in ([9, 7, 0.25], [2, 0.5, 1e-5], [3, 2, 1])
    )
    slopes = torch.stack([G, G])[:, None]
    for W, left in ((some, 0.25), (every, 0)):
        found = trainings.growth_left(torch.stack([W, every])[:, None], slopes)
        assert found.tolist() == pytest.approx([left])
