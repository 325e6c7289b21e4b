#!/usr/bin/env bash
# torchinfo counts a transformer's multiplications as those of one token, however long the text is.
#
# Versions: torchinfo 1.8.0, torch 2.13.0 (CPU build), numpy 2.4.6.
#
# summary(model, input_size=...) prints the shapes and parameters of each layer and the total of
# multiplications and additions (total_mult_adds) for an input of this size.
#
# Expected: a linear layer of 8 by 8 makes 64 for each vector that it is given: 64 for an input
# of shape (1, 8), 1024 for (1, 16, 8), 4096 for (4, 16, 8). Twice the tokens, at least twice
# the total.
# Seen: 64, 64 and 256: the first axis counts, the tokens do not. A Conv1d of width 1, which does
# the same with the same weights, counts 1024 and 4096. An encoder layer of width 64 counts
# 33,344 for 1, 16 and 128 tokens alike, in training; in truth the linear layers
# inside the block alone make 6.3 million at 128. The 33,344 are the parameters of its
# feed-forward part and of its two norms; attention's projections and its products count nothing.
# The shapes in the table next to the number are right. There is no warning.
#
# Why it matters: a patch embedding (a convolution, so counted in full) looks dearer than the
# rest of a vision transformer. Pruned tokens save nothing, and the price of an adapter
# is one token's.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torchinfo==1.8.0 torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import torch
from torchinfo import summary

torch.set_num_threads(1)


def counted(module, *shape):
    """The total that torchinfo gives for an input of this shape, in training."""
    total = summary(module, input_size=shape, mode="train", verbose=0).total_mult_adds
    print(f"{type(module).__name__}, input {shape}: {total}")
    return total


class Inside(torch.nn.Module):
    """One layer inside a model, as models have them."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, inputs):
        return self.layer(inputs)


for linear in (torch.nn.Linear(8, 8, bias=False), Inside(torch.nn.Linear(8, 8, bias=False))):
    assert counted(linear, 1, 8) == 64
    assert counted(linear, 1, 16, 8) == 64
    assert counted(linear, 4, 16, 8) == 256
convolution = torch.nn.Conv1d(8, 8, 1, bias=False)
assert counted(convolution, 1, 8, 16) == 1024
assert counted(convolution, 4, 8, 16) == 4096

encoder = torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
totals = [counted(encoder, 1, n_tokens, 64) for n_tokens in (1, 16, 128)]
assert totals == [33344] * 3

of_matrices = sum(one.numel() for one in encoder.parameters() if one.ndim == 2)
print("in its matrices, at 128 tokens:", 128 * of_matrices)
assert 128 * of_matrices == 128 * (4 * 64 * 64 + 2 * 64 * 256)
parts = (encoder.linear1, encoder.linear2, encoder.norm1, encoder.norm2)
assert totals[0] == sum(one.numel() for part in parts for one in part.parameters())
PY
./env/bin/python try.py
echo "as seen before"
