"""What weights are certified for, and how few entries that takes, against every sequence."""

import pytest
import torch

from tests.decision_lists.decision_lists_made import (
    OTHER,
    SMALL,
    Brute,
    certified,
    equal,
    every_sequence,
    ordered,
    read_tables,
    write_tasks,
)
from tests.stages.made import generator, write_run

SECTION = "decision_lists.certify"


def noise(name, *shape):
    return torch.randn(*shape, generator=generator(0, "a test", name), dtype=torch.float64)


def write_runs(folder):
    """Weights of W alone, and of W and V for two seeds, right and wrong, after an earlier snapshot
    of others.
    """
    shift = 3 * noise("shift", 1, 4)  # a shift of whole columns, which changes nothing
    alone = [
        {"W": (factor * ordered(OTHER["lists"]) + part * noise(str(factor), 4, 4) + shift)[None]}
        for factor, part in ((0.5, 0.05), (2.5, 0.3), (0.2, 1))
    ]
    earlier = {name: noise(name, 2, 3, 3) for name in ("W", "V")}
    order = ordered(SMALL["lists"])
    W = torch.stack([3 * order, 0.3 * order]) + 0.2 * noise("joint", 2, 3, 3)
    last = {"W": W, "V": 3 * Brute(SMALL).P + 0.8 * noise("labels", 2, 3, 3)}

    def write(run, one, seeds, *snapshots):
        axes = {name: ["seed", "row", "col"] for name in snapshots[0]}
        layout = {"family": "decision_lists", "matrices": axes, "cell": {"task": one["name"]}}
        rows = [{"snapshot": i, "time": float(i)} for i in (0, 1)]
        write_run(folder / run, layout | {"seeds": seeds}, snapshots, rows)

    for i, name in enumerate("abc"):
        write(f"flows/{name}", OTHER, [4], alone[i - 1], alone[i])
    write("joint/d", SMALL, [8, 3], earlier, last)
    return [*((OTHER, weights, [4]) for weights in alone), (SMALL, last, [8, 3])]


KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    """Every table that the stage makes."""
    if not KEPT:
        KEPT["runs"] = write_runs(tmp_path)
        of = [write_tasks(tmp_path / one["name"], one) for one in (OTHER, SMALL)]
        folders = [tmp_path / name for name in ("flows", "joint", "tables")]
        stage("decision_lists.certify", {SECTION: {"longest_sequence": 6}}, SECTION, *of, *folders)
        KEPT.update(read_tables(tmp_path / "tables"))
    return KEPT


def fewest_kept(W, perfect):
    """The least number of entries, largest first, with which all is right, and with every larger
    number too.
    """
    order = W.abs().flatten().argsort(descending=True)
    fewest = W.numel() + 1
    for kept in range(W.numel(), -1, -1):
        mask = torch.zeros(W.numel(), dtype=torch.float64)
        mask[order[:kept]] = 1
        if not perfect(W * mask.view(W.shape)):
            break
        fewest = kept
    return fewest


def longest_right(one, W, most):
    """The length, with repeats, up to which all shorter sequences are right at V = P, too."""
    lengths = [
        n
        for n in range(1, most + 1)
        if Brute(every_sequence(one | {"seq_len": n}, True)).margins(W).min() > 0
    ]
    return next(n for n in range(1, most + 1) if n + 1 not in lengths)


def test_trained_weights_are_pruned_entry_by_entry_until_some_sequence_is_wrong(tables):
    rows = []
    for one, weights, seeds in tables["runs"]:
        for i, seed in enumerate(seeds):
            W, V = weights["W"][i], weights["V"][i] if "V" in weights else Brute(one).P

            def perfect(pruned, one=one, V=V):
                return certified(one, pruned, V)["certified_sets"]

            row = {"task": one["name"], "seed": seed}
            row["list_entries"] = sum(len(entries) for entries in one["lists"])
            middle = W.sort(0).values[(len(W) - 1) // 2]
            row["kept_in_gauge"] = fewest_kept(W - middle, perfect)
            rows.append(row | {"kept_raw": fewest_kept(W, perfect)})
    equal(tables["trained"], rows)


def test_flows_are_certified_for_lengths_at_every_time(tables):
    rows = []
    flows = tables["runs"][:3]
    for i, (one, weights, _) in enumerate(flows):
        for time, W in enumerate((flows[i - 1][1]["W"][0], weights["W"][0])):
            row = {"time": float(time), "longest": longest_right(one, W, 6), "law": one["law"]}
            rows.append(row | {"seq_len": 3, "task": one["name"]})
    equal(tables["lengths"][list(rows[0])], rows)
    assert tables["lengths"]["longest"].nunique() > 2
