"""Input that is altered, or of another family, is refused on one line by every stage that reads
it, and nothing is written.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from lib.files.tables import write_table
from tests.pipeline.alone import declared_files, run_loaded
from tests.pipeline.project import Stage, contents, different_stages

pytestmark = pytest.mark.slow

Harm = Callable[[Path, Path], list[Path]]  # what it changed in a folder, beside the whole project
OTHER_SETS = (
    "data/gradual_rank/tasks/small.safetensors",
    "data/vision/digits/images/images.safetensors",
)
OTHER_RUNS = ("data/gradual_rank/full_runs", "data/low_rank_sparse/runs")
STEPS = "steps.parquet"


def flipped_bits(folder: Path, _: Path) -> list[Path]:
    """Flip a bit in every run."""
    found = list(folder.rglob(STEPS))
    for file in found:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    return [file.parent for file in found]


def other_tables(folder: Path, _: Path) -> list[Path]:
    """Put another table in place of every one but those of runs and published ones, which nothing
    reads.
    """
    tables = [file for file in folder.rglob("*.parquet") if file.name != STEPS]
    found = [file for file in tables if not file.is_relative_to(folder / "published")]
    for file in found:
        write_table(pd.DataFrame({"step": [1, 2], "matrix": ["W", "V"], "norm": [0.5, 0.25]}), file)
    return found


def data_of_another_family(folder: Path, project: Path) -> list[Path]:
    """Put a whole data set of another family in the place of every data set."""
    families = ("gradual_rank", "low_rank_sparse", "vision")
    files = [file for name in families for file in folder.glob(f"data/{name}/**/*.safetensors")]
    found = [file for file in files if "snapshot" not in file.name]
    for file in found:
        own = file.relative_to(folder).parts[1]
        shutil.copy(project / OTHER_SETS[own in OTHER_SETS[0]], file)
    return found


def runs_of_another_family(folder: Path, project: Path) -> list[Path]:
    """Put in another family's runs, but not for the stage of spectra, which takes any family's."""
    if (folder / "stages" / "spectra.py").exists():
        return []
    found = sorted({file.parents[1] for file in folder.rglob(STEPS)})
    for runs in found:
        shutil.rmtree(runs)
        own = runs.relative_to(folder).parts[1]
        shutil.copytree(project / OTHER_RUNS[own in OTHER_RUNS[0]], runs)
    return found


def measures_of_another_family(folder: Path, project: Path) -> list[Path]:
    file = folder / "metrics/low_rank_sparse/measures.csv"
    if not file.exists():
        return []
    shutil.copy(project / "metrics/decision_lists/measures.csv", file)
    return [file]


def one_digit_of_measures(folder: Path, _: Path) -> list[Path]:
    """Change one digit in every file of measures, which keeps its number of bytes."""
    found = [file for file in folder.rglob("measures.*") if "metrics" in file.parts]
    for file in found:
        text = file.read_text()
        place = re.search(r'"values": \[\s*-?\d|value\n.*,-?\d', text).end() - 1
        file.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
    return found


SAID = {
    flipped_bits: "the content does not fit",
    other_tables: "wanted a table with the columns .*, got columns step, matrix, norm",
    data_of_another_family: "wanted .*, (with tensors .*)?got tensors|, with tensors .* got",
    runs_of_another_family: "wanted (a run|some of)",
    one_digit_of_measures: "wanted the content of its digest, .* the file was altered",
    measures_of_another_family: r"wanted .*'[\w.]+', got ",
}


@pytest.mark.parametrize("harm", SAID, ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("stage", different_stages(), ids=lambda stage: stage.name)
def test_harmed_input_is_refused_on_one_line(harm: Harm, stage: Stage, tiny_pipeline, tmp_path):
    stage = tiny_pipeline.stage(stage.name)
    folder = tmp_path / "alone"
    declared_files(stage, tiny_pipeline.folder, folder)
    harmed = harm(folder, tiny_pipeline.folder)
    if not harmed:
        pytest.skip("it reads none")
    given = contents(folder, ["."])
    code, said = run_loaded(stage, folder, tmp_path / "scratch")
    assert code == 1, said
    assert "Traceback" not in said
    [error] = [line for line in said.splitlines() if line.startswith("error: ")]
    assert error.startswith(tuple(f"error: {file.relative_to(folder)}" for file in harmed))
    assert re.search(SAID[harm], error)
    assert contents(folder, ["."]) == given, "it wrote something"
