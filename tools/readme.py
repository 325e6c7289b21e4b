"""Write what README.md and docs/ say of claims, findings and figures: `make readme`.

Verdicts stand in metrics/claims.json, texts in stages/FAMILY/captions.yaml.

A part of README.md or docs/optimisers.md stands between `<!-- NAME: made by make readme -->` and
`<!-- end of NAME -->`. On every page a figure of a family has its title, and below it, in italics,
its caption.
"""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from lib.files.params import load_yaml
from lib.files.tables import read_table
from lib.gradual_rank.figures.optimizers import name_of

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
PAGE = """# Claims

Every claim of `stages/FAMILY/claims.yaml` with its verdict, made by `make readme` from
`metrics/claims.json`. `report.html` shows each beside its figure, with the command that makes it
and the value of every seed. A claim that fails is shown, and stops nothing.

The kinds are told apart. A *theorem* is what a paper, or a page of ours with its proof, proves; a
*paper's figure*, what it shows, by a bar of ours, as a figure states none; an *assumption* is one
of the paper's, checked where it is used. *Our bar* was set by us, from a prototype or after a first
run: it describes what came out and guards the implementation; it does not confirm the paper. A
*control* is a null or another setting, with a bar of ours for how far the claim beside it should be
from it; one that fails is nearer. A claim *beats* a null where its numbers are nearer to its own
bar, case by case. A value stands with its standard deviation over the cases or, a median, with half
the distance of the quartiles. A claim over several scales must hold at each; the one nearest to
failing is shown.

[P] stated in the paper, [S] its abstract, summary or captions, [SL] the authors' public slides, [D]
derived here, [R] recalled and not verified, [G] guessed, [C] chosen here.

"""


def page(claims: dict[str, dict[str, Any]]) -> str:
    """All claims as Markdown: one table per family, below how many of them hold."""
    families = dict.fromkeys(claim["family"] for claim in claims.values())
    tables = [
        family_table(name, [c for c in claims.values() if c["family"] == name]) for name in families
    ]
    return PAGE + "\n\n".join(tables) + "\n"


def family_table(family: str, claims: list[dict[str, Any]]) -> str:
    """The claims of one family."""
    failing = [claim for claim in claims if claim["state"] == "fails"]
    states = [claim["state"] for claim in claims]
    counts = [f"{states.count('holds')} of {len(claims)} claims hold"]
    if failing:
        expected = sum("expected" in claim for claim in failing)
        counts.append(f"{len(failing)} fail, {expected} of them as expected")
    if not_run := states.count("not run"):
        counts.append(f"{not_run} not run")
    lines = [
        f"## {family}: {'; '.join(counts)}",
        "",
        "| claim | kind | value ± spread (n) | bar | |",
        "|---|---|---|---|---|",
    ]
    for claim in claims:
        state = claim["state"]
        said = f"{claim['statement']} ({claim['where']}) {claim['source']}{beats(claim)}"
        if state == "fails" and "expected" in claim:
            state += ", as expected"
            said += f" *{claim['expected']}*"
        said = said.replace("|", "\\|")
        bar = f"{claim['over']} in {claim['bar']}"
        verdict = f"[{state}](../{claim['figure']})"
        lines.append(f"| {said} | {claim['kind']} | {value(claim)} | {bar} | {verdict} |")
    return "\n".join(lines)


def headlines(claims: dict[str, dict[str, Any]]) -> str:
    """The claims that a reader should see first, as a list."""
    families = list(dict.fromkeys(claim["family"] for claim in claims.values()))
    listed = [claim for claim in claims.values() if claim.get("headline")]
    shown = sorted(listed, key=lambda claim: (families.index(claim["family"]), claim["headline"]))
    return "\n".join(
        f"- {claim['statement'].rstrip('.')}: **{value(claim)}**, {claim['over']} in "
        f"{claim['bar']}; "
        f"[{claim['state']}]({claim['figure']}) ({claim['kind']})."
        for claim in shown
    )


def value(claim: dict[str, Any]) -> str:
    """The number of a claim with its spread, its scale, and the count of its cases."""
    if claim.get("value") is None:
        return "–"
    spread = f" ± {claim['spread']:.2g}" if claim["spread"] is not None else ""
    at = f" at {claim['scale']}" if "scale" in claim else ""
    return f"{claim['value']:.4g}{spread}{at} ({claim['n']})"


def beats(claim: dict[str, Any]) -> str:
    """Which of its nulls a claim beats, by their numbers, and which not."""
    nulls = claim.get("nulls", {})
    said = {
        verb: [name for name, found in nulls.items() if found == verb]
        for verb in ("beats", "does not beat")
    }
    return "".join(f"; {verb} {', '.join(names)}" for verb, names in said.items() if names)


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


def findings(captions: dict[str, Any]) -> str:
    """What was found, as a numbered list; the family is named where it begins."""
    lines = []
    for family, said in captions.items():
        named = f"*{family.replace('_', ' ').capitalize()}.* "
        for finding in said.get("findings", []):
            lines.append(f"{len(lines) + 1}. {named}{finding['text']}")
            named = ""
    return "\n".join(lines)


def main() -> None:
    claims = json.loads((ROOT / "metrics" / "claims.json").read_text(encoding="utf-8"))
    captions = captions_of(claims)
    (ROOT / "docs" / "claims.md").write_text(page(claims), encoding="utf-8")
    parts = {
        "README.md": {"headlines": headlines(claims), "findings": findings(captions)},
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
