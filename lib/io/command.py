"""How a stage starts: a typed command line, plain tracebacks, and one line for bad input."""

import sys
from collections.abc import Callable
from typing import Any

import typer

from lib.io.files import InputError


def run(main: Callable[..., Any]) -> None:
    """Run `main` on the command line's arguments, as its signature types them.

    Bad input (`InputError`) ends the process with its message on one line; everything else, a fault of ours, with a
    traceback.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    try:
        app()
    except InputError as error:
        sys.exit(f"error: {error}")
