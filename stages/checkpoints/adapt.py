"""Write a LoRA adapter for each budget of a plan: the attributed ranks, or one rank for all where nothing was measured.

An adapter is the update of the linear modules, cut. With `modules_to_save` it carries whole what else was tuned:
embeddings, head, norms, biases; then live models are opened, where else weights alone are read.
"""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from lib.analysis.update_spectra import leading_triplets, update_of
from lib.io.adapters import FILES, lora_config, write_adapter
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread
from lib.io.files import InputError, clear
from lib.io.pretrained import Checkpoint, check_pair, open_checkpoint, open_snapshots
from lib.io.tables import read_table
from lib.models.transformers_models import ModelError, Rest, beside_linear_layers, open_model

SEED = 0  # of randomised ranges, as those of the plan


def main(base: Path, tuned: Path, plans: Path, adapters: Path, modules_to_save: str = "no") -> None:
    carried = whether("modules_to_save", modules_to_save)
    begun = open_checkpoint(base)
    last = {one.run: one.checkpoint for one in open_snapshots(tuned)}
    all_plans, all_modules = (read_table(plans / f"{name}.parquet") for name in ("plans", "modules"))
    clear(adapters, *(depth + name for depth in ("rank-*/", "*/rank-*/") for name in FILES))
    jobs = []
    for name, checkpoint in last.items():
        plan, modules = (table[table["run"] == name] for table in (all_plans, all_modules))
        plan = plan[plan["shuffle"] == 0]
        rule = "attributed" if (plan["rule"] == "attributed").any() else "uniform"
        jobs.append((begun, checkpoint, plan[plan["rule"] == rule], modules))
    made = spread(factored, jobs, n_processes=available_cores(), label=f"adapters of {tuned}", unit="checkpoint")
    for name, (_, checkpoint, plan, modules), factors in zip(last, jobs, made, strict=True):
        rest = carried_whole(begun, checkpoint) if carried else None
        left = rest.left if rest else left_out(begun, checkpoint, set(modules["tensor"]))
        for row in plan.to_dict("records"):
            ranks = dict(zip(modules["module"], map(int, row["ranks"]), strict=True))
            folder = (adapters / name if len(last) > 1 else adapters) / f"rank-{row['budget']}"
            fan_in_fan_out = bool(modules["by_columns"].any())
            write_adapter(
                folder,
                {module: (A[:rank], B[:, :rank]) for module, (A, B) in factors.items() if (rank := ranks[module])},
                lora_config(ranks, fan_in_fan_out=fan_in_fan_out) | (rest.config if rest else {}),
                base=begun.folder.name,
                card=card(row, begun.folder.name, left, rest),
                task_type="CAUSAL_LM" if str(begun.config.get("architectures")).endswith("ForCausalLM']") else None,
                saved=rest.parameters if rest else None,
            )


def whether(name: str, answer: str) -> bool:
    """Raises `InputError` for what is neither yes nor no."""
    if answer not in ("yes", "no"):
        raise InputError(f"{name}: wanted yes or no, got {answer}")
    return answer == "yes"


def carried_whole(base: Checkpoint, tuned: Checkpoint) -> Rest:
    """What of a fine-tune is no update of a linear layer; raises `InputError` for a model that cannot be opened."""
    try:
        return beside_linear_layers(*(open_model(one.folder, one.config) for one in (base, tuned)))
    except (ModelError, OSError) as error:
        raise InputError(str(error)) from error


def factored(
    base: Checkpoint, tuned: Checkpoint, plan: pd.DataFrame, modules: pd.DataFrame
) -> dict[str, tuple[Tensor, Tensor]]:
    """For each module A (rank × in) and B (out × rank), at the largest of its ranks; of others, a part is used."""
    most = np.stack(plan["ranks"].tolist()).max(0)
    found = {}
    for row, rank in zip(modules.to_dict("records"), most, strict=True):
        place, limit = row["tensor"], max(int(row["limit"]), 1)
        source = generator(SEED, "factors", place)
        update = update_of(tuned.load(place), base.load(place))
        U, sigma, Vh = leading_triplets(update, limit, source)
        B, A = U[:, :rank] * sigma[:rank].sqrt(), sigma[:rank, None].sqrt() * Vh[:rank]
        A, B = (B.mT, A.mT) if row["by_columns"] else (A, B)
        found[row["module"]] = (A.float(), B.float())
    return found


def left_out(base: Checkpoint, tuned: Checkpoint, carried: AbstractSet[str]) -> list[str]:
    """The tensors that were tuned and that no adapter carries, those of all layers under one name."""
    rows = check_pair(base, tuned)
    moved = [n for n, k in rows.items() if n not in carried and not tuned.load(n)[:k].equal(base.load(n)[:k])]
    return sorted({re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in moved})


def card(row: Mapping[str, Any], base: str, left: Sequence[str], rest: Rest | None = None) -> str:
    """The model card: what the adapter is, what it carries, and what was measured of it."""
    said = "No text was given, and nothing was measured: how much of the gain it keeps is not known."
    if not np.isnan(row["loss"]):
        said = (
            f"On the text that was given, cutting the linear layers so loses {row['share_lost']:.1%} of what their "
            f"updates gained, all else as tuned"
        )
        if rest is None or not left:  # with all else carried, the plan's own loss is that of the adapter
            said += f"; {base} with this adapter has a loss of {row['loss' if rest else 'loss_on_base']:.4g}"
        said += "."
    carries = " It carries no embedding, head, norm or bias."
    missing = f" Tuned too and not carried: {', '.join(left)}." if left else ""
    if rest:
        n = sum(parameter.numel() for parameter in rest.parameters.values())
        carries = f" It carries whole what else was tuned: {n} parameters of {len(rest.modules)} modules and of biases."
    elif left:
        missing += " `modules_to_save` would train them."
    return (
        f"# LoRA adapter cut from a full fine-tune of {base}\n\nRule: {row['rule']}; {row['parameters']} parameters, "
        f"those of a uniform rank {row['budget']}. {said}{carries}{missing}\n\n"
        f"`PeftModel.from_pretrained(base_model, folder)` adds it; `plan.json` goes into `LoraConfig(**...)`.\n"
    )


if __name__ == "__main__":
    run(main)
