"""The loss of a problem of the table: of a head, of a transformer, or one's own."""

from pathlib import Path

from lib.files.files import InputError
from lib.gradual_rank.diagonal_heads import DiagonalHead, DiagonalTransformer, diagonal_network
from lib.gradual_rank.own_losses import Named, OwnLoss
from lib.gradual_rank.tasks import Start, Toy

Problem = DiagonalHead | DiagonalTransformer | OwnLoss


def loss_of(start: Start, index: int, losses: Path | None, own: Named | None) -> Problem:
    """The loss of a seed: by its tokens, or the function of the file of losses that is its own.

    Raises `InputError` where the function is not what `OwnLoss` wants, or the start is another's.
    """
    if own is not None and losses is not None:
        return own.of(losses, start.size, int(start.seeds[index]))
    if not isinstance(start, Toy):
        raise InputError("wanted a problem with tokens, got the start of a loss of one's own")
    return diagonal_network(**start.network(index))


def named(loss: str | None, gradient: str | None) -> Named | None:
    """The functions that a line of the table names; None where it names no loss.

    Raises `ValueError` for a gradient without a loss.
    """
    if loss is None and gradient is not None:
        raise ValueError(f"gradient: wanted a loss beside it, got {gradient} alone")
    return None if loss is None else Named(loss, gradient)
