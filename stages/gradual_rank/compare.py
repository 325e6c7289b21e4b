"""Compare theory with measurement: what git keeps of the family, tables for the figures and measures for the claims."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from lib.analysis.staircase import grows_by_one, order_agreement, rank_at, relative_errors
from lib.io.command import run
from lib.io.params import Interval, Positive, Seed, read_params
from lib.io.tables import compact, read_table, write_csv, write_json, write_table

LOG10 = math.log(10)
Table = pd.DataFrame
Measures = dict[str, Any]  # a value a seed or case, by its number


@dataclass(frozen=True)
class Compare:
    """What is counted: a coordinate of a `significant` product, a plateau that stands `apart` or is `lasting`, a
    direction of the full matrices whose singular value has `risen`.

    Shares of its time: apart, by which the candidate after the next stage's is later (Assumption 4.2); lasting, how
    long it lasts. The figures show the trajectories of one seed, `figure_seed` where it was run.
    """

    significant: Positive
    apart: Annotated[float, Interval("[0, 1)")]
    lasting: Annotated[float, Interval("[0, 1]")]
    n_budgets: Annotated[int, Interval("[2, 100000]")]
    risen: Positive
    figure_seed: Seed


def main(
    section: str,
    predictions: Path,
    flows: Path,
    descents: Path,
    disturbed: Path,
    rises: Path,
    spectra: Path,
    forecast: Path,
    metrics: Path,
    curves: Path,
) -> None:
    params = read_params(section, Compare)
    tables: dict[str, Table] = {}
    measured: Measures = {}
    for problem in ("small", "paper"):
        stages, predicted = (read_table(predictions / f"{problem}_{name}.parquet") for name in ("stages", "events"))
        times, plateaus, events = (
            read_table(flows / f"{problem}_{name}.parquet") for name in ("times", "plateaus", "events")
        )
        activations = activations_of(stages, events, predicted, params.significant)
        errors = errors_of(activations, stages, plateaus, params)
        seed = min(times["seed"].unique(), key=lambda s: (s != params.figure_seed, s))
        tables |= {
            f"{problem}_stages": stages_for_git(stages),
            f"{problem}_activations": activations,
            f"{problem}_errors": errors,
            f"{problem}_trajectories": times[times["seed"] == seed].drop(columns="time"),
            f"{problem}_ranks": ranks_of(events, predicted, stages, params),
        }
        measured |= theorem_measures(errors, stages, events, problem)
        measured |= plateau_measures(stages, plateaus, problem, params)
    tables["small_activations"] = with_control(tables["small_activations"], read_table(flows / "control.parquet"))
    measured |= control_measures(tables["small_activations"])
    returns, kicks, paths = (read_table(disturbed / f"{name}.parquet") for name in ("returns", "kicks", "paths"))
    measured |= assumption_measures(returns, kicks, paths)
    shown = paths[(paths["seed"] == params.figure_seed) & (paths["noise"] == "independent")]
    tables |= {"returns": returns, "kicks": kicks, "paths": shown}
    ends, drop = (read_table(descents / f"{name}.parquet") for name in ("ends", "drop"))
    events = read_table(flows / "small_events.parquet")
    tables |= {"descents": descents_of(read_table(descents / "events.parquet"), ends, events), "drop": drop}
    measured |= descent_measures(tables["descents"], drop)
    full = read_table(spectra)
    full = full.assign(time=full["step"] * full["learning_rate"])
    tables |= {"rises": read_table(rises), "full_weights": full_for_git(full, params)}
    measured |= full_measures(tables["rises"], full, params)
    tables["forecast"] = forecasts_of(read_table(forecast), params)
    measured |= forecast_measures(tables["forecast"], tables["small_ranks"])
    for name, table in tables.items():
        write_table(compact(table), metrics / f"{name}.parquet")
    write_measures(measured, metrics)
    loss = tables["small_trajectories"]
    loss = loss.assign(variant="init scale 1e" + loss["log10_init_scale"].map("{:g}".format))
    write_csv(loss[["variant", "rescaled_time", "loss"]].iloc[::4], curves)


def write_measures(measured: Measures, metrics: Path) -> None:
    """Measures for the claims, a value a seed or case, and their means for `dvc metrics`."""
    values = {name: pd.Series(dict(cases), dtype=float) for name, cases in measured.items()}
    write_json(
        {name: {"seeds": [int(s) for s in one.index], "values": one.tolist()} for name, one in values.items()},
        metrics / "measures.json",
    )
    write_json(
        {name: {"mean": float(v.mean()), "sd": float(v.std())} for name, v in values.items()}, metrics / "summary.json"
    )


def stages_for_git(stages: Table) -> Table:
    """Stage tables with the products in single precision."""
    kept = stages.drop(columns=["support"])
    return kept.assign(p=pd.Series([np.asarray(p, np.float32) for p in kept["p"]], kept.index))


def activations_of(stages: Table, events: Table, predicted: Table, significant: float) -> Table:
    """A row for each significant coordinate, seed and scale: T_k, when it was active, when the finite scale says so."""
    later = stages[stages["stage"] > 0]
    product = np.array([abs(p[i]) for p, i in zip(later["p"], later["coordinate"], strict=True)])
    first = later[product > significant].drop_duplicates(["seed", "coordinate"])
    key = ["seed", "log10_init_scale", "coordinate"]
    measured = events[events["rises"]].groupby(key)["time"].min().rename("measured")
    finite = predicted[predicted["rises"]].groupby(key)["time"].min().rename("finite")
    scales = pd.DataFrame({"log10_init_scale": sorted(events["log10_init_scale"].unique())})
    rows = first[["seed", "coordinate", "sign", "stage", "time"]].rename(columns={"time": "predicted"})
    rows = rows.merge(scales, how="cross").join(measured, on=key).join(finite, on=key)
    unit = -rows["log10_init_scale"] * LOG10
    forecast = rows["log10_init_scale"].isin(predicted["log10_init_scale"].unique())
    return rows.assign(
        measured=rows["measured"].fillna(math.inf) / unit,
        finite=np.where(forecast, rows["finite"].fillna(math.inf) / unit, math.nan),
    )


def errors_of(activations: Table, stages: Table, plateaus: Table, params: Compare) -> Table:
    """A row a seed and scale: how far Algorithm 1 and its finite-scale form are from the flow.

    The final products are those of the last plateau that lasts.
    """
    theory = stages[["seed", "stage", "loss", "p", "gap", "next_time"]].assign(begin=stages["time"])
    met = plateaus[plateaus["stage"] > 0].merge(theory, on=["seed", "stage"], suffixes=("", "_theory"))
    met = met.assign(
        loss_error=(met["loss"] - met["loss_theory"]).abs(),
        product_error=[float(np.abs(a - b).max()) for a, b in zip(met["p"], met["p_theory"], strict=True)],
        apart=met["gap"] / met["next_time"] > params.apart,
        lasting=met["next_time"] / met["begin"] - 1 > params.lasting,
    )
    rows = []
    for (seed, scale), part in _cells(activations):
        predicted, measured, finite = (part[name].to_numpy() for name in ("predicted", "measured", "finite"))
        error = relative_errors(measured, predicted, predicted)
        seen = np.isfinite(measured) & (measured > 0)
        off = relative_errors(finite[seen], measured[seen], measured[seen])
        here = met[(met["seed"] == seed) & (met["log10_init_scale"] == scale)]
        final = here[here["lasting"] & (here["stage"] == here.loc[here["lasting"], "stage"].max())]
        rows.append(
            {
                "seed": seed,
                "log10_init_scale": scale,
                "log_scale": -scale * LOG10,
                "time_error_median": float(np.median(error)),
                "time_error_max": float(error.max()),
                "order_agreement": order_agreement(measured, predicted),
                "exact_order": bool(np.array_equal(np.argsort(measured, kind="stable"), np.argsort(predicted))),
                "plateau_loss_error": float(here["loss_error"].median()),
                "plateau_loss_error_apart": float(here.loc[here["apart"], "loss_error"].median()),
                "plateau_product_error": float(here["product_error"].median()),
                "final_product_error": float(final["product_error"].max()),
                "final_stage": float(final["stage"].max()),
                "finite_error_median": float(np.median(off)) if not np.isnan(finite).all() else math.nan,
                "finite_error_max": float(off.max(initial=0.0)) if not np.isnan(finite).all() else math.nan,
            }
        )
    return pd.DataFrame(rows)


def ranks_of(events: Table, predicted: Table, stages: Table, params: Compare) -> Table:
    """The rank at every budget: measured, by the finite-scale form, and in the limit."""
    tables = []
    limit_end = stages.groupby("seed")["time"].max()
    for (seed, scale), part in _cells(predicted):
        flow = events[(events["seed"] == seed) & (events["log10_init_scale"] == scale)]
        if not len(flow):
            continue
        unit = -scale * LOG10
        times = np.linspace(0, limit_end[seed], params.n_budgets)
        own = stages[(stages["seed"] == seed) & (stages["stage"] > 0)]
        dropped = own.loc[own["dropped"].map(len) > 0, ["time", "dropped"]]
        left = np.array([t for t, d in zip(dropped["time"], dropped["dropped"], strict=True) for _ in d], dtype=float)
        tables.append(
            pd.DataFrame(
                {
                    "seed": seed,
                    "log10_init_scale": scale,
                    "rescaled_time": times,
                    "measured": rank_of(flow, times * unit),
                    "finite": rank_of(part, times * unit),
                    "limit": rank_at(times, own["time"].to_numpy(), left),
                }
            )
        )
    columns = ["seed", "log10_init_scale", "rescaled_time", "measured", "finite", "limit"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns, dtype=float)


def rank_of(events: Table, times: np.ndarray) -> np.ndarray:
    """How many coordinates are above the threshold at each time."""
    rises = events["rises"].to_numpy(bool)
    return rank_at(times, events["time"].to_numpy()[rises], events["time"].to_numpy()[~rises])


def _cells(table: Table) -> Iterator[tuple[tuple[int, float], Table]]:
    """The rows of each seed and scale."""
    yield from table.groupby(["seed", "log10_init_scale"])  # pyright: ignore


def by_seed(table: Table, scale: float, column: str) -> pd.Series:
    return table[table["log10_init_scale"] == scale].set_index("seed")[column]


def theorem_measures(errors: Table, stages: Table, events: Table, problem: str) -> Measures:
    """Theorem 4.5 as numbers, a value for each seed, over the scales that the problem has."""
    tiny = errors[errors["log10_init_scale"] <= -4]
    constants = {
        "time_constant": (tiny["time_error_median"] * tiny["log_scale"]).groupby(tiny["seed"]).median(),
        "worst_time_constant": (tiny["time_error_max"] * tiny["log_scale"]).groupby(tiny["seed"]).max(),
    }
    # The halving is of the median over the seeds: one number for each doubling of log(1 / init_scale).
    medians = errors.groupby("log10_init_scale")["time_error_median"].median()
    halves = {int(-s): medians[2 * s] / medians[s] for s in medians.index if s <= -4 and 2 * s in medians.index}
    found: Measures = {**constants, "halving": halves}
    for name, scale in (("1e8", -8), ("1e16", -16), ("1e32", -32), ("1e64", -64), ("1e300", -300)):
        found[f"order_agreement_{name}"] = by_seed(errors, scale, "order_agreement")
        found[f"plateau_loss_error_{name}"] = by_seed(errors, scale, "plateau_loss_error")
        found[f"final_product_error_{name}"] = by_seed(errors, scale, "final_product_error").dropna()
    for name, scale in (("1e2", -2), ("1e4", -4), ("1e8", -8), ("1e32", -32), ("1e300", -300)):
        found[f"finite_time_error_{name}"] = by_seed(errors, scale, "finite_error_median").dropna()
    found["residual"] = stages.groupby("seed")["residual"].max()
    rule = {}
    for seed, rows in stages.groupby("seed"):
        supports, joined = [np.asarray(s, bool) for s in rows["support"]], rows["coordinate"].tolist()
        kept = [grows_by_one(a, b, i) for a, b, i in zip(supports[:-1], supports[1:], joined[1:], strict=True)]
        rule[seed] = float(np.mean(kept)) if kept else 1.0
    found["stages_that_grow_by_one"] = rule
    left = stages["dropped"].map(len).groupby(stages["seed"]).sum()
    found["coordinates_that_leave"] = left
    falls = events[~events["rises"] & (events["log10_init_scale"] == -32)].groupby("seed").size()
    found["coordinates_that_leave_the_flow"] = falls.reindex(left.index, fill_value=0)
    return {f"{problem}_{name}": values for name, values in found.items() if len(values)}


def plateau_measures(stages: Table, plateaus: Table, problem: str, params: Compare) -> Measures:
    """Assumptions 4.2 and 4.3 at every stage, a value for each seed; and whether the flow has Algorithm 1's supports.

    Those of the plateaus that last, at 1e-64: the share at which the significant products are the same.
    """
    later, finite = stages[stages["stage"] > 0], stages[np.isfinite(stages["next_time"])]
    lasting = later[later["next_time"] / later["time"] - 1 > params.lasting]
    both = lasting.merge(plateaus[plateaus["log10_init_scale"] == -64], on=["seed", "stage"], suffixes=("", "_flow"))
    same = [
        np.array_equal(np.abs(p) > params.significant, np.abs(q) > params.significant)
        for p, q in zip(both["p"], both["p_flow"], strict=True)
    ]
    found: Measures = {
        "relative_gap": (finite["gap"] / finite["next_time"]).groupby(finite["seed"]).min(),
        "strictness_products": later.groupby("seed")["strictness_products"].min(),
        "strictness_weights": later.groupby("seed")["strictness_weights"].min(),
        "supports_of_the_flow_1e64": pd.Series(same, both["seed"], dtype=float).groupby(level=0).mean(),
    }
    return {f"{problem}_{name}": values for name, values in found.items() if len(values)}


def with_control(activations: Table, control: Table) -> Table:
    """Beside each activation, when the flow with the sign of g flipped makes it at the control's scale, if ever."""
    key = ["seed", "coordinate", "sign"]
    risen = control[control["rises"]]
    made = risen.assign(flipped=risen["time"] / (-risen["log10_init_scale"] * LOG10)).groupby(key)["flipped"].min()
    rows = activations.join(made, on=key)
    return rows.assign(flipped=rows["flipped"].fillna(math.inf))


def control_measures(activations: Table) -> Measures:
    """The share of the predicted activations, coordinate and sign, that the flow with g's sign flipped makes."""
    wanted = activations.drop_duplicates(["seed", "coordinate"])
    return {"control_flipped_share": (wanted["flipped"] < math.inf).groupby(wanted["seed"]).mean()}


def assumption_measures(returns: Table, kicks: Table, paths: Table) -> Measures:
    """Assumptions 4.3 and 4.4 by disturbances: a value for each, or, of the shares, for each seed.

    Where a coordinate rises, the disturbed products are as small as the noise squared, and what it moves later may be
    larger: there the distance at the end is taken, of the coordinates that were disturbed.
    """
    random, rises = (returns[returns["kind"] == kind] for kind in ("random", "rise"))
    ends = paths[(paths["kind"] == "rise") & (paths["after"] == paths["after"].max())]
    apart = pd.Series(
        [float(np.abs(a - b).max()) for a, b in zip(ends["p"], ends["p_undisturbed"], strict=True)], ends.index, float
    )
    found: Measures = {"kick_error_none": kicks[kicks["noise"] == "none"]["error"]}
    for noise in ("balanced", "independent"):
        back, begun = random[random["noise"] == noise], kicks[kicks["noise"] == noise]
        risen = apart[ends["noise"] == noise]
        found[f"rise_distance_{noise}"] = risen
        found[f"rise_share_{noise}"] = (risen < 0.05).groupby(ends.loc[risen.index, "seed"]).mean()
        found[f"rise_ratio_{noise}"] = rises.loc[rises["noise"] == noise, "ratio_products"]
        found[f"return_ratio_{noise}"] = back["ratio_products"]
        found[f"return_share_{noise}"] = (back["ratio_products"] < 1e-2).groupby(back["seed"]).mean()
        found[f"weights_return_ratio_{noise}"] = back["ratio_weights"]
        found[f"kick_error_{noise}"] = begun["error"]
        found[f"kick_share_{noise}"] = (begun["error"] < 0.05).groupby(begun["seed"]).mean()
    cases = ("kick_error", "return_ratio", "weights_return", "rise_distance", "rise_ratio")
    return {
        name: values.reset_index(drop=True) if name.startswith(cases) else values
        for name, values in found.items()
        if len(values)
    }


def descents_of(descents: Table, ends: Table, flow: Table) -> Table:
    """A row for each descent: its median time error against the flow, 1 where it never activates, and how it ended."""
    key = ["form", "share_of_limit", "seed"]
    scale = float(ends["log10_init_scale"].iloc[0])
    flow = flow[flow["rises"] & (flow["log10_init_scale"] == scale)]
    truth = flow.groupby(["seed", "coordinate"])["time"].min().rename("flow")
    times = descents[descents["rises"]].groupby([*key, "coordinate"])["time"].min()
    both = ends[key].merge(truth.reset_index(), on="seed").join(times, on=[*key, "coordinate"])
    both["error"] = relative_errors(*(both[name].fillna(math.inf).to_numpy() for name in ("time", "flow", "flow")))
    error = both.groupby(key)["error"].median().rename("time_error")
    return ends.merge(error.reset_index(), on=key, how="left")


def descent_measures(descents: Table, drop: Table) -> Measures:
    """Gradient descent against the flow; the example whose third coordinate comes back with the other sign."""
    exponential = descents[descents["form"] == "exponential"].set_index("seed")
    plain = descents[descents["form"] == "plain"]
    fewest, most = plain["share_of_limit"].min(), plain["share_of_limit"].max()
    slow, fast = (plain[plain["share_of_limit"] == share].set_index("seed")["time_error"] for share in (fewest, most))
    returns = drop[(drop["coordinate"] == 2) & (drop["sign"] < 0)]
    truth = float(returns.loc[returns["method"] == "Algorithm 1", "rescaled_time"].iloc[0])

    def error(method: str) -> float:
        """At the smallest scale of the method; infinite where the coordinate never comes back."""
        rows = returns[returns["method"] == method].sort_values("log10_init_scale")
        return float(abs(rows["rescaled_time"].iloc[0] / truth - 1)) if len(rows) else math.inf

    exact = [f"plain gradient descent, {precision}" for precision in ("float64", "float32")]
    return {
        "exponential_time_error": exponential["time_error"],
        "exponential_drift": exponential["drift"],
        "factors_drift": descents[descents["form"] == "factors"].set_index("seed")["drift"],
        "plain_time_error_large_rate": fast,
        "plain_time_error_small_rate": slow,
        "drop_flow_time_error": {0: error("flow in log coordinates")},
        "drop_finite_time_error": {0: error("finite-scale Algorithm 1")},
        "drop_factors_time_error": {0: error("factors gradient descent, float64")},
        "drop_reached_by_plain": {i: float(math.isfinite(error(method))) for i, method in enumerate(exact)},
        "drop_loss_detected": {i: float(drop.loc[drop["method"] == m, "lost"].any()) for i, m in enumerate(exact)},
    }


def full_for_git(spectra: Table, params: Compare) -> Table:
    """The singular values of both products of one seed by time."""
    chosen = spectra[spectra["matrix"].isin(["W_KQ", "W_VO"]) & (spectra["of"] == "update")]
    chosen = chosen[chosen["seed"] == params.figure_seed]
    values = pd.Series([np.asarray(v, np.float32) for v in chosen["singular_values"]], chosen.index)
    rescaled = chosen["time"] / (-chosen["log10_init_scale"] * LOG10)
    kept = chosen[["log10_init_scale", "matrix", "step", "stable_rank"]]
    return kept.assign(rescaled_time=rescaled, singular_values=values)


def full_measures(rises: Table, spectra: Table, params: Compare) -> Measures:
    """When the first direction of the full matrices rises against theory: the worst over the scales, for each seed.

    At the smallest scale, the stable rank of both products at the first snapshot after that rise and at the end, and
    when the second direction of W_VO and the first of W_KQ rise, over when the first of W_VO does, by the snapshots.
    """
    found: Measures = {}
    runs = spectra[["seed", "log10_init_scale"]].drop_duplicates().set_index(["seed", "log10_init_scale"]).index
    risen = rises.set_index(["seed", "log10_init_scale"]).reindex(runs)
    for name in ("limit", "finite", "stepped"):
        error = (risen[name] / risen["time"] - 1).abs().fillna(math.inf)
        found[f"full_first_rise_{name}"] = error.groupby(level="seed").max()
    scale = spectra["log10_init_scale"].min()
    kept = spectra[(spectra["of"] == "update") & (spectra["log10_init_scale"] == scale)]
    first = rises[rises["log10_init_scale"] == scale].set_index("seed")["time"]
    begins = {}
    for matrix in ("KQ", "VO"):
        rows = kept[kept["matrix"] == f"W_{matrix}"].sort_values("step")
        above = rows["singular_values"].map(lambda sigma: (np.asarray(sigma) > params.risen).sum())
        begins[matrix] = {k: rows.loc[above >= k, ["seed", "time"]].groupby("seed")["time"].min() for k in (1, 2)}
        if matrix == "VO":
            after = rows[rows["time"] >= rows["seed"].map(first)]
            found["full_first_stable_rank_VO"] = after.groupby("seed")["stable_rank"].first()
        found[f"full_final_stable_rank_{matrix}"] = rows.groupby("seed")["stable_rank"].last()
    for name, later in (("second_over_first_VO", begins["VO"][2]), ("first_KQ_over_first_VO", begins["KQ"][1])):
        found[f"full_{name}"] = (later / begins["VO"][1]).reindex(kept["seed"].unique()).fillna(math.inf)
    return found


def forecasts_of(events: Table, params: Compare) -> Table:
    """The adapter's rank at every budget, forecast and measured; a row a seed, scale and budget."""
    tables = []
    for (seed, scale), part in _cells(events):
        times = np.linspace(0, part["end"].iloc[0], params.n_budgets)
        ranks = {name: rank_of(part[part["source"] == name], times) for name in ("forecast", "measured")}
        tables.append(pd.DataFrame({"seed": seed, "log10_init_scale": scale, "time": times, **ranks}))
    return pd.concat(tables, ignore_index=True)


def forecast_measures(forecasts: Table, ranks: Table) -> Measures:
    """Mean difference of the forecast rank from the measured one over all budgets, by scale, a value a seed."""
    found: Measures = {}
    sources = (("adapter", forecasts, "forecast"), ("head", ranks, "finite"), ("head_limit", ranks, "limit"))
    for name, table, column in sources:
        gap = (table[column] - table["measured"]).abs()
        for scale, rows in gap.groupby(table["log10_init_scale"]):
            digits = f"{-scale:g}".replace(".", "_")
            found[f"rank_error_{name}_1e{digits}"] = rows.groupby(table.loc[rows.index, "seed"]).mean()
    return found


if __name__ == "__main__":
    run(main)
