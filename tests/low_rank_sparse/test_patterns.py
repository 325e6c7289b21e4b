"""What is no data set of patterns is refused."""

import pytest
import torch
from safetensors.torch import save_file

from lib.low_rank_sparse.patterns import PatternTask, read_patterns
from tests.low_rank_sparse.low_rank_sparse_made import write_samples

SIZES = {"n_train": 4, "n_test": 3, "seq_len": 5, "d_model": 6}


def test_a_file_that_is_no_such_data_set_is_refused(tmp_path):
    tensors = write_samples(tmp_path / "lacking", [7, 3], **SIZES)
    del tensors["test_labels"]
    save_file(tensors, tmp_path / "lacking")
    (tmp_path / "notes.txt").write_text("notes")
    for name in ("notes.txt", "lacking", "absent"):
        with pytest.raises(ValueError, match=f"{name}: wanted a data set of patterns"):
            read_patterns(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("test_labels", (2, 4)),
        ("train_relevant", (2, 3)),
        ("train_patterns", (2, 4, 6)),
        ("seeds", (3,)),
        ("patterns", (2, 4, 7)),
    ],
)
def test_tensors_that_do_not_fit_one_another_are_refused(tmp_path, name, shape):
    tensors = write_samples(tmp_path / "samples", [7, 3], **SIZES)
    unfit = torch.zeros(shape, dtype=tensors[name].dtype)
    save_file(tensors | {name: unfit}, tmp_path / "samples")
    with pytest.raises(ValueError, match="wanted tokens, labels and patterns that fit one another"):
        read_patterns(tmp_path / "samples")


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="patterns_of_classes: wanted two classes or more"):
        PatternTask(12, 9, 20, 5, 2, 0.0, patterns_of_classes=(2,))
