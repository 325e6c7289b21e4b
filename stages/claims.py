"""Judge every claim by the numbers in git, and answer every item of a paper."""

from pathlib import Path
from typing import Any

from lib.files.tables import write_json
from lib.pages.answers import Said, check_measures, read_unseen
from lib.pages.claims import read_families
from lib.pages.judging import unseen_mark
from lib.pages.measures import read_measures
from lib.work.command import OutFile, run


def main(families: list[Path], published: Path, verdicts: OutFile, answers: OutFile) -> None:
    """FAMILIES: for each family its claims (YAML), then the files of their measures (CSV).

    PUBLISHED: the folder of published runs, each a folder with its measures and its provenance,
    and of `unseen`, with the answers on other seeds.
    """
    files = [path for path in families if path.suffix == ".yaml"]
    read = read_families(files)
    made = [path for path in families if path.suffix != ".yaml"]
    kept = sorted(published.glob("*/measures.csv"))
    measures = {str(path): read_measures(path) for path in [*made, *kept]}
    unseen = read_unseen(published)
    for file in files:
        check_measures(file, read[file.parent.name], measures)
    judged: dict[str, Any] = {}
    items: dict[str, Any] = {}
    for name, family in read.items():
        for item, entry in family.items.items():
            said = Said(name, family, entry, measures)
            own = {claim: said.judged(one) for claim, one in entry.claims.items()}
            full = f"{name}.{item}"
            items[full] = {"family": name, **said.answered(entry, own)}
            judged |= {claim: {"family": name, "item": full, **one} for claim, one in own.items()}
    for kind, named in (("items", items), ("claims", judged)):
        for name, one in named.items():
            if one["repeated"]:
                one |= unseen_mark(kind, name, one, unseen)
    write_json(judged, verdicts, digest=True)
    write_json(items, answers, digest=True)
    found = [verdict["holds"] for verdict in judged.values()]
    print(f"{len(items)} items, {len(found)} claims: {found.count(True)} hold, ", end="")
    print(f"{found.count(False)} do not, {found.count(None)} were not run")
    for claim, verdict in judged.items():
        if verdict["holds"] is None:
            print(f"not run: {claim}: {verdict['missing']}")


if __name__ == "__main__":
    run(main)
