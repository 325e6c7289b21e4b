"""Truncated updates of a made vision transformer: every row is scored anew on matrices that numpy cut."""

import numpy as np
import pandas as pd
import pytest
import torch
from made import files
from vit_made import (
    CELLS,
    IMAGE_SHAPE,
    N_CLASSES,
    SEEDS,
    make_images,
    scored,
    standardised,
    write_runs,
)

from lib.io.files import InputError

SECTION, N_IMAGES, RANKS = "vision.any.truncate", 31, [3, 0, 12, 7]
PARAMS = {"device": "cpu", "runs": ["c", "a", "absent"], "n_images": N_IMAGES, "ranks": RANKS}
MATRICES = ("W_Q", "W_K", "W_V", "W_O", "W_1", "W_2")


@pytest.fixture
def data(tmp_path):
    return make_images(tmp_path / "images", 13, 40, N_CLASSES, IMAGE_SHAPE)


@pytest.fixture
def runs(tmp_path):
    """Three runs; their snapshots, by name."""
    return write_runs(tmp_path / "runs", 3, seed=5)


def cut(W_0, W, rank):
    """In every layer the initial matrix plus the update's first singular directions, of all heads side by side."""
    layers = []
    for first, last in zip(W_0.double().numpy(), W.double().numpy(), strict=True):
        heads = len(last) if last.ndim == 3 else 1
        first, last = (M.reshape(heads, -1, M.shape[-1]).swapaxes(0, 1).reshape(M.shape[-2], -1) for M in (first, last))
        U, sigma, Vt = np.linalg.svd(last - first, full_matrices=False)
        whole = first + sum(sigma[k] * np.outer(U[:, k], Vt[k]) for k in range(min(rank, len(sigma))))
        layers.append(np.stack(np.split(whole, heads, 1)).reshape(W.shape[1:]))
    return torch.from_numpy(np.stack(layers))


def expected(data, made):
    """Every row of the table: of the chosen runs by name, their seeds, the kinds and the ranks."""
    images = standardised(data["test_images"][:N_IMAGES], data["train_images"])
    labels = data["test_labels"][:N_IMAGES]
    for name in ("a", "c"):
        for i, seed in enumerate(SEEDS[name]):
            initial, final = ({key: tensor[i] for key, tensor in made[name][k].items()} for k in (0, -1))
            for kind in ("all", *MATRICES):
                for rank in RANKS:
                    truncated = MATRICES if kind == "all" else [kind]
                    model = final | {matrix: cut(initial[matrix], final[matrix], rank) for matrix in truncated}
                    loss, accuracy = scored(model, images, labels)
                    yield {"kind": kind, "rank": rank, "test_loss": loss, "test_accuracy": accuracy} | {
                        **CELLS[name],
                        "seed": seed,
                    }


def test_every_truncation_scores_as_matrices_cut_by_numpy_do(stage, data, runs, tmp_path):
    before = files(tmp_path)
    stage("vision.truncate", {SECTION: PARAMS}, SECTION, tmp_path / "images", tmp_path / "runs", tmp_path / "t")
    table, wanted = pd.read_parquet(tmp_path / "t"), pd.DataFrame(expected(data, runs))
    # single precision scores; columns and rows in their order
    pd.testing.assert_frame_equal(table, wanted, rtol=1e-5)
    assert wanted["test_loss"].nunique() > 0.7 * len(wanted)  # what is cut shows, but beyond a matrix's full rank
    assert wanted["test_accuracy"].nunique() > 5
    assert files(tmp_path) == sorted([*before, "params.yaml", "t"])


def test_more_images_than_there_are_means_all_of_them(stage, data, runs, tmp_path):
    params = PARAMS | {"runs": ["b"], "n_images": 100, "ranks": [2]}
    stage("vision.truncate", {SECTION: params}, SECTION, tmp_path / "images", tmp_path / "runs", tmp_path / "t")
    first = pd.read_parquet(tmp_path / "t").set_index("kind").loc["W_V"]
    initial, _, final = ({name: tensor[0] for name, tensor in snapshot.items()} for snapshot in runs["b"])
    model = final | {"W_V": cut(initial["W_V"], final["W_V"], 2)}
    wanted = scored(model, standardised(data["test_images"], data["train_images"]), data["test_labels"])
    assert (first["test_loss"], first["test_accuracy"]) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": ["absent"]}, r"vision.any.truncate.runs: wanted some of \['a', 'b', 'c'\].* got \['absent'\]"),
        ({"device": "cuda"}, "device: wanted cuda, got a machine on which torch sees no GPU"),
        ({"ranks": [-1]}, "ranks"),
    ],
)
def test_what_cannot_be_cut_is_refused_and_nothing_is_written(
    stage, data, runs, tmp_path, monkeypatch, changes, message
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    paths = tmp_path / "images", tmp_path / "runs", tmp_path / "t"
    with pytest.raises(InputError, match=message):
        stage("vision.truncate", {SECTION: PARAMS | changes}, SECTION, *paths)
    assert not (tmp_path / "t").exists()
