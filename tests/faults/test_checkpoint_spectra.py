"""Spectra of large folders of checkpoints: memory does not grow with the folder."""

import json
import subprocess
import sys
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
named = zip(("base", "snapshots", "spectra"), map(Path, sys.argv[1:]), strict=True)
main(section="checkpoints.spectra", **dict(named))
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


def peak(at: Path, base: Path, tuned: Path) -> float:
    """The most memory of a process that measures their spectra, in MB."""
    params = {"checkpoints": {"spectra": SPECTRA | {"method": "gram"}}}
    (at / "params.yaml").write_text(yaml.safe_dump(params))
    command = [sys.executable, "-c", CHILD, str(base), str(tuned), "spectra.parquet"]
    plain = {"PYTHONPATH": str(ROOT), "PATH": ""}
    said = subprocess.check_output(command, cwd=at, env=plain, text=True, timeout=250)
    return int(said.split()[-1]) / 1024


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_shards(tmp_path):
    peaks = {}
    for n_shards in (4, 100):
        at = tmp_path / str(n_shards)
        base = sharded(at / "base", n_shards, 2048, 512, 1)
        tuned = sharded(at / "tuned", n_shards, 2048, 512, 2)
        peaks[n_shards] = peak(at, base, tuned)
    assert peaks[100] - peaks[4] < 60, f"MB, of 800 that the folders hold: {peaks}"
