"""What is measured of trained transformers, from tables of their losses, ranks and cuts.

A measure has a series by init scale and seed for each case; what was not trained is not in it. The
case is the product, the optimiser and what else differs from the plain training, those of them that
there are: `W_KQ`, `W_KQ permuted`, `muon`. Stable ranks are means over layers and heads; beside
every rank stand its nulls. `control` says what differs from the plain training, `none` for that
itself.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from lib.matrices.directions import order, separate
from lib.matrices.ranks import summaries
from lib.pages.measures import Row, rows_of

NULL_SEED = 0  # draws the Gaussian products
# The accuracy that a cut may cost; the small number is for tables in single precision.
ONE_POINT = 0.01 + 1e-6
PRODUCTS = ["W_KQ", "W_VO"]
PERMUTED = "labels=permuted"
LABELS = ("none", PERMUTED)
NUMBERS = ("learning_rate", "weight_decay")  # in a control, which names of cases leave out
RULE = ("optimizer", "muon_of", *NUMBERS)  # what a control says of an optimiser
Tables = Mapping[str, pd.DataFrame]


class Taken(NamedTuple):
    """A measure of one case, by init scale and seed."""

    measure: str
    case: str
    values: pd.Series


def ranks_of(spectra: pd.DataFrame, rtol: float, d_model: int) -> pd.DataFrame:
    """The norm and the ranks of every spectrum, and those of Gaussian matrices.

    Each last update of a product has a Gaussian matrix of its norm beside it.
    """
    described = spectra.drop(columns="singular_values")
    measured = described.assign(**summaries(list(spectra["singular_values"]), rtol))
    last = (measured["of"] == "update") & (measured["step"] == measured["step"].max())
    last &= measured["matrix"].isin(PRODUCTS)
    norms = measured[last]["norm"].to_numpy(float)
    sigma = gaussian_singular_values(norms, d_model, np.random.default_rng(NULL_SEED))
    drawn = described[last].assign(of="gaussian product", **summaries(list(sigma), rtol))
    return pd.concat([measured, drawn], ignore_index=True)


def gaussian_singular_values(
    norms: Float[np.ndarray, " case"], size: int, source: np.random.Generator
) -> Float[np.ndarray, "case size"]:
    """Singular values of Gaussian size × size matrices of these Frobenius norms."""
    found = np.empty((len(norms), size))
    for row, norm in zip(found, norms, strict=True):
        sigma = np.linalg.svd(source.standard_normal((size, size)), compute_uv=False)
        row[:] = norm * sigma / np.linalg.norm(sigma)
    return found


def at_loss(
    losses: Float[np.ndarray, " step"], values: Float[np.ndarray, " step"], level: float
) -> float:
    """The value where the training loss first comes down to a level, linear in the loss between two
    saved steps.

    NaN where it never does.
    """
    below = np.flatnonzero(losses <= level)
    if not len(below):
        return float("nan")
    i = below[0]
    if i == 0:
        return float(values[0])
    share = (losses[i - 1] - level) / (losses[i - 1] - losses[i])
    return float(values[i - 1] + share * (values[i] - values[i - 1]))


def growth_through_training(
    steps: Float[np.ndarray, " step"], values: Float[np.ndarray, "*case step"]
) -> np.ndarray:
    """Mean over the saved steps of the last third of a training, over the mean over those of its
    first third.

    Step 0, where nothing was learned, is left out.
    """
    last = steps[-1]
    early = (steps > 0) & (steps <= last / 3)
    late = steps > 2 * last / 3
    return values[..., late].mean(-1) / values[..., early].mean(-1)


def derived(tables: Tables) -> dict[str, pd.DataFrame]:
    """Growth of stable ranks through every training; stable ranks of true and permuted labels at
    equal training loss.

    The loss is the lowest to which both come down.
    """
    tables = {name: plain_typed(tables[name]) for name in ("training", "ranks")}
    updates = mean_ranks(tables["ranks"]).loc[PRODUCTS].xs("update", level="of").unstack("step")
    growth = growth_through_training(updates.columns.to_numpy(float), updates.to_numpy())
    losses = train_losses(tables["training"]).T
    rows = []
    ranks_of = updates.T
    permuted = updates[updates.index.get_level_values("control") == PERMUTED]
    for matrix, _, scale, seed in permuted.index:
        both = [
            (losses[c, scale, seed][updates.columns], ranks_of[matrix, c, scale, seed])
            for c in LABELS
        ]
        level = max(float(loss.min()) for loss, _ in both)
        ranks = [at_loss(loss.to_numpy(), rank.to_numpy(), level) for loss, rank in both]
        rows.append((matrix, scale, seed, level, *ranks))
    columns = ["matrix", "init_scale", "seed", "train_loss", "learned", "permuted"]
    return {
        "growth": updates.index.to_frame(index=False).assign(growth=growth),
        "equal_loss": pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[3:], float)),
    }


def measured(tables: Tables, reference_scale: float) -> list[Row]:
    """The rows of every measure; the reference scale stands last."""
    tables = {name: plain_typed(table) for name, table in tables.items()}
    found = [
        *finals(tables["training"]),
        *against_nulls(tables),
        *growth_with_init_scale(tables),
        *cuts(tables["truncate"], tables["prune"]),
        *rises(tables["directions"]),
        *rank_bounds(tables["ranks"]),
    ]
    if "whole_ranks" in tables:
        ranks = tables["whole_ranks"].groupby(["init_scale", "seed"])["stable_rank"]
        found.append(Taken("whole_stable_rank", "", ranks.mean()))
        found.append(Taken("whole_stable_rank_most", "", ranks.max()))
    return rows_by_scale(found, reference_scale)


def rows_by_scale(taken: list[Taken], last: float) -> list[Row]:
    """The rows of measures, those of one init scale behind all others."""
    found = []
    for measure, case, values in taken:
        scales = sorted(
            set(values.index.get_level_values("init_scale")),
            key=lambda scale: (scale == last, scale),
        )
        by_scale = {
            f"{scale:g}": values.xs(scale, level="init_scale").sort_index() for scale in scales
        }
        found += rows_of({measure: by_scale}, case)
    return found


def plain_typed(table: pd.DataFrame) -> pd.DataFrame:
    """A table in double precision and texts; init scales as they were written."""
    types = {name: float for name, kind in table.dtypes.items() if str(kind) == "float32"}
    types |= {name: str for name, kind in table.dtypes.items() if str(kind) == "category"}
    table = table.astype(types)
    return table.assign(init_scale=[float(f"{scale:g}") for scale in table["init_scale"]])


def mean_ranks(ranks: pd.DataFrame) -> pd.Series:
    """Stable ranks, means over layers and heads."""
    return ranks.groupby(["matrix", "control", "init_scale", "seed", "of", "step"])[
        "stable_rank"
    ].mean()


def train_losses(training: pd.DataFrame) -> pd.DataFrame:
    """The training loss of every control, init scale and seed at every step."""
    keys = ["control", "init_scale", "seed", "step"]
    return training.set_index(keys)["train_loss"].unstack("step")


def finals(training: pd.DataFrame) -> Iterator[Taken]:
    """The final training loss and test accuracy, plain and of every control."""
    final = training[training["step"] == training["step"].max()].set_index(["init_scale", "seed"])
    for control, rows in final.groupby("control"):
        case = named(str(control))
        yield Taken("train_loss", case, rows["train_loss"])
        yield Taken("test_accuracy", case, rows["test_accuracy"])


def against_nulls(tables: Tables) -> Iterator[Taken]:
    """Final stable ranks of updates and their growth through training, plain and of every control.

    The stable ranks of the initial matrices stand beside them. The plain training also has the
    ranks of a Gaussian product and of the first step over the learned ones, and the ranks under
    permuted labels at equal training loss.
    """
    means = mean_ranks(tables["ranks"])
    growths = tables["growth"].set_index(["matrix", "control", "init_scale", "seed"])["growth"]
    last = means.index.get_level_values("step").max()
    for matrix in PRODUCTS:
        updates = means.loc[matrix].xs(("update", last), level=["of", "step"])
        for control in sorted(set(updates.index.get_level_values("control"))):
            case = named(control, matrix)
            yield Taken("stable_rank", case, updates.loc[control])
            yield Taken("growth_through_training", case, growths.loc[matrix, control])
        learned = updates.loc["none"]
        plain = means.loc[matrix, "none"]
        by_kind = {of: ranks.droplevel(["of", "step"]) for of, ranks in plain.groupby("of")}
        if "initial" in by_kind:
            yield Taken("initial_stable_rank", matrix, by_kind["initial"])
        if "gaussian product" in by_kind:
            ratio = by_kind["gaussian product"] / learned
            yield Taken("gaussian_product_over_learned", matrix, ratio)
        first = plain.xs(("update", 1), level=["of", "step"])
        yield Taken("first_step_over_learned", matrix, first / learned)
        equal = tables["equal_loss"].set_index(["init_scale", "seed"])
        equal = equal[equal["matrix"] == matrix]
        ratio = equal["permuted"] / equal["learned"]
        yield Taken("permuted_over_learned_at_equal_loss", matrix, ratio)


def growth_with_init_scale(tables: Tables) -> Iterator[Taken]:
    """How stable ranks grow from each init scale to the next, by the larger of the two.

    The same growth is measured under permuted labels, in the first step, and where the training
    loss is the highest of the scales' final ones.
    """
    means = mean_ranks(tables["ranks"]).xs("update", level="of")
    last = means.index.get_level_values("step").max()
    losses = train_losses(tables["training"]).loc["none"]
    for matrix in PRODUCTS:
        plain = means.loc[matrix, "none"].unstack("step")
        fell = pd.DataFrame(losses.loc[plain.index, plain.columns])
        levels = fell.min(axis="columns").groupby("seed").transform("max")
        at_level = [
            at_loss(fell.loc[i].to_numpy(), plain.loc[i].to_numpy(), levels[i]) for i in plain.index
        ]
        equal = pd.Series(at_level, plain.index)
        yield Taken("growth_with_init_scale", matrix, between(plain[last]))
        yield Taken("growth_with_init_scale_at_first_step", matrix, between(plain[1]))
        yield Taken("growth_with_init_scale_at_equal_loss", matrix, between(equal))
        if PERMUTED in means.loc[matrix].index.get_level_values("control"):
            permuted = means.loc[matrix, PERMUTED].unstack("step")[last]
            yield Taken("growth_with_init_scale", named(PERMUTED, matrix), between(permuted))


def rises(directions: pd.DataFrame) -> Iterator[Taken]:
    """Whether the directions of an update rise one after another, plain and under permuted labels.

    `separate` is the share of them that begin after the one that ended before them has, `order` is
    Kendall's tau of size and earliness; means over the layers and heads with two directions or
    more. Where all grow in proportion, both are 0.
    """
    keys = ["matrix", "control", "init_scale", "seed", "layer", "head"]
    rows = []
    for place, own in directions.groupby(keys):
        begun, ended, size = (own[name].to_numpy() for name in ("begun", "ended", "singular_value"))
        if len(own) > 1:
            rows.append((*place, separate(begun, ended), order(size, ended)))
    by_head = pd.DataFrame(rows, columns=[*keys, "separate", "order"]).fillna({"order": 0.0})
    means = by_head.groupby(keys[:4])[["separate", "order"]].mean()
    for (matrix, control), own in means.groupby(["matrix", "control"]):
        by_seed = own.droplevel(["matrix", "control"])
        case = named(str(control), str(matrix))
        yield Taken("separate", case, by_seed["separate"])
        yield Taken("order", case, by_seed["order"])


def rank_bounds(ranks: pd.DataFrame) -> Iterator[Taken]:
    r"""What the stable ranks of whole updates are at most, as a mean over matrices and layers.

    The bound is $\sum_h \|W_h\|_F^2 / \max_h \|W_h\|_2^2$ over the heads h that stand side by side
    in one matrix, whose largest singular value is at least that of each. Without heads it is the
    stable rank itself.
    """
    last = (ranks["of"] == "update") & (ranks["control"] == "none")
    last &= (ranks["step"] == ranks["step"].max()) & ~ranks["matrix"].isin(PRODUCTS)
    rows = ranks[last]
    squares = np.square(rows["norm"])
    rows = rows.assign(square=squares, largest=squares / rows["stable_rank"])
    parts = rows.groupby(["matrix", "init_scale", "seed", "layer"])
    bounds = parts["square"].sum() / parts["largest"].max()
    yield Taken("whole_stable_rank_bound", "", bounds.groupby(["init_scale", "seed"]).mean())


def between(ranks: pd.Series) -> pd.Series:
    """The value at each init scale over that at the one before, by seed."""
    by_scale = ranks.unstack("init_scale")
    ratios = (by_scale / by_scale.shift(axis="columns")).T.stack()
    assert isinstance(ratios, pd.Series)
    return ratios.dropna().rename_axis(["init_scale", "seed"])


def cuts(truncate: pd.DataFrame, prune: pd.DataFrame) -> Iterator[Taken]:
    """Which rank and which pruning rate keep the accuracy of the plain runs that were cut."""
    truncate, prune = (table[table["control"] == "none"] for table in (truncate, prune))
    weights = prune[prune["what"] == "weights"]
    if truncate.empty or weights.empty:
        return
    keys = ["init_scale", "seed"]
    cut = by_rank(truncate[truncate["kind"] == "all"])
    kept = weights.set_index(["order", *keys, "rate"])["test_accuracy"].unstack("rate")
    smallest = pd.DataFrame(kept.loc["smallest"])
    harmless = pd.Series(
        smallest.ge(smallest[0.0] - ONE_POINT, axis=0).cummin(axis="columns").sum(axis="columns")
    )
    rates = pd.Series([float(kept.columns[int(n) - 1]) for n in harmless], harmless.index)
    average = kept.mean(axis="columns").unstack("order")
    others = average[["random", "largest"]].max(axis="columns")
    yield Taken("rank_within_one_point", "", rank_needed(cut))
    yield Taken("pruning_within_one_point", "", rates)
    yield Taken("smallest_first_over_others", "", average["smallest"] - others)


def by_rank(truncate: pd.DataFrame) -> pd.DataFrame:
    """The test accuracy of every init scale and seed at every rank that the updates were cut to."""
    return truncate.set_index(["init_scale", "seed", "rank"])["test_accuracy"].unstack("rank")


def rank_needed(cut: pd.DataFrame) -> pd.Series:
    """The least rank that costs at most a point of the accuracy at the largest, which is no cut."""
    return cut.ge(cut.iloc[:, -1] - ONE_POINT, axis=0).idxmax(axis="columns").astype(float)


def by_optimizer(tables: Tables) -> dict[str, dict[str, pd.DataFrame]]:
    """The tables of every optimiser, in which it is the plain one, by the name of its case.

    The optimiser of the plain training has an empty name.
    """
    found: dict[str, dict[str, pd.DataFrame]] = defaultdict(dict)
    for kind, table in tables.items():
        table = plain_typed(table)
        parts = {control: apart(control) for control in table["control"].unique()}
        for name in dict.fromkeys(name for name, _ in parts.values()):
            own = {control: rest for control, (of, rest) in parts.items() if of == name}
            rows = table[table["control"].isin(own)]
            found[name][kind] = rows.assign(control=rows["control"].map(own))
    return found


def apart(control: str) -> tuple[str, str]:
    """The name of the case that a control's optimiser is, and the control without it."""
    parts = control.split(",")
    if not any(part.startswith("optimizer=") for part in parts):
        return "", control
    rule = [part for part in parts if part.split("=")[0] in RULE]
    return named(",".join(rule)), ",".join(part for part in parts if part not in rule) or "none"


def of_optimizers(tables: Tables, last: float) -> list[Row]:
    """The rows of the measures of every optimiser beside its own nulls, its name behind theirs.

    The rank at equal accuracy is also given over that of the plain training at the same init scale
    and seed. Those of the init scale `last` stand behind all others.
    """
    found = []
    plain = pd.Series(dtype=float)
    for name, part in by_optimizer(tables).items():
        part |= derived(part)
        truncate = part["truncate"]
        needed = rank_needed(by_rank(truncate[truncate["control"] == "none"]))
        own = [
            *finals(part["training"]),
            *against_nulls(part),
            *growth_with_init_scale(part),
            *first_steps(part["ranks"]),
            Taken("rank_at_equal_accuracy", "", needed),
        ]
        found += [one._replace(case=f"{one.case} {name}".strip()) for one in own]
        if name:
            ratio = (needed / plain).dropna()
            found.append(Taken("rank_at_equal_accuracy_over_plain", name, ratio))
        else:
            plain = needed
    return rows_by_scale(found, last)


def first_steps(ranks: pd.DataFrame) -> Iterator[Taken]:
    """The stable ranks of the update after the first step, plain and of every control."""
    first = mean_ranks(ranks).xs("update", level="of").xs(1, level="step")
    for matrix in PRODUCTS:
        for control in sorted(set(first.loc[matrix].index.get_level_values("control"))):
            yield Taken("first_step_rank", named(control, matrix), first.loc[matrix, control])


def named(control: str, matrix: str = "") -> str:
    """The case of a control, of a matrix where one is given, without the values of parameters.

    For `labels=permuted` and W_KQ the case is `W_KQ permuted`; for the plain training it is `W_KQ`.
    """
    kinds = [
        part.split("=")[1]
        for part in control.split(",")
        if "=" in part and part.split("=")[0] not in NUMBERS
    ]
    return " ".join([matrix, *kinds]).strip()
