"""How far the work has come: what computes reports it to a bar, here or in the parent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_report: Callable[[int], object] | None = None


def advance(n: int = 1) -> None:
    """Report `n` units of work done to the progress bar of `spread`, if there is one."""
    if _report is not None:
        _report(n)


def report_to(report: Callable[[int], object]) -> None:
    """Have what is computed from here on `advance` there."""
    global _report
    _report = report


@contextmanager
def reporting(report: Callable[[int], object]) -> Iterator[None]:
    """Have what is computed meanwhile `advance` there."""
    global _report
    before = _report
    _report = report
    try:
        yield
    finally:
        _report = before
