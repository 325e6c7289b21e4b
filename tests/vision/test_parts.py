"""Parts of a batch, added as one binary tree, give the same bits whichever processes compute
them.
"""

import multiprocessing
import warnings

import pytest
import torch
import torch.distributed as dist

from lib.files.files import InputError
from lib.vision.parts import Block, check_parts, in_parts, tree_sum
from tests.pipeline.alone import LIBRARIES

N_PARTS = 8


def problem():
    """Weights of 19 numbers, which no number of ranks divides, and a batch."""
    g = torch.Generator().manual_seed(0)
    weights = {"A": torch.randn(5, 3, generator=g), "b": torch.randn(3, generator=g)}
    weights["c"] = torch.randn((), generator=g)
    return weights, (torch.randn(16, 5, generator=g), torch.randn(16, generator=g))


def loss(weights, X, y):
    return ((torch.tanh(X @ weights["A"]) @ weights["b"] + weights["c"] - y) ** 2).mean()


def computed(loss, block=None):
    """The loss of the problem, or of a block of it, and its gradient in each weight, by name."""
    weights, batch = problem()
    if block:
        batch = [tensor[block.of(16)] for tensor in batch]
    for weight in weights.values():
        weight.requires_grad_()
    value = loss(weights, *batch)
    value.backward()
    return {"loss": value.detach(), **{name: weight.grad for name, weight in weights.items()}}


def by_neighbours(terms):
    """Half of the terms, and the other half, each added by neighbours."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return by_neighbours(terms[:half]) + by_neighbours(terms[half:])


def assert_same_bits(found, wanted):
    assert list(found) == list(wanted)
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)


def test_loss_and_gradient_are_the_means_of_those_of_the_parts_added_by_neighbours():
    X, y = problem()[1]
    parts = [
        computed(lambda weights, *_, n=n: loss(weights, X[2 * n : 2 * n + 2], y[2 * n : 2 * n + 2]))
        for n in range(N_PARTS)
    ]
    wanted = {name: by_neighbours([part[name] for part in parts]) / N_PARTS for name in parts[0]}
    assert_same_bits(computed(in_parts(loss, N_PARTS)), wanted)


def test_one_part_is_the_loss_itself():
    assert in_parts(loss, 1) is loss


def test_a_sum_over_2_to_the_k_terms_holds_at_most_k_partial_sums():
    alive = [0]

    class Counted(torch.Tensor):
        def add_(self, other):
            alive[0] -= 1
            return super().add_(other)

    most = 0

    def terms():
        nonlocal most
        for number in range(32):
            most = max(most, alive[0])
            alive[0] += 1
            yield torch.tensor([float(number)]).as_subclass(Counted)

    assert tree_sum(terms()).item() == sum(range(32))
    assert most == 5


def compute_as_rank(rank, folder):
    """What each of four processes has in the end, in groups of one, two and four of them."""
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
    for n in (1, 2, 4):
        group = dist.new_group(list(range(n)))
        if rank < n:
            found = computed(in_parts(loss, N_PARTS, group), Block(N_PARTS, rank, n))
            torch.save(found, folder / f"{n} {rank}")
    if rank == 0:
        try:
            computed(in_parts(loss, 2, dist.group.WORLD))
        except InputError as error:
            (folder / "refused").write_text(str(error))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The folder of what four processes have computed."""
    folder = tmp_path_factory.mktemp("ranks")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    processes = [context.Process(target=compute_as_rank, args=(rank, folder)) for rank in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return folder


@pytest.mark.parametrize("n", [1, 2, 4])
def test_every_rank_of_a_group_has_the_bits_of_one_process_alone(ranks, n):
    wanted = computed(in_parts(loss, N_PARTS))
    for rank in range(n):
        assert_same_bits(torch.load(ranks / f"{n} {rank}"), wanted)


def test_ranks_that_do_not_divide_the_parts_are_refused(ranks):
    assert (ranks / "refused").read_text() == "ranks: wanted a divisor of 2 parts, got 4"


@pytest.mark.parametrize(
    ("n_parts", "message"),
    [
        (0, "parts: wanted a power of two, got 0"),
        (12, "parts: wanted a power of two, got 12"),
        (16, "parts: wanted a divisor of the 24 samples of a batch, got 16"),
    ],
)
def test_parts_that_are_uneven_or_make_no_tree_are_refused(n_parts, message):
    with pytest.raises(ValueError, match=message):
        check_parts(n_parts, 24)


def test_a_batch_that_cannot_be_cut_is_refused():
    weights, (X, y) = problem()
    with pytest.raises(ValueError, match="parts: wanted a divisor of the 15 samples"):
        in_parts(loss, N_PARTS)(weights, X[1:], y[1:])
