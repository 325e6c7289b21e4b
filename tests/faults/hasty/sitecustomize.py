"""A monotonic clock that runs twenty times too fast, in stages alone: checkpoints, due after
seconds, come at once.

Python imports this module at its start, where this folder is on PYTHONPATH. No result depends on
that clock.
"""

import sys
import time

if any(
    argument.startswith("stages.") or argument == "--multiprocessing-fork"
    for argument in sys.orig_argv
):
    monotonic = time.monotonic
    time.monotonic = lambda: 20 * monotonic()
