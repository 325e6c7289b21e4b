"""The linear layers of a live model, and what tuning changed beside their weights."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

HEADS = ("lm_head", "embed_out", "score", "classifier")
ROUTERS = ("router", "gate")


def linear_modules(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """The linear layers that an adapter may change, by name: no embedding, head or router.

    A layer of a class derived from `Linear` is one, as peft has it, but for the projection of
    `MultiheadAttention`, whose forward is never called. A layer that shares its weight is none
    (`shared_linear_modules`), nor is one whose weight is empty (`empty_linear_modules`).
    """
    found = _adaptable(model)
    without = {*_shared(model, found), *_empty(found)}
    return {name: module for name, module in found.items() if name not in without}


def shared_linear_modules(model: torch.nn.Module) -> list[str]:
    """The linear layers, no head or router, whose weight is another module's too.

    peft would add to each place alone, and would merge into the one weight once for every place.
    """
    return _shared(model, _adaptable(model))


def empty_linear_modules(model: torch.nn.Module) -> list[str]:
    """The linear layers, no head or router, whose weight has no entry.

    MobileBert has one where its embeddings are as wide as all else.
    """
    return _empty(_adaptable(model))


def _adaptable(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """The linear layers that are no head or router, by name."""
    whole: Any = model
    head = whole.get_output_embeddings() if hasattr(whole, "get_output_embeddings") else None
    return {
        name: module
        for name, module in model.named_modules()
        if is_linear(module)
        and module is not head  # which may be tied to the embedding
        and not set(name.split(".")) & {*HEADS, *ROUTERS}
        and not any(word in type(module).__name__.lower() for word in ROUTERS)
    }


def _shared(model: torch.nn.Module, layers: Mapping[str, torch.nn.Module]) -> list[str]:
    """The layers whose weight stands at more than one place of the model."""
    everywhere = model.named_modules(remove_duplicate=False)
    places = Counter(id(weight) for _, module in everywhere for weight in own_weights(module))
    return [
        name for name, one in layers.items() if any(places[id(w)] > 1 for w in own_weights(one))
    ]


def _empty(layers: Mapping[str, torch.nn.Module]) -> list[str]:
    """The layers whose weight has no entry."""
    return [name for name, one in layers.items() if not all(w.numel() for w in own_weights(one))]


def own_weights(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The matrices that a module holds itself."""
    return [one for one in module.parameters(recurse=False) if one.dim() > 1]


def by_layers(names: Iterable[str]) -> dict[str, list[str]]:
    """Names of modules or tensors, those of all layers under one name: `layers.*.up`."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(re.sub(r"(?<=\.)\d+(?=\.)", "*", name), []).append(name)
    return {name: alike[name] for name in sorted(alike)}


def is_linear(module: torch.nn.Module) -> bool:
    """Whether peft would wrap a module as a linear layer that is called."""
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return False
    return isinstance(module, torch.nn.Linear) or stored_as_columns(module)


def stored_as_columns(module: torch.nn.Module) -> bool:
    """Whether the weight is stored as in × out (transformers' Conv1D)."""
    return type(module).__name__ == "Conv1D"


def fused_experts(model: torch.nn.Module) -> list[str]:
    """The parameters of modules that hold all experts of a layer together, in three dimensions.

    They are no linear layers: an adapter of modules has none of them.
    """
    found = []
    for name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        of_experts = "expert" in f"{name}.{type(module).__name__}".lower()
        if of_experts and any(one.dim() == 3 for one in own.values()):
            found += [f"{name}.{parameter}" for parameter in own]
    return found


class Rest(NamedTuple):
    """What tuning changed beside the weights of linear layers.

    peft carries it as `modules_to_save` and `bias`.
    """

    modules: list[str]  # saved whole
    parameters: dict[str, Tensor]  # of these modules, and the biases of linear layers
    buffers: dict[str, Tensor]  # of these modules, which peft wants too
    biases: bool  # whether a bias of a linear layer is among them
    tied: bool  # whether peft must tie a saved head and embedding
    left: list[str]  # parameters that cannot be carried so

    @property
    def n_parameters(self) -> int:
        """The number of parameters that are carried whole."""
        return sum(parameter.numel() for parameter in self.parameters.values())

    @property
    def config(self) -> dict[str, Any]:
        """The arguments of `LoraConfig`."""
        tying = {"ensure_weight_tying": True} if self.tied else {}
        return {"modules_to_save": self.modules, "bias": "all" if self.biases else "none", **tying}


def beside_linear_layers(
    base: torch.nn.Module,
    tuned: torch.nn.Module,
    new: Collection[str] = (),
    *,
    whole: bool = True,
    without: Collection[str] = (),
) -> Rest:
    """What differs between two models beside the weights of linear layers, and what is `new`.

    Without `whole` that is only what is new: parameters that the base's own checkpoint lacks.
    A module is saved whole, a tied head with its embedding, and so is a linear layer that is new or
    that no plan has (`without`), at each of its places. A parameter is left that has another shape
    than in the base, or whose module holds linear layers.
    """
    targets = linear_modules(tuned).keys() - {*without}
    linear = {name for name in targets if f"{name}.weight" not in new}
    before = dict(base.named_parameters(remove_duplicate=False))  # a tied head too
    after = dict(tuned.named_parameters())
    moved = [
        name
        for name, p in after.items()
        if name in new or (whole and (name not in before or not _equal(p, before[name])))
    ]
    owners = {name: name.rpartition(".")[0] for name in moved}

    def has_room(name: str) -> bool:
        return _fits(after[name], before.get(name))

    def fits(name: str) -> bool:
        return has_room(name) and not any(other.startswith(f"{owners[name]}.") for other in linear)

    of_linear = [name for name in moved if owners[name] in linear and not name.endswith(".weight")]
    biases = [name for name in of_linear if has_room(name)]
    rest = [name for name in moved if owners[name] not in linear]
    owned = {owners[name] for name in rest if fits(name)}
    alike = {id(w) for name in owned for w in own_weights(tuned.get_submodule(name))}
    shared = {*shared_linear_modules(tuned)}
    owned |= {n for n in shared if alike & {*map(id, own_weights(tuned.get_submodule(n)))}}
    modules = {m for m in owned if not any(m.startswith(f"{other}.") for other in owned)}
    live: Any = tuned
    names = {module: name for name, module in tuned.named_modules()}
    head = live.get_output_embeddings()
    embedding = _embedding(tuned)
    one = head is not None and embedding is not None and head.weight is embedding.weight
    if one and names[embedding] in modules:
        modules.add(names[head])
    parameters = {name: after[name] for name in biases}
    for module in sorted(modules):
        own = tuned.get_submodule(module).named_parameters(prefix=module)
        parameters |= {name: one for name, one in own if _fits(one, before.get(name))}
    # peft knows tied modules by these names alone
    told = any(name.split(".")[-1] in ("embed_tokens", "lm_head") for name in modules)
    return Rest(
        modules=sorted(modules),
        parameters={name: one.detach().clone() for name, one in parameters.items()},
        buffers=_buffers(tuned, modules),
        biases=bool(biases),
        tied=told and one,
        left=[name for name in of_linear if not has_room(name)]
        + [name for name in rest if not fits(name)],
    )


def _fits(after: Tensor, before: Tensor | None) -> bool:
    return before is not None and after.shape == before.shape


def _equal(after: Tensor, before: Tensor) -> bool:
    """Whether a parameter is that of the base, in whose type an adapter is loaded."""
    return after.shape == before.shape and after.to(before).equal(before)


def _buffers(model: torch.nn.Module, modules: Iterable[str]) -> dict[str, Tensor]:
    """The buffers of modules that are stored with them, by name."""
    found = {}
    for module in modules:
        part = model.get_submodule(module)
        own = part.state_dict().keys() - dict(part.named_parameters(remove_duplicate=False))
        found |= {f"{module}.{name}": part.state_dict()[name].clone() for name in sorted(own)}
    return found


def _embedding(model: torch.nn.Module) -> Any:
    """The input embedding of a model; None where the library says that it has none."""
    live: Any = model
    try:
        return live.get_input_embeddings()
    except NotImplementedError:
        return None
