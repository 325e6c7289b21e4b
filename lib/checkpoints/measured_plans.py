"""The plans of a fine-tune, and what is measured of them on a text.

A plan cuts the update of every linear module to a rank; embeddings, heads, norms and biases stay
tuned, and what they moved is measured apart. `share_lost` is 0 for the whole update of the linear
modules and 1 for none of it. Budgets are parameters, stated as the uniform rank that costs as much.
`loss_on_base` is the loss of the base with a plan's adapter as peft loads it, in the type in which
the base is stored; of embeddings, head, norms and biases it has what an adapter carries whole.
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
`loss_without_experts` is that with those of the base. Modules that no plan has stay tuned, and
`losses_left` are those with the base's in place of each kind of them. What the tuned model alone
has is `alone` (a bias, a head that the base ties): `loss_without_alone` is that without it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import pandas as pd

from lib.checkpoints.attribution import attributed
from lib.checkpoints.budgets import least_budgets, plan_table, with_losses
from lib.checkpoints.choices import on_base
from lib.checkpoints.folders import Checkpoint, aligned, open_checkpoint
from lib.checkpoints.gains import (
    PARTS,
    GainMeasure,
    LinearUpdates,
    Parts,
    measured_ends,
    opened_updates,
    places_of_updates,
)
from lib.checkpoints.module_spectra import described, kept_factors
from lib.checkpoints.plans import Module, Rule
from lib.checkpoints.pruned_gains import pruned
from lib.checkpoints.races import HEAT
from lib.checkpoints.remainders import losses_without_remainders
from lib.checkpoints.samples import count_labels, count_samples
from lib.checkpoints.snapshots import open_tuned
from lib.checkpoints.split_texts import Measure, Split, split_text
from lib.checkpoints.tables.planned import BUDGETS, PRUNING
from lib.checkpoints.texts import batch_losses, pieces
from lib.checkpoints.update_spectra import Triplets
from lib.files.params import Fraction, Interval
from lib.work.cells import Keep, Tables, kept

SEARCHED = 4  # losses that the search for a least budget takes, about, for each rule
QUOTED = 2  # rules of a budget that are measured, if not thoroughly: uniform, and the chosen one


@dataclass(frozen=True)
class Plan:
    """How many nulls a plan has, how finely losses are attributed, which budgets are searched, and
    what is pruned.
    """

    n_shuffles: Annotated[int, Interval("[0, 1000]")]
    n_points: Annotated[int, Interval("[1, 10000]")]
    max_loss_share: Fraction
    pruning_rates: tuple[Fraction, ...]
    device: str


def n_losses(params: Plan, sizes: Measure, *, thorough: bool = True) -> int:
    """How many losses a checkpoint needs, about: of plans, searches, pruning and attribution."""
    n_rules = len(get_args(Rule))
    on_the_base = 2 * n_rules
    if not thorough:
        n_parts = sizes.n_choosing_batches * min(PARTS, sizes.batch_size)
        on_the_base = QUOTED + (2 if n_parts > HEAT else 1) * n_rules
    of_budget = n_rules + params.n_shuffles + on_the_base
    return len(sizes.budgets) * of_budget + SEARCHED * n_rules + 3 * len(params.pruning_rates) + 5


def tables_of_plans(
    params: Plan,
    sizes: Measure,
    base: Path,
    tuned: Path,
    factors: Path,
    text: str,
    spectra: pd.DataFrame,
    *,
    saved: bool = False,
    left: Collection[str] = (),
    thorough: bool = True,
) -> Tables:
    """The tables of a fine-tune, from the rows of its spectra and the folder of its factors.

    Some of its modules may be `left` out. An adapter carries whole what else was tuned if it is
    `saved`. What was measured is kept: an interrupted plan goes on after the last loss.
    """
    begun = open_checkpoint(base)
    ended = open_tuned(tuned, begun)
    begun = aligned(begun, ended)
    if text == "-":
        modules, table = described(ended, places_of_updates(begun, ended, left), spectra)
        found = unmeasured_tables(params.n_shuffles, sizes.budgets, modules)
    else:
        split = split_text(begun, ended, Path(text), sizes, params.device)
        files = [*begun.files, *ended.files, Path(text), *sorted(factors.glob("*"))]
        given = {
            "n_points": params.n_points,
            "device": params.device,
            "sizes": asdict(sizes),
            "spectra": spectra.to_json(),
            "modules_to_save": saved,
            "without": sorted(left),
            "thorough": thorough,
        }
        with kept(tables_of_plans, *files, given, device=params.device) as keep:
            linear, places = opened_updates(begun, ended, params.device, left)
            modules, table = described(ended, places, spectra)
            held = kept_factors(factors, modules, table)
            how = {"saved": saved, "left": left, "thorough": thorough}
            pair = (begun, ended)
            found = measured_tables(params, sizes, *pair, linear, held, modules, split, keep, **how)
    found["modules"] = table.join(found["modules"])
    return found


def unmeasured_tables(
    n_shuffles: int, budgets: Sequence[int], modules: Mapping[str, Module]
) -> Tables:
    """The tables where no text was given."""
    plans = plan_table(n_shuffles, budgets, modules, None)
    return {
        "plans": plans.assign(loss=np.nan, share_lost=np.nan),
        "modules": pd.DataFrame({"earned": [np.nan] * len(modules)}),
        "losses": pd.DataFrame([{"gain": np.nan}]),
        "budgets": BUDGETS.without("run").frame([]),
        "pruning": PRUNING.without("run").frame([]),
    }


def measured_tables(
    params: Plan,
    sizes: Measure,
    base: Checkpoint,
    tuned: Checkpoint,
    linear: LinearUpdates,
    factors: Mapping[str, Triplets],
    modules: Mapping[str, Module],
    text: Split,
    keep: Keep,
    *,
    saved: bool,
    left: Collection[str],
    thorough: bool,
) -> Tables:
    """The tables with what is measured on a text, of a tuned model with its updates, their factors,
    and what the rules know of its modules.

    The tuned model comes first and is let go of; then comes the base.
    """
    attributing = pieces(text.attributing, sizes.batch_size)
    whole, ends = measured_ends(base, tuned, linear, Parts(text.measured), params.device)
    if thorough:  # by batches too: from the mean of its parts a batch may differ by some 1e-7
        linear.set(linear.tuned.items())
        ends = ends._replace(tuned=batch_losses(linear.model, text.measured))
    measure = GainMeasure(linear, factors, text.measured, ends)
    earned = keep("attribution", partial(attributed, linear, attributing, params.n_points))
    plans = plan_table(params.n_shuffles, sizes.budgets, modules, earned)
    plans, known = with_losses(plans, modules, measure, keep)
    drop = linear.drop(attributing)
    share = params.max_loss_share
    searching = (measure, modules, earned, plans, known, share, keep)
    tried = least_budgets(*searching, thorough=thorough)
    pruning = list(pruned(params.pruning_rates, measure, keep))
    without = losses_without_remainders(measure, base, left, keep)
    on = (base, measure, text.choosing, plans, whole, keep, params.device)
    columns, on_the_base = on_base(*on, saved=saved, left=left, thorough=thorough)
    losses = {
        "loss_tuned": measure.tuned,
        "loss_without_linear": measure.none,
        "gain": measure.gain,
        "attributed": sum(earned[name] for name in modules),
        "drop": drop,
        **on_the_base,
        **without,
        "n_labels_attributing": count_labels(attributing),
        "n_labels_choosing": count_labels(text.choosing),
        "n_labels_measured": count_labels(text.measured),
        "n_samples": count_samples(text.batches),
        "n_samples_measured": count_samples(text.measured),
    }
    return {
        "plans": plans.join(columns),
        "modules": pd.DataFrame({"earned": [earned[name] for name in modules]}),
        "losses": pd.DataFrame([losses]),
        "budgets": BUDGETS.without("run").frame(tried),
        "pruning": PRUNING.without("run").frame(pruning),
    }
