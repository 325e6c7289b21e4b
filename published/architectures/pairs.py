"""One class of the transformers library, from a pair of checkpoints to the page of `make lora`.

What the page says is compared with what does not know it: the loss of the base with the adapter as
peft loads it, dense singular values of what was tuned, and the names of all that was tuned.
"""

import io
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import load_file, save_file

from lib.files.tables import read_json
from lib.work.errors import in_one_line
from published.architectures import tiny
from tools import lora

PARAMS = """\
checkpoints:
  spectra:
    method: full
    rank: 256
    rotary_offsets:
    - 0
  plan:
    n_shuffles: 0
    n_points: 1
    max_loss_share: 0.5
    pruning_rates:
    - 0.5
    device: cpu
  own:
    budgets:
    - 2
    - 24
    n_batches: 1
    n_measured_batches: 1
    n_choosing_batches: 1
    batch_size: 4
    seq_len: 16
"""
N_SAMPLES, SEQ_LEN, N_LABELS = 4, 16, 3
COPIES = 3  # of the samples: those that are attributed, measured and chosen by
N_STEPS = 12  # of the fine-tune
RATE = 1e-2
SLOWER = 0.03  # the rate of what is no linear layer, and of the head
NOISE = 0.03  # of every weight of the base, so that none is zero
LOSS_WITHIN = 5e-3  # of peft's own loss
VALUES_WITHIN = 1e-5  # of the largest singular value
NO_LOSS = "no loss of samples: the class computes none of such labels"
Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Pair:
    """A task and a class that the library lists for it."""

    task: str
    name: str


@dataclass
class Row:
    """What became of a pair.

    `outcome` is right, left out (right, with layers that no adapter carries named), flagged (the
    page says of an adapter that it is not to be used), spectra (no plan, with the reason), refused
    (one line), wrong, traceback, or not made (no tiny model).
    """

    task: str
    name: str
    outcome: str = ""
    said: str = ""
    parameters: int = 0
    loss_base: float = float("nan")
    loss_tuned: float = float("nan")
    loss_page: float = float("nan")
    loss_peft: float = float("nan")
    loss_merged: float = float("nan")
    values_apart: float = float("nan")
    n_targets: int = 0
    n_matrices: int = 0
    left: str = ""
    seconds: float = 0.0


def surveyed(pair: Pair, folder: Path) -> Row:
    """What becomes of a pair in an empty folder, where its checkpoints and results are written."""
    row = Row(pair.task, pair.name)
    begun = time.process_time()
    try:
        with working_in(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            judged(pair, row)
    except NotMadeError as error:
        row.outcome, row.said = "not made", str(error)
    except Exception as error:
        line = in_one_line(error)
        row.outcome = "refused" if line else "traceback"
        row.said = line or f"{shown(error)} at {places(error)}"
    row.said = row.said.replace(f"{folder}/", "")[:600]
    row.seconds = time.process_time() - begun
    return row


class NotMadeError(Exception):
    """No tiny model of the class, or no samples of which it has a loss."""


def shown(error: BaseException) -> str:
    """An error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:240]}"


def places(error: BaseException) -> str:
    """Where an error was raised: the last places of ours, and the last."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if re.search(r"/(lib|stages|tools)/", f.filename)]
    ours = [f for f in ours if "site-packages" not in f.filename]
    said = [f"{'/'.join(Path(f.filename).parts[-3:])}:{f.lineno}" for f in [*ours[-2:], frames[-1]]]
    return " ".join(dict.fromkeys(said))


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """The stages in this process and in a folder, with one core and small budgets."""
    before = Path.cwd()
    root = os.environ.pop("DVC_ROOT", None)
    cores = getattr(os, "sched_getaffinity", None)
    (folder / "params.yaml").write_text(PARAMS)
    os.chdir(folder)
    if cores:
        os.sched_getaffinity = lambda _: {0}
    try:
        yield
    finally:
        os.chdir(before)
        if cores:
            os.sched_getaffinity = cores
        if root is not None:
            os.environ["DVC_ROOT"] = root


def judged(pair: Pair, row: Row) -> None:
    """Make the pair and its page, and compare; the row gets what was found."""
    model, batch = begun_model(pair)
    row.parameters = sum(parameter.numel() for parameter in model.parameters())
    model.save_pretrained("base")
    row.loss_base = loss_of(model, batch)
    tuned(model, batch)
    row.loss_tuned = loss_of(model, batch)
    model.save_pretrained("tuned")
    faults = copying(pair, model, batch)
    text = written(pair, batch)
    printed = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(printed):
        lora.main(Path("base"), Path("tuned"), Path("out"), text)
    spectra = pd.read_parquet("out/spectra.parquet")
    row.n_matrices = int((spectra["head"] == 0).sum())
    row.values_apart = values_apart(spectra)
    if not row.values_apart <= VALUES_WITHIN:
        faults.append(f"singular values {row.values_apart:.2g} apart")
    if not Path("out/plans/plans.parquet").is_file():
        lines = [one for one in printed.getvalue().splitlines() if "spectra only" in one]
        row.said = " ".join(lines)
        row.outcome = "spectra" if lines and not faults else "wrong"
        row.said = "; ".join([*faults, row.said])
        return
    listed = read_json(Path("out/adapters/adapters.json"))
    modules = pd.read_parquet("out/plans/modules.parquet")
    row.n_targets = len(modules)
    flagged = []
    for one in listed:
        found = adapter_faults(row, one, batch)
        if is_flagged(one):
            flagged += one["wrong"]
        else:
            faults += found
    unnamed = not_named(set(modules["tensor"]), listed)
    if unnamed:
        faults.append(f"tuned, not carried, not named: {unnamed[:4]} ({len(unnamed)})")
    row.left = " ".join(sorted({name for one in listed for name in one.get("left", [])}))
    linear = linear_left(set(modules["module"]), model)
    row.outcome = "wrong" if faults else "flagged" if flagged else "left out" if linear else "right"
    row.said = "; ".join(dict.fromkeys(faults or flagged or linear))


def is_flagged(listed: Mapping[str, Any]) -> bool:
    """Whether the page says of an adapter that it is not to be used."""
    told = f"Do not use <code>adapters/{listed['folder']}</code>"
    return bool(listed["wrong"]) and told in Path("out/page.html").read_text()


def begun_model(pair: Pair) -> tuple[Any, Batch]:
    """A tiny base with weights of a seed, and the samples of its task."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    said = []
    try:
        for model in tiny.made(getattr(transformers, pair.name)):
            tiny.noise(model, 1, NOISE)
            for batch in samples(pair, model):
                try:
                    found = getattr(model(**batch), "loss", None)
                except Exception as error:
                    said.append(f"no loss of samples: {shown(error)}")
                    continue
                if found is None:
                    said.append(NO_LOSS)
                elif bool(torch.isfinite(found)) and found.requires_grad:
                    return model, batch
                else:
                    said.append(f"no loss of samples: a loss of {found}")
    except Exception as error:
        said.append(shown(error))
    raise NotMadeError(reason(said))


def reason(said: list[str]) -> str:
    """Why there is no model with a loss: the first reason of those that come farthest."""
    with_model = [one for one in said if one.startswith("no loss")]
    return NO_LOSS if NO_LOSS in said else [*with_model, *said][0]


def samples(pair: Pair, model: Any) -> Iterator[Batch]:
    """Samples of a task, of the kinds that a class may want."""
    random = torch.Generator().manual_seed(2)
    config = model.config

    n_words = tiny.read(config, "vocab_size")
    most = min(n_words, 200) if isinstance(n_words, int) and n_words > 10 else 200

    def tokens() -> torch.Tensor:
        return torch.randint(min(32, most // 2), most, (N_SAMPLES, SEQ_LEN), generator=random)

    ids = tokens()
    labels = torch.arange(N_SAMPLES) % N_LABELS
    if pair.task == "causal":
        yield {"input_ids": ids, "labels": ids.clone()}
        size = tiny.read(tiny.read(config, "vision_config"), "image_size")
        if isinstance(size, int):
            x = torch.randn(N_SAMPLES, 3, size, size, generator=random)
            yield {"input_ids": ids, "labels": ids.clone(), "pixel_values": x}
    elif pair.task == "masked":
        chosen = torch.rand(ids.shape, generator=random) < 0.4
        chosen[:, 3] = True
        yield {
            "input_ids": ids.masked_fill(chosen, 3),
            "labels": ids.masked_fill(~chosen, -100),
        }
        yield {"input_ids": ids, "labels": ids.clone()}
        long = torch.cat(tiny.POSITIONS // SEQ_LEN * [ids], 1)
        yield {"input_ids": long, "labels": long.clone()}
    elif pair.task == "sequence-to-sequence":
        yield {"input_ids": ids, "labels": tokens()[:, :8]}
        yield {"input_ids": ids, "labels": tokens()}
        for size in (tiny.POSITIONS, 2 * tiny.POSITIONS, 3000):
            for channels in (80, 128):
                x = torch.randn(N_SAMPLES, channels, size, generator=random)
                yield {"input_features": x, "labels": tokens()[:, :8]}
                yield {"input_features": x.mT.contiguous(), "labels": tokens()[:, :8]}
        yield {"input_values": torch.randn(N_SAMPLES, 400, generator=random), "labels": tokens()}
        for channels in (80, 128):
            x = torch.randn(N_SAMPLES, channels, 8 * SEQ_LEN, generator=random)
            yield {"input_ids": ids, "input_features": x, "labels": ids.clone()}
    elif pair.task == "sequence classification":
        ids[:, -1] = end_of(config)
        yield {"input_ids": ids, "labels": labels}
    elif pair.task == "audio classification":
        for length in (400, 2000, 8000):
            yield {
                "input_values": torch.randn(N_SAMPLES, length, generator=random),
                "labels": labels,
            }
        for shape in ((80, 128), (128, 80), (1024, 128), (80, 3000), (16, 160), (128, tiny.WIDTH)):
            x = torch.randn(N_SAMPLES, *shape, generator=random)
            yield {"input_features": x, "labels": labels}
            yield {"input_values": x, "labels": labels}
    else:
        yield from images(pair, config, labels, tokens(), random)


def end_of(config: Any) -> int:
    """The token that ends a sample, for classes that read there; else any."""
    one = getattr(config, "eos_token_id", None)
    one = one[0] if isinstance(one, list) else one
    return one if isinstance(one, int) and 0 <= one < tiny.WORDS else 7


def images(
    pair: Pair, config: Any, labels: torch.Tensor, tokens: torch.Tensor, random: torch.Generator
) -> Iterator[Batch]:
    """Images, or frames, with a label each, or one for each pixel; an image may be tokens."""
    size = getattr(config, "image_size", None) or 32
    sides = size if isinstance(size, list | tuple) else (size, size)
    channels = getattr(config, "num_channels", 3)
    for height, width in dict.fromkeys([(int(sides[0]), int(sides[-1])), (32, 32), (64, 64)]):
        shape = (N_SAMPLES, channels, height, width)
        x = torch.randn(shape, generator=random)
        if pair.task == "image classification":
            yield {"pixel_values": x, "labels": labels}
            yield {"inputs": x, "labels": labels}
            yield cut_into_patches(x, config) | {"labels": labels}
            yield {"input_ids": tokens, "labels": labels}
        elif pair.task == "semantic segmentation":
            marks = torch.randint(N_LABELS, (N_SAMPLES, height, width), generator=random)
            yield {"pixel_values": x, "labels": marks}
        elif pair.task == "video classification":
            yield {"pixel_values": x[:, None].repeat(1, 2, 1, 1, 1), "labels": labels}
            yield {"pixel_values_videos": x[:, None].repeat(1, 2, 1, 1, 1), "labels": labels}
        else:
            patch = getattr(config, "patch_size", 8)
            n = (height // patch) * (width // patch)
            chosen = torch.rand(N_SAMPLES, n, generator=random) < 0.5
            yield {"pixel_values": x, "bool_masked_pos": chosen}


def cut_into_patches(x: torch.Tensor, config: Any) -> Batch:
    """Images as their patches, for a class that takes images of any shape."""
    size = tiny.read(tiny.read(config, "vision_config") or config, "patch_size")
    size = size if isinstance(size, int) else 8
    rows, cols = x.shape[2] // size, x.shape[3] // size
    patches = torch.nn.functional.unfold(x, size, stride=size).mT
    return {
        "pixel_values": patches.contiguous(),
        "pixel_attention_mask": torch.ones(len(x), rows * cols, dtype=torch.long),
        "spatial_shapes": torch.tensor([[rows, cols]] * len(x)),
    }


def loss_of(model: Any, batch: Batch) -> float:
    """The model's own loss."""
    with torch.no_grad():
        return float(model(**batch).loss)


def tuned(model: Any, batch: Batch) -> None:
    """Tune every parameter to the samples, so that linear layers and all else move.

    A class that has no gradient in evaluation mode is tuned in training mode.
    """
    begun = {name: one.clone() for name, one in model.state_dict().items()}
    said = []
    for training in (False, True):
        try:
            fit(model, batch, training=training)
        except Exception as error:  # some classes refuse by an assertion
            said.append(shown(error))
            model.load_state_dict(begun)
        else:
            model.eval()
            return
    raise NotMadeError(f"it cannot be tuned: {said[0]}")


def fit(model: Any, batch: Batch, *, training: bool) -> None:
    """Descend on the loss of the samples by Adam."""
    moving = [one for one in model.parameters() if one.requires_grad]
    linear = {id(one.weight) for one in before_head(model).values()}
    groups = [
        {"params": [one for one in moving if id(one) in linear], "lr": RATE},
        {"params": [one for one in moving if id(one) not in linear], "lr": SLOWER * RATE},
    ]
    optimiser = torch.optim.Adam([one for one in groups if one["params"]])
    for _ in range(N_STEPS):
        model.train().train(training)  # some classes hold what an earlier pass has freed
        optimiser.zero_grad()
        model(**batch).loss.backward()
        optimiser.step()
    for one in moving:
        one.grad = None


def copying(pair: Pair, model: Any, batch: Batch) -> list[str]:
    """What is wrong where a causal class measures a text on each token itself, not on the next."""
    if pair.task != "causal":
        return []
    with torch.no_grad():
        found = model(**batch)
    logits = found.logits.float()
    if logits.shape[:-1] != batch["labels"].shape:  # an image has logits too
        return []
    own = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
    shifted = (logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())
    following = torch.nn.functional.cross_entropy(*shifted)
    loss = float(found.loss)
    if apart(loss, float(own)) < LOSS_WITHIN < apart(loss, float(following)):
        return [f"measured on copying: {loss:.4g}, the next token has {float(following):.4g}"]
    return []


def written(pair: Pair, batch: Batch) -> str:
    """The samples as a user gives them: a text for a causal model, else its own arguments."""
    if pair.task == "causal" and "pixel_values" not in batch:
        data = bytes(batch["input_ids"].flatten().tolist())
        Path("my.txt").write_bytes(COPIES * data)
        return "my.txt"
    whole = {name: torch.cat(COPIES * [one]).contiguous() for name, one in batch.items()}
    save_file(whole, "my.safetensors")
    return "my.safetensors"


def values_apart(spectra: pd.DataFrame) -> float:
    """How far the singular values of updates are from those of a dense decomposition."""
    before, after = (load_file(f"{name}/model.safetensors") for name in ("base", "tuned"))
    most = 0.0
    for row in spectra[spectra["head"] == 0].to_dict("records"):
        name = row["module"]
        if name in after:
            update = after[name].double() - before[name].double()
        else:
            of, _, number = name.rpartition(".")
            update = (after[of].double() - before[of].double())[int(number)]
        wanted = torch.linalg.svdvals(update)
        got = torch.as_tensor(row["singular_values"]).double()
        n = min(len(wanted), len(got))
        apart = float((wanted[:n] - got[:n]).abs().max()) if n else 0.0
        most = max(most, apart / max(float(wanted[0]), 1e-12))
        if len(got) < len(wanted) and float(wanted[len(got)]) > VALUES_WITHIN * float(wanted[0]):
            return float("inf")
    return most


def adapter_faults(row: Row, listed: Mapping[str, Any], batch: Batch) -> list[str]:
    """What is wrong with an adapter, as its user would load it."""
    import transformers
    from peft import PeftModel

    kind = getattr(transformers, row.name)
    row.loss_page = float(listed["loss"])
    folder = Path("out/adapters") / listed["folder"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        base = kind.from_pretrained("base").float().eval()
        try:
            model = PeftModel.from_pretrained(base, folder).eval()
            row.loss_peft = loss_of(model, batch)
        except Exception as error:
            return [f"peft: {shown(error)}"]
        try:
            row.loss_merged = loss_of(model.merge_and_unload(), batch)
        except Exception as error:
            return [f"peft, merging: {shown(error)}"]
    faults = [
        f"peft warns: {' '.join(str(one.message).split())[:200]}"
        for one in told
        if re.search(r"missing|unexpected|not found", str(one.message), re.IGNORECASE)
    ]
    if not apart(row.loss_page, row.loss_peft) <= LOSS_WITHIN:
        faults.append(f"the page has a loss of {row.loss_page:.5g}, peft {row.loss_peft:.5g}")
    if not apart(row.loss_merged, row.loss_peft) <= LOSS_WITHIN:
        faults.append(f"merged the loss is {row.loss_merged:.5g}, in peft {row.loss_peft:.5g}")
    return faults


def apart(one: float, other: float) -> float:
    """How far two losses are apart, as a share of the second."""
    return abs(one - other) / max(abs(other), 1e-12)


def not_named(carried: set[str], listed: list[Mapping[str, Any]]) -> list[str]:
    """The tensors that were tuned, that no adapter carries, and that no page or card names."""
    said = Path("out/page.html").read_text() + str(listed)
    said += "".join(card.read_text() for card in Path("out/adapters").rglob("README.md"))
    before, after = (load_file(f"{name}/model.safetensors") for name in ("base", "tuned"))
    found = []
    for name, tensor in after.items():
        moved = name not in before or not tensor.equal(before[name])
        starred = re.sub(r"(?<=\.)\d+(?=\.)", "*", name)
        if moved and name not in carried and name not in said and starred not in said:
            found.append(name)
    return found


def linear_left(targets: set[str], model: Any) -> list[str]:
    """The weights of the linear layers before the head that are no targets."""
    names = [f"{name}.weight" for name in before_head(model) if name not in targets]
    return sorted({re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in names})


def before_head(model: Any) -> dict[str, Any]:
    """The linear layers of a model but for its head, by name."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and module is not head
        and module.out_features != N_LABELS
    }


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    torch.set_num_threads(1)
    with TemporaryDirectory() as at:
        print(surveyed(Pair(*sys.argv[1:3]), Path(at)))
