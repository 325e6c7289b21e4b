#!/usr/bin/env bash
# torch's counter of FLOPs sees no attention on a CPU, nor a whole transformer layer in evaluation.
#
# Versions: torch 2.13.0 (CPU build), numpy 2.4.6.
#
# FlopCounterMode counts matrix products as they run: two for each multiplication and addition.
#
# Expected: attention costs 4 * heads * tokens^2 * width of a head, forward, however it is
# called; a layer costs the same in evaluation as in training; and a matrix times a vector costs
# as much as times a matrix of one column.
# Seen: written by hand, attention of 2 heads, 16 tokens and a width of 8 counts 16384. So does
# scaled_dot_product_attention on three axes, with dropout, or on the meta device. On four axes
# (samples, heads, tokens, width), the usual call, it counts 0 on a CPU, forward and backward,
# with or without a mask. A TransformerEncoderLayer counts 24576 in training, and 0 in evaluation
# without gradients. MultiheadAttention counts 16384 with its maps, 8192 without, and 0 in
# evaluation. A low-rank pair B (A x) counts 0 for a vector x, and 768 for a column. There is no
# error and no warning, and the printed table has no row for what is left out.
#
# Why it matters: vision transformers before and after pruning, and adapters, are compared by
# this count. Attention grows with the square of the tokens, and just this part is lost: two
# models that differ in nothing but a switch, or a model and itself in evaluation, differ in it.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import torch
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.utils.flop_counter import FlopCounterMode


def flops(function):
    """What the counter says of a call."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def by_hand(q):
    """Attention with the same tokens as queries, keys and values."""
    return torch.softmax(q @ q.mT / 8**0.5, dim=-1) @ q


torch.manual_seed(0)
q = torch.randn(1, 2, 16, 8)
theory = 4 * 2 * 16**2 * 8
assert torch.allclose(by_hand(q), attention(q, q, q), atol=1e-5)
counts = {
    "by hand": flops(lambda: by_hand(q)),
    "three axes": flops(lambda: attention(q[0], q[0], q[0])),
    "dropout": flops(lambda: attention(q, q, q, dropout_p=0.1)),
    "meta device": flops(lambda: attention(q.to("meta"), q.to("meta"), q.to("meta"))),
    "four axes": flops(lambda: attention(q, q, q)),
    "four axes, a mask": flops(lambda: attention(q, q, q, attn_mask=torch.zeros(16, 16))),
    "four axes, causal": flops(lambda: attention(q, q, q, is_causal=True)),
}
print("attention, theory", theory, counts)
assert list(counts.values()) == [theory] * 4 + [0] * 3

learned = q.clone().requires_grad_()
backward = {
    "by hand": flops(lambda: by_hand(learned).sum().backward()),
    "fused": flops(lambda: attention(learned, learned, learned).sum().backward()),
}
print("forward and backward", backward)
assert backward == {"by hand": 3 * theory, "fused": 0}

tokens = torch.randn(1, 16, 8)
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
heads = torch.nn.MultiheadAttention(8, 2, batch_first=True)
in_training = flops(lambda: layer(tokens))
with_maps = flops(lambda: heads(tokens, tokens, tokens))
without_maps = flops(lambda: heads(tokens, tokens, tokens, need_weights=False))
layer.eval()
heads.eval()
with torch.no_grad():
    in_evaluation = flops(lambda: layer(tokens))
    heads_in_evaluation = flops(lambda: heads(tokens, tokens, tokens))
print("a layer in training and in evaluation", in_training, in_evaluation)
print("its heads with maps, without, in evaluation", with_maps, without_maps, heads_in_evaluation)
assert (in_training, in_evaluation) == (24576, 0)
assert (with_maps, without_maps, heads_in_evaluation) == (16384, 8192, 0)

A = torch.randn(4, 64)
B = torch.randn(32, 4)
x = torch.randn(64)
pair = (flops(lambda: B @ (A @ x)), flops(lambda: B @ (A @ x[:, None])))
print("a low-rank pair on a vector and on a column", pair)
assert pair == (0, 2 * 4 * (64 + 32))
PY
./env/bin/python try.py
echo "as seen before"
