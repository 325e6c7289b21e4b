"""The common stage of spectra takes a run with any axes, down to one matrix of one run."""

import pytest
import torch

from lib.io.runs import Layout, write_run
from stages.spectra import Spectra, measure_run

START = torch.diag(torch.tensor([3.0, 2.0, 0.0]))
UPDATE = torch.diag(torch.tensor([0.0, 0.0, 4.0]))


@pytest.mark.parametrize(("axes", "seeds"), [([], []), ([], [7]), (["seed"], [7, 9]), (["seed", "layer", "head"], [7])])
def test_an_update_is_measured_wherever_it_stands(axes, seeds, tmp_path):
    shape = [{"seed": len(seeds), "layer": 2, "head": 3}[axis] for axis in axes]
    layout = Layout("toy", {"W": [*axes, "row", "col"]}, seeds=seeds)
    with write_run(tmp_path / "run", layout) as snapshots:
        for step, W in enumerate((START, START + UPDATE)):
            snapshots.add({"W": W.expand(*shape, 3, 3)}, [{"step": step}])
    rows = measure_run(tmp_path / "run", Spectra(rtol=1e-6, null_seed=0))
    update = rows[rows["of"] == "update"]
    assert len(update) == torch.Size(shape).numel()
    assert set(update["seed"]) == set(seeds or [0])
    assert set(update["layer"]) == ({1, 2} if "layer" in axes else {0})
    for sigma, rank in zip(update["singular_values"], update["stable_rank"], strict=True):
        assert sigma == pytest.approx([4, 0, 0], abs=1e-12)
        assert rank == pytest.approx(1)
