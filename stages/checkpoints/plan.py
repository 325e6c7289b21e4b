"""Which ranks keep what a training gained: plans by several rules at equal budgets, their measured loss, and adapters.

A plan cuts the update of every linear module to a rank; embeddings, heads, norms and biases stay tuned, and what they
moved is measured apart. `share_lost` is 0 for the whole update of the linear modules and 1 for none of it. Budgets are
parameters, stated as the uniform rank that costs as much. Without TEXT (`-`) nothing is measured.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch

from lib.analysis.attribution import path_attribution
from lib.analysis.pruning import magnitude_masks
from lib.analysis.rank_plans import Module, Ranks, Rule, budget_of, least_budget, parameters, plan, shuffled
from lib.analysis.update_spectra import leading_triplets, update_of
from lib.io.adapters import FILES, lora_config, write_adapter
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread, use_device
from lib.io.files import InputError, clear, write_files
from lib.io.params import Count, Fraction, Interval, Seed, read_params
from lib.io.pretrained import Checkpoint, available_memory, check_pair, open_checkpoint, open_snapshots
from lib.io.tables import read_table, write_json, write_table
from lib.models.linear_updates import Factors, LinearUpdates
from lib.models.transformers_models import (
    Batch,
    linear_modules,
    matched_by_content,
    mean_loss,
    open_model,
    read_batches,
    stored_as_columns,
    versions,
)
from lib.models.transformers_models import loss as model_loss

Rank = Annotated[int, Interval("[1, 65536]")]
COPIES = 7  # of the weights in float32: tuned model, base model, both kept, updates, gradients, factors
COPIES_UNMEASURED = 4
TABLES = ("plans", "modules", "losses", "pruning", "budgets")
Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Plan:
    budgets: tuple[Rank, ...]
    rules: tuple[Rule, ...]
    n_shuffles: Annotated[int, Interval("[0, 1000]")]
    n_points: Count
    n_batches: Count
    n_measured_batches: Count
    batch_size: Count
    seq_len: Annotated[int, Interval("[2, 1e6]")]
    pruning_rates: tuple[Fraction, ...]
    max_loss_share: Fraction
    bisection_steps: Annotated[int, Interval("[0, 64]")]
    oversample: Annotated[int, Interval("[0, 1024]")]
    passes: Annotated[int, Interval("[0, 16]")]
    random_seed: Seed
    device: str


def main(section: str, base: Path, tuned: Path, text: str, spectra: Path, plans: Path, adapters: Path) -> None:
    params = read_params(section, Plan)
    use_device(params.device)
    begun = open_checkpoint(base)
    last = {one.run: one for one in open_snapshots(tuned)}
    table = read_table(spectra)
    for one in last.values():
        check_pair(begun, one.checkpoint)
    jobs = [
        (params, base, one.checkpoint.folder, text, table[(table["run"] == name) & (table["step"] == one.step)], name)
        for name, one in last.items()
    ]
    clear(plans, *(f"{name}.parquet" for name in TABLES))
    clear(
        adapters,
        *(depth + name for depth in ("rank-*/", "*/rank-*/") for name in FILES),
        "versions.json",
        "*/versions.json",
    )
    n_processes = min(available_cores(), check_memory(begun, params, text)) if params.device == "cpu" else 1
    parts: list[Tables] = []
    done = spread(planned, jobs, n_processes=n_processes, label=f"plans of {tuned}", unit="run")
    for name, (tables, made) in zip(last, done, strict=True):
        parts.append(tables)
        write_adapters(adapters / name if len(last) > 1 else adapters, begun, made)
    for name in TABLES:
        write_table(pd.concat([part[name] for part in parts], ignore_index=True), plans / f"{name}.parquet")


def check_memory(base: Checkpoint, params: Plan, text: str) -> int:
    """Say what memory a plan takes, and how many fit side by side; raises `InputError` where none does."""
    n_bytes = (
        4 * sum(prod(entry.shape) for entry in base.tensors.values()) * (COPIES if text != "-" else COPIES_UNMEASURED)
    )
    free = available_memory()
    print(
        f"plan: about {n_bytes / 1e9:.2g} GB of memory for each checkpoint, {free / 1e9:.3g} GB are free",
        file=sys.stderr,
    )
    if n_bytes > free:
        raise InputError(f"memory: wanted {n_bytes / 1e9:.3g} GB to plan on this machine, got {free / 1e9:.3g} free")
    return max(1, int(free // n_bytes))


def planned(
    params: Plan, base: Path, tuned: Path, text: str, rows: pd.DataFrame, name: str
) -> tuple[Tables, list[dict[str, Any]]]:
    """The tables of one tuned checkpoint, and its adapters: ranks, factors and losses."""
    begun, ended = open_checkpoint(base), open_checkpoint(tuned)
    linear, modules, places, model = linear_updates(params, begun, ended, rows)
    batches = read_text(params, text, begun)
    measure = Measures(model, linear, batches) if batches else None
    earned = measure.attributed(params.n_points) if measure else None
    tables = {"plans": pd.DataFrame(list(plan_rows(params, modules, measure, earned)))}
    tables["modules"] = module_rows(modules, places, linear, earned)
    tables["losses"] = pd.DataFrame([measure.losses(earned or {}) if measure else {"gain": np.nan}])
    tables["pruning"] = pd.DataFrame(list(prunings(params, linear, measure)), columns=["what", "rate", "loss"])
    tables["budgets"] = bisection(params, modules, measure, earned)
    if batches:
        alone = losses_on_base(params, begun, linear, modules, tables["plans"], batches[1])
        tables["losses"]["loss_base"] = alone.pop()
        tables["plans"]["loss_on_base"] = alone
    made = list(adapters_of(tables["plans"], modules, linear, model, begun))
    return {key: table.assign(run=name) for key, table in tables.items()}, made


def linear_updates(
    params: Plan, base: Checkpoint, tuned: Checkpoint, rows: pd.DataFrame
) -> tuple[LinearUpdates, dict[str, Module], dict[str, str], torch.nn.Module]:
    """The tuned model, its linear modules with their updates in factors, and what the rules know of them."""
    try:
        model = open_model(tuned.folder, tuned.config)
        places = matched_by_content(model, ((name, tuned.load(name)) for name in tuned.tensors))
    except (ValueError, OSError) as error:
        raise InputError(str(error)) from error
    model = model.float().to(params.device)
    measured = rows[rows["of"] == "update"].set_index("module")
    live = linear_modules(model)
    weights: dict[str, Any] = {name: live[name].weight for name in places}
    begun, factors, modules = {}, {}, {}
    for name, place in places.items():
        if place not in measured.index:
            raise InputError(f"{place}: wanted its spectrum, got none: measure spectra of {tuned.folder} first")
        row, W_0 = measured.loc[place], base.load(place)
        begun[name] = W_0.float().to(params.device)
        sigma = np.asarray(row["singular_values"])
        limit = min(int(row["rank_above_edge"]), len(sigma))
        source = generator(params.random_seed, "factors", place)
        update = update_of(tuned.load(place), W_0)
        found = leading_triplets(update, max(limit, 1), params.oversample, params.passes, source)
        factors[name] = Factors(*(part.float().to(params.device) for part in found))
        modules[name] = Module((int(row["rows"]), int(row["cols"])), sigma, float(row["norm"]) ** 2, limit)
    return LinearUpdates(weights, begun, factors), modules, places, model


def read_text(params: Plan, text: str, base: Checkpoint) -> tuple[list[Batch], list[Batch]] | None:
    """Batches to attribute by, and others to measure on; no sample is in both."""
    if text == "-":
        return None
    try:
        batches = read_batches(
            base.folder,
            base.config,
            Path(text),
            params.seq_len,
            params.batch_size,
            params.n_batches + params.n_measured_batches,
        )
    except (ValueError, OSError) as error:
        raise InputError(str(error)) from error
    batches = [{key: value.to(params.device) for key, value in batch.items()} for batch in batches]
    return batches[: params.n_batches], batches[params.n_batches :]


class Measures:
    """Losses of a model in its states, by the same batches."""

    def __init__(self, model: torch.nn.Module, linear: LinearUpdates, batches: tuple[list[Batch], list[Batch]]):
        self.model, self.linear, self.batches = model, linear, batches
        linear.set(linear.tuned)
        self.tuned = self.now()
        linear.set(linear.base)
        self.none = self.now()
        if not self.none > self.tuned:
            raise InputError(
                f"TEXT: wanted a text on which the tuned linear layers lower the loss, got {self.none:.4g} without their "
                f"updates and {self.tuned:.4g} with them"
            )

    def now(self, which: int = 1) -> float:
        return mean_loss(self.model, self.batches[which])

    def of(self, ranks: Mapping[str, int]) -> float:
        self.linear.set_ranks(ranks)
        return self.now()

    def share_lost(self, loss: float) -> float:
        """0 with the whole update of the linear layers, 1 with none."""
        return (loss - self.tuned) / (self.none - self.tuned)

    def attributed(self, n_points: int) -> dict[str, float]:
        self.linear.set(self.linear.tuned)
        for parameter in self.linear.parameters.values():
            parameter.requires_grad_(True)
        return path_attribution(
            self.linear.parameters,
            self.linear.updates,
            self.batches[0],
            lambda batch: model_loss(self.model, batch),
            n_points,
        )

    def losses(self, earned: Mapping[str, float]) -> dict[str, float]:
        """The loss with and without the linear updates, on both kinds of batches; what was attributed in all."""
        found = {"loss_tuned": self.tuned, "loss_without_linear": self.none, "gain": self.none - self.tuned}
        self.linear.set(self.linear.base)
        none = self.now(0)
        self.linear.set(self.linear.tuned)
        return {**found, "attributed": sum(earned.values()), "drop": none - self.now(0)}


def losses_on_base(
    params: Plan,
    base: Checkpoint,
    linear: LinearUpdates,
    modules: Mapping[str, Module],
    plans: pd.DataFrame,
    batches: list[Batch],
) -> list[float]:
    """The loss of the base with each plan's cut added and nothing else tuned, as an adapter gives it; last, of the base.

    Shuffles and rules that make no adapter are not measured.
    """
    model = open_model(base.folder, base.config).float().to(params.device)
    live = linear_modules(model)
    on_base = LinearUpdates({name: live[name].weight for name in modules}, linear.base, linear.factors)  # pyright: ignore
    losses = []
    for _, row in plans.iterrows():
        made = row["shuffle"] == 0 and row["rule"] in ("attributed", "uniform")
        on_base.set_ranks(dict(zip(modules, map(int, row["ranks"]), strict=True)))
        losses.append(mean_loss(model, batches) if made else np.nan)
    on_base.set(on_base.base)
    return [*losses, mean_loss(model, batches)]


def plan_rows(
    params: Plan, modules: Mapping[str, Module], measure: Measures | None, earned: Mapping[str, float] | None
) -> Iterator[dict[str, Any]]:
    """Every rule and, of those that can be shuffled, its nulls, at every budget."""
    every = ((budget, one) for budget in params.budgets for one in candidates(params, modules, budget, earned))
    for budget, (rule, shuffle, ranks) in every:
        loss = measure.of(ranks) if measure else np.nan
        yield {
            "budget": budget,
            "rule": rule,
            "shuffle": shuffle,
            "parameters": parameters(modules, ranks),
            "loss": loss,
            "share_lost": measure.share_lost(loss) if measure else np.nan,
            "ranks": np.array([ranks[name] for name in modules]),
        }


def candidates(
    params: Plan, modules: Mapping[str, Module], budget: int, earned: Mapping[str, float] | None
) -> Iterator[tuple[Rule, int, Ranks]]:
    """The plans of a budget: rule, the number of the shuffle (0 for the plan itself), ranks."""
    for rule in params.rules:
        if rule == "attributed" and earned is None:
            continue
        ranks = plan(rule, modules, budget_of(modules, budget), earned)
        yield rule, 0, ranks
        for shuffle in range(1, params.n_shuffles + 1 if rule == "attributed" else 1):
            yield rule, shuffle, shuffled(ranks, modules, generator(params.random_seed, "shuffle", budget, shuffle))


def module_rows(
    modules: Mapping[str, Module], places: Mapping[str, str], linear: LinearUpdates, earned: Mapping[str, float] | None
) -> pd.DataFrame:
    """What is known of each module, in the order of the plans' ranks."""
    return pd.DataFrame(
        [
            {
                "module": name,
                "tensor": places[name],
                "rows": module.shape[0],
                "cols": module.shape[1],
                "limit": module.limit,
                "norm": module.squared_norm**0.5,
                "base_norm": float(torch.linalg.matrix_norm(linear.base[name].double())),
                "earned": earned[name] if earned else np.nan,
            }
            for name, module in modules.items()
        ]
    )


def prunings(params: Plan, linear: LinearUpdates, measure: Measures | None) -> Iterator[tuple[str, float, float]]:
    """The loss when a share of all weights of the linear modules is removed, or of their updates is taken back."""
    if measure is None:
        return
    for what, order, weights, kept in (
        ("weights, smallest first", "smallest", linear.tuned, None),
        ("updates, smallest first", "smallest", linear.updates, linear.base),
        ("updates, at random", "random", linear.updates, linear.base),
    ):
        source = generator(params.random_seed, what)
        for rate, masks in magnitude_masks(weights, params.pruning_rates, order, source):
            linear.set({name: (kept[name] if kept else 0) + weights[name] * mask for name, mask in masks.items()})
            yield what, rate, measure.now()


def bisection(
    params: Plan, modules: Mapping[str, Module], measure: Measures | None, earned: Mapping[str, float] | None
) -> pd.DataFrame:
    """The least budget of the attributed plan that loses at most `max_loss_share`, and what was tried."""
    columns = ["parameters", "share_lost", "least"]
    if measure is None or earned is None:
        return pd.DataFrame(columns=columns).astype({"parameters": int, "share_lost": float, "least": bool})
    shares: Callable[[int], float] = lambda budget: measure.share_lost(  # noqa: E731
        measure.of(plan("attributed", modules, budget, earned))
    )
    most = sum(module.cost * module.limit for module in modules.values())
    least, tried = least_budget(shares, most, params.max_loss_share, params.bisection_steps)
    return pd.DataFrame([(budget, share, budget == least) for budget, share in tried], columns=columns)


def adapters_of(
    plans: pd.DataFrame, modules: Mapping[str, Module], linear: LinearUpdates, model: torch.nn.Module, base: Checkpoint
) -> Iterator[dict[str, Any]]:
    """For each budget the adapter of the attributed plan, or of a uniform rank where nothing was measured."""
    plain = plans[plans["shuffle"] == 0]
    rule = "attributed" if (plain["rule"] == "attributed").any() else "uniform"
    by_columns = {name: stored_as_columns(module) for name, module in linear_modules(model).items()}
    for _, row in plain[plain["rule"] == rule].iterrows():
        ranks = dict(zip(modules, map(int, row["ranks"]), strict=True))
        factors = {}
        for name, rank in ranks.items():
            if rank:
                U, sigma, Vh = (part.cpu() for part in linear.factors[name])
                left, right = U[:, :rank] * sigma[:rank].sqrt(), sigma[:rank, None].sqrt() * Vh[:rank]
                factors[name] = (left.mT, right.mT) if by_columns[name] else (right, left)
        yield {
            **row[["budget", "rule", "parameters", "share_lost"]],
            "loss_on_base": row.get("loss_on_base", np.nan),
            "factors": factors,
            "config": lora_config(ranks, fan_in_fan_out=any(by_columns.values())),
            "causal": str((base.config.get("architectures") or [""])[0]).endswith("ForCausalLM"),
        }


def write_adapters(folder: Path, base: Checkpoint, made: Sequence[dict[str, Any]]) -> None:
    """Write the adapters of one run, a folder for each budget, and `plan.json` for `LoraConfig(**...)`."""
    for one in made:
        at = folder / f"rank-{one['budget']}"
        lost = one["share_lost"]
        said = "nothing was measured" if np.isnan(lost) else f"{lost:.1%} of the gain of the linear layers is lost"
        alone = "" if np.isnan(lost) else f"The base with this adapter has a loss of {one['loss_on_base']:.4g} there."
        card = (
            f"# LoRA adapter cut from a full fine-tune\n\nRule: {one['rule']}; {one['parameters']} parameters, those of a "
            f"uniform rank {one['budget']}. On the text that was given, {said} (embeddings, head, norms and biases as "
            f"tuned; this adapter does not carry them). {alone}\n\n"
            f"`PeftModel.from_pretrained(base, folder)` adds it to the base, {base.folder.name}.\n"
        )
        write_adapter(
            at,
            one["factors"],
            one["config"],
            base=base.folder.name,
            card=card,
            task_type="CAUSAL_LM" if one["causal"] else None,
        )
        write_json(one["config"], at / "plan.json")
    write_files(folder, {"versions.json": (str(versions()).replace("'", '"') + "\n").encode()})


if __name__ == "__main__":
    run(main)
