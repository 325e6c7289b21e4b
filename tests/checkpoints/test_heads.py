"""The products of heads that are cut from a checkpoint are the model's own attention."""

import pytest
import torch

from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.heads import attention_tensors, head_sizes, heads, rotation
from lib.files.files import InputError
from tests.checkpoints.transformers_made import ATTENTION, made, saved

EPSILON = {"gpt2": "layer_norm_epsilon", "gpt_neox": "layer_norm_eps"}


def cut_from(model, folder, layer, *, fold_norms=True):
    """The heads of a layer, the config, and the tensors by what they are in the layout."""
    opened = open_checkpoint(saved(model, folder))
    parts = attention_tensors(opened.config, opened.tensors)
    assert set(parts) == {1, 2}
    found = heads(opened.config, parts[layer], opened.load, fold_norms=fold_norms)
    return found, opened.config, {name: opened.load(of) for name, of in parts[layer].items()}


@pytest.fixture(params=ATTENTION)
def kind(request):
    return request.param


@pytest.fixture
def model(kind):
    """A model without biases, whose norms add nothing to what they divide by."""
    model = made(kind, **{EPSILON.get(kind, "rms_norm_eps"): 1e-14}).double()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    return model


def normalised(x, kind):
    if kind in EPSILON:
        x = x - x.mean(-1, keepdim=True)
    return x / x.square().mean(-1, keepdim=True).sqrt()


def test_products_are_the_models_own_attention(kind, model, tmp_path):
    """Attention is a softmax: logarithms of its entries differ within a row as the scores do."""
    cut, config, _ = cut_from(model, tmp_path, 2)
    tokens = torch.randint(256, (1, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        out = model(input_ids=tokens, output_attentions=True, output_hidden_states=True)
    x = normalised(out.hidden_states[1][0], kind)
    attention = out.attentions[1][0].log()

    def score(i, k):
        queries = cut.W_Q @ rotation(config, i - k)
        return torch.einsum("d,hde,hce,c->h", x[i], queries, cut.W_K, x[k])

    for i in range(2, 12):
        for j in range(i):
            own = attention[:, i, j] - attention[:, i, i]
            found = (score(i, j) - score(i, i)) / head_sizes(config)[2] ** 0.5
            torch.testing.assert_close(found, own, rtol=1e-6, atol=1e-6)


def test_values_and_outputs_are_the_models_own(kind, model, tmp_path):
    """One token attends to itself: what the layer adds is the sum over heads of x W_V W_Oᵀ."""
    cut, *_ = cut_from(model, tmp_path, 1)
    seen = {}
    places = ("layers.0.self_attn", "layers.0.attention", "h.0.attn")
    module = next(m for name, m in model.named_modules() if name.endswith(places))
    module.register_forward_hook(lambda _, __, output: seen.update(out=output[0]))
    with torch.no_grad():
        out = model(input_ids=torch.tensor([[5]]), output_hidden_states=True)
    x = normalised(out.hidden_states[0][0], kind)
    added = torch.einsum("nd,hde,hce->nc", x, cut.W_V, cut.W_O)
    torch.testing.assert_close(added, seen["out"].reshape(1, -1), rtol=1e-6, atol=1e-6)


def test_qwen3_has_heads_of_their_own_width_and_gains_folded_in(tmp_path):
    model = made("qwen3").double()
    cut, config, parts = cut_from(model, tmp_path, 1)
    assert head_sizes(config) == (4, 2, 16)
    W_Q = parts["self_attn.q_proj.weight"].T.reshape(32, 4, 16).movedim(1, 0)
    gain = parts["input_layernorm.weight"][:, None]
    torch.testing.assert_close(cut.W_Q, gain * W_Q * parts["self_attn.q_norm.weight"])
    plain, *_ = cut_from(model, tmp_path, 1, fold_norms=False)
    torch.testing.assert_close(plain.W_Q, W_Q)


@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_encoders_are_cut_by_their_names_on_disk(kind, tmp_path):
    cut, _, parts = cut_from(made(kind).double(), tmp_path, 1)
    [W_Q] = [W for name, W in parts.items() if name.endswith("query.weight")]
    plain = W_Q.T.reshape(32, 4, 8).movedim(1, 0)
    if kind == "vit":
        plain = parts["layernorm_before.weight"][:, None] * plain
        plain = plain - plain.mean(1, keepdim=True)
    torch.testing.assert_close(cut.W_Q, plain)


def test_rotations_that_are_scaled_are_not_guessed():
    config = made("llama").config.to_dict()
    config["rope_parameters"] = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
    assert rotation(config, 3) is None
    assert torch.equal(rotation(config, 0), torch.eye(8).double())


def test_an_architecture_without_a_layout_has_no_heads():
    assert attention_tensors({"model_type": "mamba"}, ["layers.0.mixer.weight"]) == {}


@pytest.mark.parametrize("value", [0, -1, None, "4", True, 2.0])
def test_a_config_without_a_number_of_heads_is_refused(value):
    config = {"num_attention_heads": value, "hidden_size": 32}
    wanted = "config.json: num_attention_heads: wanted a whole number above 0"
    with pytest.raises(InputError, match=wanted):
        head_sizes(config)
