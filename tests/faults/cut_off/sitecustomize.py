"""In stages alone: SIGKILL to the whole process group as soon as the first cell, or kept value, of
scratch is whole.

Python imports this module at its start, where this folder is on PYTHONPATH.
"""

import os
import re
import signal
import sys
from pathlib import Path

if any(argument.startswith("stages.") for argument in sys.orig_argv):
    replace = os.replace

    def replaced(source, target):
        replace(source, target)
        if re.fullmatch(r"(done|[0-9a-f]{24})-[0-9a-f]{24}", Path(target).stem):
            os.killpg(0, signal.SIGKILL)

    os.replace = replaced
