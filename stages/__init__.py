"""The stages. This runs before any other code of a stage: under DVC, a stage ends with it, even while it imports."""

import os
import sys

from lib.io.command import end_with_parent, refuse_shallow_clone

if sys.argv[0] == "-m" and "DVC_ROOT" in os.environ:  # python -m is looking for the module that it will run
    refuse_shallow_clone()
    end_with_parent()
