"""The survey of architectures: what it finds right, what it finds wrong, and how it goes on."""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from lib.files.files import InputError
from published.architectures import pairs, tiny
from published.architectures import run as survey
from published.architectures.page import OUTCOMES, written_page
from published.architectures.pairs import Pair, Row, surveyed
from tests.pipeline.project import ROOT
from tools import lora

GOOD = ("right", "left out", "spectra", "refused")
SAMPLE = {  # of the whole survey: classes of different kinds
    ("causal", "LlamaForCausalLM"): "right",
    ("causal", "GPT2LMHeadModel"): "right",
    ("causal", "FalconMambaForCausalLM"): None,
    ("causal", "Glm4MoeForCausalLM"): None,
    ("causal", "GptOssForCausalLM"): None,
    ("causal", "Gemma3ForConditionalGeneration"): None,
    ("causal", "LagunaForCausalLM"): "left out",
    ("causal", "ReformerModelWithLMHead"): "refused",
    ("masked", "BertForMaskedLM"): None,
    ("masked", "MobileBertForMaskedLM"): "left out",
    ("masked", "AlbertForMaskedLM"): None,
    ("sequence-to-sequence", "MT5ForConditionalGeneration"): "right",
    ("audio classification", "WavLMForSequenceClassification"): None,
    ("image classification", "ViTForImageClassification"): None,
    ("image classification", "PoolFormerForImageClassification"): "spectra",
    ("semantic segmentation", "MobileNetV2ForSemanticSegmentation"): "refused",
    ("video classification", "TimesformerForVideoClassification"): None,
}


@pytest.mark.slow
@pytest.mark.parametrize(("task", "name"), SAMPLE)
def test_a_class_goes_from_a_pair_to_its_page(task, name, tmp_path):
    row = surveyed(Pair(task, name), tmp_path)
    assert row.outcome in GOOD, row.said
    assert SAMPLE[task, name] in (None, row.outcome), row.said
    if row.outcome in ("right", "left out"):
        assert row.loss_peft == pytest.approx(row.loss_page, rel=pairs.LOSS_WITHIN)
        assert row.loss_tuned < row.loss_base
        assert row.values_apart < pairs.VALUES_WITHIN


@pytest.mark.slow
def test_a_page_with_another_loss_than_pefts_is_found_wrong(tmp_path, monkeypatch):
    """The factors are changed when the page is made."""
    main = lora.main

    def and_spoiled(*arguments):
        main(*arguments)
        for file in Path("out/adapters").rglob("adapter_model.safetensors"):
            tensors = {key: 2 * one for key, one in load_file(file).items()}
            save_file(tensors, file, {"format": "pt"})

    monkeypatch.setattr(lora, "main", and_spoiled)
    row = surveyed(Pair("causal", "LlamaForCausalLM"), tmp_path)
    assert row.outcome == "wrong"
    assert "the page has a loss of" in row.said


@pytest.mark.slow
def test_a_page_that_says_of_its_adapters_not_to_use_them_is_flagged(tmp_path, monkeypatch):
    """The factors are changed before peft reads them, and the page says what peft computes."""
    read_back = lora.read_back

    def of_spoiled(base, folder, *rest):
        file = folder / "adapter_model.safetensors"
        save_file({key: 2 * one for key, one in load_file(file).items()}, file, {"format": "pt"})
        return read_back(base, folder, *rest)

    monkeypatch.setattr(lora, "read_back", of_spoiled)
    row = surveyed(Pair("causal", "LlamaForCausalLM"), tmp_path)
    assert row.outcome == "flagged"
    assert "with peft the loss is" in row.said


def test_a_class_that_refuses_to_be_tuned_in_evaluation_mode_is_tuned_in_training_mode():
    class Training(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.ones(3))

        def forward(self):
            assert self.training, "train me"
            return type("Found", (), {"loss": self.bias.square().sum()})

    model = Training().eval()
    pairs.tuned(model, {})
    assert (model.bias < 1).all()
    assert not model.training


def test_the_reason_that_comes_farthest_is_said():
    assert pairs.reason(["no tiny config", "no loss of samples: A"]) == "no loss of samples: A"
    assert pairs.reason(["no loss of samples: A", pairs.NO_LOSS]) == pairs.NO_LOSS
    assert pairs.reason(["no config", "another"]) == "no config"


def test_a_tiny_model_is_made_of_the_configs_own_keys():
    import transformers as t

    for kind in (t.LlamaForCausalLM, t.MixtralForCausalLM, t.T5ForConditionalGeneration):
        model = next(tiny.made(kind))
        assert sum(one.numel() for one in model.parameters()) < 200_000
        again = next(tiny.made(kind))
        assert all(map(torch.equal, model.parameters(), again.parameters()))
    assert model.config.decoder_start_token_id == 0


def test_what_stands_for_the_process_is_put_back(tmp_path):
    held = Path.cwd(), getattr(os, "sched_getaffinity", None)
    with pairs.working_in(tmp_path):
        assert Path.cwd() == tmp_path
    assert held == (Path.cwd(), getattr(os, "sched_getaffinity", None))


def test_copying_is_told_from_the_next_token():
    class Copying(torch.nn.Module):
        def forward(self, input_ids, labels):
            logits = 3.0 * torch.nn.functional.one_hot(input_ids, 9).float()
            places = (slice(None), slice(1, None)) if self.training else (slice(None),)
            before = logits[:, :-1] if self.training else logits
            loss = torch.nn.functional.cross_entropy(before.flatten(0, 1), labels[places].flatten())
            return type("Found", (), {"loss": loss, "logits": logits})

    ids = torch.arange(8).view(2, 4)
    batch = {"input_ids": ids, "labels": ids}
    model = Copying()
    assert pairs.copying(Pair("causal", "X"), model.train(), batch) == []
    [said] = pairs.copying(Pair("causal", "X"), model.eval(), batch)
    assert said.startswith("measured on copying")
    assert pairs.copying(Pair("masked", "X"), model, batch) == []


def rows(*names, outcome="right", said=""):
    return [asdict(Row("causal", name, outcome, said)) for name in names]


def test_rows_are_kept_for_one_code_and_its_versions(tmp_path):
    file = tmp_path / "scratch" / "rows.jsonl"
    assert survey.read_rows(file, {"code": "a"}) == {}
    with file.open("a") as kept:
        kept.write(json.dumps(rows("One")[0]) + "\n" + '{"task": "cau')
    assert list(survey.read_rows(file, {"code": "a"})) == [Pair("causal", "One")]
    assert survey.read_rows(file, {"code": "b"}) == {}
    assert survey.read_rows(file, {"code": "b"}) == {}


def serve(there):
    """A worker that ends at one class and hangs at another."""
    there.send("ready")
    while True:
        pair = there.recv()
        if pair.name == "Ends":
            os._exit(7)
        if pair.name == "Hangs":
            time.sleep(600)
        there.send(Row(pair.task, pair.name, "right"))


class Threaded:
    """A context of processes whose worker is the one above."""

    def __init__(self, context):
        self.context = context

    def Pipe(self):  # noqa: N802
        return self.context.Pipe()

    def Process(self, *, target, args, daemon):  # noqa: N802
        return self.context.Process(target=serve, args=args, daemon=daemon)


def test_a_class_that_ends_or_hangs_is_a_row(monkeypatch):
    import multiprocessing

    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: Threaded(context))
    wanted = [Pair("causal", name) for name in ("One", "Ends", "Two", "Hangs", "Three")]
    found = list(survey.of_worker(wanted, limit=3))
    assert [row.outcome for row in found] == ["right", "traceback", "right", "traceback", "right"]
    assert found[1].said == "the process ended with 7"
    assert found[3].said == "no page in time"
    assert [row.name for row in found] == [pair.name for pair in wanted]


def test_a_sample_is_of_known_classes():
    found = [Pair("causal", name) for name in "abcdef"]
    assert survey.chosen(found, [], 0) == found
    assert len(survey.chosen(found, [], 3)) == 3
    assert survey.chosen(found, ["b", "e"], 0) == [found[1], found[4]]
    with pytest.raises(InputError, match=r"wanted classes of transformers .* got \['x'\]"):
        survey.chosen(found, ["x"], 0)


def test_the_page_counts_outcomes_and_says_what_was_left_out():
    parts = rows("One", "Two") + rows("Three", outcome="refused", said="TEXT: no | `loss`")
    page = written_page(pd.DataFrame(parts), {"transformers": "5.0"})
    assert "all 3 pairs of a task and a model class" in page
    assert "(transformers 5.0)" in page
    assert "Right: One, Two." in page
    assert "| Three | refused | `TEXT: no / 'loss'` |" in page
    [counts] = [line for line in page.splitlines() if line.startswith("| causal |")]
    assert counts == "| causal | 2 | 0 | 0 | 0 | 1 | 0 | 0 | 0 |"
    assert all(f"| {name} | " in page for name in OUTCOMES)


def test_the_page_in_the_docs_is_that_of_the_published_table():
    """In it no page is wrong, and no class ends in a traceback."""
    table = pd.read_csv(ROOT / survey.OUT / "tables/architectures.csv", keep_default_na=False)
    versions = json.loads((ROOT / survey.OUT / "provenance.json").read_text())["versions"]
    assert (ROOT / survey.PAGE).read_text() == written_page(table, versions)
    faults = table[table["outcome"].isin(["wrong", "traceback"])]
    assert list(faults["name"]) == []
