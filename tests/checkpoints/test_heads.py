import pytest
import torch

from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.heads import attention_tensors, head_sizes, heads, rotation
from tests.checkpoints.transformers_made import ATTENTION, made, saved

ROTARY = ("llama", "phi3", "gpt_neox")


def read(kind, folder, layer=1, **changes):
    model = made(kind, **changes).double()
    model.config._attn_implementation = "eager"
    opened = open_checkpoint(saved(model, folder))
    parts = attention_tensors(opened.config, opened.tensors)
    assert set(parts) == {1, 2}
    return (
        model,
        opened.config,
        heads(opened.config, parts[layer], opened.load, fold_norms=True),
        opened,
        parts,
    )


def without_biases(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    return model


def normalised(x, centred):
    x = x - x.mean(-1, keepdim=True) if centred else x
    return x / x.square().mean(-1, keepdim=True).sqrt()


@pytest.mark.parametrize("kind", ATTENTION)
def test_products_are_the_models_own_attention(kind, tmp_path):
    """Attention is a softmax: logarithms of its entries differ within a row as the scores do."""
    tiny_eps = {"layer_norm_epsilon": 1e-14} if kind == "gpt2" else {}
    tiny_eps = tiny_eps or (
        {"layer_norm_eps": 1e-14} if kind == "gpt_neox" else {"rms_norm_eps": 1e-14}
    )
    model = without_biases(made(kind, **tiny_eps).double())
    model.set_attn_implementation("eager")
    opened = open_checkpoint(saved(model, tmp_path / "one"))
    parts = attention_tensors(opened.config, opened.tensors)
    cut = heads(opened.config, parts[2], opened.load, fold_norms=True)
    tokens = torch.randint(256, (1, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        out = model(input_ids=tokens, output_attentions=True, output_hidden_states=True)
    x = normalised(out.hidden_states[1][0], centred=kind in ("gpt2", "gpt_neox"))
    attention = out.attentions[1][0].log()
    d_head = head_sizes(opened.config)[2]
    for i in range(2, 12):
        for j in range(i):
            scores = [
                torch.einsum(
                    "d,hde,hce,c->h", x[i], cut.W_Q @ rotation(opened.config, i - k), cut.W_K, x[k]
                )
                / d_head**0.5
                for k in (j, i)
            ]
            own = attention[:, i, j] - attention[:, i, i]
            torch.testing.assert_close(scores[0] - scores[1], own, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ATTENTION)
def test_values_and_outputs_are_the_models_own(kind, tmp_path):
    """With attention put on each row itself, what the layer adds is the sum over heads of x W_V
    W_Oᵀ.
    """
    tiny_eps = {"gpt2": "layer_norm_epsilon", "gpt_neox": "layer_norm_eps"}.get(
        kind, "rms_norm_eps"
    )
    model = without_biases(made(kind, **{tiny_eps: 1e-14}).double())
    opened = open_checkpoint(saved(model, tmp_path / "one"))
    parts = attention_tensors(opened.config, opened.tensors)
    cut = heads(opened.config, parts[1], opened.load, fold_norms=True)
    seen = {}
    module = next(
        m
        for name, m in model.named_modules()
        if name.endswith(("layers.0.self_attn", "layers.0.attention", "h.0.attn"))
    )
    module.register_forward_hook(lambda _, __, output: seen.update(out=output[0]))
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor([[5]]), output_hidden_states=True
        )  # one token attends to itself
    x = normalised(out.hidden_states[0][0], centred=kind in ("gpt2", "gpt_neox"))
    added = torch.einsum("nd,hde,hce->nc", x, cut.W_V, cut.W_O)
    torch.testing.assert_close(added, seen["out"].reshape(1, -1), rtol=1e-6, atol=1e-6)


def test_grouped_heads_share_keys_and_values(tmp_path):
    _, _, cut, *_ = read("llama", tmp_path)
    assert cut.W_K.shape == (4, 32, 8)
    assert torch.equal(cut.W_K[0], cut.W_K[1])
    assert torch.equal(cut.W_V[2], cut.W_V[3])
    assert not torch.equal(cut.W_K[1], cut.W_K[2])


def test_qwen3_has_heads_of_their_own_width_and_gains_folded_in(tmp_path):
    model, config, cut, opened, parts = read("qwen3", tmp_path)
    assert head_sizes(config) == (4, 2, 16)
    attention = model.model.layers[0].self_attn
    W_Q = attention.q_proj.weight.T.reshape(32, 4, 16).movedim(1, 0)
    gains = model.model.layers[0].input_layernorm.weight, attention.q_norm.weight
    torch.testing.assert_close(cut.W_Q, gains[0][:, None] * W_Q * gains[1])
    plain = heads(config, parts[1], opened.load, fold_norms=False)
    torch.testing.assert_close(plain.W_Q, W_Q)


@pytest.mark.parametrize(("kind", "centred"), [("bert", False), ("vit", True)])
def test_encoders_are_cut_by_their_names_on_disk(kind, centred, tmp_path):
    _, _, cut, opened, parts = read(kind, tmp_path)
    W_Q = opened.load(
        next(name for part, name in parts[1].items() if part.endswith("query.weight"))
    )
    plain = W_Q.double().T.reshape(32, 4, 8).movedim(1, 0)
    if centred:
        gain = opened.load(parts[1]["layernorm_before.weight"])
        plain = gain[:, None] * plain
        plain = plain - plain.mean(1, keepdim=True)
    torch.testing.assert_close(cut.W_Q, plain)


@pytest.mark.parametrize("kind", ROTARY)
def test_rotations_compose_and_partial_ones_leave_the_rest(kind, tmp_path):
    _, config, *_ = read(kind, tmp_path)
    R = {offset: rotation(config, offset) for offset in (0, 3, 4, 7)}
    torch.testing.assert_close(R[3] @ R[4], R[7])
    torch.testing.assert_close(R[3] @ R[3].T, torch.eye(8).double())
    still = [i for i in range(8) if R[3][i, i] == 1]
    assert len(still) == (6 if kind == "gpt_neox" else 0)


def test_rotations_that_are_scaled_are_not_guessed(tmp_path):
    _, config, *_ = read("llama", tmp_path)
    scaled = config | {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}
    assert rotation(scaled, 3) is None
    assert rotation(scaled, 0) is not None


def test_an_architecture_without_a_layout_has_no_heads(tmp_path):
    opened = open_checkpoint(saved(made("llama"), tmp_path))
    assert attention_tensors(opened.config | {"model_type": "mamba"}, opened.tensors) == {}
