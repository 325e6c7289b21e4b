"""What a stage will hold in memory is said by its params alone: too much is refused in one line, before any work."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from project import ROOT

from lib.io.files import InputError
from lib.io.params import load_yaml, read_cases, read_params
from stages.checkpoints import generate as make_texts
from stages.checkpoints import train as train_models
from stages.decision_lists import check
from stages.decision_lists import generate as make_lists
from stages.decision_lists import train as train_lists
from stages.gradual_rank import full_weights
from stages.gradual_rank import generate as make_toys
from stages.low_rank_sparse import generate as make_patterns
from stages.low_rank_sparse import sweep

LIMIT = 4 << 30
CHILD = """
import resource, sys, time
from importlib import import_module
from pathlib import Path
stage = import_module(sys.argv[1])
from lib.io import compute, command
def highest():  # of this program: getrusage may say what the process held that began it
    lines = Path("/proc/self/status").read_text().splitlines() if sys.platform == "linux" else []
    held = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    return held[0] if held else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
base = highest()
limit = int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for name in ("available_cores", "n_parallel"):
    if hasattr(stage, name):
        setattr(stage, name, lambda *_: 1)
sys.argv = sys.argv[2:]
begin = time.process_time()
try:
    command.run(stage.main)
finally:
    peak = highest()
    print("measured", base * 1024, peak * 1024, time.process_time() - begin)
"""
# The size-like params, and the arguments of the stages that are decided by them.
GR, LRS = "stages/gradual_rank/", "stages/low_rank_sparse/"
STAGES = {
    "gradual_rank.generate": ["gradual_rank.problem", GR + "problems.tsv", "out"],
    "gradual_rank.full_weights": ["gradual_rank.full_weights", "out", "rises"],
    "gradual_rank.optimizers": [
        "gradual_rank.optimizers", "gradual_rank.full_weights", GR + "optimizers.tsv", "runs", "out",
    ],
    "gradual_rank.signs": ["gradual_rank.signs", "gradual_rank.problem", "gradual_rank.solver", "out"],
    "low_rank_sparse.generate": ["low_rank_sparse.generate", "out"],
    "low_rank_sparse.sweep": [
        "low_rank_sparse.sweep", "low_rank_sparse.generate", "low_rank_sparse.train", LRS + "configurations.tsv",
        LRS + "sweeps.tsv", "out",
    ],
    "decision_lists.check": ["decision_lists.check", "out"],
    "checkpoints.generate": ["checkpoints.example.generate", "out"],
}  # fmt: skip
LARGE = [
    ("gradual_rank.generate", "gradual_rank.problem", {"n_samples": 10**6, "seq_len": 1000, "d_model": 1000}),
    ("gradual_rank.generate", "gradual_rank.problem", {"n_seeds": 100000}),
    ("gradual_rank.full_weights", "gradual_rank.full_weights", {"n_samples": 10**6, "seq_len": 1000}),
    ("gradual_rank.full_weights", "gradual_rank.full_weights", {"n_snapshots": 10000, "d_model": 1000}),
    ("gradual_rank.full_weights", "gradual_rank.full_weights", {"n_seeds": 100000}),
    ("gradual_rank.optimizers", "gradual_rank.optimizers", {"n_samples": 10**9}),
    ("gradual_rank.optimizers", "gradual_rank.optimizers", {"n_test": 10**9}),
    ("gradual_rank.optimizers", "gradual_rank.optimizers", {"noisy_samples": 10**9}),
    ("gradual_rank.optimizers", "gradual_rank.optimizers", {"few_samples": [1, 10**9]}),
    ("gradual_rank.optimizers", "gradual_rank.optimizers", {"n_seeds": 100000}),
    ("gradual_rank.signs", "gradual_rank.problem", {"n_samples": 10**9}),
    ("gradual_rank.signs", "gradual_rank.problem", {"seq_len": 10**9}),
    ("gradual_rank.signs", "gradual_rank.problem", {"d_model": 10**9}),
    ("gradual_rank.signs", "gradual_rank.signs", {"n_seeds": 100000}),
    ("low_rank_sparse.generate", "low_rank_sparse.generate", {"n_train": 10**9}),
    ("low_rank_sparse.generate", "low_rank_sparse.generate", {"n_test": 10**9}),
    ("low_rank_sparse.generate", "low_rank_sparse.generate", {"seq_len": 16384, "d_model": 16384}),
    ("low_rank_sparse.generate", "low_rank_sparse.generate", {"n_seeds": 100000}),
    ("low_rank_sparse.sweep", "low_rank_sparse.generate", {"n_train": 10**9}),
    ("low_rank_sparse.sweep", "low_rank_sparse.generate", {"n_test": 10**9}),
    ("low_rank_sparse.sweep", "low_rank_sparse.sweep", {"n_neurons": 10**9}),
    ("decision_lists.check", "decision_lists.check", {"n_cases": 10**7}),
    ("checkpoints.generate", "checkpoints.example.generate", {"n_bytes": 10**9}),
    ("checkpoints.generate", "checkpoints.example.generate", {"n_measured_bytes": 10**9}),
]
# Sizes with which memory shows beside the interpreter's.
SMALL = [
    ("gradual_rank.generate", "gradual_rank.problem", {"n_samples": 20000, "n_seeds": 4}),
    ("gradual_rank.full_weights", "gradual_rank.full_weights", {
        "n_samples": 30000, "n_seeds": 2, "rescaled_end": 0.1, "log10_init_scales": [-2], "n_snapshots": 2}),
    ("low_rank_sparse.generate", "low_rank_sparse.generate", {"n_train": 3000, "n_seeds": 10}),
    ("decision_lists.check", "decision_lists.check", {"n_cases": 4000}),
    ("checkpoints.generate", "checkpoints.example.generate", {"n_bytes": 3_000_000}),
]  # fmt: skip


def started(at: Path, stage: str, section: str, values: dict, limit: int) -> subprocess.CompletedProcess[str]:
    """A stage in a process of its own, on the committed params but for some of a section."""
    params = load_yaml(ROOT / "params.yaml")
    part = params
    for key in section.split("."):
        part = part[key]
    part.update(values)
    (at / "params.yaml").write_text(yaml.safe_dump(params))
    if not (at / "stages").exists():
        (at / "stages").symlink_to(ROOT / "stages")
    command = [sys.executable, "-c", CHILD, f"stages.{stage}", str(limit), *STAGES[stage]]
    return subprocess.run(
        command, cwd=at, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, timeout=60
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of the address space is Linux's")
@pytest.mark.parametrize(("stage", "section", "values"), LARGE, ids=[f"{s} {v}" for s, _, v in LARGE])
def test_a_size_that_does_not_fit_is_refused_before_any_work(stage, section, values, tmp_path):
    done = started(tmp_path, stage, section, values, LIMIT)
    assert done.returncode == 1, done.stdout + done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "GB of memory, got" in line
    _, base, peak, seconds = done.stdout.splitlines()[-1].split()
    assert int(peak) - int(base) < 100e6
    assert float(seconds) < 5
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "section", "values"), SMALL, ids=[s for s, _, _ in SMALL])
def test_a_stage_takes_no_more_than_twice_what_its_params_say(stage, section, values, tmp_path, monkeypatch):
    said: list[float] = []
    done = started(tmp_path, stage, section, values, 0)
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lib.io.params.check_memory", lambda _, n_bytes: said.append(n_bytes))
    schema = {
        "gradual_rank.full_weights": full_weights.FullWeights,
        "low_rank_sparse.generate": make_patterns.Generate,
        "decision_lists.check": check.Check,
        "checkpoints.generate": make_texts.Generate,
    }
    if stage == "gradual_rank.generate":
        shared = read_params(section, dict)
        read_cases(ROOT / GR / "problems.tsv", make_toys.Problem, part=True, shared=shared)
    else:
        read_params(section, schema[stage])
    _, base, peak, _ = done.stdout.splitlines()[-1].split()
    took = int(peak) - int(base)
    assert took <= 2 * max(said) + 60e6, f"{took / 1e6:.0f} MB, said {max(said) / 1e6:.0f}"
    assert max(said) <= 4 * took + 60e6, f"{took / 1e6:.0f} MB, said {max(said) / 1e6:.0f}"


def refused(schema: type, values: dict, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("lib.io.memory.available_memory", lambda: LIMIT)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": values}))
    with pytest.raises(InputError, match=r"params.yaml: x: wanted about .* GB of memory, got 4.29 GB free"):
        read_params("x", schema, tmp_path / "params.yaml", part=True)


GROUP = {
    "group": "g", "use": "law", "n_tokens": 5, "seq_len": 2, "repeats": False, "list_lengths": [1],
    "lists": ["random"], "n_heads": [1], "laws": ["uniform"], "n_seeds": 1,
}  # fmt: skip
MINIBATCH = {"n_tokens": 64, "seq_len": 8, "list_length": 3, "init_scale": 0.01, "batch_size": 256}
MINIBATCH |= {"learning_rate": 1.0, "n_steps": 2, "certify_every": 1, "n_seeds": 1}
MODEL = {"d_model": 64, "n_layers": 4, "n_heads": 4, "n_kv_heads": 2, "d_mlp": 160, "init_scale": 0.08}
MODEL |= {"seq_len": 64, "batch_size": 16, "n_seeds": 1}


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (make_lists.Group, GROUP | {"n_tokens": 64, "seq_len": 32}),
        (make_lists.Group, GROUP | {"n_tokens": 20, "seq_len": 20, "repeats": True}),
        (make_lists.Group, GROUP | {"n_tokens": 20, "seq_len": 10, "n_seeds": 100000}),
        (train_lists.Minibatch, MINIBATCH | {"batch_size": 10**9}),
        (train_models.Train, MODEL | {"d_model": 65536}),
        (train_models.Train, MODEL | {"n_layers": 65536}),
        (train_models.Train, MODEL | {"d_mlp": 65536, "n_layers": 100}),
        (train_models.Train, MODEL | {"seq_len": 65536}),
        (train_models.Train, MODEL | {"batch_size": 65536}),
    ],
    ids=str,
)
def test_a_section_that_does_not_fit_is_refused_as_it_is_read(schema, values, monkeypatch, tmp_path):
    refused(schema, values, monkeypatch, tmp_path)


def test_the_committed_params_fit_into_two_gigabytes(monkeypatch):
    """All of them on a small machine; formulas give numbers, not infinity."""
    monkeypatch.chdir(ROOT)
    said: list[float] = []
    monkeypatch.setattr("lib.io.params.check_memory", lambda _, n_bytes: said.append(n_bytes))
    read_params("gradual_rank.full_weights", full_weights.FullWeights)
    read_params("low_rank_sparse.generate", make_patterns.Generate)
    read_params("decision_lists.check", check.Check)
    read_params("decision_lists.train", train_lists.Train)
    read_params("checkpoints.example.generate", make_texts.Generate)
    read_params("checkpoints.example.train", train_models.Train)
    read_cases(Path("stages/decision_lists/groups.tsv"), make_lists.Group)
    problem = read_params("gradual_rank.problem", dict)
    read_cases(Path("stages/gradual_rank/problems.tsv"), make_toys.Problem, part=True, shared=problem)
    assert max(said) < 2e9
    assert all(math.isfinite(n) for n in said)
    assert issubclass(sweep.Problem, sweep.Data)
