"""One self-contained HTML page: what became of each paper's items, then its claims, each beside its figure."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lib.io.command import run
from lib.io.files import InputError
from lib.io.page import image, write_page
from lib.io.tables import read_json

Claims = dict[str, dict[str, Any]]

# A paper's items, in the order in which a reader looks for them: what is proved by number, then what is shown.
PROVED = (
    "assumption",
    "lemma",
    "theorem",
    "proposition",
    "corollary",
    "remark",
    "example",
    "part",
    "algorithm",
    "equation",
)
SHOWN = ("section", "figure")
NUMBER = r"(?:\(\d+\)|(?:[A-Z]\.)?\d+(?:\.\d+)*)(?: ?\((?:i+|[a-zA-Z](?:, [a-zA-Z])*)\))?"
ITEM = re.compile(rf"\b({'|'.join(PROVED + SHOWN)})s? ({NUMBER}(?:(?:, | and ){NUMBER})*)", re.IGNORECASE)


def main(claims: Path, template: Path, page: Path, figures: list[Path]) -> None:
    """Write the page. A folder of figures is plots/<family>/...figures, or figures beside a provenance.json."""
    judged: Claims = read_json(claims)
    drawn = [section(folder, judged) for folder in figures]
    shown = {figure["path"] for part in drawn for figure in part["figures"]}
    for name, claim in judged.items():
        if claim["figure"] not in shown and claim["state"] != "not run":
            raise InputError(f"{claims}: {name}: wanted one of the figures {sorted(shown)}, got {claim['figure']}")
    families = dict.fromkeys(claim["family"] for claim in judged.values())
    items = {family: list(items_of({n: c for n, c in judged.items() if c["family"] == family})) for family in families}
    write_page(template, page, claims=judged, sections=drawn, items=items)
    print(f"the report is {page}: {len(judged)} claims, {len(shown)} figures")


def items_of(claims: Claims) -> Iterator[dict[str, Any]]:
    """What a paper proves or shows, in its order: the claims of each, counted by whose they are, and the first of them.

    A claim is of every item that its `where` names; one that names none is ours.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for name, claim in claims.items():
        for word, numbers in ITEM.findall(claim["where"]):
            for number in re.findall(NUMBER, numbers):
                plain = re.sub(r" ?\([a-zA-Z](?:, [a-zA-Z])*\)$", "", number) if word.lower() == "figure" else number
                names = found.setdefault((word.lower(), plain), [])
                if name not in names:
                    names.append(name)
    for word, number in sorted(found, key=place):
        names = found[word, number]
        kinds = {"paper": ("theorem", "paper's figure", "assumption"), "ours": ("our bar",), "controls": ("control",)}
        counts = {who: [claims[n]["state"] for n in names if claims[n]["kind"] in kind] for who, kind in kinds.items()}
        first = min(names, key=lambda n: [claims[n]["kind"] in kind for kind in kinds.values()][::-1])
        yield {"item": f"{word} {number}", "counts": counts, "name": first, "claim": claims[first]}


def place(item: tuple[str, str]) -> tuple[Any, ...]:
    """Where an item stands in a list of a paper's: by number, those of an appendix behind, figures last."""
    word, number = item
    digits = [int(n) for n in re.findall(r"\d+", number)]
    return (
        word in SHOWN,
        word in SHOWN and SHOWN.index(word),
        number[:1].isalpha(),
        digits,
        PROVED.index(word) if word in PROVED else 0,
        number,
    )


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
