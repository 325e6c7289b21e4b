import pytest
import torch

from lib.checkpoints.attribution import path_attribution
from lib.files.files import InputError


def random(seed):
    draw = torch.Generator().manual_seed(seed)
    return {name: torch.randn(3, 2, generator=draw).double() for name in "uv"}


END, UPDATES = random(0), random(1)


def quadratic(batch, W):
    return 0.5 * W["u"].square().sum() + W["v"].sum() + batch * W["u"].sum() * W["v"].sum()


def earned(batches, n_points, loss=quadratic, before=None):
    """What each parameter earned, and the parameters afterwards."""
    W = {name: value.clone().requires_grad_() for name, value in END.items()}
    for parameter in W.values():
        parameter.grad = None if before is None else torch.full_like(parameter, before)
    return path_attribution(W, UPDATES, batches, lambda batch: loss(batch, W), n_points), W


def test_attributions_sum_to_the_drop_where_the_loss_is_quadratic():
    """The gradient is then linear along the path, and the midpoint rule is exact."""
    found, _ = earned([0.5, -1.5], 1)
    begin = {name: END[name] - UPDATES[name] for name in END}
    drop = sum(quadratic(batch, begin) - quadratic(batch, END) for batch in (0.5, -1.5)) / 2
    assert sum(found.values()) == pytest.approx(float(drop), rel=1e-12)


def test_slopes_that_are_there_already_are_no_part_of_it_and_none_is_held():
    found, W = earned([1.0], 2, before=3.0)
    assert found == earned([1.0], 2)[0]
    assert all(parameter.grad is None for parameter in W.values())


def test_the_parameters_are_left_as_they_were_to_the_bit():
    _, W = earned([1.0], 3)
    assert all(torch.equal(W[name], END[name]) for name in END)


def test_a_backward_pass_that_fails_is_one_line_and_moves_nothing():
    graph: list[torch.Tensor] = []

    def once(batch, W):
        graph.append(quadratic(batch, W))
        return graph[0]

    W = {name: value.clone().requires_grad_() for name, value in END.items()}
    with pytest.raises(InputError, match=r"has a slope, got: .*second time"):
        path_attribution(W, UPDATES, [1.0], lambda batch: once(batch, W), 2)
    assert all(torch.equal(W[name], END[name]) for name in END)
