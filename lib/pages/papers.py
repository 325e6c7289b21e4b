"""What is said of papers and their figures, and which figures stand beside each of their items."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.files.files import InputError
from lib.files.params import load_yaml, parse

DIAGRAM = "diagram"  # the name of a figure that stands above the items of its family


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


def read_papers(files: Iterable[Path]) -> dict[str, Paper]:
    """What the files of captions (YAML) say, by family, which is the name of a file's folder."""
    return {file.parent.name: parse(load_yaml(file), Paper, str(file)) for file in files}


def plotted_folders(folders: Iterable[Path], papers: Mapping[str, Paper]) -> dict[Path, str]:
    """The family of each folder of figures: the last part of its path that is one."""
    found = {}
    for folder in folders:
        family = next((part for part in reversed(folder.parts) if part in papers), None)
        if family is None:
            wanted = f"wanted figures in a folder of one of the families {sorted(papers)}"
            raise InputError(f"{folder}: {wanted}, got another")
        found[folder] = family
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
