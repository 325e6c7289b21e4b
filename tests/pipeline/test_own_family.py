"""The page on adding a family is true: its files, put where it says, run and obey the rules."""

import json
import re
from pathlib import Path

import pytest
from project import ROOT, append, checkout, dvc, stages
from test_imports import differences

PAGE = ROOT / "docs" / "add_a_family.md"
BLOCK = re.compile(r"^`([\w/.]+)`\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOLDERS = ["metrics/deep_linear/measures.json", "plots/deep_linear/figures"]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """The project with the family of the page in it; nothing has run."""
    folder = checkout(tmp_path_factory.mktemp("family") / "project")
    for name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if name == "dvc.yaml":
            whole = file.read_text(encoding="utf-8").replace("\nstages:\n", f"\nstages:\n{text}", 1)
            for path, before in zip(FOLDERS, ("claims.yaml\n", "metrics/claims.json\n"), strict=True):
                whole = whole.replace(f"    deps:\n      - {before}", f"    deps:\n      - {path}\n      - {before}", 1)
            whole = whole.replace(
                "python -m stages.claims claims.yaml", f"python -m stages.claims claims.yaml {FOLDERS[0]}"
            )
            whole = whole.replace("stages/report.html report.html", f"stages/report.html report.html {FOLDERS[1]}")
            file.write_text(whole, encoding="utf-8")
        elif file.exists():
            append(file, text)
        else:
            file.write_text(text, encoding="utf-8")
    return folder


def test_its_stages_depend_on_what_they_import(project):
    own = [stage for stage in stages(project) if "deep_linear" in stage.name]
    assert len(own) == 4
    assert differences(own, project) == []


@pytest.mark.slow
def test_it_runs_and_its_claim_stands_in_the_report(project):
    dvc("repro", "deep_linear_plot", at=project)
    dvc("repro", "--single-item", "claims", "report", at=project)
    claim = json.loads((project / "metrics" / "claims.json").read_text())["deep_linear_rank"]
    assert (claim["state"], claim["values"]) == ("holds", [3, 3, 3])
    page = (project / "report.html").read_text(encoding="utf-8")
    assert '<figure id="plots/deep_linear/figures/singular-values.svg">' in page
    assert "the update has the rank of the map, three" in page
