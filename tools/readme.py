"""Write the parts of README.md that are made from files: `make readme`.

A part stands between `<!-- NAME: made by make readme -->` and `<!-- end of NAME -->`.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def claims_table(claims: dict[str, dict[str, Any]]) -> str:
    """The claims as Markdown: one table per family, folded under how many of them hold."""
    families = dict.fromkeys(claim["family"] for claim in claims.values())
    return "\n\n".join(
        family_table(family, [claim for claim in claims.values() if claim["family"] == family]) for family in families
    )


def family_table(family: str, claims: list[dict[str, Any]]) -> str:
    """The claims of one family."""
    failing = [claim for claim in claims if claim["state"] == "fails"]
    counts = [f"{sum(claim['state'] == 'holds' for claim in claims)} of {len(claims)} claims hold"]
    if failing:
        counts.append(f"{len(failing)} fail, {sum('expected' in claim for claim in failing)} of them as expected")
    not_run = sum(claim["state"] == "not run" for claim in claims)
    if not_run:
        counts.append(f"{not_run} not run")
    lines = [
        f"<details><summary><b>{family}</b>: {'; '.join(counts)}</summary>",
        "",
        "| claim | kind | value ± spread (n) | bar | |",
        "|---|---|---|---|---|",
    ]
    for claim in claims:
        value = "–"
        if claim.get("value") is not None:
            spread = f" ± {claim['spread']:.2g}" if claim["spread"] is not None else ""
            at = f" at {claim['scale']}" if "scale" in claim else ""
            value = f"{claim['value']:.4g}{spread}{at} ({claim['n']})"
        state = claim["state"] + (", as expected" if claim["state"] == "fails" and "expected" in claim else "")
        state = f"[{state}]({claim['figure']})"
        statement = f"{claim['statement']} ({claim['where']}) {claim['source']}{beats(claim)}".replace("|", "\\|")
        lines.append(f"| {statement} | {claim['kind']} | {value} | {claim['over']} in {claim['bar']} | {state} |")
    return "\n".join([*lines, "", "</details>"])


def beats(claim: dict[str, Any]) -> str:
    """Which of its nulls a claim beats, and which not."""
    nulls = claim.get("nulls", {})
    said = {
        "beats": [name for name, state in nulls.items() if state == "holds"],
        "does not beat": [name for name, state in nulls.items() if state == "fails"],
    }
    return "".join(f"; {verb} {', '.join(names)}" for verb, names in said.items() if names)


def graph() -> str:
    """The graph of stages, as DVC draws it for Mermaid."""
    command = ["dvc", "dag", "--collapse-foreach-matrix", "--md", "report"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def replaced(text: str, name: str, content: str) -> str:
    """The text with the part of that name set to the content."""
    begin, end = f"<!-- {name}: made by make readme -->", f"<!-- end of {name} -->"
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    if not re.search(pattern, text, re.DOTALL):
        raise ValueError(f"README.md: wanted a part between {begin} and {end}, got none")
    return re.sub(pattern, lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL)


def main() -> None:
    path = ROOT / "README.md"
    claims = json.loads((ROOT / "metrics" / "claims.json").read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    text = replaced(text, "claims", claims_table(claims))
    text = replaced(text, "stages", graph())
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
