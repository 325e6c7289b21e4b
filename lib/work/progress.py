"""Progress: code that computes reports it to a bar, in this process or in its parent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_report: Callable[[int], object] | None = None


def advance(n: int = 1) -> None:
    """Report `n` units of work done to the progress bar of `spread`, if there is one."""
    if _report is not None:
        _report(n)


def report_to(report: Callable[[int], object]) -> None:
    """Let all that is computed from here on report its progress there."""
    global _report
    _report = report


@contextmanager
def reporting(report: Callable[[int], object]) -> Iterator[None]:
    """Let all that is computed within the block report its progress there."""
    global _report
    before = _report
    _report = report
    try:
        yield
    finally:
        _report = before
