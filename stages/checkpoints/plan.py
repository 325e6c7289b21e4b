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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import pandas as pd

from lib.checkpoints.accuracy import Judged, judged
from lib.checkpoints.adapters import whether
from lib.checkpoints.attribution import attributed
from lib.checkpoints.budgets import Known, least_budgets, plan_table
from lib.checkpoints.choices import on_base
from lib.checkpoints.folders import Checkpoint, aligned, open_checkpoint
from lib.checkpoints.gains import (
    PARTS,
    Ends,
    GainMeasure,
    LinearUpdates,
    Parts,
    losses_of,
    opened_updates,
)
from lib.checkpoints.known_structures import known_places
from lib.checkpoints.memory import check_plan_memory
from lib.checkpoints.models import check_architecture, linear_places
from lib.checkpoints.module_spectra import described, kept_factors
from lib.checkpoints.plans import Module, Ranks, Rule
from lib.checkpoints.pruned_gains import pruned
from lib.checkpoints.races import HEAT
from lib.checkpoints.remainders import losses_without_remainders
from lib.checkpoints.samples import labels_of_samples
from lib.checkpoints.snapshots import last_of_runs, open_tuned
from lib.checkpoints.tables.decomposed import RANKED
from lib.checkpoints.tables.planned import BUDGETS, FOLDER, PRUNING
from lib.checkpoints.texts import Batch, batch_losses, digest, mean_of, pieces, read_batches
from lib.checkpoints.update_spectra import Triplets
from lib.files.files import clear
from lib.files.memory import available_memory
from lib.files.params import Count, Fraction, Interval, read_params
from lib.files.tables import read_json
from lib.training.devices import use_device
from lib.work.cells import Keep, Tables, kept
from lib.work.command import OutFolder, run
from lib.work.compute import available_cores, spread
from lib.work.schemas import write_joined

SEARCHED = 4  # losses that the search for a least budget takes, about, for each rule
QUOTED = 2  # rules of a budget that are measured, if not thoroughly: uniform, and the chosen one


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
    last = last_of_runs(begun, tuned)
    if text != "-" or known_places(begun) is None:
        check_architecture(base, begun.config)  # the library is loaded once, before workers would
    n_bytes = check_plan_memory(begun, text, params.device)
    table = RANKED.read(spectra)
    clear(plans, *(f"{name}.parquet" for name in FOLDER))
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
    write_joined(FOLDER, list(found), plans)


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
        places = known_places(ended) or linear_places(ended)
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


def unmeasured(params: Plan, sizes: Measure, modules: Mapping[str, Module]) -> Tables:
    """The tables where no text was given."""
    plans = plan_table(params.n_shuffles, sizes.budgets, modules, None, lambda _: np.nan)
    plans.insert(5, "share_lost", np.nan)
    earned = pd.DataFrame({"earned": [np.nan] * len(modules)})
    losses = pd.DataFrame([{"gain": np.nan}])
    return {
        "plans": plans,
        "modules": earned,
        "losses": losses,
        "budgets": BUDGETS.without("run").frame([]),
        "pruning": PRUNING.without("run").frame([]),
    }


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

    known: Known = {}

    def lost(ranks: Ranks) -> float:
        losses = keep(f"{ranks}", partial(measure.of, ranks))
        known[tuple(ranks[name] for name in modules)] = losses
        return mean_of(losses, measure.batches)

    plans = plan_table(params.n_shuffles, sizes.budgets, modules, earned, lost)
    plans.insert(5, "share_lost", measure.share_lost(plans["loss"]))
    noise = [measure.share_noise(known[tuple(ranks)]) for ranks in plans["ranks"]]
    plans.insert(6, "share_noise", noise)
    drop = linear.drop(others)
    searching = (measure, modules, earned, plans, known, params.max_loss_share)
    tried = least_budgets(*searching, lost, keep, thorough=thorough)
    pruning = list(pruned(params.pruning_rates, measure, keep))
    without = losses_without_remainders(measure, base, left, keep)
    choosing = batches[n_measured:]
    on = (base, measure, choosing, plans, whole, keep, params.device)
    columns, on_the_base = on_base(*on, saved=saved, left=left, thorough=thorough)
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
        **without,
        **n_labels,
        "n_samples": sum(len(next(iter(batch.values()))) for batch in batches),
        "n_samples_measured": sum(len(next(iter(batch.values()))) for batch in measure.batches),
    }
    return {
        "plans": plans.join(columns),
        "modules": pd.DataFrame({"earned": [earned[name] for name in modules]}),
        "losses": pd.DataFrame([losses]),
        "budgets": BUDGETS.without("run").frame(tried),
        "pruning": PRUNING.without("run").frame(pruning),
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


if __name__ == "__main__":
    run(main)
