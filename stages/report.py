"""One self-contained HTML page: for each paper a short why, its claims with their verdicts, each beside its figure."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lib.io.command import run
from lib.io.files import InputError
from lib.io.page import image, write_page
from lib.io.tables import read_json

Claims = dict[str, dict[str, Any]]


def main(claims: Path, template: Path, page: Path, figures: list[Path]) -> None:
    """Write the page. A folder of figures is plots/<family>/...figures, or figures beside a provenance.json."""
    judged: Claims = read_json(claims)
    drawn = [section(folder, judged) for folder in figures]
    shown = {figure["path"] for part in drawn for figure in part["figures"]}
    for name, claim in judged.items():
        if claim["figure"] not in shown and claim["state"] != "not run":
            raise InputError(f"{claims}: {name}: wanted one of the figures {sorted(shown)}, got {claim['figure']}")
    write_page(template, page, claims=judged, sections=drawn)
    print(f"the report is {page}: {len(judged)} claims, {len(shown)} figures")


def section(folder: Path, claims: Claims) -> dict[str, Any]:
    """The figures of a folder, those first that a claim names, each with its claims; where they come from.

    A figure without a claim is made by the commands that make the folder's others.
    """
    source = folder.parent / "provenance.json"
    named = [claim["figure"] for claim in claims.values()]
    files = {str(svg): svg for svg in sorted(folder.glob("*.svg"))}
    if not files:
        raise InputError(f"{folder}: wanted figures, got none")
    ordered = [path for path in dict.fromkeys(named) if path in files]
    ordered += [path for path in files if path not in ordered]
    beside = {path: {n: c for n, c in claims.items() if c["figure"] == path} for path in ordered}
    commands = {path: list(dict.fromkeys(c["command"] for c in own.values())) for path, own in beside.items()}
    every = list(dict.fromkeys(command for own in commands.values() for command in own))
    return {
        "family": folder.parts[1],
        "name": folder.parent.name,
        "provenance": read_json(source) if source.exists() else None,
        "figures": [
            {
                "path": path,
                "image": image(files[path].read_bytes()),
                "description": described(files[path], beside[path].values()),
                "claims": beside[path],
                "commands": commands[path] or every,
            }
            for path in ordered
        ],
    }


def described(figure: Path, claims: Iterable[dict[str, Any]]) -> str:
    """What a figure shows, for those who do not see it."""
    return ". ".join([f"{figure.parents[1].name}: {figure.stem.replace('-', ' ')}", *(c["statement"] for c in claims)])


if __name__ == "__main__":
    run(main)
