"""A run that is not whole, not altered and not of this format is refused by every stage that reads
runs.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from alone import declared_files, run_alone
from lib.work.foreign import foreign_table
from project import ROOT, Stage, contents, stages

from lib.files.tables import read_table, write_table

pytestmark = pytest.mark.slow


def of_runs(stage: Stage, folder: Path) -> list[Path]:
    """The runs among what a stage declares; it need not read all of them."""
    return sorted(
        sums.parent for dep in stage.deps for sums in (folder / dep).glob("**/SHA256SUMS")
    )


def flip_a_bit(run: Path) -> None:
    content = bytearray((run / "steps.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (run / "steps.parquet").write_bytes(content)


def cut_a_snapshot_short(run: Path) -> None:
    content = (run / "snapshot-0000.safetensors").read_bytes()
    (run / "snapshot-0000.safetensors").write_bytes(content[: len(content) // 2])


def lose_the_last_snapshot(run: Path) -> None:
    max(run.glob("snapshot-*.safetensors")).unlink()


def end_before_the_digests(run: Path) -> None:
    (run / "SHA256SUMS").unlink()


def belong_to_another_format(run: Path) -> None:
    """Every snapshot of another version of the format, with digests to fit."""
    for file in run.glob("snapshot-*.safetensors"):
        before = file.read_bytes()
        after = before.replace(b"transformer dynamics run 1", b"transformer dynamics run 0")
        assert after != before
        file.write_bytes(after)
        sums = (run / "SHA256SUMS").read_text()
        old, new = (hashlib.sha256(content).hexdigest() for content in (before, after))
        (run / "SHA256SUMS").write_text(sums.replace(old, new))


def be_replaced_by_notes(run: Path) -> None:
    for file in run.iterdir():
        file.unlink()
    (run / "notes.txt").write_text("not a run")


HARMS = [
    (flip_a_bit, "steps.parquet: the content does not fit its SHA256SUMS"),
    (
        cut_a_snapshot_short,
        "snapshot-0000.safetensors: the content does not fit the SHA256SUMS of its run",
    ),
    (lose_the_last_snapshot, "wanted the file snapshot-"),
    (end_before_the_digests, "wanted a run (no SHA256SUMS is there)"),
    (
        belong_to_another_format,
        "wanted the format 'transformer dynamics run 1', got 'transformer dynamics run 0'",
    ),
    (be_replaced_by_notes, "wanted a run (no SHA256SUMS is there)"),
]
READERS = [stage for stage in stages() if any(dep.endswith("/runs") for dep in stage.deps)]
# All of them open runs by the same function: every harm to two of them, one to each of the others.
CASES = [
    (s.name, *harm)
    for s in READERS
    for harm in (HARMS if s.verb in ("spectra", "evaluate") else HARMS[:1])
]


@pytest.mark.parametrize(("name", "harm", "message"), CASES)
def test_a_harmed_run_is_refused_on_one_line(
    name, harm: Callable[[Path], None], message, tiny_pipeline, tmp_path
):
    [stage] = [stage for stage in tiny_pipeline.stages if stage.name == name]
    folder = tmp_path / "alone"
    declared_files(stage, tiny_pipeline.folder, folder)
    runs = of_runs(stage, folder)
    for run in runs:
        harm(run)
    given = contents(folder, ["."])
    done = run_alone(stage, folder, tmp_path / "scratch")
    assert done.returncode == 1, done.stdout + done.stderr
    [error] = [line for line in done.stderr.splitlines() if line and "%|" not in line]
    assert error.startswith(tuple(f"error: {run.relative_to(folder)}" for run in runs))
    assert message in error
    assert contents(folder, ["."]) == given, "it wrote something"


# Digested data that are whole, but another family's: one file or folder of each kind.
SETS = [
    "data/gradual_rank/tasks/small",
    "data/low_rank_sparse/samples",
    "data/vision/digits/images",
]
RUNS = [
    f"data/{name}"
    for name in ("gradual_rank/full_runs", "low_rank_sparse/runs", "decision_lists/runs")
]
FOREIGN = {
    "gradual_rank_greedy": ("data/gradual_rank/tasks", RUNS[1], "wanted a toy task, got"),
    "gradual_rank_flow": ("data/gradual_rank/tasks", RUNS[1], "wanted a toy task, got"),
    "gradual_rank_descend": (SETS[0], SETS[1], "wanted a toy task, got tensors"),
    "gradual_rank_assumptions": (SETS[0], SETS[2], "wanted a toy task, got tensors"),
    "low_rank_sparse_train": (SETS[1], SETS[0], "wanted a data set of patterns, with tensors"),
    "low_rank_sparse_adapt": (SETS[1], SETS[2], "wanted a data set of patterns, with tensors"),
    "low_rank_sparse_cut": (
        RUNS[1],
        RUNS[0],
        "wanted a run of low_rank_sparse, got one of gradual_rank",
    ),
    "low_rank_sparse_evaluate": (
        RUNS[1],
        RUNS[0],
        "wanted a run of low_rank_sparse, got one of gradual_rank",
    ),
    "decision_lists_certify": (
        RUNS[2],
        RUNS[1],
        "wanted a run of decision_lists, got one of low_rank_sparse",
    ),
    "vision_train@digits": (SETS[2], SETS[0], "wanted a data set of images, got tensors"),
    "vision_cut@digits": (SETS[2], SETS[1], "wanted a data set of images, got tensors"),
    "vision_evaluate@digits": (
        "data/vision/digits/runs",
        RUNS[0],
        "wanted a run of vision, got one of gradual_rank",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_whole_data_of_another_family_are_refused_on_one_line(name, tiny_pipeline, tmp_path):
    [stage] = [stage for stage in tiny_pipeline.stages if stage.name == name]
    wanted, got, message = FOREIGN[name]
    wanted, got = (one + ".safetensors" if one in SETS else one for one in (wanted, got))
    folder = tmp_path / "alone"
    declared_files(stage, tiny_pipeline.folder, folder)
    (shutil.rmtree if (folder / wanted).is_dir() else os.unlink)(folder / wanted)
    place = tiny_pipeline.folder / got
    (shutil.copytree if place.is_dir() else shutil.copy)(place, folder / wanted)
    done = run_alone(stage, folder, tmp_path / "scratch")
    assert done.returncode == 1, done.stdout + done.stderr
    [error] = [line for line in done.stderr.splitlines() if line and "%|" not in line]
    assert error.startswith(f"error: {wanted}")
    assert message in error


# Of each stage that reads tables, one of them.
GREEDY = "data/gradual_rank/predictions/small_stages.parquet"
FAMILIES = ("gradual_rank", "low_rank_sparse", "decision_lists", "vision", "checkpoints")
TABLES = {
    "gradual_rank_flow": GREEDY,
    "gradual_rank_descend": GREEDY,
    "gradual_rank_assumptions": GREEDY,
    "gradual_rank_evaluate": "data/gradual_rank/rises.parquet",
    "gradual_rank_compare": "data/gradual_rank/optimizers/runs.parquet",
    "gradual_rank_plot": "metrics/gradual_rank/tables/trajectories.parquet",
    "low_rank_sparse_evaluate": "data/low_rank_sparse/sweep.parquet",
    "low_rank_sparse_plot": "metrics/low_rank_sparse/tables/prune.parquet",
    "decision_lists_flow": "data/decision_lists/tasks_flow.parquet",
    "decision_lists_scales": "data/decision_lists/tasks_scales.parquet",
    "decision_lists_descend": "data/decision_lists/tasks_descend.parquet",
    "decision_lists_train": "data/decision_lists/tasks_train.parquet",
    "decision_lists_control": "data/decision_lists/tasks_train.parquet",
    "decision_lists_certify": "data/decision_lists/tasks_train.parquet",
    "decision_lists_evaluate": "data/decision_lists/flow/theorem.parquet",
    "decision_lists_plot": "metrics/decision_lists/tables/weights.parquet",
    "vision_evaluate@digits": "data/vision/digits/spectra.parquet",
    "vision_plot@digits": "metrics/vision/digits/tables/ranks.parquet",
    "checkpoints_plan": "data/checkpoints/llama/spectra.parquet",
    "checkpoints_evaluate": "data/checkpoints/gpt2/plans/plans.parquet",
    "checkpoints_plot": "metrics/checkpoints/tables/plans.parquet",
}


# Tables that are handed on unread, or nearly so, and the harms that pass for theirs in the work
# itself.
HANDED_ON = {
    "gradual_rank_evaluate": [
        "data/gradual_rank/disturbed/kicks",
        "data/gradual_rank/disturbed/returns",
    ],
    "gradual_rank_compare": [
        *(f"data/gradual_rank/optimizers/{name}" for name in ("conserved", "courses")),
        "data/gradual_rank/signs/diagonal",
    ],
    "low_rank_sparse_evaluate": [
        f"data/low_rank_sparse/{name}" for name in ("adapt", "directions", "losses")
    ],
    "decision_lists_evaluate": [
        f"data/decision_lists/{name}" for name in ("descend/courses", "flow/repeats", "spectra")
    ],
    "checkpoints_evaluate": [f"data/checkpoints/*/plans/{name}" for name in ("budgets", "modules")],
}


def of_another_family(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"step": [1, 2, 3], "matrix": ["W", "W", "V"], "norm": [0.5, 0.25, 0.125]})


def of_other_types(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {name: np.where(np.arange(len(table)) % 2, "one", "other") for name in table}
    )


def run_with(
    stage: Stage, project: Path, folder: Path, table: str, harm: Callable
) -> tuple[int, list[str]]:
    """A stage alone, with another table, also of several models: how it ends, and the lines that it
    says; a failure writes nothing.
    """
    declared_files(stage, project, folder)
    shutil.copy(ROOT / "stages" / "tables.txt", folder / "stages")
    for file in folder.glob(table):
        write_table(harm(read_table(file)), file)
    given = contents(folder, ["."])
    done = run_alone(stage, folder, folder.parent / "scratch")
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or contents(folder, ["."]) == given, "it wrote something"
    return done.returncode, [line for line in done.stderr.splitlines() if line and "%|" not in line]


@pytest.mark.parametrize("harm", [of_another_family, of_other_types])
@pytest.mark.parametrize("name", TABLES)
def test_another_table_is_refused_on_one_line(name, harm, tiny_pipeline, tmp_path):
    [stage] = [stage for stage in tiny_pipeline.stages if stage.name == name]
    code, lines = run_with(stage, tiny_pipeline.folder, tmp_path / "alone", TABLES[name], harm)
    [error] = [
        line for line in lines if line.startswith("error: ")
    ]  # processes that draw may warn, too
    assert code == 1
    if harm == of_another_family:
        wanted = (
            f"error: {re.escape(TABLES[name])}: wanted a table with the columns .*, got "
            "columns step, matrix, norm"
        )
        assert re.fullmatch(wanted, error)
    elif name == "checkpoints_plan":  # it looks for rows by what is in them
        assert (
            "wanted its spectrum, got none: measure spectra of data/checkpoints/llama/tuned"
            in error
        )
    else:
        assert error.startswith(f"error: {TABLES[name]}: wanted "), lines


@pytest.mark.parametrize("harm", [of_another_family, of_other_types])
@pytest.mark.parametrize(
    ("name", "table"), [(name, table) for name, tables in HANDED_ON.items() for table in tables]
)
def test_another_table_is_not_handed_on(name, table, harm, tiny_pipeline, tmp_path):
    [stage] = [stage for stage in tiny_pipeline.stages if stage.name == name]
    code, lines = run_with(
        stage, tiny_pipeline.folder, tmp_path / "alone", f"{table}.parquet", harm
    )
    [error] = lines
    assert code == 1
    wanted = (
        f"error: {table.replace('*', '.*')}.parquet: wanted a table with the columns .*, got .*"
    )
    assert re.fullmatch(
        wanted + r" \(after a change of what is written there: `make generated`\)", error
    )


def test_another_table_of_a_problem_of_ones_own_is_refused_on_one_line(tiny_pipeline, tmp_path):
    """A stage alone, with one more line in the table of problems, of a name that stages/tables.txt
    does not list.
    """
    [stage] = [stage for stage in tiny_pipeline.stages if stage.name == "gradual_rank_evaluate"]
    folder = tmp_path / "alone"
    declared_files(stage, tiny_pipeline.folder, folder)
    shutil.copy(ROOT / "stages" / "tables.txt", folder / "stages")
    [problems] = (folder / "stages" / "gradual_rank").glob("problems.tsv")
    [small] = [line for line in problems.read_text().splitlines() if "small" in line]
    problems.write_text(problems.read_text() + small.replace("small", "my_own") + "\n")
    for file in (folder / "data" / "gradual_rank").glob("*/small_*.parquet"):
        shutil.copy(file, file.with_name(file.name.replace("small", "my_own")))
    done = run_alone(stage, folder, tmp_path / "scratch")
    assert done.returncode == 0, done.stderr
    for table in ("flows/my_own_plateaus", "predictions/my_own_events"):
        file = folder / "data" / "gradual_rank" / f"{table}.parquet"
        before = file.read_bytes()
        write_table(of_another_family(read_table(file)), file)
        done = run_alone(stage, folder, tmp_path / "scratch")
        assert done.returncode == 1, done.stdout + done.stderr
        [error] = done.stderr.splitlines()
        wanted = (
            f"error: data/gradual_rank/{table}.parquet: wanted a table with the columns .*, "
            "got columns step, .*"
        )
        assert re.fullmatch(wanted, error)
        file.write_bytes(before)


def test_measures_of_another_family_are_refused_on_one_line(tiny_pipeline, tmp_path):
    families = [
        stage
        for stage in tiny_pipeline.stages
        if any(dep.endswith("/measures.json") for dep in stage.deps)
    ]
    assert {stage.name for stage in families} == {"low_rank_sparse_plot", "claims"}
    for stage in families:
        folder = tmp_path / stage.name
        declared_files(stage, tiny_pipeline.folder, folder)
        wanted = "metrics/low_rank_sparse/measures.json"
        shutil.copy(
            tiny_pipeline.folder / "metrics" / "decision_lists" / "measures.json", folder / wanted
        )
        done = run_alone(stage, folder, tmp_path / "scratch")
        assert done.returncode == 1, done.stdout + done.stderr
        [error] = done.stderr.splitlines()
        assert re.fullmatch(rf"error: {wanted}: .*wanted .*'\w+', got .*", error)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_without_rows_is_no_work_or_refused_on_one_line(name, tiny_pipeline, tmp_path):
    """Where nobody asked for a use, its table has none."""
    [stage] = [stage for stage in tiny_pipeline.stages if stage.name == name]
    code, lines = run_with(
        stage, tiny_pipeline.folder, tmp_path / "alone", TABLES[name], lambda table: table.head(0)
    )
    assert code == sum(line.startswith("error: ") for line in lines)


def test_every_stage_that_reads_tables_is_listed_and_its_own_tables_are_those_of_the_list(
    tiny_pipeline,
):
    reading = {}
    for stage in tiny_pipeline.stages:
        found = [file for dep in stage.deps for file in tables_in(tiny_pipeline.folder / dep)]
        if found:
            reading[stage.name] = found
    assert set(TABLES) == set(reading)
    for name, found in reading.items():
        family = next(family for family in FAMILIES if name.startswith(family))
        said = foreign_table(family, found)
        assert said is None or said.endswith("got none"), name  # tiny params leave some without


def tables_in(place: Path) -> list[Path]:
    files = [place] if place.suffix == ".parquet" else place.rglob("*.parquet")
    return [file for file in files if file.name != "steps.parquet"]  # of runs
