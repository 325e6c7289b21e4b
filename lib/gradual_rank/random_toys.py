"""A toy task of one seed: Gaussian tokens, a random teacher's targets, a direction of the start."""

from dataclasses import dataclass

from torch import Tensor

from lib.gradual_rank.diagonal_heads import taught
from lib.gradual_rank.tasks import PAIRS, Frames, HeadSizes, Law, frozen_blocks, gaussian_sequences
from lib.training.devices import generator


@dataclass(frozen=True)
class BlockSizes:
    """The sizes of a transformer of Example 3.2, and the frames in which its heads are diagonal."""

    n_layers: int
    n_heads: int
    d_mlp: int
    frames: Frames


def random_toy(
    seed: int, sizes: HeadSizes, teacher: Law, start: Law, blocks: BlockSizes | None = None
) -> dict[str, Tensor]:
    """The tensors of one seed of a `Toy`: of a head, or of a transformer where there are blocks.

    Tokens X and targets Y are [sample, token, d_model]; the teacher's products, u and v are [p],
    with two products for each entry of each head. Each has a generator of its own.
    """
    n_heads = blocks.n_layers * blocks.n_heads if blocks else 1
    size = 2 * n_heads * sizes.d_model
    tokens = generator(seed, "tokens")
    X = gaussian_sequences(sizes.n_samples, sizes.seq_len, sizes.d_model, tokens)
    w_u, w_v = PAIRS[teacher](size, generator(seed, "teacher"))
    u, v = PAIRS[start](size, generator(seed, "start"))
    products = w_u * w_v
    frozen: dict[str, Tensor] = {}
    if blocks:
        shape = (blocks.n_layers, blocks.n_heads, sizes.d_model, blocks.d_mlp)
        frozen = frozen_blocks(*shape, blocks.frames, generator(seed, "frozen"))
    Y = taught(products, X=X, **frozen)
    return {"X": X, "Y": Y, "teacher": products, "u": u, "v": v, **frozen}
