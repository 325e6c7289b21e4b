#!/usr/bin/env bash
# transformers: with labels=input_ids, a dozen causal classes have the loss of copying.
#
# Versions: transformers 5.23.0, torch 2.13.0 (CPU build), numpy 2.4.6.
#
# The documentation of causal language modeling says that labels are shifted inside
# the model, so that labels=input_ids gives the loss of the next token; trainers and
# collators for this task rely on it. AutoModelForCausalLM opens every class below.
#
# Expected: each class has the cross entropy of its own logits at one position with
# the token at the next.
# Seen: Llama, OPT, GPT-2, BioGPT and BERT as a decoder have. Bart, MBart, Marian,
# Pegasus, PLBart, Mvp, Blenderbot, BigBirdPegasus, TrOCR, Whisper, XLNet and
# CpmAnt have the cross entropy at a position with the token at that same position,
# which the model has just read: a fine-tune with this loss is taught to copy, and
# nothing warns.
#
# Why it matters: a loss, a perplexity or the gain of a fine-tune that is measured with
# labels=input_ids means two different things, by the class. It was found when a
# program that measures pairs of checkpoints went through all causal classes.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.23.0
export HF_HUB_OFFLINE=1

cat > try.py <<'PY'
import warnings

import torch
import transformers
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM

torch.set_num_threads(1)
warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
WORDS = 32
SMALL = {
    "vocab_size": WORDS, "hidden_size": 16, "d_model": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}
LLAMA = {"intermediate_size": 32, "num_key_value_heads": 2}
DECODER = {
    "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 32,
    "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 32,
    "decoder_start_token_id": 2, "decoder_vocab_size": WORDS, "is_decoder": True,
}
NEXT = {
    "llama": LLAMA,
    "opt": {"ffn_dim": 32, "word_embed_proj_dim": 16},
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2},
    "biogpt": {"intermediate_size": 32},
    "bert": {"intermediate_size": 32, "is_decoder": True},
}
SAME = {
    "bart": DECODER,
    "mbart": DECODER,
    "marian": DECODER,
    "pegasus": DECODER,
    "plbart": DECODER,
    "mvp": DECODER,
    "blenderbot": DECODER,
    "bigbird_pegasus": DECODER | {"attention_type": "original_full"},
    "trocr": DECODER,
    "whisper": DECODER,
    "xlnet": {"n_layer": 1, "n_head": 2, "d_head": 8, "d_inner": 32},
    "cpmant": {"dim_ff": 32, "dim_head": 8, "prompt_length": 4, "prompt_types": 4},
}


def losses(kind, sizes):
    """A model's own loss, and that of its logits on the next and on the same token."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SMALL, **sizes})
    model = AutoModelForCausalLM.from_config(config).eval()
    # Logits that are far from equal, so that the two losses are far apart.
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter)
    tokens = torch.randint(3, WORDS, (2, 8), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        made = model(input_ids=tokens, labels=tokens)
    logits = made.logits[:, -tokens.shape[1] :].float()
    shifted = cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    same = cross_entropy(logits.flatten(0, 1), tokens.flatten())
    return type(model).__name__, float(made.loss), float(shifted), float(same)


for kinds, place in ((NEXT, "next"), (SAME, "same")):
    for kind, sizes in kinds.items():
        name, own, shifted, same = losses(kind, sizes)
        print(f"{name}: loss {own:.4f}; next token {shifted:.4f}, same token {same:.4f}")
        wanted, other = (shifted, same) if place == "next" else (same, shifted)
        assert abs(own - wanted) < 1e-3 * wanted, name
        assert abs(own - other) > 1e-2 * other, name
PY
./env/bin/python try.py
echo "as seen before"
