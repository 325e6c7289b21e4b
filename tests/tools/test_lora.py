"""The program behind `make lora`, on a tiny model: what it writes, and what its page says."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
import transformers as t
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from lib.checkpoints.folders import Checkpoint
from lib.files.files import InputError
from tests.checkpoints.checkpoints_made import (
    TEXT,
    adapted,
    cross_entropy,
    fit,
    taught,
    windows,
)
from tests.tools.lora_made import run, working_in
from tools import lora


@pytest.fixture(scope="module")
def finished(kept, tmp_path_factory):
    """The folder after one call."""
    with working_in(kept, tmp_path_factory.mktemp("finished") / "made") as at:
        run()
        return at


@pytest.fixture
def folder(kept, tmp_path):
    with working_in(kept, tmp_path / "made") as at:
        yield at


@pytest.fixture
def done(finished, tmp_path):
    """A copy of the finished folder to work in; the page."""
    with working_in(finished, tmp_path / "done"):
        yield Path("out/page.html").read_text()


def plain_plans():
    plans = pd.read_parquet("out/plans/plans.parquet")
    return plans[plans["shuffle"] == 0].to_dict("records")


def page_of(losses, loss_base=2.0, mixed=(), choosing=None, left=(), wrong=()):
    """The page as if the adapters had these losses, the base that one, these adapters mixed ranks,
    and something were wrong with those.
    """
    table = pd.read_parquet("out/plans/losses.parquet")
    table.assign(loss_base=loss_base, loss_tuned=0.5).to_parquet("out/plans/losses.parquet")
    path = Path("out/adapters/adapters.json")
    listed = json.loads(path.read_text())
    for one in listed:
        name = one["folder"]
        one.update(loss=losses[name], choosing_loss=(choosing or losses)[name], left=list(left))
        one.update(mixed=name in mixed, parameters=4321, rule="uniform")
        one.update(wrong=["peft leaves some", "so it does"] if name in wrong else [])
    path.write_text(json.dumps(listed))
    base = Checkpoint(Path("base"), {}, {})
    paths = (Path("tuned"), "my.txt", Path("out"))
    lora.page(base, *paths, 0.5, planned=True, saved=False)
    return Path("out/page.html").read_text()


def measured(model):
    """The loss on the windows that are measured."""
    tokens = windows(TEXT)[8:16]
    with torch.no_grad():
        return float(cross_entropy(model(input_ids=tokens).logits, tokens))


LOSSES = {"rank-1": 1.25, "rank-3": 1.5}
THOROUGHLY = ["its shuffles lose</th>", "<h2>Pruning</h2>", "(the band)"]


def test_the_page_needs_no_network(done):
    assert re.findall(r'(?:src|href)="(?!data:|#)', done) == []
    assert "<script" not in done
    assert done.count("<figure>") == 2
    assert "<h4>" in done
    assert "Nothing was measured" not in done


@pytest.mark.parametrize(
    ("thorough", "said"), [("no", ["<code>THOROUGH=yes</code>"]), ("yes", THOROUGHLY)]
)
def test_shuffles_pruning_and_the_loss_of_every_rule_on_the_base_are_there_on_request(
    folder, thorough, said
):
    page = run(thorough=thorough)
    for words in ("<code>THOROUGH=yes</code>", *THOROUGHLY):
        assert (words in page) == (words in said), words
    plans = pd.read_parquet("out/plans/plans.parquet")
    assert (plans["shuffle"] > 0).any() == (thorough == "yes")
    of_rules = plans[plans["shuffle"] == 0]
    quoted = of_rules["chosen"] | (of_rules["rule"] == "uniform")
    measured = quoted | (thorough == "yes")
    assert of_rules["loss_on_base"].notna().tolist() == measured.tolist()
    pruning = pd.read_parquet("out/plans/pruning.parquet")
    assert (len(pruning) > 0) == (thorough == "yes")


def test_every_plan_has_its_size_and_the_loss_of_base_and_adapter_beside_uniform(done):
    assert "<thead><tr><th>loss of base + adapter</th><th>above uniform</th>" in done
    for row in plain_plans():
        assert f"{row['parameters']:,}</td>" in done
        share, noise = (100 * row[name] for name in ("share_lost", "share_noise"))
        assert f'lost">{share:.1f} % ± {noise:.1f} %</td>' in done
        loss = f"{row['loss_on_base']:.4g}"
        loss = f"<strong>{loss}</strong>" if row["chosen"] else loss
        said = f"{row['above_uniform']:+.2g} ± {row['noise']:.1g}"
        said = "–" if row["rule"] == "uniform" else said
        if not (row["chosen"] or row["rule"] == "uniform"):
            loss, said = "–", "–"
        first = f'<tr><td data-label="base + adapter">{loss}</td>'
        assert f'{first}<td data-label="above uniform">{said}</td>' in done


def test_the_first_sentence_says_which_adapter_keeps_how_much_at_what_size(done):
    best = min(
        (row for row in plain_plans() if row["chosen"]), key=lambda row: row["choosing_loss"]
    )
    [losses] = pd.read_parquet("out/plans/losses.parquet").to_dict("records")
    whole = losses["loss_base"] - losses["loss_tuned"]
    kept = (losses["loss_base"] - best["loss_on_base"]) / whole
    [first, *_] = re.findall(r'<p class="lead">(.*)</p>', done)
    assert first.startswith(f"<strong>Take <code>adapters/rank-{best['budget']}</code></strong>:")
    assert best["kept"] == pytest.approx(kept)
    share = f"{100 * kept:.1f} % ± {100 * best['kept_noise']:.1f} %"
    assert f"keeps {share} of what the full fine-tune gained on my.txt" in first
    assert f"at {best['parameters']:,} parameters by the rule {best['rule']}" in first
    assert "left behind" in first
    assert "<code>transformer.wte.weight</code>" in first


def test_an_adapter_that_leaves_nothing_behind_is_said_to(done):
    page = page_of(LOSSES)
    taken = "Take <code>adapters/rank-1</code></strong>: the base with it keeps 50.0 % ± "
    assert taken in page
    assert "at 4,321 parameters by the rule uniform; nothing that was tuned stays behind." in page
    assert "has a loss of 1.25, alone 2, the full fine-tune 0.5." in page


def test_where_no_adapter_lowers_the_loss_none_is_to_be_taken(done):
    page = page_of({"rank-1": 1.5, "rank-3": 1.25}, 1.0, left=["wte"])
    n = sum(row["chosen"] or row["rule"] == "uniform" for row in plain_plans())
    assert f"<strong>Take no adapter: with none of the {n} that were measured, the chosen" in page
    assert "the best, <code>adapters/rank-3</code> of 4,321 parameters" in page
    assert "leaves behind <code>wte</code>" in page


def test_the_adapter_to_take_is_chosen_on_other_windows_than_it_is_reported_on(done):
    page = page_of(LOSSES, choosing={"rank-1": 1.5, "rank-3": 1.25})
    assert "Take <code>adapters/rank-3</code>" in page
    assert "has a loss of 1.5, alone 2" in page


def test_an_adapter_that_peft_computes_otherwise_is_not_recommended(done):
    page = page_of(LOSSES, wrong=["rank-1"])
    assert "Take <code>adapters/rank-3</code></strong>" in page
    said = "Do not use <code>adapters/rank-1</code>:</strong> peft leaves some; so it does."
    assert said in page
    page = page_of(LOSSES, wrong=LOSSES)
    assert "<strong>Take no adapter: peft does not compute what is measured here" in page
    assert "Do not use" not in page_of(LOSSES)


def test_the_loss_of_an_adapter_that_was_written_is_the_one_with_peft(done):
    listed = json.loads(Path("out/adapters/adapters.json").read_text())
    for one in listed:
        wanted = measured(adapted(Path("base"), Path("out/adapters") / one["folder"]))
        assert one["loss"] == pytest.approx(wanted, rel=1e-5)
        assert one["own_loss"] == pytest.approx(wanted, rel=1e-4)
        assert one["wrong"] == []
    page = page_of({"rank-1": 1.2345, "rank-3": 1.5})
    assert "<strong>1.234</strong>" in page or "<strong>1.235</strong>" in page


@pytest.mark.parametrize("saves", ["no", "yes"])
def test_what_no_adapter_can_adapt_is_in_no_plan_and_named_with_its_share(folder, saves):
    """peft refuses the output of Mamba, and one of its layers is read and never called."""
    for name in ("base", "tuned"):
        shutil.rmtree(name)
    config = t.MambaConfig(vocab_size=256, hidden_size=32, state_size=4, num_hidden_layers=2)
    model = t.MambaForCausalLM(config)
    model.save_pretrained("base")
    tokens = windows(TEXT)
    fit(model, 12, input_ids=tokens, labels=tokens)
    model.save_pretrained("tuned")
    page = run(modules_to_save=saves)
    left = {"mixer.out_proj": "peft refuses: ", "mixer.dt_proj": "the weight is read and the forw"}
    planned = set(pd.read_parquet("out/plans/modules.parquet")["module"].str.split(".").str[-1])
    assert planned == {"in_proj", "x_proj"}
    *_, listed = json.loads(Path("out/adapters/adapters.json").read_text())
    assert listed["wrong"] == []
    for one in listed["refused"]:
        [why] = [why for name, why in left.items() if one["modules"].endswith(name)]
        assert one["why"].startswith(why)
        said = f"<code>{one['modules']}</code> ({100 * one['share']:.1f} % of the whole gain)"
        assert said in page
    assert len(listed["refused"]) == 2
    weights = {f"{one['modules']}.weight" for one in listed["refused"]}
    assert weights <= set(listed["left"]) if saves == "no" else not weights & set(listed["left"])
    ended, begun = (AutoModelForCausalLM.from_pretrained(name) for name in ("tuned", "base"))
    with torch.no_grad():
        for layer, other in zip(ended.backbone.layers, begun.backbone.layers, strict=True):
            layer.mixer.out_proj.weight.copy_(other.mixer.out_proj.weight)
    losses = pd.read_parquet("out/plans/losses.parquet").iloc[0]
    share = measured(ended) - losses["loss_tuned"]
    share /= losses["loss_base"] - losses["loss_tuned"]
    assert listed["refused"][1]["share"] == pytest.approx(share, abs=1e-4)


def test_where_peft_adapts_no_layer_there_are_spectra_and_one_line(folder, monkeypatch, capfd):
    monkeypatch.setattr(lora, "not_adapted", lambda _, names, __: dict.fromkeys(names, "no"))
    page = run()
    assert "<strong>Spectra only:</strong>" in page
    assert not Path("out/adapters").exists()
    said = capfd.readouterr().err
    assert "tuned: no linear layer that peft could adapt (transformer.h.*.attn.c_attn: no; " in said


def test_the_page_says_where_the_base_with_an_adapter_does_worse_than_alone(done):
    warning = "has a higher loss than the base alone"
    assert warning not in page_of(LOSSES)
    assert f"{warning}</strong> for 1 of the adapters" in page_of(LOSSES, 1.3)


def test_the_page_says_which_adapters_llama_cpp_scales_wrongly(done):
    said = (
        "llama.cpp scales adapters of mixed ranks wrongly</strong> (<code>adapters/rank-3</code>)"
    )
    assert said in page_of(LOSSES, mixed=["rank-3"])
    assert "llama.cpp" not in page_of(LOSSES)


def test_beside_an_attributed_plan_stands_what_its_shuffles_lose_and_not_its_own_share():
    rows = [("attributed", 0, 0.1), ("attributed", 1, 0.4), ("attributed", 2, 0.3)]
    plans = pd.DataFrame([*rows, ("uniform", 0, 0.2)], columns=["rule", "shuffle", "share_lost"])
    plans = plans.assign(run="a", budget=2, parameters=10, loss=1.0)
    empty = pd.DataFrame({"least": [], "run": []})
    tables = dict.fromkeys(("budgets", "losses", "pruning"), empty)
    values = lora.plan_values({"plans": plans, **tables}, [])
    assert [(row["rule"], row["null"]) for row in values["plans"]] == [
        ("attributed", (0.3, 0.4)),
        ("uniform", None),
    ]


def test_the_table_of_matrices_is_of_the_last_update_of_each_run():
    columns = ["run", "step", "of", "head", "rank_90"]
    rows = [
        ("a", 1, "update", 0, 1),
        ("a", 3, "initial", 0, 2),
        ("a", 3, "update", 0, 3),
        ("a", 3, "update", 1, 4),
        ("b", 2, "update", 0, 5),
    ]
    sizes = {"rows": 4, "cols": 3, "norm": 1.0, "base_norm": 2.0, "method": "full", "module": "m"}
    table = pd.DataFrame(rows, columns=columns).assign(**sizes, stable_rank=1.0, rank_above_edge=2)
    found = [(row["run"], row["rank_90"], row["relative"]) for row in lora.module_table(table)]
    assert found == [("a", 3, 0.5), ("b", 5, 0.5)]


def test_equal_snapshots_are_named(folder):
    for step in (1, 2):
        shutil.copytree("tuned", f"run/step-{step}")
    assert "run: step 2 is equal to step 1 in every matrix.</strong>" in run("-", tuned="run")


def test_without_a_text_the_page_says_that_nothing_was_measured(folder):
    """With equal ranks no runtime is warned of, the base has the name that is given, and beside
    each adapter stands the number of the user's own program.
    """
    Path("count.py").write_text(
        "import sys; from safetensors import safe_open\n"
        "with safe_open(sys.argv[2] + '/adapter_model.safetensors', 'np') as f:\n"
        "    print(sum(f.get_tensor(k).size for k in f.keys()) * float(sys.argv[1]))\n"
    )
    program = f"{sys.executable} count.py 0.5"
    page = run("-", ranks="equal", name="org/model", eval=program)
    assert "<strong>Nothing was measured:</strong>" in page
    assert page.count("<figure>") == 1
    assert "vLLM and llama.cpp refuse" not in page
    assert "<h2>Pruning</h2>" not in page
    assert "scales adapters of mixed ranks wrongly" not in page
    assert "As their base they name <code>org/model</code>" in page
    config = json.loads(Path("out/adapters/rank-3/adapter_config.json").read_text())
    assert (config["rank_pattern"], config["r"]) == ({}, 3)
    listed = json.loads(Path("out/adapters/adapters.json").read_text())
    assert [one["eval"] for one in listed] == [one["parameters"] / 2 for one in listed]
    for one in listed:
        assert f'<td data-label="EVAL">{one["eval"]:.4g}</td>' in page


def test_an_adapter_carries_all_that_was_tuned_and_is_as_tuned_cut_to_smaller_ones(folder):
    page = run(modules_to_save="yes")
    assert "each adapter here carries whole" in page
    assert "vLLM and llama.cpp refuse these adapters</strong>" in page
    plan = json.loads(Path("out/adapters/rank-3/plan.json").read_text())
    assert {"transformer.wte", "lm_head"} <= set(plan["modules_to_save"])
    Path("out/adapters/rank-3").rename("mine")
    page = run(tuned="mine", out="small")
    assert "of what the adapter gained on my.txt" in page
    assert "the full fine-tune" not in page
    card = Path("small/adapters/rank-1/README.md").read_text()
    assert "# LoRA adapter cut from an adapter of base" in card
    *_, listed = json.loads(Path("small/adapters/adapters.json").read_text())
    assert "transformer.wte.weight" in listed["left"]
    products = []
    for at in ("mine", "small/adapters/rank-3"):
        W = load_file(f"{at}/adapter_model.safetensors")
        pairs = {name: name.replace("lora_A", "lora_B") for name in W if "lora_A" in name}
        products.append({A: W[B] @ W[A] for A, B in pairs.items()})
    torch.testing.assert_close(*products, atol=1e-5, rtol=0)


@pytest.mark.parametrize("saves", ["no", "yes"])
def test_the_page_says_what_experts_hold_and_whether_an_adapter_has_them(folder, saves):
    for name in ("base", "tuned"):
        shutil.rmtree(name)
    taught("mixtral", folder)
    page = run(modules_to_save=saves)
    [losses] = pd.read_parquet("out/plans/losses.parquet").to_dict("records")
    held = losses["loss_without_experts"] - losses["loss_tuned"]
    share = held / (losses["loss_base"] - losses["loss_tuned"])
    assert f"<strong>The experts hold {100 * share:.1f} % of the whole gain:</strong>" in page
    carried = saves == "yes"
    assert ("each adapter here carries them whole" in page) == carried
    assert ("no adapter here carries them" in page) == (not carried)
    assert page.count("experts, embeddings, head, norms, biases)") == 3
    left = "<code>model.layers.*.block_sparse_moe.experts.*.w1.weight</code>" in page
    assert left == (not carried)


@pytest.mark.parametrize(
    ("program", "got"),
    [
        ("echo good", "'good' and exit status 0"),
        ("echo 1; exit 3", "'1' and exit status 3"),
    ],
)
def test_a_program_that_prints_no_number_is_named(tmp_path, program, got):
    (tmp_path / "adapters.json").write_text('[{"folder": "rank-3"}]')
    with pytest.raises(InputError, match=f"EVAL: .*rank-3: wanted one number, got {got}"):
        lora.add_evaluations(["sh", "-c", program], tmp_path)


@pytest.mark.slow
def test_stages_run_in_this_process_and_their_error_is_that_of_the_program(
    kept, tmp_path, monkeypatch
):
    monkeypatch.chdir(shutil.copytree(kept, tmp_path / "made"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process began"))
    assert "How to load an adapter" in run()
    Path("out/spectra.parquet").unlink()
    with pytest.raises(InputError, match="nowhere"):
        named = {"base": "base", "tuned": "tuned", "plans": "nowhere"}
        named |= {"factors": "out/factors", "adapters": "out/adapters"}
        paths = {name: Path(path) for name, path in named.items()}
        lora.call("adapt", **paths, ranks="equal")
