"""What weights are certified for, and how few entries that takes, against every sequence."""

import pandas as pd
import pytest
import torch

from tests.decision_lists.decision_lists_made import (
    Brute,
    certified,
    every_sequence,
    ordered,
    task,
    write_tasks,
)
from tests.stages.made import files, generator, write_run

SECTION = "decision_lists.certify"
FIRST = task(
    "first", "some", 4, 3, "3 1 0 / 2 1 / 2 / 1 3", "2 0 3 1", "5 1 3 2 7 4", law="first law"
)
SECOND = task("second", "other", 3, 2, "1 0 / 2 1 / 2", "1 2 0", "1 6 4", law="second law")


def noise(name, *shape):
    return torch.randn(*shape, generator=generator(0, "a test", name), dtype=torch.float64)


def write_runs(folder):
    """Weights of W alone, and of W and V for two seeds, right and wrong, after an earlier snapshot
    of others.
    """
    shift = 3 * noise("shift", 1, 4)  # of whole columns, which changes nothing
    alone = [
        {"W": (factor * ordered(FIRST["lists"]) + part * noise(str(factor), 4, 4) + shift)[None]}
        for factor, part in ((0.5, 0.05), (2.5, 0.3), (0.2, 1))
    ]
    earlier = {name: noise(name, 2, 3, 3) for name in ("W", "V")}
    W = torch.stack([3 * ordered(SECOND["lists"]), 0.3 * ordered(SECOND["lists"])]) + 0.2 * noise(
        "joint", 2, 3, 3
    )
    last = {"W": W, "V": 3 * Brute(SECOND).P + 0.8 * noise("labels", 2, 3, 3)}
    axes = ["seed", "row", "col"]
    of_first = {
        "family": "decision_lists",
        "matrices": {"W": axes},
        "cell": {"task": "first"},
        "seeds": [4],
    }
    of_second = of_first | {
        "matrices": {"W": axes, "V": axes},
        "cell": {"task": "second"},
        "seeds": [8, 3],
    }
    rows = [{"snapshot": i, "time": float(i)} for i in (0, 1)]
    for i, name in enumerate("abc"):
        write_run(folder / "flows" / name, of_first, [alone[i - 1], alone[i]], rows)
    write_run(folder / "joint" / "d", of_second, [earlier, last], rows)
    return [*((FIRST, weights, [4]) for weights in alone), (SECOND, last, [8, 3])]


KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    """Every table that the stage makes, in a folder with something old in it."""
    if not KEPT:
        KEPT["runs"] = write_runs(tmp_path)
        write_tasks(tmp_path / "tables" / "old.parquet", FIRST)
        of = [write_tasks(tmp_path / name, one) for name, one in (("a", FIRST), ("b", SECOND))]
        folders = [tmp_path / name for name in ("flows", "joint", "tables")]
        stage("decision_lists.certify", {SECTION: {"longest_sequence": 6}}, SECTION, *of, *folders)
        KEPT["files"] = files(tmp_path / "tables")
        KEPT.update({file.stem: pd.read_parquet(file) for file in (tmp_path / "tables").iterdir()})
    return KEPT


def equal(found, rows):
    pd.testing.assert_frame_equal(found, pd.DataFrame(rows), rtol=1e-9, atol=1e-12)


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


def longest(one, W, most):
    """The longest sequences, with repeats, up to which those of every length are right at V = P."""
    lengths = [
        n
        for n in range(1, most + 1)
        if Brute(every_sequence(one | {"seq_len": n}, True)).margins(W).min() > 0
    ]
    return next(n for n in range(1, most + 1) if n + 1 not in lengths)


def test_trained_weights_are_certified_by_every_sequence_and_pruned_entry_by_entry(tables):
    rows = []
    for one, weights, seeds in tables["runs"]:
        for i, seed in enumerate(seeds):
            W, V = weights["W"][i], weights["V"][i] if "V" in weights else Brute(one).P

            def perfect(pruned, one=one, V=V):
                return certified(one, pruned, V, False)

            row = {"task": one["name"], "group": one["group"], "law": one["law"], "seed": seed}
            row |= {
                f"certified_{name}": certified(one, W, V, name == "all") for name in ("sets", "all")
            }
            row["longest"] = -1 if "V" in weights else longest(one, W, 6)
            row |= {
                "n_entries": W.numel(),
                "list_entries": sum(len(entries) for entries in one["lists"]),
            }
            middle = W.sort(0).values[(len(W) - 1) // 2]
            row |= {
                "kept_in_gauge": fewest_kept(W - middle, perfect),
                "kept_raw": fewest_kept(W, perfect),
            }
            rows.append(row)
    equal(tables["trained"], rows)


def test_flows_are_certified_for_lengths_at_every_time(tables):
    rows = []
    for i, (one, weights, _) in enumerate(tables["runs"][:3]):
        _, before, _ = tables["runs"][i - 1 if i else 2]
        for time, W in enumerate((before["W"][0], weights["W"][0])):
            row = {
                "time": float(time),
                "longest": longest(one, W, 6),
                "task": "first",
                "law": "first law",
            }
            rows.append(row | {"seq_len": 3, "n_heads": 3})
    equal(tables["lengths"], rows)
    assert tables["lengths"]["longest"].nunique() > 2


def test_what_is_written_is_nothing_else(tables):
    assert tables["files"] == ["lengths.parquet", "trained.parquet"]
