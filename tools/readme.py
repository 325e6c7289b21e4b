"""Write what README.md and docs/ say of items, claims and figures: `make readme`.

Answers stand in metrics/items.json, verdicts in metrics/claims.json, captions in
stages/FAMILY/captions.yaml.

A part of README.md or docs/optimisers.md stands between `<!-- NAME: made by make readme -->` and
`<!-- end of NAME -->`. On every page a figure of a family has its title, and below it, in italics,
its caption.
"""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lib.files.params import load_yaml
from lib.files.tables import read_json, read_table
from lib.gradual_rank.figures.optimizers import name_of
from lib.pages.claims import VERDICTS
from lib.pages.unseen import (
    Runs,
    bar_in_words,
    comparison,
    comparisons,
    of_claim,
    of_item,
    read_runs,
    set_when,
    threshold,
)

OF_PAPERS = (
    "Items of the papers whose main claim did not hold here (what fails in an item that was "
    "reproduced *in part* is in [docs/claims.md](docs/claims.md)):"
)
ROOT = Path(__file__).parents[1]
CHANGES = {
    "square_change_KQ": "squares, W_K and W_Q",
    "square_change_VO": "squares, W_V and W_O",
    "root_change_KQ": "roots, W_K and W_Q",
    "root_change_VO": "roots, W_V and W_O",
}
FIGURE = re.compile(
    r"^!\[[^\]\n]*\]\(([^)\n]*plots/(\w+)/[^)\n]*?([\w-]+)\.svg)\)(?:\n+\*[^*\n]+\*)?$",
    re.MULTILINE,
)
PAGE = """# Items and claims

Every item of `stages/FAMILY/claims.yaml`, made by `make readme`: what a paper says or what we ask,
the answer, what was found, and the claims behind it.

An answer has three marks. *Size*: whether we ran the paper's size or a smaller one. *Unseen seeds*:
whether runs on seeds that set no bar give the same answer; where one does not, the answer is
*fragile*. *Bar*: whether it is the paper's or a theorem's, or ours, and then whether it was set
before the first run or after it. A bar that was set after a run confirms nothing about that run.
Every bar stood before the runs on unseen seeds, so these are the confirmation.

A number is the median, or the mean where the bar is of the mean; behind it stand its 95 % interval,
or the range below six seeds, and `n`, how many seeds, bases or tasks it is of. Where every value
has to meet the bar, the worst one stands beside the median. A null is the same measure, in the same
unit, of what should do worse, such as training on permuted labels.

If a claim has several cases, we show the one closest to its bar, and say in how many of them the
null is beaten. The numbers on unseen seeds are of the same case, or, if that one is of a published
run, which is not repeated, of the repeated case that is closest to the bar.

A claim that does not hold is a *finding* (it is wrong, and we say why), a *limit* (it holds in part
of its cases) or a *bar missed* (it is outside of its bar, and mostly still better than its null,
which stands beside it). A *check* is a claim that no run could have failed; it guards our code and
is no evidence.
[statistics.md](statistics.md) says what all of this is worth.

"""
UNSURE = ("not reproduced", "contradicted", "no")
Named = dict[str, dict[str, Any]]


def page(items: Named, claims: Named, runs: Runs) -> str:
    """All items and claims as Markdown, a section for each family."""
    families: dict[str, Named] = {}
    for name, item in items.items():
        families.setdefault(item["family"], {})[name] = item
    sections = [section(family, own, claims, runs) for family, own in families.items()]
    return PAGE + "\n\n".join(sections) + "\n"


def section(family: str, items: Named, claims: Named, runs: Runs) -> str:
    """The items of one family, each with its claims, behind a table of their answers."""
    lines = [f"## {family}: {counted(items)}", ""]
    lines += ["| item | answer | size | unseen seeds | bar |", "|-|-|-|-|-|"]
    lines += [as_row(marked(name, item, claims)) for name, item in items.items()]
    for name, item in items.items():
        said = item.get("says") or item.get("asks")
        lines += ["", f'### <a id="{name}"></a>{item["title"]}', ""]
        lines += [f"*{item['answer'].capitalize()}.* {said}"]
        lines += ["", f"**Found.** {item['found']}"] if "found" in item else []
        lines += ["", f"**Limits.** {item['limits']}"] if "limits" in item else []
        lines += ["", f"**Scope.** {item['scope']}"] if "scope" in item else []
        if item["claims"]:
            lines += ["", "| claim | number | null | bar | unseen seeds | |", "|-|-|-|-|-|-|"]
            lines += [row(item, name, claims[name], runs) for name in item["claims"]]
    return "\n".join(lines)


def marked(name: str, item: dict[str, Any], claims: Named) -> list[str]:
    """The cells of an item in the table of its family: its answer and the three marks."""
    tested = item["claims"]
    return [
        f"[{item['title']}](#{name})",
        item["answer"],
        item.get("size", "") if tested else "",
        of_item(item, claims) if tested else "",
        set_when(item, claims),
    ]


def counted(items: Named) -> str:
    """How many items have which answer."""
    answers = Counter(item["answer"] for item in items.values())
    return ", ".join(f"{n} {answer}" for answer, n in answers.items())


def row(item: dict[str, Any], name: str, claim: dict[str, Any], runs: Runs) -> str:
    """A claim as a row of a table; one of ours says so among the paper's."""
    verdict = VERDICTS[claim["holds"]] if claim["holds"] is not False else claim["outcome"]
    own = " (ours)" if "says" in item and claim["kind"] == "ours" else ""
    own += " (a check, which no run could have failed)" if claim.get("check") else ""
    bar = f"{bar_in_words(claim)}; {threshold(claim)}"
    unseen = of_claim(claim, name, runs)
    return as_row([claim["statement"] + own, value(claim), null(claim), bar, unseen, verdict])


def as_row(cells: list[str]) -> str:
    """The cells as a row of a table in Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def value(claim: dict[str, Any]) -> str:
    """The number of a claim with its interval or range, its case, and what is independent."""
    if claim.get("value") is None:
        return "–"
    ends = claim["interval_95"] if None not in claim["interval_95"] else None
    ends = ends or [claim["min"], claim["max"]]
    said = f"{claim['value']:.3g}"
    if claim["n"] > 1:
        said = f"{'mean' if claim['over'] == 'mean' else 'median'} {said}"
        said += f" ({' to '.join('–' if end is None else f'{end:.3g}' for end in ends)}; "
        said += f"n = {claim['n']})"
    where = [claim[key] for key in ("case", "scale") if claim.get(key)]
    return f"{said}, {', '.join(where)}" if where else said


def null(claim: dict[str, Any]) -> str:
    """The null of a claim, beside the number that is shown, and in how many cases it is beaten."""
    beside = claim.get("null")
    if not beside or beside["value"] is None:
        return "–"
    counts = claim.get("nulls")
    beats = f"; beaten in {counts['beaten']} of {counts['cases']}" if counts else ""
    return f"{beside['value']:.3g}: {beside['what']}{beats}"


def results(items: Named, claims: Named, runs: Runs) -> str:
    """What README says of the items that have a headline and hold, each with marks and links, and
    the numbers that decide them as a table.
    """
    shown = {
        name: item
        for name, item in items.items()
        if "headline" in item and item["answer"] not in UNSURE
    }
    lines = [
        f"- {item['headline']} [Figure]({item['figure']}), [claims]({linked(name)}). "
        f"*{marks(item, claims)}*"
        for name, item in shown.items()
    ]
    return "\n".join([*lines, "", *decided(shown, claims, runs)])


def decided(items: Named, claims: Named, runs: Runs) -> list[str]:
    """A table of the claims that decide some items, of those that turned and of those that fail
    here: the bar, and the numbers here and in runs.
    """
    heads = [
        "the claim that decides, that turned, or that fails",
        "bar",
        "here",
        *(f"seeds +{seeds}" for seeds in runs),
    ]
    lines = [as_row(heads), "|-" * len(heads) + "|"]
    for name, item in items.items():
        first = item["claims"][0]
        failing = [claim for claim in item["claims"] if claims[claim]["holds"] is False]
        turned = comparisons(item, claims, runs)
        for claim in dict.fromkeys([first, *turned, *failing]):
            repeated = claims[claim]["repeated"]
            one = comparison(claims[claim], claim, runs if repeated else {})
            absent = "–" if repeated else "not repeated"
            there = [
                one.there[seeds] + missed(run[claim]) if seeds in one.there else absent
                for seeds, run in runs.items()
            ]
            linked_to = f"[{first_sentence(claims[claim]['statement'])}]({linked(name)})"
            lines.append(as_row([linked_to, one.bar, one.here + missed(claims[claim]), *there]))
    return lines


def missed(claim: Mapping[str, Any]) -> str:
    """What stands behind the number of a claim that does not meet its bar."""
    return ": missed" if claim["holds"] is False else ""


def unsure(items: Named, claims: Named) -> str:
    """What does not hold, as two lists: claims of the papers, and questions of ours."""

    def listed(asked: bool) -> str:
        lines = [
            f"- {item.get('headline') or first_sentence(item['found'])} [More]({linked(name)}). "
            f"*Unseen seeds: {of_item(item, claims)}.*"
            for name, item in items.items()
            if item["answer"] in UNSURE and ("asks" in item) is asked
        ]
        return "\n".join(lines or ["- None."])

    papers = f"{OF_PAPERS}\n\n{listed(False)}"
    return f"{papers}\n\nQuestions of ours whose answer is no:\n\n{listed(True)}"


def score(items: Named) -> str:
    """How many items of the papers and of ours have which answer, and what unseen seeds say."""
    papers = counted({name: item for name, item in items.items() if "says" in item})
    ours = counted({name: item for name, item in items.items() if "asks" in item})
    repeated = [item for item in items.values() if "unseen" in item]
    turned = sum(item["fragile"] for item in repeated)
    unseen = "No run on unseen seeds has been made of this state."
    if repeated:
        runs = sorted({seeds for item in repeated for seeds in item["unseen"]}, key=int)
        unseen = f"On unseen seeds {len(repeated)} answers were tried again ({len(runs)} "
        unseen += f"run{'s' if len(runs) > 1 else ''}): {len(repeated) - turned} were the same, "
        unseen += f"{turned} turned."
        kept = sum(not item["repeated"] for item in items.values() if item["claims"])
        unseen += f" {kept} rest on published runs, which were not repeated." if kept else ""
    return f"The papers' items: {papers}. Our own questions: {ours}. {unseen}"


def fragile(items: Named) -> str:
    """The items whose answer is another on unseen seeds: their answer here and in each run."""
    tried = [item for item in items.values() if "unseen" in item]
    if not tried:
        return "No run on unseen seeds has been made of this state."
    runs = list(dict.fromkeys(seeds for item in tried for seeds in item["unseen"]))
    lines = [
        as_row(
            [
                f"[{item['title']}]({linked(name)})",
                item["answer"],
                *(item["unseen"].get(seeds, {}).get("answer", "–") for seeds in runs),
            ]
        )
        for name, item in items.items()
        if item.get("fragile")
    ]
    if not lines:
        return "No answer turned."
    heads = ["item", "here", *(f"seeds +{seeds}" for seeds in runs)]
    return "\n".join([as_row(heads), "|-" * len(heads) + "|", *lines])


def marks(item: dict[str, Any], claims: Named) -> str:
    """The three marks of an answer in a few words."""
    size = f"Size: {item['size']}. " if "size" in item else ""
    return f"{size}Unseen seeds: {of_item(item, claims)}. Bar: {set_when(item, claims)}."


def first_sentence(text: str) -> str:
    """A text up to the first stop that a capital follows."""
    return re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0]


def linked(name: str) -> str:
    """Where README finds an item."""
    return f"docs/claims.md#{name}"


def changes(table: pd.DataFrame) -> str:
    """How much each optimiser changes what flows conserve: the least and the largest."""
    lines = ["| | " + " | ".join(CHANGES.values()) + " |", "|---" * (1 + len(CHANGES)) + "|"]
    for optimizer in table["optimizer"].unique():
        rows = table[table["optimizer"] == optimizer]
        cells = [f"{rows[column].min():.2g} … {rows[column].max():.2g}" for column in CHANGES]
        lines.append(f"| {name_of(optimizer)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def conserved(tables: Path) -> dict[str, str]:
    """The two tables of docs/optimisers.md on what is conserved, by their names there."""
    trained = read_table(tables / "optimizers.parquet")
    full_rank = trained["teacher_rank"] == trained["teacher_rank"].max()
    return {
        "changes from small starts": changes(trained[full_rank]),
        "changes from uneven starts": changes(read_table(tables / "conserved.parquet")),
    }


def replaced(text: str, name: str, content: str) -> str:
    """The text with the part of that name set to the content."""
    begin = f"<!-- {name}: made by make readme -->"
    end = f"<!-- end of {name} -->"
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    if not re.search(pattern, text, re.DOTALL):
        raise ValueError(f"wanted a part between {begin} and {end}, got none")
    return re.sub(pattern, lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL)


def captions_of(claims: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What captions.yaml says of each family that has claims, in their order."""
    files = {
        claim["family"]: ROOT / "stages" / claim["family"] / "captions.yaml"
        for claim in claims.values()
    }
    return {family: load_yaml(file) for family, file in files.items() if file.exists()}


def captioned(text: str, captions: dict[str, Any]) -> str:
    """The text in which every figure of a family has the title and the caption of captions.yaml."""

    def said(figure: re.Match[str]) -> str:
        caption = captions.get(figure[2], {}).get("figures", {}).get(figure[3])
        return (
            f"![{caption['title']}]({figure[1]})\n\n*{caption['caption']}*"
            if caption
            else figure[0]
        )

    return re.sub(r"\*\n!\[", "*\n\n![", FIGURE.sub(said, text))


def main() -> None:
    claims = read_json(ROOT / "metrics" / "claims.json")
    captions = captions_of(claims)
    items = read_json(ROOT / "metrics" / "items.json")
    runs = read_runs(ROOT / "published")
    (ROOT / "docs" / "claims.md").write_text(page(items, claims, runs), encoding="utf-8")
    parts = {
        "README.md": {
            "score": score(items),
            "results": results(items, claims, runs),
            "what does not hold": unsure(items, claims),
            "what is fragile": fragile(items),
        },
        "docs/optimisers.md": conserved(ROOT / "metrics/gradual_rank/optimizers/tables"),
    }
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        before = path.read_text(encoding="utf-8")
        text = before
        for name, content in parts.get(path.relative_to(ROOT).as_posix(), {}).items():
            text = replaced(text, name, content)
        text = captioned(text, captions)
        if text != before:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
