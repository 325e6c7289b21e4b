"""Runs stages one after another in one process: ray_stages.py [[FOLDER, MODULE, ARGUMENT...]...]

Their workers then start once, and not once for each stage.
"""

import importlib
import json
import os
import sys

from lib.work.command import run


def main():
    for folder, module, *arguments in json.loads(sys.argv[1]):
        os.chdir(folder)
        sys.argv = [module, *arguments]
        run(importlib.import_module(module).main)


if __name__ == "__main__":
    main()
