"""Bases, nulls and fine-tunes of tiny models are trainings by AdamW, written out."""

import copy
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from lib.checkpoints.snapshots import open_snapshots
from lib.files.files import InputError
from tests.checkpoints.checkpoints_made import SIZES, TEXT, VARIED, descended
from tests.stages.made import generator

PARAMS = {"n_seeds": 2, **SIZES, "batch_size": 4}
CASES = "name\tn_steps\tlearning_rate\tsnapshot_steps\n"
BASE, LARGE = "base\t4\t1e-2\t[0, 2]\n", "large\t3\t2e-2\t[1]\n"
TEXTS = {"language": TEXT, "permuted": bytes(sorted(TEXT)), "tuned": VARIED}


@pytest.fixture
def train(stage, tmp_path):
    """Run the stage; the folders of its bases, fine-tunes and trainings from scratch."""
    (tmp_path / "texts").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "texts" / f"{name}.txt").write_bytes(text)

    def run(kind="llama", cases=BASE + LARGE, **changes):
        Path("cases.tsv").write_text(CASES + cases)
        given = {"trainings": Path("cases.tsv"), "texts": Path("texts"), "models": [Path(kind)]}
        stage("checkpoints.train", {"train": PARAMS | changes}, section="train", **given)
        return [Path(kind) / name for name in ("base", "tuned", "pretrained")]

    return run


def read(folder):
    return AutoModelForCausalLM.from_pretrained(folder)


def trained(begun, text, n_steps, rate, *purpose):
    """The same training, written out."""
    source = generator(0, "batches", *purpose)
    return descended(copy.deepcopy(begun).train(), TEXTS[text], n_steps, rate, source)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_base_null_and_tuned_are_trainings_of_their_texts(train, kind):
    base, tuned, pretrained = train(kind)
    found = [(one.run, one.step) for one in open_snapshots(pretrained)]
    assert found == [(name, step) for name in ("language", "permuted") for step in (0, 2, 4)]
    found = [(one.run, one.step) for one in open_snapshots(tuned)]
    assert found == [(f"large-{seed}", step) for seed in (0, 1) for step in (1, 3)]
    begun = read(pretrained / "language" / "step-00000")
    wanted = {
        pretrained / "permuted" / "step-00000": begun,
        base: trained(begun, "language", 4, 1e-2, "base", "language"),
        pretrained / "permuted" / "step-00004": trained(
            begun, "permuted", 4, 1e-2, "base", "permuted"
        ),
    }
    for seed in (0, 1):
        model = trained(read(base), "tuned", 3, 2e-2, "large", seed)
        wanted[tuned / f"large-{seed}" / "step-00003"] = model
    for folder, model in wanted.items():
        pairs = zip(read(folder).named_parameters(), model.parameters(), strict=True)
        for (name, value), other in pairs:
            torch.testing.assert_close(value, other, atol=1e-6, rtol=1e-5, msg=f"{folder} {name}")
    size = torch.cat([p.flatten() for p in begun.parameters() if p.dim() == 2]).std()
    assert float(size.detach()) == pytest.approx(SIZES["init_scale"], rel=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"n_kv_heads": 3},
            "a divisor of d_model and a multiple of n_kv_heads, got 4 for 16",
        ),
        ({"cases": "base\t4\t1e-2\t[9]\n"}, "snapshot_steps: wanted steps below n_steps = 4"),
        ({"cases": BASE}, r"wanted a case named base and one or more that are tuned, got \['base'"),
        ({"kind": "mamba"}, "mamba: wanted a folder named llama or gpt2, got mamba"),
    ],
)
def test_sizes_cases_and_models_that_do_not_fit_are_refused(train, changes, message):
    with pytest.raises(InputError, match=message):
        train(**changes)


def test_a_folder_that_holds_anything_else_is_not_cleared(train):
    (Path("llama") / "base").mkdir(parents=True)
    (Path("llama") / "base" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="wanted an empty folder"):
        train()
