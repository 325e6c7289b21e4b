"""Which ranks, and which entries, keep what a training gained: plans at equal budgets and pruning.

A plan cuts the update of every linear module to a rank; embeddings, heads, norms and biases stay
tuned, and what they moved is measured apart. `share_lost` is 0 for the whole update of the linear
modules and 1 for none of it. Budgets are parameters, stated as the uniform rank that costs as much.
`loss_on_base` is the loss of the base with a plan's adapter as peft loads it, in the type in which
the base is stored; of embeddings, head, norms and biases it has what `modules_to_save` carries.
At each budget one rule is `chosen`: the one with the lowest `choosing_loss`, measured in the same
way on samples of their own, if it is below that of one uniform rank by more than the noise. All
other losses are of the measured samples, which choose nothing; `above_uniform` and its `noise` are
paired differences of `loss_on_base` there. All but the base's are measured in float32. `kept` is
the share of the whole gain, from the base alone to the tuned model, that the base has with the
adapter, and `ceiling` that with the whole update, uncut. Every share has its noise: two standard
errors over parts of the measured samples. A classifier has its `accuracy`, from the same logits.
Pruning removes a share of the weights of linear modules, or takes a share of the entries of their
updates back, all ranked together; a module of much larger or smaller entries is ranked on its own.
Experts that a model holds together, in three dimensions, are no linear modules:
`loss_without_experts` is that with those of the base. The file `without` names modules that no plan
has, such as those that peft refuses (`{module: why}` in JSON): they stay tuned, and `losses_left`
are those with the base's in place of each kind of them. What the tuned model alone has is `alone`
(a bias, a head that the base ties): `loss_without_alone` is that without it. Without TEXT (`-`)
nothing is measured.

With `thorough=no` only what decides or is quoted is measured: no shuffles and no pruning; of each
budget the losses of the chosen rule and of uniform alone; on the samples that choose, rules that
are far above the best after some parts go no further; and the search for least budgets takes half
of the measured samples where these are certain. What was not measured is no number. The ends of the
gain, which the check of a text measures, are not measured again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import pandas as pd
import torch

from lib.checkpoints.accuracy import accuracy, counting_right
from lib.checkpoints.adapters import whether
from lib.checkpoints.attribution import path_attribution
from lib.checkpoints.factors import rank_of, read_factors
from lib.checkpoints.folders import (
    Checkpoint,
    aligned,
    check_pair,
    open_checkpoint,
)
from lib.checkpoints.gains import (
    PARTS,
    Ends,
    GainMeasure,
    LinearUpdates,
    Parts,
    losses_with_whole,
    mean_and_noise,
    opened_updates,
)
from lib.checkpoints.linear_modules import beside_linear_layers, by_layers, fused_experts
from lib.checkpoints.memory import check_plan_memory
from lib.checkpoints.models import (
    check_architecture,
    linear_places,
    open_base,
    put,
    tuned_alone,
)
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
from lib.checkpoints.samples import labels_of_samples
from lib.checkpoints.snapshots import open_snapshots, open_tuned
from lib.checkpoints.texts import (
    Batch,
    batch_losses,
    digest,
    loss,
    mean_loss,
    mean_of,
    pieces,
    read_batches,
    shares,
)
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
from lib.work.progress import advance

SEED = 0  # of shuffles, and of what is pruned at random
SEARCHED = 4  # losses that the search for a least budget takes, about, for each rule
HEAT = 8  # parts of the samples that choose, at least, after which a rule may be out
QUARTER = 4  # and a quarter of them
BEHIND = 1.5  # times the noise: so far above the best one it is
CERTAIN = 1.0  # times the noise: so far from the share that is looked for half of the batches do
QUOTED = 2  # rules of a budget that are measured then: uniform, and the chosen one
TABLES = ("plans", "modules", "losses", "budgets", "pruning")
COMPARED = ("choosing_loss", "loss_on_base", "above_uniform", "noise", "chosen")
COMPARED += ("kept", "kept_noise")  # of a plan, on the base
SIZES = ("rows", "cols", "norm", "base_norm")  # of a module, as its spectrum says them
SPECTRA = ["run", "step", "module", "head", "of", "rank_above_edge", "singular_values", *SIZES]
BUDGETS = {"rule": str, "parameters": int, "share_lost": float, "least": bool}
PRUNING = {"what": str, "rate": float, "loss": float}
APART = 4  # times the median size of an entry: larger or smaller ones are pruned on their own
Tables = dict[str, pd.DataFrame]
Tried = tuple[str, int, float, bool]  # rule, parameters, share that is lost, whether the least
Judged = dict[str, Any]  # losses of parts, and how many labels are right, which JSON can say


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
    n_labels: Annotated[int, Interval("[0, 1e9]")] = 0

    @property
    def n_labels_a_batch(self) -> int:
        """The labels that a batch has, where the text has so many."""
        return -(-self.n_labels // self.n_measured_batches)


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
    thorough: str = "yes",
) -> None:
    saved = whether("modules_to_save", modules_to_save)
    wholly = whether("thorough", thorough)
    left = [] if without == "-" else list(read_json(Path(without)))
    params = read_params(section, Plan)
    if not wholly:
        params = replace(params, n_shuffles=0, pruning_rates=())
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
        jobs.append((params, sizes, *folders, text, rows, name, saved, left, wholly))
    n_fit = available_memory() // n_bytes if params.device == "cpu" else 1
    found = spread(
        planned,
        jobs,
        label=f"plans of {tuned}",
        unit="checkpoint" if text == "-" else "loss",
        total=None if text == "-" else len(jobs) * n_losses(params, sizes, thorough=wholly),
        n_processes=max(1, min(available_cores(), n_fit)),
        n_bytes=n_bytes,
        device=params.device,
    )
    parts = list(found)
    for name in TABLES:
        joined = pd.concat([part[name] for part in parts], ignore_index=True)
        write_table(joined, plans / f"{name}.parquet")


def n_losses(params: Plan, sizes: Measure, *, thorough: bool = True) -> int:
    """How many losses a checkpoint needs, about: of plans, searches, pruning and attribution."""
    n_rules = len(get_args(Rule))
    on_the_base = 2 * n_rules
    if not thorough:
        n_parts = sizes.n_choosing_batches * min(PARTS, sizes.batch_size)
        on_the_base = QUOTED + (2 if n_parts > HEAT else 1) * n_rules
    of_budget = n_rules + params.n_shuffles + on_the_base
    return len(sizes.budgets) * of_budget + SEARCHED * n_rules + 3 * len(params.pruning_rates) + 5


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
    thorough: bool = True,
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
        n_labels = sizes.n_labels_a_batch
        batches = read_batches(base, config, Path(text), *how, n_labels=n_labels)
        given = {
            "n_points": params.n_points,
            "device": params.device,
            "sizes": asdict(sizes),
            "spectra": rows.to_json(),
            "modules_to_save": saved,
            "without": sorted(left),
            "thorough": thorough,
        }
        files = [*begun.files, *ended.files, Path(text), *sorted(factors.glob("*"))]
        with kept(planned, *files, given, device=params.device) as keep:
            linear, places = opened_updates(begun, ended, params.device, left)
            modules, table = described(ended, places, rows)
            held = kept_factors(factors, modules, table)
            how = {"saved": saved, "left": left, "thorough": thorough}
            pair = (begun, ended)
            found = measured(params, sizes, *pair, linear, held, modules, batches, keep, **how)
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
    tuned: Checkpoint,
    linear: LinearUpdates,
    factors: Mapping[str, Triplets],
    modules: Mapping[str, Module],
    batches: Sequence[Batch],
    keep: Keep,
    *,
    saved: bool,
    left: Collection[str],
    thorough: bool,
) -> Tables:
    """The tables with what is measured on a text, of a tuned model with its updates, their factors,
    and what the rules know of its modules.

    What is attributed, what is chosen and what is measured are so on batches of their own. The
    tuned model comes first and is let go of; then comes the base.
    """
    n_measured = sizes.n_batches + sizes.n_measured_batches
    others = pieces(batches[: sizes.n_batches], sizes.batch_size)
    parts = Parts(batches[sizes.n_batches : n_measured])
    whole, ends = measured_ends(base, tuned, linear, parts, params.device)
    if thorough:  # by batches too: from the mean of its parts a batch may differ by some 1e-7
        linear.set(linear.tuned.items())
        ends = ends._replace(tuned=batch_losses(linear.model, parts.whole))
    measure = GainMeasure(linear, factors, parts.whole, ends)
    earned = keep("attribution", partial(attributed, linear, others, params.n_points))

    known: dict[tuple[int, ...], list[float]] = {}  # losses of batches, by ranks

    def lost(ranks: Ranks) -> float:
        losses = keep(f"{ranks}", partial(measure.of, ranks))
        known[tuple(ranks[name] for name in modules)] = losses
        return mean_of(losses, measure.batches)

    plans = plan_table(params, sizes.budgets, modules, earned, lost)
    plans.insert(5, "share_lost", measure.share_lost(plans["loss"]))
    noise = [measure.share_noise(known[tuple(ranks)]) for ranks in plans["ranks"]]
    plans.insert(6, "share_noise", noise)
    drop = linear.drop(others)
    tried = []
    share_wanted = params.max_loss_share
    for rule in rules(earned):
        rows = plans[(plans["rule"] == rule) & (plans["shuffle"] == 0)]
        of_rule = dict(zip(rows["budget"], rows["share_lost"], strict=True))
        given = {"modules": modules, "earned": earned, "max_share": share_wanted, "known": of_rule}
        search = partial(least_of_rule, rule, **given)
        if thorough or not Halves.possible(len(measure.batches)):
            tried += search(lambda ranks: measure.share_lost(lost(ranks)))
        else:
            own = map(tuple, rows["ranks"])
            halves = Halves(measure, modules, known, own, share_wanted, keep)
            tried += halves.searched(search)
    pruning = list(pruned(params, measure, keep))
    of_experts = {}
    if experts := fused_experts(linear.model):
        lost_without = partial(without_experts, measure, base, experts)
        of_experts["loss_without_experts"] = keep("without the experts", lost_without)
    of_alone = {}
    if alone := tuned_alone(base, linear.model):
        lost_alone = keep("without what the tuned alone has", partial(measure.without, alone))
        of_alone = {"alone": [*by_layers(alone)], "loss_without_alone": lost_alone}
        del alone
    of_left = {}
    if left:
        kinds = by_layers(left)
        lost_with = partial(losses_left, measure, base, list(kinds.values()))
        of_left = {"left": [*kinds], "losses_left": keep("without what is left out", lost_with)}
    choosing = batches[n_measured:]
    how = {"saved": saved, "left": left, "thorough": thorough}
    columns, on_the_base = on_base(params, base, measure, choosing, plans, whole, keep, **how)
    n_labels = {
        f"n_labels_{name}": sum(int(labels_of_samples(batch).sum()) for batch in part)
        for name, part in (
            ("attributing", others),
            ("choosing", choosing),
            ("measured", measure.batches),
        )
    }
    losses = {
        "loss_tuned": measure.tuned,
        "loss_without_linear": measure.none,
        "gain": measure.gain,
        "attributed": sum(earned[name] for name in modules),
        "drop": drop,
        **on_the_base,
        **of_experts,
        **of_left,
        **of_alone,
        **n_labels,
        "n_samples": sum(len(next(iter(batch.values()))) for batch in batches),
        "n_samples_measured": sum(len(next(iter(batch.values()))) for batch in measure.batches),
    }
    return {
        "plans": plans.join(columns),
        "modules": pd.DataFrame({"earned": [earned[name] for name in modules]}),
        "losses": pd.DataFrame([losses]),
        "budgets": typed(BUDGETS, tried),
        "pruning": typed(PRUNING, pruning),
    }


def measured_ends(
    base: Checkpoint, tuned: Checkpoint, linear: LinearUpdates, parts: Parts, device: str
) -> tuple[Judged, Ends]:
    """The tuned model's losses of the parts, and of batches those of both ends.

    They are kept by what they depend on: what the check of a text measured, its plan finds.
    """
    files = [*base.files, *tuned.files]
    given = {"modules": sorted(linear.base), "batches": [digest(one) for one in parts.whole]}

    def with_all() -> Judged:
        linear.set(linear.tuned.items())
        return judged(linear.model, partial(losses_of, linear.model, parts))

    def with_none() -> list[float]:
        linear.set(linear.base.items())
        return batch_losses(linear.model, parts.whole)

    with kept(measured_ends, *files, given, device=device) as keep:
        whole = keep("tuned", with_all)
        none = keep("none", with_none)
    return whole, Ends(parts.by_batch(whole["losses"]), none)


class Halves:
    """The share of the gain that the plans of a rule lose, for the search of its least budget.

    `known` are the losses of the measured batches with some plans, by ranks; those of this rule are
    `own`. Of another plan the first half of the batches does where it is certain, beside the own
    plan of the nearest size, on which side of the share that is looked for all of them are. The
    others follow where it is not, and for the budget that is found.
    """

    def __init__(
        self,
        measure: GainMeasure,
        modules: Mapping[str, Module],
        known: Mapping[tuple[int, ...], Sequence[float]],
        own: Iterable[tuple[int, ...]],
        share: float,
        keep: Keep,
    ):
        self.measure = measure
        self.modules = modules
        self.known = dict(known)
        self.own = {self._size(ranks): known[ranks] for ranks in own}
        self.share = share
        self.keep = keep
        self.found: dict[str, list[float]] = {}
        self.n = len(measure.batches) // 2

    @staticmethod
    def possible(n_batches: int) -> bool:
        """Whether half of so many batches have a noise."""
        return n_batches // 2 > 1

    def searched(self, search: Callable[..., list[Tried]]) -> list[Tried]:
        """The budgets that a search tries; all batches measure the least one.

        Where that one loses more by all of them, the search is made again, with what is known now.
        """
        while True:
            tried: dict[int, Ranks] = {}

            def lost(ranks: Ranks, tried: dict[int, Ranks] = tried) -> float:
                tried[parameters(self.modules, ranks)] = ranks
                return self.of(ranks)

            found = search(lost)
            by_half = [cost for _, cost, _, least in found if least and cost not in self.own]
            whole = {cost: self.of_all(tried[cost]) for cost in by_half}
            if all(share <= self.share for share in whole.values()):
                return [
                    (rule, cost, whole.get(cost, share) if least else share, least)
                    for rule, cost, share, least in found
                ]

    def of(self, ranks: Ranks) -> float:
        r"""The share by half of the batches, or by all where these leave it open.

        The loss of all N batches is that of the nearest plan and the mean difference over the
        first n; its noise is $\sqrt{1 - n / N}$ times two standard errors of the differences.
        """
        measure = self.measure
        size = parameters(self.modules, ranks)
        if size in self.own:
            return self.of_all(ranks)
        near = min(self.own, key=lambda one: abs(one - size))
        first = slice(self.n)
        weights = np.array(shares(measure.batches[first])) / self.n
        apart = np.subtract(self._losses(ranks, first), self.own[near][first])
        mean, noise = mean_and_noise(weights, apart)
        share = measure.share_lost(mean_of(self.own[near], measure.batches) + mean)
        noise *= (1 - self.n / len(measure.batches)) ** 0.5 / measure.gain
        return share if abs(share - self.share) > CERTAIN * noise else self.of_all(ranks)

    def of_all(self, ranks: Ranks) -> float:
        """The share by all batches; none is measured twice."""
        halves = (slice(self.n), slice(self.n, None))
        losses = [one for half in halves for one in self._losses(ranks, half)]
        self.own[parameters(self.modules, ranks)] = losses
        return self.measure.share_lost(mean_of(losses, self.measure.batches))

    def _losses(self, ranks: Ranks, half: slice) -> Sequence[float]:
        place = tuple(ranks[name] for name in self.modules)
        if place in self.known:
            return self.known[place][half]

        def lost() -> list[float]:
            linear = self.measure.linear
            linear.set_ranks(ranks, self.measure.factors)
            return batch_losses(linear.model, self.measure.batches[half])

        name = f"batches {half.start or 0} to {half.stop} of {ranks}"
        if name not in self.found:
            self.found[name] = self.keep(name, lost)
        return self.found[name]

    def _size(self, ranks: tuple[int, ...]) -> int:
        return parameters(self.modules, dict(zip(self.modules, ranks, strict=True)))


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
    whole: Judged,
    keep: Keep,
    *,
    saved: bool,
    left: Collection[str],
    thorough: bool,
) -> tuple[pd.DataFrame, dict[str, float]]:
    """The loss of the base with the adapter of each rule's plan, which share of the whole gain it
    keeps, and which rule is chosen; and the losses of the base alone and of the ceiling. Unless it
    is `thorough`, rules that are neither chosen nor uniform have no loss.

    The ceiling is the base with the whole update of the linear modules, uncut, and what else an
    adapter carries. With `saved` that is all else that was tuned. Accuracies are a classifier's.
    """
    begun, ended = measure.linear.base, measure.linear.tuned
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
    last = parts["measured"]
    alone = keep("the base", partial(judged, model, partial(lost["measured"], {})))
    if rest:
        put(model, rest.parameters)
        for name, buffer in rest.buffers.items():
            model.get_buffer(name).copy_(buffer)
    found = []
    for _, of_budget in plans[plans["shuffle"] == 0].groupby("budget", sort=False):
        of_rule = {
            rule: dict(zip(measure.factors, map(int, values), strict=True))
            for rule, values in zip(of_budget["rule"], of_budget["ranks"], strict=True)
        }
        if thorough:
            choice = {
                rule: keep(f"choosing, on the base {ranks}", partial(lost["choosing"], ranks))
                for rule, ranks in of_rule.items()
            }
        else:
            choice = raced(model, measure, parts["choosing"], of_rule, keep)
        best = parts["choosing"].best(choice)
        made: dict[str, Judged] = {}
        for rule, ranks in of_rule.items():
            if thorough or rule in ("uniform", best):
                one = partial(judged, model, partial(lost["measured"], ranks))
                made[rule] = keep(f"measured, on the base {ranks}", one)
        if not thorough and best == "uniform":
            advance()  # the one that is chosen is measured with it
        table = compared(parts, list(of_rule), choice, best, made, alone, whole)
        found.append(table.set_index(of_budget.index))
    columns = pd.concat(found).reindex(plans.index)
    uncut = partial(losses_with_whole, model, begun, ended, last.batches)
    ceiling = keep("the ceiling", partial(judged, model, uncut))
    kept_share, kept_noise = last.kept(ceiling["losses"], alone["losses"], whole["losses"])
    losses = {
        "loss_base": last.mean(alone["losses"]),
        "loss_ceiling": last.mean(ceiling["losses"]),
        "ceiling": kept_share,
        "ceiling_noise": kept_noise,
    }
    for name, one in (("tuned", whole), ("base", alone), ("ceiling", ceiling)):
        losses |= said_right(one, f"_{name}")
    return columns.assign(chosen=columns["chosen"].eq(True)), losses


def losses_of(model: torch.nn.Module, parts: Parts) -> list[float]:
    """The loss of each part."""
    return [mean_loss(model, [part]) for part in parts.batches]


def judged(model: torch.nn.Module, losses: Callable[[], list[float]]) -> Judged:
    """Some losses of a model, and how many labels a classifier gets right in the same logits."""
    with counting_right(model) as right:
        return {"losses": losses(), "n_right": right.n_right, "n_labels": right.n_labels}


def said_right(one: Judged, of: str = "") -> dict[str, float]:
    """The accuracy and its noise, under these names with an ending; nothing of no classifier."""
    if not one["n_labels"]:
        return {}
    share, noise = accuracy(one["n_right"], one["n_labels"])
    return {f"accuracy{of}": share, f"accuracy_noise{of}": noise}


def raced(
    model: torch.nn.Module,
    measure: GainMeasure,
    parts: Parts,
    of_rule: Mapping[str, Ranks],
    keep: Keep,
) -> dict[str, list[float]]:
    """The losses of the parts that choose, of the rules that are still in after the first quarter
    of them (or `HEAT`): uniform, and those that are not `far_above` the best.
    """
    n_parts = len(parts.batches)
    ends = sorted({min(max(HEAT, n_parts // QUARTER), n_parts), n_parts})
    found: dict[str, list[float]] = {rule: [] for rule in of_rule}
    for begin, end in pairwise([0, *ends]):
        lost = measure.on(model, parts.batches[begin:end])
        for rule, losses in found.items():
            ranks = of_rule[rule]
            name = f"choosing {begin} to {end}, on the base {ranks}"
            losses += keep(name, partial(lost, ranks))
        if end < n_parts:
            for rule in far_above(found, parts.weights[:end]):
                del found[rule]
                advance()  # the bar waits for no loss of a rule that is out
    return found


def far_above(losses: Mapping[str, Sequence[float]], weights: np.ndarray) -> list[str]:
    """The rules, but for uniform, whose losses of some weighted parts are above those of the best
    one by more than `BEHIND` times the noise.

    The noise is two standard errors of the paired differences over parts. Where a loss is no
    number, no rule is out.
    """
    table = np.array(list(losses.values()))
    if not np.isfinite(table).all() or len(weights) < 2:
        return []
    weights = weights / weights.sum()
    pairs = table - table[np.argmin(table @ weights)]
    above = pairs @ weights
    n = len(weights)
    noise = 2 * np.sqrt((pairs - above[:, None]) ** 2 @ weights**2 * n / (n - 1))
    far = above > BEHIND * noise
    return [rule for rule, one in zip(losses, far, strict=True) if one and rule != "uniform"]


def compared(
    parts: Mapping[str, Parts],
    of_budget: Sequence[str],
    choice: Mapping[str, Sequence[float]],
    best: str,
    made: Mapping[str, Judged],
    alone: Judged,
    whole: Judged,
) -> pd.DataFrame:
    """A row for each rule of a budget: losses, what they are above uniform's, whether chosen, and
    the share of the whole gain, from the base `alone` to the `whole` fine-tune, that is kept.

    `choice` are the losses that choose, and `made` the measured ones, of the rules that have them.
    """
    rows = []
    for rule in of_budget:
        row: dict[str, Any] = dict.fromkeys(COMPARED, np.nan) | {"chosen": rule == best}
        if rule in choice:
            row["choosing_loss"] = parts["choosing"].mean(choice[rule])
        if rule in made:
            losses = made[rule]["losses"]
            against = (losses, alone["losses"], whole["losses"])
            above, noise = parts["measured"].difference(losses, made["uniform"]["losses"])
            kept_share, kept_noise = parts["measured"].kept(*against)
            row |= {
                "loss_on_base": parts["measured"].mean(losses),
                "above_uniform": above,
                "noise": noise,
                "kept": kept_share,
                "kept_noise": kept_noise,
                **said_right(made[rule]),
            }
        rows.append(row)
    return pd.DataFrame(rows)


def pruned(params: Plan, measure: GainMeasure, keep: Keep) -> Iterator[tuple[str, float, float]]:
    """What is gone, which share of it, and the loss."""
    linear = measure.linear
    source = partial(generator, SEED)
    groups = [
        pruned_states(
            {name: linear.base[name] for name in names},
            {name: linear.tuned[name] for name in names},
            params.pruning_rates,
            source,
        )
        for names in of_like_size(linear)
    ]
    for states in zip(*groups, strict=True):
        what, rate, _ = states[0]
        linear.set(chain.from_iterable(weights for *_, weights in states))
        lost = partial(linear.mean_loss, measure.batches)
        yield what, rate, keep(f"{what} {rate}", lost)


def of_like_size(linear: LinearUpdates) -> list[list[str]]:
    """The modules whose entries are ranked together, and each of the others on its own.

    A module is one of the others where the root mean square of its weights, or of its update, is
    less than a quarter of the median over modules, or more than four times it. Ranked with the rest
    such a module would be removed whole, or not at all: of one encoder whose pooler had small
    weights, the smallest half of all weights had the whole pooler.
    """
    sizes = []
    for name, W in linear.tuned.items():
        W, W_0 = W.float(), linear.base[name].float()
        sizes.append([float(of.norm()) / W.numel() ** 0.5 for of in (W, W - W_0)])
    median = np.median(sizes, axis=0)
    alike = [
        bool(((size >= median / APART) & (size <= median * APART)).all())
        for size in np.array(sizes)
    ]
    names = list(linear.tuned)
    together = [name for name, one in zip(names, alike, strict=True) if one]
    apart = [[name] for name, one in zip(names, alike, strict=True) if not one]
    return [*([together] if together else []), *apart]


if __name__ == "__main__":
    run(main)
