"""A head reads and writes only through W_KQ and W_VO."""

import math

import pytest
import torch

from lib.training.attention import PRODUCTS, attention, merge_heads


@pytest.fixture
def weights():
    g = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(3, 6, 2, generator=g, dtype=torch.float64)
        for name in ("W_Q", "W_K", "W_V", "W_O")
    }


@pytest.fixture
def tokens():
    g = torch.Generator().manual_seed(1)
    return tuple(torch.randn(4, n, 6, generator=g, dtype=torch.float64) for n in (5, 7))


def product(weights, name):
    left, right = PRODUCTS[name]
    return weights[left] @ weights[right].mT


def one_head(weights, head):
    return {name: W[head : head + 1] for name, W in weights.items()}


def close(found, wanted):
    return torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_the_output_of_a_head_is_that_of_its_W_KQ_and_W_VO(weights, tokens):  # noqa: N802
    X_query, X = tokens
    W_KQ, W_VO = product(weights, "W_KQ"), product(weights, "W_VO")
    for head in range(3):
        logits = X_query @ W_KQ[head].T @ X.mT / math.sqrt(2)
        close(
            attention(X_query, X, **one_head(weights, head)),
            torch.softmax(logits, -1) @ X @ W_VO[head],
        )


def test_heads_add_up(weights, tokens):
    X_query, X = tokens
    heads = [attention(X_query, X, **one_head(weights, head)) for head in range(3)]
    close(attention(X_query, X, **weights), torch.stack(heads).sum(0))


def test_merged_heads_stand_side_by_side(weights):
    merged = merge_heads(weights["W_Q"])
    assert merged.shape == (6, 6)
    for head in range(3):
        assert torch.equal(merged[:, 2 * head : 2 * head + 2], weights["W_Q"][head])
