"""The table of configurations, and grids: every combination of the values that params take."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

# The columns of the table of configurations, of which each stage reads a part.
CONFIGURATION = ("name", "readout", "learning_rate", "n_steps", "n_seeds", "first_seed", "labels")


def grid(
    values: Mapping[str, Sequence[float] | Sequence[str]],
) -> Iterator[dict[str, int | float | str]]:
    """Yield every combination of the values, by the names of the parameters; the last of them
    varies fastest.

    A whole number is an `int`, as schemas of counts want it, and 3.0 is one: a table of numbers has
    them all as floats.
    """
    for chosen in product(*values.values()):
        yield {name: _whole(value) for name, value in zip(values, chosen, strict=True)}


def _whole(value: float | str) -> int | float | str:
    return int(value) if isinstance(value, float) and value.is_integer() else value
