"""What a user of DVC expects of the repository: it parses, says what it does, is quiet, in sync,
and stays clean.
"""

import ast
import os
import re
from functools import cache
from pathlib import Path

import pytest

from lib.files.params import load_yaml
from tests.pipeline.project import (
    ROOT,
    TRAINS,
    checkout,
    contents,
    followers,
    git,
    run,
    stages,
    would_run,
)

DETERMINES = [
    "lib",
    "stages",
    "params.yaml",
    "dvc.yaml",
    "dvc.lock",
    "metrics",
    "plots",
]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Path:
    """The project as it would be cloned after a commit of everything: no data."""
    return checkout(tmp_path_factory.mktemp("fresh") / "project")


def test_every_stage_says_what_it_does():
    assert [stage.name for stage in stages() if not (stage.desc or "").strip()] == []


def test_dvc_sends_no_analytics_and_does_not_look_for_updates():
    config = (ROOT / ".dvc" / "config").read_text(encoding="utf-8")
    assert re.findall(r"(analytics|check_update) = (\w+)", config) == [
        ("analytics", "false"),
        ("check_update", "false"),
    ]


def test_nothing_is_frozen_or_survives_from_one_run_to_the_next():
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    assert re.findall(r"\b(?:frozen|persist):", text) == []


def test_a_stage_that_trains_has_only_cached_outs():
    """Otherwise the run cache could not serve training to another machine."""
    costly = [stage for stage in stages() if stage.verb in TRAINS]
    assert costly
    assert [(stage.name, out.path) for stage in costly for out in stage.outs if out.in_git] == []


def test_no_stage_depends_on_a_folder_that_holds_outs_of_others():
    """In a clone without data, DVC takes such a folder for changed, or for unchanged, as it
    happens.
    """
    outs = [out.path for stage in stages() for out in stage.outs]
    deps = [(stage.name, dep) for stage in stages() for dep in stage.deps]
    assert [
        (name, dep) for name, dep in deps if any(out.startswith(dep + "/") for out in outs)
    ] == []


def test_a_family_alone_is_one_command():
    """What its plot needs is made by its own stages, directly or not."""
    behind = {stage.name: followers({stage.name}, stages()) for stage in stages()}
    for plot in (stage for stage in stages() if stage.verb == "plot"):
        needed = [name for name, found in behind.items() if plot.name in found]
        family = plot.module.split(".")[1]
        assert len(needed) > 3
        assert [name for name in needed if not name.startswith(family)] == []


def test_every_family_that_trains_has_model_cards_of_its_runs():
    cards = load_yaml(ROOT / "dvc.yaml")["artifacts"]
    training = [stage for stage in stages() if stage.verb in TRAINS]
    outs = {out.path for stage in training for out in stage.outs}
    assert {card["path"] for card in cards.values()} <= outs
    families = {Path(card["path"]).parts[1] for card in cards.values()}
    assert families == {stage.module.split(".")[1] for stage in training}
    for name, card in cards.items():
        assert (card["type"], (ROOT / card["meta"]["docs"]).is_file()) == ("model", True), name
        assert {"desc", "labels"} <= {key for key, value in card.items() if value}, name
        assert "licence" in card["meta"], name


def test_git_keeps_exactly_the_outs_that_dvc_does_not_cache(fresh):
    outs = [out for stage in stages() for out in stage.outs]
    ignored = run(
        "git", "check-ignore", "--no-index", *(out.path for out in outs), at=fresh
    ).splitlines()
    assert sorted(ignored) == sorted(out.path for out in outs if not out.in_git)
    tracked = [out.path for out in outs if out.in_git and not git("ls-files", out.path, at=fresh)]
    assert tracked == [], "made by no `dvc repro` that was committed"


def test_what_git_keeps_is_small(fresh):
    kept = contents(fresh, [out.path for stage in stages() for out in stage.outs if out.in_git])
    assert {name: len(content) for name, content in kept.items() if len(content) > 2 << 20} == {}


def test_the_recorded_state_is_that_of_the_code_and_params(fresh):
    stale = would_run(fresh)
    changed = git("status", "--porcelain", "--", *DETERMINES, at=ROOT).splitlines()
    if stale and changed and not os.environ.get("CI"):
        pytest.skip(
            f"work in progress: {', '.join(stale)} would run; git status: {'; '.join(changed)}"
        )
    assert stale == [], "`dvc repro` has not been run and committed"


def test_after_a_run_git_sees_changes_of_outs_and_of_nothing_else(tiny_pipeline):
    outs = [out.path for stage in tiny_pipeline.stages for out in stage.outs if out.in_git]
    changed = [(line[:2], line[3:]) for line in tiny_pipeline.status.splitlines()]
    others = [
        (state, name) for state, name in changed if name != "dvc.lock" and not within(name, outs)
    ]
    assert others == [], "a .gitignore that was not committed, or a file that no stage declares"


def within(name: str, outs: list[str]) -> bool:
    return any(name == out or name.startswith(out + "/") for out in outs)


def test_every_stage_that_reads_seeds_reads_from_where_they_count():
    """`seeds_from` shifts all seeds; a stage that draws without it would keep its own."""

    @cache
    def reads_seeds(file: str) -> bool:
        imports = [
            node
            for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom) and node.module == "lib.files.params"
        ]
        return any({"Seed", "Seeds"} & {name.name for name in one.names} for one in imports)

    own = {"lib/files/params.py"}
    drawing = {
        stage.name
        for stage in stages()
        if any(reads_seeds(file) for file in stage.code - own if file.endswith(".py"))
    }
    assert len(drawing) > 20
    assert {stage.name for stage in stages() if "seeds_from" in stage.params} == drawing
