#!/usr/bin/env bash
# Adam on bfloat16 weights never forgets a large gradient, and more than doubles its average of noise.
#
# Versions: torch 2.13.0 (CPU build), numpy 2.4.6.
#
# Adam divides by the root of a running average of squared gradients, which forgets in about
# 1000 steps (betas=(0.9, 0.999)). torch keeps the average in the type of the weights.
#
# Expected: after 100 gradients of 1, gradients of 0.01 have steps of the full learning rate again
# 20,000 steps later, in float32 and in bfloat16, where a few digits are lost.
# Gradients of normal noise of variance 1 have an average near 1 in both.
# Seen: in float32 so it is. In bfloat16 the average is the same number, 0.098, at the first
# small gradient and 20,000 steps later: multiplied by 0.999 and rounded to eight bits a number
# is itself. The steps go to a thirtieth of the learning rate for good. Upwards it is no
# better: of steady gradients of 1 it stops at a half, as what is added is below half of a last
# digit, so that steps are 1.4 times as long as the learning rate; of normal noise it is 2.5, as
# only the large squares count and nothing is forgotten. AdamW, NAdam and the fused and foreach
# forms do this too. With betas=(0.9, 0.99) the steps get back to 0.61. There is no warning.
#
# Why it matters: the average is a maximum, another rule than Adam, which AMSGrad has by intention.
# A spike, or the first steps of a fine-tune, freezes the layers that had it. Adapters,
# whose factor A has no gradient at first, and base weights are then trained at unlike rates.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import torch

torch.set_num_threads(1)
LR = 1e-3


def driven(dtype, sizes, kind=torch.optim.Adam, **options):
    """The average of squared gradients and the length of the last step, over its rate."""
    weights = torch.nn.Parameter(torch.zeros(256, dtype=dtype))
    optimizer = kind([weights], lr=LR, **options)
    for size in sizes:
        weights.grad = size.to(dtype).expand(256).clone()
        weights.data.zero_()
        optimizer.step()
    average = optimizer.state[weights]["exp_avg_sq"].float().mean().item()
    return average, weights.detach().float().abs().mean().item() / LR


one = torch.ones(1)
for after in (0, 20000):
    sizes = [one] * 100 + [one / 100] * after
    for dtype in (torch.float32, torch.bfloat16):
        average, step = driven(dtype, sizes)
        print(f"{dtype}, {after} small gradients: average {average:.6f}, step {step:.4f} of lr")
        if after:
            assert (0.9 < step < 1.1) if dtype is torch.float32 else (0.02 < step < 0.05)
        if dtype is torch.bfloat16:
            assert average == 0.09814453125

for kind, options in (
    (torch.optim.Adam, {"foreach": True}),
    (torch.optim.Adam, {"fused": True}),
    (torch.optim.AdamW, {"weight_decay": 0.0}),
    (torch.optim.NAdam, {}),
):
    average, step = driven(torch.bfloat16, [one] * 100 + [one / 100] * 5000, kind, **options)
    print(f"{kind.__name__}, {options}: average {average:.6f}, step {step:.4f} of the rate")
    assert 0.09 < average < 0.11 and step < 0.05

for dtype in (torch.float32, torch.bfloat16):
    average, step = driven(dtype, [one] * 10000)
    torch.manual_seed(0)
    noisy, _ = driven(dtype, [torch.randn(256) for _ in range(10000)])
    print(f"{dtype}: steady average {average:.3f}, step {step:.3f} of the rate, noise {noisy:.3f}")
    if dtype is torch.float32:
        assert abs(average - 1) < 1e-3 and abs(step - 1) < 1e-3 and abs(noisy - 1) < 0.05
    else:
        assert average == 0.5 and abs(step - 1.4) < 0.05 and 2 < noisy < 3

sizes = [one] * 100 + [one / 100] * 20000
average, step = driven(torch.bfloat16, sizes, betas=(0.9, 0.99))
print(f"bfloat16, betas=(0.9, 0.99): average {average:.6f}, step {step:.3f} of the rate")
assert 0.5 < step < 0.7
PY
./env/bin/python try.py
echo "as seen before"
