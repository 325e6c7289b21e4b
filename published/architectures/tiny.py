"""Tiny models of any class of the transformers library, made from its config's own keys.

No table of architectures stands here: a key says by its name what it sizes (`hidden_size`,
`encoder_layers`, `num_local_experts`, ...), in the config and in the configs of its parts. Where
the library refuses the sizes, or the model is still large, other sizes are tried (`variants`).
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

WIDTH, FEED, HEADS, HEAD = 32, 48, 4, 8
LAYERS = 2
WORDS = 256
POSITIONS = 64
LARGEST = 3_000_000  # parameters of a model that is tiny
# What keys of whole numbers are set to, by the first pattern that their whole name fits.
SIZES: tuple[tuple[str, int], ...] = (
    (r"(.*_)?vocab(ulary)?_size|n_words|.*_group_vocab", WORDS),
    (r"num_kv_shared_layers", 0),
    (r"rotary_dim", HEAD),
    (r"q_lora_rank|kv_lora_rank|o_lora_rank", 16),
    (r"d_latents|intra_bottleneck_size|qk_channels|v_channels", WIDTH),
    (r"num_latents|(local|lsh)_attn_chunk_length", 8),
    (r"qk_head_dim", 16),
    (
        r"(qk_rope|qk_nope|v|head|mamba|linear_(key|value)|index|global|swa|kv|swa_v).*head_dim",
        HEAD,
    ),
    (r"d_kv|head_dim|attention_head_(dim|size)|head_size|key_size|d_head", HEAD),
    (r"hidden_size_per_layer_input", 16),
    (r"vocab_size_per_layer_input", WORDS),
    (r"num_(memory|mem|mlp)_(functions|blocks)", 1),
    (r"(num_|n_)shared_experts|(num_|n_)?zero_expert_num|moe_num_shared_experts", 1),
    (r"(n_groups?|topk_group|num_expert_groups?|mamba_n_?groups|num_group)", 1),
    (
        r"(num_experts_per_tok(en)?|moe_top_?k|num_selected_experts|top_k_experts|moe_k|topk|.*_topk)",
        2,
    ),
    (r"(.*_)?(num|n)_?(.*_)?experts|expert_num|.*_num_experts", 4),
    (r"(.*_)?(num_key_value_heads|num_kv_heads|n_kv_heads|n_head_kv|attn_.*kv_n_heads)", 2),
    (
        r"(.*_)?(n_heads?|n_layer_?heads?|num_heads|.*attention_heads|.*_n_heads|.*num_.*_heads)",
        HEADS,
    ),
    (r"first_k_dense_replace", 1),
    (r"(.*_)?(n_layers?|num_.*layers|.*_layers|num_layers|layers|depth|num_blocks)", LAYERS),
    (r"(.*_)?(d_state|state_size|d_conv|ssm_state_size|mamba_d_state|lru_width_div)", 8),
    (
        r"(.*_)?(intermediate_size|ffn_dim|d_ff|n_inner|ffn_hidden_size|inner_dim|ffn_size"
        r"|intermediate_dim|.*_expert_.*_size|feed_forward_.*|mlp_hidden_size)",
        FEED,
    ),
    (
        r"(.*_)?(hidden_size|d_model|n_embd|embed_dim|emb_dim|embedding_size|model_dim|lru_width"
        r"|embed_size|embedding_dim|dim|width|d_embed|projection_dim|projection_size|proj_size"
        r"|.*_proj_dim|attention_hidden_size|hidden_dim|input_dim|conv_channels|output_dim)",
        WIDTH,
    ),
    (r"(chunk_size|mamba_chunk_size|chunk_length|.*_chunk_size)", 16),
    (
        r"(.*_)?(max_position_embeddings|n_positions|n_ctx|max_seq_len|max_sequence_length"
        r"|seq_length|max_source_positions|max_target_positions|position_embeddings|context_length)",
        POSITIONS,
    ),
    (r"(.*_)?(sliding_window|attention_window|local_attention|window_length)(_size)?", 16),
    (r"image_size|img_size|input_size|crop_size", 32),
    (r"(.*_)?patch_size|patch_stride", 8),
    (r"window_size", 2),
    (r"num_frames", 2),
    (r"tubelet_size", 1),
)
FILLED = (  # keys that have no value until somebody gives one
    (r"head_dim", HEAD),
    (r"num_key_value_heads", 2),
    (r".*vocab_size", WORDS),
    (r"(num|n)_.*experts", 4),
    (r"n_shared_experts|n_group|topk_group", 1),
    (r"indexer_n_heads", 2),
    (r"indexer_kv_heads", 1),
    (r"indexer_head_dim", HEAD),
    (r"indexer_budget", 16),
    (r"indexer_compress_ratio", 4),
    (r"(upsample|conv)_out_channels", [16, 16]),
    (r"num_experts_per_tok", 2),
    (r"pad_token_id", 0),
    (r"rope_theta", 10000),
    (r"attn_layer_indices", [1]),
    (r"default_language", "en_XX"),
)
KEPT = re.compile(
    r"num_feat_extract_layers|head_in_index|chunk_size_feed_forward|.*(kernel|stride|dropout|prob|eps|factor|groups?_size)"
)
FIXED = {
    "attention_types": [[["global", "local"], 1]],
    "axial_pos_embds_dim": [8, 24],
    "axial_pos_shape": [4, 4],
    "attn_layer_indices": [1],
}
TOGETHER = {  # sizes that must fit those of the rules
    "acoustic_tokenizer_chunk_size": 3200,  # a multiple of what is one step
    "aspp_out_channels": 16,
    "chunk_right_context": 4,  # less than a chunk
    "coordinate_size": 4,  # four of it and two of the next are the width
    "encoder_stride": 8,  # a patch
    "num_filters": 2,
    "num_groups": 1,
    "rope_parameters": {
        "full_attention": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [2, 1, 1],
        }
    },
    "shape_size": 8,
    "use_cache": False,
}
TOKEN = re.compile(r".*_(token_id|token_index|id|index|start|end)$|.*token_ids?")


def variants() -> Iterator[dict[str, Any]]:
    """Sizes in place of those of the rules, in the order in which they are tried."""
    yield {}
    yield {"filled": True}
    yield {"num_key_value_heads": HEADS}
    yield {"num_key_value_heads": HEADS, "filled": True}
    yield {"num_key_value_heads": HEADS, "num_experts_per_tok": 1, "n_group": 1}
    yield {"attention_hidden_size": 64, "attention_head_dim": 16}
    yield {"hidden_size_per_layer_input": 0, "attention": True}
    yield {"head_dim": 16}
    yield {"image_size": 64}
    yield {"head_dim": None}
    yield {"num_hidden_layers": 4, "n_layer": 4, "n_layers": 4, "num_layers": 4}
    yield {"n_heads": 2, "mamba_n_heads": 8, "mamba_num_heads": 8, "num_heads": 8}
    yield {"num_hidden_layers": 6, "n_layer": 6, "n_layers": 6, "num_layers": 6}
    yield {"hidden_size": 64, "d_model": 64, "n_embd": 64}
    yield {"is_decoder": True}
    yield {"stage_width": 32, "embedding_size": 32}
    yield {"num_hidden_layers": 4, "attention_hidden_size": 64, "attention_head_dim": 16}
    yield {"head_dim": 16, "num_key_value_heads": HEADS}
    yield {"hidden_size": 48}
    yield {"hidden_size": 128, "embedding_dim": 128, "use_cache": False}
    yield TOGETHER
    yield {"flat": True, "stem_channels": [3, 16, 16], "stem_out_channels": 16, "hidden_dim": 320}
    of_four = {
        "num_hidden_layers": 4,
        "backbone_out_indices": [0, 1, 2, 3],
        "out_indices": [1, 2, 3, 4],
    }
    yield of_four
    yield of_four | {"reshape_hidden_states": False}
    yield {"num_layers": 4, "image_size": 64, "encoder_stride": 32}


def config_of(kind: Any, changes: Mapping[str, Any]) -> Any:
    """A config of a class with tiny sizes, and those of its parts."""
    return kind(**arguments(kind, kind(), changes))


def arguments(kind: Any, whole: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a config's class that make its model tiny."""
    given: dict[str, Any] = {}
    parts = {name: getattr(whole, name, None) for name in getattr(kind, "sub_configs", {})}
    keys = {**vars(whole), **{name: read(whole, name) for name in [*fields(kind), "out_indices"]}}
    n_before = next(
        (keys[n] for n in ("num_hidden_layers", "n_layer", "n_layers") if keys.get(n)), None
    )
    renamed = getattr(kind, "attribute_map", {})
    for name, value in keys.items():
        if name.startswith("_") or name in parts or name in renamed:
            continue
        found = sized(name, value, changes, n_before)
        if found is not value:
            given[name] = found
    for name, part in parts.items():
        if part is None or isinstance(part, dict):
            continue
        inside = arguments(type(part), part, changes)
        if getattr(part, "model_type", ""):
            inside["model_type"] = part.model_type
        given[name] = inside
    return given


def read(config: Any, name: str) -> Any:
    """The value of a key of a config; None where it has none, or one for each layer."""
    try:
        return getattr(config, name, None)
    except Exception:
        return None


def fields(kind: Any) -> list[str]:
    """The keys that a config's class knows."""
    known = getattr(kind, "__dataclass_fields__", None)
    return list(known or inspect.signature(kind.__init__).parameters)


def sized(name: str, value: Any, changes: Mapping[str, Any], n_before: int | None) -> Any:
    """The value of a key in a tiny config; the very same where it is kept."""
    if name in changes and value is not None:
        return changes[name]
    if value is None and changes.get("filled"):
        if name == "layer_types":
            return ["full_attention"] * LAYERS
        return next((size for pattern, size in FILLED if re.fullmatch(pattern, name)), None)
    if isinstance(value, bool) or value is None or KEPT.fullmatch(name):
        return value
    if isinstance(value, int):
        if TOKEN.fullmatch(name):
            return value if 0 <= value < WORDS else token_of(name)
        for pattern, size in SIZES:
            if re.fullmatch(pattern, name):
                return min(value, size) if value > 0 else value
        return value
    if isinstance(value, float) and re.fullmatch(r"(width|depth)_(coefficient|multiplier)", name):
        return 0.25
    if isinstance(value, float) and re.search(r"dropout|_pdrop|drop_path|layerdrop|jitter", name):
        return 0.0
    if isinstance(value, list | tuple) and value:
        return listed(name, value, n_before, changes)
    return value


def token_of(name: str) -> int:
    """A token for a key whose token the small vocabulary has not: another for each name."""
    return WORDS - 1 - sum(map(ord, name)) % 16


def listed(name: str, value: Any, n_before: int | None, changes: Mapping[str, Any]) -> Any:
    """A list of a tiny config: a depth for each stage, widths, or a kind for each layer."""
    kind = type(value)
    if name == "depths" or name == "layers" or name.endswith("_depths"):
        return kind([1] * len(value))
    if name in ("layer_types", "layers_block_type") and changes.get("attention"):
        return ["mamba", "attention"]
    numbers = all(isinstance(one, int) and not isinstance(one, bool) for one in value)
    if numbers and re.search(r"(hidden_sizes|embed_dims?|widths?|dims|channels)$", name):
        width = changes.get("stage_width", 16)
        flat = changes.get("flat")
        return kind([width * (1 if flat else 1 + place) for place in range(len(value))])
    if name in FIXED:
        return FIXED[name]
    if numbers and re.search(r"num_(attention_)?heads$", name):
        return kind([2] * len(value))
    if numbers and re.search(r"conv_dim$|tdnn_dim$", name):
        return kind([16] * len(value))
    if numbers and re.search(r"(image|img|crop)_size$", name):
        return kind([32] * len(value))
    size = next((of for pattern, of in SIZES if numbers and re.fullmatch(pattern, name)), None)
    if size is not None and len(value) == n_before:
        return kind([min(one, size) for one in value][:LAYERS])
    if n_before and len(value) == n_before and not numbers:
        n = changes.get("num_hidden_layers", LAYERS)
        kinds = list(dict.fromkeys(map(str, value)))
        first = [next(one for one in value if str(one) == k) for k in kinds]
        return kind((first * n)[:n]) if len(first) > 1 else kind(value[:n])
    return value


def made(architecture: Any, seed: int = 0) -> Iterator[Any]:
    """Tiny models of a class in evaluation mode, with weights of a seed, of other sizes each.

    Raises the error of the first sizes where the library refuses all of them.
    """
    first: Exception | None = None
    seen: list[str] = []
    for changes in variants():
        try:
            config = config_of(architecture.config_class, changes)
            config.num_labels = 3
            completed(config)
            if config.to_json_string() in seen:
                continue
            seen.append(config.to_json_string())
            with torch.device("meta"):
                shape = architecture(config)
            n = sum(parameter.numel() for parameter in shape.parameters())
            if n > LARGEST:
                large = max(shape.named_parameters(), key=lambda pair: pair[1].numel())
                raise ValueError(f"{n} parameters, of {large[0]} {list(large[1].shape)}")
            torch.manual_seed(seed)
            model = architecture(config).float().eval()
        except Exception as error:
            first = first or error
        else:
            yield model
    if first:
        raise first


def completed(config: Any) -> None:
    """Give a config the tokens that a loss wants: of padding, and of a decoder's start."""
    parts = [config, *(read(config, name) for name in getattr(config, "sub_configs", {}))]
    for part in parts:
        if part is None or isinstance(part, dict):
            continue
        for name in ("pad_token_id", "decoder_start_token_id"):
            of_decoder = name.startswith("decoder") and read(part, "is_encoder_decoder")
            if read(part, name) is None and (of_decoder or hasattr(part, "pad_token_id")):
                setattr(part, name, 0)


def noise(model: torch.nn.Module, seed: int, size: float) -> None:
    """Add Gaussian noise to every parameter, in place."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += size * torch.randn(parameter.shape, generator=random)
