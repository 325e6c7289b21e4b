"""Optimisers side by side, on tiny models: which rates are chosen, what is trained, cut and
measured, and kept.
"""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from lib.files.params import read_cases
from lib.work.command import run
from published.digits_optimizers import run as optimizers
from tests.pipeline.project import ROOT
from tests.stages.made import read_measures

MODEL = {"patch_size": 4, "d_model": 8, "n_heads": 2, "d_head": 3, "d_mlp": 8, "n_layers": 2}
TRAIN = {
    "init_scales": [0.5, 1],
    "n_seeds": 2,
    "device": "cpu",
    "precision": "float32",
    "compile": False,
    "threads": 1,
    "max_hours": 1,
    "model": MODEL,
    "augmentation": "none",
    "batch_size": 64,
    "n_steps": 99,
    "warmup_steps": 1,
    "learning_rate": 77,
    "snapshot_every": 99,
}
COMPARED = {"n_steps": 6, "snapshot_every": 3, "test_accuracy": 0.13}
PUBLISHED = ROOT / "published" / "digits_optimizers"


START = subprocess.run


def in_this_process(command, **how):
    """A stage, without the seconds that a process takes to load what is loaded here; other programs
    as ever.
    """
    if command[:2] != [sys.executable, "-m"]:
        return START(command, **how)
    module, *arguments = command[2:]
    assert how["check"] is True
    assert str(ROOT) in how["env"]["PYTHONPATH"].split(os.pathsep)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(how["cwd"])
        patch.setattr(sys, "argv", [module, *arguments])
        run(import_module(module).main)
    return None


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder where all was made, twice: the second call trains nothing."""
    folder = tmp_path_factory.mktemp("optimizers")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
        patch.setattr(optimizers.plot, "main", lambda *_: None)
        patch.setattr(optimizers.subprocess, "run", in_this_process)
        data = {"source": "digits", "n_test": 360, "seed": 0}
        vision = {"digits_long": {"data": data, "train": TRAIN}, "digits_optimizers": COMPARED}
        Path("params.yaml").write_text(yaml.safe_dump({"vision": vision}))
        optimizers.main(Path("work"))
        before = {
            path: path.read_bytes()
            for path in (folder / "published").rglob("*.*")
            if path.suffix != ".tmp"
        }
        patch.setattr(
            optimizers.subprocess, "run", lambda *_, **__: pytest.fail("a stage runs again")
        )
        patch.setattr("tools.publish.said", lambda *_: "")
        optimizers.main(Path("work"))
        for path, content in before.items():
            assert path.name == "provenance.json" or path.read_bytes() == content
    return folder


def table(folder, name):
    return pd.read_parquet(
        folder / "published" / "digits_optimizers" / "tables" / f"{name}.parquet"
    )


def test_the_rate_of_each_optimiser_is_that_of_the_lowest_mean_loss(made):
    rates = table(made, "rates")
    assert set(rates["seed"]) == {100, 101}
    note = made / "published/digits_optimizers/provenance.json"
    params = json.loads(note.read_text())["params"]
    assert params["learning_rates"] == optimizers.chosen(rates)
    tried = rates.groupby("rule", sort=False)["learning_rate"].agg(list)
    for rule in read_cases(optimizers.RULES, optimizers.Rule):
        assert sorted(tried[rule.name]) == pytest.approx(sorted(2 * rule.learning_rates))
    assert params["train"]["learning_rate"] == params["learning_rates"]["adam"]


def test_a_rate_that_diverged_is_not_chosen():
    rows = [("a", 0.1, 2), ("a", 0.1, np.nan), ("a", 1, 3), ("a", 1, 4), ("b", 1, 2), ("b", 2, 1)]
    assert optimizers.chosen(
        pd.DataFrame(rows, columns=["rule", "learning_rate", "train_loss"])
    ) == {"a": 1, "b": 2}


def test_updates_are_cut_where_a_training_first_has_the_accuracy(made):
    truncate, trained = table(made, "truncate"), table(made, "trained")
    reached = 0
    for cell, steps in trained.groupby(["control", "init_scale", "seed"], observed=True):
        control, scale, seed = str(cell[0]), float(cell[1]), int(cell[2])
        cut = truncate[(truncate["control"] == control) & (truncate["init_scale"] == scale)]
        cut = cut[cut["seed"] == seed]
        first = steps[steps["test_accuracy"] >= COMPARED["test_accuracy"]]["step"].min()
        assert set(cut["step"]) == (set() if np.isnan(first) else {first})
        if len(cut):
            reached += 1
            whole = cut[cut["rank"] == cut["rank"].max()]["test_accuracy"].item()
            assert whole == pytest.approx(
                steps[steps["step"] == first]["test_accuracy"].item(), abs=1e-6
            )
    assert 0 < reached < len(trained) / 5


def test_measures_are_kept_with_the_setup_and_where_they_come_from(made):
    folder = made / "published" / "digits_optimizers"
    setup, measures = read_measures(folder)
    assert setup == {"n_steps": "6"}
    assert {"stable_rank.W_KQ muon", "first_step_rank.W_VO permuted sgd"} < measures.keys()
    note = json.loads((folder / "provenance.json").read_text())
    assert note["params"]["train"]["n_steps"] == 6
    assert note["params"]["data"]["source"] == "digits"
    assert (note["seeds"], note["command"]) == ([0, 1], "python -m published.digits_optimizers.run")


def test_what_is_published_is_measured_of_its_tables_at_the_rates_of_the_grid(tmp_path):
    names = ("trained", "ranks", "truncate", "rates")
    tables = {name: pd.read_parquet(PUBLISHED / "tables" / f"{name}.parquet") for name in names}
    note = json.loads((PUBLISHED / "provenance.json").read_text())
    assert optimizers.chosen(tables["rates"]) == note["params"]["learning_rates"]
    rows = optimizers.measured(tables, note["params"]["train"]["n_steps"])
    optimizers.write_measures(rows, tmp_path, optimizers.HEADLINES)
    names = "first_step_rank.W_KQ muon", "rank_at_equal_accuracy_over_plain.muon"
    assert {*names} < read_measures(tmp_path)[1].keys()
    for name in ("measures.csv", "headlines.json"):
        assert (tmp_path / name).read_text() == (PUBLISHED / name).read_text()
