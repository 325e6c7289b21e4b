"""Tiny models of the transformers library, of every architecture that is tested, and checkpoints of
them.
"""

from pathlib import Path

import torch

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
FEED = {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 24}
EYES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}
KINDS = ("llama", "qwen3", "gpt2", "gpt_neox", "phi3", "bert", "vit")
ATTENTION = ("llama", "mistral", "qwen2", "gemma", "gpt2", "gpt_neox", "phi3")


def made(kind: str, seed: int = 0, **changes):
    """A model of that kind with random weights, norms and biases too."""
    import transformers as t

    words = {"vocab_size": 256, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    grouped = {**SIZES, **words, "num_key_value_heads": 2}
    config = {
        "llama": lambda: t.LlamaConfig(**grouped | changes),
        "mistral": lambda: t.MistralConfig(**grouped | {"head_dim": 8} | changes),
        "qwen2": lambda: t.Qwen2Config(**grouped | changes),
        "mixtral": lambda: t.MixtralConfig(**grouped | {"num_local_experts": 4} | changes),
        "qwen2_moe": lambda: t.Qwen2MoeConfig(
            **grouped | {"num_experts": 4, "num_experts_per_tok": 2} | FEED | changes
        ),
        "gpt_oss": lambda: t.GptOssConfig(
            **grouped | {"head_dim": 8, "num_local_experts": 4} | changes
        ),
        "gemma": lambda: t.GemmaConfig(**grouped | {"head_dim": 8} | changes),
        "qwen3": lambda: t.Qwen3Config(**grouped | {"head_dim": 16} | changes),
        "gpt2": lambda: t.GPT2Config(**words | {"n_embd": 32, "n_layer": 2, "n_head": 4} | changes),
        "gpt_neox": lambda: t.GPTNeoXConfig(**SIZES | words | changes),
        "phi3": lambda: t.Phi3Config(**grouped | changes),
        "bert": lambda: t.BertConfig(**SIZES | {"vocab_size": 256} | changes),
        "vit": lambda: t.ViTConfig(**SIZES | {"image_size": 8, "patch_size": 4} | changes),
        "gemma3": lambda: t.Gemma3Config(
            text_config={**grouped, "pad_token_id": 0, "head_dim": 8} | changes,
            vision_config=EYES,
            mm_tokens_per_image=4,
            boi_token_index=253,
            eoi_token_index=254,
            image_token_index=255,
        ),
    }[kind]()
    auto = {
        "bert": t.AutoModelForMaskedLM,
        "vit": t.AutoModelForImageClassification,
        "gemma3": t.AutoModelForImageTextToText,
    }
    t.utils.logging.set_verbosity_error()
    t.utils.logging.disable_progress_bar()
    torch.manual_seed(seed)
    model = auto.get(kind, t.AutoModelForCausalLM).from_config(config).eval()
    return moved(model, seed + 1, 0.2)


def moved(model, seed: int, size: float = 0.05):
    """Add Gaussian noise to every parameter, in place."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += (size * torch.randn(parameter.shape, generator=random)).to(parameter)
    return model


def saved(model, folder: Path, *, sharded: bool = False) -> Path:
    model.save_pretrained(folder, max_shard_size="20KB" if sharded else "5GB")
    return folder


def pair(kind: str, folder: Path, **changes) -> tuple[Path, Path]:
    """A base and a tuned checkpoint."""
    model = made(kind, **changes)
    base = saved(model, folder / "base")
    return base, saved(moved(model, 7), folder / "tuned")
