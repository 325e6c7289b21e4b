"""What storing in bfloat16 does to the spectra of updates: ranks, and the noise beside them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from lib.checkpoints.folders import check_pair, layer_of, open_checkpoint
from lib.checkpoints.update_spectra import rounding_edge, update_of
from lib.matrices.ranks import summaries
from lib.matrices.spectra import singular_values

RTOL = 1e-3  # of a summary that is not used here


def rounding_rows(base: Path, tuned: Path) -> Iterator[dict[str, Any]]:
    """A row for each update: its ranks before and after the weights are rounded, and the noise that
    rounding adds.
    """
    begun = open_checkpoint(base)
    ended = open_checkpoint(tuned)
    for name in check_pair(begun, ended):
        W_0 = begun.load(name)
        W = ended.load(name)
        if W.dim() != 2 or layer_of(name) == 0:
            continue
        exact: Any = update_of(W, W_0)
        stored: Any = update_of(W.bfloat16(), W_0.bfloat16())
        edge = rounding_edge(W.bfloat16(), W_0.bfloat16())
        sigma, sigma_stored = (singular_values(update) for update in (exact, stored))
        ranks = summaries([sigma.numpy(), sigma_stored.numpy()], RTOL)["rank_90"]
        yield {
            "module": name,
            "relative_update": float(exact.norm() / W_0.double().norm()),
            "rank_90": int(ranks[0]),
            "rank_90_stored": int(ranks[1]),
            "above_edge": int((sigma > edge).sum()),
            "above_edge_stored": int((sigma_stored > edge).sum()),
            "noise_over_edge": float(torch.linalg.matrix_norm(stored - exact, 2) / edge),
        }
