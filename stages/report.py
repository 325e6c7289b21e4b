"""One HTML page: every item of the papers with its answer, its claims and its figures."""

import json
import re
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lib.files.files import InputError
from lib.files.inputs import read_json, without_json_digest
from lib.files.params import load_yaml, parse
from lib.pages.claims import turned
from lib.pages.html import drawing, write_page
from lib.pages.number_lines import number_lines
from lib.pages.unseen import (
    Runs,
    bar_in_words,
    failures,
    numbers,
    of_item_with_numbers,
    read_runs,
    set_when,
    threshold,
    worst,
)
from lib.work.command import OutFile, run

CLAIM = {"family", "item", "statement", "bar", "figure", "command", "holds", "n"}
CLAIM |= {"interval", "better", "over", "stood"}
ITEM = {"family", "title", "answer", "claims"}
WHOSE = ("says", "asks")  # whose question an item is: a paper's, or ours
MARKS = {  # of answers: how a board and an item show them
    "reproduced": "good",
    "yes": "good",
    "reproduced in part": "part",
    "in part": "part",
    "not reproduced": "bad",
    "contradicted": "bad",
    "no": "bad",
    "not tested": "open",
}
FILTERS = {
    "all": "all",
    "bad": "failed",
    "fragile": "fragile",
    "full": "the paper's size",
    "ours": "ours",
}
SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z])")
ASKED = re.compile(r"\b(asked|bar|was to|were to)\b")
DIAGRAM = "diagram"  # the name of a figure that stands above the items of its family
SHORT = 50  # characters of a sentence that says the bar alone


@dataclass(frozen=True)
class Caption:
    """What a figure shows and what to see there; `of` names what of the paper it is."""

    title: str
    caption: str
    of: str | None = None
    frames: str | None = None  # what its frames vary
    item: str | None = None  # the item beside which it stands, besides those that name it


@dataclass(frozen=True)
class Paper:
    """What is said of a family: why one looks, and what its paper leaves open.

    Its figures stand in the order of reading.
    """

    title: str
    source: str
    why: str
    unsaid: str
    figures: dict[str, Caption]


def main(
    claims: Path, items: Path, published: Path, template: Path, page: OutFile, families: list[Path]
) -> None:
    """PUBLISHED: the folder of published runs, with `unseen.json`, what turned on other seeds.

    FAMILIES: for each family its captions (YAML), in its folder, then folders of its figures.
    """
    judged = read_named(claims, "claims", CLAIM)
    answered = read_named(items, "items", ITEM)
    captions = [path for path in families if path.suffix == ".yaml"]
    papers = {path.parent.name: parse(load_yaml(path), Paper, str(path)) for path in captions}
    kept = published_folders(published, judged)
    figures = figures_of({**plotted_folders(families), **kept}, papers)
    for name, claim in judged.items():
        if claim["figure"] not in figures and claim["holds"] is not None:
            wanted = f"{claims}: {name}: wanted one of the figures {sorted(figures)}"
            raise InputError(f"{wanted}, got {claim['figure']}")
    sections = {
        family: section(family, answered, judged, figures)
        for family in dict.fromkeys([*papers, *(item["family"] for item in answered.values())])
    }
    shown = list(dict.fromkeys(path for part in sections.values() for path in part["figures"]))
    drawings = {
        path: {"name": f"p{number}", **vars(drawing(Path(path).read_bytes(), path))}
        for number, path in enumerate(shown)
    }
    kinds = {name: kinds_of(item) for name, item in answered.items()}
    made = published / "unseen.json"
    runs = read_runs(published)
    write_page(
        template,
        page,
        claims=judged,
        items=answered,
        bar_in_words=bar_in_words,
        threshold=threshold,
        set_when=partial(set_when, claims=judged),
        marks=MARKS,
        filters=FILTERS,
        kinds=kinds,
        whose={key: [name for name, item in answered.items() if key in item] for key in WHOSE},
        counted={kind: sum(kind in found for found in kinds.values()) for kind in FILTERS},
        in_short={name: in_short(item.get("found", "")) for name, item in answered.items()},
        limits_in_short={
            name: SENTENCE.split(item["limits"])[0]
            for name, item in answered.items()
            if "limits" in item
        },
        lines={name: number_lines(with_worst(claim, name, runs)) for name, claim in judged.items()},
        claims_commands=lambda item: dict.fromkeys(
            judged[one]["command"] for one in item["claims"]
        ),
        failures={name: failures(item, judged, runs) for name, item in answered.items()},
        unseen_said={
            name: of_item_with_numbers(item, judged, runs) for name, item in answered.items()
        },
        unseen_numbers=lambda name, seeds: (
            numbers(judged[name], runs[seeds][name]) if name in runs.get(seeds, {}) else ""
        ),
        runs_on_unseen_seeds=read_json(made) if made.exists() else [],
        papers=papers,
        sections=sections,
        figures=figures,
        drawings=drawings,
        published={path.parent.name: read_json(path.with_name("provenance.json")) for path in kept},
    )
    megabytes = page.stat().st_size / 1e6
    print(f"the report is {page}: {len(answered)} items, {len(shown)} figures, {megabytes:.2f} MB")
    for line in turned(judged, committed(claims)):
        print(line)


def with_worst(claim: dict[str, Any], name: str, runs: Runs) -> dict[str, Any]:
    """The claim in which every run on unseen seeds has its worst value too, where that decides."""
    if claim.get("over") != "every" or "unseen" not in claim:
        return claim
    unseen = {
        seeds: one | {"worst": worst(claim, runs.get(seeds, {}).get(name, {}))}
        for seeds, one in claim["unseen"].items()
    }
    return claim | {"unseen": unseen}


def committed(file: Path) -> dict[str, Any]:
    """What the file says in the last commit; nothing where that is not known."""
    shown = ["git", "show", f"HEAD:./{file}"]
    found = subprocess.run(shown, capture_output=True, check=False)  # noqa: S603
    return without_json_digest(json.loads(found.stdout or "{}"), f"{file} of the last commit")


def read_named(path: Path, what: str, keys: set[str]) -> dict[str, dict[str, Any]]:
    """What a file of `stages.claims` has by name; raises `InputError` where it is another."""
    found = read_json(path, digest=True)
    for name, one in found.items() if isinstance(found, dict) else [("", found)]:
        if not isinstance(one, dict) or not one.keys() >= keys:
            wanted = f"wanted {what} with {', '.join(sorted(keys))}"
            raise InputError(f"{path}: {wanted}, got {name or one!r:.80}")
    return found


def kinds_of(item: dict[str, Any]) -> list[str]:
    """The filters of the page by which an item is shown."""
    size = item.get("size", "")
    found = {
        "all": True,
        "bad": MARKS[item["answer"]] == "bad",
        "fragile": item.get("fragile", False),
        "full": bool(item["claims"]) and size.startswith("the paper's"),
        "ours": "asks" in item,
    }
    return [kind for kind, is_one in found.items() if is_one]


def in_short(found: str) -> str:
    """The sentence of what was found that says what was asked, or else the first.

    Where it says the bar alone, the sentence before it stands with it. What follows a semicolon
    behind the bar, such as the null, is left to its own column.
    """
    sentences = SENTENCE.split(found)
    place = next((k for k, one in enumerate(sentences) if ASKED.search(one)), 0)
    first = place - 1 if place and len(sentences[place]) < SHORT else place
    said = " ".join(sentences[first : place + 1])
    asked, semicolon, _ = said.rpartition("; ")
    return f"{asked}." if semicolon and ASKED.search(asked) else said


def plotted_folders(families: list[Path]) -> dict[Path, str]:
    """The family of each folder of figures: that of the captions before it."""
    found = {}
    family = ""
    for path in families:
        if path.suffix == ".yaml":
            family = path.parent.name
        else:
            found[path] = family
    return found


def published_folders(published: Path, claims: dict[str, dict[str, Any]]) -> dict[Path, str]:
    """The folders of published figures that claims name, each with the family of its claims."""
    judged = [claim for claim in claims.values() if claim["holds"] is not None]
    found = {Path(claim["figure"]).parent: claim["family"] for claim in judged}
    return {path: family for path, family in found.items() if path.is_relative_to(published)}


def figures_of(folders: dict[Path, str], papers: dict[str, Paper]) -> dict[str, dict[str, Any]]:
    """Every figure of the folders by its path: its family, and what is said of it."""
    found = {}
    for path, family in folders.items():
        files = sorted(path.glob("*.svg"))
        if not files:
            raise InputError(f"{path}: wanted figures, got none")
        said = papers[family].figures if family in papers else {}
        files.sort(key=lambda file: [*said, file.stem].index(file.stem))
        for file in files:
            plain = Caption(file.stem.replace("-", " ").capitalize(), "")
            found[str(file)] = {"family": family, "said": said.get(file.stem, plain)}
    return found


def section(
    family: str,
    items: dict[str, dict[str, Any]],
    claims: dict[str, dict[str, Any]],
    figures: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """The items of a family, each with the figures of its claims; the figures of no item.

    A published run shows the figures that a claim names, the pipeline all.
    """
    own = {name: item for name, item in items.items() if item["family"] == family}
    beside = {}
    for name, item in own.items():
        named = [item.get("figure", ""), *(claims[claim]["figure"] for claim in item["claims"])]
        with_frames = [path for figure in named for path in (figure, frames_of(figure))]
        with_frames += [
            path
            for path, figure in figures.items()
            if f"{figure['family']}.{figure['said'].item}" == name
        ]
        beside[name] = [path for path in dict.fromkeys(with_frames) if path in figures]
    shown = dict.fromkeys(path for paths in beside.values() for path in paths)
    others = [
        path
        for path, figure in figures.items()
        if figure["family"] == family and path not in shown and path.startswith("plots/")
    ]
    diagrams = [path for path in others if Path(path).stem == DIAGRAM]
    others = [path for path in others if path not in diagrams]
    return {
        "items": beside,
        "diagrams": diagrams,
        "others": others,
        "figures": [*shown, *diagrams, *others],
    }


def frames_of(figure: str) -> str:
    """The path that a figure's frames have, of which a page shows one at a time."""
    return figure.removesuffix(".svg") + "-frames.svg"


if __name__ == "__main__":
    run(main)
