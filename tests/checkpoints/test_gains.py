"""Parts of a text: their loss is that of the batches, and what is no more than noise chooses
nothing; layers that are never called.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lib.checkpoints.gains import LinearUpdates, Parts, uncalled
from lib.checkpoints.texts import mean_loss
from lib.files.files import InputError
from tests.checkpoints.transformers_made import made


def masked():
    """Two batches of three windows: some of their labels count, and none of one window does."""
    source = torch.Generator().manual_seed(0)
    batches = []
    for hidden in ([0, 5, 12], [0, 3, 9]):
        ids = torch.randint(256, (3, 12), generator=source)
        labels = ids.clone()
        for row, n in enumerate(hidden):
            labels[row, : max(n, 1)] = -100
        batches.append({"input_ids": ids, "labels": labels})
    return batches


def plain():
    return [{"input_ids": batch["input_ids"]} for batch in masked()]


@pytest.mark.parametrize(("batches", "n_parts"), [(masked(), 5), (plain(), 6)])
def test_the_loss_over_parts_is_the_loss_over_batches(batches, n_parts):
    model = made("llama")
    parts = Parts(batches)
    losses = [mean_loss(model, [part]) for part in parts.batches]
    assert len(losses) == n_parts
    assert parts.mean(losses) == pytest.approx(mean_loss(model, batches), rel=1e-6)


def test_labels_of_samples_count_samples():
    batch = {"pixel_values": torch.zeros(8, 2), "labels": torch.arange(8)}
    parts = Parts([batch, {name: values[:2] for name, values in batch.items()}])
    np.testing.assert_allclose(parts.weights, [1 / 10] * 10)


def test_of_one_part_the_noise_is_not_known():
    alone = Parts([{"input_ids": torch.zeros(1, 3, dtype=torch.long)}])
    assert alone.difference([1.0], [2.0]) == (-1.0, np.inf)


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ({"energy": [0.9, 1.9, 2.9, 3.9], "attributed": [0.7, 1.8, 2.7, 3.8]}, "attributed"),
        ({"energy": [0.9, 1.9, 2.9, 3.9], "attributed": [1, 2, 3, 4]}, "energy"),
        ({"energy": [0.5, 2.4, 2.5, 4.4], "attributed": [1.1, 2.1, 3.1, 4.1]}, "uniform"),
        ({"energy": [np.nan] * 4, "attributed": [1.1, 2.1, 3.1, 4.1]}, "uniform"),
    ],
)
def test_a_rule_is_best_where_it_is_below_uniform_by_more_than_the_noise(losses, best):
    parts = Parts([{"input_ids": torch.zeros(4, 3, dtype=torch.long)}])
    assert parts.best({"uniform": [1.0, 2.0, 3.0, 4.0], **losses}) == best
    beyond = {"uniform": [np.nan] * 4, "energy": [2.0] * 4, "attributed": [1.0] * 4}
    assert parts.best(beyond) == "attributed"


class PastItsModule(torch.nn.Module):
    """A model with a layer that is read past its forward, and one that is not used."""

    def __init__(self):
        super().__init__()
        self.called, self.read, self.idle = (torch.nn.Linear(3, 3) for _ in range(3))

    def forward(self, x, labels):
        made = torch.nn.functional.linear(self.called(x), self.read.weight)
        return SimpleNamespace(loss=(made - labels).square().mean())


def test_a_layer_whose_weight_has_a_slope_and_whose_forward_never_runs_is_not_called():
    model = PastItsModule()
    linear = LinearUpdates(model, {name: torch.zeros(3, 3) for name in ("called", "read", "idle")})
    batch = {"x": torch.randn(4, 3), "labels": torch.randn(4, 3)}
    assert uncalled(linear, batch) == ["read"]
    assert all(weight.grad is None for weight in linear.parameters.values())
    linear.leave(["read"])
    assert set(linear.parameters) == set(linear.base) == set(linear.tuned) == {"called", "idle"}


def test_a_model_that_cannot_go_backward_is_refused_by_its_name():
    class Refusing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, *_):
            raise AssertionError("train me")

    class Reversible(PastItsModule):
        def forward(self, x, labels):
            return SimpleNamespace(loss=Refusing.apply(super().forward(x, labels).loss))

    linear = LinearUpdates(Reversible(), {"called": torch.zeros(3, 3)})
    message = r"Reversible has a slope, got: train me \(AssertionError\)"
    with pytest.raises(InputError, match=message):
        uncalled(linear, {"x": torch.randn(4, 3), "labels": torch.randn(4, 3)})


def test_a_model_none_of_whose_layers_has_a_slope_is_refused_by_its_name():
    class Detached(PastItsModule):
        def forward(self, x, labels):
            return SimpleNamespace(
                loss=super().forward(x, labels).loss.detach() + self.idle.bias[0]
            )

    linear = LinearUpdates(Detached(), {name: torch.zeros(3, 3) for name in ("called", "read")})
    message = "Detached has a slope, got none by the weight of any of its 2 linear layers"
    with pytest.raises(InputError, match=message):
        uncalled(linear, {"x": torch.randn(4, 3), "labels": torch.randn(4, 3)})
