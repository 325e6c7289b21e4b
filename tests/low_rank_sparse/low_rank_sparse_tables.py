"""Tables such as evaluate reads, with numbers that mean nothing, and the stage's run on them."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
import yaml

from lib.low_rank_sparse.tables import adapted, cut, spectra, swept, trained
from stages.low_rank_sparse import evaluate as stage
from tests.low_rank_sparse.low_rank_sparse_made import each, numbers
from tests.stages.made import whole, write_run

PARAMS = {
    # No rate stands in a table, so that the nearest counts; all neurons and small ones have others.
    "judged": {
        "untied": {"permuted": "absent", "pruning_rate": 0.12},
        "tied": {"permuted": "spare", "pruning_rate": 0.28},
    },
    "rtol": 0.4,
    "steps": [5, 12, 99],
    "generalised_loss": 0.2,
    "corollary_from": 0.45,
    "fit_from_n_patterns": 8,
    "decades_from": [0.03, 0.3],
}
OTHERS = {
    "generate": {"n_patterns": 5, "seq_len": 9, "n_train": 30, "noise": 0.1},
    "train": {"device": "cpu", "fitted_loss": 0.02, "n_neurons": 13, "batch_size": 6},
    "sweep": {"fitted_loss": 0.3},
}
SEEDS = {"tied": [3, 1, 2], "untied": [5, 4], "spare": [1, 6]}  # the last is a null
STEPS = {"tied": [0, 5, 9], "untied": [0, 12], "spare": [0, 5, 20]}
FITTED = {1: -1, 2: 7, 3: 4, 4: 6, 5: 2, 6: 3}  # the step at which each seed is fitted
MATRICES = ("W_Q", "W_K", "W_V", "W_O")
SCORES = ("hinge", "accuracy", "margin", "least_margin", "attention", "attention_of_relevant")
ORDERS = ("smallest", "random", "largest")
CUTS = [("all", 0), ("all", 1), ("all", 2), ("all", 20), ("pairs 3 and 4", 2), ("gaussian", 99)]
CUTS += [("random directions", 2), ("W_Q and W_K", 0), ("W_Q and W_K", 1), ("W_V", 1), ("W_O", 1)]
CUTS += [("weights, not updates", 2)]
PRUNED = [("neurons", order, rate) for order in ORDERS for rate in (0, 0.1, 0.3, 0.6)]
PRUNED += [("large neurons", "random", rate) for rate in (0, 0.2, 0.45, 0.7)]
PRUNED += [("small neurons", "random", rate) for rate in (0, 0.13, 0.27, 1)]
PRUNED += [("as many as small", order, 1) for order in ORDERS]
PRUNED += [("rows of W_V", "smallest", 0.4)]
SWEEPS = {  # what varies, or labels by the number of their patterns
    "relevant": [2, 4, 8],
    "relevant_with_confusion": [3, 4, 6, 8, 12],
    "step_size": [0.03, 0.1, 0.3, 1.0, 3.0],
    "patterns": [5, 7, 8, 10],
    "noise": [0.0, 0.1],
    "confusion": [0, 2, 3],
    "init_scale": [0.1, 1.0],
    "n_neurons": [200, 800],
    "classes_tied": {2: "1|1", 3: "1|1|1"},
    "classes_untied": {3: "1|1|1"},
    "grouped": {3: "2|1", 4: "2|2", 6: "3|3"},
    "classes_tied_permuted": {2: "1|1", 3: "1|1|1"},
}
OF_MATRICES = ("energy", "energy_2", "gap", "gap_2", "next")
OF_SWEEPS = [f"{name}_{of}" for name in MATRICES for of in OF_MATRICES]
OF_SWEEPS += ["hinge_at_rank_2", "hinge_at_rank_below", "hinge_at_rank_k"]
OF_SWEEPS += ["hinge_without_attention", "hinge_in_random_directions"]
OF_SWEEPS += ["small_share", "large_over_small"]


SCHEMAS = {
    "training": trained.STEPS,
    "losses": trained.LOSSES,
    "spectra": spectra.SPECTRA,
    "truncate": cut.TRUNCATE,
    "directions": cut.DIRECTIONS,
    "prune": cut.PRUNE,
    "neurons": cut.NEURONS,
    "adapt": adapted.ADAPT,
    "sweep": swept.TRAININGS,
}


def with_spectra(draw, table, *columns, n):
    """The table with n falling singular values in each of these columns."""
    falling = [np.sort(draw.uniform(0.1, 3, (len(table), n)))[:, ::-1] for _ in columns]
    return table.assign(**{name: list(of) for name, of in zip(columns, falling, strict=True)})


def made_tables():
    """What the other stages write."""
    draw = np.random.default_rng(4)
    cells = [
        {"configuration": name, "labels": "given", "seed": seed}
        for name, seeds in SEEDS.items()
        for seed in seeds
    ]
    saved = [cell | {"step": step} for cell in cells for step in STEPS[cell["configuration"]]]
    last = [row for row in saved if row["step"] == STEPS[row["configuration"]][-1]]
    spectra = each(saved, of=("initial", "update"), matrix=(*MATRICES, "W_KQ"))
    spectra += each(last, of=["gaussian"], matrix=MATRICES)
    spans = ("discriminative", "with mean irrelevant")
    cuts = [cell | {"kind": kind, "rank": rank} for cell in cells for kind, rank in CUTS]
    keys = ("what", "order", "rate")
    pruned = [cell | dict(zip(keys, one, strict=True)) for cell in cells for one in PRUNED]
    norms = ("threshold", "small_share", "small_norm", "large_norm", "bimodality", "initial_norm")
    adapted = [cell for cell in cells if cell["configuration"] != "untied"]
    tables = {
        "training": numbers(draw, saved, "loss", *SCORES),
        "losses": numbers(draw, each(cells, step=range(3)), "loss"),
        "spectra": with_spectra(draw, numbers(draw, spectra), "singular_values", n=6),
        "truncate": numbers(draw, cuts, *SCORES),
        "directions": numbers(draw, each(cells, span=spans), "alignment"),
        "prune": numbers(draw, pruned, "weights", "rescaled_hinge", *SCORES[:4]),
        "neurons": with_spectra(draw, numbers(draw, cells, *norms), "norms", n=5),
        "adapt": numbers(draw, each(adapted, rank=(2, 1, 4)), *SCORES),
        "sweep": made_sweeps(draw),
    }
    tables["training"]["fitted_step"] = tables["training"]["seed"].map(FITTED)
    for name in ("losses", "spectra", "adapt"):  # which do not say how the samples were labelled
        tables[name] = tables[name].drop(columns="labels")
    tables["adapt"]["fitted_step"] = tables["adapt"]["seed"].map(FITTED)
    tables["losses"].loc[0, "loss"] = 0.0
    # The rise up to a rate that does not count is below the rise up to each rate that does.
    prune = tables["prune"]
    prune.loc[(prune["what"] == "large neurons") & (prune["rate"] == 0.2), "hinge"] /= 20
    return tables


def made_sweeps(draw):
    """A row per training: one is never fitted, and one is fitted at once."""
    rows = []
    for name, values in SWEEPS.items():
        of_labels = isinstance(values, dict)
        varies = "n_relevant" if name.startswith("relevant") else name
        for value in values:
            row = {"sweep": name, "value": value, "permuted": name.endswith("permuted")}
            row["n_relevant"] = value if varies == "n_relevant" else 6
            row["n_confusion"] = int(name != "relevant")
            row["varies"] = "labels" if of_labels else varies
            rows.append(row | {"labels": values[value] if of_labels else "1|1"})
    rows = each(rows, seed=(7, 0, 3))
    # One seed has a single step size of the upper decade.
    rows = [row for row in rows if row["sweep"] != "step_size" or row["seed"] or row["value"] < 1]
    sigmas = [f"{name}_singular_values" for name in MATRICES]
    table = with_spectra(draw, numbers(draw, rows, "hinge", *OF_SWEEPS), *sigmas, n=9)
    table["fitted_step"] = draw.integers(1, 80, len(table))
    places = table.set_index(["sweep", "value", "seed"]).index
    table.loc[places.get_loc(("relevant", 4, 3)), "fitted_step"] = -1
    table.loc[places.get_loc(("relevant_with_confusion", 6, 7)), "fitted_step"] = 0
    samples = [{"sweep": name} for name in ("samples", "samples_with_confusion")]
    samples = each(samples, n_train=(32, 2, 8), n_relevant=(2, 5), seed=(7, 0, 3))
    samples = numbers(draw, samples, "hinge", "small_share")
    loss = samples["n_train"].map({2: 0.6, 8: 0.3, 32: 0.05}) / samples["n_relevant"] ** 0.2
    samples["hinge"] = loss * (1 + samples["hinge"] / 5)
    never = (samples["seed"] == 3) & (samples["n_relevant"] == 5) & (samples["sweep"] == "samples")
    samples.loc[never, "hinge"] = 0.3
    samples.loc[(samples["seed"] == 0) & (samples["n_relevant"] == 2), "hinge"] = 0.1  # ever enough
    alike = {
        "n_confusion": 1,
        "varies": "n_train",
        "labels": "1|1",
        "permuted": False,
        "fitted_step": 3,
    }
    samples = samples.assign(value=samples["n_train"], of_samples_alone=1.0, **alike)
    table = pd.concat([table.assign(n_train=70), samples], ignore_index=True)
    return table.assign(seq_len=9, n_patterns=7)


def evaluate(tables):
    """Run the stage on the tables in the working folder; gives the folder of its metrics."""
    for name, seeds in SEEDS.items():
        cell = {"configuration": name, "labels": "given"}
        rows = tables["training"]
        rows = whole(rows, SCHEMAS["training"])
        rows = rows[rows["configuration"] == name].drop(columns=[*cell])
        rows["snapshot"] = rows["step"].map(STEPS[name].index)
        layout = {"family": "low_rank_sparse", "matrices": {"W": ["row", "col"]}}
        layout |= {"cell": cell, "seeds": seeds}
        weights = [{"W": torch.zeros(1, 1)}] * len(STEPS[name])
        write_run(Path("runs") / name, layout, weights, rows.to_dict("records"))
    data = {name: Path(f"{name}.parquet") for name in tables if name != "training"}
    for name, file in data.items():
        whole(tables[name], SCHEMAS[name]).to_parquet(file)
    Path("params.yaml").write_text(yaml.safe_dump({"s": PARAMS, **OTHERS}))
    metrics = Path("metrics").absolute()
    stage.main(
        section="s",
        generate="generate",
        train="train",
        swept_fitted_loss="sweep.fitted_loss",
        runs=Path("runs"),
        **data,
        metrics=metrics,
        curves=metrics / "curves.csv",
    )
    return metrics
