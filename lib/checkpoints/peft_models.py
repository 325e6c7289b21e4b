"""What peft makes of the adapters that are written: which modules it adapts, and what it loads.

peft refuses some modules by their names (the output of Mamba) and puts others in the place of some
(the experts of a mixture in that of a dense layer beside them). So it is asked before the work, on
a model without weights, and after it, with every adapter that was written.
"""

import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from lib.checkpoints.adapters import lora_config, with_adapter
from lib.checkpoints.folders import Checkpoint
from lib.checkpoints.gains import Parts, losses_of
from lib.checkpoints.library import quiet, refusing, unloaded
from lib.checkpoints.linear_modules import stored_as_columns
from lib.checkpoints.models import open_base
from lib.checkpoints.stored import WEIGHTS
from lib.checkpoints.texts import Batch
from lib.files.files import InputError

LORA = "lora_"  # in the name of a factor
ROUNDED = 1e-2  # of itself: how far a value may be that was rounded to the type of the base
AGREE = 1e-4  # of itself: how far apart two losses of one model in float32 may be
RENAMED = "peft takes it for a module of another name where it loads an adapter"
LOADED = "wanted an adapter that peft loads and computes with"


def not_adapted(
    make: Callable[[], torch.nn.Module], names: Collection[str], task_type: str | None
) -> dict[str, str]:
    """The modules of a model that peft does not adapt as they are, and what it does instead.

    `make` gives the model anew, on the meta device. All modules are tried together first; where
    that is not well, those of one last name at a time, as peft decides by it, and then the rest.
    """
    whole = _tried(make(), names, task_type)
    if not whole:
        return {}
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(name.rpartition(".")[2], []).append(name)
    found: dict[str, str] = {}
    for group in alike.values():
        found |= _tried(make(), group, task_type)
    if not found:
        return whole
    rest = [name for name in names if name not in found]
    return found | (_tried(make(), rest, task_type) if rest else {})


def _tried(model: torch.nn.Module, names: Collection[str], task_type: str | None) -> dict[str, str]:
    """The modules that are not adapted where peft is given these, and why."""
    before = dict(model.named_modules())
    by_columns = any(stored_as_columns(before[name]) for name in names)
    config = lora_config(dict.fromkeys(names, 1), fan_in_fan_out=by_columns)
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            adapted = with_adapter(model, config | {"task_type": task_type}, 0)
            layers = _adapted(model)
            own = {name for name in names if _is_as_it_was(layers.get(name), before[name])}
            renamed = _unread(adapted, own)
    except Exception as error:
        return dict.fromkeys(names, f"peft refuses: {_one_line(error)}")
    found = dict.fromkeys(renamed, RENAMED)
    others = [name for name in layers if name not in own]
    said = f"peft would adapt {_some(others)} instead" if others else "peft passes over"
    if missing := [name for name in names if name not in own]:
        return found | dict.fromkeys(missing, said)
    ends = [name for name in names if any(one.endswith(f".{name}") for one in others)]
    return found | (dict.fromkeys(ends or names, said) if others else {})


def _adapted(model: torch.nn.Module) -> dict[str, Any]:
    """The modules that peft has put in place of others, by name."""
    from peft.tuners.lora import LoraLayer

    return {name: one for name, one in model.named_modules() if isinstance(one, LoraLayer)}


def _is_as_it_was(layer: Any, before: torch.nn.Module) -> bool:
    """Whether peft adapts a module itself, and not parameters or another module in its place."""
    from peft.tuners.lora import ParamWrapper

    if layer is None or isinstance(layer, ParamWrapper):
        return False
    return layer.get_base_layer() is before


def _unread(adapted: Any, names: Collection[str]) -> list[str]:
    """The adapted modules whose factors peft does not find under their names when it loads them.

    It renames what it reads by the library's conversions of weights on disk, also where the live
    model already has the new name. The model may be on the meta device.
    """
    from peft import set_peft_model_state_dict

    layers = _adapted(adapted.base_model.model)
    factors = {}
    for name in names:
        for part in ("lora_A", "lora_B"):
            [held] = getattr(layers[name], part).values()
            factors[f"base_model.model.{name}.{part}.weight"] = held.weight.detach()
    missing = set_peft_model_state_dict(adapted, factors).missing_keys
    lacking = {key.partition(".lora_")[0] for key in missing if f".{LORA}" in key}
    return [name for name in names if f"base_model.model.{name}" in lacking]


def read_back(
    base: Checkpoint, folder: Path, batches: Sequence[Batch], device: str, own_loss: float | None
) -> dict[str, Any]:
    """The loss of a base with the adapter of a folder as its user loads it, and what is `wrong`.

    The base's new parameters, such as the head of a classifier, are unknown there: the adapter must
    bring them. `own_loss` is what was measured of the same without peft: the two may differ by the
    rounding of the base's type. Without batches names and shapes alone are compared, on a model
    without weights, and the loss is None.
    """
    ended = base.tuned or base
    new: list[str] = []
    if batches:
        model, new = open_base(base)
    else:
        model = unloaded(ended.model_folder, ended.config)
    with torch.no_grad():
        for name in new:
            model.get_parameter(name).fill_(torch.nan)
    rounding = max(AGREE, torch.finfo(next(model.parameters()).dtype).eps / 2)
    try:
        with refusing(LOADED):
            adapted, wrong = loaded(model.to(device) if batches else model, folder)
            if not batches:
                return {"loss": None, "own_loss": own_loss, "wrong": wrong}
            parts = Parts(batches)
            losses = losses_of(adapted, parts)
    except InputError as error:
        return {"loss": None, "own_loss": own_loss, "wrong": [str(error)]}
    loss = parts.mean(losses)
    if own_loss is not None and not np.isclose(loss, own_loss, rtol=rounding, atol=0):
        wrong.append(f"with peft the loss is {loss:.5g}, without it {own_loss:.5g}")
    return {"loss": loss if np.isfinite(loss) else None, "own_loss": own_loss, "wrong": wrong}


def loaded(model: torch.nn.Module, folder: Path) -> tuple[Any, list[str]]:
    """A model with the adapter of a folder, as `PeftModel.from_pretrained` gives it to a user, and
    what was wrong: tensors that peft lacks, does not take or changes.

    The model may be on the meta device: then values are not compared.
    """
    with quiet(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from peft import PeftModel, get_peft_model_state_dict

        whole: Any = model
        adapted = PeftModel.from_pretrained(whole, str(folder))
        held = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    wrong = [
        _one_line(one.message)
        for one in caught
        if any(word in str(one.message) for word in ("missing", "unexpected", "mismatch"))
    ]
    stored = load_file(folder / WEIGHTS)
    if unread := sorted(name for name in stored if name not in held):
        wrong.append(f"peft takes none of {_some(unread)}")
    if lacking := sorted(name for name in held if LORA in name and name not in stored):
        wrong.append(f"peft wants {_some(lacking)}, which the adapter lacks")
    if changed := sorted(name for name in stored if name in held and _differ(stored, held, name)):
        wrong.append(f"peft has other values of {_some(changed)}")
    return adapted.train(mode=False), wrong


def _differ(stored: dict[str, Any], held: dict[str, Any], name: str) -> bool:
    """Whether a loaded tensor differs from the stored one by more than the rounding to its type."""
    wanted = stored[name].float()
    if held[name].is_meta:
        return wanted.shape != held[name].shape
    got = held[name].cpu().float()
    return got.shape != wanted.shape or not torch.allclose(got, wanted, rtol=ROUNDED, atol=1e-6)


def _some(names: Sequence[str]) -> str:
    """The first of some names, and how many there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _one_line(said: object) -> str:
    """The first sentence of what peft says."""
    return " ".join(str(said).split()).split(". ")[0].removesuffix(".")[:200]
