"""What claims say of waits under momentum, Adam's ε and warm-up: a value a seed, by case.

A case is a line of the table of cases. Steps are those of the optimiser.
"""

import math

import numpy as np
import pandas as pd

from lib.files.tables import pick
from lib.gradual_rank.measures import Table, by_scale
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tables.momentum import DRAWN_COURSES, ROOTS, WAITS
from lib.gradual_rank.waits import (
    adam_root,
    end_under_adam,
    exponent,
    lag,
    root,
    step_of,
    steps_under_adam,
    warmed_up,
)
from lib.pages.measures import Row, Values, rows_of

SAID = ("forecast", "added", "added_law", "added_memory", "efolds")  # columns of what is judged
MORE = 1000  # steps beyond those of plain descent: a momentum builds up first
BETAS = np.linspace(0, 0.995, 100)  # where lines of the root are drawn
STRENGTHS = np.geomspace(1e-3, 1e5, 100)
ADAM = "adam"
NESTEROV = "nesterov"


def growth_of(own: Table, sigma: str = "sigma", *, alone: bool = False) -> np.ndarray:
    """The growth log μ of log |w| a step, along the direction whose singular value is a column.

    With `alone` it is what is said without the root: momentum multiplies the learning rate of plain
    descent by 1 / (1 - beta), and Adam below ε is plain descent at the rate over ε.
    """
    case = own.iloc[0]
    strength = case["learning_rate"] * own[sigma].to_numpy()
    if case["rule"] == ADAM:
        strength = strength / case["eps"]
        return np.log1p(strength) if alone else np.log(adam_root(strength, case["beta"]))
    if alone:
        return np.log1p(strength / (1 - case["beta"]))
    return np.log(root(strength, case["beta"], nesterov=case["rule"] == NESTEROV))


def forecasts(
    own: Table, threshold: float, *, root_counts: bool = True, warmup_counts: bool = True
) -> list[float]:
    """The steps at which heads rise under torch.optim.SGD, by their starts alone.

    Without the root they are those of plain descent at the same rates; without the warm-up those
    of the last rate from the first step on.
    """
    found: list[float] = []
    for _, row in own.iterrows():
        beta = row["beta"] if root_counts else 0.0
        nesterov = root_counts and row["rule"] == NESTEROV
        warmup = int(row["warmup"]) if warmup_counts else 0
        wanted = float(exponent(row["joint"], row["log10_init_scale"], threshold))
        slowest = math.log1p(row["learning_rate"] * row["sigma"])
        n_steps = warmup + math.ceil(max(wanted, 0) / slowest) + MORE
        strengths = np.array(warmed_up(row["learning_rate"], warmup, n_steps)) * row["sigma"]
        grown = np.log(root(strengths, beta, nesterov=nesterov))
        late = math.log(float(lag(strengths[0], beta, nesterov=nesterov)))
        found.append(step_of(grown, wanted - late))
    return found


def waits(rises: Table, threshold: float, d: int) -> Table:
    """The rises of every case of heads of width d, beside what theory says of them."""
    found: list[Table] = []
    ends = ends_of_one_number(rises, d)
    for _, own in rises.groupby("case", sort=False):
        own = own.assign(**dict.fromkeys(SAID, math.nan))
        adam = own["rule"].iloc[0] == ADAM
        if not adam:
            own["forecast"] = forecasts(own, threshold)
        scales = sorted(map(float, own["log10_init_scale"].unique()))[:2]
        if len(scales) > 1:
            small = own["log10_init_scale"] == scales[0]
            early = pick(own, log10_init_scale=scales[1])["rise"]
            efolds = (scales[1] - scales[0]) * LOG10
            late = own[small]
            added = late["rise"] - late["seed"].map(early)
            own.loc[small, "added"] = added.where(np.isfinite(added))
            own.loc[small, "efolds"] = efolds
            own.loc[small, "added_law"] = efolds / growth_of(late)
            if adam:
                own.loc[small, "added_memory"] = [
                    added_to_one_number(row, scales, ends.get(row["seed"], math.nan), d)
                    for _, row in late.iterrows()
                ]
        found.append(own)
    return WAITS.frame(pd.concat(found, ignore_index=True))


def expected_courses(courses: Table, rises: Table) -> Table:
    """The courses of descents by torch.optim.SGD, with the value that their start alone says."""
    found: list[Table] = []
    for (case, scale), own in courses.groupby(["case", "log10_init_scale"], sort=False):
        seed = int(own["seed"].iloc[0])
        of = rises[
            (rises["case"] == case) & (rises["seed"] == seed) & (rises["log10_init_scale"] == scale)
        ].iloc[0]
        if of["rule"] == ADAM:
            continue
        nesterov = of["rule"] == NESTEROV
        n_steps = int(own["step"].max())
        strengths = np.array(warmed_up(of["learning_rate"], int(of["warmup"]), n_steps + 1))
        strengths = strengths * of["sigma"]
        grown = np.log(root(strengths, of["beta"], nesterov=nesterov))
        sums = np.concatenate([[0.0], np.cumsum(grown)])[own["step"]]
        late = math.log(float(lag(strengths[0], of["beta"], nesterov=nesterov)))
        first = math.log(of["joint"] / 4) + 2 * scale * LOG10  # pyright: ignore
        found.append(own.assign(expected=np.exp(first + 2 * (sums + late))))
    return DRAWN_COURSES.frame(pd.concat(found) if found else [])


def root_lines(judged: Table) -> Table:
    """What the root says of the wait of each head by momentum, and of Adam's by its strength."""
    found: list[Table] = []
    plain = judged[(judged["rule"] != ADAM) & (judged["beta"] == 0) & (judged["warmup"] == 0)]
    for _, head in plain.drop_duplicates("seed").iterrows():
        strength = head["learning_rate"] * head["sigma"]
        growths = np.array([math.log(root(strength, float(beta))) for beta in BETAS])
        columns = {"place": BETAS, "wait": math.log1p(strength) / growths}
        found.append(pd.DataFrame(columns).assign(seed=head["seed"]))
    for beta_1 in judged.loc[judged["rule"] == ADAM, "beta"].unique()[:1]:
        steps = LOG10 / np.log(adam_root(STRENGTHS, float(beta_1)))
        found.append(pd.DataFrame({"place": STRENGTHS, "wait": steps}).assign(seed=-1))
    return ROOTS.frame(pd.concat(found) if found else [])


def wait_measures(judged: Table, threshold: float) -> list[Row]:
    """The measures of every case of the `waits`, in the order of the table of cases."""
    found: list[Row] = []
    for case, own in judged.groupby("case", sort=False):
        measured: dict[str, Values] = {}
        late = own.dropna(subset="added").set_index("seed")
        if len(late):
            alone = growth_of(late, alone=True)
            measured["wait_ratio"] = late["added"] / late["added_law"]
            measured["wait_ratio_alone"] = late["added"] * alone / late["efolds"]
            measured["steps_a_decade"] = late["added"] * LOG10 / late["efolds"]
        if own["rule"].iloc[0] == ADAM:
            measured["second_share"] = by_scale(own, "second")
            measured |= of_adam(late)
        else:
            measured |= of_momentum(late)
            measured |= forecast_errors(own, threshold)
        found += rows_of(measured, str(case))
    return found


def of_adam(late: Table) -> dict[str, Values]:
    """The steps by which a smaller start delays Adam, and how far both forecasts are from these."""
    if not len(late):
        return {}
    return {
        "added_steps": late["added"].abs(),
        "memory_error": (late["added"] - late["added_memory"]).abs(),
        "root_error": (late["added"] - late["added_law"]).abs(),
    }


def of_momentum(late: Table) -> dict[str, Values]:
    """The growth of the second direction over that of the first, and over what theory says."""
    if not len(late):
        return {}
    share = late["growth_2"] / late["growth"]
    return {
        "second_growth": share,
        "nearness": share * growth_of(late) / growth_of(late, "sigma_2"),
        "nearness_alone": share * late["sigma"] / late["sigma_2"],
    }


def forecast_errors(own: Table, threshold: float) -> dict[str, Values]:
    """How far the rises are from their forecasts, over the rises, beside the nulls that there are.

    One leaves out the momentum's root, the other the warm-up; `warmup_steps` are those that the
    warm-up costs.
    """

    def errors(said: list[float] | pd.Series) -> Values:
        return by_scale(own.assign(error=(own["rise"] - said).abs() / own["rise"]), "error")

    found = {"forecast_error": errors(own["forecast"])}
    if own["beta"].iloc[0] > 0:
        found["forecast_error_alone"] = errors(forecasts(own, threshold, root_counts=False))
    if own["warmup"].iloc[0] > 0:
        constant = forecasts(own, threshold, warmup_counts=False)
        found["forecast_error_constant"] = errors(constant)
        found["warmup_steps"] = by_scale(own.assign(steps=own["rise"] - constant), "steps")
    return found


def ends_of_one_number(rises: Table, d: int) -> pd.Series:
    """The value that one number under Adam has when a head rises, by seed, from the run with the
    least ε alone.

    The number starts at what an entry of W_V or W_O has of the first direction, in root mean
    square; a run of the least ε, from the smallest scale, says how far it goes. No other run does.
    """
    adam = rises[(rises["rule"] == ADAM) & np.isfinite(rises["rise"])]
    least = adam[adam["eps"] == adam["eps"].min()]
    least = least[least["log10_init_scale"] == least["log10_init_scale"].min()]
    found: dict[object, float] = {}
    for _, row in least.drop_duplicates("seed").iterrows():
        start = entry(row, row["log10_init_scale"], d)
        found[row["seed"]] = end_under_adam(
            float(row["sigma"]), start, float(row["rise"]), *adam_of(row)
        )
    return pd.Series(found, dtype=float)


def added_to_one_number(row: pd.Series, scales: list[float], end: float, d: int) -> float:
    """By how many steps one number under Adam is later from the smaller of two scales.

    NaN where its end is not known.
    """
    if math.isnan(end):
        return math.nan
    small, large = (
        steps_under_adam(row["sigma"], (entry(row, scale, d), end), *adam_of(row))
        for scale in scales
    )
    return small - large


def entry(row: pd.Series, log10_init_scale: float, d: int) -> float:
    r"""The root mean square $\alpha |w| / 2 d$ of the first direction in the entries of W_V."""
    return float(10.0**log10_init_scale * math.sqrt(row["joint"]) / (2 * d))


def adam_of(row: pd.Series) -> tuple[float, tuple[float, float], float]:
    """The learning rate, both memories and ε of a descent by Adam."""
    return row["learning_rate"], (row["beta"], row["beta_2"]), row["eps"]


def settings(rises: Table) -> dict[str, float | str]:
    """What statements of claims name."""
    adam = rises[rises["rule"] == ADAM]
    rates = ", ".join(f"{rate:g}" for rate in adam["learning_rate"].unique())
    return {"n_seeds": rises["seed"].nunique(), "adam_rate": rates}
