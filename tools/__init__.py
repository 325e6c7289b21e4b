"""The programs for people. This runs before any other code of one: an import that lacks memory or a
package ends in one line.
"""

import atexit
import gc
import sys

from lib.work.errors import say_in_one_line_what_imports_lack

if sys.argv[0] == "-m":  # python is looking for the module that it will run
    say_in_one_line_what_imports_lack()
    gc.disable()  # until `run`: nothing that is imported is garbage
    atexit.register(gc.freeze)  # nor is what a process ends with looked through
