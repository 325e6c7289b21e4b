"""One HTML page: every item of the papers with its answer, its claims and its figures."""

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from lib.files.files import InputError
from lib.files.inputs import read_json, without_json_digest
from lib.pages.answers import CLAIM, ITEM, read_named
from lib.pages.boards import FILTERS, MARKS, first_sentence, in_short, kinds_of
from lib.pages.claims import turned
from lib.pages.html import drawing, write_page
from lib.pages.number_lines import number_lines
from lib.pages.papers import figures_of, plotted_folders, published_folders, read_papers, section
from lib.pages.unseen import (
    bar_in_words,
    failures,
    numbers,
    of_item_with_numbers,
    read_runs,
    set_when,
    threshold,
    with_worst,
)
from lib.work.command import OutFile, run

WHOSE = ("says", "asks")  # whose question an item is: a paper's, or ours


def main(
    families: list[Path], claims: Path, items: Path, published: Path, template: Path, page: OutFile
) -> None:
    """FAMILIES: for each family its captions (YAML), in its folder, and folders of its figures.

    PUBLISHED: the folder of published runs, with `unseen.json`, what turned on other seeds.
    """
    judged = read_named(claims, "claims", CLAIM)
    answered = read_named(items, "items", ITEM)
    papers = read_papers(path for path in families if path.suffix == ".yaml")
    plotted = plotted_folders((path for path in families if path.suffix != ".yaml"), papers)
    kept = published_folders(published, judged)
    figures = figures_of({**plotted, **kept}, papers)
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
            name: first_sentence(item["limits"])
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


def committed(file: Path) -> dict[str, Any]:
    """What the file says in the last commit; nothing where that is not known."""
    shown = ["git", "show", f"HEAD:./{file}"]
    found = subprocess.run(shown, capture_output=True, check=False)  # noqa: S603
    return without_json_digest(json.loads(found.stdout or "{}"), f"{file} of the last commit")


if __name__ == "__main__":
    run(main)
