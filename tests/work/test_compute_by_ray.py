"""A Ray cluster of two nodes, each of processes of its own, gives the bytes of this machine,
whatever goes wrong there.

Every job here is a function of the standard library, or of a stage: a worker has no other code.
"""

import json
import os
import re
import shlex
import subprocess
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from lib.work.compute import spread
from lib.work.errors import StoppedError
from tests.pipeline.alone import declared_files
from tests.pipeline.project import PYTHON, ROOT, contents, different_stages, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
    pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra: make .venv/ray"),
]

MEMORY = 80 << 20  # of a node's store of objects, the least that Ray takes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two nodes of one CPU, and this process as the one that gives them work, in a folder of its
    own.
    """
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("DVC_ROOT", raising=False)
        node = {"num_cpus": 1, "object_store_memory": MEMORY}
        made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        try:
            made.add_node(**node)
            patch.setenv("LAB_WORKERS", f"ray:{made.address}")
            patch.chdir(tmp_path_factory.mktemp("project"))
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


@pytest.fixture
def more(cluster):
    """Add a node to the cluster that is gone again after the test."""
    added = []

    def add(**how):
        added.append(cluster.add_node(num_cpus=1, object_store_memory=MEMORY, **how))
        return added[-1]

    yield add
    for node in added:
        if node in cluster.worker_nodes:
            cluster.remove_node(node)


def by_ray(function, jobs, **how):
    return list(spread(function, jobs, n_processes=1, label="toy", **how))


def shell(script):
    return (["sh", "-c", script],)


def test_results_are_in_order_and_computed_by_several_workers_in_the_folder_of_this_process(
    cluster,
):
    assert by_ray(pow, [(2, n) for n in range(100)]) == [2**n for n in range(100)]
    workers = set(by_ray(subprocess.getoutput, [("sleep .5; echo $PPID; pwd",) for _ in range(8)]))
    assert len(workers) == 2
    assert {text.split("\n")[1] for text in workers} == {str(Path.cwd())}


def test_the_error_of_a_job_is_raised_once_and_not_tried_again(cluster):
    with pytest.raises(FileExistsError, match="there"):
        by_ray(os.mkdir, [("there",), ("there",)])
    with pytest.raises(ValueError, match="invalid literal") as raised:
        by_ray(int, [("1",), ("x",)])
    assert "runtime_resources" in str(raised.value.__cause__)  # where the worker was


def test_a_job_spreads_no_jobs_itself(cluster):
    assert by_ray(os.getenv, [("LAB_WORKERS",)]) == ["local"]


def test_a_job_whose_worker_is_killed_is_tried_again(cluster):
    once = shell("test -e killed || { touch killed; kill -9 $PPID; sleep 60; }; exit 7")
    assert by_ray(subprocess.call, [once, shell("exit 8")]) == [7, 8]


def test_a_job_whose_worker_is_killed_in_every_try_ends_the_work(cluster):
    always = shell("echo >> tries; kill -9 $PPID; sleep 60")
    with pytest.raises(StoppedError, match=r"toy: Ray gives up job 0 \(mem.*WorkerCrashedError: "):
        by_ray(subprocess.call, [always])
    assert Path("tries").read_text().count("\n") == 4


def test_a_node_that_is_removed_in_the_middle_costs_its_jobs_another_try(cluster, more):
    node = more(resources={"third": 1})
    jobs = [shell(f"echo {n} >> begun-{n}; sleep 3; exit {n}") for n in range(3)]

    def remove():
        while len(list(Path().glob("begun-*"))) < 3:
            time.sleep(0.1)
        cluster.remove_node(node, allow_graceful=False)

    helper = threading.Thread(target=remove)
    helper.start()
    found = by_ray(subprocess.call, jobs)
    helper.join()
    assert found == [0, 1, 2]
    assert sum(len(path.read_text().split()) for path in Path().glob("begun-*")) == 4


# These spread the work on a folder of one's own images, and none on the digits.
SPREADS = re.compile(r"\b(spread(_\w+)?|write_figures)\(")
OF_OWN_IMAGES = {"vision_fetch@digits", "vision_generate@digits"}


def spreading(listed):
    """The stages that spread their work, of each matrix one."""
    sources = {one.name: Path(ROOT, *one.module.split(".")) for one in different_stages()}
    return [
        one
        for one in listed
        if one.name in sources.keys() - OF_OWN_IMAGES
        and re.search(
            r"\b(spread(_\w+)?|write_figures)\(", sources[one.name].with_suffix(".py").read_text()
        )
    ]


def test_every_stage_that_spreads_its_work_makes_the_bytes_of_this_machine(
    cluster, tiny_pipeline, tmp_path
):
    chosen = spreading(tiny_pipeline.stages)
    families = {stage.name.split("_")[0] for stage in chosen}
    assert families - {"report"} == {"gradual", "low", "decision", "vision", "checkpoints"}
    commands = []
    for stage in chosen:
        declared_files(stage, tiny_pipeline.folder, tmp_path / stage.name)
        for command in stage.cmd.split(" && "):
            commands.append([str(tmp_path / stage.name), *shlex.split(command)[2:]])
    program = [PYTHON, str(Path(__file__).with_name("ray_stages.py")), json.dumps(commands)]
    variables = {"PYTHONPATH": str(ROOT), "DVC_ROOT": str(tmp_path / "scratch")}
    run(*program, at=tmp_path, LAB_WORKERS=os.environ["LAB_WORKERS"], **variables)
    for stage in chosen:
        assert (tmp_path / stage.name / ".dvc" / "tmp").is_dir(), (
            "none is made where Ray is not asked"
        )
        outs = [out.path for out in stage.outs]
        made = contents(tmp_path / stage.name, outs)
        wanted = contents(tiny_pipeline.folder, outs)
        assert sorted(made) == sorted(wanted), stage.name
        assert [name for name in wanted if made[name] != wanted[name]] == [], stage.name
