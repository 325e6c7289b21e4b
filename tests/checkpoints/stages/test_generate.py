from pathlib import Path

from lib.checkpoints.grammar import text

PARAMS = {"seed": 3, "n_bytes": 5000, "n_measured_bytes": 1000}


def test_texts_of_two_languages_and_a_null(stage):
    stage("checkpoints.generate", {"example": PARAMS}, section="example", texts=Path("texts"))
    texts = {path.stem: path.read_bytes() for path in Path("texts").glob("*.txt")}
    permuted = texts.pop("permuted")
    assert texts == {
        "language": text(3, 5000, 0),
        "tuned": text(4, 5000, 0),
        "measured": text(4, 1000, 1),
    }
    assert sorted(permuted) == sorted(texts["language"])
    assert len(set(permuted.split())) > 2 * len(set(texts["language"].split()))
