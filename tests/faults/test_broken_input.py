"""A run that is not whole, not altered and not of this format is refused by every stage that reads
runs.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from lib.files.tables import write_table
from tests.pipeline.alone import declared_files, run_alone
from tests.pipeline.project import Stage, contents, stages

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
TABLES = {
    "gradual_rank_flow": GREEDY,
    "gradual_rank_descend": GREEDY,
    "gradual_rank_assumptions": GREEDY,
    "gradual_rank_evaluate": "data/gradual_rank/rises.parquet",
    "gradual_rank_compare": "data/gradual_rank/optimizers/runs.parquet",
    "gradual_rank_judge_decay": "data/gradual_rank/decay/rises.parquet",
    "gradual_rank_plot": "metrics/gradual_rank/tables/errors.parquet",
    "low_rank_sparse_evaluate": "data/low_rank_sparse/sweep.parquet",
    "low_rank_sparse_plot": "metrics/low_rank_sparse/tables/truncate.parquet",
    "decision_lists_flow": "data/decision_lists/tasks_flow.parquet",
    "decision_lists_scales": "data/decision_lists/tasks_scales.parquet",
    "decision_lists_descend": "data/decision_lists/tasks_descend.parquet",
    "decision_lists_follow": "data/decision_lists/tasks_descend.parquet",
    "decision_lists_train": "data/decision_lists/tasks_train.parquet",
    "decision_lists_control": "data/decision_lists/tasks_train.parquet",
    "decision_lists_certify": "data/decision_lists/tasks_train.parquet",
    "decision_lists_evaluate": "data/decision_lists/flow/theorem.parquet",
    "decision_lists_plot": "metrics/decision_lists/tables/theorem.parquet",
    "vision_evaluate@digits": "data/vision/digits/spectra.parquet",
    "vision_plot@digits": "metrics/vision/digits/tables/ranks.parquet",
    "checkpoints_plan": "data/checkpoints/llama/spectra.parquet",
    "checkpoints_evaluate": "data/checkpoints/gpt2/plans/plans.parquet",
    "checkpoints_plot": "metrics/checkpoints/tables/plans.parquet",
}


OF_ANOTHER_FAMILY = pd.DataFrame(
    {"step": [1, 2, 3], "matrix": ["W", "W", "V"], "norm": [0.5, 0.25, 0.125]}
)


@pytest.mark.parametrize("name", TABLES)
def test_another_table_is_refused_on_one_line(name, tiny_pipeline, tmp_path):
    [stage] = [stage for stage in tiny_pipeline.stages if stage.name == name]
    folder = tmp_path / "alone"
    declared_files(stage, tiny_pipeline.folder, folder)
    file = folder / TABLES[name]
    write_table(OF_ANOTHER_FAMILY, file)
    given = contents(folder, ["."])
    done = run_alone(stage, folder, tmp_path / "scratch")
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
    # processes that draw may warn, too
    [error] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    wanted = (
        f"error: {re.escape(TABLES[name])}: wanted a table with the columns .*, got "
        "columns step, matrix, norm"
    )
    assert re.fullmatch(wanted, error)
    assert contents(folder, ["."]) == given, "it wrote something"


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


def test_every_stage_that_reads_tables_is_listed(tiny_pipeline):
    reading = {
        stage.name
        for stage in tiny_pipeline.stages
        if any(tables_in(tiny_pipeline.folder / dep) for dep in stage.deps)
    }
    assert set(TABLES) == reading


def tables_in(place: Path) -> list[Path]:
    files = [place] if place.suffix == ".parquet" else place.rglob("*.parquet")
    return [file for file in files if file.name != "steps.parquet"]  # of runs
