#!/usr/bin/env bash
# peft: OLoRA on GPT-2's Conv1D changes the model before any training, or breaks it.
#
# Versions: peft 0.21.2, transformers 5.23.0, torch 2.13.0 (CPU build), numpy 2.4.6,
# accelerate 1.15.0.
#
# GPT-2 keeps its weights as Conv1D, transposed against nn.Linear; an adapter is told
# so by fan_in_fan_out=True. The starts "pissa" and "olora" move part of the weight
# into the adapter and take it away from the weight, so the sum is as before.
#
# Expected: with fan_in_fan_out=True, "olora" leaves the output of GPT-2 as it was, as
# "pissa" does, and as "olora" itself does for the nn.Linear layers of a Llama.
# Seen: "pissa" is exact to single precision on GPT-2, and "olora" is on Llama. On GPT-2
# "olora" factors the weight without turning it. For the one square layer (attn.c_proj)
# shapes fit by chance, and the output of the fresh model is changed by about a
# seventh of its size, with no error. For a layer that is not square (attn.c_attn) the model
# is made, and the first forward pass raises an error of shapes.
#
# Why it matters: a comparison of adapter starts on a small GPT-2 takes the first loss
# as the common zero. Here one of the starts begins from another model, and its
# update measured against the stored base weight is not what the training did.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.23.0 peft==0.21.2 accelerate==1.15.0
export HF_HUB_OFFLINE=1

cat > try.py <<'PY'
import warnings

import torch
import transformers
from peft import LoraConfig, get_peft_model

torch.set_num_threads(1)
warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
IDS = torch.arange(20)[None]


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=50, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config).eval()


def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=32, intermediate_size=64, num_attention_heads=2, vocab_size=50
    )
    return transformers.LlamaForCausalLM(config).eval()


def change(make, start, layer, turned):
    """The relative change of the output when the adapter is put on and nothing is trained."""
    with torch.no_grad():
        before = make()(IDS).logits
        config = LoraConfig(r=4, target_modules=[layer], init_lora_weights=start, fan_in_fan_out=turned)
        after = get_peft_model(make(), config).eval()(IDS).logits
    return ((after - before).norm() / before.norm()).item()


for name, make, start, layer, turned in (
    ("Llama", llama, "olora", "o_proj", False),
    ("GPT-2", gpt2, "pissa", "attn.c_proj", True),
    ("GPT-2", gpt2, "pissa", "c_attn", True),
):
    seen = change(make, start, layer, turned)
    print(f"{name}, {start}, {layer}: output changed by {seen:.1e}")
    assert seen < 1e-5

seen = change(gpt2, "olora", "attn.c_proj", True)
print(f"GPT-2, olora, attn.c_proj (square): output changed by {seen:.1e}")
assert seen > 0.01

try:
    seen = change(gpt2, "olora", "c_attn", True)
    raise AssertionError(f"no error, output changed by {seen}")
except RuntimeError as error:
    print(f"GPT-2, olora, c_attn (32 by 96): {error}")
    assert "shapes cannot be multiplied" in str(error)
PY
./env/bin/python try.py
echo "as seen before"
