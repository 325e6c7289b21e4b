"""The flow of every seed and scale, against scipy's integral of the same equations."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from lib.files.files import InputError
from lib.training.stiff_flow import StalledError
from tests.gradual_rank.gradual_rank_reference import (
    SOLVER,
    compare,
    draw_toy,
    flow,
    head_of,
    start_of,
    write_problems,
)
from tests.gradual_rank.whole_tables import whole_of
from tests.stages.made import table

COARSE = SOLVER | {"rtol": 1e-2, "atol": 1e-2}  # not the accuracy of this stage
SMALL = {"flow_scales": [-3, -6], "n_times": 6}
# Here something is above the threshold from the start.
PAPER = {"flow_scales": [-0.7], "n_times": 4, "curvature_share": 1}
REST, GROWN = 0.4, 0.15
PARAMS = {
    "rest": REST,
    "grown": GROWN,
    "rtol": 1e-7,
    "atol": 1e-7,
}
PROBLEMS = {"paper": PAPER, "small": SMALL}
TASKS = {"small": ([6, 2], (3, 2, 2), [9, 36]), "paper": ([4], (4, 3, 2), [39])}
# Seed, stage, time and next time, in no order. Small's seed 6 ends with the middle of a plateau
# without end at 1e-6, and with the margin at 1e-3; seed 2 always with the margin, as its last
# plateau is short.
STAGES = {
    "small": [
        (6, 2, 45, math.inf),
        (2, 0, 0, 0.9),
        (6, 0, 0, 3),
        (2, 2, 3.1, 3.3),
        (6, 1, 3, 45),
        (2, 1, 0.9, 3.1),
    ],
    "paper": [(4, 1, 2.8, 6), (4, 0, 0, 2.8), (4, 2, 6, 29)],
}
WITHIN = {"rtol": 1e-4, "atol": 1e-9}
# of what a table has a number a coordinate of
COORDINATES = {"p": {"atol": 1e-8}, "charge": {"atol": 1e-5}}


def write(tmp_path):
    """The tasks, whose targets are no head's, and the tables of stages; the tasks."""
    (tmp_path / "p").mkdir()
    for name, rows in STAGES.items():
        table = pd.DataFrame(rows, columns=["seed", "stage", "time", "next_time"])
        table = table.assign(coordinate=-1, sign=0)  # which a head does not need
        whole_of("predictions/stages", table).to_parquet(tmp_path / f"p/{name}_stages.parquet")
    return {
        name: draw_toy(tmp_path / f"t/{name}.safetensors", *task) for name, task in TASKS.items()
    }


def run(stage, tmp_path, solver=COARSE, problems=PROBLEMS, shown=6):
    folders = [tmp_path / name for name in "tpf"]
    table = write_problems(tmp_path / "problems.tsv", problems)
    sections = {
        "a.b": PARAMS,
        "a.solver": solver,
        "a.shown": {"figure_seed": shown, "of_evaluate": "alone"},
        "a.usual": {},
    }
    *read, flows = folders
    stage("gradual_rank.flow", sections, *sections, table, *read, tmp_path / "losses.py", flows)
    return {file.stem: pd.read_parquet(file) for file in sorted((tmp_path / "f").iterdir())}


def plan(name, seed, scale):
    """When a flow ends, and the middles of its plateaus by stage."""
    L = -scale * math.log(10)
    plateaus = sorted(
        (stage, time, following) for s, stage, time, following in STAGES[name] if s == seed
    )
    last = plateaus[-1][1]
    longest = last * (1 + 2 * REST)
    middles = [L * (time + min(following, longest)) / 2 for _, time, following in plateaus]
    return max(last * (L + SOLVER["margin"]), *middles), middles


class Followed:
    """The flow of one seed from one scale, as it should be."""

    def __init__(self, name, toy, i, scale):
        params = PROBLEMS[name]
        self.seed = int(toy["seeds"][i])
        self.scale = scale
        self.loss = head_of(toy, i)
        self.start = start_of(toy, i, scale)
        end, self.middles = plan(name, self.seed, scale)
        n_times = params["n_times"]
        self.times = [end * (k / (n_times - 1)) for k in range(n_times)]
        every = sorted({*self.times, *self.middles})
        path, self.events = flow(self.loss, self.start, end, SOLVER["threshold"], every)
        self.path = dict(zip(every, path, strict=True))
        self.grown = flow(self.loss, self.start, end, GROWN)[1]

    def row(self, time):
        """What the tables say of a time; the charge is y / log(1 / init scale)."""
        p = self.start.products(self.path[time])
        L = -self.scale * math.log(10)
        plus, minus = self.start.log_weights(self.path[time])
        return {
            "seed": self.seed,
            "log10_init_scale": self.scale,
            "time": time,
            "rescaled_time": time / L,
            "loss": self.loss.relative(p),
            "p": p,
            "charge": (plus - minus) / 2 / L,
        }


def follow(name, toy):
    """The flows of a task, scale by scale."""
    scales = sorted(PROBLEMS[name]["flow_scales"])
    return [Followed(name, toy, i, scale) for scale in scales for i in range(len(toy["seeds"]))]


def events_of(seed, scale, events):
    """The rows of a flow's events."""
    keys = ("seed", "log10_init_scale", "time", "coordinate", "sign", "rises")
    return [dict(zip(keys, (seed, scale, *event), strict=True)) for event in events]


def test_every_flow_is_that_of_scipy(stage, tmp_path):
    toys = write(tmp_path)
    tables = run(stage, tmp_path)
    kinds = ["events", "grown", "plateaus", "times", "twins"]
    assert sorted(tables) == [f"{name}_{kind}" for name in ("paper", "small") for kind in kinds]
    for name, toy in toys.items():
        flows = follow(name, toy)
        shown = {"paper": 4, "small": 6}[name]  # the least where the one asked for is none
        times = [[flow.row(time) for time in flow.times] for flow in flows if flow.seed == shown]
        plateaus = [
            [flow.row(time) | {"stage": stage} for stage, time in enumerate(flow.middles)]
            for flow in flows
        ]
        events = [events_of(flow.seed, flow.scale, flow.events) for flow in flows]
        grown = [events_of(flow.seed, flow.scale, flow.grown) for flow in flows]
        wanted = {"times": times, "plateaus": plateaus, "events": events, "grown": grown}
        for kind, parts in wanted.items():
            rows = list(itertools.chain(*parts))
            compare(tables[f"{name}_{kind}"], rows, WITHIN, **COORDINATES)
        assert tables[f"{name}_twins"].empty
    assert not tables["small_events"]["rises"].all()
    assert 0 in tables["paper_events"]["time"].tolist()


def test_a_flow_that_stalls_is_named(stage, tmp_path):
    toy = write(tmp_path)["paper"]
    toy["X"][0, 1, 0, 0] = math.nan
    save_file(toy, tmp_path / "t/paper.safetensors")
    with pytest.raises(StalledError, match=r"^seed 4, init scale 1e-0.7: .*finite"):
        run(stage, tmp_path)


def test_a_flow_of_more_events_than_room_was_asked_for_is_refused_by_name(stage, tmp_path):
    write(tmp_path)
    most = "wanted at most max_events, 1, rises and falls of products, got more"
    with pytest.raises(
        InputError, match=rf"t/paper\.safetensors: seed 4, init scale 1e-0\.7: {most}$"
    ):
        run(stage, tmp_path, SOLVER | {"max_events": 1})
    assert not (tmp_path / "f").exists()


def test_heads_of_a_common_frame_share_their_first_product_as_their_starts_say(stage, tmp_path):
    """The shares are of (u + v)² or (u - v)², by the sign of what joins; both heads see the same
    tokens.
    """
    draw = torch.Generator().manual_seed(5)

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    X, u, v, frame = normal(1, 6, 3, 2), normal(1, 8), normal(1, 8), torch.linalg.qr(normal(2, 2)).Q
    taught = X.mean(-2, keepdim=True) @ frame[:, 1:] * 3 @ frame[:, 1:].T  # the second value alone
    toy = {"seeds": torch.tensor([4]), "X": X, "Y": X + taught, "u": u, "v": v}
    toy |= {"teacher": torch.zeros_like(u)}
    toy |= {"W_1": torch.zeros(1, 1, 2, 3).double(), "W_2": torch.zeros(1, 1, 3, 2).double()}
    frames = {"small": [frame, frame], "paper": [frame, frame.flip(1)]}  # paper's are not common
    stages = table("""
seed stage time next_time coordinate sign
4    2     9    12        2          -1
4    0     0    3         -1         0
4    1     3    9         3          1
""")
    for folder in "tp":
        (tmp_path / folder).mkdir()
    for name, own in frames.items():
        save_file(
            {**toy, "frames": torch.stack(own)[None, None]}, tmp_path / f"t/{name}.safetensors"
        )
        whole_of("predictions/stages", stages).to_parquet(tmp_path / f"p/{name}_stages.parquet")
    tables = run(stage, tmp_path, problems={name: SMALL | {"flow_scales": [-8]} for name in frames})
    shared = tables["small_twins"]
    assert tables["paper_twins"].empty
    assert list(tables["paper_twins"]) == list(shared)
    weights = (u + v)[0, [3, 7]] ** 2
    shares = (weights / weights.sum()).tolist()
    assert shared["head"].tolist() == [0, 1]
    np.testing.assert_allclose(shared["predicted"], shares, rtol=1e-12)
    np.testing.assert_allclose(shared["share"], shares, rtol=1e-4)
