"""The parts of the README that are made from files are those that the last commit's files make."""

import json
import re
import subprocess

import pytest

from tools.readme import ROOT, claims_table, graph, replaced


def part(name: str) -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(f"<!-- {name}: made by make readme -->\n(.*?)\n<!-- end of {name} -->", text, re.DOTALL)
    assert found is not None, f"README.md: no part {name}"
    return found[1]


def test_the_claims_are_those_of_the_last_commit():
    """Of the commit, not of the working tree: who changes a number and runs the pipeline breaks no test."""
    command = ["git", "show", "HEAD:metrics/claims.json"]
    committed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert part("claims") == claims_table(json.loads(committed))


def test_the_graph_of_stages_is_dvcs():
    assert part("stages") == graph()


def test_every_figure_and_file_that_the_readme_names_is_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_a_missing_part_is_an_error():
    with pytest.raises(ValueError, match="wanted a part between"):
        replaced("no parts here", "claims", "")
