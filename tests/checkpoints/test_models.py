import functools
import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from lib.checkpoints.adapters import with_adapter
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.gains import GainMeasure, LinearUpdates
from lib.checkpoints.linear_modules import linear_modules, matched_by_content, stored_as_columns
from lib.checkpoints.models import check_architecture, linear_places, open_model, small_model
from lib.checkpoints.texts import loss, read_batches, token_ids
from lib.checkpoints.update_spectra import Triplets
from lib.files.files import InputError
from tests.checkpoints.transformers_made import made, moved, pair, saved

SIZES = {
    "d_model": 16,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_mlp": 24,
    "init_scale": 0.1,
    "seq_len": 8,
}


def tensors(folder):
    opened = open_checkpoint(folder)
    return [(name, opened.load(name)) for name in opened.tensors]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_small_model_is_the_same_for_a_seed_and_leaves_the_global_generator(kind):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, same, other = (small_model(kind, **SIZES, seed=seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_loss_is_the_cross_entropy_of_the_next_token(kind):
    model = small_model(kind, **SIZES, seed=0).eval()
    tokens = torch.randint(256, (3, 8), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
        wanted = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        )
        assert float(loss(model, {"input_ids": tokens})) == pytest.approx(float(wanted), rel=1e-6)


def test_names_in_the_live_model_are_found_by_content(tmp_path):
    base, _ = pair("vit", tmp_path)
    model = open_model(base, open_checkpoint(base).config)
    places = matched_by_content(model, tensors(base))
    assert (
        places["vit.layers.0.attention.q_proj"]
        == "vit.encoder.layer.0.attention.attention.query.weight"
    )
    assert len(places) == 12


@pytest.mark.parametrize("kind", ["llama", "mixtral", "gpt2", "gpt_neox", "phi3", "bert", "vit"])
def test_names_alone_place_what_content_places_without_a_weight(kind, tmp_path, monkeypatch):
    base = open_checkpoint(pair(kind, tmp_path)[0])
    by_content = matched_by_content(open_model(base.folder, base.config), tensors(base.folder))
    never = functools.partial(pytest.fail, "weights were read")
    monkeypatch.setattr("lib.checkpoints.models.open_model", never)
    places = linear_places(base)
    assert {name: place for name, (place, _) in places.items()} == by_content
    assert {by_columns for _, by_columns in places.values()} == {kind == "gpt2"}


def test_where_names_do_not_decide_the_content_does(tmp_path):
    base = pair("llama", tmp_path)[0]
    weights = load_file(base / "model.safetensors")
    place = "layers.1.mlp.up_proj.weight"
    weights[place] = weights["model." + place].clone()
    save_file(weights, base / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"up_proj: wanted one tensor .* got \['layers.*', 'mod"):
        linear_places(open_checkpoint(base))


@pytest.mark.parametrize(("kind", "n"), [("llama", 14), ("gpt2", 8), ("bert", 13)])
def test_heads_and_embeddings_are_no_targets(kind, n):
    found = linear_modules(made(kind))
    assert len(found) == n
    assert not [name for name in found if "embed" in name or "lm_head" in name or "decoder" in name]
    assert all(stored_as_columns(module) == (kind == "gpt2") for module in found.values())


def test_a_weight_that_two_tensors_equal_is_refused_by_name(tmp_path):
    base, _ = pair("llama", tmp_path)
    model = open_model(base, open_checkpoint(base).config)
    twice = [
        *tensors(base),
        ("copy.weight", dict(tensors(base))["model.layers.0.mlp.up_proj.weight"]),
    ]
    with pytest.raises(
        ValueError,
        match=r"layers.0.mlp.up_proj: wanted one tensor .* got \['model.*', 'copy.weight'\]",
    ):
        matched_by_content(model, twice)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return saved(made("llama"), tmp_path_factory.mktemp("llama"))


def rewritten(folder, **changes):
    """The config of a checkpoint, with changes, which are written."""
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return config


@pytest.fixture
def copy(llama, tmp_path):
    return shutil.copytree(llama, tmp_path / "copy")


@pytest.mark.parametrize(
    "names",
    [
        ["MyOwnForCausalLM"],
        ["AutoModelForCausalLM"],
        ["AutoTokenizer"],
        ["LlamaConfig"],
        ["LlamaPreTrainedModel"],
        ["PreTrainedModel"],
        ["pipeline"],
        [3],
        [None],
        "LlamaForCausalLM",
        {"0": "LlamaForCausalLM"},
    ],
)
@pytest.mark.parametrize("opening", [check_architecture, open_model])
def test_an_architecture_that_is_no_model_of_transformers_is_refused(copy, names, opening):
    wanted = (
        rf"copy: wanted an architecture that transformers \S+ has, got {re.escape(str(names))}$"
    )
    with pytest.raises(InputError, match=wanted):
        opening(copy, rewritten(copy, architectures=names))


@pytest.fixture
def ran(copy, monkeypatch):
    """What the code in a checkpoint would write, were a user to answer that it may run."""
    monkeypatch.setattr("builtins.input", lambda _: "y")
    (copy / "mine.py").write_text(f"open({str(copy / 'ran')!r}, 'w').close()")
    return copy / "ran"


@pytest.mark.parametrize("opening", [check_architecture, open_model])
@pytest.mark.parametrize(
    "changes",
    [
        {
            "architectures": ["AutoModelForCausalLM"],
            "auto_map": {"AutoConfig": "mine.C"},
            "model_type": "mine",
        },
        {"auto_map": {"AutoModelForCausalLM": "mine.M"}},
        {"text_config": {"auto_map": {"AutoModel": "mine.M"}}},
    ],
)
def test_a_model_with_code_of_its_own_is_refused(copy, ran, changes, opening):
    with pytest.raises(
        InputError, match=r"copy: wanted a model of .*, got one with code of its own \(auto_map\)$"
    ):
        opening(copy, rewritten(copy, **changes))
    assert not ran.exists()


def test_a_tokenizer_with_code_of_its_own_is_refused(copy, ran):
    (copy / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["mine.T", null]}}')
    rewritten(copy, model_type="mine")
    with pytest.raises(
        InputError, match=r"wanted a tokenizer of .*, got one with code of its own \(auto_map\)$"
    ):
        token_ids(copy, b"words", 256)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vocab_size": "256"},
            "wanted a config that LlamaForCausalLM can read, got: .*expected int, got str",
        ),
        (
            {"vocab_size": 9},
            r"checkpoint that Llama\w+ can read, got: weights of other shapes than its config says",
        ),
        (
            {"dtype": "mine"},
            "LlamaForCausalLM can read, got: module 'torch' has no attribute 'mine'",
        ),
    ],
)
def test_what_the_library_cannot_open_is_refused_in_one_line(copy, changes, message):
    config = rewritten(copy, **changes)
    with pytest.raises(InputError, match=rf"copy: .*{message}.*Error\)$") as refused:
        check_architecture(copy, config)
        open_model(copy, config)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["{", "{}", '{"model": 3}'])
def test_a_broken_tokenizer_is_refused_in_one_line(copy, text):
    (copy / "tokenizer.json").write_text(text)
    with pytest.raises(
        InputError, match=r"copy: wanted a tokenizer that .*, got: .*\(\w+Error\)$"
    ) as refused:
        token_ids(copy, b"words", 256)
    assert "\n" not in str(refused.value)


def test_samples_of_which_a_model_has_no_loss_are_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"of which ViT\w+ has a loss, got \['input_ids'\], got: .*Error\)$"
    ):
        loss(made("vit"), {"input_ids": torch.zeros(1, 4, dtype=torch.long)})


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(28, "full"), RuntimeError("can't allocate memory")]
)
def test_what_the_machine_lacks_is_no_fault_of_a_checkpoint(error):
    class Large(torch.nn.Module):
        def forward(self, **_):
            raise error

    with pytest.raises(type(error)) as raised:
        loss(Large(), {"input_ids": torch.zeros(1, 4)})
    assert raised.value is error


def test_a_weight_that_is_missing_is_not_drawn_at_random(tmp_path):
    base, _ = pair("llama", tmp_path)
    weights = load_file(base / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, base / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        ValueError,
        match=r"wanted every weight of LlamaForCausalLM, got none for 1 of them: "
        r".*layers.1.mlp.up_proj",
    ):
        open_model(base, open_checkpoint(base).config)


def test_batches_are_windows_that_do_not_overlap(tmp_path):
    base, _ = pair("llama", tmp_path)
    (tmp_path / "text").write_bytes(bytes(range(240)))
    batches = read_batches(base, {"vocab_size": 256}, tmp_path / "text", 10, 4, 6)
    assert [batch["input_ids"].shape for batch in batches] == [(4, 10)] * 6
    assert torch.equal(
        torch.cat([batch["input_ids"].flatten() for batch in batches]), torch.arange(240)
    )
    [short] = read_batches(
        base, {"vocab_size": 256, "max_position_embeddings": 5}, tmp_path / "text", 10, 4, 1
    )
    assert short["input_ids"].shape == (4, 5)


@pytest.mark.parametrize(
    ("config", "n_batches", "message"),
    [
        (
            {"vocab_size": 256},
            7,
            r"wanted 28 samples \(7 batches of 4, windows of 10 tokens\), got 24",
        ),
        (
            {"vocab_size": 300},
            6,
            r"wanted a tokenizer, or a vocabulary of 256 bytes, got neither \(300 words\)",
        ),
    ],
)
def test_a_text_that_does_not_fit_is_refused(tmp_path, config, n_batches, message):
    base, _ = pair("llama", tmp_path)
    (tmp_path / "text").write_bytes(bytes(range(240)))
    with pytest.raises(ValueError, match=message):
        read_batches(base, config, tmp_path / "text", 10, 4, n_batches)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text.txt", "wanted a text in UTF-8, got: .*0xff"),
        ("ids.safetensors", "wanted a safetensors file"),
    ],
)
def test_a_text_that_is_none_is_refused(tmp_path, name, message):
    (tmp_path / name).write_bytes(b"\xff\xfe" * 50)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    with pytest.raises(ValueError, match=message):
        read_batches(tmp_path, {"vocab_size": 384}, tmp_path / name, 10, 1, 1)


def test_samples_of_a_file_are_the_models_own_arguments(tmp_path):
    base, _ = pair("vit", tmp_path)
    config = open_checkpoint(base).config
    samples = {"pixel_values": torch.randn(6, 3, 8, 8), "labels": torch.tensor([0, 1, 0, 1, 1, 0])}
    save_file(samples, tmp_path / "images.safetensors")
    [_, second] = read_batches(base, config, tmp_path / "images.safetensors", 9, 3, 2)
    assert torch.equal(second["pixel_values"], samples["pixel_values"][3:])
    model = open_model(base, config)
    with torch.no_grad():
        logits = model(pixel_values=second["pixel_values"]).logits
        found = loss(model, second)
    wanted = torch.nn.functional.cross_entropy(logits, second["labels"])
    assert float(found) == pytest.approx(float(wanted), rel=1e-6)


def test_tokens_outside_the_vocabulary_are_refused(tmp_path):
    save_file({"input_ids": torch.full((4, 6), 256)}, tmp_path / "ids.safetensors")
    with pytest.raises(ValueError, match=r"wanted tokens in 0..255, got 256..256"):
        read_batches(tmp_path, {"vocab_size": 256}, tmp_path / "ids.safetensors", 6, 2, 2)


def test_a_model_is_moved_between_base_and_tuned(tmp_path):
    tuned, worse = made("llama"), moved(made("llama"), 7)
    weights, base_weights = (
        {name: m.weight.detach().clone() for name, m in linear_modules(model).items()}
        for model in (tuned, worse)
    )
    linear = LinearUpdates(tuned, base_weights)
    factors = {
        name: Triplets(*torch.linalg.svd(update, full_matrices=False))
        for name, update in linear.updates.items()
    }
    batch = {"input_ids": torch.randint(256, (2, 9), generator=torch.Generator().manual_seed(0))}
    whole = linear.mean_loss([batch])
    linear.set_ranks(dict.fromkeys(factors, 32), factors)
    assert linear.mean_loss([batch]) == pytest.approx(whole, rel=1e-5)
    linear.set_ranks({}, factors)
    assert all(torch.equal(linear.parameters[name], W_0) for name, W_0 in base_weights.items())
    measure = GainMeasure(linear, factors, [batch])
    assert measure.tuned == pytest.approx(whole)
    assert measure.share_lost(measure.of({})) == pytest.approx(1)
    name = "model.layers.1.mlp.up_proj"
    linear.set_ranks({name: 2}, factors)
    torch.testing.assert_close(
        linear.parameters[name] - base_weights[name], factors[name].cut(2), atol=1e-6, rtol=1e-5
    )
    with pytest.raises(
        InputError, match=r"wanted a text on .*, got \d.* without their updates and \d.* with them"
    ):
        GainMeasure(LinearUpdates(worse, weights), factors, [batch])


def test_an_adapter_is_drawn_from_its_seed_and_leaves_the_global_generator():
    config = {"r": 2, "target_modules": "all-linear"}
    before = torch.get_rng_state()
    drawn = [
        {
            name: A
            for name, A in with_adapter(made("llama"), config, seed).named_parameters()
            if "lora_A" in name
        }
        for seed in (1, 1, 2)
    ]
    assert torch.equal(before, torch.get_rng_state())
    assert all(
        torch.equal(A, drawn[1][name]) and not torch.equal(A, drawn[2][name])
        for name, A in drawn[0].items()
    )


def test_a_written_model_is_read_back(tmp_path):
    model = made("gpt2").bfloat16()
    folder = saved(model, tmp_path / "one")
    again = open_model(folder, open_checkpoint(folder).config)
    assert next(again.parameters()).dtype == torch.bfloat16
    assert all(
        torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items()
    )
