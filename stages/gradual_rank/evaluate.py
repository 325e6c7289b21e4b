"""Compare theory with measurement: what git keeps of the family, tables for the figures and measures for the claims."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd

from lib.analysis.activation_times import activations, constants, control_shares, halvings, time_errors, with_control
from lib.analysis.descent_times import descent_errors, return_errors
from lib.analysis.disturbances import by_case, end_distances, share_below
from lib.analysis.first_directions import first_after, rise_errors, rise_ratios, rise_times
from lib.analysis.rank_budgets import departures, rank_errors, ranks_of_adapter, ranks_of_head
from lib.analysis.ranks import stable_rank
from lib.analysis.staircase import growth_shares, plateau_errors, relative_gaps, same_supports
from lib.io.command import run
from lib.io.params import Fraction, Interval, Positive, Seed, read_params
from lib.io.tables import compact, pick, read_table, write_csv, write_measures, write_table

Table = pd.DataFrame
Measures = dict[str, pd.Series | dict[str, pd.Series]]


@dataclass(frozen=True)
class Evaluate:
    """What is counted: a coordinate of a `significant` product, a plateau that stands `apart` or is `lasting`.

    The figures show the trajectories of one seed, `figure_seed` where it was run, else of the first.
    """

    significant: Positive
    apart: Annotated[float, Interval("[0, 1)")]
    lasting: Fraction
    n_budgets: Annotated[int, Interval("[2, 100000]")]
    figure_seed: Seed


@dataclass(frozen=True)
class Bars:
    """The init scale from which the error is C / log(1 / init_scale), and when what is disturbed has come back."""

    log10_init_scale: Annotated[float, Interval("[-1000, 0)")]
    returned: Positive
    near: Positive


def main(
    section: str,
    bars: str,
    risen: str,
    predictions: Path,
    flows: Path,
    descents: Path,
    disturbed: Path,
    rises: Path,
    spectra: Path,
    metrics: Path,
    curves: Path,
) -> None:
    """Write `tables`, `measures.json` and `summary.json` in metrics, and the curves of the loss."""
    params, bar, threshold = read_params(section, Evaluate), read_params(bars, Bars), read_params(risen, float)
    tables: dict[str, Table] = {}
    measured: Measures = {}
    for problem in ("small", "paper"):
        stages, predicted = (read_table(predictions / f"{problem}_{n}.parquet") for n in ("stages", "events"))
        times, plateaus, events = (
            read_table(flows / f"{problem}_{n}.parquet") for n in ("times", "plateaus", "events")
        )
        activated = activations(stages, events, predicted, params.significant)
        far = plateau_errors(stages, plateaus, params.apart, params.lasting)
        errors = time_errors(activated).merge(far, on=["seed", "log10_init_scale"], how="left")
        seed = min(times["seed"].unique(), key=lambda s: (s != params.figure_seed, s))
        if problem == "small":
            activated = with_control(activated, read_table(flows / "control.parquet"))
            measured["control_flipped_share"] = control_shares(activated)
            tables["small_ranks"] = ranks_of_head(events, predicted, stages, params.n_budgets)
            crossed, ends, tables["drop"] = (read_table(descents / f"{n}.parquet") for n in ("events", "ends", "drop"))
            tables["descents"] = descent_errors(crossed, ends, events)
        tables |= {
            f"{problem}_stages": stages.drop(columns="support"),
            f"{problem}_activations": activated,
            f"{problem}_errors": errors,
            f"{problem}_trajectories": times[times["seed"] == seed].drop(columns="time"),
        }
        found = theorem_measures(errors, stages, events, bar)
        same = same_supports(stages, plateaus, params.lasting, params.significant)
        measured |= {f"{problem}_{name}": values for name, values in found.items()}
        measured[f"{problem}_supports_of_the_flow"] = by_scale(same, "same")
    returns, kicks, paths = (read_table(disturbed / f"{name}.parquet") for name in ("returns", "kicks", "paths"))
    shown = paths[(paths["seed"] == params.figure_seed) & (paths["noise"] == "independent")]
    tables |= {"returns": returns, "kicks": kicks, "paths": shown}
    measured |= assumption_measures(returns, kicks, end_distances(paths), bar)
    measured |= descent_measures(tables["descents"]) | example_measures(tables["drop"])
    full = products_of(read_table(spectra))
    tables["full_weights"] = full[full["seed"] == params.figure_seed].drop(columns=["seed", "time", "stable_rank"])
    measured |= full_measures(read_table(rises), full, threshold)
    adapter = tables["forecast"] = ranks_of_adapter(read_table(predictions / "forecast.parquet"), params.n_budgets)
    measured |= {
        "rank_error_adapter": by_scale(rank_errors(adapter, "forecast"), "error"),
        "rank_error_head": by_scale(rank_errors(tables["small_ranks"], "finite"), "error"),
        "rank_error_head_limit": by_scale(rank_errors(tables["small_ranks"], "limit"), "error"),
    }
    for name, table in tables.items():
        write_table(compact(table), metrics / "tables" / f"{name}.parquet")
    write_measures({name: values for name, values in measured.items() if len(values)}, metrics)
    loss = tables["small_trajectories"]
    loss = loss.assign(variant="init scale 1e" + loss["log10_init_scale"].map("{:g}".format))
    write_csv(loss[["variant", "rescaled_time", "loss"]].iloc[::4], curves)


def by_scale(table: Table, column: str) -> dict[str, pd.Series]:
    """A column by seed, for every init scale, the smallest last."""
    scales = sorted(table["log10_init_scale"].unique(), reverse=True)
    return {f"1e{scale:g}": pick(table, log10_init_scale=scale)[column] for scale in scales}


def theorem_measures(errors: Table, stages: Table, events: Table, bar: Bars) -> Measures:
    """Theorem 4.5 as numbers, and Assumptions 4.2 and 4.3 at every stage."""
    median, worst = constants(errors, bar.log10_init_scale)
    later, left = stages[stages["stage"] > 0], stages["dropped"].map(len).groupby(stages["seed"]).sum()
    return {
        "time_constant": median,
        "worst_time_constant": worst,
        "halving": halvings(errors, bar.log10_init_scale),
        "order_agreement": by_scale(errors, "order_agreement"),
        "plateau_loss_error": by_scale(errors, "plateau_loss_error"),
        "final_product_error": by_scale(errors.dropna(subset="final_product_error"), "final_product_error"),
        "finite_time_error": by_scale(errors.dropna(subset="finite_error_median"), "finite_error_median"),
        "residual": stages.groupby("seed")["residual"].max(),
        "stages_that_grow_by_one": growth_shares(stages),
        "coordinates_that_leave": left,
        "coordinates_that_leave_the_flow": by_scale(departures(events, left.index.to_numpy()), "left"),
        "relative_gap": relative_gaps(stages),
        "strictness_products": later.groupby("seed")["strictness_products"].min(),
        "strictness_weights": later.groupby("seed")["strictness_weights"].min(),
    }


def assumption_measures(returns: Table, kicks: Table, ends: Table, bar: Bars) -> Measures:
    """Assumptions 4.3 and 4.4 by disturbances: a value for each, or, of the shares, for each seed."""
    found: Measures = {"kick_error_none": by_case(kicks[kicks["noise"] == "none"], "error", "stage")}
    for noise in ("balanced", "independent"):
        back, begun, ended = (table[table["noise"] == noise] for table in (returns, kicks, ends))
        random, rises = (back[back["kind"] == kind] for kind in ("random", "rise"))
        risen = ended[ended["kind"] == "rise"]
        found |= {
            f"rise_distance_{noise}": by_case(risen, "distance", "point"),
            f"rise_share_{noise}": share_below(risen, "distance", bar.near),
            f"rise_ratio_{noise}": by_case(rises, "ratio_products", "point"),
            f"return_ratio_{noise}": by_case(random, "ratio_products", "point"),
            f"return_share_{noise}": share_below(random, "ratio_products", bar.returned),
            f"weights_return_ratio_{noise}": by_case(random, "ratio_weights", "point"),
            f"kick_error_{noise}": by_case(begun, "error", "stage"),
            f"kick_share_{noise}": share_below(begun, "error", bar.near),
        }
    return found


def descent_measures(descents: Table) -> Measures:
    """Gradient descent against the flow; of the plain form at its largest and smallest rate."""
    shares = descents.loc[descents["form"] == "plain", "share_of_limit"]
    return {
        "exponential_time_error": pick(descents, form="exponential")["time_error"],
        "exponential_drift": pick(descents, form="exponential")["drift"],
        "factors_drift": pick(descents, form="factors")["drift"],
        "plain_time_error_large_rate": pick(descents, form="plain", share_of_limit=shares.max())["time_error"],
        "plain_time_error_small_rate": pick(descents, form="plain", share_of_limit=shares.min())["time_error"],
    }


def example_measures(drop: Table) -> Measures:
    """The example whose third coordinate comes back with the other sign, against Algorithm 1, by method."""
    errors = return_errors(drop[(drop["coordinate"] == 2) & (drop["sign"] < 0)], "Algorithm 1")
    plain = ["plain gradient descent, float64", "plain gradient descent, float32"]
    return {
        "drop_flow_time_error": errors.reindex(["flow in log coordinates"], fill_value=math.inf),
        "drop_finite_time_error": errors.reindex(["finite-scale Algorithm 1"], fill_value=math.inf),
        "drop_factors_time_error": errors.reindex(["factors gradient descent, float64"], fill_value=math.inf),
        "drop_reached_by_plain": errors.reindex(plain, fill_value=math.inf) < math.inf,
        "drop_loss_detected": drop.groupby("method")["lost"].any().reindex(plain, fill_value=False),
    }


def products_of(spectra: Table) -> Table:
    """The singular values of both products by time, and their stable ranks."""
    chosen = spectra[spectra["matrix"].isin(["W_KQ", "W_VO"]) & (spectra["of"] == "update")]
    time = chosen["step"] * chosen["learning_rate"]
    rescaled = time / (-chosen["log10_init_scale"] * math.log(10))
    kept = chosen[["seed", "log10_init_scale", "matrix", "step", "singular_values"]]
    ranks = stable_rank(np.stack(list(chosen["singular_values"])))
    return kept.assign(time=time, rescaled_time=rescaled, stable_rank=ranks)


def full_measures(rises: Table, full: Table, threshold: float) -> Measures:
    """When the first direction of the full matrices rises against theory: the worst over the scales, for each seed.

    At the smallest scale, the stable rank of both products at the first snapshot after that rise and at the end, and
    when the second direction of W_VO and the first of W_KQ rise, over when the first of W_VO does, by the snapshots.
    """
    scale, seeds = full["log10_init_scale"].min(), full["seed"].unique()
    smallest = full[full["log10_init_scale"] == scale].sort_values("step")
    W_KQ, W_VO = (smallest[smallest["matrix"] == name] for name in ("W_KQ", "W_VO"))
    first = rise_times(W_VO, 1, threshold)
    return {
        **{f"full_first_rise_{name}": rise_errors(rises, full, name) for name in ("limit", "finite", "stepped")},
        "full_first_stable_rank_VO": first_after(W_VO, pick(rises, log10_init_scale=scale)["time"], "stable_rank"),
        "full_final_stable_rank_KQ": W_KQ.groupby("seed")["stable_rank"].last(),
        "full_final_stable_rank_VO": W_VO.groupby("seed")["stable_rank"].last(),
        "full_second_over_first_VO": rise_ratios(rise_times(W_VO, 2, threshold), first, seeds),
        "full_first_KQ_over_first_VO": rise_ratios(rise_times(W_KQ, 1, threshold), first, seeds),
    }


if __name__ == "__main__":
    run(main)
