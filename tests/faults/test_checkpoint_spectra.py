"""Spectra of large folders of checkpoints: memory does not grow with the folder, and a killed call
goes on.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

from tests.checkpoints.checkpoints_made import SPECTRA
from tests.pipeline.project import ROOT

CHILD = """
import os, resource, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from pathlib import Path
from stages.checkpoints.spectra import main
main("checkpoints.spectra", *map(Path, sys.argv[1:]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def sharded(folder: Path, n_shards: int, rows: int, cols: int, seed: int) -> Path:
    """A checkpoint of one matrix per layer and shard."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "mine"}))
    placed = {}
    for i in range(n_shards):
        name, file = f"layers.{i}.up.weight", f"model-{i:05d}-of-{n_shards:05d}.safetensors"
        W = torch.randn(rows, cols, generator=torch.Generator().manual_seed(1000 * seed + i))
        save_file({name: W}, folder / file, {"format": "pt"})
        placed[name] = file
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
    return folder


def started(at: Path, base: Path, tuned: Path) -> subprocess.Popen:
    params = {"checkpoints": {"spectra": SPECTRA | {"method": "gram"}}}
    (at / "params.yaml").write_text(yaml.safe_dump(params))
    command = [sys.executable, "-c", CHILD, str(base), str(tuned), "spectra.parquet"]
    return subprocess.Popen(
        command,
        cwd=at,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen) -> str:
    said, errors = process.communicate(timeout=250)
    assert process.returncode == 0, errors
    return said


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_shards(tmp_path):
    peaks = {}
    for n_shards in (4, 100):
        at = tmp_path / str(n_shards)
        base, tuned = (
            sharded(at / name, n_shards, 2048, 512, seed)
            for seed, name in ((1, "base"), (2, "tuned"))
        )
        peaks[n_shards] = int(ended(started(at, base, tuned)).split()[-1]) / 1024
    assert peaks[100] - peaks[4] < 60, f"MB, of 800 that the folders hold: {peaks}"


@pytest.mark.slow
def test_a_killed_call_goes_on_and_gives_the_same_bytes(tmp_path):
    base, tuned = (
        sharded(tmp_path / name, 12, 1024, 1024, seed) for seed, name in ((1, "base"), (2, "tuned"))
    )
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
    ended(started(tmp_path / "whole", base, tuned))
    scratch = tmp_path / "killed" / ".dvc" / "tmp" / "scratch" / "checkpoints_spectra"
    process = started(tmp_path / "killed", base, tuned)
    while process.poll() is None and len(list(scratch.glob("*/done-*"))) < 3:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert process.returncode == -9, "it ended before it was killed"
    kept = {path: path.stat().st_mtime_ns for path in scratch.glob("*/done-*")}
    assert 3 <= len(kept) < 12
    ended(started(tmp_path / "killed", base, tuned))
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "measured again"
    wanted = (tmp_path / "whole" / "spectra.parquet").read_bytes()
    assert (tmp_path / "killed" / "spectra.parquet").read_bytes() == wanted
