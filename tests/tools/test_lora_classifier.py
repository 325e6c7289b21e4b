"""`make lora` of a classifier whose base is a backbone: labels, accuracy, ceiling, how to load."""

import html
import json
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import transformers as t
import yaml
from safetensors.torch import load_file, save_file

from tests.checkpoints.checkpoints_made import FEW, MEASURE, PLAN, SPECTRA, fit
from tests.checkpoints.transformers_made import made, saved
from tests.tools.lora_made import run, working_in

N_ROWS = 64
N_MEASURED = slice(20, 40)  # of 64 rows, where six batches have ten each


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The page and tables of one call, and the samples; there are fewer labels than are wanted."""
    folder = tmp_path_factory.mktemp("classifier")
    torch.manual_seed(0)
    samples = {"input_ids": torch.randint(256, (N_ROWS, 12)), "labels": torch.arange(N_ROWS) % 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base = saved(made("bert"), folder / "base")
        tuned = t.BertForSequenceClassification.from_pretrained(base, num_labels=3)
        fit(tuned, 25, **samples)
    saved(tuned.eval(), folder / "tuned")
    save_file(samples, folder / "my.safetensors")
    plan = PLAN | {name: FEW[name] for name in ("n_shuffles", "pruning_rates")}
    own = MEASURE | {"budgets": FEW["budgets"], "n_labels": 40}
    params = {"spectra": SPECTRA, "plan": plan, "own": own}
    (folder / "params.yaml").write_text(yaml.safe_dump({"checkpoints": params}))
    with working_in(folder, tmp_path_factory.mktemp("done") / "made") as at:
        page = run("my.safetensors")
        [losses] = pd.read_parquet("out/plans/losses.parquet").to_dict("records")
        [listed] = json.loads(Path("out/adapters/adapters.json").read_text())
        yield SimpleNamespace(at=at, page=page, losses=losses, listed=listed, samples=samples)


def measured(model, samples):
    """The loss and the accuracy on the samples that are measured."""
    part = {name: values[N_MEASURED] for name, values in samples.items()}
    with torch.no_grad():
        found = model.eval()(**part)
    right = (found.logits.argmax(-1) == part["labels"]).double()
    return float(found.loss), float(right.mean())


def test_samples_are_counted_by_their_labels_and_few_of_them_are_said(done):
    """Six batches of four were wanted: of 64 samples they have ten each, and 20 are no hundreds."""
    for name in ("attributing", "choosing", "measured"):
        assert done.losses[f"n_labels_{name}"] == 20
    assert done.losses["n_samples"] == 60
    said = "only 20 labels in the 20 samples that are measured: of so few, an accuracy has a noise"
    assert f"<strong>Few labels:</strong> {said} of up to 0.2" in done.page
    assert "windows" not in done.page.replace("window of tokens", "")


def test_an_adapter_loads_as_the_page_says_with_the_loss_and_accuracy_that_it_says(
    done, monkeypatch
):
    [code] = re.findall(r"<pre>(from peft.*?)</pre>", done.page, re.DOTALL)
    monkeypatch.chdir(done.at / "out")
    names = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        exec(html.unescape(code), names)  # the page's own lines, as a reader runs them
    loss, accuracy = measured(names["model"], done.samples)
    assert loss == pytest.approx(done.listed["loss"], rel=1e-4)
    assert accuracy == pytest.approx(done.listed["accuracy"])
    config = json.loads(Path(f"adapters/{done.listed['folder']}/adapter_config.json").read_text())
    assert config["task_type"] == "SEQ_CLS"
    assert type(names["model"]).__name__ == "PeftModelForSequenceClassification"
    assert f"The accuracy is {100 * accuracy:.1f} % ± " in done.page


def test_accuracies_are_those_of_the_logits_of_both_models(done):
    tuned = t.BertForSequenceClassification.from_pretrained(done.at / "tuned")
    _, accuracy = measured(tuned, done.samples)
    assert done.losses["accuracy_tuned"] == pytest.approx(accuracy)
    noise = 2 * (accuracy * (1 - accuracy) / 20) ** 0.5
    assert done.losses["accuracy_noise_tuned"] == pytest.approx(noise)
    assert done.losses["accuracy_base"] <= accuracy
    assert f"and {100 * accuracy:.1f} % ± {100 * noise:.1f} % of the full fine-tune." in done.page


def test_the_ceiling_is_the_base_with_every_linear_update_and_what_an_adapter_carries(done):
    model = t.BertForSequenceClassification.from_pretrained(done.at / "tuned")
    begun = load_file(done.at / "base" / "model.safetensors")
    linear = {name for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            module, _, own = name.rpartition(".")
            if name in begun and not (own == "weight" and module in linear):
                parameter.copy_(begun[name])
    loss, accuracy = measured(model, done.samples)
    losses = done.losses
    assert losses["loss_ceiling"] == pytest.approx(loss, rel=1e-4)
    assert losses["accuracy_ceiling"] == pytest.approx(accuracy)
    share = (losses["loss_base"] - loss) / (losses["loss_base"] - losses["loss_tuned"])
    assert losses["ceiling"] == pytest.approx(share, rel=1e-3)
    assert f"its loss is {loss:.4g}, and it keeps {100 * share:.1f} % ± " in done.page
    assert "without the linear layers" not in done.page
