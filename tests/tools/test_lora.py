"""The program behind `make lora`, on a tiny model: what it writes, what it says, what it refuses
before any work.
"""

import importlib
import json
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from lib.checkpoints.folders import Checkpoint
from lib.files.files import InputError
from tests.checkpoints.checkpoints_made import MEASURE, PLAN, SPECTRA, TEXT, taught
from tests.pipeline.project import ROOT
from tools import lora


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    taught("gpt2", folder)
    (folder / "my.txt").write_bytes(TEXT)
    params = {"spectra": SPECTRA, "plan": PLAN, "own": MEASURE}
    (folder / "params.yaml").write_text(yaml.safe_dump({"checkpoints": params}))
    return folder


@pytest.fixture
def folder(kept, tmp_path, monkeypatch):
    """A folder to work in, where stages run in this process: what processes of their own do is one
    slow test.
    """
    at = shutil.copytree(kept, tmp_path / "made")
    monkeypatch.chdir(at)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)

    def call(stage, *arguments):
        options = dict(
            a.removeprefix("--").split("=") for a in arguments if str(a).startswith("--")
        )
        given = [a for a in arguments if not str(a).startswith("--")]
        named = {
            name.replace("-", "_"): int(value) if value.isdigit() else value
            for name, value in options.items()
        }
        importlib.import_module(f"stages.checkpoints.{stage}").main(*given, **named)

    monkeypatch.setattr(lora, "call", call)
    return at


@pytest.fixture
def never(monkeypatch):
    monkeypatch.setattr(lora, "call", lambda *_: pytest.fail("work began"))


def run(text="my.txt", base="base", tuned="tuned", out="out", **options):
    lora.main(Path(base), Path(tuned), Path(out), text, **options)
    return Path(out, "page.html").read_text()


def test_a_page_that_needs_no_network_and_adapters_for_every_budget(folder):
    page = run()
    assert re.findall(r'(?:src|href)="(?!data:|#)', page) == []
    assert "<script" not in page
    assert page.count("<figure>") == 4
    plans = pd.read_parquet("out/plans/plans.parquet")
    for _, row in plans[plans["shuffle"] == 0].iterrows():
        assert f"{row['parameters']:,}</td>" in page
        assert f"{100 * row['share_lost']:.1f} %" in page
    for budget in MEASURE["budgets"]:
        assert f"adapters/rank-{budget}" in page
        assert json.loads(Path(f"out/adapters/rank-{budget}/plan.json").read_text())[
            "target_modules"
        ]
    assert "That is experimental and saves no compute" in page, "of training an adapter"
    assert "Nothing was measured" not in page


def test_equal_snapshots_are_named(folder):
    for step in (1, 2):
        shutil.copytree("tuned", f"run/step-{step}")
    page = run("-", tuned="run")
    assert "run: step 2 is equal to step 1 in every matrix.</strong>" in page
    assert "jumps" not in page


def page_of(losses, loss_base, mixed=(), choosing=None, left=()):
    """The page as if the adapters had these losses, the base that one, and these adapters mixed
    ranks.
    """
    table = pd.read_parquet("out/plans/losses.parquet")
    table.assign(loss_base=loss_base, loss_tuned=0.5).to_parquet("out/plans/losses.parquet")
    path = Path("out/adapters/adapters.json")
    listed = json.loads(path.read_text())
    for one in listed:
        name = one["folder"]
        one.update(loss=losses[name], choosing_loss=(choosing or losses)[name], left=list(left))
        one.update(mixed=name in mixed, parameters=4321, rule="uniform")
    path.write_text(json.dumps(listed))
    lora.page(
        Checkpoint(Path("base"), {}, {}),
        Path("tuned"),
        "my.txt",
        Path("out"),
        0.5,
        planned=True,
        saved=False,
    )
    return Path("out/page.html").read_text()


def test_the_first_sentence_says_which_adapter_keeps_how_much_at_what_size(folder):
    page = run()
    plans = pd.read_parquet("out/plans/plans.parquet")
    best = plans.loc[plans[plans["chosen"]]["choosing_loss"].idxmin()]
    [losses] = pd.read_parquet("out/plans/losses.parquet").to_dict("records")
    whole = losses["loss_base"] - losses["loss_tuned"]
    kept = (losses["loss_base"] - best["loss_on_base"]) / whole
    [first, *_] = re.findall(r'<p class="lead">(.*)</p>', page)
    assert first.startswith(
        f"<strong>Take <code>adapters/rank-{best['budget']}</code></strong>: the base with it "
        f"keeps {100 * kept:.1f} % of what the full fine-tune gained on my.txt, at "
        f"{best['parameters']:,} parameters by the rule {best['rule']}; tuned too, and left behind"
    )
    assert "<code>transformer.wte.weight</code>" in first
    page = page_of({"rank-1": 1.25, "rank-3": 1.5}, 2.0)
    assert (
        "Take <code>adapters/rank-1</code></strong>: the base with it keeps 50.0 % of what the "
        "full fine-tune gained on my.txt, at 4,321 parameters by the rule uniform; nothing that "
        "was tuned stays behind." in page
    )
    assert "has a loss of 1.25, alone 2, the full fine-tune 0.5." in page
    page = page_of({"rank-1": 1.5, "rank-3": 1.25}, 1.0, left=["wte"])
    assert "<strong>Take no adapter: with none of the 10" in page
    assert "the best, <code>adapters/rank-3</code> of 4,321 parameters" in page
    assert "leaves behind <code>wte</code>" in page


def test_the_adapter_to_take_is_chosen_on_other_windows_than_it_is_reported_on(folder):
    run()
    losses = {"rank-1": 1.25, "rank-3": 1.5}
    page = page_of(losses, 2.0, choosing={"rank-1": 1.5, "rank-3": 1.25})
    assert "Take <code>adapters/rank-3</code>" in page
    assert "has a loss of 1.5, alone 2" in page


def test_the_first_column_is_the_loss_of_base_and_adapter_beside_uniform_with_its_noise(folder):
    page = run()
    assert "<thead><tr><th>loss of base + adapter</th><th>above uniform</th>" in page
    plans = pd.read_parquet("out/plans/plans.parquet")
    for _, row in plans[plans["shuffle"] == 0].iterrows():
        loss = f"{row['loss_on_base']:.4g}"
        loss = f"<strong>{loss}</strong>" if row["chosen"] else loss
        said = f"{row['above_uniform']:+.2g} ± {row['noise']:.1g}"
        said = "–" if row["rule"] == "uniform" else said
        first = f'<tr><td data-label="base + adapter">{loss}</td>'
        assert f'{first}<td data-label="above uniform">{said}</td>' in page


def test_the_page_says_where_the_base_with_an_adapter_does_worse_than_alone(folder):
    run()
    warning = "has a higher loss than the base alone"
    assert warning not in page_of({"rank-1": 1.25, "rank-3": 1.5}, 2.0)
    assert f"{warning}</strong> for 1 of the adapters" in page_of(
        {"rank-1": 1.25, "rank-3": 1.5}, 1.3
    )


def test_the_page_says_which_adapters_llama_cpp_scales_wrongly(folder):
    run()
    losses = {"rank-1": 1.25, "rank-3": 1.5}
    said = (
        "llama.cpp scales adapters of mixed ranks wrongly</strong> (<code>adapters/rank-3</code>):"
    )
    assert said in page_of(losses, 2.0, mixed=["rank-3"])
    assert "llama.cpp" not in page_of(losses, 2.0)


def test_beside_an_attributed_plan_stands_what_its_shuffles_lose_and_not_its_own_share():
    rows = [
        ("attributed", 0, 0.1),
        ("attributed", 1, 0.4),
        ("attributed", 2, 0.3),
        ("uniform", 0, 0.2),
    ]
    plans = pd.DataFrame(rows, columns=["rule", "shuffle", "share_lost"])
    plans = plans.assign(run="a", budget=2, parameters=10, loss=1.0)
    empty = pd.DataFrame({"least": [], "run": []})
    values = lora.plan_values({"plans": plans, "budgets": empty, "losses": empty}, [])
    assert [(row["rule"], row["null"]) for row in values["plans"]] == [
        ("attributed", (0.3, 0.4)),
        ("uniform", None),
    ]


def test_the_table_of_matrices_is_of_the_last_update_of_each_run():
    rows = []
    for run_of, step in (("a", 1), ("a", 3), ("b", 2)):
        for of in ("initial", "update"):
            for head in (0, 1):
                rank = len(rows)
                row = {
                    "run": run_of,
                    "step": step,
                    "of": of,
                    "head": head,
                    "module": "m",
                    "rank_90": rank,
                }
                sizes = {"rows": 4, "cols": 3, "norm": 1.0, "base_norm": 2.0, "method": "full"}
                rows.append({**row, **sizes, "stable_rank": 1.0, "rank_above_edge": 2})
    table = lora.module_table(pd.DataFrame(rows))
    assert [(row["run"], row["rank_90"], row["relative"]) for row in table] == [
        ("a", 6, 0.5),
        ("b", 10, 0.5),
    ]


def test_without_a_text_the_page_says_that_nothing_was_measured(folder):
    page = run("-")
    assert "<strong>Nothing was measured:</strong>" in page
    assert page.count("<figure>") == 2
    assert "vLLM and llama.cpp refuse" not in page
    assert "<h2>Pruning</h2>" not in page
    assert Path("out/adapters/rank-3/adapter_model.safetensors").is_file()


def test_with_modules_to_save_an_adapter_carries_all_that_was_tuned(folder):
    page = run(modules_to_save="yes")
    assert "it carries whole, beside the parameters in the table" in page
    assert "which each adapter here carries whole" in page
    assert "vLLM and llama.cpp refuse these adapters</strong>" in page
    plan = json.loads(Path("out/adapters/rank-3/plan.json").read_text())
    assert {"transformer.wte", "lm_head"} <= set(plan["modules_to_save"])


def test_an_adapter_as_tuned_is_cut_to_smaller_ones(folder):
    run("-", modules_to_save="yes")
    Path("out/adapters/rank-3").rename("mine")
    page = run(tuned="mine", out="small")
    assert "of what the adapter gained on my.txt" in page
    assert "the full fine-tune" not in page
    assert "What an adapter adds (method factors) is known exactly" in page
    card = Path("small/adapters/rank-1/README.md").read_text()
    assert "# LoRA adapter cut from an adapter of base" in card
    *_, listed = json.loads(Path("small/adapters/adapters.json").read_text())
    assert "transformer.wte.weight" in listed["left"]
    A, B = (
        {n: W for n, W in load_file(f"{at}/adapter_model.safetensors").items() if "lora_" in n}
        for at in ("mine", "small/adapters/rank-3")
    )
    products = [
        {n: W.T @ one[n.replace("_A", "_B")].T for n, W in one.items() if "_A" in n}
        for one in (A, B)
    ]
    for name, W in products[0].items():
        torch.testing.assert_close(products[1][name], W, atol=1e-5, rtol=0)


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
    assert "(embeddings, head" not in page
    left = "<code>model.layers.*.block_sparse_moe.experts.*.w1.weight</code>" in page
    assert left == (not carried)


def test_with_equal_ranks_no_runtime_is_warned_of_and_the_base_has_the_name_that_is_given(folder):
    page = run("-", ranks="equal", name="org/model")
    assert "scales adapters of mixed ranks wrongly" not in page
    assert "As their base they name <code>org/model</code>" in page
    config = json.loads(Path("out/adapters/rank-3/adapter_config.json").read_text())
    assert (config["rank_pattern"], config["r"]) == ({}, 3)


def test_the_number_of_the_users_own_program_stands_beside_the_loss(folder):
    Path("count.py").write_text(
        "import sys; from safetensors.torch import load_file\n"
        "tensors = load_file(sys.argv[2] + '/adapter_model.safetensors')\n"
        "print(sum(W.numel() for W in tensors.values()) * float(sys.argv[1]))\n"
    )
    page = run(eval=f"{sys.executable} count.py 0.5")
    listed = json.loads(Path("out/adapters/adapters.json").read_text())
    assert [one["eval"] for one in listed] == [one["parameters"] / 2 for one in listed]
    for one in listed:
        row = f'>{one["loss"]:.4g}</td><td data-label="EVAL">{one["eval"]:.4g}</td>'
        assert row in page


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("print('good')", "EVAL: .*rank-3: wanted one number, got 'good' and exit status 0"),
        ("print(1); exit(3)", "EVAL: .*rank-3: wanted one number, got '1' and exit status 3"),
        ("print('nan')", "EVAL: .*rank-3: wanted one number, got 'nan' and exit status 0"),
    ],
)
def test_a_program_that_prints_no_number_is_named(tmp_path, program, message):
    (tmp_path / "adapters.json").write_text('[{"folder": "rank-3"}]')
    with pytest.raises(InputError, match=message):
        lora.add_evaluations([sys.executable, "-c", program], tmp_path)


def test_an_architecture_that_transformers_lacks_has_spectra_alone(folder, capfd):
    for name in ("base", "tuned"):
        config = json.loads((folder / name / "config.json").read_text()) | {
            "architectures": ["MyOwn"]
        }
        (folder / name / "config.json").write_text(json.dumps(config))
    page = run()
    assert "has, got ['MyOwn']: spectra only, no plan and no adapter" in capfd.readouterr().err
    assert "<strong>Spectra only:</strong>" in page
    assert not Path("out/plans").exists()


def test_for_a_tuned_model_with_code_of_its_own_nothing_is_planned(folder, capfd):
    config = json.loads(Path("tuned/config.json").read_text()) | {
        "auto_map": {"AutoModel": "mine.Model"}
    }
    Path("tuned/config.json").write_text(json.dumps(config))
    *_, plannable = lora.checked(Path("base"), Path("tuned"), Path("out"), "my.txt", saved=False)
    assert not plannable
    said = (
        "tuned: wanted a model of transformers, got one with code of its own (auto_map): "
        "spectra only"
    )
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"text": "missing.txt"}, r"TEXT: .*No such file"),
        ({"base": "nowhere"}, "nowhere: wanted a checkpoint with a config.json, got none"),
        ({"modules_to_save": "all"}, "MODULES_TO_SAVE: wanted yes or no, got all"),
        ({"ranks": "5"}, "RANKS: wanted equal or mixed, got 5"),
        ({"eval": "no_such_program --fast"}, "EVAL: wanted a program that .*, got no_such_program"),
        ({"eval": "'open"}, "EVAL: wanted a command, got 'open: No closing quotation"),
        ({"tuned": "base"}, "base: wanted a checkpoint tuned from the base, got the base itself"),
        (
            {"tuned": "nowhere"},
            "nowhere: wanted a checkpoint, or a folder of them, got no config.json",
        ),
    ],
)
def test_what_is_wrong_is_said_before_any_work(folder, never, given, message):
    with pytest.raises(InputError, match=message):
        run(**given)


def saved_text(**tensors):
    save_file(tensors, "text.safetensors")
    return "text.safetensors"


def windows(n=32):
    return torch.frombuffer(bytearray(TEXT), dtype=torch.uint8).long().view(-1, 16)[:n]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lambda: {"input_ids": windows().double()}, "TEXT: wanted samples of which GPT2LMHead"),
        (lambda: {"pixel_values": torch.zeros(32, 3, 8, 8)}, "TEXT: wanted samples of which GPT2"),
        (
            lambda: {"input_ids": windows(), "labels": torch.zeros(32, dtype=torch.long)},
            "TEXT: wanted samples of which GPT2LMHead",
        ),
        (lambda: {"input_ids": windows().repeat(1, 65)}, "TEXT: wanted samples of which GPT2LMHea"),
        (
            lambda: {"input_ids": windows(), "labels": torch.full((32, 16), -100)},
            "TEXT: wanted a label that counts in every batch, got -100 alone",
        ),
        (
            lambda: {"input_ids": torch.randint(128, 256, (32, 16))},
            "TEXT: wanted a text on which the tuned linear layers lower the loss",
        ),
    ],
    ids=["floats", "images", "classes", "positions", "ignored", "no gain"],
)
def test_a_text_that_is_none_of_the_model_is_refused_before_any_work(folder, never, text, message):
    with pytest.raises(InputError, match=message):
        run(saved_text(**text()))
    assert not Path("out").exists()


def test_a_loss_that_is_no_number_is_refused_before_any_work(folder, never):
    """The base overflows in the narrow type in which it is stored."""
    for name in ("base", "tuned"):
        model = AutoModelForCausalLM.from_pretrained(name).half()
        if name == "base":
            model.transformer.h[0].mlp.c_fc.weight.data.fill_(60000)
        model.save_pretrained(name)
    with pytest.raises(InputError, match="GPT2LMHeadModel has a finite loss, got nan"):
        run()


def test_a_broken_tokenizer_and_modules_without_a_tensor_are_refused_before_any_work(folder, never):
    Path("base/tokenizer.json").write_text("{")
    with pytest.raises(InputError, match="TEXT: base: wanted a tokenizer that transformers can"):
        run()
    tensors = load_file("tuned/model.safetensors")
    one, other = (f"transformer.h.{i}.attn.c_proj.weight" for i in (0, 1))
    save_file(tensors | {one: tensors[other].clone()}, "tuned/model.safetensors", {"format": "pt"})
    Path("base/tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"attn\.c_proj: wanted one tensor"):
        run()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("base", "OUT: wanted a folder of its own, got that of a checkpoint, base"),
        ("tuned", "OUT: wanted a folder of its own, got that of a checkpoint, tuned"),
        ("runs", "OUT: wanted a folder of its own, got that of a checkpoint, runs"),
        ("runs/step-1", "OUT: wanted a folder of its own, got that of a checkpoint, runs/step-1"),
        ("other", "OUT: wanted a folder of its own, got one that holds a model, other"),
        ("old", "OUT: wanted a new folder or that of .*tuned.*, got old of one that is not named"),
    ],
)
def test_a_folder_that_is_no_place_for_results_is_refused(folder, never, out, message):
    shutil.copytree("tuned", "runs/step-1")
    shutil.copytree("base", "other")
    Path("old/plans").mkdir(parents=True)
    with pytest.raises(InputError, match=message):
        lora.main(Path("base"), Path("runs" if "runs" in out else "tuned"), Path(out), "-")


def test_a_folder_with_the_results_of_another_pair_is_refused(folder, monkeypatch):
    run("-")
    run("-")
    shutil.copytree("tuned", "another")
    monkeypatch.setattr(lora, "call", lambda *_: pytest.fail("work began"))
    with pytest.raises(InputError, match=r"OUT: wanted .*another'}, got out of .*tuned'}"):
        run("-", tuned="another")


def test_too_little_text_and_a_file_as_folder_are_refused(folder, never):
    (folder / "my.txt").write_bytes(TEXT[:100])
    with pytest.raises(InputError, match=r"TEXT: my.txt: wanted 24 samples .*, got 6"):
        run()
    (folder / "out").write_text("mine")
    with pytest.raises(InputError, match="OUT: wanted a folder, got the file out"):
        run("-")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["base", "tuned"])
def test_a_weight_that_is_no_number_is_named_before_any_work(folder, never, where, value):
    tensors = load_file(f"{where}/model.safetensors")
    tensors["transformer.ln_f.bias"][1] = value
    save_file(tensors, f"{where}/model.safetensors", {"format": "pt"})
    with pytest.raises(
        InputError,
        match=f"{where}.*wanted finite weights, got NaN or infinity in transformer.ln_f.bias",
    ):
        run("-")


def test_a_copy_of_the_base_is_no_fine_tune_of_it(folder, never):
    copy = shutil.copytree("base", "copy")
    with pytest.raises(
        InputError, match="copy: wanted weights that differ from the base's, got none that does"
    ):
        run(tuned=copy)


@pytest.mark.parametrize(("text", "n_copies"), [("-", 0), ("my.txt", 3)])
def test_memory_for_all_that_a_plan_holds_is_wanted_before_any_work(
    folder, never, monkeypatch, text, n_copies
):
    weights = [W.numel() for W in load_file("base/model.safetensors").values()]
    n_bytes = round(4e8 + 24 * max(weights) + 4 * n_copies * sum(weights))
    monkeypatch.setattr("lib.files.memory.available_memory", lambda: n_bytes - 1)
    wanted = rf"plan: wanted about {n_bytes / 1e9:.3g} GB of memory, got {n_bytes / 1e9:.3g} GB"
    with pytest.raises(InputError, match=wanted):
        run(text)


def test_too_little_room_is_said_before_any_work(folder, never, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    weights = load_file("base/model.safetensors").values()
    adapters = 4 * sum(MEASURE["budgets"]) * sum(sum(W.shape) for W in weights if W.dim() == 2)
    spectra = 16 * sum(min(W.shape) for W in weights if W.dim() == 2)
    spectra += 8 * sum(min(*W.shape, 3) * sum(W.shape) for W in weights if W.dim() == 2)
    room = f"{(adapters + spectra) / 1e9:.3g} GB of disk"
    with pytest.raises(
        InputError, match=f"OUT: wanted {room}, got 1e-06 GB that are free in {folder}"
    ):
        run("-")


@pytest.mark.slow
def test_stages_are_processes_of_their_own_and_their_error_is_that_of_the_program(
    folder, monkeypatch
):
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert "How to load an adapter" in run()
    Path("out/spectra.parquet").unlink()
    with pytest.raises(SystemExit) as ended:
        lora.call("adapt", "base", "tuned", "nowhere", "out/factors", "out/adapters")
    assert ended.value.code == 1
