"""The stages. This runs before any other code of a stage: under DVC, a stage ends with it, even
while it imports.
"""

import atexit
import gc
import os
import sys

import lib.files.sources  # noqa: F401 (it notes what the code is, before more of it is loaded)
from lib.work.command import refuse_shallow_clone
from lib.work.errors import say_in_one_line_what_imports_lack
from lib.work.signals import end_with_parent, interrupt_at_once

if sys.argv[0] == "-m":  # python is looking for the module that it will run
    interrupt_at_once()
    say_in_one_line_what_imports_lack()
    # until `run`: nothing that is imported is garbage, and to look for some takes a sixth of a
    # start
    gc.disable()
    atexit.register(
        gc.freeze
    )  # nor is what a process ends with looked through: its memory is given back as a whole
    if "DVC_ROOT" in os.environ:
        refuse_shallow_clone()
        end_with_parent()
