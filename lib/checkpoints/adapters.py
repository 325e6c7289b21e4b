r"""LoRA adapters as peft reads and trains them.

An adapter is a folder: `adapter_config.json`, `adapter_model.safetensors` and a model card.
A module's update $\Delta W \approx U \Sigma V^\top$ (out × in) is written as B A with $B = U
\Sigma^{1/2}$ and $A = \Sigma^{1/2} V^\top$; alpha = r for every module, so that peft adds B A as it
is. Modules are named in full, and the keys of the patterns, which peft reads as regular
expressions, are escaped: a name such as `c_proj` stands in attention and MLP.

Runtimes scale B A of module i by a rule of their own: peft by $\alpha_i / r_i$ of the patterns,
vLLM by `lora_alpha` / r, llama.cpp by `lora_alpha` over the rows of A. The last is wrong for mixed
ranks. With one rank for all (`equal`: A and B padded by zeros, no pattern) all three are 1.
"""

import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from lib.checkpoints.library import quiet
from lib.files.files import InputError, atomic

FILES = ("adapter_config.json", "adapter_model.safetensors", "README.md", "plan.json")
LISTED = "adapters.json"  # what says of all adapters of a plan what they are


def whether(name: str, answer: str, words: tuple[str, str] = ("yes", "no")) -> bool:
    """Whether an answer is the first of two words; raises `InputError` for what is neither."""
    if answer not in words:
        raise InputError(f"{name}: wanted {words[0]} or {words[1]}, got {answer}")
    return answer == words[0]


def lora_config(
    ranks: Mapping[str, int], *, fan_in_fan_out: bool, scale: int = 1
) -> dict[str, Any]:
    """The keyword arguments of peft's `LoraConfig` for these ranks by module.

    A module of rank 0 is no target. `scale` is alpha over rank: 1 for a cut.
    """
    targets = {name: rank for name, rank in ranks.items() if rank > 0}
    most = max(targets.values(), default=1)
    pattern = {f"^{re.escape(name)}$": rank for name, rank in targets.items()}
    return {
        "r": most,
        "lora_alpha": scale * most,
        "target_modules": sorted(targets),
        "rank_pattern": pattern,
        "alpha_pattern": {key: scale * rank for key, rank in pattern.items()},
        "fan_in_fan_out": fan_in_fan_out,
        "lora_dropout": 0.0,
        "bias": "none",
    }


def with_adapter(model: torch.nn.Module, config: Mapping[str, Any], seed: int) -> Any:
    """The model with a new adapter, to be trained: all else of it is frozen.

    `config` holds the arguments of `LoraConfig`; A is drawn from the seed, B is zero.
    """
    with quiet(), torch.random.fork_rng(), warnings.catch_warnings():
        from peft import LoraConfig, get_peft_model

        # what peft itself still reads
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        torch.manual_seed(seed)  # peft draws from the global generator
        whole: Any = model
        return get_peft_model(whole, LoraConfig(**config))


def write_adapter(
    folder: Path,
    factors: Mapping[str, tuple[Any, Any]],
    config: Mapping[str, Any],
    *,
    base: str,
    card: str,
    task_type: str | None,
    saved: Mapping[str, Any] | None = None,
    equal: bool = False,
) -> None:
    """Write an adapter from the factors (A of r × in, B of out × r) of each target module.

    `saved` are the parameters by name that it carries whole, those of the config's
    `modules_to_save` and biases. With `equal` all factors have the largest rank, and the adapter no
    patterns. `plan.json` is the config alone, for `LoraConfig(**...)`.
    """
    tensors = {}
    for name, tensor in (saved or {}).items():
        module, _, own = name.rpartition(".")
        wrapped = f"{module}.base_layer.{own}"  # peft wraps what it adapts
        place = wrapped if module in factors else name
        tensors[f"base_model.model.{place}"] = tensor.contiguous()
    for name, (A, B) in sorted(factors.items()):
        zeros = config["r"] - len(A) if equal else 0
        A = torch.nn.functional.pad(A, (0, 0, 0, zeros))
        B = torch.nn.functional.pad(B, (0, zeros))
        tensors[f"base_model.model.{name}.lora_A.weight"] = A.float().contiguous()
        tensors[f"base_model.model.{name}.lora_B.weight"] = B.float().contiguous()
    written = {
        "peft_type": "LORA",
        "task_type": task_type,
        "base_model_name_or_path": base,
        "inference_mode": True,
        **config,
        **({"rank_pattern": {}, "alpha_pattern": {}} if equal else {}),
    }
    named = f"base_model: {base}\n" if "/" in base else ""
    front = f"---\n{named}library_name: peft\ntags:\n- lora\n---\n\n"
    contents = {
        "adapter_model.safetensors": save(tensors, {"format": "pt"}),
        "adapter_config.json": json.dumps(written, indent=2, sort_keys=True).encode() + b"\n",
        "README.md": (front + card).encode(),
        "plan.json": json.dumps(config, indent=2, sort_keys=True).encode() + b"\n",
    }
    for name, data in contents.items():
        with atomic(folder / name) as part:
            part.write_bytes(data)
