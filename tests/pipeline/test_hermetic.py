"""Each stage alone, on tiny params: what dvc.yaml declares is all that it reads and all that it writes."""

import dataclasses
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from subprocess import CompletedProcess

import pytest
from alone import Contents, declared_files, run_alone
from project import contents, different_stages

NAMES = [stage.name for stage in different_stages()]


@pytest.fixture(scope="module")
def alone(tiny_pipeline, tmp_path_factory, request) -> Iterator[dict[str, Future]]:
    """What each stage whose test is selected was given, said and left when it was run alone.

    Each may use every core, and so has another number of worker processes than in the pipeline.
    """
    listed = {stage.name: stage for stage in tiny_pipeline.stages}

    def run(name: str) -> tuple[Contents, CompletedProcess[str], Contents]:
        folder = tmp_path_factory.mktemp("stage")
        declared_files(listed[name], tiny_pipeline.folder, folder / "alone")
        given = contents(folder / "alone", ["."])
        done = run_alone(listed[name], folder / "alone", folder / "scratch")
        return given, done, contents(folder / "alone", ["."])

    callspecs = [getattr(item, "callspec", None) for item in request.session.items if item.module == request.module]
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        yield {name: pool.submit(run, name) for name in NAMES if name in [c.params["name"] for c in callspecs if c]}


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_alone_makes_what_it_declares_and_the_same_bytes_as_in_the_pipeline(name, alone, tiny_pipeline):
    [stage] = [stage for stage in tiny_pipeline.stages if stage.name == name]
    given, done, left = alone[name].result()
    assert done.returncode == 0, f"{stage.cmd}\n{done.stdout}{done.stderr}"
    assert {name: left.get(name) for name in given} == given, "it changed or removed what it reads"
    made = {name: content for name, content in left.items() if name not in given}
    wanted = contents(tiny_pipeline.folder, [out.path for out in stage.outs])
    assert sorted(made) == sorted(wanted), "what it wrote is not what it declares"
    assert [name for name in wanted if made[name] != wanted[name]] == [], "not the bytes of the pipeline"


def test_a_stage_without_the_params_that_it_reads_stops_before_any_work(tiny_pipeline, tmp_path):
    stage = next(stage for stage in tiny_pipeline.stages if stage.params)
    declared_files(dataclasses.replace(stage, params=()), tiny_pipeline.folder, tmp_path / "alone")
    given = contents(tmp_path / "alone", ["."])
    done = run_alone(stage, tmp_path / "alone", tmp_path / "scratch")
    assert done.returncode == 1
    assert done.stderr.startswith("error: params.yaml: wanted ")
    assert contents(tmp_path / "alone", ["."]) == given
