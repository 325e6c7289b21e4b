"""Samples hold the patterns that they should, the majority is the label; epochs and files."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from lib.low_rank_sparse.patterns import (
    PatternTask,
    draw_samples,
    epochs,
    orthonormal_patterns,
    patterns_of_classes,
    read_patterns,
)
from tests.low_rank_sparse.low_rank_sparse_made import write_samples


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def task(**changes):
    sizes = {"d_model": 12, "n_patterns": 9, "seq_len": 20, "n_relevant": 5, "n_confusion": 2}
    return PatternTask(**sizes | {"noise": 0.0} | changes)


@given(
    st.sampled_from([(1, 1), (1, 1, 1), (2, 1), (2, 2), (3, 3)]),
    st.integers(0, 3),
    st.integers(0, 99),
)
def test_the_class_with_the_most_tokens_is_the_label(sizes, n_confusion, seed):
    of = task(patterns_of_classes=sizes, n_confusion=n_confusion)
    samples = draw_samples(of, orthonormal_patterns(of, generator(seed)), 30, generator(seed + 1))
    classes = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    votes = torch.stack(
        [
            torch.isin(samples.patterns, (classes == label).nonzero()).sum(1)
            for label in range(len(sizes))
        ]
    )
    assert (votes.argmax(0) == samples.labels).all()
    assert (votes.max(0).values == of.n_relevant).all()
    assert (votes.sum(0) == of.n_relevant + n_confusion).all()
    assert (samples.is_relevant.sum(1) == of.n_relevant).all()
    assert (classes[samples.relevant] == samples.labels).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_relevant": 19}, "n_relevant: wanted more than n_confusion"),
        ({"n_patterns": 3, "patterns_of_classes": (2, 1)}, "n_patterns: wanted more than the 3"),
        ({"patterns_of_classes": (2,)}, "patterns_of_classes: wanted two classes or more"),
        ({"patterns_of_classes": (2, 0)}, "two classes or more with a pattern each, got (2, 0)"),
    ],
)
def test_tasks_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        task(**changes)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 20))
def test_an_epoch_shows_each_sample_at_most_once_and_epochs_follow_without_end(
    n_samples, batch_size, n_steps
):
    if batch_size > n_samples:
        message = f"wanted at most the {n_samples} samples, got {batch_size}"
        with pytest.raises(ValueError, match=message):
            list(epochs(n_samples, batch_size, n_steps, generator()))
        return
    batches = list(epochs(n_samples, batch_size, n_steps, generator()))
    assert [len(batch) for batch in batches] == [batch_size] * n_steps
    per_epoch = n_samples // batch_size
    for start in range(0, n_steps, per_epoch):
        seen = torch.cat(batches[start : start + per_epoch])
        assert len(seen.unique()) == len(seen)
        assert seen.max() < n_samples


def test_a_file_that_is_no_such_data_set_is_refused(tmp_path):
    sizes = {"n_train": 4, "n_test": 3, "seq_len": 5, "d_model": 6}
    tensors = write_samples(tmp_path / "whole", [7, 3], **sizes)
    lacking = {name: of for name, of in tensors.items() if name != "test_labels"}
    save_file(lacking, tmp_path / "lacking")
    (tmp_path / "notes.txt").write_text("notes")
    for name in ("notes.txt", "lacking", "absent"):
        with pytest.raises(ValueError, match=f"{name}: wanted a data set of patterns, got"):
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
    sizes = {"n_train": 4, "n_test": 3, "seq_len": 5, "d_model": 6}
    tensors = write_samples(tmp_path / "samples", [7, 3], **sizes)
    unfit = torch.zeros(shape, dtype=tensors[name].dtype)
    save_file(tensors | {name: unfit}, tmp_path / "samples")
    with pytest.raises(ValueError, match="wanted tokens, labels and patterns that fit one another"):
        read_patterns(tmp_path / "samples")


def test_a_labelling_says_how_many_patterns_each_class_has():
    assert patterns_of_classes("2|1|1") == (2, 1, 1)
    message = r"labels: wanted numbers of patterns such as 1\|1, got '2,1'"
    with pytest.raises(ValueError, match=message):
        patterns_of_classes("2,1")
