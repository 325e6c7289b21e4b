"""Plans and pruning of tiny models that were taught a text, against models built and measured by
hand.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from lib.checkpoints import attribution, budgets, gains, races, samples, texts
from lib.checkpoints import plans as rank_plans
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.gains import (
    GainMeasure,
    Parts,
    check_text,
    measured_ends,
    opened_updates,
)
from lib.checkpoints.plans import Module, budget_of
from lib.checkpoints.snapshots import open_tuned
from lib.checkpoints.split_texts import Measure, Split, split_text
from lib.checkpoints.texts import read_batches
from lib.files.files import InputError
from lib.work.progress import reporting
from stages.checkpoints import plan as module
from tests.checkpoints.checkpoints_made import (
    FEW,
    MEASURE,
    SECTIONS,
    VARIED,
    WORDS,
    cross_entropy,
    loss_of,
    planned,
    taught,
    windows,
)


def tensors(folder):
    return {name: W.double() for name, W in load_file(folder / "model.safetensors").items()}


@pytest.fixture(scope="module")
def pair(plans):
    """The weights of both, and the names of those that are planned."""
    return tensors(plans.base), tensors(plans.tuned), list(plans.table("modules")["tensor"])


def cut(pair, ranks):
    """The weights with every update cut to its rank."""
    W_0, W, names = pair
    made = {}
    for name, rank in zip(names, ranks, strict=True):
        U, sigma, Vh = torch.linalg.svd(W[name] - W_0[name], full_matrices=False)
        made[name] = W_0[name] + (U[:, :rank] * sigma[:rank]) @ Vh[:rank]
    return made


def test_losses_are_those_of_both_models_and_of_one_without_its_linear_updates(plans, pair):
    W_0, _, names = pair
    none = loss_of(plans.tuned, weights={name: W_0[name] for name in names})
    tuned = loss_of(plans.tuned)
    wanted = {"loss_tuned": tuned, "loss_without_linear": none, "gain": none - tuned}
    wanted["loss_base"] = loss_of(plans.base)
    assert {key: plans.losses[key] for key in wanted} == pytest.approx(wanted, rel=1e-4)


def test_every_plan_has_the_loss_of_the_tuned_model_with_its_updates_cut(plans, pair):
    model = AutoModelForCausalLM.from_pretrained(plans.tuned)
    losses = plans.losses
    assert len(plans.rows(rule="attributed")) == 2 * 3, "and two shuffles at both budgets"
    for row in plans.rows():
        lost = loss_of(model, weights=cut(pair, row["ranks"]))
        assert row["loss"] == pytest.approx(lost, rel=1e-5)
        share = (lost - losses["loss_tuned"]) / losses["gain"]
        assert row["share_lost"] == pytest.approx(share, abs=1e-4)


def test_on_the_base_a_plan_is_measured_and_chosen_by_windows_of_their_own(plans, pair):
    """The chosen rule is below uniform by two standard errors of pairs of windows, or uniform."""
    model = AutoModelForCausalLM.from_pretrained(plans.base)
    for budget in MEASURE["budgets"]:
        rows = {row["rule"]: row for row in plans.rows(budget=budget, shuffle=0)}
        lost = {}
        for rule, row in rows.items():
            made = cut(pair, row["ranks"])
            each = [loss_of(model, slice(i, i + 1), made) for i in range(8, 24)]
            lost[rule] = np.array(each).reshape(2, 8)
        above = {rule: of - lost["uniform"] for rule, of in lost.items()}
        noise = {rule: 2 * of.std(1, ddof=1) / 8**0.5 for rule, of in above.items()}
        for rule, row in rows.items():
            measured, choosing = lost[rule].mean(1)
            assert row["loss_on_base"] == pytest.approx(measured, rel=1e-5)
            assert row["choosing_loss"] == pytest.approx(choosing, rel=1e-5)
            assert row["above_uniform"] == pytest.approx(above[rule][0].mean(), abs=1e-5)
            assert row["noise"] == pytest.approx(noise[rule][0], rel=1e-2, abs=1e-6)
        sure = [rule for rule in rows if above[rule][1].mean() < -noise[rule][1]]
        best = min(sure or ["uniform"], key=lambda rule: lost[rule][1].mean())
        assert [rule for rule, row in rows.items() if row["chosen"]] == [best]
    assert plans.table("plans")["chosen"].sum() == 2


def known(plans, pair):
    """What rules know of the modules."""
    W_0, W, names = pair
    found = {}
    for row, name in zip(plans.table("modules").to_dict("records"), names, strict=True):
        sigma = torch.linalg.svdvals(W[name] - W_0[name]).numpy()
        shape = tuple(W[name].shape)
        found[row["module"]] = Module(shape, sigma, float((sigma**2).sum()), len(sigma))
    return found


def test_ranks_are_those_of_the_rule_at_a_budget_that_they_keep(plans, pair):
    table = plans.table("modules")
    modules, earned = known(plans, pair), dict(zip(table["module"], table["earned"], strict=True))
    for row in plans.rows(shuffle=0):
        ranks = rank_plans.plan(row["rule"], modules, budget_of(modules, row["budget"]), earned)
        assert list(row["ranks"]) == list(ranks.values()), (row["rule"], row["budget"])
    assert (table["limit"] == table[["rows", "cols"]].min(axis=1)).all()
    cost = (table["rows"] + table["cols"]).to_numpy()
    for row in plans.rows():
        assert row["parameters"] == (cost * row["ranks"]).sum() <= row["budget"] * cost.sum()
    uniform = [set(row["ranks"]) for row in plans.rows(rule="uniform")]
    assert uniform == [{1}, {3}]


def test_shuffles_have_the_ranks_of_the_attributed_plan_in_other_orders(llama):
    rows = llama.rows(rule="attributed", budget=3)
    assert [row["shuffle"] for row in rows] == [0, 1, 2]
    orders = {tuple(row["ranks"]) for row in rows}
    assert len(orders) == 3
    assert len({tuple(sorted(order)) for order in orders}) == 1


def planned_anew(stage, plans, spectra):
    """Run the stage alone on other spectra."""
    spectra.to_parquet("spectra.parquet")
    given = {"section": "p", "measure": "m", "base": plans.base, "tuned": plans.tuned, "text": "-"}
    written = {name: Path(name) for name in ("factors", "plans")}
    stage("checkpoints.plan", SECTIONS, **given, spectra=Path("spectra.parquet"), **written)


def test_singular_values_that_rounding_can_have_made_are_bought_last(stage, tmp_path):
    plans = planned(*taught("llama", tmp_path), "-")
    spectra = pd.read_parquet("spectra.parquet")
    last = spectra[spectra["head"] == 0]["module"].iloc[-1]
    edges = np.where(spectra["module"] == last, 1, 5)
    planned_anew(stage, plans, spectra.assign(rank_above_edge=edges))
    place = list(plans.table("modules")["tensor"]).index(last)
    assert {row["ranks"][place] for row in plans.rows(budget=3)} == {1}


def test_attribution_is_a_path_integral_over_other_windows(plans, pair):
    W_0, W, names = pair
    earned = dict.fromkeys(names, 0.0)
    model = AutoModelForCausalLM.from_pretrained(plans.tuned)
    for t in (0.25, 0.75):
        with torch.no_grad():
            for name in names:
                model.get_parameter(name).copy_(W_0[name] + t * (W[name] - W_0[name]))
        model.zero_grad()
        cross_entropy(model(input_ids=windows()[:8]).logits, windows()[:8]).backward()
        for name in names:
            slope = model.get_parameter(name).grad.double()
            earned[name] -= float((slope * (W[name] - W_0[name])).sum()) / 2
    found = plans.table("modules")["earned"]
    np.testing.assert_allclose(found, list(earned.values()), rtol=1e-3, atol=1e-6)
    assert plans.losses["attributed"] == pytest.approx(sum(earned.values()), rel=1e-3)
    without = {name: W_0[name] for name in names}
    drop = loss_of(plans.tuned, slice(8), without) - loss_of(plans.tuned, slice(8))
    assert plans.losses["drop"] == pytest.approx(drop, rel=1e-4)


def test_every_rule_has_a_least_budget_that_loses_at_most_the_share(plans):
    budgets = plans.table("budgets")
    least = budgets[budgets["least"]]
    assert sorted(least["rule"]) == sorted(get_args(rank_plans.Rule))
    assert (least["share_lost"] <= 0.5).all()
    for row in least.to_dict("records"):
        below = budgets[budgets["rule"] == row["rule"]]
        below = below[below["parameters"] < row["parameters"]]
        assert (below["share_lost"] > 0.5).all()


def test_pruning_has_the_losses_of_models_pruned_by_hand(plans, pair):
    W_0, W, names = pair
    losses = plans.table("pruning").set_index(["what", "rate"])["loss"]
    update = {name: W[name] - W_0[name] for name in names}
    wanted = {}
    for what, sizes, back in (("weights", W, None), ("updates", update, W_0)):
        middle = torch.cat([sizes[name].float().abs().flatten() for name in names]).median()
        made = {}
        for name in names:
            gone = sizes[name].float().abs() <= middle
            made[name] = torch.where(gone, back[name] if back else 0.0, W[name])
        key = f"{what}, smallest first"
        wanted[key, 0.0] = loss_of(plans.tuned)
        wanted[key, 0.5] = loss_of(plans.tuned, weights=made)
    assert {key: losses[key] for key in wanted} == pytest.approx(wanted, rel=1e-3)
    assert losses["updates, at random", 0.5] > losses["updates, smallest first", 0.5]


def test_a_plan_that_was_stopped_goes_on_and_gives_the_same_bytes(stage, gpt2, monkeypatch):
    measured = GainMeasure.of
    path_attribution = attribution.path_attribution
    calls = []

    def counted(name, function, most):
        def call(*arguments):
            if len(calls) == most:
                raise KeyboardInterrupt
            calls.append(name)
            return function(*arguments)

        return call

    def begin(most=None):
        calls.clear()
        monkeypatch.setattr(GainMeasure, "of", counted("loss", measured, most))
        counting = counted("attribution", path_attribution, most)
        monkeypatch.setattr(attribution, "path_attribution", counting)
        planned(gpt2.base, gpt2.tuned, gpt2.folder / "text.txt")
        return list(calls)

    with pytest.raises(KeyboardInterrupt):
        begin(most=5)
    assert "attribution" not in begin()
    for file in Path("plans").iterdir():
        assert file.read_bytes() == (gpt2.folder / file).read_bytes()
    assert begin() == [], "all is kept"


def test_factors_that_a_plan_needs_and_that_were_not_kept_are_wanted(stage, tmp_path, text):
    message = r"factors/tuned: wanted \d+ leading triplets .*, got 2: "
    with pytest.raises(InputError, match=message):
        planned(*taught("llama", tmp_path), text, kept=2)


def test_without_a_text_no_live_model_is_opened_and_nothing_is_measured(
    stage, tmp_path, monkeypatch
):
    for name in ("models.open_model", "gains.open_tuned_model", "gains.open_base"):
        monkeypatch.setattr(f"lib.checkpoints.{name}", lambda *_: pytest.fail("a model was opened"))
    plans = planned(*taught("llama", tmp_path, 1), "-")
    table = plans.table("plans")
    assert set(table["rule"]) == {"uniform", "energy", "water-filling"}
    assert table[["loss", "share_lost"]].isna().all(axis=None)
    assert len(plans.table("budgets")) == 0
    pruning = plans.table("pruning")
    assert (list(pruning), len(pruning)) == (["what", "rate", "loss", "run"], 0)


def test_of_completions_every_token_counts_the_same(stage, tmp_path):
    """Batches have few or many of them: what modules earned sums to the drop."""
    pieces = [bytes(row.tolist()).decode() for row in windows()]
    cuts = [(3 + 7 * (i % 8 // 4)) for i in range(len(pieces))]
    lines = [
        json.dumps({"prompt": piece[:-n], "completion": piece[-n:]})
        for piece, n in zip(pieces, cuts, strict=True)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    losses = planned(*taught("llama", tmp_path), tmp_path / "t.jsonl", **FEW).losses
    assert losses["attributed"] == pytest.approx(losses["drop"], rel=0.1)


def test_spectra_of_another_checkpoint_are_refused(stage, tmp_path):
    plans = planned(*taught("llama", tmp_path, 1), "-")
    message = r"wanted its spectrum, got none: measure spectra of .*tuned first"
    with pytest.raises(InputError, match=message):
        planned_anew(stage, plans, pd.read_parquet("spectra.parquet").assign(run="other"))


def test_the_base_among_the_fine_tunes_is_none_of_them(stage, tmp_path):
    plans = planned(*taught("llama", tmp_path, 1), "-")
    beside = planned(plans.base, tmp_path, "-")
    for name in ("plans", "modules", "losses"):
        assert set(beside.table(name)["run"]) == {"tuned"}


IN_PARTS = {"budgets": [1, 3], "n_measured_batches": 4, "n_choosing_batches": 4}
IN_PARTS |= {"n_shuffles": 1, "pruning_rates": [0.5]}


def long_text() -> bytes:
    """Words in any order, for twelve batches."""
    return b" ".join(np.random.default_rng(1).permutation(WORDS.split() * 2).tolist())


def test_what_is_not_thorough_decides_and_quotes_the_same_with_fewer_samples(
    stage, tmp_path, monkeypatch
):
    (tmp_path / "long.txt").write_bytes(long_text())
    pair = taught("llama", tmp_path)
    n_passed = {}
    found = {}
    for thorough in ("yes", "no"):
        n_passed[thorough] = 0

        def counting(model, batch, thorough=thorough, own=texts.loss):
            n_passed[thorough] += len(batch["input_ids"])
            return own(model, batch)

        with monkeypatch.context() as patch:
            patch.setattr(texts, "loss", counting)
            made = planned(*pair, tmp_path / "long.txt", thorough=thorough, **IN_PARTS)
        found[thorough] = {name: made.table(name) for name in ("plans", "budgets", "pruning")}
    plans, all_plans = (found[one]["plans"] for one in ("no", "yes"))
    assert set(plans["shuffle"]) == {0}
    whole = all_plans[all_plans["shuffle"] == 0].reset_index(drop=True)
    assert plans["chosen"].tolist() == whole["chosen"].tolist()
    assert plans["loss"].tolist() == pytest.approx(whole["loss"].tolist(), rel=1e-6)
    quoted = plans["chosen"] | (plans["rule"] == "uniform")
    for name in ("choosing_loss", "loss_on_base", "above_uniform", "noise", "kept"):
        wanted = whole.loc[quoted, name].tolist()
        assert plans.loc[quoted, name].tolist() == pytest.approx(wanted, rel=1e-5, abs=1e-6), name
    assert plans.loc[~quoted, "loss_on_base"].isna().all()
    least, all_least = (of["budgets"][of["budgets"]["least"]] for of in (found["no"], found["yes"]))
    assert least["rule"].tolist() == all_least["rule"].tolist()
    ratio = least["parameters"].to_numpy() / all_least["parameters"].to_numpy()
    assert ((ratio > 0.85) & (ratio < 1.15)).all(), "each is searched to a tenth"
    assert len(found["no"]["pruning"]) == 0
    assert n_passed["no"] < 0.8 * n_passed["yes"]


def test_a_rule_is_out_where_it_is_far_above_the_best_and_uniform_never_is():
    draw = np.random.default_rng(0)
    text = draw.normal(3, 1, 8)
    losses = {name: text + draw.normal(0, 1e-3, 8) for name in ("uniform", "best", "near", "far")}
    losses["uniform"] += 0.5
    losses["far"] += 0.1
    losses["near"] += 1e-4
    weights = np.full(8, 1 / 32)

    def far():
        return races.far_above({name: of.tolist() for name, of in losses.items()}, weights)

    assert far() == ["far"]
    losses["best"][0] = np.nan
    assert far() == []


def made_measure(linear, batches, share_lost):
    """A measure of a made model, whose gain is 1."""
    measure = object.__new__(GainMeasure)
    measure.linear = linear
    measure.factors = {}
    measure.batches = batches
    measure.none = 1.0
    measure.tuned = 0.0
    measure.share_lost = share_lost
    return measure


def test_half_of_the_batches_do_where_the_share_is_far_from_the_one_that_is_looked_for():
    measured = []

    class Linear:
        def set_ranks(self, ranks, _):
            self.model = ranks["a"]

    batches = [{"input_ids": i} for i in range(8)]
    measure = made_measure(Linear(), batches, lambda loss: loss - 1.0)
    lost = {1: 1.9, 2: 1.52, 3: 1.0, 4: 0.9}
    text = [0.0, 1.0, 2.0, 3.0, 9.0, 9.0, 9.0, 9.0]  # what all ranks have, cancels

    def losses_of(rank, batches):
        measured.extend([rank] * len(batches))
        own = [batch["input_ids"] for batch in batches]
        return [lost[rank] + text[i] - np.mean(text) + 0.1 * (-1) ** i * (rank < 4) for i in own]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budgets, "batch_losses", losses_of)
        patch.setattr(budgets, "shares", lambda batches: [1.0] * len(batches))
        patch.setattr(budgets, "mean_of", lambda losses, _: float(np.mean(losses)))
        kept = {}

        def keep(name, compute):
            if name not in kept:
                kept[name] = compute()
            return kept[name]

        modules = {"a": Module((1, 1), np.ones(4), 4.0, 4)}
        known = {(4,): losses_of(4, batches)}
        halves = budgets.Halves(measure, modules, known, known, 0.5, keep)
        assert [halves.of({"a": rank}) for rank in (1, 2, 3)] == pytest.approx([0.9, 0.52, 0.0])
        assert [measured.count(rank) for rank in (1, 2, 3)] == [4, 8, 4]
        assert halves.of_all({"a": 1}) == pytest.approx(0.9)
        assert measured.count(1) == 8, "none is measured twice"
        assert halves.of({"a": 4}) == pytest.approx(-0.1)
        assert measured.count(4) == 8, "nor what a plan measured"


@pytest.mark.parametrize("thorough", ["yes", "no"])
def test_the_bar_knows_the_number_of_losses_within_a_tenth(stage, tmp_path, monkeypatch, thorough):
    totals = []
    done = []

    def in_this_process(planned, jobs, *, total, **_):
        totals.append(total)
        with reporting(done.append):
            return [planned(*job) for job in jobs]

    monkeypatch.setattr(module, "spread", in_this_process)
    (tmp_path / "long.txt").write_bytes(long_text())
    planned(*taught("llama", tmp_path), tmp_path / "long.txt", thorough=thorough, **IN_PARTS)
    [total] = totals
    assert 0.9 * total <= sum(done) <= 1.1 * total


def test_what_the_check_of_a_text_measured_is_not_measured_again(stage, tmp_path, monkeypatch):
    base, tuned = taught("llama", tmp_path)
    (tmp_path / "t.txt").write_bytes(VARIED)
    begun = open_checkpoint(base)
    ended = open_tuned(tuned, begun)
    batches = read_batches(base, begun.config, tmp_path / "t.txt", 16, 4, 6)
    measured = batches[2:4]
    assert check_text(begun, ended, Split(batches[:2], measured, batches[4:]))[0] == []
    linear, _ = opened_updates(begun, ended)
    with monkeypatch.context() as patch:
        for name in ("judged", "batch_losses"):
            patch.setattr(gains, name, lambda *_: pytest.fail("measured again"))
        whole, ends = measured_ends(begun, ended, linear, Parts(measured))
    for got, weights in zip(ends, (linear.tuned, linear.base), strict=True):
        linear.set(weights.items())
        assert got == pytest.approx(texts.batch_losses(linear.model, measured), rel=1e-6)
    assert Parts(measured).by_batch(whole["losses"]) == ends.tuned
    few = {"a batch of others": batches[:1], "fewer": measured[:1]}
    for name, others in few.items():
        assert measured_ends(begun, ended, linear, Parts(others)) != (whole, ends), name


def test_a_text_is_split_into_batches_of_which_none_is_in_two_parts(stage, tmp_path):
    base, tuned = taught("llama", tmp_path, 1)
    (tmp_path / "t.txt").write_bytes(VARIED)
    begun = open_checkpoint(base)
    sizes = Measure(
        budgets=(1,),
        n_batches=1,
        n_measured_batches=2,
        n_choosing_batches=3,
        batch_size=4,
        seq_len=16,
        n_labels=100,
    )
    split = split_text(begun, open_tuned(tuned, begun), tmp_path / "t.txt", sizes)
    assert [len(part) for part in split] == [1, 2, 3]
    rows = torch.cat([batch["input_ids"] for batch in split.batches])
    torch.testing.assert_close(rows, windows()[:24])
    assert sizes.n_labels_a_batch == 50
    assert samples.count_labels(split.measured) == 2 * 4 * 15
    assert samples.count_samples(split.measured) == 8


def test_a_least_budget_that_half_of_the_batches_find_is_one_by_all_of_them(monkeypatch):
    """By its first half rank 2 loses .4, by all .6: the search goes on, and finds rank 3."""
    modules = {"a": Module((1, 1), np.ones(4), 4.0, 4)}
    halves = {1: (0.9, 0.9), 2: (0.4, 0.8), 3: (0.45, 0.45), 4: (0.0, 0.0)}
    lost = {rank: [first] * 2 + [rest] * 2 for rank, (first, rest) in halves.items()}
    linear = SimpleNamespace(set_ranks=lambda ranks, _: setattr(linear, "model", ranks["a"]))
    batches = [{"input_ids": i} for i in range(4)]
    measure = made_measure(linear, batches, lambda loss: loss)
    monkeypatch.setattr(
        budgets, "batch_losses", lambda rank, some: [lost[rank][b["input_ids"]] for b in some]
    )
    monkeypatch.setattr(budgets, "shares", lambda some: [1.0] * len(some))
    monkeypatch.setattr(budgets, "mean_of", lambda losses, _: float(np.mean(losses)))

    def search(share_of):
        shares = {rank: share_of({"a": rank}) for rank in (1, 2, 3)}
        least = min(rank for rank, share in shares.items() if share <= 0.5)
        return [("uniform", 2 * rank, share, rank == least) for rank, share in shares.items()]

    known = {(4,): lost[4]}
    found = budgets.Halves(measure, modules, known, known, 0.5, lambda _, compute: compute())
    assert found.searched(search)[1:] == [
        ("uniform", 4, pytest.approx(0.6), False),
        ("uniform", 6, pytest.approx(0.45), True),
    ]
