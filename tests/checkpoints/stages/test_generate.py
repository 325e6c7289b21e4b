from collections import Counter
from pathlib import Path

PARAMS = {"seed": 3, "n_bytes": 5000, "n_measured_bytes": 1000}


def test_texts_of_two_languages_and_a_null(stage):
    stage("checkpoints.generate", {"example": PARAMS}, "example", Path("texts"))
    texts = {path.name: path.read_bytes() for path in Path("texts").glob("*.txt")}
    assert {name: len(text) for name, text in texts.items()} == {
        "language.txt": 5000,
        "permuted.txt": 5000,
        "tuned.txt": 5000,
        "measured.txt": 1000,
    }
    words = {name: set(text.replace(b".", b" ").split()) for name, text in texts.items()}
    assert len(words["measured.txt"] & words["tuned.txt"]) > 0.5 * len(words["measured.txt"])
    assert len(words["language.txt"] & words["tuned.txt"]) < 0.1 * len(words["tuned.txt"])
    assert Counter(texts["permuted.txt"]) == Counter(texts["language.txt"])
    assert texts["measured.txt"] not in texts["tuned.txt"]
