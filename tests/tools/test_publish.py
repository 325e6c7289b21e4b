"""`make publish` keeps what git has of a long run, and says exactly where it comes from."""

import json
import platform
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

from lib.files.files import InputError
from tests.pipeline.project import commit, git
from tools import publish

VISION = yaml.safe_load("""
datasets: [digits]
cases: {controls: a.tsv}
cut: {rate_step: 0.1, random_seed: 0}
evaluate: {reference_scale: 1}
plot: {lines: 8}
digits: &section
  data: {source: any, source_folder: somewhere/here}
  train:
    device: cpu
    n_steps: 30
    batch_size: 8
    augmentation: crop_flip
    n_seeds: 2
    first_seed: 4
  cut: {init_scales: [1], random_seed: 3}
other: *section
""")
COMMAND = """dvc exp run -S 'a=[1,"2"]' `date` $(id) \\ \n # end"""


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A commit of the code, and the results of a data set of 12 training images."""
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "lib/a.py": "",
        "stages/b.py": "",
        "dvc.yaml": "stages: {}\n",
        "params.yaml": yaml.safe_dump({"vision": VISION}),
        "metrics/vision/digits/measures.csv": "{}",
        "metrics/vision/digits/tables/training.parquet": "rows",
        "metrics/vision/other/measures.csv": "other",
        "plots/vision/digits/figures/figure-1.svg": "<svg/>",
        "plots/vision/digits/training.csv": "a",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    images = {
        f"{part}_images": torch.zeros(n, 1, 8, 8, dtype=torch.uint8)
        for part, n in (("train", 12), ("test", 5))
    }
    images |= {f"{part}_labels": torch.arange(n) % 3 for part, n in (("train", 12), ("test", 5))}
    (tmp_path / "data/vision/digits/images").mkdir(parents=True)
    save_file(images, tmp_path / "data/vision/digits/images/images.safetensors")
    git("init", "--quiet", at=tmp_path)
    commit(tmp_path, "All")
    return tmp_path


def published(project: Path) -> dict[str, str]:
    return {
        f.relative_to(project).as_posix(): f.read_text()
        for f in (project / "published").rglob("*")
        if f.is_file()
    }


def test_results_are_kept_with_where_they_come_from(project):
    publish.main("digits", COMMAND, 1.5)
    found = published(project)
    provenance = json.loads(found.pop("published/digits/provenance.json"))
    assert found == {
        "published/digits/measures.csv": "{}",
        "published/digits/tables/training.parquet": "rows",
        "published/digits/figures/figure-1.svg": "<svg/>",
    }
    packages = ["torch", "numpy", "pandas", "pyarrow", "safetensors", "scipy"]
    assert provenance == {
        "device": f"CPU, {platform.machine()}",
        "commit": git("rev-parse", "HEAD", at=project).strip(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
        "epochs": 20,  # 30 steps of 8 of 12 images
        "augmentation": "crop_flip",
        "seeds": [4, 5],
        "params": {
            "data": {"source": "any"},
            "train": VISION["digits"]["train"],
            "cut": VISION["cut"] | VISION["digits"]["cut"],
            "evaluate": VISION["evaluate"],
            "plot": VISION["plot"],
        },
        "command": COMMAND,
        "wall_hours": 1.5,
    }


def test_results_published_before_are_replaced(project):
    (project / "published/digits/figures").mkdir(parents=True)
    (project / "published/digits/figures/old.svg").write_text("old")
    (project / "published/digits/tables").mkdir()
    (project / "published/digits/tables/old.parquet").write_text("old")
    publish.main("digits", COMMAND, 1.5)
    assert not [name for name in published(project) if "old" in name]


def test_what_is_no_result_is_not_removed(project):
    (project / "published/digits").mkdir(parents=True)
    (project / "published/digits/notes.md").write_text("precious")
    with pytest.raises(
        InputError,
        match=r"published/digits: wanted an empty folder, .* got published/digits/notes.md",
    ):
        publish.main("digits", COMMAND, 1.5)
    assert published(project) == {"published/digits/notes.md": "precious"}


@pytest.mark.parametrize("changed", ["lib/a.py", "stages/new.py", "dvc.yaml"])
def test_code_that_is_of_no_commit_is_refused(changed, project):
    (project / changed).write_text("changed")
    with pytest.raises(
        InputError, match=f"(?s)wanted the code of a commit, got changes:.*{changed}"
    ):
        publish.main("digits", COMMAND, 1.5)
    assert not (project / "published").exists()


@pytest.mark.parametrize("name", ["cases", "datasets"])
def test_what_is_no_data_set_is_refused(name, project):
    wanted = rf"DATASET: wanted one of \['digits', 'other'\], .* got '{name}'"
    with pytest.raises(InputError, match=wanted):
        publish.main(name, COMMAND, 1.5)
