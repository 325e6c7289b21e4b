#!/usr/bin/env bash
# peft: a fresh AdaLoRA adapter raises the evaluation loss by 1.7 and leaves the outputs alone.
#
# Versions: peft 0.21.2, transformers 5.23.0, accelerate 1.15.0, torch 2.13.0 (CPU
# build), numpy 2.4.6.
#
# An adapter of peft begins as zero. AdaLoRA trains its factors with a penalty that keeps them
# near orthogonal; orth_reg_weight, 0.5 by default, is the weight of the penalty.
#
# Expected: in evaluation a model with a fresh adapter gives the logits and the loss of its base,
# whatever its rank is. The penalty, if it is in a loss, is in that of training.
# Seen: the logits are those of the base to the last bit, and the loss is 4.19 for the base, 5.16
# with an adapter of rank 4, 5.87 with one of rank 12 (the default) and 8.07 with one of rank 64:
# it rises as half the root of the rank. This is in evaluation, without gradients, and
# the cross entropy of the logits is 4.19 throughout. With disable_adapter() the penalty stays.
# Without task_type="CAUSAL_LM", the same model with the same adapter has no penalty at all, in
# evaluation and in training. There is no warning.
#
# Why it matters: a perplexity, as the exponential of the evaluation loss, is 5.3 times too
# large at the default rank. LoRA and AdaLoRA, or ranks of AdaLoRA, are compared by losses that
# hold another constant each, which shrinks in training as if it were progress; and one field
# of the configuration that is thought of as a label decides whether it is trained on.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.23.0 \
    accelerate==1.15.0 peft==0.21.2
export HF_HUB_OFFLINE=1

cat > try.py <<'PY'
import torch
from peft import AdaLoraConfig, LoraConfig, get_peft_model
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)
WORDS = torch.arange(32).view(2, 16)


def base():
    """A small model, the same at each call."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4,
    )
    return LlamaForCausalLM(config).eval()


@torch.no_grad()
def said(model):
    """The loss that the model gives, the cross entropy of its logits, and the logits."""
    out = model(input_ids=WORDS, labels=WORDS)
    exact = cross_entropy(out.logits[:, :-1].flatten(0, 1), WORDS[:, 1:].flatten())
    return out.loss.item(), exact.item(), out.logits


def adalora(rank, task):
    return AdaLoraConfig(
        target_modules=["q_proj", "down_proj"], init_r=rank, target_r=rank, total_step=100,
        task_type=task,
    )


alone, exact, logits = said(base())
print(f"base: loss {alone:.3f}, cross entropy {exact:.3f}")
assert abs(alone - exact) < 1e-5
for rank in (4, 12, 64):
    for task in (None, "CAUSAL_LM"):
        model = get_peft_model(base(), adalora(rank, task)).eval()
        loss, exact, same = said(model)
        print(f"rank {rank}, task {task}: loss {loss:.3f}, cross entropy {exact:.3f}")
        assert torch.equal(same, logits) and abs(exact - alone) < 1e-5
        if task is None:
            assert abs(loss - alone) < 1e-5
            assert abs(said(model.train())[0] - alone) < 1e-5
        else:
            assert 0.85 < (loss - alone) / (0.5 * rank**0.5) < 1.05
            with model.disable_adapter():
                disabled, _, same = said(model)
            print(f"  disabled: loss {disabled:.3f}")
            assert abs(disabled - loss) < 1e-5 and torch.equal(same, logits)
lora = LoraConfig(target_modules=["q_proj", "down_proj"], r=12, task_type="CAUSAL_LM")
assert abs(said(get_peft_model(base(), lora).eval())[0] - alone) < 1e-5
PY
./env/bin/python try.py
echo "as seen before"
