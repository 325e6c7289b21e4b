"""The page on adding a family is true: its files, put where it says, run and obey the rules."""

import io
import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.pipeline.project import PYTHON, ROOT, append, checkout, dvc, git, run, stages

PAGE = ROOT / "docs" / "add_a_family.md"
TEXT = PAGE.read_text(encoding="utf-8")
FILES = dict(re.findall(r"(?ms)^`([\w/.]+)`\n\n```\w+\n(.*?)^```$", TEXT))
SHARED = "  # what all families share\n"
# What the family adds to the commands of claims and report, and to their deps.
READ = dict(re.findall(r"(?m)^\| `(claims|report)` \| `([^`]+)` \|$", TEXT))


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """The project with the family of the page in it; nothing has run."""
    if (ROOT / "stages" / "deep_linear").exists():
        pytest.skip("the project has the page's family already")
    folder = checkout(tmp_path_factory.mktemp("family") / "project")
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if name == "dvc.yaml":
            whole = file.read_text(encoding="utf-8")
            assert whole.count(SHARED) == 1
            whole = whole.replace(SHARED, text + SHARED)
            for stage, line in READ.items():
                begin, command, rest = re.split(rf"( +python -m stages\.{stage}\b.*\n)", whole)
                rest = rest.replace("deps: [", f"deps: [{', '.join(line.split())}, ", 1)
                whole = f"{begin}{command}      {line}\n{rest}"
            file.write_text(whole, encoding="utf-8")
        elif file.exists():
            append(file, text)
        else:
            file.write_text(text, encoding="utf-8")
    run(PYTHON, "-m", "tools.deps", at=folder)
    return folder


def test_its_stages_depend_on_what_they_import(project):
    own = [stage for stage in stages(project) if "deep_linear" in stage.name]
    assert len(own) == 4
    assert [
        stage.name for stage in own if stage.module.replace(".", "/") + ".py" not in stage.code
    ] == []
    changed = git("diff", "--unified=0", "dvc.yaml", at=project)
    taken = re.findall(r"^-(?!--) +(.*)", changed, re.MULTILINE)
    assert [line for line in taken if re.search("python|cmd|outs|params", line)] == []


def test_its_code_is_as_the_linter_wants_it(project):
    files = [name for name in FILES if name.endswith(".py")]
    assert len(files) == 4
    run(PYTHON, "-m", "ruff", "check", *files, at=project)
    run(PYTHON, "-m", "ruff", "format", "--check", *files, at=project)


def test_its_params_are_as_dvc_writes_them():
    written = io.StringIO()
    yaml = YAML()
    yaml.dump(yaml.load(FILES["params.yaml"]), written)
    assert written.getvalue() == FILES["params.yaml"]


@pytest.mark.slow
def test_it_runs_and_its_claim_stands_in_the_report(project):
    dvc("repro", "deep_linear_plot", at=project)
    dvc("repro", "--single-item", "claims", "report", at=project)
    run(PYTHON, "-m", "pytest", "-k", "deep_linear", "tests/pipeline/test_drawn.py", at=project)
    claim = json.loads((project / "metrics" / "claims.json").read_text())["deep_linear_rank"]
    [case] = claim["cases"]
    assert (claim["holds"], case["values"]) == (True, [3, 3, 3])
    items = json.loads((project / "metrics" / "items.json").read_text())
    assert items["deep_linear.one_after_the_other"]["answer"] == "reproduced"
    measures = (project / "metrics" / "deep_linear" / "measures.csv").read_text()
    assert measures.splitlines()[2:] == [f"rank,,,{seed},3.0" for seed in range(3)]
    page = (project / "report.html").read_text(encoding="utf-8")
    assert "<code>plots/deep_linear/figures/singular-values.svg</code>" in page
    assert "the update has the rank of the map, 3" in page
    assert "One direction after the other" in page
