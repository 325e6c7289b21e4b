"""Which ranks, and which entries, keep what a training gained: plans at equal budgets and pruning.

A plan cuts the update of every linear module to a rank; embeddings, heads, norms and biases stay
tuned, and what they moved is measured apart. `share_lost` is 0 for the whole update of the linear
modules and 1 for none of it. Budgets are parameters, stated as the uniform rank that costs as much.
`loss_on_base` is the loss of the base with a plan's adapter as peft loads it, in the type in which
the base is stored; of embeddings, head, norms and biases it has what `modules_to_save` carries.
At each budget one rule is `chosen`: the one with the lowest `choosing_loss`, measured in the same
way on windows of their own, if it is below that of one uniform rank by more than the noise. All
other losses are of the measured windows, which choose nothing; `above_uniform` and its `noise` are
paired differences of `loss_on_base` there. All but the base's are measured in float32. Pruning
removes a share of the weights of linear modules, or takes a share of the entries of their updates
back, all ranked together. Experts that a model holds together, in three dimensions, are no linear
modules: `loss_without_experts` is that with those of the base. The file `without` names modules
that no plan has, such as those that peft refuses (`{module: why}` in JSON): they stay tuned, and
`losses_left` are those with the base's in place of each kind of them. Without TEXT (`-`) nothing is
measured.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import pandas as pd
import torch

from lib.checkpoints.adapters import whether
from lib.checkpoints.attribution import path_attribution
from lib.checkpoints.factors import rank_of, read_factors
from lib.checkpoints.folders import (
    Checkpoint,
    aligned,
    check_pair,
    open_checkpoint,
)
from lib.checkpoints.gains import GainMeasure, LinearUpdates, Parts, opened_updates
from lib.checkpoints.linear_modules import beside_linear_layers, by_layers, fused_experts
from lib.checkpoints.memory import check_plan_memory
from lib.checkpoints.models import check_architecture, linear_places, open_base
from lib.checkpoints.plans import (
    Module,
    Ranks,
    Rule,
    candidates,
    largest_rank,
    least_of_rule,
    parameters,
    rules,
)
from lib.checkpoints.snapshots import open_snapshots, open_tuned
from lib.checkpoints.texts import Batch, loss, read_batches, shares
from lib.checkpoints.update_spectra import Triplets
from lib.files.files import InputError, clear
from lib.files.memory import available_memory
from lib.files.params import Count, Fraction, Interval, read_params
from lib.files.tables import read_json, read_table, write_table
from lib.matrices.pruning import pruned_states
from lib.training.devices import generator, use_device
from lib.work.cells import Keep, kept
from lib.work.command import OutFolder, run
from lib.work.compute import available_cores, spread

SEED = 0  # of shuffles, and of what is pruned at random
SEARCHED = 4  # losses that the search for a least budget takes, about, for each rule
TABLES = ("plans", "modules", "losses", "budgets", "pruning")
SIZES = ("rows", "cols", "norm", "base_norm")  # of a module, as its spectrum says them
SPECTRA = ["run", "step", "module", "head", "of", "rank_above_edge", "singular_values", *SIZES]
BUDGETS = {"rule": str, "parameters": int, "share_lost": float, "least": bool}
PRUNING = {"what": str, "rate": float, "loss": float}
Tables = dict[str, pd.DataFrame]


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
    n_choosing_batches: Count
    batch_size: Count
    seq_len: Annotated[int, Interval("[2, 1e6]")]


def main(
    section: str,
    measure: str,
    base: Path,
    tuned: Path,
    text: str,
    spectra: Path,
    factors: Path,
    plans: OutFolder,
    modules_to_save: str = "no",
    without: str = "-",
) -> None:
    saved = whether("modules_to_save", modules_to_save)
    left = [] if without == "-" else list(read_json(Path(without)))
    params = read_params(section, Plan)
    sizes = read_params(measure, Measure)
    use_device(params.device)
    begun = open_checkpoint(base)
    last = {one.run: one for one in open_snapshots(tuned, begun)}
    for one in last.values():
        check_pair(begun, one.checkpoint)
    check_architecture(base, begun.config)  # the library is loaded once, before workers would
    n_bytes = check_plan_memory(begun, text, params.device)
    table = read_table(spectra, SPECTRA)
    clear(plans, *(f"{name}.parquet" for name in TABLES))
    jobs = []
    for name, one in last.items():
        rows = table[(table["run"] == name) & (table["step"] == one.step)]
        folders = (base, one.checkpoint.folder, factors / name)
        jobs.append((params, sizes, *folders, text, rows, name, saved, left))
    n_fit = available_memory() // n_bytes if params.device == "cpu" else 1
    found = spread(
        planned,
        jobs,
        label=f"plans of {tuned}",
        unit="checkpoint" if text == "-" else "loss",
        total=None if text == "-" else len(jobs) * n_losses(params, sizes),
        n_processes=max(1, min(available_cores(), n_fit)),
        n_bytes=n_bytes,
        device=params.device,
    )
    parts = list(found)
    for name in TABLES:
        joined = pd.concat([part[name] for part in parts], ignore_index=True)
        write_table(joined, plans / f"{name}.parquet")


def n_losses(params: Plan, sizes: Measure) -> int:
    """How many losses a checkpoint needs, about: of plans, searches, pruning and attribution."""
    n_rules = len(get_args(Rule))
    of_budget = 3 * n_rules + params.n_shuffles
    return len(sizes.budgets) * of_budget + SEARCHED * n_rules + 3 * len(params.pruning_rates) + 3


def planned(
    params: Plan,
    sizes: Measure,
    base: Path,
    tuned: Path,
    factors: Path,
    text: str,
    rows: pd.DataFrame,
    name: str,
    saved: bool,
    left: Collection[str] = (),
) -> Tables:
    """The tables of one tuned checkpoint, of whose modules some are left out."""
    begun = open_checkpoint(base)
    ended = open_tuned(tuned, begun)
    begun = aligned(begun, ended)
    if text == "-":
        places = linear_places(ended)
        inside = {name: one for name, one in places.items() if one[0] in begun.tensors}
        inside = {name: one for name, one in inside.items() if name not in left}
        modules, table = described(ended, inside, rows)
        found = unmeasured(params, sizes, modules)
    else:
        n_batches = sizes.n_batches + sizes.n_measured_batches + sizes.n_choosing_batches
        how = (sizes.seq_len, sizes.batch_size, n_batches, params.device)
        config = begun.config | {"architectures": ended.config.get("architectures")}
        batches = read_batches(base, config, Path(text), *how)
        given = {
            "n_points": params.n_points,
            "device": params.device,
            "sizes": asdict(sizes),
            "spectra": rows.to_json(),
            "modules_to_save": saved,
            "without": sorted(left),
        }
        files = [*begun.files, *ended.files, Path(text), *sorted(factors.glob("*"))]
        with kept(planned, *files, given, device=params.device) as keep:
            linear, places = opened_updates(begun, ended, params.device, left)
            modules, table = described(ended, places, rows)
            held = kept_factors(factors, modules, table)
            how = {"saved": saved, "left": left}
            found = measured(params, sizes, begun, linear, held, modules, batches, keep, **how)
    found["modules"] = table.join(found["modules"])
    return {key: one.assign(run=name) for key, one in found.items()}


def described(
    tuned: Checkpoint, places: Mapping[str, tuple[str, bool]], spectra: pd.DataFrame
) -> tuple[dict[str, Module], pd.DataFrame]:
    """What the rules know of the modules of a checkpoint, and a row for each.

    Raises `InputError` where the spectrum of a module's tensor is not there.
    """
    matrices = spectra[(spectra["of"] == "update") & (spectra["head"] == 0)]
    rows = matrices.set_index("module").to_dict("index")
    modules = {}
    table = []
    for name, (place, by_columns) in places.items():
        if place not in rows:
            wanted = f"wanted its spectrum, got none: measure spectra of {tuned.folder} first"
            raise InputError(f"{place}: {wanted}")
        row = rows[place]
        sigma = np.asarray(row["singular_values"])
        above_edge = min(int(row["rank_above_edge"]), len(sigma))
        limit = max(above_edge, largest_rank(sigma, float(row["norm"]) ** 2))
        shape = (int(row["rows"]), int(row["cols"]))
        modules[name] = Module(shape, sigma, float(row["norm"]) ** 2, limit, above_edge)
        said = {"module": name, "tensor": place, **{key: row[key] for key in SIZES}}
        table.append(said | {"limit": limit, "by_columns": by_columns})
    return modules, pd.DataFrame(table)


def kept_factors(
    folder: Path, modules: Mapping[str, Module], table: pd.DataFrame
) -> dict[str, Triplets]:
    """The triplets of every module, up to its limit, as the spectra kept them."""
    found = read_factors(folder)
    for name, place in zip(table["module"], table["tensor"], strict=True):
        wanted = modules[name].limit
        got = rank_of(found.get(place))
        if got < wanted:
            said = f"wanted {wanted} leading triplets of {place}, got {got}"
            raise InputError(f"{folder}: {said}: measure spectra and keep all factors")
    return {name: found[at] for name, at in zip(table["module"], table["tensor"], strict=True)}


def unmeasured(params: Plan, sizes: Measure, modules: Mapping[str, Module]) -> Tables:
    """The tables where no text was given."""
    plans = plan_table(params, sizes.budgets, modules, None, lambda _: np.nan)
    plans.insert(5, "share_lost", np.nan)
    earned = pd.DataFrame({"earned": [np.nan] * len(modules)})
    losses = pd.DataFrame([{"gain": np.nan}])
    budgets = typed(BUDGETS, [])
    pruning = typed(PRUNING, [])
    return dict(zip(TABLES, (plans, earned, losses, budgets, pruning), strict=True))


def measured(
    params: Plan,
    sizes: Measure,
    base: Checkpoint,
    linear: LinearUpdates,
    factors: Mapping[str, Triplets],
    modules: Mapping[str, Module],
    batches: Sequence[Batch],
    keep: Keep,
    *,
    saved: bool,
    left: Collection[str],
) -> Tables:
    """The tables with what is measured on a text, of a tuned model with its updates, their factors,
    and what the rules know of its modules.

    What is attributed, what is chosen and what is measured are so on batches of their own. The
    tuned model comes first and is let go of; then comes the base.
    """
    n_measured = sizes.n_batches + sizes.n_measured_batches
    others = batches[: sizes.n_batches]
    measure = GainMeasure(linear, factors, batches[sizes.n_batches : n_measured])
    earned = keep("attribution", partial(attributed, linear, others, params.n_points))

    def lost(ranks: Ranks) -> float:
        return keep(f"{ranks}", partial(measure.of, ranks))

    plans = plan_table(params, sizes.budgets, modules, earned, lost)
    plans.insert(5, "share_lost", measure.share_lost(plans["loss"]))
    drop = linear.drop(others)
    tried = []
    for rule in rules(earned):
        rows = plans[(plans["rule"] == rule) & (plans["shuffle"] == 0)]
        tried += least_of_rule(
            rule,
            lambda ranks: measure.share_lost(lost(ranks)),
            modules,
            earned,
            params.max_loss_share,
            dict(zip(rows["budget"], rows["share_lost"], strict=True)),
        )
    pruning = list(pruned(params, measure, keep))
    of_experts = {}
    if experts := fused_experts(linear.model):
        lost_without = partial(without_experts, measure, base, experts)
        of_experts["loss_without_experts"] = keep("without the experts", lost_without)
    of_left = {}
    if left:
        kinds = by_layers(left)
        lost_with = partial(losses_left, measure, base, list(kinds.values()))
        of_left = {"left": [*kinds], "losses_left": keep("without what is left out", lost_with)}
    choosing = batches[n_measured:]
    how = {"saved": saved, "left": left}
    columns, alone = on_base(params, base, measure, choosing, plans, keep, **how)
    losses = {
        "loss_tuned": measure.tuned,
        "loss_without_linear": measure.none,
        "gain": measure.gain,
        "attributed": sum(earned[name] for name in modules),
        "drop": drop,
        "loss_base": alone,
        **of_experts,
        **of_left,
    }
    return {
        "plans": plans.join(columns),
        "modules": pd.DataFrame({"earned": [earned[name] for name in modules]}),
        "losses": pd.DataFrame([losses]),
        "budgets": typed(BUDGETS, tried),
        "pruning": typed(PRUNING, pruning),
    }


def without_experts(measure: GainMeasure, base: Checkpoint, experts: Sequence[str]) -> float:
    """The loss with the base's experts, all else as tuned."""
    model, _ = open_base(base)
    return measure.without({name: model.get_parameter(name) for name in experts})


def losses_left(
    measure: GainMeasure, base: Checkpoint, kinds: Sequence[Sequence[str]]
) -> list[float]:
    """The losses with the base's weights of each kind of modules, all else as tuned."""
    model, _ = open_base(base)
    named = [[f"{module}.weight" for module in modules] for modules in kinds]
    return [measure.without({n: model.get_parameter(n) for n in names}) for names in named]


def typed(columns: Mapping[str, type], rows: Sequence[tuple]) -> pd.DataFrame:
    """A table of these columns, also where it has no row."""
    return pd.DataFrame(rows, columns=list(columns)).astype(columns)


def attributed(linear: LinearUpdates, batches: Sequence[Batch], n_points: int) -> dict[str, float]:
    """What each module earned."""
    linear.set(linear.tuned.items())
    weighted = list(zip(shares(batches), batches, strict=True))

    def of_batch(one: tuple[float, Batch]) -> torch.Tensor:
        share, batch = one
        return share * loss(linear.model, batch)

    held = (linear.parameters, linear.updates)
    return path_attribution(*held, weighted, of_batch, n_points, linear.tuned)


def plan_table(
    params: Plan,
    budgets: Sequence[int],
    modules: Mapping[str, Module],
    earned: Mapping[str, float] | None,
    lost: Callable[[Ranks], float],
) -> pd.DataFrame:
    """Every rule and, of the attributed one, its nulls, at every budget; with the loss of each."""
    source = partial(generator, SEED, "shuffle")
    rows = []
    for budget in budgets:
        for one in candidates(modules, budget, earned, params.n_shuffles, source):
            rule, shuffle, ranks = one
            row = {"budget": budget, "rule": rule, "shuffle": shuffle}
            row |= {"parameters": parameters(modules, ranks), "loss": lost(ranks)}
            rows.append(row | {"ranks": [ranks[name] for name in modules]})
    return pd.DataFrame(rows)


def on_base(
    params: Plan,
    base: Checkpoint,
    measure: GainMeasure,
    choosing: Sequence[Batch],
    plans: pd.DataFrame,
    keep: Keep,
    *,
    saved: bool,
    left: Collection[str],
) -> tuple[pd.DataFrame, float]:
    """The loss of the base with the adapter of each rule's plan, which rule is chosen, and the loss
    of the base alone.

    With `saved` the adapter carries whole what else was tuned.
    """
    if not saved:
        measure.linear.release()
    model, new = open_base(base)
    model = model.to(params.device)
    rest = None
    if saved:
        rest = beside_linear_layers(model, measure.linear.model, new, without=left)
    measure.linear.release()
    parts = {"choosing": Parts(choosing), "measured": Parts(measure.batches)}
    lost = {name: measure.on(model, text.batches) for name, text in parts.items()}
    alone = parts["measured"].mean(keep("the base", partial(lost["measured"], {})))
    if rest:
        with torch.no_grad():
            for name, parameter in rest.parameters.items():
                model.get_parameter(name).copy_(parameter)
        for name, buffer in rest.buffers.items():
            model.get_buffer(name).copy_(buffer)
    found = []
    for _, of_budget in plans[plans["shuffle"] == 0].groupby("budget", sort=False):
        losses: dict[str, dict[str, list[float]]] = {name: {} for name in parts}
        for rule, values in zip(of_budget["rule"], of_budget["ranks"], strict=True):
            ranks = dict(zip(measure.factors, map(int, values), strict=True))
            for name, of in lost.items():
                losses[name][rule] = keep(f"{name}, on the base {ranks}", partial(of, ranks))
        found.append(compared(parts, losses).set_index(of_budget.index))
    columns = pd.concat(found).reindex(plans.index)
    return columns.assign(chosen=columns["chosen"].eq(True)), alone


def compared(
    parts: Mapping[str, Parts], losses: Mapping[str, Mapping[str, list[float]]]
) -> pd.DataFrame:
    """A row for each rule of a budget: losses, what they are above uniform's, whether chosen."""
    best = parts["choosing"].best(losses["choosing"])
    rows = []
    for rule, measured_losses in losses["measured"].items():
        above, noise = parts["measured"].difference(measured_losses, losses["measured"]["uniform"])
        rows.append(
            {
                "choosing_loss": parts["choosing"].mean(losses["choosing"][rule]),
                "loss_on_base": parts["measured"].mean(measured_losses),
                "above_uniform": above,
                "noise": noise,
                "chosen": rule == best,
            }
        )
    return pd.DataFrame(rows)


def pruned(params: Plan, measure: GainMeasure, keep: Keep) -> Iterator[tuple[str, float, float]]:
    """What is gone, which share of it, and the loss."""
    linear = measure.linear
    source = partial(generator, SEED)
    states = pruned_states(linear.base, linear.tuned, params.pruning_rates, source)
    for what, rate, weights in states:
        linear.set(weights)
        lost = partial(linear.mean_loss, measure.batches)
        yield what, rate, keep(f"{what} {rate}", lost)


if __name__ == "__main__":
    run(main)
