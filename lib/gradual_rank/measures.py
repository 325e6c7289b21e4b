"""What claims say of heads and full matrices: a value a seed, from tables of flows and stages."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from lib.files.tables import pick
from lib.gradual_rank.scales import LOG10
from lib.matrices.ranks import stable_rank
from lib.pages.measures import Values

Table = pd.DataFrame
Vector = Float[np.ndarray, " n"]
CELL = ["seed", "log10_init_scale"]

PLATEAU_ERRORS = ["plateau_loss_error", "plateau_product_error", "final_product_error"]
BY_SCALE = {  # measures of every seed at each scale, and their columns of the table of errors
    "limit_error": "time_error_median",
    "order_agreement": "order_agreement",
    "plateau_loss_error": "plateau_loss_error",
    "plateau_product_error": "plateau_product_error",
    "finite_time_error": "finite_error_median",
    "supports": "same",
    "charge_constant": "constant",
    "rise_ratio": "ratio",
    "wait_ratio": "wait_ratio",
}


def by_cell(table: Table, columns: Sequence[str], of: Callable[[Table], Sequence[Any]]) -> Table:
    """A row for every seed and scale of a table: what `of` makes of its rows, as these columns."""
    rows = [(*cell, *of(part)) for cell, part in table.groupby(CELL)]  # pyright: ignore
    return pd.DataFrame(rows, columns=[*CELL, *columns])


def apart(p: pd.Series, q: pd.Series) -> pd.Series:
    """The largest difference of an entry of two arrays, row by row."""
    found = [float(np.abs(a - b).max()) for a, b in zip(p, q, strict=True)]
    return pd.Series(found, p.index, float)


def beside_theory(plateaus: Table, stages: Table, columns: Sequence[str]) -> Table:
    """The plateaus of a flow but the first, with these columns of their stages of Algorithm 1.

    What both have is `_theory` of the stages; `begin` is when these begin.
    """
    theory = stages[["seed", "stage", *columns]].assign(begin=stages["time"])
    later = plateaus[plateaus["stage"] > 0]
    return later.merge(theory, on=["seed", "stage"], suffixes=("", "_theory"))


def stage_measures(stages: Table) -> dict[str, pd.Series]:
    """How many coordinates leave, how strict a minimum every plateau is, and the last loss."""
    later = stages[stages["stage"] > 0].groupby("seed")
    return {
        "last_loss": stages.sort_values("stage").groupby("seed")["loss"].last(),
        "coordinates_that_leave": stages.groupby("seed")["n_dropped"].sum(),
        "strictness_weights": later["strictness_weights"].min(),
    }


def by_scale(table: Table, column: str) -> dict[str, pd.Series]:
    """A column by seed, for every init scale at which it was taken, the smallest last."""
    table = table.dropna(subset=column)
    scales = sorted(table["log10_init_scale"].unique(), reverse=True)
    return {f"1e{scale:g}": pick(table, log10_init_scale=scale)[column] for scale in scales}


def measures_by_scale(errors: Table) -> dict[str, dict[str, pd.Series]]:
    """Every measure of a table of errors, one row per seed and scale."""
    return {name: by_scale(errors, column) for name, column in BY_SCALE.items()}


def same_supports(stages: Table, plateaus: Table, significant: float) -> Table:
    """The share of the plateaus at whose middle the flow has Algorithm 1's significant products.

    It is the column `same`, with one row per seed and scale; plateaus of no duration have no
    middle.
    """
    both = beside_theory(plateaus, stages, ["p", "next_time"])
    both = both[both["next_time"] > both["begin"]]
    same = [
        np.array_equal(np.abs(p) > significant, np.abs(q) > significant)
        for p, q in zip(both["p"], both["p_theory"], strict=True)
    ]
    both = both.assign(same=pd.Series(same, both.index, float))
    return both.groupby(CELL)["same"].mean().reset_index()


def charge_constants(stages: Table, plateaus: Table) -> Table:
    r"""How far the charges of the flow are from Algorithm 1's at mid-plateau: `constant`.

    It is that distance times log(1 / init_scale), in the median over all coordinates and plateaus,
    with one row per seed and scale. In the flow $\beta_i = y_i / \log(1 / \alpha)$, so that
    $w_{\pm, i} = \alpha^{1 \mp \beta_i}$ up to a constant; the paper's $b_i$ is $1 - \beta_i$
    (equations 10 and 17). In Algorithm 1 it moves at $g_i(\theta^k)$ off the support, and stays on
    it.
    """
    both = beside_theory(plateaus, stages, ["g", "charge", "support"])

    def off(row: Any) -> Vector:
        moved = row.g * (row.rescaled_time - row.begin)
        return np.abs(row.charge - row.charge_theory - np.where(row.support, 0.0, moved))

    def constant(here: Table) -> tuple[float]:
        scale = float(here["log10_init_scale"].iloc[0])
        every = np.concatenate([off(row) for row in here.itertuples()])
        return (float(np.median(every)) * -scale * LOG10,)

    return by_cell(both, ["constant"], constant)


def departed(stages: Table) -> Table:
    r"""What leaves the support, one row per coordinate and stage, and its `pull`.

    The pull is positive where g holds the coordinate where it is. It is $-\beta_i g_i(\theta^k) /
    \max |g(0)|$ for the coordinates in $\mathrm{supp}\,\theta^{k-1} \setminus
    \mathrm{supp}\,\theta^k$: not zero by the third part of Assumption 4.2, and positive by Lemma
    D.4.
    """
    rows = []
    for seed, own in stages.groupby("seed"):
        first = float(np.abs(own.loc[own["stage"] == 0, "g"].iloc[0]).max())
        for row in own.itertuples():
            for i in row.dropped:  # pyright: ignore
                pull = -row.charge[i] * row.g[i] / first  # pyright: ignore
                rows.append((seed, row.stage, int(i), pull))
    return pd.DataFrame(rows, columns=["seed", "stage", "coordinate", "pull"])


def pulls(stages: Table) -> dict[str, pd.Series]:
    r"""The least pull by which g holds what is off the support, by seed.

    The pull is $-\beta_i g_i(\theta^k) / \max |g(0)|$, as in `departed`. `departed_pull` is the
    least of the products that have just left; `waiting_pull` that of the others off the support
    which have a charge, in the same stages.
    """
    least: dict[str, dict[Any, float]] = {"departed_pull": {}, "waiting_pull": {}}
    for seed, own in stages.groupby("seed"):
        first = float(np.abs(own.loc[own["stage"] == 0, "g"].iloc[0]).max())
        for row in own[own["n_dropped"] > 0].itertuples():
            pull = -np.asarray(row.charge) * np.asarray(row.g) / first
            left = np.isin(np.arange(len(pull)), np.asarray(row.dropped))
            waits = ~left & ~np.asarray(row.support, bool) & (pull != 0)
            for name, which in (("departed_pull", left), ("waiting_pull", waits)):
                if which.any():
                    found = float(pull[which].min())
                    least[name][seed] = min(found, least[name].get(seed, math.inf))
    return {name: pd.Series(of, dtype=float) for name, of in least.items()}


def drift_measures(drifts: Table) -> dict[str, pd.Series]:
    """How far u² − v² drifts along a flow of u and v themselves, by seed.

    `conserved_drift` is the drift at the finest tolerance, `conserved_drift_falls` its
    share of the drift at the coarsest one.
    """
    fine, coarse = drifts["rtol"].min(), drifts["rtol"].max()
    finest = pick(drifts, rtol=fine)
    return {
        "conserved_drift": finest["drift"],
        "conserved_drift_falls": finest["drift"] / pick(drifts, rtol=coarse)["drift"],
    }


def growths(drifts: Table) -> pd.Series:
    """How many times as large u² + v² becomes along that flow, at the finest tolerance, by seed."""
    return pick(drifts, rtol=drifts["rtol"].min())["growth"]


def example_measures(drop: Table) -> dict[str, pd.Series]:
    """How far the time at which the example's third coordinate returns is from Algorithm 1's, by
    method, at its smallest scale.
    """
    returns = drop[(drop["coordinate"] == 2) & (drop["sign"] < 0)]
    by_method = returns.sort_values("log10_init_scale", kind="stable").groupby("method")
    first = by_method["rescaled_time"].first()
    errors = (first / float(first["Algorithm 1"]) - 1).abs()
    plain = ["plain gradient descent, float64", "plain gradient descent, float32"]

    def of(*methods: str) -> pd.Series:
        return errors.reindex(list(methods), fill_value=math.inf)

    return {
        "drop_flow_time_error": of("flow in log coordinates"),
        "drop_factors_time_error": of("factors gradient descent, float64"),
        "drop_reached_by_plain": of(*plain) < math.inf,
    }


def rise_errors(rises: Table, runs: Table, forecast: str) -> pd.Series:
    """The worst relative error of a forecast of the first rise over the scales, by seed.

    Infinite where nothing rose.
    """
    every = runs[CELL].drop_duplicates().set_index(CELL).index
    risen = rises.set_index(CELL).reindex(every)
    error = (risen[forecast] / risen["time"] - 1).abs().fillna(math.inf)
    return error.groupby(level="seed").max()


def rise_times(spectra: Table, k: int, threshold: float) -> pd.Series:
    """The time of the first snapshot with k singular values above the threshold, by seed."""
    above = spectra["singular_values"].map(lambda sigma: (np.asarray(sigma) > threshold).sum())
    return spectra.loc[above >= k, ["seed", "time"]].groupby("seed")["time"].min()


def rise_ratios(later: pd.Series, first: pd.Series, seeds: np.ndarray) -> pd.Series:
    """When one direction rises over when the first does, by seed; infinite where it never does."""
    return (later / first).reindex(seeds).fillna(math.inf)


def first_after(spectra: Table, times: pd.Series, column: str) -> pd.Series:
    """A column in the first snapshot from each seed's time on, by seed."""
    rows = spectra.sort_values("step")
    return rows[rows["time"] >= rows["seed"].map(times)].groupby("seed")[column].first()


def full_ratios(rises: Table, full: Table, threshold: float) -> Table:
    """When the first direction of the full matrices rises against theory, worst over the scales.

    There is a row for each seed.

    The rest is measured at the smallest scale, by the snapshots: the stable rank of both products
    at the first snapshot after that rise and at the end, and when the second direction of W_VO and
    the first of W_KQ rise, over when the first of W_VO does.
    """
    scale = full["log10_init_scale"].min()
    seeds = full["seed"].unique()
    smallest = full[full["log10_init_scale"] == scale].sort_values("step")
    W_KQ, W_VO = (smallest[smallest["matrix"] == name] for name in ("W_KQ", "W_VO"))
    first = rise_times(W_VO, 1, threshold)
    risen = pick(rises, log10_init_scale=scale)["time"]
    columns = {
        "first_rise_limit": rise_errors(rises, full, "limit"),
        "first_rise_finite": rise_errors(rises, full, "finite"),
        "first_rise_stepped": rise_errors(rises, full, "stepped"),
        "first_stable_rank_VO": first_after(W_VO, risen, "stable_rank"),
        "final_stable_rank_KQ": W_KQ.groupby("seed")["stable_rank"].last(),
        "final_stable_rank_VO": W_VO.groupby("seed")["stable_rank"].last(),
        "second_over_first_VO": rise_ratios(rise_times(W_VO, 2, threshold), first, seeds),
        "first_KQ_over_first_VO": rise_ratios(rise_times(W_KQ, 1, threshold), first, seeds),
    }
    return pd.DataFrame(columns).rename_axis("seed").reset_index()


def end_distances(paths: Table) -> Table:
    """How far the disturbed products are from the others at the end of each path: `distance`.

    Only the coordinates that were disturbed count. Where a coordinate rises, their first distance
    is as small as the noise squared, and what it moves later may be larger: this distance says more
    there than a ratio of distances.
    """
    ends = paths[paths["after"] == paths["after"].max()]
    distance = apart(ends["p"], ends["p_undisturbed"])
    return ends.drop(columns=["p", "p_undisturbed"]).assign(distance=distance)


def by_case(table: Table, column: str, number: str) -> pd.Series:
    """A column by the case that it was measured in: the seed, and a point's or stage's number."""
    names = [
        f"seed {seed}, {number} {k}" for seed, k in zip(table["seed"], table[number], strict=True)
    ]
    return pd.Series(table[column].to_numpy(), names)


def share_below(table: Table, column: str, bar: float) -> pd.Series:
    """The share of each seed's cases that are below the bar."""
    return (table[column] < bar).groupby(table["seed"]).mean()


def assumption_measures(
    returns: Table, kicks: Table, ends: Table, returned: float, near: float
) -> dict[str, pd.Series]:
    """Assumptions 4.3 and 4.4 by disturbances: a value per disturbance, or a share per seed."""
    random = returns[returns["kind"] == "random"]
    balanced = random[random["noise"] == "balanced"]
    independent = random[random["noise"] == "independent"]
    everywhere = random[random["noise"] == "everywhere"]
    risen = ends[(ends["kind"] == "rise") & (ends["noise"] == "independent")]
    begun = kicks[kicks["noise"] == "independent"]
    return {
        "return_ratio_balanced": by_case(balanced, "ratio_products", "point"),
        "return_ratio_independent": by_case(independent, "ratio_products", "point"),
        "return_ratio_everywhere": by_case(everywhere, "ratio_products", "point"),
        "weights_return_ratio_independent": by_case(independent, "ratio_weights", "point"),
        "return_share_independent": share_below(independent, "ratio_products", returned),
        "rise_share_independent": share_below(risen, "distance", near),
        "kick_error_independent": by_case(begun, "error", "stage"),
    }


def rank_at(
    times: Vector, joins: Float[np.ndarray, " joined"], leaves: Float[np.ndarray, " left"]
) -> Vector:
    """The number of active coordinates at each time."""
    joined = np.searchsorted(np.sort(joins), times, side="right")
    left = np.searchsorted(np.sort(leaves), times, side="right")
    return (joined - left).astype(float)


def rank_of(events: Table, times: Vector) -> Vector:
    """How many coordinates are above the threshold at each time, by a table of events."""
    rises = events["rises"].to_numpy(bool)
    when = events["time"].to_numpy(float)
    return rank_at(times, when[rises], when[~rises])


def ranks_of_head(events: Table, predicted: Table, stages: Table, n_budgets: int) -> Table:
    """The rank at every budget up to the last stage: measured, predicted, and in the limit.

    One row per seed, scale that was both followed and predicted, and budget.
    """
    columns = [*CELL, "rescaled_time", "measured", "finite", "limit"]
    tables = [pd.DataFrame(columns=columns, dtype=float).astype({"seed": int})]
    for (seed, scale), part in predicted.groupby(CELL):  # pyright: ignore
        flow = events[(events["seed"] == seed) & (events["log10_init_scale"] == scale)]
        if not len(flow):
            continue
        unit = -float(scale) * LOG10  # pyright: ignore
        own = stages[stages["seed"] == seed]
        times = np.linspace(0, own["time"].max(), n_budgets)
        own = own[own["stage"] > 0]
        left = np.repeat(own["time"].to_numpy(), own["dropped"].map(len).to_numpy(int))
        ranks = {
            "measured": rank_of(flow, times * unit),
            "finite": rank_of(part, times * unit),
            "limit": rank_at(times, own["time"].to_numpy(), left),
        }
        cell = {"seed": seed, "log10_init_scale": scale, "rescaled_time": times}
        tables.append(pd.DataFrame({**cell, **ranks}))
    return pd.concat(tables[1:] or tables, ignore_index=True)


def ranks_of_adapter(events: Table, n_budgets: int) -> Table:
    """The rank at every budget up to the end of its run, by the `source` of the events."""
    sources = ["forecast", "measured", "limit"]
    tables = [pd.DataFrame(columns=[*CELL, "time", *sources], dtype=float)]
    for (seed, scale), part in events.groupby(CELL):  # pyright: ignore
        times = np.linspace(0, part["end"].iloc[0], n_budgets)
        ranks = {name: rank_of(part[part["source"] == name], times) for name in sources}
        cell = {"seed": seed, "log10_init_scale": scale, "time": times}
        tables.append(pd.DataFrame({**cell, **ranks}))
    return pd.concat(tables[1:] or tables, ignore_index=True)


def rank_errors(ranks: Table, column: str) -> Table:
    """The mean difference of the ranks in a column from the measured: `error` of seed and scale."""
    gap = (ranks[column] - ranks["measured"]).abs().rename("error")
    return gap.groupby([ranks[name] for name in CELL]).mean().reset_index()


def rank_measures(ranks: Table, forecast: str) -> dict[str, Values]:
    """How far the rank in a column, and that of the limit, are from the measured, by scale."""
    return {
        "rank_error": by_scale(rank_errors(ranks, forecast), "error"),
        "rank_error_limit": by_scale(rank_errors(ranks, "limit"), "error"),
    }


def relative_gaps(stages: Table) -> pd.Series:
    """The least gap between the next stage and its second candidate, over its time, by seed."""
    followed = stages[np.isfinite(stages["next_time"])]
    return (followed["gap"] / followed["next_time"]).groupby(followed["seed"]).min()


def plateau_errors(stages: Table, plateaus: Table, lasting: float) -> Table:
    """How far the flow in the middle of its plateaus is from Algorithm 1's, by seed and scale.

    The errors are medians over the plateaus. The final products are those of the last plateau that
    lasts more than a share of its time.
    """
    met = beside_theory(plateaus, stages, ["loss", "p", "next_time"])
    met = met.assign(
        loss_error=(met["loss"] - met["loss_theory"]).abs(),
        product_error=apart(met["p"], met["p_theory"]),
        lasting=met["next_time"] / met["begin"] - 1 > lasting,
    )

    def errors(here: Table) -> list[float]:
        last = here.loc[here["lasting"], "stage"].max()
        final = here[here["lasting"] & (here["stage"] == last)]
        return [
            float(here["loss_error"].median()),
            float(here["product_error"].median()),
            float(final["product_error"].max()),
        ]

    return by_cell(met, PLATEAU_ERRORS, errors)


def of_products(spectra: pd.DataFrame) -> pd.DataFrame:
    r"""The singular values of the updates of both products by time, and their stable ranks.

    `spectra` has one row per training, step and matrix; time is step × learning rate,
    `rescaled_time` that over $\log(1 / \mathrm{init\_scale})$.
    """
    chosen = spectra[spectra["matrix"].isin(["W_KQ", "W_VO"]) & (spectra["of"] == "update")]
    time = chosen["step"] * chosen["learning_rate"]
    rescaled = time / (-chosen["log10_init_scale"] * LOG10)
    kept = chosen[["seed", "log10_init_scale", "matrix", "step", "singular_values"]]
    ranks = stable_rank(np.stack(list(chosen["singular_values"])))
    return kept.assign(time=time, rescaled_time=rescaled, stable_rank=ranks)
