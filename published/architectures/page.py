"""The page "Does it work with my model?", written from the table of the survey."""

from collections.abc import Mapping

import pandas as pd

OUTCOMES = {
    "right": "An adapter has the loss that the page says. Every linear layer before the head is a "
    "target.",
    "left out": "An adapter has the loss that the page says. Some linear layers are no targets; "
    "the page names them.",
    "flagged": "The page says of an adapter that it is not to be used, and why. No other adapter "
    "is wrong.",
    "spectra": "There are spectra of every matrix, and the reason why there is no adapter.",
    "refused": "One line says why there is no page.",
    "wrong": "The page does not say what peft computes, or leaves something unnamed.",
    "traceback": "The program ends with an error that is a fault of ours, or does not end.",
    "not made": "It was not tried: no tiny model could be made from the config, or the class has "
    "no loss of such samples.",
}
SAID = [name for name in OUTCOMES if name != "right"]  # with a reason
MOST = 160  # characters of a reason that the page shows


def written_page(table: pd.DataFrame, versions: Mapping[str, str]) -> str:
    """The page in Markdown."""
    tasks = list(dict.fromkeys(table["task"]))
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    pairs = list(zip(table["task"], table["outcome"], strict=True))
    counts = {task: [pairs.count((task, name)) for name in OUTCOMES] for task in tasks}
    totals = [sum(column) for column in zip(*counts.values(), strict=True)]
    parts = [
        "# Does it work with my model?",
        f"`make lora` was tried with all {len(table)} pairs of a task and a model class that "
        f"transformers lists for it ({told}). For each pair a tiny model of the class was made "
        "from its config, with random weights, and all its parameters were tuned to a few samples. "
        "Then base and fine-tune went through `make lora` to its page, whose figures were drawn "
        "but not rendered. What the page says was compared with independent computations: the loss "
        "of the base with the adapter as `PeftModel.from_pretrained` loads it (within half a per "
        "cent), the same after merging, the singular values of a dense decomposition (within 1e-5 "
        "of the largest), and the names of all tensors that were tuned.",
        "A tiny model with random weights shows that names, shapes and the loss are right. It says "
        "nothing about how well an adapter keeps the gain of a large model.",
        marked(
            ["outcome", "what it means", "pairs"],
            [[*of, str(n)] for of, n in zip(OUTCOMES.items(), totals, strict=True)],
        ),
        marked(["task", *OUTCOMES], [[task, *map(str, counts[task])] for task in tasks]),
    ]
    for task in tasks:
        parts += of_task(task, table[table["task"] == task])
    parts.append(
        "The [table](../published/architectures/tables/architectures.csv) has the losses and all "
        "that was said, [its provenance](../published/architectures/provenance.json) versions and "
        "commit. `python -m published.architectures.run` makes both, and this page, anew; "
        "`--only=CLASS` tries one class."
    )
    return "\n\n".join(parts) + "\n"


def of_task(task: str, rows: pd.DataFrame) -> list[str]:
    """The classes of a task: those that are right as a list, the others with what was said."""
    right = ", ".join(sorted(rows.loc[rows["outcome"] == "right", "name"]))
    parts = [f"## {task[0].upper()}{task[1:]}", f"Right: {right or 'none'}."]
    others = rows[rows["outcome"].isin(SAID)].sort_values(["outcome", "name"])
    if len(others):
        shown = others[["name", "outcome", "said"]].to_dict("records")
        body = [[row["name"], row["outcome"], plain(row["said"])] for row in shown]
        parts.append(marked(["class", "outcome", "what was said, or left out"], body))
    return parts


def plain(said: str) -> str:
    """A reason as it can stand in a cell of a table."""
    text = " ".join(str(said).split())
    text = text if len(text) <= MOST else f"{text[: MOST - 1]}…"
    return f"`{text.replace('`', chr(39)).replace('|', '/')}`" if text else ""


def marked(heads: list[str], body: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
