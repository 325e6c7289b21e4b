"""Live models of the transformers library: made from sizes, read from a folder, written to one."""

from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from lib.checkpoints.folders import FLOATS, Checkpoint
from lib.checkpoints.library import SAFE, model_class, quiet, refusing, unloaded
from lib.checkpoints.linear_modules import linear_modules, stored_as_columns
from lib.checkpoints.names import linear_tensors, places_of, stored_places, tied_names
from lib.checkpoints.tuned_adapters import AdapterCheckpoint
from lib.files.files import InputError

Kind = Literal["llama", "gpt2"]


def small_model(
    kind: Kind,
    *,
    d_model: int,
    n_layers: int,
    n_heads: int,
    n_kv_heads: int,
    d_mlp: int,
    init_scale: float,
    seq_len: int,
    seed: int,
) -> torch.nn.Module:
    """A small causal model of bytes, like Llama (rotary positions, grouped heads) or like GPT-2."""
    with quiet(), torch.random.fork_rng():
        from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

        shared: dict[str, Any] = {
            "vocab_size": 256,
            "initializer_range": init_scale,
            "bos_token_id": None,
            "eos_token_id": None,
        }
        if kind == "llama":
            config = LlamaConfig(
                hidden_size=d_model,
                intermediate_size=d_mlp,
                num_hidden_layers=n_layers,
                num_attention_heads=n_heads,
                num_key_value_heads=n_kv_heads,
                max_position_embeddings=seq_len,
                pad_token_id=None,
                **shared,
            )
        else:
            config = GPT2Config(
                n_embd=d_model,
                n_inner=d_mlp,
                n_layer=n_layers,
                n_head=n_heads,
                n_positions=seq_len,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                **shared,
            )
        torch.manual_seed(seed)  # the library draws from the global generator
        return AutoModelForCausalLM.from_config(config)


def open_model(
    folder: Path, config: Mapping[str, Any], dtype: torch.dtype | None = None
) -> torch.nn.Module:
    """The model of a checkpoint, in evaluation mode.

    Raises `InputError` for one that transformers cannot open.
    """
    kind = model_class(folder, config)
    with refusing(f"{folder}: wanted a checkpoint that {kind.__name__} can read"):
        model, told = kind.from_pretrained(
            folder, dtype=dtype or "auto", output_loading_info=True, **SAFE
        )
    missing = sorted(told["missing_keys"])
    if missing:
        got = f"got none for {len(missing)} of them: {missing[:9]}"
        raise InputError(f"{folder}: wanted every weight of {kind.__name__}, {got}")
    return model.train(False)


def linear_places(
    checkpoint: Checkpoint, model: torch.nn.Module | None = None
) -> dict[str, tuple[str, bool]]:
    """The tensor of each linear module, and whether it is stored as in × out.

    Names decide, and no weight is read: the model is its own, or one on the meta device. Raises
    `InputError`, naming a module, where it has no tensor of its own.
    """
    model = model or unloaded(checkpoint.model_folder, checkpoint.config)
    shapes = {name: entry.shape for name, entry in checkpoint.tensors.items()}
    places = linear_tensors(model, shapes)
    live = linear_modules(model)
    return {name: (place, stored_as_columns(live[name])) for name, place in places.items()}


def check_shapes(checkpoint: Checkpoint) -> int:
    """How many parameters the model of a checkpoint has; its weights are not read.

    Raises `InputError` where a weight has another shape than the config gives it: the library would
    make a model of the config's size before it says so.
    """
    model = unloaded(checkpoint.model_folder, checkpoint.config)
    live = dict(model.state_dict())
    for name, places in stored_places(model, checkpoint.tensors).items():
        got = list(checkpoint.tensors[places[0]].shape)
        if len(places) == 1 and list(live[name].shape) != got:
            wanted = f"wanted the shape {list(live[name].shape)} that config.json gives it"
            raise InputError(f"{checkpoint.model_folder}: {places[0]}: {wanted}, got {got}")
    return sum(parameter.numel() for parameter in model.parameters())


def open_tuned_model(tuned: Checkpoint) -> torch.nn.Module:
    """The model of what was tuned; that of an adapter is its base's in float32, with what it
    changes.

    Weights that are stored in float32 stay so, also where the config names a narrower type.
    Raises `InputError` where an adapter changes one alone of tied weights.
    """
    if not isinstance(tuned, AdapterCheckpoint):
        return open_model(tuned.folder, tuned.config, wide_type(tuned))
    model = open_model(tuned.model_folder, tuned.config, torch.float32)
    live = dict(model.named_parameters(remove_duplicate=False))
    alike = tied_names(model)
    for name in tuned.changed:
        if name not in live or not {*alike[name]} <= {*tuned.changed}:
            wanted = f"wanted a weight of {type(model).__name__} that is tied to no other"
            raise InputError(f"{tuned.folder}: {wanted}, got {name}: merge it first")
    with torch.no_grad():
        for name in tuned.changed:
            if name in tuned.tensors:
                live[name].copy_(tuned.load(name))
    return model


def wide_type(checkpoint: Checkpoint) -> torch.dtype | None:
    """The type in which most of a checkpoint's weights are stored, if it is float32 or float64."""
    of_type = Counter[str]()
    for entry in checkpoint.tensors.values():
        of_type[entry.dtype] += prod(entry.shape) if entry.dtype in FLOATS else 0
    most = max(of_type, key=of_type.__getitem__, default="")
    return {"F32": torch.float32, "F64": torch.float64}.get(most)


def put(model: torch.nn.Module, parameters: Mapping[str, torch.Tensor]) -> None:
    """Have a model compute with these parameters in place of its own.

    One that it ties to another gets a place of its own, as in peft, where the two would not be
    equal.
    """
    alike = tied_names(model)
    with torch.no_grad():
        for name, value in parameters.items():
            others = [parameters.get(other) for other in alike[name]]
            if all(other is not None and other.equal(value) for other in others):
                model.get_parameter(name).copy_(value)
            else:
                module, _, own = name.rpartition(".")
                held = value.to(model.get_parameter(name)).clone()
                setattr(model.get_submodule(module), own, torch.nn.Parameter(held))


def open_base(base: Checkpoint) -> tuple[torch.nn.Module, list[str]]:
    """The model of a base in the architecture of what was tuned from it, and what the base lacks.

    The parameters that it lacks, such as the head of a classifier, are the tuned ones.
    """
    tuned = base.tuned
    if tuned is None or tuned.config.get("architectures") == base.config.get("architectures"):
        return open_model(base.folder, base.config), []
    ended = open_tuned_model(tuned)
    kind: Any = type(ended)
    with refusing(f"{base.folder}: wanted a base of the {kind.__name__} in {tuned.folder}"):
        model, told = kind.from_pretrained(
            base.folder, config=ended.config, dtype="auto", output_loading_info=True, **SAFE
        )
    missing = sorted(told["missing_keys"])
    after: dict[str, Any] = ended.state_dict()
    with torch.no_grad():
        for name in missing:
            model.state_dict()[name].copy_(after[name])
    parameters = dict(model.named_parameters())
    return model.train(False), [name for name in missing if name in parameters]


def tuned_alone(base: Checkpoint, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What a base computes with in place of the parameters that the tuned model alone has.

    For a bias that is zero, and for a head that is tied in the base its embedding. A parameter
    without a counterpart is left out.
    """
    if base.tuned is None or set(base.tuned.tensors) <= set(base.tensors):
        return {}
    begun, _ = open_base(base)
    held = dict(begun.named_parameters(remove_duplicate=False))
    tied, apart = tied_names(begun), tied_names(model)
    stored = {*places_of(base.tuned.model_folder, base.tuned.config, base.tensors).values()}
    found = {}
    for name, parameter in model.named_parameters():
        if name in held and name not in stored and tied[name] and not apart[name]:
            found[name] = held[name].detach()
        elif name not in held and name.endswith("bias"):
            found[name] = torch.zeros_like(parameter)
    return found


def check_architecture(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise `InputError` where the config alone says that transformers cannot open the model."""
    kind = model_class(folder, config)
    with refusing(f"{folder}: wanted a config that {kind.__name__} can read"):
        kind.config_class.from_pretrained(folder, **SAFE)


def save_model(model: Any, folder: Path) -> None:
    """Write config.json and safetensors, as transformers does, whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with quiet(), TemporaryDirectory(dir=folder.parent) as part:
        model.save_pretrained(part)
        (Path(part) / "generation_config.json").unlink(missing_ok=True)
        folder.mkdir(exist_ok=True)
        for file in Path(part).iterdir():
            file.replace(folder / file.name)
