"""What the run over architectures says of its tables, by hand."""

import numpy as np
import pandas as pd

from published.rank_rules import run as rank_rules


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
