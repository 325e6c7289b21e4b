"""Which ranks keep most of what a fine-tune gained: `python -m published.rank_rules.run`.

Architectures of the transformers library, several bases of each. A base is trained on a made-up
language of its own and tuned, largely and gently, to another one; the steps are those of the
example. A third fine-tune begins from scratch: at the base's random start, with its steps. On each
fine-tune every rule is measured as `make lora` measures it: the share of the gain that is lost with
all else as tuned, the loss of the base with the adapter, and the rule that is chosen. For some
architectures the large fine-tune has the best of three learning rates. The smallest adapter that
`make lora` would advise is cut from it, and one of the same ranks is trained, for as many steps,
with the best of three rates of its own. Tables, figures, measures and where they come from are kept
beside this program; claims and report read them. It takes an hour of two CPU cores; `remeasure`
writes the measures again from the tables that are kept.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from sys import maxsize
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.checkpoints.adapters import lora_config, with_adapter
from lib.checkpoints.factors import write_factors
from lib.checkpoints.folders import Checkpoint, open_checkpoint
from lib.checkpoints.grammar import text
from lib.checkpoints.layers import layers
from lib.checkpoints.library import quiet
from lib.checkpoints.linear_modules import linear_modules, stored_as_columns
from lib.checkpoints.models import open_model, save_model
from lib.checkpoints.snapshots import open_snapshots
from lib.checkpoints.texts import mean_loss, read_batches
from lib.files.params import load_yaml, read_cases, read_params
from lib.files.tables import compact, read_table, write_table
from lib.pages.measures import Row, rows_of, setup_rows, write_measures
from lib.training.devices import generator
from lib.work.cells import joined, spread_cells
from lib.work.command import run
from stages.checkpoints import plot
from stages.checkpoints.plan import Measure, Plan, n_losses, planned
from stages.checkpoints.spectra import Spectra, measure_layer
from stages.checkpoints.train import Train, Training, descent
from tools.publish import PACKAGES, write_provenance

TRAINED = ("gpt2", "llama", "qwen2", "gemma2")  # of which adapters are trained, too
GENTLE = "gentle"
LARGE = "large"  # the fine-tune beside which adapters are trained
TIMES = (0.5, 1, 2)  # the learning rate of that fine-tune, of which the best is taken
RATES = (1e-2, 3e-2, 1e-1)  # of adapters that are trained
SCALE = 2  # alpha over rank
N_BYTES = 200_000  # of each text that is trained on
FIRST_LANGUAGE = 1000  # of base 0; a base has two
WINDOWS = 16  # of a batch: they are short here
SCRATCH = "scratch"  # the fine-tune of a base that is not trained
COMMAND = "python -m published.rank_rules.run"
OUT = Path("published/rank_rules")
HEADLINES = {"attributed_less_uniform_large": ("attributed_less_uniform", "large")}
BUDGET = 4  # a uniform rank, at which shares lost are told
MIXTURES = ("mixtral",)  # of experts, whose update no adapter carries
ALONE, ON_BASE = "share_lost", "lost_on_base"  # all else as tuned, or the adapter on the base
COMPARED = {  # rules whose shares lost are compared
    "attributed_less_uniform": ("attributed", "uniform"),
    "attributed_less_energy": ("attributed", "energy"),
    "attributed_less_shuffled": ("attributed", "shuffled"),
    "energy_less_uniform": ("energy", "uniform"),
    "water_filling_less_uniform": ("water-filling", "uniform"),
}
SHARES = {  # a rule, and what is lost of which gain
    "share_lost_attributed": ("attributed", ALONE),
    "share_lost_uniform": ("uniform", ALONE),
    "lost_on_base_attributed": ("attributed", ON_BASE),
    "lost_on_base_uniform": ("uniform", ON_BASE),
}
KEPT = ["kind", "budget", "rule", "shuffle", "parameters", "share_lost"]
KEPT += ["choosing_loss", "loss_on_base", "above_uniform", "noise", "chosen"]


@dataclass(frozen=True)
class Cases:
    """Where the trainings stand."""

    trainings: str


def architectures(sizes: Train) -> dict[str, dict[str, Any]]:
    """What the config of every architecture is made of, by its type in the library."""
    shared: dict[str, Any] = {
        "vocab_size": 256,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "initializer_range": sizes.init_scale,
        "hidden_size": sizes.d_model,
        "intermediate_size": sizes.d_mlp,
        "num_hidden_layers": sizes.n_layers,
        "num_attention_heads": sizes.n_heads,
        "max_position_embeddings": sizes.seq_len,
    }
    grouped = shared | {"num_key_value_heads": sizes.n_kv_heads}
    with_heads = grouped | {"head_dim": sizes.d_model // sizes.n_heads}
    opt = {"ffn_dim": sizes.d_mlp, "word_embed_proj_dim": sizes.d_model}
    opt |= {"init_std": sizes.init_scale}
    return {
        "gpt2": shared | {"n_inner": sizes.d_mlp},
        "gpt_neox": shared,
        "opt": shared | opt,
        "phi": shared,
        "phi3": grouped,
        "llama": grouped,
        "qwen2": grouped,
        "qwen3": with_heads,
        "gemma2": with_heads,
        "gemma3_text": with_heads,
        "mixtral": grouped | {"num_local_experts": 4},
    }


def main(n_bases: int = 5) -> None:
    begun = time.monotonic()
    sizes = read_params("checkpoints.example.train", Train)
    how = read_params("checkpoints.plan", Plan)
    how = replace(how, pruning_rates=())
    of_spectra = read_params("checkpoints.spectra", Spectra)
    trainings = read_cases(Path(read_params("checkpoints.cases", Cases).trainings), Training)
    names = list(architectures(sizes))
    measure = replace(read_params("checkpoints.own", Measure), batch_size=WINDOWS)
    jobs = [
        (
            of_base,
            replace(sizes, n_seeds=1, first_seed=base),
            how,
            measure,
            of_spectra,
            name,
            *trainings,
        )
        for name in names
        for base in range(n_bases)
    ]
    n_fits = len(trainings) + len(TRAINED) / len(names)
    size = round(n_fits * n_losses(how, measure))
    cells = spread_cells({"": jobs}, label="bases", unit="loss", size=lambda *_: size)[""]
    tables = {name: joined(cells, name) for name in ("rules", "gains", "fitted")}
    written(tables)
    params = load_yaml(Path("params.yaml"))["checkpoints"]
    noted = {
        "train": params["example"]["train"],
        "plan": params["plan"],
        "measure": asdict(measure) | {"budgets": list(measure.budgets)},
        "learning_rates": list(RATES),
    }
    packages = [*PACKAGES, "transformers", "peft"]
    write_provenance(OUT, COMMAND, begun, noted, range(n_bases), packages)


def written(tables: Mapping[str, pd.DataFrame]) -> None:
    """Write the tables, and what follows from them."""
    for name, table in tables.items():
        write_table(compact(table), OUT / "tables" / f"{name}.parquet")
    remeasure()


def remeasure() -> None:
    """Write the measures and figures of the tables as they are kept, without training again."""
    tables = {path.stem: read_table(path) for path in sorted((OUT / "tables").glob("*.parquet"))}
    write_measures(setup_rows(counted(tables)) + measured(tables), OUT, HEADLINES)
    plot.main(OUT / "tables", OUT / "figures")


def counted(tables: Mapping[str, pd.DataFrame]) -> dict[str, float | str]:
    """How many adapters, bases and architectures there are, and at which sizes."""
    rules = tables["rules"]
    fitted = tables["fitted"]
    attributed = rules[(rules["rule"] == "attributed") & (rules["shuffle"] == 0)]
    return {
        "n_adapters": float(rules["chosen"].sum()),
        "n_attributed_worse": float((attributed["above_uniform"] > attributed["noise"]).sum()),
        "n_architectures": float(rules["architecture"].nunique()),
        "n_bases": float(rules["base"].nunique()),
        "n_trained": float(fitted["architecture"].nunique()),
        "n_pairs": float(len(fitted)),
        "n_trained_lower": float((fitted["trained"] < fitted["cut"]).sum()),
        "budget": float(BUDGET),
        "budgets": ", ".join(map(str, sorted(rules["budget"].unique()))),
    }


def of_base(
    sizes: Train,
    how: Plan,
    measure: Measure,
    of_spectra: Spectra,
    architecture: str,
    *trainings: Training,
) -> dict[str, pd.DataFrame]:
    """What every rule loses of each fine-tune of one base, and adapters that were trained."""
    seed = sizes.first_seed
    cases = {one.name: one for one in trainings}
    found: dict[str, list[pd.DataFrame]] = {"rules": [], "gains": [], "fitted": []}
    with TemporaryDirectory() as folder:
        at = Path(folder)
        for name, language, stream in (("base", 0, 0), ("tuned", 1, 0), ("measured", 1, 1)):
            words = text(FIRST_LANGUAGE + 2 * seed + language, N_BYTES, stream)
            (at / f"{name}.txt").write_bytes(words)
        start = fresh(architecture, sizes)
        save_model(start, at / "start")
        fit(start, at / "base", at / "base.txt", sizes, cases["base"])
        cases[SCRATCH] = cases.pop("base")
        for kind, training in cases.items():
            base = open_checkpoint(at / ("start" if kind == SCRATCH else "base"))
            tuned = at / kind
            fit(open_model(base.folder, base.config), tuned, at / "tuned.txt", sizes, training)
            tables = plans_of(how, measure, of_spectra, base, tuned)
            found["rules"].append(tables["plans"].assign(kind=kind)[KEPT])
            found["gains"].append(tables["losses"].assign(kind=kind))
        if architecture in TRAINED:
            found["fitted"].append(fitted(sizes, at, cases[LARGE], how, measure, of_spectra))
    where = {"architecture": architecture, "base": seed}
    return {name: pd.concat(parts).assign(**where) for name, parts in found.items() if parts}


def fresh(architecture: str, sizes: Train) -> torch.nn.Module:
    """A new model of an architecture."""
    with quiet(), torch.random.fork_rng():
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.manual_seed(sizes.first_seed)
        config = AutoConfig.for_model(architecture, **architectures(sizes)[architecture])
        return AutoModelForCausalLM.from_config(config)


def fit(
    model: torch.nn.Module, folder: Path, words: Path, sizes: Train, training: Training
) -> None:
    """Train all of a model on a text, and write it."""
    source = generator(sizes.first_seed, "batches", training.name)
    for _ in descent(model, words, sizes, training.n_steps, training.learning_rate, source):
        pass
    save_model(model, folder)


def plans_of(
    how: Plan, measure: Measure, of_spectra: Spectra, base: Checkpoint, tuned: Path
) -> dict[str, pd.DataFrame]:
    """The plans of a fine-tune and what they lose, from the spectra of what was added."""
    [one] = open_snapshots(tuned)
    factors = tuned.parent / f"factors of {tuned.name}"
    parts = []
    for layer, files in layers(base, one, initial=False, kept=maxsize, heads=True):
        course = measure_layer(of_spectra, layer, *files)
        parts.append(course.tables)
        for tensors, _ in course.states:
            write_factors(factors / f"layer-{layer.number:04d}.safetensors", tensors)
    rows = joined(parts, "spectra")
    words = str(tuned.parent / "measured.txt")
    where = (base.folder, tuned, factors, words)
    return planned(how, measure, *where, rows, tuned.name, saved=False)


def fitted(
    sizes: Train,
    at: Path,
    training: Training,
    how: Plan,
    measure: Measure,
    of_spectra: Spectra,
) -> pd.DataFrame:
    """The smallest chosen adapter that loses at most the share asked for, cut and trained.

    Where none loses so little it is the largest one. The trained adapter has the same ranks.
    """
    base = open_checkpoint(at / "base")
    where = (base.folder, base.config, at / "measured.txt", measure.seq_len, measure.batch_size)
    n_measured = measure.n_batches + measure.n_measured_batches
    batches = read_batches(*where, n_measured + measure.n_choosing_batches)
    choosing = batches[n_measured:]
    fits = {}
    for times in TIMES:
        one = replace(training, learning_rate=training.learning_rate * times)
        folder = at / f"times-{times}"
        model = open_model(base.folder, base.config)
        fit(model, folder, at / "tuned.txt", sizes, one)
        fits[mean_loss(model.train(False), choosing)] = folder
    tables = plans_of(how, measure, of_spectra, base, fits[min(fits)])
    chosen = tables["plans"][tables["plans"]["chosen"]].sort_values("budget")
    enough = chosen[chosen["share_lost"] <= how.max_loss_share]
    row = (enough if len(enough) else chosen.tail(1)).iloc[0]
    ranks = dict(zip(tables["modules"]["module"], map(int, row["ranks"]), strict=True))
    adapters = {}
    for rate in RATES:
        model = trained(sizes, base, at / "tuned.txt", training, ranks, rate)
        loss = mean_loss(model, batches[measure.n_batches : n_measured])
        adapters[mean_loss(model, choosing)] = {"trained": loss, "learning_rate": rate}
    own = row[["budget", "rule", "parameters"]].to_dict() | {"cut": row["loss_on_base"]}
    of_pair = tables["losses"][["loss_base", "loss_tuned"]].iloc[0].to_dict()
    return pd.DataFrame([own | adapters[min(adapters)] | of_pair])


def trained(
    sizes: Train,
    base: Checkpoint,
    words: Path,
    training: Training,
    ranks: Mapping[str, int],
    rate: float,
) -> torch.nn.Module:
    """The base with an adapter of these ranks, trained on a text."""
    model = open_model(base.folder, base.config)
    by_columns = any(map(stored_as_columns, linear_modules(model).values()))
    config = lora_config(ranks, fan_in_fan_out=by_columns, scale=SCALE)
    adapted = with_adapter(model, config, sizes.first_seed)
    source = generator(sizes.first_seed, "batches", training.name)
    for _ in descent(adapted, words, sizes, training.n_steps, rate, source):
        pass
    return adapted.train(False)


def measured(tables: Mapping[str, pd.DataFrame]) -> list[Row]:
    """What claims judge, by architecture and base.

    The shares lost of one rule minus those of another, as means over budgets; the shares themselves
    at one budget, with all else as tuned and on the base; by what share of the drop the attributed
    losses miss it; how far the chosen adapter is above the uniform one, in units of the noise; what
    a trained adapter has beside the one that is cut and beside the full fine-tune, in nats; and the
    shares of the gain that these two adapters keep.
    """
    by = ["kind", "architecture", "base"]
    rules = tables["rules"]
    plain = rules[rules["shuffle"] == 0]
    lost = plain.pivot_table(index=[*by, "budget"], columns="rule", values="share_lost")
    shuffles = rules[rules["shuffle"] > 0].groupby([*by, "budget"])["share_lost"]
    means = lost.assign(shuffled=shuffles.min()).groupby(level=by).mean()
    at_budget = on_base(plain, tables["gains"])
    at_budget = at_budget[at_budget["budget"] == BUDGET].set_index([*by, "rule"]).sort_index()
    gains = tables["gains"].set_index(by).sort_index()
    error = (gains["attributed"] / gains["drop"] - 1).abs()
    found = []
    for kind in (GENTLE, LARGE, SCRATCH):
        mean, share = means.loc[kind], at_budget.loc[kind]
        of_kind = {name: mean[rule] - mean[other] for name, (rule, other) in COMPARED.items()}
        of_kind |= {
            name: share[column].xs(rule, level="rule") for name, (rule, column) in SHARES.items()
        }
        of_kind["attribution_error"] = error.loc[kind]
        if kind != SCRATCH:
            lost = of_kind["lost_on_base_attributed"]
            is_mixture = lost.index.get_level_values("architecture").isin(MIXTURES)
            of_kind["lost_on_base_mixtures"] = lost[is_mixture]
            of_kind["lost_on_base_others"] = lost[~is_mixture]
        found += rows_of(by_name(of_kind), kind)
    pairs = tables["fitted"].set_index(by[1:])
    gain = pairs["loss_base"] - pairs["loss_tuned"]
    of_all = {
        "chosen_above_uniform": most_above(plain[plain["chosen"]]),
        "attributed_above_uniform": most_above(plain[plain["rule"] == "attributed"]),
        "trained_less_cut": pairs["trained"] - pairs["cut"],
        "trained_less_tuned": pairs["trained"] - pairs["loss_tuned"],
        "kept_by_cut": (pairs["loss_base"] - pairs["cut"]) / gain,
        "kept_by_trained": (pairs["loss_base"] - pairs["trained"]) / gain,
    }
    return found + rows_of(by_name(of_all))


def on_base(plans: pd.DataFrame, gains: pd.DataFrame) -> pd.DataFrame:
    r"""The plans with the share of the whole gain that is lost by the base with an adapter.

    $(L - L_\mathrm{tuned}) / (L_\mathrm{base} - L_\mathrm{tuned})$, where L is the loss of the base
    with the adapter: what else was tuned (embeddings, head, norms, experts) stays behind.
    """
    by = ["kind", "architecture", "base"]
    both = plans.merge(gains[[*by, "loss_base", "loss_tuned"]], on=by, validate="many_to_one")
    gain = both["loss_base"] - both["loss_tuned"]
    return both.assign(**{ON_BASE: (both["loss_on_base"] - both["loss_tuned"]) / gain})


def most_above(rules: pd.DataFrame) -> pd.Series:
    """The largest loss above that of the uniform adapter, in units of the noise, of each base."""
    above = rules["above_uniform"] / rules["noise"].where(rules["noise"] > 0, np.inf)
    return above.groupby([rules[name] for name in ("architecture", "base")]).max()


def by_name(measures: Mapping[str, pd.Series]) -> dict[str, pd.Series]:
    """The measures by the name of a unit: an architecture and a base of it."""
    return {
        measure: values.set_axis([f"{architecture} {base}" for architecture, base in values.index])
        for measure, values in measures.items()
    }


if __name__ == "__main__":
    run(main)
