"""The measures of runs on decision lists, from tables: rows of the table of measures.

A table that is not there was not run, and its measures are left out.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from lib.decision_lists.attention import attention_on_sequences
from lib.decision_lists.bounds import late_limit
from lib.decision_lists.lists import Task
from lib.matrices.ranks import summaries
from lib.pages.measures import Row, Values, rows_of

Tables = dict[str, pd.DataFrame]

CONTROLS = {  # the case of each control
    "W = 0 with the best V": "uniform attention",
    "W transposed": "W transposed",
    "only rows whose head is present": "rows with a head",
    "softmax over queries": "over queries",
    "the same, on those rows": "on rows with a head",
    "trained": "trained",
    "trained on sequences": "trained on sequences",
}


def with_ties(theorem: pd.DataFrame) -> pd.DataFrame:
    """Count runs whose first velocity ties to rounding as right at once.

    Their rescaled time T c² is rounding alone.
    """
    tied = theorem["first_time"] * theorem["scale"] ** 2 < 1e-6
    return theorem.assign(at_once=theorem["at_once"] | tied)


def of_theorem(
    theorem: pd.DataFrame,
    paths: pd.DataFrame,
    tasks: Mapping[str, Task],
    drawn: set[str],
    kept: int,
) -> Tables:
    """The runs at the theorem's scale, their late losses, and the courses that are shown.

    The courses of the `drawn` tasks are shown, and of those that were right and lost it, at about
    `kept` points each.
    """
    limits = {name: late_limit(tasks[name]) for name in theorem["task"]}
    theorem = with_ties(theorem).assign(late_limit=theorem["task"].map(limits))
    drawn = drawn.union(theorem["task"][theorem["lost"] > 0])
    shown = thinned(paths[paths["task"].isin(drawn)], ["task"], kept)
    late = late_losses(theorem, paths)
    return {"theorem": theorem, "paths": shown} | ({"late": late} if len(late) else {})


def late_losses(theorem: pd.DataFrame, paths: pd.DataFrame) -> pd.DataFrame:
    r"""The loss of the runs that go on to the bound, there: times $c^2 t$, and its exponent.

    The exponent is the one of the last decade of time; the loss is interpolated in logarithms.
    """
    rows = []
    for run in theorem[theorem["perfect_at_bound"].notna()].to_dict("records"):
        path = paths[(paths["task"] == run["task"]) & (paths["time"] > 0)]
        times = np.log([run["bound"] / 10, run["bound"]])
        before, after = np.interp(times, np.log(path["time"]), np.log(path["loss"]))
        rescaled = run["bound"] * run["scale"] ** 2
        rows.append(
            {
                "task": run["task"],
                "law": run["law"],
                "rescaled_time": rescaled,
                "slope": (after - before) / math.log(10),
                "loss_times_time": math.exp(after) * rescaled,
                "limit": run["late_limit"],
            }
        )
    return pd.DataFrame(rows)


def lemma_ratios(lemmas: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """The ratio of the sides of every case of each lemma, in bins of its logarithm.

    Each bin has its number of cases and its least ratio.
    """
    tables = []
    for number, table in lemmas.items():
        ratio = table["derivative"] / table["bound"]
        bins = np.floor(np.log10(ratio.clip(lower=1e-12)) * 20).astype(int)
        counted = ratio.groupby(bins).agg(["size", "min"]).reset_index(names="bin")
        tables.append(counted.assign(lemma=number, cases=len(ratio)))
    return pd.concat(tables)


def last_of_runs(table: pd.DataFrame) -> pd.DataFrame:
    """The last row of every run, with the step at which it was certified first on all sequences.

    The step is NaN where the run never was.
    """
    keys = ["task", "start", "seed"]
    found = table.groupby(keys, sort=True).tail(1).set_index(keys)
    certified = table[table["certified_all"].astype(bool)]
    found["first_certified_all"] = certified.groupby(keys)["step"].min()
    return found.reset_index()


def thinned(
    paths: pd.DataFrame, run: list[str], kept: int, *, logarithmic: bool = False
) -> pd.DataFrame:
    """At most as many rows of each run as are `kept`, the first and the last among them.

    They are spaced evenly, or evenly in the logarithm of their number, counted from 1.
    """

    def some(path: pd.DataFrame) -> pd.DataFrame:
        n = len(path)
        rows = np.geomspace(1, n, kept) - 1 if logarithmic else np.linspace(0, n - 1, kept)
        return path.iloc[np.unique(rows.round().astype(int))]

    parts = [some(path) for _, path in paths.groupby(run, sort=False)]
    return pd.concat(parts) if parts else paths


def with_ranks(
    spectra: pd.DataFrame, tasks: Mapping[str, Task], rtol: float, early: tuple[float, float]
) -> pd.DataFrame:
    """The rank of every W, and what it is expected to be early.

    It is expected to be the number of heads of lists, and under a uniform law all but one.
    """
    updates = spectra[spectra["of"] == "update"]
    updates = updates[["task", "law", "time", "singular_values"]]
    of = [tasks[name] for name in updates["task"]]
    return updates.assign(
        numerical_rank=summaries(list(updates["singular_values"]), rtol)["numerical_rank"],
        expected_rank=[t.n_tokens - 1 if t.law == "uniform" else len(t.heads) for t in of],
        early=updates["time"].between(*early),
        rtol=rtol,
    )


def when_right(factored: pd.DataFrame, rtol: float) -> pd.DataFrame:
    """The descents on W_K and W_Q apart, with the rank of W when every sequence was right first."""
    right = np.isfinite(factored["right"])
    rank = summaries(list(factored["singular_values"]), rtol)["numerical_rank"]
    found = factored.drop(columns="singular_values")
    return found.assign(numerical_rank=np.where(right, rank, np.nan))


def weights_by_place(task: Task, W: Any) -> pd.DataFrame:
    """W by the places of each list; the keys that are in no list come behind, at place 0."""
    rows = []
    for a, entries in enumerate(task.lists):
        others = [b for b in range(task.n_tokens) if b not in entries]
        for row, b in enumerate([*entries, *others], 1):
            place = row if row <= len(entries) else 0
            rows.append({"query": a, "key": b, "row": row, "place": place, "W": float(W[b, a])})
    return pd.DataFrame(rows)


def attention_shown(task: Task, before: Any, after: Any, n_sequences: int) -> pd.DataFrame:
    """The attention on a few sequences of the task, evenly spaced, before and after training."""
    step = max(1, len(task.counts) // n_sequences)
    chosen = list(range(0, len(task.counts), step))[:n_sequences]
    tables = []
    for when, W in (("before", before), ("after", after)):
        rows = attention_on_sequences(W, task.counts[chosen], task.star[chosen])
        tables.append(pd.DataFrame(rows).assign(when=when))
    return pd.concat(tables, ignore_index=True)


def measures(tables: Tables, law_from: float) -> list[Row]:
    """Every measure of the tables that are there."""
    takes: dict[str, Callable[[pd.DataFrame], list[Row]]] = {
        "theorem": theorem_measures,
        "late": late_measures,
        "gamma": gamma_measures,
        "many": many_measures,
        "repeats": repeats_measures,
        "law": partial(law_measures, law_from=law_from),
        "alone": alone_measures,
        "both": both_measures,
        "general": general_measures,
        "followed": lambda followed: followed_measures(followed, tables["both"]),
        "draws": draw_measures,
        "lemmas": lemma_measures,
        "feasible": feasible_measures,
        "joint": joint_measures,
        "minibatch": minibatch_measures,
        "starts": start_measures,
        "alignment": alignment_measures,
        "controls": control_measures,
        "trained": trained_measures,
        "lengths": length_measures,
        "spectra": spectral_measures,
        "factored": factored_measures,
    }
    return [row for name, take in takes.items() if name in tables for row in take(tables[name])]


def theorem_measures(theorem: pd.DataFrame) -> list[Row]:
    """When all is right at the theorem's scale over its bound, and whether that was lost."""
    again = _of_task(theorem[theorem["lost"] > 0])
    runs = {
        "runs_that_lose_it": _over_all(len(again)),
        "regained_over_bound": (again["regained_time"] / again["bound"]).fillna(math.inf),
        "largest_attention": _of_task(theorem)["largest_attention"],
    }
    return rows_of({"time_over_bound": _ratios(_of_task(theorem))}, "drawn") + rows_of(runs)


def late_measures(late: pd.DataFrame) -> list[Row]:
    """The exponent of the late loss in time, and its level over the limit."""
    late = _of_task(late)
    level = (late["loss_times_time"] / late["limit"]).dropna()
    return rows_of({"late_slope": late["slope"], "late_loss_over_limit": level})


def gamma_measures(gamma: pd.DataFrame) -> list[Row]:
    """The time over the bound for each γ, which stands for a scale."""
    by_gamma = reversed(list(_of_task(gamma).groupby("gamma")))
    ratios = {f"{gamma:.6g}": _ratios(runs) for gamma, runs in by_gamma}
    return rows_of({"time_over_bound": ratios}, "gamma")


def many_measures(many: pd.DataFrame) -> list[Row]:
    """The time over the bound for many tokens."""
    sizes = zip(many["n_tokens"], many["seq_len"], many["length"], strict=True)
    names = [f"L = {L}, n = {n}, M = {M}" for L, n, M in sizes]
    return rows_of({"time_over_bound": _ratios(many.set_axis(names))}, "many tokens")


def repeats_measures(repeats: pd.DataFrame) -> list[Row]:
    """Whether every sequence is right where tokens repeat."""
    return rows_of({"runs_right": _of_task(repeats)["first_time"].notna()}, "repeats")


def law_measures(law: pd.DataFrame, law_from: float) -> list[Row]:
    """How the time and the path approach those of the limit, as powers of the scale.

    Scales count from `law_from` on.
    """
    law = law[~law["at_once"]]
    limit = law[np.isinf(law["scale"])].set_index("task")["rescaled_time"]
    large = law[np.isfinite(law["scale"]) & (law["scale"] >= law_from)]
    if not len(large):
        return []
    off = (large["rescaled_time"] / large["task"].map(limit) - 1).abs()
    slopes = {
        "law_time_slope": _slope(large.assign(value=off)),
        "law_error_slope": _slope(large.assign(value=large["path_error"])),
    }
    return rows_of(slopes)


def _slope(large: pd.DataFrame) -> pd.Series:
    """The exponent of a value in the scale, from the smallest to the largest, by task."""
    by = large.pivot_table(index="task", columns="scale", values="value")
    if len(by.columns) < 2:
        return pd.Series(dtype=float)
    decades = math.log(float(by.columns.max()) / float(by.columns.min()))
    return pd.Series(np.log(by.iloc[:, -1] / by.iloc[:, 0])) / decades


def alone_measures(alone: pd.DataFrame) -> list[Row]:
    """When all is right over the bound, in part 1 by gradient descent."""
    alone = _of_task(alone)
    ratio = (alone["n_steps"] / alone["bound"]).where(alone["margin"] > 0, math.inf)
    return rows_of({"time_over_bound": ratio}, "descent")


def both_measures(both: pd.DataFrame) -> list[Row]:
    """What the theorem's part 2 assumes and concludes for each descent on W and V."""
    both = _of_run(both)
    met = both[both["preconditions"]]
    return [
        *rows_of({"conditions_met": both["preconditions"]}, "descents"),
        *rows_of({"steps_over_earliest": _steps_over_earliest(met)}, "float64"),
        *rows_of({"curvature_growth": met["curvature_growth"]}),
    ]


def general_measures(general: pd.DataFrame) -> list[Row]:
    """What part 2 concludes for other laws on sequences of distinct tokens."""
    general = _of_task(general)
    met = general[general["preconditions"]]
    return rows_of({"steps_over_earliest": _steps_over_earliest(met)}, "other laws")


def _steps_over_earliest(met: pd.DataFrame) -> pd.Series:
    """The steps until all is right over the earliest T, infinite where that is not certified."""
    return (met["n_steps"] / met["earliest"]).where(met["margin"] > 0, math.inf)


def followed_measures(followed: pd.DataFrame, both: pd.DataFrame) -> list[Row]:
    """The descents that meet every condition, with the steps of V summed up apart."""
    runs = _of_run(both[both["preconditions"]].merge(followed, on=["task", "noise"]))
    beside = {
        "steps_over_float64": runs["followed_steps"] - runs["n_steps"],
        "moved_over_epsilon": runs["moved"] / runs["epsilon"],
    }
    ratio = runs["followed_steps"] / runs["earliest"]
    return rows_of({"steps_over_earliest": ratio}, "summed apart") + rows_of(beside)


def draw_measures(draws: pd.DataFrame) -> list[Row]:
    """Whether draws of uniform noise leave part 2's conditions met; their losses over log n."""
    draws = draws.set_axis(draws["task"] + ", draw " + draws["seed"].astype(str))
    losses = {"first_loss_share": draws["share"], "least_first_loss_share": draws["least_share"]}
    return rows_of({"conditions_met": draws["met"]}, "draws") + rows_of(losses)


def lemma_measures(lemmas: pd.DataFrame) -> list[Row]:
    """How tight each lemma is: the least ratio of its sides."""
    least = lemmas.groupby("lemma")["min"].min()
    return [
        row
        for number in least.index
        for row in rows_of({"lemma_ratio": _over_all(least[number])}, str(number))
    ]


def feasible_measures(feasible: pd.DataFrame) -> list[Row]:
    """By how much the least n that a search finds exceeds the derived one."""
    feasible = feasible.set_index("length").rename("M = {}".format)
    return rows_of({"least_n_over_closed_form": feasible["least_n"] - feasible["closed_form"]})


def joint_measures(joint: pd.DataFrame) -> list[Row]:
    """What share of the seeds of each task is certified right, trained from small starts."""
    return rows_of({"runs_right": joint.groupby("task")["certified_all"].mean()}, "small starts")


def minibatch_measures(minibatch: pd.DataFrame) -> list[Row]:
    """Whether a training by minibatches is certified right in the end, on distinct tokens."""
    last = minibatch.groupby("seed").tail(1).set_index("seed")
    return rows_of({"runs_right": last["certified_sets"]}, "minibatches")


def start_measures(starts: pd.DataFrame) -> list[Row]:
    """How many kinds of starts are never right, and what share of large Gaussian ones is."""
    right = (starts["accuracy"] == 1.0).groupby(starts["start"]).mean()
    found = rows_of({"failing_starts": _over_all((right == 0).sum())})
    large = right[right.index.str.startswith("Gaussian")]
    if len(large):
        found += rows_of({"runs_right": _over_all(large.mean())}, "large starts")
    return found


def alignment_measures(alignment: pd.DataFrame) -> list[Row]:
    """How V moves along P under uniform attention, and where it is at the end.

    Each has a null beside it, the same with a wrong P.
    """
    alignment = alignment.sort_values(["task", "step"])
    end = _of_task(alignment[alignment["step"] == alignment["step"].max()])

    def least_growth(column: str) -> pd.Series:
        along = (alignment[column] * alignment["step"]).groupby(alignment["task"], sort=False)
        return along.agg(lambda path: float(np.diff(path, prepend=0).min()))

    growth = least_growth("along_P")
    of_wrong = least_growth("along_wrong_P")
    repeats = end["repeats"].astype(bool).reindex(growth.index)
    cosines = {
        "alignment_cosine": end["cosine"],
        "alignment_centred_cosine": end["centred_cosine"],
    }
    return [
        *rows_of({"alignment_growth": growth[~repeats]}, "P"),
        *rows_of({"alignment_growth": of_wrong[~repeats]}, "wrong P"),
        *rows_of({"alignment_growth": growth[repeats]}, "P with repeats"),
        *rows_of({"alignment_growth": of_wrong[repeats]}, "wrong P with repeats"),
        *rows_of({"alignment_argmax": end["argmax_right"]}, "P"),
        *rows_of({"alignment_argmax": end["argmax_wrong"]}, "wrong P"),
        *rows_of(cosines),
    ]


def control_measures(controls: pd.DataFrame) -> list[Row]:
    """The accuracy of every control."""
    by_name = controls.pivot_table(index="task", columns="control", values="accuracy")
    return [
        row
        for name in by_name
        for row in rows_of({"control_accuracy": by_name[name]}, CONTROLS[str(name)])
    ]


def trained_measures(trained: pd.DataFrame) -> list[Row]:
    """How many more entries of W are needed than the lists have."""
    named = trained.set_index(trained["task"] + ", seed " + trained["seed"].astype(str))
    in_gauge = named["kept_in_gauge"] - named["list_entries"]
    raw = named["kept_raw"] - named["list_entries"]
    return [
        *rows_of({"kept_over_list_entries": in_gauge}, "in gauge"),
        *rows_of({"kept_over_list_entries": raw}, "raw"),
    ]


def length_measures(lengths: pd.DataFrame) -> list[Row]:
    """By how many tokens sequences may be longer than in training, at the end."""
    last = _of_task(lengths[lengths["time"] == lengths["time"].max()])
    return rows_of({"longest_over_trained": last["longest"] - last["seq_len"]})


def spectral_measures(spectra: pd.DataFrame) -> list[Row]:
    """The rank of W late, and how far it is from the number of heads, early and late.

    Under a uniform law, how far it is early from the full rank.
    """
    uniform = spectra["law"] == "uniform"
    spectra = spectra.assign(off=(spectra["numerical_rank"] - spectra["expected_rank"]).abs())
    late = _of_task(spectra[~uniform & (spectra["time"] == spectra["time"].max())])
    early = spectra[spectra["early"] & ~uniform].groupby("task", sort=False)["off"].max()
    early_uniform = spectra[spectra["early"] & uniform].groupby("task", sort=False)["off"].max()
    return [
        *rows_of({"late_rank": late["numerical_rank"]}),
        *rows_of({"rank_error": late["off"]}, "late"),
        *rows_of({"rank_error": early}, "early"),
        *rows_of({"rank_error": early_uniform}, "early uniform"),
    ]


def factored_measures(factored: pd.DataFrame) -> list[Row]:
    r"""W_K and W_Q apart: when directions rise, and the rank of W when every sequence is right.

    A wait is in units of $\log(1/\alpha) / \sigma_1$. A delay is how much later a direction rises
    from the smallest init scale than from the one before, over the log of their ratio and times the
    rate at which it grows: $\log(1 + \eta \sigma_1) / \eta$ at first, then $\sigma_1$ of G when all
    is right.
    """
    log = -factored["log10_init_scale"] * math.log(10)
    rate = factored["learning_rate"]
    table = factored.assign(
        start=factored["task"] + ", seed " + factored["seed"].astype(str),
        log=log,
        growth=np.log1p(rate * factored["sigma_1"]) / rate,
        wait=factored["first_rise"] * factored["sigma_1"] / log,
        excess=factored["numerical_rank"] - factored["n_large"],
        missing=factored["fewest"] - factored["n_large"],
        is_right=np.isfinite(factored["right"]).astype(float),
        next_over_first=factored["next_rise"] / factored["first_rise"],
    )
    kinds = dict(list(table.groupby("of", sort=False)))
    apart = kinds["factored"]
    gone_on = {of: rows[rows["until"] != "first rise"] for of, rows in kinds.items()}
    without_heads = gone_on["factored"][gone_on["factored"]["n_heads"] == 0]
    with_heads = gone_on["factored"][gone_on["factored"]["n_heads"] > 0]
    shared = with_heads[with_heads["shared"]]
    own = with_heads[~with_heads["shared"]]
    of_one: dict[str, Values] = {
        "first_wait": _by_scale(apart, "wait"),
        "next_over_first": _by_scale(_beyond(apart), "next_over_first"),
        "rank_without_heads": _by_scale(without_heads, "numerical_rank"),
        "right_when_cut": _by_scale(shared, "right_when_cut"),
        "ends_right": _by_scale(gone_on["factored"], "is_right"),
    }
    found = [
        *rows_of(_delays(apart), "apart"),
        *rows_of({"rank_over_heads": _by_scale(with_heads, "excess")}, "apart"),
        *rows_of({"missing_directions": _by_scale(shared, "missing")}, "shared heads"),
        *rows_of({"missing_directions": _by_scale(own, "missing")}, "own heads"),
        *rows_of(of_one),
    ]
    if "whole" in kinds:
        beside = _by_scale(_beside_whole(gone_on), "right_over_whole")
        found += [
            *rows_of(_delays(kinds["whole"]), "whole"),
            *rows_of({"rank_over_heads": _by_scale(gone_on["whole"], "excess")}, "whole"),
            *rows_of({"rank_over_heads": _by_scale(gone_on["permuted"], "excess")}, "permuted"),
            *rows_of({"right_over_whole": beside}),
        ]
    return found


def _delays(rows: pd.DataFrame) -> dict[str, Values]:
    """The delay of the first direction, and that of the next."""
    return {
        "first_delay": _delay(rows, "first_rise", "growth"),
        "next_delay": _delay(_beyond(rows), "next_rise", "sigma_then"),
    }


def _beyond(rows: pd.DataFrame) -> pd.DataFrame:
    """The descents that go on until the next direction has risen."""
    return rows[rows["until"] == "next rise"]


def _beside_whole(gone_on: Mapping[Any, pd.DataFrame]) -> pd.DataFrame:
    """The descents apart that W itself went beside, with when all is right over when it has it."""
    keys = ["start", "log10_init_scale"]
    whole = gone_on["whole"].set_index(keys)["right"].rename("right_of_whole")
    rows = gone_on["factored"].join(whole, on=keys, how="inner")
    return rows.assign(right_over_whole=rows["right"] / rows["right_of_whole"])


def _by_scale(rows: pd.DataFrame, column: str) -> dict[str, pd.Series]:
    """A column by init scale, the smallest last, where it has a value."""
    return {
        f"1e{scale:g}": of_scale.set_index("start")[column]
        for scale, of_scale in reversed(
            list(rows.dropna(subset=column).groupby("log10_init_scale"))
        )
    }


def _delay(rows: pd.DataFrame, time: str, rate: str) -> pd.Series:
    """How much later a time is from the smallest init scale than from the one before.

    It is multiplied by the rate from the smallest, over the log of the ratio of the scales.
    """
    logs = sorted(rows["log"].unique())[-2:]
    if len(logs) < 2:
        return pd.Series(dtype=float)
    before, after = (rows[rows["log"] == log].set_index("start") for log in logs)
    delay = (after[time] - before[time]) * after[rate] / (logs[1] - logs[0])
    return delay.dropna()


def setup(tables: Tables) -> dict[str, float | str]:
    """The sizes that statements of claims name."""

    def column(name: str, of: str) -> pd.Series:
        return tables[name][of] if name in tables else pd.Series(dtype=float)

    def values(name: str, of: str) -> list[str]:
        return [f"{value:g}" for value in sorted(column(name, of).unique())]

    def span(name: str, of: str) -> str:
        found = values(name, of)
        return " to ".join(dict.fromkeys(found[:1] + found[-1:])) or "no"

    def number(name: str) -> int:
        return len(tables.get(name, ()))

    def total(name: str, of: str) -> int:
        return int(column(name, of).sum())

    def last_step(name: str) -> int:
        return int(max(column(name, "step"), default=0))

    factored = tables.get("factored", pd.DataFrame(columns=["of", "until", "n_heads", "right"]))
    heads = (factored["of"] == "factored") & (factored["n_heads"] > 0)
    apart = factored[heads & (factored["until"] != "first rise")]
    n_heads = sorted(apart["n_heads"].unique())
    return {
        "theorem_runs": number("theorem"),
        "learned_runs": number("theorem") - total("theorem", "at_once"),
        "gammas": span("gamma", "gamma"),
        "many_tokens": ", ".join(values("many", "n_tokens")) or "no",
        "lemma_cases": int(tables["lemmas"]["cases"].max()),
        "both_runs": number("both"),
        "both_met_runs": total("both", "preconditions"),
        "both_still_runs": total("followed", "stands_still"),
        "general_runs": number("general"),
        "general_laws": ", ".join(dict.fromkeys(column("general", "law"))) or "no",
        "noise_draws": number("draws"),
        "noise_met_draws": total("draws", "met"),
        "both_lengths": span("both", "length"),
        "both_seq_len": span("both", "seq_len"),
        "feasible_lengths": ", ".join(values("feasible", "length")),
        "alignment_steps": last_step("alignment"),
        "starts_steps": last_step("starts"),
        "joint_runs": number("joint"),
        "joint_tokens": span("joint", "n_tokens"),
        "minibatch_tokens": span("minibatch", "n_tokens"),
        "minibatch_size": span("minibatch", "batch_size"),
        "factored_heads": f"{n_heads[0]} to {n_heads[-1]}" if n_heads else "no",
        "factored_descents": len(apart),
        "factored_right": int((apart["right"] < math.inf).sum()),
        "length_trained": span("lengths", "seq_len"),
    }


def _of_task(table: pd.DataFrame) -> pd.DataFrame:
    return table.set_index("task")


def _of_run(table: pd.DataFrame) -> pd.DataFrame:
    return table.set_axis(table["task"].astype(str) + ", " + table["noise"].astype(str))


def _ratios(runs: pd.DataFrame) -> pd.Series:
    """The time at which all is right over the bound, for runs that are not right at once.

    It is infinite where a run is never right.
    """
    learned = runs[~runs["at_once"]]
    return (learned["first_time"] / learned["bound"]).fillna(math.inf)


def _over_all(value: Any) -> pd.Series:
    """A measure of all cases together."""
    return pd.Series({"all": float(value)})
