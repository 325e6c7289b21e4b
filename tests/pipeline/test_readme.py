"""The parts of the README that are made from files are those that these files make."""

import json
import re

import pytest
from project import dvc, stages

from lib.io.params import load_yaml
from tools.readme import ROOT, claims_table, graph, replaced


def part(name: str) -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(f"<!-- {name}: made by make readme -->\n(.*?)\n<!-- end of {name} -->", text, re.DOTALL)
    assert found is not None, f"README.md: no part {name}"
    return found[1]


def test_the_claims_are_those_that_were_judged():
    """Of the working tree, so that `make generated` is followed by tests that pass before the commit too.

    That is enough: a commit of one without the other fails here for whoever checks it out.
    """
    judged = json.loads((ROOT / "metrics" / "claims.json").read_text(encoding="utf-8"))
    assert part("claims") == claims_table(judged)


def test_the_graph_of_stages_is_dvcs():
    assert part("stages") == graph()


def test_all_stages_are_those_of_the_pipeline_without_its_benchmarks():
    drawn = re.findall(r'^\s*"([^"]+)";$', dvc("dag", "--dot", at=ROOT), re.MULTILINE)
    assert sorted(drawn) == sorted(stage.name for stage in stages())


def test_the_benchmarks_are_a_pipeline_of_their_own():
    """What `make bench` runs, after its first step."""
    said = dvc("repro", "--dry", "--force", at=ROOT / "benchmarks")
    ran = re.findall(r"^> cd \.\. && python -m (benchmarks\.\w+) (.+)$", said, re.MULTILINE)
    assert ran
    assert all((ROOT / (module.replace(".", "/") + ".py")).is_file() for module, _ in ran)
    assert re.findall(r"^Running stage '(.+)'", said, re.MULTILINE) == list(
        load_yaml(ROOT / "benchmarks/dvc.yaml")["stages"]
    )


def test_every_figure_and_file_that_the_readme_names_is_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_a_missing_part_is_an_error():
    with pytest.raises(ValueError, match="wanted a part between"):
        replaced("no parts here", "claims", "")
