"""One self-contained HTML page: what became of each paper's items, then its claims, each beside its
figure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.files.files import InputError
from lib.files.params import load_yaml, parse
from lib.files.tables import read_json
from lib.pages.html import COLUMN, Picture, picture, write_page
from lib.work.command import OutFile, run
from lib.work.compute import spread_by_name

Claims = dict[str, dict[str, Any]]
CLAIM = {
    "statement",
    "where",
    "family",
    "kind",
    "source",
    "over",
    "bar",
    "figure",
    "state",
    "command",
}
THUMBNAIL = 350  # CSS pixels, of a finding's figure, which leads to the whole one

# A paper's items, in the order in which a reader looks for them: what is proved by number, then
# what is shown.
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
ITEM = re.compile(
    rf"\b({'|'.join(PROVED + SHOWN)})s? ({NUMBER}(?:(?:, | and ){NUMBER})*)", re.IGNORECASE
)


@dataclass(frozen=True)
class Caption:
    """What a figure shows and what to see there; `of` names what of the paper it is, and a figure
    without it is ours.

    Ours are folded, and those that say so.
    """

    title: str
    caption: str
    of: str | None = None
    folded: bool = False


@dataclass(frozen=True)
class Paper:
    """What is said of a family: why one looks, what its paper leaves open, and its figures in the
    order of reading.
    """

    title: str
    source: str
    why: str
    unsaid: str
    figures: dict[str, Caption]


@dataclass(frozen=True)
class Finding:
    """What contradicts or sharpens a paper, with the figure that shows it and the claims that say
    it.
    """

    family: str
    text: str
    figure: str
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Captions:
    findings: tuple[Finding, ...]
    families: dict[str, Paper]


def main(claims: Path, captions: Path, template: Path, page: OutFile, figures: list[Path]) -> None:
    """Write the page. A folder of figures is plots/<family>/...figures, or figures beside a
    provenance.json.
    """
    judged = read_judged(claims)
    said = parse(load_yaml(captions), Captions, str(captions))
    drawn = [section(folder, judged, said.families) for folder in figures]
    shown = {figure["path"]: figure for part in drawn for figure in part["figures"]}
    pictures = spread_by_name(
        pictured, {path: (path,) for path in shown}, label="pictures", unit="picture"
    )
    for path, figure in shown.items():
        figure["picture"] = pictures[path]
    for name, claim in judged.items():
        if claim["figure"] not in shown and claim["state"] != "not run":
            raise InputError(
                f"{claims}: {name}: wanted one of the figures {sorted(shown)}, got "
                f"{claim['figure']}"
            )
    families = list(dict.fromkeys(claim["family"] for claim in judged.values()))
    papers = list(said.families)
    families.sort(key=lambda family: papers.index(family) if family in papers else len(papers))
    drawn.sort(
        key=lambda part: papers.index(part["family"]) if part["family"] in papers else len(papers)
    )
    write_page(
        template,
        page,
        claims=judged,
        sections=drawn,
        papers=said.families,
        findings=[
            found for finding in said.findings if (found := shown_finding(finding, drawn, judged))
        ],
        items={
            family: list(items_of({n: c for n, c in judged.items() if c["family"] == family}))
            for family in families
        },
    )
    print(
        f"the report is {page}: {len(judged)} claims, {len(shown)} figures, "
        f"{page.stat().st_size / 1e6:.2f} MB"
    )


def read_judged(path: Path) -> Claims:
    """The verdicts by the claims' names; raises `InputError` where the file is another."""
    found = read_json(path)
    for name, claim in found.items() if isinstance(found, dict) else [("", found)]:
        if not isinstance(claim, dict) or not claim.keys() >= CLAIM:
            raise InputError(
                f"{path}: wanted claims with {', '.join(sorted(CLAIM))}, got {name or claim!r:.80}"
            )
    return found


def pictured(path: str, width: int = COLUMN) -> Picture:
    """The picture of a figure's file."""
    return picture(Path(path).read_bytes(), path, width)


def shown_finding(
    finding: Finding, sections: list[dict[str, Any]], claims: Claims
) -> dict[str, Any] | None:
    """A finding with its figure and its claims; None where the family has no section, as in a part
    of the pipeline.
    """
    own = [
        figure
        for part in sections
        if part["family"] == finding.family
        for figure in part["figures"]
    ]
    if not own:
        return None
    found = [figure for figure in own if Path(figure["path"]).stem == finding.figure]
    missing = [name for name in finding.claims if name not in claims]
    if not found or missing:
        wanted = (
            f"one of its claims, got {missing}"
            if found
            else f"one of its figures, got {finding.figure!r}"
        )
        raise InputError(f"findings of {finding.family}: {finding.text[:40]!r}: wanted {wanted}")
    path = found[0]["path"]
    thumbnail = pictured(path, THUMBNAIL)
    claimed = {name: claims[name] for name in finding.claims}
    return {"text": finding.text, "figure": found[0], "thumbnail": thumbnail, "claims": claimed}


def items_of(claims: Claims) -> Iterator[dict[str, Any]]:
    """What a paper proves or shows, in its order: the claims of each, counted by whose they are,
    and the first of them.

    A claim is of every item that its `where` names; one that names none is ours.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for name, claim in claims.items():
        for word, numbers in ITEM.findall(claim["where"]):
            for number in re.findall(NUMBER, numbers):
                plain = (
                    re.sub(r" ?\([a-zA-Z](?:, [a-zA-Z])*\)$", "", number)
                    if word.lower() == "figure"
                    else number
                )
                names = found.setdefault((word.lower(), plain), [])
                if name not in names:
                    names.append(name)
    for word, number in sorted(found, key=place):
        names = found[word, number]
        kinds = {
            "paper": ("theorem", "paper's figure", "assumption"),
            "ours": ("our bar",),
            "controls": ("control",),
        }
        counts = {
            who: [claims[n]["state"] for n in names if claims[n]["kind"] in kind]
            for who, kind in kinds.items()
        }
        first = min(
            names, key=lambda n: [claims[n]["kind"] in kind for kind in kinds.values()][::-1]
        )
        yield {"item": f"{word} {number}", "counts": counts, "name": first, "claim": claims[first]}


def place(item: tuple[str, str]) -> tuple[Any, ...]:
    """Where an item stands in a list of a paper's: by number, those of an appendix behind, figures
    last.
    """
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


def section(folder: Path, claims: Claims, papers: dict[str, Paper]) -> dict[str, Any]:
    """The figures of a folder in the order of their captions, each with its claims, without its
    picture; its origin.

    A figure without a caption comes behind the others, those first that a claim names; a figure
    without a claim is made by the commands that make the folder's others. A published run is of the
    family whose claims name its figures, and shows these alone, if there are any.
    """
    source = folder.parent / "provenance.json"
    files = {svg.stem: svg for svg in sorted(folder.glob("*.svg"))}
    if not files:
        raise InputError(f"{folder}: wanted figures, got none")
    beside = {
        stem: {n: c for n, c in claims.items() if c["figure"] == str(svg)}
        for stem, svg in files.items()
    }
    of_claims = [claim["family"] for own in beside.values() for claim in own.values()]
    family = (
        folder.parts[1] if folder.parts[0] == "plots" else next(iter(of_claims), folder.parent.name)
    )
    captions = papers[family].figures if family in papers else {}
    named = [Path(claim["figure"]).stem for own in beside.values() for claim in own.values()]
    if source.exists() and named:
        files = {stem: svg for stem, svg in files.items() if stem in named}
    commands = {
        stem: list(dict.fromkeys(c["command"] for c in own.values()))
        for stem, own in beside.items()
    }
    every = list(dict.fromkeys(command for own in commands.values() for command in own))
    return {
        "family": family,
        "name": folder.parent.name,
        "provenance": read_json(source) if source.exists() else None,
        "figures": [
            {
                "path": str(files[stem]),
                "said": captions.get(stem, Caption(stem.replace("-", " ").capitalize(), "")),
                "claims": beside[stem],
                "commands": commands[stem] or every,
            }
            for stem in dict.fromkeys([*captions, *named, *files])
            if stem in files
        ],
    }


if __name__ == "__main__":
    run(main)
