"""Draw report.html of the results that are here, and open it: `make report`. Nothing is run.

With a folder, as in `make pages`, the report and the site are written there, for a static host.
"""

import shlex
import shutil
import subprocess
import sys
import webbrowser
from pathlib import Path

from lib.files.params import load_yaml

ROOT = Path(__file__).parents[1]


def main(folder: str = "") -> None:
    command = shlex.split(load_yaml(ROOT / "dvc.yaml")["stages"]["report"]["cmd"])
    page = ROOT / load_yaml(ROOT / "dvc.yaml")["stages"]["report"]["outs"][0]
    done = subprocess.run([sys.executable, *command[1:]], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)  # the stage has said why
    if folder:
        from tools import site

        site.main(ROOT / folder)
        shutil.copy(page, ROOT / folder)
        print(f"the report is {ROOT / folder / page.name}, too")
    elif not is_opened(page):
        print(f"open {page} in a browser: none was found here")


def is_opened(page: Path) -> bool:
    """Open a page in the browser of this system, and say whether there is one that has a window."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    in_terminal = type(browser) is webbrowser.GenericBrowser
    return not in_terminal and browser.open(page.as_uri())


if __name__ == "__main__":
    main(*sys.argv[1:])
