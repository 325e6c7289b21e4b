"""Adapters of plans: what they hold and say, and their losses as peft computes them."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from lib.checkpoints.cut_adapters import left_out
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.update_spectra import leading_triplets
from lib.files.files import InputError
from tests.checkpoints.checkpoints_made import (
    FEW,
    SPECTRA,
    TEXT,
    adapted,
    fit,
    loss_of,
    planned,
    taught,
    windows,
)
from tests.checkpoints.transformers_made import made
from tests.checkpoints.transformers_made import saved as model_saved

HELD = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


@pytest.fixture
def adapt(stage):
    """Run the stage; its folder, and what is listed of each adapter, by the folder's name."""

    def run(plans, *, table=None, **options):
        made = plans.folder / "plans"
        if table is not None:
            made = Path(shutil.copytree(made, "changed"))
            table.to_parquet(made / "plans.parquet")
        out = Path("adapters")
        given = {"base": plans.base, "tuned": plans.tuned, "plans": made}
        given |= {"factors": plans.folder / "factors", "adapters": out}
        stage("checkpoints.adapt", {}, **given, **options)
        listed = json.loads((out / "adapters.json").read_text())
        return out, {one["folder"]: one for one in listed}

    return run


def n_held(adapter):
    return sum(W.numel() for W in load_file(adapter / HELD).values())


def chosen(plans, budget):
    [row] = plans.rows(chosen=True, budget=budget)
    return row


def test_an_adapter_has_the_loss_that_its_card_and_the_list_say(plans, adapt):
    out, listed = adapt(plans)
    assert set(listed) == {"rank-1", "rank-3"}
    for budget in (1, 3):
        adapter = out / f"rank-{budget}"
        row = chosen(plans, budget)
        found = loss_of(adapted(plans.base, adapter))
        assert found == pytest.approx(row["loss_on_base"], rel=1e-4)
        one = listed[adapter.name]
        assert one["loss"] == pytest.approx(row["loss_on_base"], rel=1e-5)
        assert one["choosing_loss"] == pytest.approx(row["choosing_loss"], rel=1e-5)
        wanted = {"rule": row["rule"], "run": "tuned", "base": str(plans.base.resolve())}
        wanted |= {"parameters": row["parameters"]}
        assert wanted.items() <= one.items()
        assert n_held(adapter) == row["parameters"]
        card = (adapter / "README.md").read_text()
        assert f"base with this adapter has a loss of {row['loss_on_base']:.4g}; " in card
        assert f"it is {row['above_uniform']:+.2g}, with a noise of {row['noise']:.1g}. " in card
        assert f"so loses {row['share_lost']:.1%} of what" in card
        assert f"Rule: {row['rule']}; {row['parameters']} parameters, those of" in card


def test_of_each_budget_the_rule_that_was_chosen_becomes_the_adapter(plans, adapt):
    table = plans.table("plans")
    best = {1: "attributed", 3: "energy"}
    is_best = table["budget"].map(best) == table["rule"]
    losses = np.where(is_best, 2.0, 1.0)
    out, listed = adapt(plans, table=table.assign(chosen=is_best, loss_on_base=losses))
    names = plans.table("modules")["module"]
    for budget, rule in best.items():
        [row] = plans.rows(rule=rule, shuffle=0, budget=budget)
        ranks = {n: r for n, r in zip(names, row["ranks"], strict=True) if r}
        config = json.loads((out / f"rank-{budget}/plan.json").read_text())
        assert config["rank_pattern"] == {f"^{re.escape(n)}$": r for n, r in ranks.items()}
        one = listed[f"rank-{budget}"]
        assert (one["rule"], one["loss"]) == (rule, 2.0)
        assert one["mixed"] == (len(set(ranks.values())) > 1)


def test_padded_to_one_rank_an_adapter_has_the_same_loss_and_no_patterns(plans, adapt):
    table = plans.table("plans")
    is_mixed = (table["rule"] == "attributed") & (table["shuffle"] == 0)
    named = {"ranks": "equal", "name": "org/model"}
    out, listed = adapt(plans, **named, table=table.assign(chosen=is_mixed))
    [row] = plans.rows(rule="attributed", shuffle=0, budget=3)
    assert len({rank for rank in row["ranks"] if rank}) > 1
    adapter = out / "rank-3"
    assert loss_of(adapted(plans.base, adapter)) == pytest.approx(row["loss_on_base"], rel=1e-4)
    config = json.loads((adapter / CONFIG).read_text())
    assert config["r"] == config["lora_alpha"] == max(row["ranks"])
    one = listed["rank-3"]
    assert one["parameters"] == n_held(adapter) > row["parameters"]
    assert (one["mixed"], one["base"]) == (False, "org/model")
    card = (adapter / "README.md").read_text()
    assert f"of a uniform rank 3, padded to rank {config['r']}. " in card
    assert "\nbase_model: org/model\n" in card


def test_plans_of_other_columns_are_refused_by_name(llama, adapt):
    table = llama.table("plans")
    with pytest.raises(InputError, match=r"plans.parquet: wanted .* columns budget, .*, got"):
        adapt(llama, table=table.drop(columns="ranks"))


def test_plans_of_other_types_are_refused_by_name(llama, adapt):
    table = llama.table("plans").assign(chosen=0.5)
    with pytest.raises(InputError, match=r"column chosen: wanted truth .*, got double"):
        adapt(llama, table=table)


@pytest.mark.parametrize("saved", ["no", "yes"])
def test_the_base_is_measured_in_the_type_in_which_it_is_stored(
    stage, adapt, tmp_path, text, saved
):
    pair = taught("llama", tmp_path)
    for folder in pair:
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
    plans = planned(*pair, text, saved=saved, **FEW)
    out, listed = adapt(plans, modules_to_save=saved)
    found = loss_of(adapted(plans.base, out / "rank-3"))
    assert chosen(plans, 3)["loss_on_base"] == pytest.approx(found, rel=1e-5)
    assert listed["rank-3"]["parameters"] == n_held(out / "rank-3")
    assert plans.losses["loss_base"] == pytest.approx(loss_of(plans.base), rel=1e-5)


def test_what_cannot_be_carried_is_not_in_the_measured_loss(stage, adapt, tmp_path, text):
    """Embedding and head of a vocabulary that was resized stay behind, though they were tuned."""
    base, tuned = taught("llama", tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tuned)
    model.resize_token_embeddings(260, mean_resizing=False)
    model.save_pretrained(tuned)
    plans = planned(base, tuned, text, saved="yes", **FEW)
    out, listed = adapt(plans, modules_to_save="yes")
    row = chosen(plans, 3)
    found = loss_of(adapted(base, out / "rank-3"))
    assert found == pytest.approx(row["loss_on_base"], rel=1e-4)
    assert row["loss_on_base"] - row["loss"] > 1e-2
    left = listed["rank-3"]["left"]
    assert {name.split(".")[-2] for name in left} == {"embed_tokens", "lm_head"}
    assert f"not carried: {', '.join(left)}." in (out / "rank-3/README.md").read_text()


@pytest.mark.parametrize(("kept", "n_again"), [(3, 0), (2, 14)])
def test_an_update_is_decomposed_again_only_for_more_than_was_kept(
    stage, adapt, tmp_path, monkeypatch, kept, n_again
):
    plans = planned(*taught("llama", tmp_path, 1), "-", kept=3)
    once = load_file(adapt(plans)[0] / "rank-3" / HELD)
    again = []

    def counted(*arguments):
        again.append(arguments)
        return leading_triplets(*arguments)

    monkeypatch.setattr("lib.checkpoints.cut_adapters.leading_triplets", counted)
    given = {"section": "s", "base": plans.base, "snapshots": plans.tuned}
    given |= {"spectra": Path("spectra.parquet"), "factors": "factors", "kept": kept}
    stage("checkpoints.spectra", {"s": SPECTRA}, **given)
    after = load_file(adapt(plans)[0] / "rank-3" / HELD)
    assert len(again) == n_again
    for name in (key for key in once if "lora_A" in key):
        one, other = (of[name.replace("lora_A", "lora_B")] @ of[name] for of in (once, after))
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_what_only_the_tuned_side_has_is_left_out_by_name(tmp_path):
    """A copy of an embedding that is the head too is none of its own; a mask has no dimensions."""
    made = {"embed.weight": torch.eye(3), "h.0.weight": torch.ones(2, 2), "eps": torch.tensor(1.0)}
    tuned = {**made, "h.0.bias": torch.ones(2), "head.weight": torch.eye(3)}
    tuned["eps"] = torch.tensor(2.0)
    for name, tensors in (("base", made), ("tuned", tuned)):
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
        (tmp_path / name / "config.json").write_text('{"model_type": "toy"}')
    base, ended = (open_checkpoint(tmp_path / name) for name in ("base", "tuned"))
    assert left_out(base, ended, {"h.0.weight"}) == ["eps", "h.0.bias"]


@pytest.mark.parametrize("saved", ["no", "yes"])
@pytest.mark.parametrize("what", ["biases", "head"])
def test_what_the_tuned_model_alone_has_is_named_with_its_share(
    stage, adapt, tmp_path, text, saved, what
):
    """Biases stay behind; a head that the base ties is carried with all else that is."""
    model = made("llama", tie_word_embeddings=what == "head")
    base = model_saved(model, tmp_path / "base")
    ended = made("llama", attention_bias=what == "biases")
    ended.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        for name, parameter in ended.named_parameters():
            parameter *= not name.endswith(".bias")
    ended.config.tie_word_embeddings = what == "head"
    fit(ended, 12, input_ids=windows(TEXT), labels=windows(TEXT))
    tuned = model_saved(ended, tmp_path / "tuned")
    plans = planned(base, tuned, text, saved=saved, **FEW)
    out, listed = adapt(plans, modules_to_save=saved)
    one = listed["rank-3"]
    found = loss_of(adapted(base, out / "rank-3"))
    assert found == pytest.approx(chosen(plans, 3)["loss_on_base"], rel=1e-4)
    places = [f"model.layers.*.self_attn.{x}_proj.bias" for x in "kqvo"]
    names = {"head": ["lm_head.weight"], "biases": sorted(places)}[what]
    assert one["alone"] == names
    is_carried = (saved, what) == ("yes", "head")
    assert set(names) & set(one["left"]) == (set() if is_carried else set(names))
    without = dict(ended.named_parameters())
    of_base = model.model.embed_tokens.weight
    changed = {n: W * 0 for n, W in without.items() if n.endswith("bias")}
    changed = {"lm_head.weight": of_base} if what == "head" else changed
    lost = loss_of(ended, weights=changed) - plans.losses["loss_tuned"]
    share = lost / (plans.losses["loss_base"] - plans.losses["loss_tuned"])
    assert one["alone_share"] == pytest.approx(share, abs=1e-4)
    card = (out / "rank-3/README.md").read_text()
    assert f"alone has {', '.join(names)}, which hold {share:.1%} of the whole gain." in card
