"""The losses of one tiny training of each family are those that were kept.

golden/ has a file for each class of CPU: the losses to the bit, and the packages that made them.
Another class, or another package, may round otherwise, by less than 1e-5. `python -m
tests.pipeline.test_golden FOLDER` keeps those of a folder in which the tiny pipeline has run.
"""

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from lib.work.machines import machine

GOLDEN = Path(__file__).parent / "golden"
CPU = ("CPU", "vector instructions")
COURSES = {
    "gradual_rank": ("data/gradual_rank/full_runs/log10_init_scale=-2/steps.parquet", "loss"),
    "low_rank_sparse": ("data/low_rank_sparse/runs/tied/steps.parquet", "hinge"),
    "decision_lists": ("data/decision_lists/joint/joint-000/steps.parquet", "loss"),
    "vision": ("data/vision/digits/runs/init_scale=0.1,labels=permuted/steps.parquet", "test_loss"),
    "checkpoints": ("data/checkpoints/gpt2/plans/losses.parquet", "loss_tuned"),
}


def course(folder: Path, family: str) -> list[float]:
    """The losses of a family's training, in the order of its table."""
    file, column = COURSES[family]
    return pd.read_parquet(folder / file)[column].astype(float).tolist()


def kept() -> dict[str, dict]:
    """What stands in golden/, by class of CPU."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(GOLDEN.glob("*.json"))}


def cpu_class() -> str:
    """The name of the class of this machine's CPU."""
    here = machine()
    return re.sub(r"\W+", "-", " ".join(here[key] for key in CPU))


def packages() -> dict[str, str]:
    """The versions of what computes here."""
    return {name: version for name, version in machine().items() if name not in CPU}


@pytest.mark.parametrize("family", COURSES)
def test_on_the_same_class_of_cpu_the_losses_are_the_same_to_the_bit(family, tiny_pipeline):
    golden = kept().get(cpu_class())
    if golden is None or not golden["packages"].items() <= packages().items():
        pytest.skip(f"golden/ has no losses of {cpu_class()} with these packages")
    assert course(tiny_pipeline.folder, family) == golden["losses"][family]


@pytest.mark.parametrize("family", COURSES)
def test_on_any_cpu_the_losses_agree_but_for_rounding(family, tiny_pipeline):
    found = course(tiny_pipeline.folder, family)
    for golden in kept().values():
        assert found == pytest.approx(golden["losses"][family], rel=1e-5, abs=1e-9)


if __name__ == "__main__":
    losses = {family: course(Path(sys.argv[1]), family) for family in COURSES}
    GOLDEN.mkdir(exist_ok=True)
    file = GOLDEN / f"{cpu_class()}.json"
    file.write_text(json.dumps({"packages": packages(), "losses": losses}, indent=1) + "\n")
    print(f"kept in {file}")
