"""The stages. This runs before any other code of a stage: under DVC, a stage ends with it, even while it imports."""

import os
import sys

from lib.io.base.command import end_with_parent, interrupt_at_once, refuse_shallow_clone

if sys.argv[0] == "-m":  # python is looking for the module that it will run
    interrupt_at_once()
    if "DVC_ROOT" in os.environ:
        refuse_shallow_clone()
        end_with_parent()
