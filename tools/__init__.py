"""The programs for people. This runs before any other code of one: an import that lacks memory or a
package ends in one line.
"""

import atexit
import gc
import os
import sys

from lib.work.errors import say_in_one_line_what_imports_lack

_well: list[bool] = []  # holds something once a program is done


def done() -> None:
    """Say that all is done and well: the process may end without taking its modules apart, which
    takes .3 s of the CPU where transformers is loaded.
    """
    _well.append(True)


def _end() -> None:
    """End at once if all is `done`; `atexit` calls this last."""
    gc.freeze()  # what a process ends with is not looked through
    if not _well:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody reads it any more: Python says so as it ends
        return
    os._exit(0)


if sys.argv[0] == "-m":  # python is looking for the module that it will run
    say_in_one_line_what_imports_lack()
    gc.disable()  # until `run`: nothing that is imported is garbage
    atexit.register(_end)
