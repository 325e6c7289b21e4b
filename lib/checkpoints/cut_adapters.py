"""Adapters cut from a fine-tune: their factors, what else they carry, and what they lack."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from lib.checkpoints.adapters import lora_config, write_adapter
from lib.checkpoints.cards import card
from lib.checkpoints.factors import rank_of
from lib.checkpoints.folders import Checkpoint, check_pair, is_expert
from lib.checkpoints.linear_modules import Rest, beside_linear_layers, by_layers
from lib.checkpoints.loading import opened_by, task_type
from lib.checkpoints.models import open_base, open_tuned_model
from lib.checkpoints.update_spectra import Triplets, leading_triplets
from lib.training.devices import generator

SEED = 0  # of randomised ranges
MEASURED = ("kept", "kept_noise", "accuracy", "accuracy_noise")  # of an adapter on the base
Factors = dict[str, Tensor]  # A (rank × in) and B (out × rank)


@dataclass(frozen=True)
class Fit:
    """A fine-tune: where its adapters go, its plan of each budget, and its modules."""

    run: str
    checkpoint: Checkpoint
    folder: Path
    plans: pd.DataFrame
    modules: pd.DataFrame
    losses: Mapping[Any, Any]  # what was measured of it, nothing without a text


def module_factors(base: Checkpoint, fit: Fit, found: Mapping[str, Triplets]) -> dict[str, Factors]:
    """The factors of each module at the largest of its ranks; smaller ones are parts of them.

    They are those that the spectra kept; an update is decomposed again only where a plan gives it
    more than that, as one uniform rank does where other modules are frozen.
    """
    most = np.stack(fit.plans["ranks"].tolist()).max(0).tolist()
    factors = {}
    for row, rank in zip(fit.modules.to_dict("records"), most, strict=True):
        place = row["tensor"]
        triplets = found.get(place)
        if triplets is None or rank_of(triplets) < rank:
            update = fit.checkpoint.update(place, base.load(place))
            triplets = leading_triplets(update, rank, generator(SEED, "factors", place))
        U, sigma, Vh = triplets.first(rank)
        B = (U * sigma.sqrt()).float()
        A = (sigma.sqrt()[:, None] * Vh).float()
        factors[row["module"]] = {"A": B.mT, "B": A.mT} if row["by_columns"] else {"A": A, "B": B}
    return factors


def write_adapters(
    base: Checkpoint,
    fit: Fit,
    factors: Mapping[str, Factors],
    adapters: Path,
    named: str,
    *,
    whole: bool,
    equal: bool,
    refused: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Write the adapters of a fine-tune, of a base so `named`; gives what is listed of each.

    `refused` are the modules that no plan has, with the reason.
    """
    rest = carried_whole(base, fit.checkpoint, whole=whole, refused=refused)
    said = with_shares(fit.losses, refused)
    left = (
        rest.left if rest and whole else left_out(base, fit.checkpoint, set(fit.modules["tensor"]))
    )
    left = list(by_layers(left))
    beside = [*left, *(rest.parameters if rest else {})]
    experts = list(by_layers(name for name in beside if is_expert(name)))
    share = experts_share(fit.losses)
    alone = fit.losses.get("alone")  # no list where another run has some
    alone = [] if alone is None or isinstance(alone, float) else list(alone)
    alone_share = share_of_gain(fit.losses, fit.losses.get("loss_without_alone", np.nan))
    task = task_type(fit.checkpoint.config, fit.checkpoint.tensors, rest.modules if rest else ())
    opened = opened_by(base.config, fit.checkpoint.config, named)
    by_columns = bool(fit.modules["by_columns"].any())
    of = fit.checkpoint.kind
    listed = []
    for row in fit.plans.to_dict("records"):
        ranks = dict(zip(fit.modules["module"], map(int, row["ranks"]), strict=True))
        targets = {module: rank for module, rank in ranks.items() if rank}
        most = max(targets.values(), default=0)
        folder = fit.folder / f"rank-{row['budget']}"
        write_adapter(
            folder,
            {m: (factors[m]["A"][:rank], factors[m]["B"][:, :rank]) for m, rank in targets.items()},
            lora_config(ranks, fan_in_fan_out=by_columns) | (rest.config if rest else {}),
            base=named,
            card=card(
                row,
                Path(named).name if Path(named).is_dir() else named,
                left,
                rest,
                padded=most if equal else 0,
                whole=whole,
                of=of,
                share=share,
                alone=alone,
                alone_share=alone_share,
                refused=said,
                opened=opened,
            ),
            task_type=task,
            saved=rest.parameters | rest.buffers if rest else None,
            equal=equal,
        )
        costs = {m: sum(factors[m]["A"].shape[1:] + factors[m]["B"].shape[:1]) for m in targets}
        n = sum(cost * (most if equal else targets[m]) for m, cost in costs.items())
        listed.append(
            {
                "run": fit.run,
                "folder": folder.relative_to(adapters).as_posix(),
                "budget": row["budget"],
                "rule": row["rule"],
                "loss": row.get("loss_on_base"),
                "choosing_loss": row.get("choosing_loss"),
                **{name: row[name] for name in MEASURED if name in row},
                "parameters": n + (rest.n_parameters if rest else 0),
                "mixed": not equal and len(set(targets.values())) > 1,
                "base": named,
                "opened_by": opened,
                "lacking": rest.modules if rest and not whole else [],
                "left": left,
                "experts": experts,
                "experts_share": share,
                "alone": alone,
                "alone_share": alone_share,
                "refused": said,
            }
        )
    return listed


def carried_whole(
    base: Checkpoint, tuned: Checkpoint, *, whole: bool, refused: Iterable[str]
) -> Rest | None:
    """The part of a fine-tune that is carried and is no update of a linear layer.

    All of it, or what the base lacks, which every adapter carries; None where that is nothing.
    """
    if not whole and base.config.get("architectures") == tuned.config.get("architectures"):
        return None
    model, new = open_base(base)
    if not whole and not new:
        return None
    ended = open_tuned_model(tuned)
    return beside_linear_layers(model, ended, new, whole=whole, without=list(refused))


def left_out(base: Checkpoint, tuned: Checkpoint, carried: AbstractSet[str]) -> list[str]:
    """The tensors that were tuned and that no adapter carries, also those that the base lacks.

    A copy of another tensor, as of an embedding that is the head too, is none of its own.
    """
    rows = check_pair(base, tuned)
    moved = [
        name
        for name, n in rows.items()
        if name not in carried and not first(tuned.load(name), n).equal(first(base.load(name), n))
    ]
    new = [name for name in tuned.tensors if name not in base.tensors and name not in carried]
    return [*moved, *(name for name in new if not is_copy(tuned, name))]


def first(tensor: Tensor, n: int) -> Tensor:
    """The first rows of a tensor; the whole of one without dimensions."""
    return tensor[:n] if tensor.dim() else tensor


def is_copy(checkpoint: Checkpoint, name: str) -> bool:
    """Whether another tensor of a checkpoint equals this one."""
    shape = checkpoint.tensors[name].shape
    alike = [n for n, one in checkpoint.tensors.items() if n != name and one.shape == shape]
    own = checkpoint.load(name)
    return len(shape) == 2 and any(checkpoint.load(other).equal(own) for other in alike)


def experts_share(losses: Mapping[Any, Any]) -> float | None:
    """The share of the whole gain that is lost with the base's experts, all else as tuned."""
    return share_of_gain(losses, losses.get("loss_without_experts", np.nan))


def share_of_gain(losses: Mapping[Any, Any], without: float) -> float | None:
    """The share of the whole gain that a loss misses.

    None where it was not measured, or where nothing was gained.
    """
    gain = losses.get("loss_base", np.nan) - losses.get("loss_tuned", np.nan)
    if not (np.isfinite(without) and gain > 0):
        return None
    return float((without - losses["loss_tuned"]) / gain)


def with_shares(losses: Mapping[Any, Any], refused: Mapping[str, str]) -> list[dict[str, Any]]:
    """The modules that no plan has, those of all layers together: why, and the share of the whole
    gain that is lost with the base's.
    """
    names = losses.get("left")
    names = [] if names is None else list(names)
    of_name = dict(zip(names, losses["losses_left"], strict=True)) if names else {}
    return [
        {
            "modules": name,
            "why": refused[modules[0]],
            "share": share_of_gain(losses, of_name.get(name, np.nan)),
        }
        for name, modules in by_layers(refused).items()
    ]
