#!/usr/bin/env bash
# torch: a sample of padding alone is finite in a transformer layer in training, NaN in evaluation.
#
# Versions: torch 2.13.0 (CPU build), numpy 2.4.6.
#
# A batch that is filled up has samples without a token, all of whose keys are masked. The softmax
# over nothing has no value; scaled_dot_product_attention gives zero for it.
#
# Expected: one answer, zero or NaN, from attention of one version of torch, however it is called,
# and in training and evaluation alike.
# Seen: the function gives zero, for a mask of truth values and for one of minus infinities. For a
# mask that holds the least float in their place it gives the mean of the values.
# MultiheadAttention gives zero in training and NaN in evaluation without gradients. Asked for its
# weights, which is its default, it gives NaN in both, and NaN gradients of all its parameters but
# one bias, though the loss is that of another sample. TransformerEncoderLayer is finite in
# training and NaN in evaluation. No sample but the masked one is touched in the forward pass.
#
# Why it matters: a loss in evaluation that is NaN beside a training loss that is fine is taken
# for a model that broke; activations of such rows enter a spectrum as zeros, means or NaN.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import warnings

import torch
from torch.nn.functional import scaled_dot_product_attention

torch.set_num_threads(1)
warnings.simplefilter("ignore")
torch.manual_seed(0)

queries, keys, values = torch.randn(3, 1, 2, 4, 8)
seen = torch.ones(4, 4, dtype=torch.bool)
seen[1] = False
infinite = torch.zeros(4, 4).masked_fill(~seen, -torch.inf)
least = torch.zeros(4, 4).masked_fill(~seen, torch.finfo(torch.float32).min)
for mask in (seen, infinite):
    row = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)[:, :, 1]
    assert (row == 0).all()
row = scaled_dot_product_attention(queries, keys, values, attn_mask=least)[:, :, 1]
assert torch.allclose(row, values.mean(2), atol=1e-6)
print("function: zero for truth values and infinities, the mean of the values for the least float")

tokens = torch.randn(2, 4, 16)
padding = torch.tensor([[False] * 4, [True] * 4])
attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)


def attend(weights):
    return attention(tokens, tokens, tokens, key_padding_mask=padding, need_weights=weights)[0]


def answer(output):
    """What the sample of padding gives; the other one has to be finite."""
    assert torch.isfinite(output[0]).all()
    row = output[1]
    if row.isnan().all():
        return "NaN"
    return "zero" if (row == 0).all() else "finite" if torch.isfinite(row).all() else "mixed"


answers = {}
for mode in ("train", "eval"):
    getattr(attention, mode)()
    getattr(layer, mode)()
    with torch.no_grad():
        answers[mode] = (
            answer(attend(False)),
            answer(attend(True)),
            answer(layer(tokens, src_key_padding_mask=padding)),
        )
    print(f"{mode}: attention, attention with weights, layer: {answers[mode]}")
assert answers == {"train": ("zero", "NaN", "finite"), "eval": ("NaN", "NaN", "NaN")}

attention.train()
for weights, broken in ((False, False), (True, True)):
    attention.zero_grad()
    attend(weights)[0].square().sum().backward()
    finite = [bool(torch.isfinite(one.grad).all()) for one in attention.parameters()]
    print(f"with weights {weights}: gradients finite {finite}")
    assert all(finite) != broken
PY
./env/bin/python try.py
echo "as seen before"
