"""What the tensors of the family's runs are."""

from collections.abc import Sequence

from lib.files.runs import Layout
from lib.training.attention import PRODUCTS


def head_layout(seeds: Sequence[int], variant: str, **cell: object) -> Layout:
    """The layout of one head's four d × d matrices, and what tells its run from its neighbours."""
    names = [name for pair in PRODUCTS.values() for name in pair]
    return Layout(
        family="gradual_rank",
        matrices={name: ["seed", "row", "col"] for name in names},
        products=PRODUCTS,
        cell={"variant": variant, **cell},
        seeds=list(seeds),
    )
