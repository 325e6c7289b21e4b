"""With DVCLive a training draws itself while it runs; what it makes is the same with and
without.
"""

import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.pipeline.alone import declared_files, run_loaded
from tests.pipeline.project import contents

pytest.importorskip("dvclive", reason="DVCLive is not installed")


@pytest.fixture(scope="module")
def train(tiny_pipeline):
    [stage] = [stage for stage in tiny_pipeline.stages if stage.name.startswith("vision_train")]
    return stage


def curves_of(root: Path) -> dict[str, pd.DataFrame]:
    """Each training's curves, by variant and seed."""
    folders = sorted((root / "dvclive").glob("*/*/*/seed=*/plots/metrics"))
    tables = {
        f"{folder.parts[-4]} {folder.parts[-3]}": [
            pd.read_csv(path, sep="\t", index_col="step") for path in files
        ]
        for folder in folders
        if (files := sorted(folder.glob("*.tsv")))
    }
    return {name: pd.concat(columns, axis=1) for name, columns in tables.items()}


def test_the_live_curves_are_those_of_the_run(tiny_pipeline, train):
    curves = curves_of(tiny_pipeline.folder)
    [out] = train.outs
    runs = sorted((tiny_pipeline.folder / out.path).glob("*/steps.parquet"))
    assert runs
    for file in runs:
        for seed, rows in pd.read_parquet(file).groupby("seed"):
            live = curves.pop(f"{file.parent.name} seed={seed}")
            wanted = rows.set_index("step")[live.columns]
            assert set(live.columns) >= {"train_loss", "test_loss", "test_accuracy"}
            pd.testing.assert_frame_equal(
                live, wanted, check_dtype=False, check_index_type=False, rtol=1e-12
            )
    assert curves == {}


def uninstall() -> None:
    for name in ("dvclive", "dvclive.live"):
        sys.modules[name] = None


@pytest.mark.slow
def test_without_dvclive_the_training_makes_the_same_bytes(tiny_pipeline, train, tmp_path):
    declared_files(train, tiny_pipeline.folder, tmp_path / "alone")

    code, said = run_loaded(train, tmp_path / "alone", tmp_path / "root", uninstall)
    assert code == 0, said
    assert "live" not in said
    outs = [out.path for out in train.outs]
    assert contents(tmp_path / "alone", outs) == contents(tiny_pipeline.folder, outs)
