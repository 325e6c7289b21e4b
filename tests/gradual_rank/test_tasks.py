"""Gaussian inputs and directions, from the generator alone."""

import dataclasses

import torch
from safetensors.torch import save_file

from lib.gradual_rank.tasks import (
    PAIRS,
    Toy,
    gaussian_pair,
    gaussian_sequences,
    read_toy,
    uniform_pair,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_tokens_are_standard_normal_and_repeatable():
    X = gaussian_sequences(2000, 5, 3, generator())
    assert X.dtype == torch.float64
    assert abs(X.mean()) < 0.02
    covariance = torch.cov(X.reshape(2000, 15).T)
    assert (covariance - torch.eye(15)).abs().max() < 0.15
    assert torch.equal(X, gaussian_sequences(2000, 5, 3, generator()))
    assert not torch.equal(X, gaussian_sequences(2000, 5, 3, generator(1)))


def test_the_two_arrays_of_a_pair_are_independent():
    u, v = gaussian_pair(10000, generator())
    assert u.shape == v.shape == (10000,)
    assert abs((u * v).mean()) < 0.05
    assert abs(u.var() - 1) < 0.05


def test_a_toy_is_read_as_it_was_written(tmp_path):
    u, v = (w.reshape(2, 6) for w in gaussian_pair(12, generator()))
    X = torch.stack([gaussian_sequences(4, 5, 3, generator(seed)) for seed in (3, 8)])
    toy = Toy(torch.tensor([3, 8]), X, 2 * X, u * v, u, v)
    parts = {"frames": torch.eye(3).double().expand(2, 1, 2, 3, 3).contiguous()}
    parts |= {"W_1": torch.ones(2, 1, 3, 4).double(), "W_2": torch.zeros(2, 1, 4, 3).double()}
    for more in ({}, parts):
        held = {
            name: tensor for name, tensor in {**vars(toy), **more}.items() if tensor is not None
        }
        save_file(held, tmp_path / "toy.safetensors")
        found = read_toy(tmp_path / "toy.safetensors")
        for field in dataclasses.fields(Toy):
            if field.name in held:
                assert torch.equal(getattr(found, field.name), held[field.name]), field.name
            else:
                assert getattr(found, field.name) is None
        assert found.network(1).keys() == {"X", "Y", *more}
        assert all(torch.equal(tensor, held[name][1]) for name, tensor in found.network(1).items())


def test_every_law_of_pairs_has_mean_0_and_variance_1():
    for law, pair in PAIRS.items():
        for w in pair(10000, generator()):
            assert w.dtype == torch.float64
            assert abs(w.mean()) < 0.05, law
            assert abs(w.var() - 1) < 0.05, law
    assert max(w.abs().max() for w in uniform_pair(1000, generator())) < 3**0.5
