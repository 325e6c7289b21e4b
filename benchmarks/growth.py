"""The cost of one cell of every family by its size and, on paper, of many cells on many machines.

A cell is computed by its own stage, in a process of its own on one core; the start of that process
(Python, imports) is measured beside it and taken off. From three sizes comes the exponent of each
cost: the slope of its logarithm.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Row, write_results
from lib.files.params import load_yaml
from lib.work.command import run

ROOT = Path(__file__).parents[1]
CORES = 32  # of a machine, on paper
NODES = (1, 8, 64)
CELLS = (1_000, 100_000)
CORE = [
    sys.executable,
    "-c",
    "import os, sys; os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}); ",
]


@dataclass(frozen=True)
class Family:
    """One kind of cell: its size and how a stage is told it, the commands before it, and how many
    cells it computes.
    """

    name: str
    size: str
    sizes: tuple[int, ...]
    n_cells: int
    command: str
    out: str
    before: tuple[str, ...] = ()
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by section
    tables: Mapping[str, str] = field(
        default_factory=dict
    )  # {size}, {half} and {more} are filled in
    sized: tuple[str, ...] = ()  # params, as dotted keys, that are the size


FAMILIES = (
    Family(
        "gradual_rank: full matrices, 1,150 steps, 3 seeds",
        "d_model",
        (16, 32, 64),
        1,
        "stages.gradual_rank.full_weights --section=gradual_rank.full_weights --runs=runs "
        "--rises=rises.parquet",
        "runs",
        params={"gradual_rank.full_weights": {"log10_init_scales": [-4]}},
        sized=("gradual_rank.full_weights.d_model",),
    ),
    Family(
        "low_rank_sparse: tied, 60 steps, 1 seed",
        "neurons",
        (1000, 2000, 4000),
        4,
        "stages.low_rank_sparse.train --section=low_rank_sparse.train "
        "--n-seeds=low_rank_sparse.generate.n_seeds --configurations=ways.tsv "
        "--dataset=samples.safetensors --runs=runs --losses=losses.parquet",
        "runs",
        (
            "stages.low_rank_sparse.generate --section=low_rank_sparse.generate "
            "--dataset=samples.safetensors",
        ),
        params={"low_rank_sparse.generate": {"n_seeds": 4}},
        tables={"ways.tsv": "name\treadout\ntied\ttied\n"},
        sized=("low_rank_sparse.train.n_neurons",),
    ),
    Family(
        "decision_lists: flow to the bound, n = L/2",
        "tokens L",
        (10, 12, 14),
        2,
        "stages.decision_lists.flow --section=decision_lists.flow "
        "--solver=decision_lists.solver.flow --tasks=flow.parquet --of-many=many.tsv --flows=flow",
        "flow",
        (
            "stages.decision_lists.generate --groups=groups.tsv --flow=flow.parquet "
            "--scales=scales.parquet --descend=descend.parquet --train=train.parquet",
        ),
        tables={
            "groups.tsv": "group\tuse\tn_tokens\tseq_len\trepeats\t"
            "list_lengths\tlists\tn_heads\tlaws\tn_seeds\n"
            "grown\tbound\t{size}\t{half}\tfalse\t[2]\t[random]\t[2]\t[zipf 1]\t2\n"
            "heads\tspectral\t6\t2\tfalse\t[2]\t[cyclic]\t[1]\t[uniform]\t1\n"
            "joint\tjoint\t6\t2\tfalse\t[2]\t[cyclic]\t[1]\t[uniform]\t1\n",
            "many.tsv": "n_tokens\tseq_len\tlist_length\n30\t5\t2\n",
        },
    ),
    Family(
        "vision: digits, 100 steps of 64 images",
        "d_model",
        (32, 64, 128),
        2,
        "stages.vision.train --section=vision.digits.train --controls=controls.tsv "
        "--images=images --runs=runs",
        "runs",
        (
            "stages.vision.fetch --section=vision.digits.data --official=official",
            "stages.vision.generate --section=vision.digits.data --official=official "
            "--images=images",
        ),
        params={
            "vision.digits.train": {
                "init_scales": [1],
                "controls": [],
                "n_seeds": 2,
                "n_steps": 100,
            }
        },
        tables={"controls.tsv": (ROOT / "stages/vision/controls.tsv").read_text(encoding="utf-8")},
        sized=("vision.digits.train.model.d_model", "vision.digits.train.model.d_mlp"),
    ),
    Family(
        "checkpoints: a small GPT-2, 50 steps of 16 × 64 bytes",
        "d_model",
        (64, 128, 256),
        3,
        "stages.checkpoints.train --section=checkpoints.example.train --trainings=trainings.tsv "
        "--texts=texts --models=gpt2",
        "gpt2/tuned",
        ("stages.checkpoints.generate --section=checkpoints.example.generate --texts=texts",),
        params={"checkpoints.example.train": {"n_seeds": 1}},
        tables={
            "trainings.tsv": "name\tn_steps\tlearning_rate\tsnapshot_steps\n"
            "base\t50\t4e-3\t[0]\nlarge\t50\t2e-3\t[0]\n"
        },
        sized=("checkpoints.example.train.d_model", "checkpoints.example.train.d_mlp"),
    ),
)


def main(scaling: Path, cells: Path, growth: Path) -> None:
    rows: list[Row] = []
    seconds: dict[str, float] = {}
    for family in FAMILIES:
        start = cost(["-c", f"import {family.command.split()[0]}"], Path.cwd())[0]
        found = [measured(family, size, start) for size in family.sizes]
        exponents = np.polyfit(np.log(family.sizes), np.log(np.maximum(found, 1e-9)), 1)[0].tolist()
        for size, (cpu, memory, disk) in zip(family.sizes, found, strict=True):
            row: Row = {
                "cell": family.name,
                "size": f"{family.size} {size}",
                "cpu s": cpu,
                "peak GB": memory / 1e9,
            }
            rows.append(row | {"disk MB": disk / 1e6, "exponents (cpu, memory, disk)": ""})
        rows[-1]["exponents (cpu, memory, disk)"] = ", ".join(f"{x:.2f}" for x in exponents)
        seconds[family.name] = found[1][0]
    notes = [
        "CPU seconds of one cell, without its process's start; the peak is of the whole process, "
        "start and all."
    ]
    write_results(cells, "One cell by its size", rows, 1, ("torch", "numpy"), notes=notes)
    paper(scaling, seconds, {row["cell"]: row["disk MB"] for row in rows}, growth)


def paper(
    scaling: Path, seconds: Mapping[str, float], disk: Mapping[str, float], growth: Path
) -> None:
    """On paper, n cells on m machines take the longer of the workers' time and the head's, which
    gives out each.
    """
    table = json.loads(scaling.read_text(encoding="utf-8"))
    head = max(row["10,000: ms"] for row in table["rows"] if row["way"] == "ours, Ray") / 1e3
    rows: list[Row] = []
    for name, each in {"no work": 0.0, **seconds}.items():
        for n in CELLS:
            row: Row = {"cell": name, "cells": f"{n:,}"}
            for nodes in NODES:
                work = n * each / (nodes * CORES)
                given = n * head
                row[f"{nodes} nodes"] = (
                    f"{said(max(work, given))}{' (head)' if given > work else ''}"
                )
            rows.append(row | {"disk GB": n * disk.get(name, 0.0) / 1e3})
    notes = [
        f"Extrapolated, not measured: nodes of {CORES} cores as fast as this one, the middle size "
        "of each family (of "
        f"disk the largest), and the head's {1e3 * head:.2g} ms for a cell (measured with 10,000 "
        "cells of no work). "
        "Where it says (head), the one process that gives out cells is the bottleneck: on 64 "
        "nodes for cells of less "
        f"than {head * 64 * CORES:.2g} s.",
    ]
    write_results(growth, "Many cells on many machines", rows, 1, ("torch", "ray"), notes=notes)


def said(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"


def measured(family: Family, size: int, start: float) -> tuple[float, float, float]:
    """The CPU seconds, bytes of memory, and bytes of disk of one cell."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        params = load_yaml(ROOT / "params.yaml")
        for section, values in family.params.items():
            inside(params, section).update(values)
        for key in family.sized:
            inside(params, key.rpartition(".")[0])[key.rpartition(".")[2]] = size
        (folder / "params.yaml").write_text(json.dumps(params), encoding="utf-8")
        for name, text in family.tables.items():
            (folder / name).write_text(
                text.replace("{size}", str(size)).replace("{half}", str(size // 2))
            )
        for command in family.before:
            cost(["-m", *command.split()], folder)
        cpu, memory = cost(["-m", *family.command.split()], folder)
        disk = sum(
            file.stat().st_size for file in (folder / family.out).rglob("*") if file.is_file()
        )
        shutil.rmtree(folder / family.out)
    return max(cpu - start, 1e-3) / family.n_cells, memory, disk / family.n_cells


def inside(params: Any, section: str) -> Any:
    for name in section.split("."):
        params = params[name]
    return params


def cost(arguments: list[str], folder: Path) -> tuple[float, float]:
    """CPU seconds and peak bytes of a Python process with one core, which spreads no work then."""
    pinned = [
        *CORE[:2],
        CORE[2] + "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])",
        *arguments,
    ]
    own = {"PYTHONPATH": str(ROOT), "DVC_ROOT": str(folder), "LAB_WORKERS": "local"}
    process = subprocess.Popen(
        pinned, cwd=folder, env={**os.environ, **own}, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{arguments}: {said}"
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024.0


if __name__ == "__main__":
    run(main)
