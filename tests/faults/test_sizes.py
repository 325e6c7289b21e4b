"""What a stage will hold in memory is said by its params alone: too much is refused in one line,
before any work.
"""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from project import ROOT

from lib.decision_lists.lists import Task
from lib.files.files import InputError
from lib.files.params import load_yaml, read_cases, read_params
from lib.gradual_rank.tasks import read_problems
from stages.checkpoints import generate as make_texts
from stages.checkpoints import train as train_models
from stages.decision_lists import check, constants, control
from stages.decision_lists import generate as make_lists
from stages.decision_lists import train as train_lists
from stages.gradual_rank import descend, full_weights
from stages.gradual_rank import generate as make_toys
from stages.low_rank_sparse import adapt as make_steps
from stages.low_rank_sparse import generate as make_patterns
from stages.low_rank_sparse import sweep

LIMIT = 4 << 30
CHILD = """
import resource, sys, time
from importlib import import_module
from pathlib import Path
stage = import_module(sys.argv[1])
from lib.work import command
from lib.work import compute
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
        "gradual_rank.optimizers",
        "gradual_rank.full_weights",
        GR + "optimizers.tsv",
        "runs",
        "out",
    ],
    "gradual_rank.signs": [
        "gradual_rank.signs",
        "gradual_rank.problem",
        "gradual_rank.solver",
        "out",
    ],
    "low_rank_sparse.generate": ["low_rank_sparse.generate", "out"],
    "low_rank_sparse.sweep": [
        "low_rank_sparse.sweep",
        "low_rank_sparse.generate",
        "low_rank_sparse.train",
        LRS + "configurations.tsv",
        LRS + "sweeps.tsv",
        "out",
    ],
    "decision_lists.check": ["decision_lists.check", "out"],
    "checkpoints.generate": ["checkpoints.example.generate", "out"],
}
LARGE = [
    (
        "gradual_rank.generate",
        "gradual_rank.problem",
        {"n_samples": 10**6, "seq_len": 1000, "d_model": 1000},
    ),
    ("gradual_rank.generate", "gradual_rank.problem", {"n_seeds": 100000}),
    (
        "gradual_rank.full_weights",
        "gradual_rank.full_weights",
        {"n_samples": 10**6, "seq_len": 1000},
    ),
    (
        "gradual_rank.full_weights",
        "gradual_rank.full_weights",
        {"n_snapshots": 10000, "d_model": 1000},
    ),
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
    (
        "gradual_rank.full_weights",
        "gradual_rank.full_weights",
        {
            "n_samples": 30000,
            "n_seeds": 2,
            "rescaled_end": 0.1,
            "log10_init_scales": [-2],
            "n_snapshots": 2,
        },
    ),
    ("low_rank_sparse.generate", "low_rank_sparse.generate", {"n_train": 3000, "n_seeds": 10}),
    ("decision_lists.check", "decision_lists.check", {"n_cases": 4000}),
    ("checkpoints.generate", "checkpoints.example.generate", {"n_bytes": 3_000_000}),
]


def started(
    at: Path, stage: str, section: str, values: dict, limit: int
) -> subprocess.CompletedProcess[str]:
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
        command,
        cwd=at,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of the address space is Linux's")
@pytest.mark.parametrize(
    ("stage", "section", "values"), LARGE, ids=[f"{s} {v}" for s, _, v in LARGE]
)
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
def test_a_stage_takes_no_more_than_twice_what_its_params_say(
    stage, section, values, tmp_path, monkeypatch
):
    said: list[float] = []
    done = started(tmp_path, stage, section, values, 0)
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lib.files.params.check_memory", lambda _, n_bytes: said.append(n_bytes))
    schema = {
        "gradual_rank.full_weights": full_weights.FullWeights,
        "low_rank_sparse.generate": make_patterns.Generate,
        "decision_lists.check": check.Check,
        "checkpoints.generate": make_texts.Generate,
    }
    if stage == "gradual_rank.generate":
        read_problems(ROOT / GR / "problems.tsv", make_toys.Problem, section)
    else:
        read_params(section, schema[stage])
    _, base, peak, _ = done.stdout.splitlines()[-1].split()
    took = int(peak) - int(base)
    assert took <= 2 * max(said) + 60e6, f"{took / 1e6:.0f} MB, said {max(said) / 1e6:.0f}"
    assert max(said) <= 4 * took + 60e6, f"{took / 1e6:.0f} MB, said {max(said) / 1e6:.0f}"


def refused(schema: type, values: dict, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("lib.files.memory.available_memory", lambda: LIMIT)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": values}))
    with pytest.raises(
        InputError, match=r"params.yaml: x: wanted about .* GB of memory, got 4.29 GB free"
    ):
        read_params("x", schema, tmp_path / "params.yaml", part=True)


GROUP = {
    "group": "g",
    "use": "law",
    "n_tokens": 5,
    "seq_len": 2,
    "repeats": False,
    "list_lengths": [1],
    "lists": ["random"],
    "n_heads": [1],
    "laws": ["uniform"],
    "n_seeds": 1,
}
MINIBATCH = {"n_tokens": 64, "seq_len": 8, "list_length": 3, "init_scale": 0.01, "batch_size": 256}
MINIBATCH |= {"learning_rate": 1.0, "n_steps": 2, "certify_every": 1, "n_seeds": 1}
JOINT = {"init_scale": 0.01, "n_steps": 2, "n_seeds": 1}
TRAIN = {"step_per_token": 0.5, "every": 1, "joint": JOINT, "starts": {"n_steps": 2, "n_seeds": 1}}
TRAIN |= {"alignment_steps": 2, "minibatch": MINIBATCH}
SETTINGS = {"seed": 0, "list_lengths": [1], "monte_carlo_samples": [10], "monte_carlo_repeats": 1}
SETTINGS |= {"monte_carlo_task": "m = 1"}
MODEL = {
    "d_model": 64,
    "n_layers": 4,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_mlp": 160,
    "init_scale": 0.08,
}
MODEL |= {"seq_len": 64, "batch_size": 16, "n_seeds": 1}


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (make_lists.Group, GROUP | {"n_tokens": 64, "seq_len": 32}),
        (make_lists.Group, GROUP | {"n_tokens": 20, "seq_len": 20, "repeats": True}),
        (make_lists.Group, GROUP | {"n_tokens": 20, "seq_len": 10, "n_seeds": 100000}),
        (train_lists.Minibatch, MINIBATCH | {"batch_size": 10**9}),
        (train_lists.Train, TRAIN | {"joint": JOINT | {"n_steps": 10**6, "n_seeds": 10}}),
        (train_lists.Train, TRAIN | {"starts": {"n_steps": 10**6, "n_seeds": 10}}),
        (train_lists.Train, TRAIN | {"minibatch": MINIBATCH | {"n_steps": 10**6, "n_seeds": 10}}),
        (constants.Settings, SETTINGS | {"monte_carlo_samples": [10, 10**9]}),
        (constants.Settings, SETTINGS | {"monte_carlo_repeats": 10**9}),
        (train_models.Train, MODEL | {"d_model": 65536}),
        (train_models.Train, MODEL | {"n_layers": 65536}),
        (train_models.Train, MODEL | {"d_mlp": 65536, "n_layers": 100}),
        (train_models.Train, MODEL | {"seq_len": 65536}),
        (train_models.Train, MODEL | {"batch_size": 65536}),
    ],
    ids=str,
)
def test_a_section_that_does_not_fit_is_refused_as_it_is_read(
    schema, values, monkeypatch, tmp_path
):
    refused(schema, values, monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (train_lists.Train, TRAIN | {"joint": JOINT | {"n_steps": 10**9}}),
        (train_lists.Train, TRAIN | {"alignment_steps": 10**9}),
        (train_lists.Train, TRAIN | {"minibatch": MINIBATCH | {"n_steps": 10**9}}),
        (control.Control, {"scale": 10.0, "learning_rate": 0.1, "n_steps": 10**9}),
        (make_steps.Configuration, {"name": "a", "learning_rate": 1.0, "n_steps": 10**9}),
    ],
    ids=str,
)
def test_a_billion_steps_of_one_training_are_a_slip(schema, values, tmp_path):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": values}))
    with pytest.raises(
        InputError, match=r"params.yaml: x\..*: wanted a number in \[1, 1e6\], got 1000000000"
    ):
        read_params("x", schema, tmp_path / "params.yaml")


DROP = {"minimum": [1.0, 0.8, -0.2], "flow_log10_init_scales": [-4], "coupling": 0.65, "seed": 0}
DROP |= {"learning_rate": 0.2, "log10_init_scale": -32, "rescaled_end": 77}


@pytest.mark.parametrize(
    "values", [{"rescaled_end": 1e9}, {"learning_rate": 1e-9}, {"learning_rate": 1e-309}]
)
def test_an_example_of_too_many_steps_is_refused(values, tmp_path):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": DROP}))
    assert read_params("x", descend.Drop, tmp_path / "params.yaml").n_steps == math.ceil(
        32 * math.log(10) * 77 / 0.2
    )
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": DROP | values}))
    with pytest.raises(
        InputError, match="x: rescaled_end, learning_rate: wanted an end that takes at most 200000"
    ):
        read_params("x", descend.Drop, tmp_path / "params.yaml")


FULL = {
    "log10_init_scales": [-8, -16],
    "n_seeds": 1,
    "n_samples": 2,
    "seq_len": 2,
    "d_model": 2,
    "threshold": 0.05,
}
FULL |= {"learning_rate": 0.4, "rescaled_end": 50, "n_snapshots": 2, "look_every": 5}


@pytest.mark.parametrize(
    ("values", "got"),
    [
        ({"rescaled_end": 1e9}, 1e9 * 16 * math.log(10) / 0.4),
        ({"learning_rate": 1e-3}, 50 * 16 * math.log(10) / 1e-3),
        ({"learning_rate": 1e-309}, math.inf),
        ({"rescaled_end": 1e4, "log10_init_scales": [-1, -100]}, 1e6 * math.log(10) / 0.4),
    ],
    ids=str,
)
def test_full_matrices_are_trained_for_at_most_a_million_steps(values, got, tmp_path):
    """Of the smallest scale, which takes the most; the section says no number of steps."""
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": FULL}))
    found = read_params("x", full_weights.FullWeights, tmp_path / "params.yaml")
    assert full_weights.n_steps(found, -16) == math.ceil(50 * 16 * math.log(10) / 0.4)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": FULL | values}))
    got = math.ceil(got) if got < math.inf else got
    said = (
        r"x: rescaled_end, learning_rate: wanted an end that takes at most 1000000 steps, "
        rf"got {got} \("
    )
    with pytest.raises(InputError, match=said):
        read_params("x", full_weights.FullWeights, tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("schema", "values", "asked"),
    [
        (check.Check, {"seed": 0, "n_cases": 10**5, "most_tokens": 6}, 3 * 4 * (40 * 10**5 + 4000)),
        (
            make_texts.Generate,
            {"n_bytes": 10**6, "n_measured_bytes": 10**5},
            3 * (31 * 10**5 + 1000),
        ),
        (
            make_lists.Group,
            GROUP | {"n_tokens": 16, "seq_len": 8, "n_seeds": 10},
            3 * 80 * (12870 + 16 * 2 + 100),
        ),
        (
            make_lists.Group,
            GROUP | {"n_tokens": 3, "n_seeds": 100, "lists": ["own 0 / 1 / 2"]},
            3 * 800 * (3 + 3 * 4 + 100),
        ),
    ],
    ids=str,
)
def test_a_section_whose_outs_do_not_fit_on_the_disk_is_refused_as_it_is_read(
    schema, values, asked, tmp_path, monkeypatch
):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": values}))
    usage = type("Usage", (), {"free": asked})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    read_params("x", schema, tmp_path / "params.yaml")
    usage.free -= 1
    with pytest.raises(
        InputError, match=rf"x: wanted {asked / 1e9:.3g} GB of disk, got .* GB that are free in "
    ):
        read_params("x", schema, tmp_path / "params.yaml")


def test_what_is_written_is_refused_where_the_disk_has_no_room(tmp_path, monkeypatch):
    """Three times, as scratch, the outs and DVC's cache hold it; 10 scales, 2 seeds, 500 snapshots
    of 4 matrices.
    """
    found = yaml.safe_load((ROOT / "params.yaml").read_text())["gradual_rank"]["full_weights"]
    found |= {
        "log10_init_scales": [-float(k) for k in range(1, 11)],
        "n_seeds": 2,
        "n_snapshots": 500,
        "d_model": 16,
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": found}))
    asked = 3 * 10 * (500 * (2 * (8 * 4 * 16 * 16 + 50) + 1000) + 10_000)
    usage = type("Usage", (), {"free": asked})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    read_params("x", full_weights.FullWeights, tmp_path / "params.yaml")
    usage.free -= 1
    with pytest.raises(
        InputError, match=rf"x: wanted {asked / 1e9:.3g} GB of disk, got .* GB that are free in "
    ):
        read_params("x", full_weights.FullWeights, tmp_path / "params.yaml")


# Of stages that read what others have made: sizes that are refused, and by what; nothing is
# allocated by the others.
GRF, DLS = "gradual_rank.", "decision_lists."
MANY = [-k / 10 for k in range(1, 400)]
OF_DATA = [
    (
        "gradual_rank_flow",
        GRF + "problem",
        {"n_times": 100000, "flow_scales": [-k / 10 for k in range(1, 400)]},
        "memory",
    ),
    ("gradual_rank_greedy", GRF + "problem", {"max_stages": 10**9}, None),
    ("gradual_rank_greedy", GRF + "forecast", {"n_changed": 10**9}, None),
    (
        "gradual_rank_assumptions",
        GRF + "assumptions",
        {"n_path_times": 10000, "n_random": 1000},
        "memory",
    ),
    ("gradual_rank_descend", GRF + "descend", {"n_seeds": 100000}, "wanted seeds of"),
    ("low_rank_sparse_train", "low_rank_sparse.train", {"n_neurons": 10**9}, "memory"),
    ("low_rank_sparse_cut", "low_rank_sparse.cut", {"n_rescale_samples": 10**9}, None),
    (
        "low_rank_sparse_adapt",
        "low_rank_sparse.train",
        {"batch_size": 10**9},
        "batch_size: wanted at most the",
    ),
    ("low_rank_sparse_adapt", "low_rank_sparse.adapt", {"n_seeds": 100000}, "wanted seeds of"),
    ("decision_lists_scales", DLS + "solver.scales", {"n_compared": 10**9}, "memory"),
    ("decision_lists_constants", DLS + "constants", {"monte_carlo_samples": [10**9]}, "memory"),
    ("decision_lists_certify", DLS + "certify", {"longest_sequence": 1000}, None),
]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of the address space is Linux's")
@pytest.mark.parametrize(
    ("name", "section", "values", "refused"), OF_DATA, ids=[f"{n} {v}" for n, _, v, _ in OF_DATA]
)
def test_a_stage_on_made_data_runs_tiny_or_is_refused(
    name, section, values, refused, tiny_pipeline, tmp_path
):
    stage = next(stage for stage in tiny_pipeline.stages if stage.name == name)
    for entry in ("data", "stages", "lib"):
        (tmp_path / entry).symlink_to(tiny_pipeline.folder / entry)
    params = load_yaml(tiny_pipeline.folder / "params.yaml")
    part = params
    for key in section.split("."):
        part = part[key]
    part.update(values)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    made = [out.path for out in stage.outs]
    _, _, module, *arguments = stage.cmd.split()
    outs = [
        f"out/{one}" if one in made or any(out.startswith(one + "/") for out in made) else one
        for one in arguments
    ]
    command = [sys.executable, "-c", CHILD, module, str(LIMIT), *outs]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    _, base, peak, seconds = done.stdout.splitlines()[-1].split()
    if refused is None:
        assert done.returncode == 0, done.stderr
        assert int(peak) - int(base) < 300e6
        return
    assert done.returncode == 1, done.stdout + done.stderr
    assert refused in done.stderr.splitlines()[-1]
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr
    assert int(peak) - int(base) < 200e6
    assert float(seconds) < 20


def test_the_exact_loss_of_a_task_grows_with_its_classes():
    """C(16, 8) classes of 8 tokens, 16 numbers each: measured, 144 MB for the flow, 177 MB for the
    controls.
    """
    classes = math.comb(16, 8)
    task = Task("a", "g", 16, 8, False, ((0,),), (0,), (1 / classes,) * classes)
    assert 100e6 < task.memory < 2 * 177e6


def test_the_committed_params_fit_into_two_gigabytes(monkeypatch):
    """All of them on a small machine; formulas give numbers, not infinity."""
    monkeypatch.chdir(ROOT)
    said: list[float] = []
    monkeypatch.setattr("lib.files.params.check_memory", lambda _, n_bytes: said.append(n_bytes))
    read_params("gradual_rank.full_weights", full_weights.FullWeights)
    read_params("low_rank_sparse.generate", make_patterns.Generate)
    read_params("decision_lists.check", check.Check)
    read_params("decision_lists.train", train_lists.Train)
    read_params("decision_lists.constants", constants.Settings)
    read_params("checkpoints.example.generate", make_texts.Generate)
    read_params("checkpoints.example.train", train_models.Train)
    read_cases(Path("stages/decision_lists/groups.tsv"), make_lists.Group)
    read_problems(
        Path("stages/gradual_rank/problems.tsv"), make_toys.Problem, "gradual_rank.problem"
    )
    assert max(said) < 2e9
    assert all(math.isfinite(n) for n in said)
    assert issubclass(sweep.Problem, sweep.PatternSizes)
