"""Samples hold the patterns that they should, in the numbers that they should, and the majority is
the label.
"""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from lib.low_rank_sparse.patterns import (
    PatternTask,
    draw_patterns,
    draw_samples,
    epochs,
    orthonormal_patterns,
    patterns_of_classes,
    read_patterns,
    stacked,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def task(**changes):
    sizes = {
        "d_model": 12,
        "n_patterns": 9,
        "seq_len": 20,
        "n_relevant": 5,
        "n_confusion": 2,
        "noise": 0.0,
    }
    return PatternTask(**sizes | changes)


def classes_of_patterns(of):
    """The class of each discriminative pattern."""
    sizes = torch.tensor(of.patterns_of_classes)
    return torch.repeat_interleave(torch.arange(len(sizes)), sizes)


def test_patterns_are_orthonormal():
    mu = orthonormal_patterns(task(), generator())
    torch.testing.assert_close(mu @ mu.T, torch.eye(9), atol=1e-6, rtol=0)


@given(
    st.sampled_from([(1, 1), (1, 1, 1), (2, 1), (2, 2), (3, 3)]),
    st.integers(0, 3),
    st.integers(0, 99),
)
def test_the_class_with_the_most_tokens_is_the_label(sizes, n_confusion, seed):
    of = task(patterns_of_classes=sizes, n_confusion=n_confusion)
    samples = draw_samples(of, orthonormal_patterns(of, generator(seed)), 30, generator(seed + 1))
    votes = torch.stack(
        [
            torch.isin(samples.patterns, (classes_of_patterns(of) == label).nonzero()).sum(1)
            for label in range(len(sizes))
        ]
    )
    top, others = votes.sort(0, descending=True).values[:2]
    assert (votes.argmax(0) == samples.labels).all()
    assert (top == of.n_relevant).all()
    assert (others <= n_confusion).all()
    assert (votes.sum(0) == of.n_relevant + n_confusion).all()
    assert (samples.is_relevant.sum(1) == of.n_relevant).all()
    assert (classes_of_patterns(of)[samples.relevant] == samples.labels).all()


def test_classes_are_equally_frequent_and_in_random_order():
    of = task(patterns_of_classes=(1, 1, 1))
    labels = draw_samples(of, orthonormal_patterns(of, generator()), 300, generator(1)).labels
    assert labels.bincount().tolist() == [100, 100, 100]
    assert (labels.diff() != 0).float().mean() < 0.8  # in turn, it would be one


def test_patterns_of_a_class_and_irrelevant_patterns_are_uniform():
    of = task(patterns_of_classes=(2, 1), seq_len=40)
    samples = draw_samples(of, orthonormal_patterns(of, generator()), 3000, generator(1))
    counts = samples.relevant.bincount(minlength=3)
    assert counts[2] == 1500
    assert abs(counts[0] - 750) < 5 * 750**0.5 / 1.4
    irrelevant = samples.patterns[samples.patterns >= 3].bincount()[3:]
    assert len(irrelevant) == 6
    assert (
        irrelevant - irrelevant.float().mean()
    ).abs().max() < 5 * irrelevant.float().mean() ** 0.5


def test_positions_are_random():
    of = task()
    samples = draw_samples(of, orthonormal_patterns(of, generator()), 4000, generator(1))
    at = samples.is_relevant.float().mean(0)
    assert (at - 5 / 20).abs().max() < 5 * (0.25 * 0.75 / 4000) ** 0.5


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_tokens_are_patterns_with_gaussian_noise(noise):
    of = task(noise=noise)
    mu = orthonormal_patterns(of, generator())
    samples = draw_samples(of, mu, 500, generator(1))
    rest = samples.tokens - mu[samples.patterns]
    assert float(rest.std()) == pytest.approx(noise, rel=0.02)
    assert abs(float(rest.mean())) < 4 * noise / rest.numel() ** 0.5 + 1e-9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"n_patterns": 13},
            "n_patterns: wanted more than the 2 discriminative patterns and at most d_model = 12",
        ),
        ({"n_patterns": 2}, "n_patterns: wanted more than the 2"),
        (
            {"n_confusion": 5},
            "n_relevant: wanted more than n_confusion, and both to fit into 20 tokens, got 5 and 5",
        ),
        ({"n_relevant": 19}, "n_relevant: wanted more than n_confusion"),
        ({"patterns_of_classes": (2,)}, "patterns_of_classes: wanted two classes or more"),
        (
            {"patterns_of_classes": (2, 0)},
            "patterns_of_classes: wanted two classes or more with a pattern each",
        ),
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
        with pytest.raises(
            ValueError, match=f"wanted at most the {n_samples} samples, got {batch_size}"
        ):
            list(epochs(n_samples, batch_size, n_steps, generator()))
        return
    batches = list(epochs(n_samples, batch_size, n_steps, generator()))
    assert [len(batch) for batch in batches] == [batch_size] * n_steps
    per_epoch = n_samples // batch_size
    for start in range(0, n_steps, per_epoch):
        seen = torch.cat(batches[start : start + per_epoch])
        assert len(seen.unique()) == len(seen)
        assert seen.max() < n_samples


def test_a_longer_training_begins_with_the_same_batches():
    short, long = (list(epochs(10, 3, n_steps, generator())) for n_steps in (4, 9))
    assert all(torch.equal(a, b) for a, b in zip(short, long, strict=False))


def draw(seed):
    mu = orthonormal_patterns(task(), generator(seed))
    return (
        mu,
        draw_samples(task(), mu, 6, generator(seed + 1)),
        draw_samples(task(), mu, 4, generator(seed + 2)),
    )


def test_a_data_set_comes_back_from_its_file_seed_by_seed(tmp_path):
    drawn = [draw(10), draw(20)]
    save_file(stacked([7, 3], drawn).tensors(), tmp_path / "samples.safetensors")
    data = read_patterns(tmp_path / "samples.safetensors")
    assert data.seeds == (7, 3)
    for seed, wanted in zip((7, 3), drawn, strict=True):
        mu, train, test = data.of(seed)
        assert torch.equal(mu, wanted[0])
        for found, part in ((train, wanted[1]), (test, wanted[2])):
            assert all(
                torch.equal(a, b)
                for a, b in zip(vars(found).values(), vars(part).values(), strict=True)
            )
    with pytest.raises(ValueError, match=r"seeds: wanted seeds of the data set, \[7, 3\], got 5"):
        data.of(5)


def test_a_file_that_is_no_such_data_set_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("notes")
    tensors = stacked([0], [draw(0)]).tensors()
    save_file(
        {name: t for name, t in tensors.items() if name != "test_labels"}, tmp_path / "lacking"
    )
    save_file(tensors | {"test_labels": torch.zeros(1, 3, dtype=torch.int64)}, tmp_path / "unfit")
    for name in ("notes.txt", "lacking", "absent"):
        with pytest.raises(ValueError, match=f"{name}: wanted a data set of patterns, got"):
            read_patterns(tmp_path / name)
    with pytest.raises(ValueError, match="wanted tokens, labels and patterns that fit one another"):
        read_patterns(tmp_path / "unfit")


def test_a_labelling_says_how_many_patterns_each_class_has():
    assert patterns_of_classes("2|1|1") == (2, 1, 1)
    with pytest.raises(
        ValueError, match=r"labels: wanted numbers of patterns such as 1\|1, got '2,1'"
    ):
        patterns_of_classes("2,1")


def test_patterns_and_samples_are_drawn_each_from_their_own_generator():
    seeds = {"patterns": 5, "train": 6, "test": 7}
    mu, train, test = draw_patterns(task(), 8, 6, lambda name: generator(seeds[name]))
    assert torch.equal(mu, orthonormal_patterns(task(), generator(5)))
    for found, n, seed in ((train, 8, 6), (test, 6, 7)):
        wanted = draw_samples(task(), mu, n, generator(seed))
        assert torch.equal(found.tokens, wanted.tokens)
        assert torch.equal(found.labels, wanted.labels)
