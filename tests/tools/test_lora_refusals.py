"""What is wrong with the input of `make lora` is said before any work."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from lib.checkpoints.measured_plans import Plan
from lib.checkpoints.split_texts import Measure
from lib.files.files import InputError
from lib.files.params import read_params
from tests.checkpoints.checkpoints_made import MEASURE, TEXT
from tests.tools.lora_made import run, working_in
from tools import lora

CALL = lora.call


@pytest.fixture
def folder(kept, tmp_path, monkeypatch):
    with working_in(kept, tmp_path / "made") as at:
        monkeypatch.setattr(lora, "call", lambda *_, **__: pytest.fail("work began"))
        yield at


def tensors_of(where):
    return load_file(f"{where}/model.safetensors")


def put(where, tensors):
    save_file(tensors, f"{where}/model.safetensors", {"format": "pt"})


# What is given, and what is then said.
REFUSED = r"""
text: missing.txt             →  TEXT: .*No such file
base: nowhere                 →  nowhere: wanted a checkpoint with a config.json, got none
modules_to_save: all          →  MODULES_TO_SAVE: wanted yes or no, got all
ranks: '5'                    →  RANKS: wanted equal or mixed, got 5
eval: no_such_program --fast  →  EVAL: wanted a program that .*, got no_such_program
eval: '''open'                →  EVAL: wanted a command, got 'open: No closing quotation
tuned: base                   →  base: wanted a checkpoint tuned from the base, got the base itself
tuned: nowhere                →  nowhere: wanted a checkpoint, or a folder of them, got no config
text: short.txt               →  TEXT: short.txt: wanted 24 samples .*, got 6
tuned: copy                   →  copy: wanted weights that differ from the base's, got none
name: "a\nb"                  →  NAME: wanted a name on the hub or a path, on one line, got
out: my.txt                   →  OUT: wanted a folder, got the file my.txt
base: broken                  →  TEXT: broken: wanted a tokenizer that transformers can read
{base: tuned, tuned: base}    →  TEXT: .*on which the tuned linear layers lower the loss
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_is_wrong_is_said_by_its_name(folder, line):
    given, _, message = line.partition("→")
    Path("short.txt").write_bytes(TEXT[:100])
    shutil.copytree("base", "copy")
    shutil.copytree("base", "broken")
    Path("broken/tokenizer.json").write_text("{")
    with pytest.raises(InputError, match=message.strip()):
        run(**yaml.load(given, yaml.BaseLoader))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            {"pixel_values": torch.zeros(32, 3, 8, 8)},
            "TEXT: wanted samples of which GPT2LMHead",
        ),
        (
            {"input_ids": torch.zeros(32, 16).long(), "labels": torch.full((32, 16), -100)},
            "TEXT: wanted a label that counts in every batch, got -100 alone",
        ),
    ],
    ids=["images", "ignored"],
)
def test_a_text_that_is_none_of_the_model_is_refused(folder, text, message):
    save_file(text, "text.safetensors")
    with pytest.raises(InputError, match=message):
        run("text.safetensors")
    assert not Path("out").exists()


def test_a_loss_that_is_no_number_is_refused(folder):
    """The base overflows in the narrow type in which it is stored."""
    for name in ("base", "tuned"):
        tensors = {key: W.half() for key, W in tensors_of(name).items()}
        config = json.loads(Path(name, "config.json").read_text()) | {"dtype": "float16"}
        Path(name, "config.json").write_text(json.dumps(config))
        if name == "base":
            tensors["transformer.h.0.mlp.c_fc.weight"][:] = 60000
        put(name, tensors)
    with pytest.raises(InputError, match="GPT2LMHeadModel has a finite loss, got nan"):
        run()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("base", "OUT: wanted a folder of its own, got that of a checkpoint, base"),
        ("runs/step-1", "OUT: wanted a folder of its own, got that of a checkpoint, runs/step-1"),
        ("other", "OUT: wanted a folder of its own, got one that holds a model, other"),
        ("old", "OUT: wanted a new folder or that of .*, got old of one that is not named"),
        ("mine", "OUT: wanted a new folder or that of .*, got mine of .*another'}"),
    ],
)
def test_a_folder_that_is_no_place_for_results_is_refused(folder, out, message):
    shutil.copytree("tuned", "runs/step-1")
    shutil.copytree("base", "other")
    Path("old/plans").mkdir(parents=True)
    Path("mine").mkdir()
    Path("mine/pair.json").write_text(json.dumps(lora.pair(Path("base"), Path("another"))))
    with pytest.raises(InputError, match=message):
        run("-", tuned="runs", out=out)


@pytest.mark.parametrize(("where", "value"), [("base", float("nan")), ("tuned", float("inf"))])
def test_a_weight_that_is_no_number_is_named(folder, where, value):
    tensors = tensors_of(where)
    tensors["transformer.ln_f.bias"][1] = value
    put(where, tensors)
    said = f"{where}.*wanted finite weights, got NaN or infinity in transformer.ln_f.bias"
    with pytest.raises(InputError, match=said):
        run("-")


@pytest.mark.parametrize(("text", "n_copies"), [("-", 0), ("my.txt", 3)])
def test_memory_for_all_that_a_plan_holds_is_wanted(folder, monkeypatch, text, n_copies):
    weights = [W.numel() for W in tensors_of("base").values()]
    n_bytes = round(4e8 + 24 * max(weights) + 4 * n_copies * sum(weights))
    monkeypatch.setattr("lib.files.memory.available_memory", lambda: n_bytes - 1)
    with pytest.raises(InputError, match=f"plan: wanted about {n_bytes / 1e9:.3g} GB of memory"):
        run(text)


def test_too_little_room_is_refused(folder, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    shapes = [W.shape for W in tensors_of("base").values() if W.dim() == 2]
    adapters = 4 * sum(MEASURE["budgets"]) * sum(map(sum, shapes))
    spectra = 16 * sum(map(min, shapes)) + 8 * sum(min(*shape, 3) * sum(shape) for shape in shapes)
    room = f"{(adapters + spectra) / 1e9:.3g} GB of disk"
    with pytest.raises(InputError, match=f"OUT: wanted {room}, got 1e-06 GB that are free in"):
        run("-")


def test_for_a_model_that_transformers_lacks_or_with_code_of_its_own_nothing_is_planned(
    folder, capfd
):
    for changes, got in (
        ({"architectures": ["MyOwn"]}, r"has, got ['MyOwn']"),
        ({"auto_map": {"AutoModel": "mine.Model"}}, "got one with code of its own (auto_map)"),
    ):
        config = json.loads(Path("base/config.json").read_text()) | changes
        Path("tuned/config.json").write_text(json.dumps(config))
        given = (Path("base"), Path("tuned"), Path("out"), "-")
        how = read_params("checkpoints.plan", Plan)
        sizes = read_params("checkpoints.own", Measure)
        *_, plannable = lora.checked(*given, how, sizes, saved=False)
        assert not plannable
        assert f"{got}: spectra only, no plan and no adapter" in capfd.readouterr().err


def test_where_nothing_is_planned_the_page_has_spectra_only(folder, monkeypatch):
    config = json.loads(Path("base/config.json").read_text()) | {"architectures": ["MyOwn"]}
    Path("tuned/config.json").write_text(json.dumps(config))
    monkeypatch.setattr(lora, "call", CALL)
    assert "<strong>Spectra only:</strong>" in run()
    assert not Path("out/plans").exists()


def test_a_config_of_a_larger_model_is_refused_before_that_is_made(folder, monkeypatch):
    config = json.loads(Path("tuned/config.json").read_text())
    Path("tuned/config.json").write_text(json.dumps(config | {"vocab_size": 1 << 33}))
    with pytest.raises(InputError, match=r"wanted the shape \[8589934592, 32\] that config.json"):
        run()


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_read(folder, monkeypatch):
    def full(dir):  # noqa: A002 (what the library calls it)
        raise OSError(28, "No space left on device", str(dir))

    monkeypatch.setattr(lora, "TemporaryFile", full)
    monkeypatch.setattr(lora, "read_through", lambda *_: pytest.fail("read before it was tried"))
    with pytest.raises(InputError, match=r"OUT: wanted a folder to write in, got: .*No space left"):
        run("-")
