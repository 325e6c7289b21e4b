"""Texts and files as batches of samples."""

import json
from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors.torch import save_file

from lib.checkpoints import texts
from lib.checkpoints.library import is_causal, is_masked
from lib.checkpoints.texts import read_batches
from lib.files.files import InputError
from tests.checkpoints.transformers_made import made, moved

BYTES = {"vocab_size": 256}


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_bytes(bytes(range(240)))
    return tmp_path / "text"


def test_batches_are_windows_that_do_not_overlap(text):
    batches = read_batches(text.parent, BYTES, text, 10, 4, 6)
    assert [batch["input_ids"].shape for batch in batches] == [(4, 10)] * 6
    joined = torch.cat([batch["input_ids"].flatten() for batch in batches])
    assert torch.equal(joined, torch.arange(240))


def test_windows_are_no_longer_than_the_positions_of_the_model(text):
    config = BYTES | {"max_position_embeddings": 5}
    [short] = read_batches(text.parent, config, text, 10, 4, 1)
    assert short["input_ids"].shape == (4, 5)


@pytest.mark.parametrize(
    ("config", "n_batches", "message"),
    [
        (BYTES, 7, r"wanted 28 samples \(7 batches of 4, windows of 10 tokens\), got 24"),
        (
            {"vocab_size": 300},
            6,
            r"wanted a tokenizer, or a vocabulary of 256 bytes, got neither \(300",
        ),
        ({"vocab_size": 384}, 6, "wanted a text in UTF-8, got: .*0x80"),
    ],
)
def test_a_text_that_does_not_fit_is_refused(text, config, n_batches, message):
    if config["vocab_size"] == 384:
        tokenizer = '{"tokenizer_class": "ByT5Tokenizer"}'
        (text.parent / "tokenizer_config.json").write_text(tokenizer)
    with pytest.raises(InputError, match=message):
        read_batches(text.parent, config, text, 10, 4, n_batches)


def test_a_long_text_is_read_as_far_as_it_is_used(tmp_path, monkeypatch):
    """The windows are those of the whole text, also where a part ends within a character."""
    monkeypatch.setattr(texts, "LEAST_PART", 7)
    (tmp_path / "config.json").write_text("{}")
    for line in ("Grüße aus Köln, ", "kurze Zeile\n"):
        words = (line * 500).encode()
        file = tmp_path / "long.txt"
        file.write_bytes(words)
        tokens = texts.first_tokens(tmp_path, file, 256, 50)
        assert 100 <= len(tokens) < len(words) / 2
        assert bytes(tokens.tolist()) == words[: len(tokens)]
        bytes(tokens.tolist()).decode("utf-8")
        assert len(texts.first_tokens(tmp_path, file, 256, len(words))) == len(words)


def test_samples_of_a_file_are_the_models_own_arguments(tmp_path):
    samples = {"pixel_values": torch.randn(6, 3, 8, 8), "labels": torch.arange(6)}
    save_file(samples, tmp_path / "images.safetensors")
    [_, second] = read_batches(tmp_path, {}, tmp_path / "images.safetensors", 9, 3, 2)
    assert all(torch.equal(second[name], values[3:]) for name, values in samples.items())


def test_tokens_outside_the_vocabulary_are_refused(tmp_path):
    save_file({"input_ids": torch.full((4, 6), 256)}, tmp_path / "ids.safetensors")
    with pytest.raises(InputError, match=r"wanted tokens in 0..255, got 256..256"):
        read_batches(tmp_path, BYTES, tmp_path / "ids.safetensors", 6, 2, 2)


def test_a_file_that_is_no_safetensors_is_refused(text):
    file = text.rename(text.with_suffix(".safetensors"))
    with pytest.raises(InputError, match="wanted a safetensors file"):
        read_batches(file.parent, BYTES, file, 10, 1, 1)


@pytest.mark.parametrize(
    ("name", "words", "config", "message"),
    [
        ("a.csv", b"text,label\na,1\n", {}, "got a table or a JSON list"),
        ("a.json", b"{}", {}, "got a table or a JSON list"),
        ("a.txt", b' [\n {"text": "a"}]', {}, "got a table or a JSON list"),
        ("a.bin", b"PAR1rest", {}, "got a table or a JSON list"),
        ("a.txt", b"plain", {"is_encoder_decoder": True}, "encoder and decoder, got one text"),
    ],
)
def test_a_table_or_one_text_for_two_is_refused_by_name(tmp_path, name, words, config, message):
    (tmp_path / name).write_bytes(words)
    with pytest.raises(InputError, match=message):
        read_batches(tmp_path, BYTES | config, tmp_path / name, 2, 1, 1)


def test_a_model_with_a_part_that_reads_text_has_its_vocabulary_and_positions(text):
    """Gemma 3 says neither of the whole model."""
    part = {"model_type": "gemma3_text", "vocab_size": 256, "max_position_embeddings": 5}
    config = {"model_type": "gemma3", "text_config": part}
    [batch] = read_batches(text.parent, config, text, 10, 4, 1)
    assert torch.equal(batch["input_ids"].flatten(), torch.arange(20))
    part["vocab_size"] = 300
    with pytest.raises(InputError, match=r"vocabulary of 256 bytes, got neither \(300"):
        read_batches(text.parent, config, text, 10, 4, 1)


@pytest.mark.parametrize("kind", ["GPT2LMHeadModel", "Gemma3ForConditionalGeneration"])
def test_json_lines_are_for_every_model_of_the_next_token(tmp_path, kind):
    """Not all of them have a name that says so."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "abc", "completion": "defgh"}\n')
    [batch] = read_batches(tmp_path, BYTES | {"architectures": [kind]}, file, 8, 1, 1)
    assert bytes(batch["input_ids"][0].tolist()) == b"abcdefgh"


def test_a_text_that_begins_with_a_bracket_is_a_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"[Chapter one] It was night.")
    [batch] = read_batches(tmp_path, BYTES, tmp_path / "a.txt", 8, 1, 1)
    assert bytes(batch["input_ids"][0].tolist()) == b"[Chapter"


def test_a_model_that_gives_no_loss_for_these_labels_says_so():
    class Silent(torch.nn.Module):
        def forward(self, **_):
            return SimpleNamespace(loss=None)

    with pytest.raises(InputError, match=r"samples of which Silent has a loss.*other labels"):
        texts.loss(Silent(), {"input_ids": torch.zeros(1, 2).long()})


def test_a_config_with_an_infinite_number_is_read(text, tmp_path):
    """The library writes it as an object (mamba 2, bamba, falcon_h1)."""
    sizes = {"num_heads": 4, "head_dim": 4, "hidden_size": 8, "expand": 2}
    transformers.Mamba2Config(vocab_size=256, **sizes).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["time_step_limit"] == [0.0, {"__float__": "Infinity"}]
    [batch] = read_batches(text.parent, config, text, 10, 4, 1)
    assert batch["input_ids"].shape == (4, 10)


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"architectures": ["BertForMaskedLM"]}, (True, False)),
        ({"architectures": ["ViltForMaskedLM"]}, (True, False)),
        ({"architectures": ["BertLMHeadModel"]}, (False, True)),
        ({"architectures": ["XLMWithLMHeadModel"]}, (True, False)),
        ({"architectures": ["XLMWithLMHeadModel"], "causal": True}, (False, True)),
        ({"architectures": ["FlaubertWithLMHeadModel"]}, (True, False)),
        (
            {"architectures": ["BartForConditionalGeneration"], "is_encoder_decoder": True},
            2 * (False,),
        ),
    ],
)
def test_the_library_says_what_a_class_predicts(config, found):
    assert (is_masked(config), is_causal(config)) == found


def test_a_causal_class_whose_loss_is_of_the_same_token_is_refused():
    """The labels of a user, which may be moved by one, are the user's to choose."""
    sizes = {"vocab_size": 256, "d_model": 32, "n_layer": 1, "n_head": 4, "d_inner": 48}
    torch.manual_seed(0)
    model = moved(transformers.XLNetLMHeadModel(transformers.XLNetConfig(**sizes)).eval(), 1, 0.2)
    config = {"architectures": ["XLNetLMHeadModel"]}
    ids = torch.arange(24).reshape(2, 12)
    counts = torch.arange(12) > 5
    for batch in (
        {"input_ids": ids},
        {"input_ids": ids, "labels": torch.where(counts, ids, -100)},
    ):
        with pytest.raises(InputError, match=r"the loss of the next token, got XLNetLMHeadModel"):
            texts.check_next_token(model, config, [batch])
        texts.check_next_token(made("llama"), {"architectures": ["LlamaForCausalLM"]}, [batch])
    texts.check_next_token(model, config, [{"input_ids": ids, "labels": ids.roll(-1, 1)}])


def test_masked_images_have_a_loss_without_labels_over_what_is_masked():
    class Masked(torch.nn.Module):
        def forward(self, pixel_values, bool_masked_pos):
            return SimpleNamespace(loss=pixel_values[bool_masked_pos].mean())

    x = torch.arange(8.0).reshape(2, 4)
    batches = [
        {"pixel_values": x, "bool_masked_pos": x < 1},
        {"pixel_values": x, "bool_masked_pos": x > 4},
    ]
    assert texts.mean_loss(Masked(), batches) == pytest.approx((0 + 5 + 6 + 7) / 4)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (SimpleNamespace(logits=torch.zeros(1)), r"Odd has a loss, .*: it has other labels"),
        (SimpleNamespace(loss=None), r"Odd has a loss, .*: it has other labels"),
        (SimpleNamespace(loss=torch.zeros(2)), r"wanted one number, got a loss of shape \[2\]"),
        (AssertionError("train me"), r"Odd has a loss, .*, got: train me \(AssertionError\)"),
    ],
)
def test_a_model_without_one_loss_of_the_samples_is_refused(output, message):
    class Odd(torch.nn.Module):
        def forward(self, labels):
            if isinstance(output, Exception):
                raise output
            return output

    with pytest.raises(InputError, match=message):
        texts.loss(Odd(), {"labels": torch.zeros(1)})


def test_a_model_that_keeps_a_graph_in_evaluation_mode_goes_backward_twice():
    """Levit keeps attention biases until its mode changes."""

    class Keeping(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.ones(3))
            self.kept = None

        def train(self, mode=True):
            self.kept = None if mode else self.kept
            return super().train(mode)

        def forward(self, labels):
            self.kept = self.bias.square() if self.kept is None else self.kept
            return SimpleNamespace(loss=self.kept.sum())

    model = Keeping()
    model.eval()
    for _ in range(2):
        texts.loss(model, {"labels": torch.zeros(1)}).backward()
    with torch.no_grad():
        model.bias.fill_(2.0)
    assert texts.batch_losses(model, [{"labels": torch.zeros(1)}]) == [12.0]
    assert not model.training
