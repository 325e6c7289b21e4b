"""The whole pipeline made small: params for every family with which every stage takes seconds, and
a run on them.

Derived from the committed params.yaml, so that a new key needs a line here only where it makes
work. A new family adds a function of its section to `FAMILIES`.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from ruamel.yaml import YAML

from tests.pipeline.project import (
    ROOT,
    Stage,
    checkout,
    commit,
    dvc,
    git,
    one_core,
    params_of,
    set_params,
    stages,
)

Section = dict[str, Any]

TABLES: dict[str, str] = {}  # small tables of cases, by their paths in the project


def tiny(params: dict[str, Section]) -> dict[str, Section]:
    """The params with every family's seeds, steps, scales and sizes made small."""
    params = dict(params)
    shift = {"seeds_from": params.pop("seeds_from")}
    unknown = sorted(set(params) - set(FAMILIES))
    assert not unknown, (
        f"{unknown}: wanted how to make the params of this family small in {__file__}, got nothing"
    )
    small = {name: FAMILIES[name](copy.deepcopy(section)) for name, section in params.items()}
    return shift | small


def vision(section: Section) -> Section:
    replace(section, "cut", rate_step=0.5)
    replace(section, "plot", layer=2, head=1, lines=4)
    for name in section["datasets"]:
        vision_dataset(section[name], section["evaluate"]["reference_scale"])
    return section


def vision_dataset(data: Section, reference: float) -> None:
    """Two scales, of which one is the reference, two seeds, a few steps of a transformer of two
    small layers.
    """
    scales = sorted([reference, min(data["train"]["init_scales"])])
    replace(data, "data", n_test=1600)
    replace(data, "train", n_seeds=2, init_scales=scales, batch_size=16)
    replace(data, "train", n_steps=30, warmup_steps=3, snapshot_every=15)
    replace(data["train"], "model", d_model=8, n_heads=2, d_head=4, d_mlp=8, n_layers=2)
    data["cut"] |= {"init_scales": [reference], "n_images": 16}


def decision_lists(section: Section) -> Section:
    """Of every group the first settings and a seed, at the smallest sizes that its use allows; few
    steps and cases.
    """
    groups: dict[str, Section] = {}
    for group in read_rows(section["cases"]["groups"]):
        if group["group"] in groups:
            continue
        spectral = group["use"] == "spectral"
        if group["use"] != "both" and group["group"] != "lost":
            group |= {"n_tokens": 6 if spectral else 5, "seq_len": 2}
        group |= {key: group[key][:1] for key in ("list_lengths", "lists", "laws")}
        groups[group["group"]] = group | {
            "n_heads": group["n_heads"][: 2 if spectral else 1],
            "n_seeds": 1,
        }
    descents = [name for name, group in groups.items() if group["use"] == "both"]
    write_rows(
        section["cases"]["groups"],
        [group for name, group in groups.items() if name not in descents[1:]],
    )
    for table, n_rows in (("starts", 2), ("many", 1), ("constants", 1)):
        write_rows(section["cases"][table], read_rows(section["cases"][table])[:n_rows])
    [first, *_] = read_rows(section["cases"]["factored"])
    small = {"n_tokens": 5, "seq_len": 2, "n_seeds": 2}
    scales = {"log10_init_scales": [-1, -2], "staircase_scales": [-1, -2]}
    write_rows(section["cases"]["factored"], [first | small | scales])
    scales, train = section["scales"], section["train"]
    scales["law_scales"] = scales["law_scales"][-2:]
    replace(scales, "spectral", n_snapshots=4, last_time=10)
    replace(section, "flow", gamma_shares=[1, 2])
    replace(section, "descend", noise=["none"])
    replace(train, "joint", n_seeds=2, n_steps=8)
    replace(train, "starts", n_seeds=1, n_steps=8)
    replace(section, "train", alignment_steps=8)
    replace(train, "minibatch", n_tokens=8, seq_len=3, n_steps=4, certify_every=2, batch_size=8)
    replace(section, "control", n_steps=4)
    replace(section, "check", n_cases=20)
    replace(section, "certify", longest_sequence=5)
    replace(
        section, "constants", list_lengths=[1], monte_carlo_samples=[10, 100], monte_carlo_repeats=2
    )
    replace(section, "constants", monte_carlo_task="m = 1")
    replace(section, "evaluate", paths=["theorem-000"], shown_task="joint-000", shown_sequences=2)
    replace(section["solver"], "scales", n_compared=5)
    return section


def gradual_rank(section: Section) -> Section:
    """Two seeds of two tokens a head, few stages and scales, at coarse tolerances; the last form of
    descent alone.
    """
    small = {"n_samples": 8, "d_model": 2}
    quick = {"max_stages": 3, "forecast_scales": [-4], "n_snapshots": 2, "n_times": 5, "seq_len": 2}
    replace(section, "problem", n_seeds=2, flow_scales=[-4, -8], **small, **quick)
    problems = []
    for row in read_rows(section["cases"]["problems"]):
        row["atol"] = 1e-2
        if row["name"] != section["studied"]:  # whose cells are empty
            row |= small | quick | {"flow_scales": [-4], "n_seeds": min(2, row["n_seeds"])}
            row["forecast_scales"] = [] if row["name"] == "draws" else [-4]
            row["max_stages"] = 1 if row["frames"] else 3
        problems.append(row)
    write_rows(section["cases"]["problems"], problems)
    replace(section, "solver", rtol=1e-3, atol=1e-2, curvature_share=0.5)
    replace(section, "flow", rtol=1e-3, atol=1e-2)
    replace(section, "descend", n_seeds=1, log10_init_scale=-4)
    replace(
        section["descend"],
        "drop",
        log10_init_scale=-1,
        learning_rate=1,
        flow_log10_init_scales=[-4],
    )
    replace(
        section,
        "full_weights",
        n_seeds=2,
        log10_init_scales=[-2],
        learning_rate=0.2,
        rescaled_end=20,
        **small,
    )
    replace(section, "full_weights", seq_len=2, n_snapshots=3)
    replace(
        section,
        "optimizers",
        n_seeds=2,
        log10_init_scales=[-2, -4],
        n_samples=8,
        teacher_rank=1,
        n_test=4,
    )
    replace(section, "signs", n_seeds=2, end=0.2, learning_rate=0.01)
    one_scale = small | {"n_seeds": 1, "seq_len": 2, "log10_init_scales": [-2]}
    short = {"n_seeds": 1, "batch_size": 4, "log10_init_scale": -4}
    short |= {"learning_rate": 0.1, "n_steps": 1000, "look_every": 200}
    sizes = section["cases"]["paper_size"]
    write_rows(sizes, [row | short for row in read_rows(sizes)])
    decays = section["cases"]["decays"]
    write_rows(decays, [row | one_scale for row in read_rows(decays)])
    replace(section, "assumptions", n_seeds=1, log10_init_scale=-4, duration=20, n_path_times=3)
    replace(section, "assumptions", n_random=1, n_rises=1, n_kicks=1, rtol=1e-3, atol=1e-2)
    replace(section, "forecast", log10_init_scales=[-4], n_changed=1, rescaled_end=10)
    replace(section, "evaluate", n_budgets=3)
    optimizers = section["cases"]["optimizers"]
    write_rows(
        optimizers, [row | {"n_steps": 40, "rescaled_end": 0} for row in read_rows(optimizers)]
    )
    descents = section["cases"]["descents"]
    header, *_, last = (ROOT / descents).read_text(encoding="utf-8").splitlines()
    TABLES[descents] = f"{header}\n{last}\n"
    return section


def low_rank_sparse(section: Section) -> Section:
    """Two seeds of few neurons and steps; each sweep at two values, three labellings of at most two
    kinds.
    """
    replace(
        section,
        "generate",
        n_seeds=2,
        n_train=40,
        n_test=20,
        d_model=12,
        n_patterns=10,
        seq_len=24,
        n_relevant=4,
    )
    replace(section, "train", n_neurons=16, batch_size=10, snapshot_steps=[1, 2])
    replace(
        section,
        "cut",
        ranks=[0, 1, 2, 12],
        rate_step=0.25,
        large_rate_step=0.5,
        rates_of_weights=[0, 0.5],
    )
    replace(section, "cut", n_rescale_samples=10)
    replace(section, "sweep", n_neurons=16, fitted_loss=10)
    replace(section, "evaluate", steps=[1, 2])
    cases, evaluate = section["cases"], section["evaluate"]
    replace(section, "adapt", n_seeds=2)
    configurations = [
        row | {"n_steps": 6, "n_seeds": 2} for row in read_rows(cases["configurations"])
    ]
    write_rows(cases["configurations"], configurations)
    write_rows(
        cases["adaptations"], [row | {"ranks": [1]} for row in read_rows(cases["adaptations"])[:1]]
    )
    easy = evaluate["easy_n_relevant"]
    values = {
        "n_relevant": [easy // 2, easy],
        "n_confusion": [0, 1],
        "noise": [0, 0.1],
        "n_neurons": [8, 16],
    }
    values |= {
        "n_patterns": [evaluate["fit_from_n_patterns"], 10],
        "learning_rate": [0.5, 1],
        "batch_size": [5, 10],
    }
    values |= {
        "n_train": [4, 8],
        "init_scale": [0.01, 0.1],
        "value_error": [0, 0.1],
        "query_key_error": [0, 0.1],
    }
    for table in cases["sweeps"].values():
        sweeps = []
        for row in read_rows(table):
            if "labels" in row:
                row["labels"] = row["labels"][:2]
            else:
                row["values"] = values[row["varies"]]
            if "crossed" in row:
                row["crossed_values"] = values[row["crossed"]]
            if "n_neurons" in row:
                row["n_neurons"] = 16
            sweeps.append(row | {"n_seeds": 2, "n_steps": 3})
        write_rows(table, sweeps)
    return section


def read_rows(path: str) -> list[Section]:
    """The lines of a committed table of cases, by their columns."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    header, *rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [dict(zip(header, map(YAML(typ="safe").load, row), strict=True)) for row in rows]


def write_rows(path: str, rows: list[Section]) -> None:
    """Have the tiny checkout hold this table of cases at that path."""
    lines = [list(rows[0]), *([json.dumps(cell) for cell in row.values()] for row in rows)]
    TABLES[path] = "".join("\t".join(line) + "\n" for line in lines)


def checkpoints(section: Section) -> Section:
    """Two tiny models of two layers, two seeds, a few steps, one budget and little text."""
    example, cases = section["example"], section["cases"]
    replace(example, "generate", n_bytes=4000, n_measured_bytes=1000)
    replace(example, "train", d_model=16, n_layers=2, n_heads=2, n_kv_heads=1, d_mlp=16)
    replace(example, "train", n_seeds=2, seq_len=16, batch_size=4)
    small = {"n_steps": 6, "learning_rate": 1e-2}
    write_rows(
        cases["trainings"],
        [row | small | {"snapshot_steps": [0, 2]} for row in read_rows(cases["trainings"])],
    )
    replace(
        example, "measure", budgets=[1], n_batches=2, n_measured_batches=4, batch_size=4, seq_len=16
    )
    replace(section, "plan", n_shuffles=1, n_points=1, pruning_rates=[0.5])
    return section


def replace(params: Section, section: str, **values: Any) -> None:
    """Set those values of a section that it has already: a key that is not in params.yaml has no
    tiny value.
    """
    if section in params:
        params[section] |= {key: value for key, value in values.items() if key in params[section]}


FAMILIES: dict[str, Callable[[Section], Section]] = {
    "checkpoints": checkpoints,
    "decision_lists": decision_lists,
    "gradual_rank": gradual_rank,
    "low_rank_sparse": low_rank_sparse,
    "vision": vision,
}


def make_tiny(folder: Path) -> None:
    """Give the project in that folder the tiny params and tables of cases."""
    set_params(folder, tiny(params_of(folder)))
    for path, text in TABLES.items():
        (folder / path).write_text(text, encoding="utf-8")
    (
        folder / "dvc.lock"
    ).unlink()  # it is of other params, and DVC reads and writes all of it after every stage


@dataclass(frozen=True)
class TinyPipeline:
    """A repository of three commits: the project, its params made tiny, and what `dvc repro` then
    made.
    """

    folder: Path
    said: str  # by `dvc repro`
    status: str  # of git, before the last commit

    @property
    def stages(self) -> tuple[Stage, ...]:
        return stages(self.folder)


def tiny_pipeline(folder: Path) -> TinyPipeline:
    """Run the pipeline on tiny params, once for every folder: another process waits for it."""
    said = folder.with_suffix(".json")
    with FileLock(folder.with_suffix(".lock")):
        if not said.exists():
            said.write_text(json.dumps(run_tiny(folder)), encoding="utf-8")
    return TinyPipeline(folder, **json.loads(said.read_text(encoding="utf-8")))


def run_tiny(folder: Path) -> dict[str, str]:
    """Make the three commits; what DVC and git said."""
    checkout(folder)
    make_tiny(folder)
    commit(folder, "Tiny params")
    with (
        one_core()
    ):  # starting processes costs more than such work; each stage alone is then run on all cores
        said = dvc("repro", at=folder)
    status = git("status", "--porcelain", "--untracked-files=all", at=folder)
    commit(folder, "What dvc repro makes of them")
    return {"said": said, "status": status}
