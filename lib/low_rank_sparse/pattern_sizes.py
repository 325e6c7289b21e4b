"""What a section of params.yaml says of a data set of patterns, with its bounds; patterns.py draws it."""

from dataclasses import dataclass
from typing import Annotated, Any

from lib.files.params import Count, Interval

Size = Annotated[int, Interval("[1, 16384]")]
Tokens = Annotated[int, Interval("[0, 16384]")]


@dataclass(frozen=True)
class PatternSizes:
    """The samples and what they are made of; the letters of the paper stand at `PatternTask`."""

    n_train: Count
    n_test: Count
    d_model: Size
    n_patterns: Size
    seq_len: Size
    n_relevant: Size
    n_confusion: Tokens
    noise: Annotated[float, Interval("[0, 100]")]

    @property
    def of_task(self) -> dict[str, Any]:
        """What of it says how a sample is made, by the names of `PatternTask`: all but how many there are."""
        names = ("d_model", "n_patterns", "seq_len", "n_relevant", "n_confusion", "noise")
        return {name: getattr(self, name) for name in names}
