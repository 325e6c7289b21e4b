"""The run over architectures, on one tiny model: the rules' plans are those of the stage, and an
adapter that is cut is the one that was measured there.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from published.rank_rules import run as rank_rules
from tests.checkpoints.checkpoints_made import MEASURE, PLAN, SPECTRA

SIZES = {
    "d_model": 16,
    "n_layers": 1,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_mlp": 24,
    "init_scale": 0.1,
    "seq_len": 16,
}
TRAININGS = """name	n_steps	learning_rate	snapshot_steps
base	3	1e-2	[]
large	12	1e-2	[]
gentle	6	1e-2	[]
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The tables of one base of one architecture."""
    folder = tmp_path_factory.mktemp("rules")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("DVC_ROOT", raising=False)
        patch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
        every = rank_rules.architectures
        patch.setattr(rank_rules, "architectures", lambda sizes: {"llama": every(sizes)["llama"]})
        patch.setattr(rank_rules, "TRAINED", ("llama",))
        patch.setattr(rank_rules, "TIMES", (1,))
        patch.setattr(rank_rules, "RATES", (1e-2,))
        patch.setattr(rank_rules, "WINDOWS", 4)
        patch.setattr(rank_rules, "N_BYTES", 4000)
        checkpoints = {
            "cases": {"trainings": "trainings.tsv"},
            "spectra": SPECTRA,
            "plan": PLAN,
            "own": MEASURE,
            "example": {"train": {"n_seeds": 1, "batch_size": 4, **SIZES}},
        }
        Path("params.yaml").write_text(yaml.safe_dump({"checkpoints": checkpoints}))
        Path("trainings.tsv").write_text(TRAININGS)
        rank_rules.main(n_bases=1)
        found = sorted(Path("published/rank_rules/figures").glob("*.svg"))
        assert [file.stem for file in found] == ["fitted", "rules"]
        return {
            name: pd.read_parquet(f"published/rank_rules/tables/{name}.parquet")
            for name in ("rules", "gains", "fitted")
        }


def test_every_fine_tune_has_one_chosen_rule_at_each_budget(tables):
    rules = tables["rules"]
    plain = rules[rules["shuffle"] == 0]
    assert set(plain["kind"]) == {"large", "gentle", "scratch"}
    assert (plain.groupby(["kind", "budget"])["chosen"].sum() == 1).all()
    assert (tables["gains"]["gain"] > 0).all()


def test_the_adapter_that_is_cut_is_that_of_the_plan(tables):
    rules = tables["rules"]
    large = rules[rules["chosen"] & (rules["kind"] == "large")].set_index("budget")
    [row] = tables["fitted"].to_dict("records")
    assert row["cut"] == pytest.approx(large.loc[row["budget"], "loss_on_base"], rel=1e-6)
    assert row["parameters"] == large.loc[row["budget"], "parameters"]
    [gains] = tables["gains"][tables["gains"]["kind"] == "large"].to_dict("records")
    assert row["loss_tuned"] == pytest.approx(gains["loss_tuned"], rel=1e-6)
    assert row["trained"] < row["loss_base"]


def made_rules():
    """Shares lost of two bases at two budgets."""
    shares = {"uniform": 0.4, "attributed": 0.3, "energy": 0.5, "water-filling": 0.6}
    rows = []
    for base in (0, 1):
        for budget, times in ((2, 1.5), (4, 0.5)):
            for rule, share in shares.items():
                rows.append((base, budget, rule, 0, times * (share + 0.1 * base)))
            rows.extend((base, budget, "attributed", n, times * (0.6 + 0.1 * n)) for n in (1, 2))
    columns = ["base", "budget", "rule", "shuffle", "share_lost"]
    table = pd.DataFrame(rows, columns=columns).assign(architecture="gpt2", kind="large")
    chosen = (table["rule"] == "energy") & (table["shuffle"] == 0)
    above = np.where(table["budget"] == 2, -0.3, 0.2)
    return table.assign(chosen=chosen, above_uniform=above, noise=0.1)


def test_measures_are_differences_of_means_over_budgets():
    fitted = pd.DataFrame(
        {"architecture": "gpt2", "base": [0, 1], "cut": [3.0, 2.0], "trained": [2.5, 1.0]}
    ).assign(loss_tuned=1.5)
    kinds = pd.concat([made_rules().assign(kind=kind) for kind in ("large", "gentle", "scratch")])
    found = rank_rules.measured({"rules": kinds, "fitted": fitted})
    wanted = {
        "attributed_less_uniform_large": [-0.1, -0.1],
        "attributed_less_energy_gentle": [-0.2, -0.2],
        "attributed_less_shuffled_scratch": [-0.4, -0.3],
        "energy_less_uniform_large": [0.1, 0.1],
        "water_filling_less_uniform_gentle": [0.2, 0.2],
        "share_lost_attributed_gentle": [0.15, 0.2],
        "share_lost_uniform_scratch": [0.2, 0.25],
        "chosen_above_uniform": [2.0, 2.0],
        "attributed_above_uniform": [2.0, 2.0],
        "trained_less_cut": [-0.5, -1.0],
        "trained_less_tuned": [1.0, -0.5],
    }
    for name, values in wanted.items():
        assert list(found[name].index) == ["gpt2 0", "gpt2 1"]
        np.testing.assert_allclose(found[name], values)
