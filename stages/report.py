"""One HTML page: what became of each paper's items, then its claims, each beside its figure."""

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

# A paper's items in the order of a reader: what is proved, by number, then what is shown.
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
PANELS = re.compile(r" ?\([a-zA-Z](?:, [a-zA-Z])*\)$")
# Who says what a claim says, by the claim's kind; of an item's claims, a paper's is shown first.
SAYS = {
    "theorem": "paper",
    "paper's figure": "paper",
    "assumption": "paper",
    "our bar": "ours",
    "control": "controls",
}
WHO = ("paper", "ours", "controls")


@dataclass(frozen=True)
class Caption:
    """What a figure shows and what to see there; `of` names what of the paper it is.

    A figure without `of` is ours. The report folds ours, and those that are `folded`.
    """

    title: str
    caption: str
    of: str | None = None
    folded: bool = False


@dataclass(frozen=True)
class Finding:
    """What contradicts or sharpens a paper, with the figure and the claims that show it."""

    text: str
    figure: str
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Paper:
    """What is said of a family: why one looks, what its paper leaves open, what was found.

    Its figures stand in the order of reading.
    """

    title: str
    source: str
    why: str
    unsaid: str
    figures: dict[str, Caption]
    findings: tuple[Finding, ...] = ()


def main(claims: Path, template: Path, page: OutFile, families: list[Path]) -> None:
    """FAMILIES: for each family its captions (YAML), in its folder, then folders of its figures.

    A folder of figures is plots/FAMILY/...figures, or figures beside a provenance.json.
    """
    judged = read_judged(claims)
    captions = [path for path in families if path.suffix == ".yaml"]
    papers = {path.parent.name: parse(load_yaml(path), Paper, str(path)) for path in captions}
    drawn = [section(path, judged, papers) for path in families if path not in captions]
    shown = {figure["path"]: figure for part in drawn for figure in part["figures"]}
    pictures = spread_by_name(
        pictured, {path: (path,) for path in shown}, label="pictures", unit="picture"
    )
    for path, figure in shown.items():
        figure["picture"] = pictures[path]
    for name, claim in judged.items():
        if claim["figure"] not in shown and claim["state"] != "not run":
            wanted = f"{claims}: {name}: wanted one of the figures {sorted(shown)}"
            raise InputError(f"{wanted}, got {claim['figure']}")
    order = list(dict.fromkeys([*papers, *(claim["family"] for claim in judged.values())]))
    of_family = {
        family: {name: claim for name, claim in judged.items() if claim["family"] == family}
        for family in order
    }
    of_papers = list(papers)  # a family without captions comes behind, in the order given
    drawn.sort(key=lambda part: [*of_papers, part["family"]].index(part["family"]))
    write_page(
        template,
        page,
        claims=judged,
        sections=drawn,
        papers=papers,
        findings=list(findings_of(papers, drawn, judged)),
        items={family: list(items_of(own)) for family, own in of_family.items() if own},
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


def findings_of(
    papers: dict[str, Paper], sections: list[dict[str, Any]], claims: Claims
) -> Iterator[dict[str, Any]]:
    """Each finding with its figure and its claims; none of a family that has no section here."""
    for family, paper in papers.items():
        figures = [f for part in sections if part["family"] == family for f in part["figures"]]
        by_stem = {Path(figure["path"]).stem: figure for figure in reversed(figures)}
        for finding in paper.findings if figures else ():
            said = f"findings of {family}: {finding.text[:40]!r}: wanted"
            if finding.figure not in by_stem:
                raise InputError(f"{said} one of its figures, got {finding.figure!r}")
            if missing := [name for name in finding.claims if name not in claims]:
                raise InputError(f"{said} one of its claims, got {missing}")
            figure = by_stem[finding.figure]
            yield {
                "text": finding.text,
                "figure": figure,
                "thumbnail": pictured(figure["path"], THUMBNAIL),
                "claims": {name: claims[name] for name in finding.claims},
            }


def items_of(claims: Claims) -> Iterator[dict[str, Any]]:
    """What a paper proves or shows, in its order, with the first of its claims and their counts.

    A claim is of every item that its `where` names. One that names none is ours.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    for name, claim in claims.items():
        for word, numbers in ITEM.findall(claim["where"]):
            for number in re.findall(NUMBER, numbers):
                if word.lower() == "figure":
                    number = PANELS.sub("", number)
                found.setdefault((word.lower(), number), {})[name] = None
    for word, number in sorted(found, key=place):
        names = list(found[word, number])
        said_by = {name: SAYS.get(claims[name]["kind"]) for name in names}
        counts = {
            who: [claims[name]["state"] for name in names if said_by[name] == who] for who in WHO
        }
        first = next(name for who in (*WHO, None) for name in names if said_by[name] == who)
        yield {"item": f"{word} {number}", "counts": counts, "name": first, "claim": claims[first]}


def place(item: tuple[str, str]) -> tuple[Any, ...]:
    """Where an item stands in a paper's list: by number, an appendix behind, figures last."""
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
    """The figures of a folder in the order of their captions, each with its claims; its origin.

    A figure without a caption comes behind the others, those first that a claim names. A figure
    without a claim is made by the commands that make the folder's others. A published run is of the
    family whose claims name its figures, and shows these alone, if there are any.
    """
    source = folder.parent / "provenance.json"
    files = {svg.stem: svg for svg in sorted(folder.glob("*.svg"))}
    if not files:
        raise InputError(f"{folder}: wanted figures, got none")
    beside = {
        stem: {name: claim for name, claim in claims.items() if claim["figure"] == str(svg)}
        for stem, svg in files.items()
    }
    named = [stem for stem, own in beside.items() if own]
    if folder.parts[0] == "plots":
        family = folder.parts[1]
    else:
        families = [claim["family"] for own in beside.values() for claim in own.values()]
        family = (families or [folder.parent.name])[0]
    captions = papers[family].figures if family in papers else {}
    shown = named if source.exists() and named else files
    commands = {
        stem: list(dict.fromkeys(claim["command"] for claim in own.values()))
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
            if stem in shown
        ],
    }


if __name__ == "__main__":
    run(main)
