import copy
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from lib.checkpoints.snapshots import open_snapshots
from lib.files.files import InputError
from lib.training.devices import generator
from tests.checkpoints.checkpoints_made import TEXT

SIZES = {
    "d_model": 16,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_mlp": 24,
    "init_scale": 0.1,
}
PARAMS = {"n_seeds": 2, **SIZES, "seq_len": 16, "batch_size": 4}
HEADER = "name\tn_steps\tlearning_rate\tsnapshot_steps\n"
BASE, LARGE = "base\t4\t1e-2\t[0, 2]\n", "large\t3\t1e-2\t[1]\n"
TRAININGS = {"base": (4, 1e-2), "large": (3, 1e-2)}


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, text in (
        ("language", TEXT),
        ("permuted", bytes(sorted(TEXT))),
        ("tuned", TEXT[::-1]),
    ):
        (folder / f"{name}.txt").write_bytes(text)
    return folder


def train(stage, texts, kind="llama", cases=HEADER + BASE + LARGE, **changes):
    Path("cases.tsv").write_text(cases)
    folders = [Path(kind) / name for name in ("base", "tuned", "pretrained")]
    stage(
        "checkpoints.train",
        {"example": PARAMS | changes},
        "example",
        Path("cases.tsv"),
        texts,
        [Path(kind)],
    )
    return folders


def read(folder):
    return AutoModelForCausalLM.from_pretrained(folder)


def reference(model, text, training, purpose):
    """The same training, written out."""
    n_steps, learning_rate = TRAININGS[training]
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    optimiser = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.0)
    source = generator(0, "batches", *purpose)
    model.train()
    for step in range(n_steps):
        begin = torch.randint(len(tokens) - 16, (4,), generator=source)
        rows = torch.stack([tokens[i : i + 16] for i in begin.tolist()])
        rate = learning_rate * min(1, (step + 1) / 20) * (1 - step / n_steps * 0.9)
        for group in optimiser.param_groups:
            group["lr"] = rate
        logits = model(input_ids=rows).logits
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), rows[:, 1:].flatten()
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_base_null_and_tuned_are_trainings_of_their_texts(stage, texts, kind):
    base, tuned, pretrained = train(stage, texts, kind)
    found = [(one.run, one.step) for one in open_snapshots(pretrained)]
    assert found == [(name, step) for name in ("language", "permuted") for step in (0, 2, 4)]
    assert [(one.run, one.step) for one in open_snapshots(tuned)] == [
        (f"large-{seed}", step) for seed in (0, 1) for step in (1, 3)
    ]
    begun = read(pretrained / "language" / "step-00000")
    assert all(
        torch.equal(p, q)
        for p, q in zip(
            begun.parameters(),
            read(pretrained / "permuted" / "step-00000").parameters(),
            strict=True,
        )
    )
    wanted = {
        base: reference(copy.deepcopy(begun), TEXT, "base", ("base", "language")),
        pretrained / "permuted" / "step-00004": reference(
            copy.deepcopy(begun), bytes(sorted(TEXT)), "base", ("base", "permuted")
        ),
        tuned / "large-1" / "step-00003": reference(read(base), TEXT[::-1], "large", ("large", 1)),
    }
    for folder, model in wanted.items():
        for (name, value), other in zip(
            read(folder).named_parameters(), model.parameters(), strict=True
        ):
            torch.testing.assert_close(value, other, atol=1e-6, rtol=1e-5, msg=f"{folder} {name}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"n_kv_heads": 3},
            "n_heads: wanted a divisor of d_model and a multiple of n_kv_heads, got 4 for 16 and 3",
        ),
        (
            {"cases": HEADER + BASE.replace("[0, 2]", "[9]") + LARGE},
            "snapshot_steps: wanted steps below n_steps = 4",
        ),
        (
            {"cases": HEADER + LARGE},
            r"wanted a case named base and one or more that are tuned, got \['large'\]",
        ),
    ],
)
def test_sizes_and_cases_that_do_not_fit_are_refused(stage, texts, changes, message):
    with pytest.raises(InputError, match=message):
        train(stage, texts, **changes)


def test_a_folder_that_holds_anything_else_is_not_cleared(stage, texts):
    (Path("llama") / "base").mkdir(parents=True)
    (Path("llama") / "base" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="wanted an empty folder"):
        train(stage, texts)
    with pytest.raises(InputError, match="mamba: wanted a folder named llama or gpt2, got mamba"):
        train(stage, texts, "mamba")
