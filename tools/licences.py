"""Write the packages that are installed beside this project, and their licences: `python -m
tools.licences`.
"""

import re
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from lib.files.files import write_files

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^([A-Za-z][^=\s]*)==(\S+)", re.MULTILINE)
HEAD = """# Licences of what is installed

The table has what `requirements.txt` pins, with the licence that each package names. None of it is
copied into this repository; a package under the GPL (grandalf, and pygit2 with its linking
exception, both of DVC's) is run and not changed. On Linux, torch for a GPU brings NVIDIA's
libraries (`requirements.cuda.txt`), under NVIDIA's own terms.

| Package | Licence |
|---|---|
"""


def main() -> None:
    rows = [
        f"| {name} | {licence(name)} |\n"
        for name, _ in PIN.findall((ROOT / "requirements.txt").read_text())
    ]
    write_files(ROOT / "docs", {"licences.md": (HEAD + "".join(rows)).encode()})


def licence(name: str) -> str:
    """The licence of an installed package, as its metadata name it."""
    said: Any = metadata(name)
    listed = [
        one.split(" :: ")[-1]
        for one in said.get_all("Classifier", [])
        if one.startswith("License :: ")
    ]
    lines = (
        (said.get("License-Expression") or ", ".join(listed) or said.get("License") or "")
        .strip()
        .splitlines()
    )
    return lines[0][:100] if lines else "not named"


if __name__ == "__main__":
    main()
