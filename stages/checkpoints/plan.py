"""Which ranks, and which entries, keep what a training gained: plans at equal budgets and pruning,
with their loss.

A plan cuts the update of every linear module to a rank; embeddings, heads, norms and biases stay
tuned, and what they moved is measured apart. `share_lost` is 0 for the whole update of the linear
modules and 1 for none of it. Budgets are parameters, stated as the uniform rank that costs as much.
`loss_on_base` is the loss of the base with a plan's adapter as peft loads it, in the type in which
the base is stored; of embeddings, head, norms and biases it has what `modules_to_save` carries. All
other losses are measured in float32. Pruning removes a share of the weights of linear modules, or
takes a share of the entries of their updates back, all ranked together. Without TEXT (`-`) nothing
is measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import pandas as pd
import torch

from lib.checkpoints.adapters import whether
from lib.checkpoints.attribution import path_attribution
from lib.checkpoints.folders import (
    Checkpoint,
    check_memory,
    check_pair,
    memory_of,
    open_checkpoint,
    open_snapshots,
)
from lib.checkpoints.models import (
    Batch,
    Factors,
    GainMeasure,
    LinearUpdates,
    ModelError,
    beside_linear_layers,
    check_architecture,
    linear_modules,
    loss,
    matched_by_content,
    open_model,
    read_batches,
    stored_as_columns,
)
from lib.checkpoints.plans import Module, Rule, candidates, least_attributed, parameters
from lib.checkpoints.update_spectra import leading_triplets, update_of
from lib.files.files import InputError, clear
from lib.files.memory import COPIES, check_disk
from lib.files.params import Count, Fraction, Interval, read_params
from lib.files.tables import read_table, write_table
from lib.matrices.pruning import pruned_states
from lib.training.devices import generator, use_device
from lib.work.cells import Keep, kept
from lib.work.command import OutFolder, run
from lib.work.compute import available_cores, spread

# Of the weights in float32, at most: 10.1 copies were measured with a text (where updates are
# ranked to be pruned), 4.7 without, both at 77 million parameters; and 2 more of factors, where all
# matrices are square and decomposed whole.
HELD, HELD_UNMEASURED = 12, 6
BISECTIONS, SEED = (
    7,
    0,
)  # the seed is that of shuffles, randomised ranges, and what is pruned at random
TABLES = ("plans", "modules", "losses", "budgets", "pruning")
Tables = dict[str, pd.DataFrame]
Modules = Mapping[str, Module]
Work = tuple[
    list[tuple[Any, ...]], dict[str, Any]
]  # a job for each tuned checkpoint, and how they are spread
Earned = Mapping[str, float] | None  # by module; nothing is known of it without a text
SPECTRA = ["run", "step", "layer", "module", "head", "offset", "of", "rows", "cols", "norm"]
SPECTRA += ["stable_rank", "rank_90", "base_norm", "tail", "edge", "rank_above_edge", "method"]


@dataclass(frozen=True)
class Plan:
    n_shuffles: Annotated[int, Interval("[0, 1000]")]
    n_points: Annotated[int, Interval("[1, 10000]")]
    max_loss_share: Fraction
    pruning_rates: tuple[Fraction, ...]
    device: str


@dataclass(frozen=True)
class Measure:
    budgets: tuple[Annotated[int, Interval("[1, 65536]")], ...]
    n_batches: Count
    n_measured_batches: Count
    batch_size: Count
    seq_len: Annotated[int, Interval("[2, 1e6]")]


def main(
    section: str,
    measure: str,
    base: Path,
    tuned: Path,
    text: str,
    spectra: Path,
    plans: OutFolder,
    modules_to_save: str = "no",
) -> None:
    saved = whether("modules_to_save", modules_to_save)
    work, n_bytes = prepared(section, measure, base, tuned, text, spectra, saved=saved)
    check_disk(plans, n_bytes, "plan")
    make(work, plans)


def held(text: str) -> int:
    """How many copies of the weights in float32 a plan holds at once, at most."""
    return HELD if text != "-" else HELD_UNMEASURED


def prepared(
    section: str,
    measure: str,
    base: Path,
    tuned: Path,
    text: str,
    spectra: Path,
    *,
    saved: bool = False,
) -> tuple[Work, int]:
    """The work, by headers and the table of spectra, and the bytes on disk that it takes; its
    memory is there.
    """
    params, sizes = read_params(section, Plan), read_params(measure, Measure)
    use_device(params.device)
    begun = open_checkpoint(base)
    table = read_table(spectra, [*SPECTRA, "singular_values"])
    last = {one.run: one for one in open_snapshots(tuned)}
    for one in last.values():
        check_pair(begun, one.checkpoint)
    try:
        check_architecture(
            base, begun.config
        )  # and the library is loaded once, before each worker would
    except ModelError as error:
        raise InputError(str(error)) from error
    n_fit = check_memory(begun, held(text), "plan")
    rows = {
        name: table[(table["run"] == name) & (table["step"] == one.step)]
        for name, one in last.items()
    }
    jobs = [
        (params, sizes, base, one.checkpoint.folder, text, rows[name], name, saved)
        for name, one in last.items()
    ]
    how = {
        "device": params.device,
        "n_processes": min(available_cores(), n_fit) if params.device == "cpu" else 1,
    }
    how |= {"n_bytes": memory_of(begun, held(text)), "label": f"plans of {tuned}"}
    total = None if text == "-" else len(jobs) * n_losses(params, sizes)
    how |= {"unit": "checkpoint" if text == "-" else "loss", "total": total}
    return (jobs, how), COPIES * len(jobs) * (
        n_losses(params, sizes) * (8 * len(begun.tensors) + 500) + 70_000
    )


def make(work: Work, plans: Path) -> None:
    """Plan and measure, and write the tables."""
    jobs, how = work
    clear(plans, *(f"{name}.parquet" for name in TABLES))
    parts = list(spread(planned, jobs, **how))
    for name in TABLES:
        write_table(
            pd.concat([part[name] for part in parts], ignore_index=True), plans / f"{name}.parquet"
        )


def n_losses(params: Plan, sizes: Measure) -> int:
    """How many a checkpoint needs at most: plans, also on the base, shuffles, bisection, pruning,
    attribution.
    """
    of_budget = 2 * len(get_args(Rule)) + params.n_shuffles
    return len(sizes.budgets) * of_budget + BISECTIONS + 3 * len(params.pruning_rates) + 3


def planned(
    params: Plan,
    sizes: Measure,
    base: Path,
    tuned: Path,
    text: str,
    rows: pd.DataFrame,
    name: str,
    saved: bool,
) -> Tables:
    """The tables of one tuned checkpoint."""
    begun, ended = open_checkpoint(base), open_checkpoint(tuned)
    try:
        linear, factors, modules, described = opened(params, begun, ended, rows)
        wanted = (
            Path(text),
            sizes.seq_len,
            sizes.batch_size,
            sizes.n_batches + sizes.n_measured_batches,
        )
        read = (
            [] if text == "-" else read_batches(base, begun.config, *wanted, device=params.device)
        )
        measure = GainMeasure(linear, factors, read[sizes.n_batches :]) if read else None
    except (ModelError, OSError) as error:
        raise InputError(str(error)) from error
    files = [*begun.files, *ended.files, *([Path(text)] if read else [])]
    given = {
        "n_points": params.n_points,
        "device": params.device,
        "sizes": asdict(sizes),
        "spectra": rows.to_json(),
    }
    given |= {"modules_to_save": saved}
    with kept(planned, *files, given, device=params.device) as keep:
        attribution = partial(attributed, linear, read[: sizes.n_batches], params.n_points)
        earned = keep("attribution", attribution) if measure else None
        plans = plan_table(params, sizes.budgets, modules, measure, earned, keep)
        losses = {"gain": np.nan}
        if measure and earned:
            losses = {
                "loss_tuned": measure.tuned,
                "loss_without_linear": measure.none,
                "gain": measure.gain,
            }
            losses |= {
                "attributed": sum(earned[one] for one in modules),
                "drop": linear.drop(read[: sizes.n_batches]),
            }
            on_base = losses_on_base(params, begun, measure, modules, plans, keep, saved=saved)
            *plans["loss_on_base"], losses["loss_base"] = on_base
        budgets, pruning = (
            bisection(params, modules, measure, earned, keep),
            pruned(params, measure, keep),
        )
    described = described.assign(
        earned=[earned[module] if earned else np.nan for module in modules]
    )
    tables = dict(
        zip(TABLES, (plans, described, pd.DataFrame([losses]), budgets, pruning), strict=True)
    )
    return {key: table.assign(run=name) for key, table in tables.items()}


def opened(
    params: Plan, base: Checkpoint, tuned: Checkpoint, rows: pd.DataFrame
) -> tuple[LinearUpdates, dict[str, Factors], dict[str, Module], pd.DataFrame]:
    """The tuned model, its updates in factors, what the rules know of its modules, and the table
    that says it.
    """
    model = open_model(tuned.folder, tuned.config)
    places = matched_by_content(model, ((name, tuned.load(name)) for name in tuned.tensors))
    live = linear_modules(model)
    matrices = rows[(rows["of"] == "update") & (rows["head"] == 0)]
    measured = matrices.set_index("module").to_dict("index")
    factors, modules, begun, described = {}, {}, {}, []
    for name, place in places.items():
        if place not in measured:
            raise InputError(
                f"{place}: wanted its spectrum, got none: measure spectra of {tuned.folder} first"
            )
        row, begun[name] = measured[place], base.load(place)
        sigma, shape = np.asarray(row["singular_values"]), (int(row["rows"]), int(row["cols"]))
        limit = min(int(row["rank_above_edge"]), len(sigma))
        update = update_of(tuned.load(place), begun[name])
        found = leading_triplets(update, max(limit, 1), generator(SEED, "factors", place))
        factors[name] = Factors(*(part.float().to(params.device) for part in found))
        modules[name] = Module(shape, sigma, float(row["norm"]) ** 2, limit)
        kept = {key: row[key] for key in ("rows", "cols", "norm", "base_norm")} | {"limit": limit}
        described.append(
            {"module": name, "tensor": place, **kept, "by_columns": stored_as_columns(live[name])}
        )
    return (
        LinearUpdates(model.float().to(params.device), begun),
        factors,
        modules,
        pd.DataFrame(described),
    )


def attributed(linear: LinearUpdates, batches: list[Batch], n_points: int) -> dict[str, float]:
    """What each module earned, on batches that measure no plan."""
    linear.set(linear.tuned)
    return path_attribution(
        linear.parameters, linear.updates, batches, partial(loss, linear.model), n_points
    )


def plan_table(
    params: Plan,
    budgets: Sequence[int],
    modules: Modules,
    measure: GainMeasure | None,
    earned: Earned,
    keep: Keep,
) -> pd.DataFrame:
    """Every rule and, of the attributed one, its nulls, at every budget."""
    source = partial(generator, SEED, "shuffle")
    every = (
        (b, one)
        for b in budgets
        for one in candidates(modules, b, earned, params.n_shuffles, source)
    )
    rows = []
    for budget, (rule, shuffle, ranks) in every:
        measured = keep(f"{ranks}", partial(measure.of, ranks)) if measure else np.nan
        share = measure.share_lost(measured) if measure else np.nan
        rows.append(
            (
                budget,
                rule,
                shuffle,
                parameters(modules, ranks),
                measured,
                share,
                [*map(ranks.get, modules)],
            )
        )
    columns = ["budget", "rule", "shuffle", "parameters", "loss", "share_lost", "ranks"]
    return pd.DataFrame(rows, columns=columns)


def losses_on_base(
    params: Plan,
    base: Checkpoint,
    measure: GainMeasure,
    modules: Modules,
    plans: pd.DataFrame,
    keep: Keep,
    *,
    saved: bool,
) -> list[float]:
    """Of each rule's plan, the loss of the base with its adapter; last, the loss of the base alone.

    With `saved` the adapter carries whole what else was tuned.
    """
    model = open_model(base.folder, base.config).to(params.device)
    lost = measure.on(model)
    alone = keep("the base", partial(lost, {}))
    if saved:
        with torch.no_grad():
            for name, parameter in beside_linear_layers(
                model, measure.linear.model
            ).parameters.items():
                model.get_parameter(name).copy_(parameter)
    found = []
    for shuffle, values in zip(plans["shuffle"], plans["ranks"], strict=True):
        ranks = dict(zip(modules, map(int, values), strict=True))
        found.append(keep(f"on the base {ranks}", partial(lost, ranks)) if shuffle == 0 else np.nan)
    return [*found, alone]


def bisection(
    params: Plan, modules: Modules, measure: GainMeasure | None, earned: Earned, keep: Keep
) -> pd.DataFrame:
    """The least budget of the attributed plan that loses at most `max_loss_share`, and what was
    tried.
    """
    tried = []
    if measure and earned:
        of, share = measure.of, measure.share_lost
        how = modules, earned, params.max_loss_share, BISECTIONS
        tried = least_attributed(lambda ranks: share(keep(f"{ranks}", partial(of, ranks))), *how)
    types = {"parameters": int, "share_lost": float, "least": bool}
    return pd.DataFrame(tried, columns=list(types)).astype(types)


def pruned(params: Plan, measure: GainMeasure | None, keep: Keep) -> pd.DataFrame:
    """What is gone, which share of it, and the loss."""
    rows = []
    if measure:
        linear, source = measure.linear, partial(generator, SEED)
        for what, rate, weights in pruned_states(
            linear.base, linear.tuned, params.pruning_rates, source
        ):
            linear.set(weights)
            rows.append(
                (what, rate, keep(f"{what} {rate}", partial(linear.mean_loss, measure.batches)))
            )
    return pd.DataFrame(rows, columns=["what", "rate", "loss"]).astype(
        {"what": str, "rate": float, "loss": float}
    )


if __name__ == "__main__":
    run(main)
