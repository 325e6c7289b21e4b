"""Write a LoRA adapter for each budget of a plan: that of the rule with which the base has the
lowest measured loss.

Where nothing was measured it has one rank for all. An adapter is the update of the linear modules,
cut. With `modules_to_save`, as the plan was measured with, it carries whole what else was tuned:
embeddings, head, norms, biases; then live models are opened, where else weights alone are read.
`adapters.json` says what each is, and what it lacks.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.checkpoints.adapters import FILES, lora_config, whether, write_adapter
from lib.checkpoints.folders import (
    Checkpoint,
    check_pair,
    load_tensor,
    open_checkpoint,
    open_snapshots,
)
from lib.checkpoints.models import ModelError, Rest, beside_linear_layers, open_model
from lib.checkpoints.update_spectra import leading_triplets, update_of
from lib.files.files import InputError, clear
from lib.files.memory import COPIES, check_disk
from lib.files.tables import read_table, write_json
from lib.training.devices import generator
from lib.work.cells import Course, spread_cells
from lib.work.command import OutFolder, run

SEED = 0  # of randomised ranges, as those of the plan
LISTED = "adapters.json"


def main(
    base: Path, tuned: Path, plans: Path, adapters: OutFolder, modules_to_save: str = "no"
) -> None:
    carried = whether("modules_to_save", modules_to_save)
    begun = open_checkpoint(base)
    last = {one.run: one.checkpoint for one in open_snapshots(tuned)}
    all_plans, all_modules = (
        read_table(plans / f"{name}.parquet") for name in ("plans", "modules")
    )
    used, jobs = {}, {}
    for name, checkpoint in last.items():
        plan, modules = (table[table["run"] == name] for table in (all_plans, all_modules))
        used[name] = chosen(plan[plan["shuffle"] == 0]), modules
        jobs[name] = list(factors_of(begun, checkpoint, *used[name]))
    check_disk(
        adapters,
        COPIES * sum(written(last[name], carried, *of) for name, of in used.items()),
        "adapters",
    )
    clear(adapters, LISTED, *(depth + name for depth in ("rank-*/", "*/rank-*/") for name in FILES))
    made = spread_cells(jobs, label=f"adapters of {tuned}", unit="module")
    listed = []
    for name, (plan, modules) in used.items():
        rest = carried_whole(begun, last[name]) if carried else None
        left = of_all_layers(
            rest.left if rest else left_out(begun, last[name], set(modules["tensor"]))
        )
        factors = {
            module: course.states[0][0]
            for module, course in zip(modules["module"], made[name], strict=True)
        }
        for row in plan.to_dict("records"):
            ranks = dict(zip(modules["module"], map(int, row["ranks"]), strict=True))
            folder = (adapters / name if len(last) > 1 else adapters) / f"rank-{row['budget']}"
            fan_in_fan_out = bool(modules["by_columns"].any())
            write_adapter(
                folder,
                {
                    module: (of["A"][:rank], of["B"][:, :rank])
                    for module, of in factors.items()
                    if (rank := ranks[module])
                },
                lora_config(ranks, fan_in_fan_out=fan_in_fan_out) | (rest.config if rest else {}),
                base=begun.folder.name,
                card=card(row, begun.folder.name, left, rest),
                task_type="CAUSAL_LM"
                if str(begun.config.get("architectures")).endswith("ForCausalLM']")
                else None,
                saved=rest.parameters if rest else None,
            )
            listed.append(
                {
                    "run": name,
                    "folder": folder.relative_to(adapters).as_posix(),
                    "rule": row["rule"],
                    "loss": row.get("loss_on_base"),
                    "parameters": row["parameters"] + n_whole(rest),
                    "mixed": len({rank for rank in ranks.values() if rank}) > 1,
                    "left": left,
                }
            )
    write_json(listed, adapters / LISTED)


def chosen(plans: pd.DataFrame) -> pd.DataFrame:
    """Of each budget, the plan with which the base has the lowest loss; of one rank, where nothing
    was measured.
    """
    if "loss_on_base" not in plans:
        return plans[plans["rule"] == "uniform"]
    losses = plans["loss_on_base"].fillna(np.inf)  # not a number, where a narrow type overflows
    return plans.loc[losses.groupby(plans["budget"]).idxmin()]


def written(tuned: Checkpoint, carried: bool, plan: pd.DataFrame, modules: pd.DataFrame) -> int:
    """Bytes of the adapters of a plan: factors, what is carried whole (a tied head as another), and
    configs.
    """
    n_factors = int(
        (np.stack(plan["ranks"].tolist()) @ (modules["rows"] + modules["cols"]).to_numpy()).sum()
    )
    whole = (
        prod(entry.shape)
        for name, entry in tuned.tensors.items()
        if name not in set(modules["tensor"])
    )
    return 4 * n_factors + len(plan) * (8 * carried * sum(whole) + 1000 * len(modules) + 5000)


def room(base: Path, tuned: Path, budgets: Sequence[int]) -> int:
    """The most bytes on disk of the adapters of a plan that is not there yet, with nothing carried
    whole.

    By headers alone: a budget is at most so many parameters as its rank has in all matrices, linear
    modules or not.
    """
    shapes = [
        entry.shape for entry in open_checkpoint(base).tensors.values() if len(entry.shape) == 2
    ]
    cost, most = sum(map(sum, shapes)), sum(sum(shape) * min(shape) for shape in shapes)
    n_factors = sum(min(budget * cost, most) for budget in budgets)
    n_runs = len({one.run for one in open_snapshots(tuned)})
    return COPIES * n_runs * (4 * n_factors + len(budgets) * (1000 * len(shapes) + 5000))


def carried_whole(base: Checkpoint, tuned: Checkpoint) -> Rest:
    """What of a fine-tune is no update of a linear layer; raises `InputError` for a model that
    cannot be opened.
    """
    try:
        return beside_linear_layers(*(open_model(one.folder, one.config) for one in (base, tuned)))
    except (ModelError, OSError) as error:
        raise InputError(str(error)) from error


def factors_of(
    base: Checkpoint, tuned: Checkpoint, plan: pd.DataFrame, modules: pd.DataFrame
) -> Iterator[tuple]:
    """For each module, how it is factored at the largest of its ranks; of others, a part is
    used.
    """
    most = np.stack(plan["ranks"].tolist()).max(0).tolist()
    for row, rank in zip(modules.to_dict("records"), most, strict=True):
        place, limit, by_columns = row["tensor"], max(int(row["limit"]), 1), bool(row["by_columns"])
        files = (one.tensors[place].file for one in (base, tuned))
        yield (factored, *files, place, limit, rank, by_columns)


def factored(
    base: Path, tuned: Path, place: str, limit: int, rank: int, by_columns: bool
) -> Course:
    """A (rank × in) and B (out × rank) of the update of one tensor."""
    update = update_of(load_tensor(tuned, place), load_tensor(base, place))
    U, sigma, Vh = leading_triplets(update, limit, generator(SEED, "factors", place))
    B, A = U[:, :rank] * sigma[:rank].sqrt(), sigma[:rank, None].sqrt() * Vh[:rank]
    A, B = (B.mT, A.mT) if by_columns else (A, B)
    return Course({}, [({"A": A.float(), "B": B.float()}, [])])


def left_out(base: Checkpoint, tuned: Checkpoint, carried: AbstractSet[str]) -> list[str]:
    """The tensors that were tuned and that no adapter carries."""
    rows = check_pair(base, tuned)
    return [
        n
        for n, k in rows.items()
        if n not in carried and not tuned.load(n)[:k].equal(base.load(n)[:k])
    ]


def of_all_layers(names: Iterable[str]) -> list[str]:
    """Names of tensors, those of all layers under one name."""
    return sorted({re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in names})


def n_whole(rest: Rest | None) -> int:
    """The number of parameters that an adapter carries whole."""
    return sum(parameter.numel() for parameter in rest.parameters.values()) if rest else 0


def card(row: Mapping[str, Any], base: str, left: Sequence[str], rest: Rest | None = None) -> str:
    """The model card: what the adapter is, what it carries, and what was measured of it."""
    said = (
        "No text was given, and nothing was measured: how much of the gain it keeps is not known."
    )
    if not np.isnan(row["loss"]):
        said = (
            f"On the text that was given, {base} with this adapter has a loss of "
            f"{row['loss_on_base']:.4g}, the lowest "
            "of the rules that were measured at this size. Cutting the linear layers so loses "
            f"{row['share_lost']:.1%} "
            f"of what their updates gained, all else as tuned."
        )
    carries = " It carries no embedding, head, norm or bias."
    missing = f" Tuned too and not carried: {', '.join(left)}." if left else ""
    if rest:
        n = n_whole(rest)
        carries = (
            f" It carries whole what else was tuned: {n} parameters of {len(rest.modules)} "
            "modules and of biases."
        )
    elif left:
        missing += " `modules_to_save` would train them."
    return (
        f"# LoRA adapter cut from a full fine-tune of {base}\n\nRule: {row['rule']}; "
        f"{row['parameters']} parameters, "
        f"those of a uniform rank {row['budget']}. {said}{carries}{missing}\n\n"
        "`PeftModel.from_pretrained(base_model, folder)` adds it; `plan.json` goes into "
        "`LoraConfig(**...)`.\n"
    )


if __name__ == "__main__":
    run(main)
