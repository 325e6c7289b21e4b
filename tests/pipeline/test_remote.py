"""Results through a remote: one clone computes and pushes them to a server that speaks S3, other
clones take them instead of training.
"""

import re
from importlib.util import find_spec

import pytest
import requests

from tests.pipeline.project import (
    clone,
    commit,
    contents,
    duplicate,
    dvc,
    params_of,
    set_params,
)

MISSING = [name for name in ("dvc_s3", "moto") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of the server's packages
    pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}, the extra s3: make .venv/s3"),
]

TRAINS = "vision_train@digits"
RUNS = "data/vision/digits/runs"


@pytest.fixture(scope="module")
def server():
    """The address of a server on this machine with the empty bucket `results`, and its keys in the
    environment.
    """
    from moto.server import ThreadedMotoServer

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "tests")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("NO_PROXY", "*")
        made = ThreadedMotoServer("127.0.0.1", port=0)
        made.start()
        try:
            host, port = made.get_host_and_port()
            address = f"http://{host}:{port}"
            requests.put(f"{address}/results", timeout=60).raise_for_status()
            yield address
        finally:
            made.stop()


@pytest.fixture(scope="module")
def pushed(server, tiny_pipeline, tmp_path_factory):
    """A copy of the tiny pipeline that has named the remote and pushed all that was computed."""
    project = duplicate(tiny_pipeline.folder, tmp_path_factory.mktemp("remote") / "first")
    dvc("remote", "add", "--default", "shared", "s3://results/dvc", at=project)
    dvc("remote", "modify", "shared", "endpointurl", server, at=project)
    commit(project, "A remote")
    dvc("push", at=project)
    return project


@pytest.fixture(scope="module")
def pulled(pushed):
    """A second clone, which has pulled."""
    project = clone(pushed, pushed.with_name("second"))
    dvc("pull", at=project)
    return project


@pytest.fixture(scope="module")
def other_params(pushed):
    """Params that nobody committed; the first clone has trained on them and pushed that, too."""
    params = params_of(pushed)
    params["vision"]["digits"]["train"]["learning_rate"] *= 2
    project = duplicate(pushed, pushed.with_name("tried"))
    set_params(project, params)
    dvc("repro", TRAINS, at=project)
    dvc("push", "--run-cache", TRAINS, at=project)
    runs = contents(project, [RUNS])
    assert runs != contents(pushed, [RUNS])
    return params, runs


def test_a_clone_that_pulls_holds_the_same_bytes(pulled, pushed, tiny_pipeline):
    kept = [out.path for stage in tiny_pipeline.stages for out in stage.outs if not out.in_git]
    found = contents(pulled, kept)
    assert len(found) >= len(kept)
    assert found == contents(pushed, kept)


def test_a_clone_that_pulled_runs_no_stage(pulled):
    said = dvc("repro", at=pulled)
    assert "Data and pipelines are up to date." in said
    assert "Running stage" not in said


def test_a_training_on_params_that_another_clone_tried_comes_from_the_run_cache(
    pushed, other_params
):
    params, runs = other_params
    project = clone(pushed, pushed.with_name("third"))
    set_params(project, params)
    said = dvc("repro", "--pull", TRAINS, at=project)
    assert f"Stage '{TRAINS}' is cached - skipping run, checking out outputs" in said
    assert re.findall("^Running stage '(.+)':", said, re.MULTILINE) == []
    assert contents(project, [RUNS]) == runs
