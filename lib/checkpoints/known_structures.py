"""The decoders whose structure is known by heart: the linear modules of a checkpoint, by its config
and the headers of its files alone.

These are Llama, Mistral, Qwen2 and Qwen3. A checkpoint is one of them where every key of its config
is written here and has a value that transformers takes, and where its tensors are those of such a
model, no more and no fewer, in their shapes. For all others transformers and peft are asked. That
they say the same of these is a test.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.checkpoints.folders import FLOATS, Checkpoint
from lib.checkpoints.stored import CONFIG, PREFIX, WEIGHTS
from lib.checkpoints.tuned_adapters import AdapterCheckpoint
from lib.files.inputs import read_header

Shape = tuple[int, ...]
TYPES = ("float64", "float32", "float16", "bfloat16")
LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
WINDOWS = ("full_attention", "sliding_attention")


def _whole(value: Any) -> bool:
    return type(value) is int and value > 0


def _whole_or_none(value: Any) -> bool:
    return value is None or _whole(value)


def _real(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _share(value: Any) -> bool:
    return type(value) is float and 0 <= value < 1


def _flag(value: Any) -> bool:
    return type(value) is bool


def _token(value: Any) -> bool:
    return value is None or (type(value) is int and value >= 0)


def _tokens(value: Any) -> bool:
    return all(map(_token, value)) if isinstance(value, list) else _token(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _rotary(value: Any) -> bool:
    """Whether rotary positions are plain ones, or those of Llama 3."""
    if value is None:
        return True
    if not isinstance(value, dict):
        return False
    numbers = {name: one for name, one in value.items() if name != "rope_type"}
    wanted = {"default": set(), "llama3": {*LLAMA3}}.get(str(value.get("rope_type")))
    return wanted == numbers.keys() - {"rope_theta"} and all(map(_real, numbers.values()))


KEYS: dict[str, Callable[[Any], bool]] = {  # of a config that all families may have
    "_name_or_path": _text,
    "architectures": lambda value: isinstance(value, list) and len(value) == 1,
    "attention_dropout": _share,
    "bos_token_id": _token,
    "dtype": lambda value: value in TYPES,
    "eos_token_id": _tokens,
    "head_dim": _whole_or_none,
    "hidden_act": lambda value: value == "silu",
    "hidden_size": _whole,
    "initializer_range": _share,
    "intermediate_size": _whole,
    "max_position_embeddings": _whole,
    "model_type": _text,
    "num_attention_heads": _whole,
    "num_hidden_layers": _whole,
    "num_key_value_heads": _whole_or_none,
    "pad_token_id": _token,
    "rms_norm_eps": lambda value: type(value) is float and value > 0,
    "rope_parameters": _rotary,
    "rope_scaling": _rotary,
    "rope_theta": _real,
    "tie_word_embeddings": _flag,
    "torch_dtype": lambda value: value in TYPES,
    "transformers_version": _text,
    "use_cache": _flag,
    "vocab_size": _whole,
}
SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
SLIDING: dict[str, Callable[[Any], bool]] = {
    "layer_types": lambda value: isinstance(value, list) and all(one in WINDOWS for one in value),
    "max_window_layers": lambda value: type(value) is int and value >= 0,
    "sliding_window": _whole_or_none,
    "use_sliding_window": _flag,
}


@dataclass(frozen=True)
class Family:
    """What sets an architecture apart: keys of its config, those that it must say, and tensors."""

    model_type: str
    keys: Mapping[str, Callable[[Any], bool]]
    said: tuple[str, ...] = ()
    biased: tuple[str, ...] = ()  # projections that always have a bias
    head_norms: bool = False


FAMILIES = {
    "LlamaForCausalLM": Family(
        "llama", {"attention_bias": _flag, "mlp_bias": _flag, "pretraining_tp": _whole}
    ),
    "MistralForCausalLM": Family(
        "mistral", {"sliding_window": _whole_or_none}, said=("num_key_value_heads",)
    ),
    "Qwen2ForCausalLM": Family(
        "qwen2", SLIDING, said=("num_key_value_heads",), biased=("q_proj", "k_proj", "v_proj")
    ),
    "Qwen3ForCausalLM": Family(
        "qwen3",
        {"attention_bias": _flag, **SLIDING},
        said=("num_key_value_heads", "head_dim"),
        head_norms=True,
    ),
}


def known_modules(checkpoint: Checkpoint) -> dict[str, tuple[int, int]] | None:
    """The linear modules that an adapter may change, with the shapes of their weights (out × in);
    None where transformers must be asked.

    The weight of each stands under its name.
    """
    if isinstance(checkpoint, AdapterCheckpoint) or checkpoint.stored:
        return None
    config = checkpoint.config
    family = _family(config)
    if family is None:
        return None
    linear = _linear(config)
    if _shapes(config, family, linear) != {n: one.shape for n, one in checkpoint.tensors.items()}:
        return None
    if any(entry.dtype not in FLOATS for entry in checkpoint.tensors.values()):
        return None
    return linear


def known_places(checkpoint: Checkpoint) -> dict[str, tuple[str, bool]] | None:
    """The tensor of each linear module, and that none is stored as in × out, as `linear_places` of
    the live model has them; None where transformers must be asked.
    """
    known = known_modules(checkpoint)
    return None if known is None else {name: (f"{name}.weight", False) for name in known}


def misfits(folder: Path, modules: Mapping[str, tuple[int, int]]) -> list[str]:
    """What is wrong with the adapter of a folder by names and shapes: it must have both factors of
    every target, of its rank, and no other tensor.
    """
    config = json.loads((folder / CONFIG).read_bytes())
    wanted = {}
    for name in config["target_modules"]:
        if name not in modules:
            return [f"wanted a linear layer of the model, got the target {name}"]
        rank = config["rank_pattern"].get(f"^{re.escape(name)}$", config["r"])
        n_out, n_in = modules[name]
        wanted[f"{PREFIX}{name}.lora_A.weight"] = (rank, n_in)
        wanted[f"{PREFIX}{name}.lora_B.weight"] = (n_out, rank)
    got = {name: tuple(entry.shape) for name, entry in read_header(folder / WEIGHTS).items()}
    differ = sorted(name for name in wanted.keys() | got if wanted.get(name) != got.get(name))
    return [f"{name}: wanted the shape {wanted.get(name)}, got {got.get(name)}" for name in differ]


def _family(config: Mapping[str, Any]) -> Family | None:
    """The family of a config, None where it has none or where anything in it is not plain."""
    architectures = config.get("architectures")
    if not (isinstance(architectures, list) and len(architectures) == 1):
        return None
    family = FAMILIES.get(str(architectures[0]))
    if family is None or config.get("model_type") != family.model_type:
        return None
    keys = {**KEYS, **family.keys}
    if not all(name in keys and keys[name](value) for name, value in config.items()):
        return None
    if not all(name in config for name in ("vocab_size", *SIZES, *family.said)):
        return None
    heads = config["num_attention_heads"]
    n_layers = config["num_hidden_layers"]
    n_keys = config.get("num_key_value_heads") or heads
    tokens = [config.get(f"{name}_token_id") for name in ("bos", "eos", "pad")]
    ids = [one for token in tokens for one in (token if isinstance(token, list) else [token])]
    plain = (
        config["hidden_size"] % heads == 0
        and heads % n_keys == 0
        and len(config.get("layer_types") or [None] * n_layers) == n_layers
        and all(one is None or one < config["vocab_size"] for one in ids)
        and (config.get("head_dim") is not None or "head_dim" not in family.said)
    )
    return family if plain else None


def _linear(config: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The linear modules of all layers, in the order of the model."""
    d_model = config["hidden_size"]
    d_mlp = config["intermediate_size"]
    n_heads = config["num_attention_heads"]
    d_head = config.get("head_dim") or d_model // n_heads
    n_keys = config.get("num_key_value_heads") or n_heads
    layers = range(config["num_hidden_layers"])
    shapes = {
        "self_attn.q_proj": (n_heads * d_head, d_model),
        "self_attn.k_proj": (n_keys * d_head, d_model),
        "self_attn.v_proj": (n_keys * d_head, d_model),
        "self_attn.o_proj": (d_model, n_heads * d_head),
        "mlp.gate_proj": (d_mlp, d_model),
        "mlp.up_proj": (d_mlp, d_model),
        "mlp.down_proj": (d_model, d_mlp),
    }
    return {f"model.layers.{i}.{name}": of for i in layers for name, of in shapes.items()}


def _shapes(
    config: Mapping[str, Any], family: Family, linear: Mapping[str, tuple[int, int]]
) -> dict[str, Shape]:
    """The tensors of a model of a family, as transformers stores them."""
    d_model = config["hidden_size"]
    words = (config["vocab_size"], d_model)
    found: dict[str, Shape] = {"model.embed_tokens.weight": words, "model.norm.weight": (d_model,)}
    if not config.get("tie_word_embeddings", False):
        found["lm_head.weight"] = words
    for name, shape in linear.items():
        found[f"{name}.weight"] = shape
        own = name.rpartition(".")[2]
        in_mlp = ".mlp." in name
        if own in family.biased or config.get("mlp_bias" if in_mlp else "attention_bias", False):
            found[f"{name}.bias"] = shape[:1]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}.{name}.weight"] = (d_model,)
        for name in ("q_norm", "k_norm") if family.head_norms else ():
            found[f"{at}.self_attn.{name}.weight"] = (config["head_dim"],)
    return found
