"""Write what README.md and docs/ say of items, claims and figures: `make readme`.

Answers stand in metrics/items.json, verdicts in metrics/claims.json, captions in
stages/FAMILY/captions.yaml.

A part of README.md or docs/optimisers.md stands between `<!-- NAME: made by make readme -->` and
`<!-- end of NAME -->`. On every page a figure of a family has its title, and below it, in italics,
its caption.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from lib.files.params import load_yaml
from lib.files.tables import read_json, read_table
from lib.gradual_rank.figures.optimizers import name_of
from lib.pages.claims import VERDICTS

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

Every item of `stages/FAMILY/claims.yaml` with its answer and its claims, made by `make readme`.

The first claim of an item decides: where it does not hold, the answer is *not reproduced*, or
*contradicted* where the measurement says the opposite. Limits, and other claims that
do not hold, are said with it. Questions of ours have a yes or a no; claims of ours in an item of a
paper say so. What fails is a *finding*, a *limit* (holds in part) or a *bar missed* (by
little).

A number is the median with its 95 % interval, or the mean with Student's where the bar is of the
mean ([statistics.md](statistics.md)). In limits brackets hold the least and the largest value. Of
several cases that nearest to its bar is shown.

"""
UNSURE = ("not reproduced", "contradicted", "no")
Named = dict[str, dict[str, Any]]


def page(items: Named, claims: Named) -> str:
    """All items and claims as Markdown, a section for each family."""
    families = dict.fromkeys(item["family"] for item in items.values())
    sections = [
        section(name, [one for one in items.values() if one["family"] == name], claims)
        for name in families
    ]
    return PAGE + "\n\n".join(sections) + "\n"


def section(family: str, items: list[dict[str, Any]], claims: Named) -> str:
    """The items of one family, each with its claims."""
    lines = [f"## {family}: {counted(items)}"]
    for item in items:
        said = item.get("says") or item.get("asks")
        lines += ["", f"**{item['title']}**: *{item['answer']}*. {said}"]
        if "limits" in item:
            lines[-1] += f" Limits: {item['limits']}"
        if item["claims"]:
            lines += ["", "| claim | number | null | bar | |", "|-|-|-|-|-|"]
            lines += [row(item, claims[name]) for name in item["claims"]]
    return "\n".join(lines)


def counted(items: list[dict[str, Any]]) -> str:
    """How many items have which answer."""
    answers = Counter(item["answer"] for item in items)
    return ", ".join(f"{n} {answer}" for answer, n in answers.items())


def row(item: dict[str, Any], claim: dict[str, Any]) -> str:
    """A claim as a row of a table; one of ours says so among the paper's."""
    verdict = VERDICTS[claim["holds"]] if claim["holds"] is not False else claim["outcome"]
    own = " (ours)" if "says" in item and claim["kind"] == "ours" else ""
    cells = [claim["statement"] + own, value(claim), null(claim), claim["bar"]]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + f" | {verdict} |"


def value(claim: dict[str, Any]) -> str:
    """The number of a claim with its interval or range, its case, and what is independent."""
    if claim.get("value") is None:
        return "–"
    ends = claim["interval_95"] if None not in claim["interval_95"] else None
    ends = ends or [claim["min"], claim["max"]]
    said = f"{claim['value']:.3g}"
    if claim["n"] > 1:
        said += f" ({' to '.join('–' if end is None else f'{end:.3g}' for end in ends)}; "
        said += f"n = {claim['n']})"
    where = [claim[key] for key in ("case", "scale") if claim.get(key)]
    return f"{said}, {', '.join(where)}" if where else said


def null(claim: dict[str, Any]) -> str:
    """The null of a claim, and whether the claim beats it."""
    beside = claim.get("null")
    if not beside or beside["value"] is None:
        return "–"
    beats = {True: ", beaten", False: ", not beaten", None: ""}[beside["beats"]]
    return f"{beside['value']:.3g}: {beside['what']}{beats}"


def results(items: Named) -> str:
    """What README says of the items that have a headline, each with its figure."""
    shown = [item for item in items.values() if "headline" in item]
    return "\n".join(f"- {item['headline']} [figure]({item['figure']})" for item in shown)


def unsure(items: Named) -> str:
    """What does not hold, as a list."""
    shown = [item for item in items.values() if item["answer"] in UNSURE]
    return "\n".join(
        f"- {item.get('says') or item.get('asks')} *{item['answer'].capitalize()}.*"
        for item in shown
    )


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
    (ROOT / "docs" / "claims.md").write_text(page(items, claims), encoding="utf-8")
    parts = {
        "README.md": {"results": results(items), "what does not hold": unsure(items)},
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
