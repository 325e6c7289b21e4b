"""README.md and docs/claims.md say what the verdicts say, and name what is there."""

import importlib
import inspect
import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.growth import FAMILIES
from lib.files.inputs import JSON_DIGEST
from lib.files.params import load_yaml
from lib.files.sources import closure
from tests.pipeline.project import git, params_of, stages
from tools.readme import (
    ROOT,
    captioned,
    captions_of,
    conserved,
    fragile,
    page,
    read_runs,
    replaced,
    results,
    score,
    unsure,
)

RUNS = read_runs(ROOT / "published")
PARTS = {
    "score": lambda items, _: score(items),
    "results": lambda items, claims: results(items, claims, RUNS),
    "what does not hold": lambda items, claims: unsure(items, claims),
    "what is fragile": lambda items, _: fragile(items),
}
README = (ROOT / "README.md").read_text(encoding="utf-8")


def answered() -> list[tuple[dict[str, dict], dict[str, dict]]]:
    """Items and claims of the working tree and of the commit; a page is of the one or the other.

    So tests pass after `make readme`, before its commit, and after `make repro` on another
    processor, whose last digits differ. A commit of a page without its verdicts fails here for
    whoever checks it out.
    """
    files = [f"metrics/{name}.json" for name in ("items", "claims")]
    here = [(ROOT / file).read_text(encoding="utf-8") for file in files]
    there = [git("show", f"HEAD:{file}", at=ROOT) for file in files]
    said = [[json.loads(text) for text in texts] for texts in (here, there)]
    for one in (found for pair in said for found in pair):
        one.pop(JSON_DIGEST, None)  # a commit may be older than digests
    return [(items, claims) for items, claims in said]


def test_the_page_of_claims_is_that_of_the_verdicts():
    text = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    assert any(text == page(*found, RUNS) for found in answered()), (
        "docs/claims.md: run make readme"
    )


@pytest.mark.parametrize(("name", "made"), list(PARTS.items()))
def test_what_the_readme_says_was_judged(name, made):
    found = re.search(
        f"<!-- {name}: made by make readme -->\n(.*?)\n<!-- end of {name} -->", README, re.DOTALL
    )
    assert found is not None
    assert found[1] in [made(*found) for found in answered()], "README.md: run make readme"


def test_what_optimisers_conserve_is_that_of_the_tables(tmp_path):
    """The tables are those of the working tree or of the commit."""
    folder = Path("metrics/gradual_rank/optimizers/tables")
    for name in ("optimizers.parquet", "conserved.parquet"):
        shown = subprocess.run(
            ["git", "show", f"HEAD:{folder / name}"], cwd=ROOT, capture_output=True, check=True
        )
        (tmp_path / name).write_bytes(shown.stdout)
    text = (ROOT / "docs" / "optimisers.md").read_text(encoding="utf-8")
    pages = []
    for tables in (ROOT / folder, tmp_path):
        page = text
        for name, table in conserved(tables).items():
            page = replaced(page, name, table)
        pages.append(page)
    assert text in pages, "docs/optimisers.md: run make readme"


def test_captions_are_those_of_the_one_place():
    captions = captions_of(answered()[0][1])
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        assert text == captioned(text, captions), f"{path.name}: run make readme"


def test_every_figure_of_a_page_has_its_title_and_its_caption_below():
    families = {"a": {"figures": {"x": {"title": "An x", "caption": "See x."}}}}
    before = "![old](../plots/a/figures/x.svg)\n![y](../plots/a/figures/y.svg)\n"
    before += "![o](plots/a/b/figures/x.svg)\n\n*old*\n\ntext"
    after = (
        "![An x](../plots/a/figures/x.svg)\n\n*See x.*\n\n![y](../plots/a/figures/y.svg)\n"
        "![An x](plots/a/b/figures/x.svg)\n\n*See x.*\n\ntext"
    )
    assert captioned(before, families) == after
    assert captioned(after, families) == after


def test_the_graph_of_verbs_has_those_of_the_stages():
    [graph] = re.findall("```mermaid\n(.*?)```", README, re.DOTALL)
    nodes = dict(re.findall(r'(\w+)\["([^"]+)"\]', graph))
    assert nodes
    verbs = {
        word
        for text in nodes.values()
        for word in text.partition(":")[0].removesuffix(".html").split(", ")
    }
    assert verbs - {stage.verb for stage in stages()} == set()


def test_what_the_readme_sets_is_a_param():
    set_here = re.findall(r"-S '?([\w.]+)=", README)
    assert set_here
    for name in set_here:
        value = params_of(ROOT)
        for key in name.split("."):
            value = value[key]


def test_the_benchmarks_are_a_pipeline_of_programs_that_are_there():
    listed = load_yaml(ROOT / "benchmarks/dvc.yaml")["stages"].values()
    modules = {module for stage in listed for module in re.findall(r"-m ([\w.]+)", str(stage))}
    assert modules
    assert [one for one in modules if not (ROOT / (one.replace(".", "/") + ".py")).is_file()] == []


def test_a_benchmark_depends_on_all_that_it_and_the_programs_that_it_starts_import():
    """A program that is started stands among the deps; a folder there is all that it holds."""
    for name, stage in load_yaml(ROOT / "benchmarks/dvc.yaml")["stages"].items():
        deps = {(ROOT / "benchmarks" / path).resolve().relative_to(ROOT) for path in stage["deps"]}
        modules = re.findall(r"-m (benchmarks\.\w+)", stage["cmd"])
        programs = [f"{module.replace('.', '/')}.py" for module in modules]
        programs += [
            str(path) for path in deps if re.fullmatch(r"(stages|tools)/.*\.py", str(path))
        ]
        read = {path for program in programs for path in closure(program, ROOT)}
        missing = [path for path in read if not deps & {Path(path), *Path(path).parents}]
        assert sorted(missing) == [], name


def test_what_a_benchmark_starts_gives_every_input_and_output_by_its_name():
    for family in FAMILIES:
        for command in (family.command, *family.before):
            module, *given = command.split()
            main = importlib.import_module(module).main
            wanted = [name.replace("_", "-") for name in inspect.signature(main).parameters]
            assert [one.partition("=")[0].removeprefix("--") for one in given] == wanted


def test_every_figure_and_file_that_a_page_names_is_there():
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        found = re.findall(r"\]\(([^)#\s]+)\)", path.read_text(encoding="utf-8"))
        links = [link for link in found if not link.startswith("http")]
        assert [link for link in links if not (path.parent / link).exists()] == [], path


def test_every_file_that_one_is_told_to_read_is_there():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:lib|stages|tests)/\w[\w/]+\.py)`", text)
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_a_missing_part_is_an_error():
    with pytest.raises(ValueError, match="wanted a part between"):
        replaced("no parts here", "results", "")
