"""What a page shows of items at a glance: marks of their answers, kinds to filter by, and sentences
in short.
"""

import re
from typing import Any

MARKS = {  # of answers: how a board and an item show them
    "reproduced": "good",
    "yes": "good",
    "reproduced in part": "part",
    "in part": "part",
    "not reproduced": "bad",
    "contradicted": "bad",
    "no": "bad",
    "not tested": "open",
}
FILTERS = {
    "all": "all",
    "bad": "failed",
    "fragile": "fragile",
    "full": "the paper's size",
    "ours": "ours",
}
SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z])")
ASKED = re.compile(r"\b(asked|bar|was to|were to)\b")
SHORT = 50  # characters of a sentence that says the bar alone


def kinds_of(item: dict[str, Any]) -> list[str]:
    """The filters of the page by which an item is shown."""
    size = item.get("size", "")
    found = {
        "all": True,
        "bad": MARKS[item["answer"]] == "bad",
        "fragile": item.get("fragile", False),
        "full": bool(item["claims"]) and size.startswith("the paper's"),
        "ours": "asks" in item,
    }
    return [kind for kind, is_one in found.items() if is_one]


def in_short(found: str) -> str:
    """The sentence of what was found that says what was asked, or else the first.

    Where it says the bar alone, the sentence before it stands with it. What follows a semicolon
    behind the bar, such as the null, is left to its own column.
    """
    sentences = SENTENCE.split(found)
    place = next((k for k, one in enumerate(sentences) if ASKED.search(one)), 0)
    first = place - 1 if place and len(sentences[place]) < SHORT else place
    said = " ".join(sentences[first : place + 1])
    asked, semicolon, _ = said.rpartition("; ")
    return f"{asked}." if semicolon and ASKED.search(asked) else said


def first_sentence(text: str) -> str:
    """The first sentence of a text."""
    return SENTENCE.split(text)[0]
