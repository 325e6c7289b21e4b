"""Make adapters and a page from a base and a fine-tuned checkpoint.

`make lora BASE=... TUNED=... TEXT=my.txt OUT=out`: TUNED is a checkpoint or a folder of snapshots;
TEXT is UTF-8, or a safetensors file of the model's own arguments. Without TEXT nothing is measured:
there are spectra, and uniform and energy plans. With MODULES_TO_SAVE=yes an adapter carries whole
what else was tuned (embeddings, head, norms, biases); with RANKS=equal every module has one rank.
Products of heads are measured where there is a TEXT, or with HEADS=yes. With LEADING=yes spectra
are the leading singular values alone that adapters need, which is quicker by far. With a TEXT only
what decides or is quoted is measured; with THOROUGH=yes also the losses of shuffled ranks, those of
pruning and, on the base, those of every rule. NAME is the base's name on the hub, where its config
does not say it. EVAL is a command of yours: it gets the folder of an adapter as its last argument
and prints one number. The params are those of `checkpoints.own`. What peft does not adapt as it is,
and what is never called, is in no plan; the loss of an adapter is that with which peft loads it. In
OUT stand `spectra.parquet`, `snapshots.parquet`, `factors/`, `plans/`, `left_out.json`,
`adapters/`, `page.html`, and `pair.json`, by which an OUT of another pair is refused.
"""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from sys import maxsize
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from lib.checkpoints.adapters import LISTED, whether
from lib.checkpoints.factors import factors_disk
from lib.checkpoints.figures.rank_grids import middle_budget, rank_grid
from lib.checkpoints.figures.size_charts import SizeChart, size_chart
from lib.checkpoints.figures.spectrum_charts import spectrum_charts
from lib.checkpoints.folders import (
    Checkpoint,
    adapter_disk,
    aligned,
    hub_name,
    n_matrices,
    open_checkpoint,
)
from lib.checkpoints.gains import check_text
from lib.checkpoints.known_structures import known_modules, misfits
from lib.checkpoints.layer_spectra import Spectra
from lib.checkpoints.library import unloaded
from lib.checkpoints.linear_modules import (
    by_layers,
    empty_linear_modules,
    linear_modules,
    shared_linear_modules,
)
from lib.checkpoints.loading import task_type
from lib.checkpoints.measured_plans import Plan
from lib.checkpoints.memory import check_plan_memory
from lib.checkpoints.models import check_architecture, check_shapes
from lib.checkpoints.peft_models import not_adapted, read_back
from lib.checkpoints.samples import count_labels, count_samples, few_labels
from lib.checkpoints.snapshots import Snapshot, audited, findings, last_of_runs, tuned_snapshots
from lib.checkpoints.split_texts import Measure, Split, split_text
from lib.checkpoints.tables import decomposed
from lib.checkpoints.tables.audited import AUDITED
from lib.checkpoints.tables.planned import FOLDER
from lib.checkpoints.texts import Batch
from lib.checkpoints.tuned_adapters import AdapterCheckpoint
from lib.files.files import InputError, write_files
from lib.files.memory import check_disk
from lib.files.params import read_params
from lib.files.tables import read_json, write_json
from lib.pages.html import picture, write_page
from lib.work.command import run
from lib.work.schemas import read_tables_of
from lib.work.scratch import scratch_root
from tools import done

ROOT = Path(__file__).parents[1]
SHOWN = ("run", "module", "rows", "cols", "stable_rank", "rank_above_edge", "method")
PAIR = "pair.json"  # in OUT: the pair that it is of
REFUSED = "left_out.json"  # in OUT: the modules that no plan has, and why
MADE = ("page.html", "spectra.parquet", "factors", "plans", "adapters")  # in OUT
MEASURED = ("loss_on_base", "above_uniform", "noise", "share_noise", "accuracy", "accuracy_noise")
LOST = "The share of the gain that a plan loses, with all else as tuned: less is better."
NULL = (
    " Where shuffles of the attributed ranks lose as much (the band), it is not their place that "
    "helps."
)
REMOVED = (
    "The loss of the fine-tune when weights, or entries of its updates, are set to zero. What "
    "can be removed is where a curve still lies on the line of the fine-tune."
)
SECTIONS = {"section": "checkpoints.plan", "measure": "checkpoints.own"}  # of params.yaml
SHARED = "other places share the weight, and peft would add to each alone and merge into it twice"
EMPTY = "the weight is empty"
# What vLLM takes for --max-lora-rank: its LoRAConfig
SERVED_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
UNCALLED = "the weight is read and the forward never runs: only what is merged has an effect"


def main(
    base: Path,
    tuned: Path,
    out: Path,
    text: str = "-",
    modules_to_save: str = "no",
    ranks: str = "mixed",
    name: str = "",
    eval: str = "",  # noqa: A002 (the variable that a user gives)
    heads: str = "",
    leading: str = "no",
    thorough: str = "no",
) -> None:
    program = eval_program(eval)
    named = check_name(name)
    saved = whether("MODULES_TO_SAVE", modules_to_save)
    equal = whether("RANKS", ranks, ("equal", "mixed"))
    wholly = "yes" if whether("THOROUGH", thorough) else "no"
    sizes = read_params("checkpoints.own", Measure)
    how = read_params("checkpoints.plan", Plan)
    how_much = spectra_options(heads, leading, text, sizes.budgets)
    found = checked(base, tuned, out, text, how, sizes, saved=saved, equal=equal)
    begun, kind, refused, plannable = found
    (out / "page.html").unlink(missing_ok=True)  # it would be of other adapters until it is made
    write_json(pair(base, tuned), out / PAIR)
    AUDITED.write(audited(tuned_snapshots(begun, tuned)), out / "snapshots.parquet")
    spectra = out / "spectra.parquet"
    factors = out / "factors"
    keeping: dict[str, Any] = {}
    if plannable:
        keeping = {"factors": str(factors), "kept": most_kept(text, sizes.budgets)}
    given = {"section": "checkpoints.spectra", "base": base, "snapshots": tuned}
    call("spectra", **given, spectra=spectra, **keeping, **how_much)
    if plannable:
        write_json(refused, out / REFUSED)
        shared = {"base": base, "tuned": tuned, "factors": factors, "plans": out / "plans"}
        shared |= {"modules_to_save": modules_to_save, "without": str(out / REFUSED)}
        call("plan", **SECTIONS, **shared, text=text, spectra=spectra, thorough=wholly)
        named = named or hub_name(replace(begun, folder=base.resolve()))  # wherever it is read
        call("adapt", **shared, adapters=out / "adapters", ranks=ranks, name=named)
        read_all_back(begun, tuned, text, out / "adapters", sizes, how.device, saved=saved)
        if program:
            add_evaluations(program, out / "adapters")
    page(begun, tuned, text, out, how.max_loss_share, planned=plannable, saved=saved, kind=kind)
    print(f"the page is {out / 'page.html'}")


def checked(
    base: Path,
    tuned: Path,
    out: Path,
    text: str,
    how: Plan,
    sizes: Measure,
    *,
    saved: bool,
    equal: bool = False,
) -> tuple[Checkpoint, str, dict[str, str], bool]:
    """The base, what the tuned one is in words, the modules that no plan has, with the reason, and
    whether there can be a plan for the model.

    All that is wrong with the input is said here, and what the work takes of memory and disk.
    """
    begun = open_checkpoint(base)
    snapshots = tuned_snapshots(begun, tuned)
    check_out(out, base, tuned, snapshots)
    check_writable(out, "OUT")
    check_writable(scratch_root(), "scratch")
    needed = room(begun, snapshots, sizes.budgets, text, saved=saved, equal=equal)
    check_disk(out, needed, "OUT")
    plannable = True
    refused: dict[str, str] = {}
    n_parameters = 0
    checkpoints = [begun, *(snapshot.checkpoint for snapshot in snapshots)]
    # without a live model, one whose structure is known needs neither transformers nor peft
    known = text == "-" and not saved and all(known_modules(one) for one in checkpoints)
    try:
        for one in () if known else checkpoints:
            check_architecture(one.model_folder, one.config)
    except InputError as error:
        plannable = False
        print(f"{error}: spectra only, no plan and no adapter", file=sys.stderr)
    if plannable and not known:
        own = [one for one in checkpoints if not isinstance(one, AdapterCheckpoint)]
        n_parameters = max(map(check_shapes, own))
        refused, n_adapted = adaptable(snapshots[-1].checkpoint)
        plannable = said_whether_any(tuned, refused, n_adapted)
    if plannable:
        kinds = {str(one.checkpoint.config.get("architectures")) for one in snapshots}
        live = saved or kinds != {str(begun.config.get("architectures"))}
        check_plan_memory(begun, text, how.device, live=live, n_parameters=n_parameters)
    split: Split | None = None
    if plannable and text != "-":
        try:
            split = split_text(begun, snapshots[-1].checkpoint, Path(text), sizes)
        except InputError as error:
            raise InputError(f"TEXT: {error}") from error
    read_through(begun, [one.checkpoint for one in snapshots], tuned)
    if plannable:
        if split:
            warn_of_few(split.measured)
        last = {one.run: one.checkpoint for one in snapshots}
        n_left = []
        for checkpoint in last.values():
            dead, n = check_text(begun, checkpoint, split, refused)
            refused |= dict.fromkeys(dead, UNCALLED)
            n_left.append(n)
        plannable = said_whether_any(tuned, refused, min(n_left))
    return begun, snapshots[-1].checkpoint.kind, refused, plannable


def adaptable(tuned: Checkpoint) -> tuple[dict[str, str], int]:
    """The linear modules of a model that no plan has, with the reason, and how many are left."""

    def made() -> Any:
        return unloaded(tuned.model_folder, tuned.config)

    model = made()
    names = list(linear_modules(model))
    refused = dict.fromkeys(shared_linear_modules(model), SHARED)
    refused |= dict.fromkeys(empty_linear_modules(model), EMPTY)
    without = not_adapted(made, names, task_type(tuned.config, tuned.tensors, ()))
    return refused | without, len(names) - len(without)


def said_whether_any(tuned: Path, refused: dict[str, str], n_left: int) -> bool:
    """Whether a linear module is left; where none is, a line says why."""
    if n_left:
        return True
    named = [f"{name}: {refused[of[0]]}" for name, of in by_layers(refused).items()]
    why = f" ({'; '.join(named)[:300]})" if named else ""
    none = f"no linear layer that peft could adapt{why}: spectra only, no plan and no adapter"
    print(f"{tuned}: {none}", file=sys.stderr)
    return False


def read_all_back(
    base: Checkpoint,
    tuned: Path,
    text: str,
    adapters: Path,
    sizes: Measure,
    device: str,
    *,
    saved: bool,
) -> None:
    """Load every adapter by peft, and put into `adapters.json` the loss that it then has.

    What is wrong with one is said there and on its card. Without a text, of a model whose structure
    is known, names and shapes are compared here.
    """
    last = {name: one.checkpoint for name, one in last_of_runs(base, tuned).items()}
    batches: list[Batch] = []
    if text != "-":
        batches = split_text(base, list(last.values())[-1], Path(text), sizes, device).measured
    listed = read_json(adapters / LISTED)
    for one in tqdm(listed, desc="loading by peft", unit="adapter"):
        folder = adapters / one["folder"]
        ended = last[one["run"]]
        known = None if batches or saved else known_modules(ended)
        if known is not None:
            one |= {"loss": None, "own_loss": one["loss"], "wrong": misfits(folder, known)}
        else:
            own = aligned(base, ended)
            one |= read_back(own, folder, batches, device, one["loss"])
        if one["wrong"]:
            card = folder / "README.md"
            said = f"{card.read_text()}\nDo not use it: {'; '.join(one['wrong'])}.\n"
            write_files(folder, {card.name: said.encode()})
    write_json(listed, adapters / LISTED)


def warn_of_few(measured: Sequence[Batch]) -> None:
    """Say where a text has too few labels to measure by."""
    said = few_labels(count_labels(measured), count_samples(measured))
    if said:
        print(f"TEXT: {said}", file=sys.stderr)


def check_name(name: str) -> str:
    """The base's name on the hub; raises `InputError` where it is neither a name nor a path."""
    if not name.isprintable():
        raise InputError(f"NAME: wanted a name on the hub or a path, on one line, got {name!r}")
    return name


def check_writable(folder: Path, what: str) -> None:
    """Raise `InputError` where nothing can be written in a folder, or where it is to be made."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise InputError(f"{what}: wanted a folder to write in, got: {error}") from error


def check_out(out: Path, base: Path, tuned: Path, snapshots: list[Snapshot]) -> None:
    """Raise `InputError` where OUT is no folder for what is made of this pair."""
    if out.exists() and not out.is_dir():
        raise InputError(f"OUT: wanted a folder, got the file {out}")
    given = [base, tuned, *(one.checkpoint.folder for one in snapshots)]
    if out.resolve() in [folder.resolve() for folder in given]:
        raise InputError(f"OUT: wanted a folder of its own, got that of a checkpoint, {out}")
    if any((out / name).exists() for name in ("config.json", "adapter_config.json")):
        raise InputError(f"OUT: wanted a folder of its own, got one that holds a model, {out}")
    if (out / PAIR).is_file():
        found = read_json(out / PAIR)
    elif any((out / name).exists() for name in MADE):
        found = "one that is not named"
    else:
        return
    wanted = pair(base, tuned)
    if found != wanted:
        raise InputError(f"OUT: wanted a new folder or that of {wanted}, got {out} of {found}")


def pair(base: Path, tuned: Path) -> dict[str, str]:
    """The pair of which a folder holds the results."""
    return {"BASE": str(base.resolve()), "TUNED": str(tuned.resolve())}


def eval_program(command: str) -> list[str]:
    """The words of EVAL; raises `InputError` where the first is no program."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"EVAL: wanted a command, got {command}: {error}") from error
    if words and not shutil.which(words[0]):
        raise InputError(f"EVAL: wanted a program that can be run, got {words[0]}")
    return words


def add_evaluations(program: list[str], adapters: Path) -> None:
    """Add to `adapters.json` what the user's program prints of each adapter, one number."""
    listed = read_json(adapters / LISTED)
    for one in tqdm(listed, desc="EVAL", unit="adapter"):
        words = [*program, str((adapters / one["folder"]).resolve())]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        try:
            one["eval"] = float(done.stdout)
        except ValueError:
            one["eval"] = np.nan
        if done.returncode or not np.isfinite(one["eval"]):
            got = f"got {done.stdout.strip()[-200:]!r} and exit status {done.returncode}"
            raise InputError(f"EVAL: {shlex.join(words)}: wanted one number, {got}")
    write_json(listed, adapters / LISTED)


def room(
    base: Checkpoint,
    snapshots: list[Snapshot],
    budgets: tuple[int, ...],
    text: str,
    *,
    saved: bool,
    equal: bool = False,
) -> int:
    """Roughly how many bytes singular values, factors (in OUT and in scratch) and adapters take."""
    shapes = [
        entry.shape[-2:]
        for name, entry in base.tensors.items()
        for _ in range(n_matrices(name, entry.shape))
    ]
    n_runs = len({one.run for one in snapshots})
    leading = read_params("checkpoints.spectra", Spectra).rank
    spectra = 8 * len(snapshots) * sum(map(min, shapes))
    spectra += n_runs * factors_disk(shapes, leading, most_kept(text, budgets) or maxsize)
    return 2 * spectra + n_runs * adapter_disk(base, budgets, whole=saved, equal=equal)


def spectra_options(
    heads: str, leading: str, text: str, budgets: Sequence[int]
) -> dict[str, str | int]:
    """How much the spectra hold: products of heads, where there is a TEXT or HEADS asks for them;
    with LEADING, of every matrix the values alone that the largest uniform rank needs.
    """
    asked = whether("HEADS", heads or ("no" if text == "-" else "yes"))
    options: dict[str, str | int] = {"heads": "yes" if asked else "no"}
    if whether("LEADING", leading):
        options["leading"] = max(budgets)
    return options


def most_kept(text: str, budgets: Sequence[int]) -> int:
    """How many triplets of a matrix the spectra keep: what a uniform rank may ask, or all (0)."""
    return max(budgets) if text == "-" else 0


def read_through(base: Checkpoint, snapshots: list[Checkpoint], tuned: Path) -> None:
    """Read every tensor once; raises `InputError` for NaN, infinity, and where none has moved."""
    moved = False
    bases = [aligned(base, one) for one in snapshots]
    for name in tqdm(base.tensors, desc=f"reading {base.folder}", unit="tensor"):
        base.load(name)
    for one, begun in zip(snapshots, bases, strict=True):
        for name in tqdm(one.tensors, desc=f"reading {one.folder}", unit="tensor"):
            tensor = one.load(name)
            moved = moved or name not in begun.tensors or not equal(tensor, begun.load(name))
    if not moved:
        raise InputError(f"{tuned}: wanted weights that differ from the base's, got none that does")


def equal(one: Any, other: Any) -> bool:
    """Whether two tensors have the same values."""
    return one.shape == other.shape and bool((one == other).all())


def call(stage: str, **arguments: Any) -> None:
    """Run a stage of the family in this process, where the libraries are loaded."""
    import_module(f"stages.checkpoints.{stage}").main(**arguments)


def page(
    base: Checkpoint,
    tuned: Path,
    text: str,
    out: Path,
    max_share: float,
    *,
    planned: bool,
    saved: bool,
    kind: str = "full fine-tune",
) -> None:
    """Write the page: figures, plans, how to load the adapters, what was not measured."""
    spectra = decomposed.SPECTRA.read(out / "spectra.parquet")
    runs = sorted(spectra["run"].unique())
    measured = planned and text != "-"
    parts = (
        "plans",
        "losses",
        "least",
        "adapters",
        "best",
        "worse",
        "few",
        "served_rank",
        "n_measured",
        "thorough",
        "shuffled",
        "pruning",
        "charts",
        "figures",
    )
    values: dict[str, Any] = dict.fromkeys(parts, ())
    grid = None
    if planned:
        tables = read_tables_of(FOLDER, out / "plans")
        values |= plan_values(tables, read_json(out / "adapters" / LISTED))
        plans, modules = first_of_runs(tables)
        grid = rank_grid(plans, modules, middle_budget(plans))
        if measured:
            values |= {"charts": size_charts(values), "figures": plan_figures(tables)}
    write_page(
        ROOT / "tools" / "lora.html",
        out / "page.html",
        beside=[ROOT / "stages"],
        base=base.folder.name,
        tuned=tuned.name,
        kind=kind,
        text=text,
        measured=measured,
        planned=planned,
        saved=saved,
        grid=grid,
        spectra=spectrum_charts(spectra[spectra["run"] == runs[-1]]),
        modules=module_table(spectra),
        max_share=max_share,
        snapshots=findings(AUDITED.read(out / "snapshots.parquet")),
        **values,
    )


def first_of_runs(tables: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The plans and the modules of the first run."""
    first = tables["plans"]["run"].iloc[0]
    plans, modules = (tables[name][tables[name]["run"] == first] for name in ("plans", "modules"))
    return plans, modules


def plan_figures(tables: dict[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """What was measured, in figures: each with its title, and what is to be seen in it."""
    from lib.checkpoints.figures.fine_tunes import (  # they need a second to load and to draw
        pruned,
        share_lost,
    )
    from lib.pages.style import rendered, styled

    found = []
    with styled():
        said = LOST + NULL if (tables["plans"]["shuffle"] > 0).any() else LOST
        found.append(("Share of the gain that is lost", share_lost(tables["plans"]), said))
        if len(tables["pruning"]):
            removed = pruned(tables["pruning"], tables["losses"])
            found.append(("Loss when weights or updates are removed", removed, REMOVED))
        return [
            {"title": title, "said": said, "picture": picture(rendered(figure), title)}
            for title, figure, said in found
        ]


def size_charts(values: dict[str, Any]) -> list[SizeChart]:
    """The charts of every run for which the loss of an adapter was measured."""
    from lib.checkpoints.figures.fine_tunes import RULES

    colors = {rule: color for rule, (color, _) in RULES.items()}
    charts = [
        size_chart([row for row in values["plans"] if row["run"] == loss["run"]], loss, colors)
        for loss in values["losses"]
    ]
    return [chart for chart in charts if chart is not None]


def plan_values(tables: dict[str, pd.DataFrame], adapters: list[dict[str, Any]]) -> dict[str, Any]:
    """What the page says of plans: a row per budget and rule, losses, least budgets, adapters.

    The loss of an adapter that was written is peft's. For each run, `best` is the adapter, with
    which nothing is wrong, whose base has the lowest loss on the samples that choose; `worse` is
    how many raise its loss, and `few` is what is to be said of few labels.
    """
    plans = tables["plans"]
    plain = plans[plans["shuffle"] == 0]
    read = {(one["run"], one["budget"]): {"loss_on_base": one["loss"]} for one in adapters}
    null = plans[plans["shuffle"] > 0].groupby(["run", "budget"])["share_lost"].agg(["min", "max"])
    rows = [
        {
            **row[["run", "budget", "rule", "parameters", "loss", "share_lost"]],
            **{name: row.get(name, np.nan) for name in MEASURED},
            "chosen": bool(row.get("chosen", row["rule"] == "uniform")),
            **(read.get((row["run"], row["budget"]), {}) if row.get("chosen") else {}),
            "null": tuple(null.loc[(row["run"], row["budget"])])
            if row["rule"] == "attributed" and (row["run"], row["budget"]) in null.index
            else None,
        }
        for _, row in plain.iterrows()
    ]
    budgets = tables["budgets"]
    losses: list[dict[str, Any]] = tables["losses"].to_dict("records")  # pyright: ignore
    known = plain.get("loss_on_base", pd.Series(np.nan, plain.index)).notna()
    few = {}
    best = {}
    worse = {}
    for loss in losses:
        if "n_labels_measured" in loss:
            counts = (loss["n_labels_measured"], loss["n_samples_measured"])
            few[loss["run"]] = few_labels(*map(int, counts))
        own = [one for one in adapters if one["run"] == loss["run"]]
        own = [one for one in own if one["loss"] is not None and not one.get("wrong")]
        if own:
            best[loss["run"]] = min(own, key=lambda one: one["choosing_loss"])
            worse[loss["run"]] = sum(one["loss"] > loss["loss_base"] for one in own)
    return {
        "plans": rows,
        "losses": losses,
        "least": budgets[budgets["least"].astype(bool)].to_dict("records"),
        "adapters": adapters,
        "best": best,
        "worse": worse,
        "few": few,
        "served_rank": served_rank(plain, [*best.values(), *adapters]),
        "n_measured": known.groupby(plain["run"]).sum().to_dict(),
        "thorough": bool(known.all()),
        "shuffled": len(null) > 0,
        "pruning": len(tables["pruning"]) > 0,
    }


def served_rank(plans: pd.DataFrame, adapters: Sequence[dict[str, Any]]) -> int:
    """The least rank up to which vLLM is to serve, so that it takes the first of these adapters."""
    if not adapters:
        return SERVED_RANKS[0]
    own = (plans["run"] == adapters[0]["run"]) & (plans["budget"] == adapters[0]["budget"])
    ranks = plans[own & (plans["rule"] == adapters[0]["rule"])]["ranks"]
    largest = max((int(max(one, default=0)) for one in ranks), default=0)
    return next((rank for rank in SERVED_RANKS if rank >= largest), largest)


def module_table(spectra: pd.DataFrame) -> list[dict[str, Any]]:
    """The size, rank and edge of every matrix's update, at the last snapshot of each run."""
    chosen = spectra[(spectra["of"] == "update") & (spectra["head"] == 0)]
    last = chosen[chosen["step"] == chosen.groupby("run")["step"].transform("max")]
    return [
        {
            **{name: row[name] for name in SHOWN},
            "relative": row["norm"] / row["base_norm"] if row["base_norm"] else np.nan,
            "rank_90": None if np.isnan(row["rank_90"]) else int(row["rank_90"]),
        }
        for _, row in last.iterrows()
    ]


if __name__ == "__main__":
    run(main, environment=True)
    done()
