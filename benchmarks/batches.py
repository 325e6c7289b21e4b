"""Forward batches of `make lora` with a TEXT: of all that `THOROUGH=yes` measures, and of what
decides or is quoted.

A hook counts the samples that go through a model, from the check of the text to the adapters as
peft loads them; a batch is as many as `checkpoints.own` says. Two pairs are of the example's tiny
Llama: its training from scratch, of whose modules some earn nothing, so that no two plans are
alike, and a large fine-tune of what came out.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch.nn.modules.module import register_module_forward_hook

from benchmarks.harness import Row, write_results
from lib.checkpoints.grammar import text
from lib.checkpoints.models import save_model
from lib.files.params import read_cases, read_params
from lib.files.tables import read_table
from lib.training.devices import generator
from lib.work.command import run
from stages.checkpoints.plan import Measure
from stages.checkpoints.train import Train, Training, descent, fresh
from tools import lora

CASES = Path("stages/checkpoints/trainings.tsv")
PAIRS = {"from scratch": ("start", "base"), "large fine-tune": ("base", "large")}
CONTENDERS = {"THOROUGH=yes": "yes", "as it is": "no"}
N_BYTES = 200_000  # of a text


@dataclass
class Passed:
    """Samples that went through a model, how many of them were to have a slope, and by how many
    calls.
    """

    n: int = 0
    n_sloped: int = 0
    n_calls: int = 0


@contextmanager
def counting() -> Iterator[Passed]:
    """Count the samples of every language model that computes meanwhile."""
    passed = Passed()

    def count(module: Any, _: Any, made: Any) -> None:
        if type(module).__name__ == "LlamaForCausalLM":
            passed.n += len(made.logits)
            passed.n_sloped += len(made.logits) * made.logits.requires_grad
            passed.n_calls += 1

    hook = register_module_forward_hook(count)
    try:
        yield passed
    finally:
        hook.remove()


def write_models(folder: Path) -> None:
    """The start, what the example's base training makes of it, and a large fine-tune of that."""
    sizes = read_params("checkpoints.example.train", Train)
    cases = {one.name: one for one in read_cases(CASES, Training)}
    texts = {"base": text(0, N_BYTES, 0), "large": text(1, N_BYTES, 0), "own": text(1, N_BYTES, 1)}
    for name, words in texts.items():
        (folder / f"{name}.txt").write_bytes(words)
    model = fresh(sizes, "llama")
    save_model(model, folder / "start")
    for name in ("base", "large"):
        one = cases[name]
        how = (one.n_steps, one.learning_rate, generator(0, "batches", name))
        for _ in descent(model, folder / f"{name}.txt", sizes, *how):
            pass
        save_model(model, folder / name)


def chosen(out: Path) -> list[tuple[int, str]]:
    """The rule that each budget has."""
    plans = read_table(out / "plans" / "plans.parquet")
    rows = plans[plans["chosen"]]
    return list(zip(rows["budget"], rows["rule"], strict=True))


def rows_of(folder: Path) -> Iterator[Row]:
    """A row for each pair, of all that can be measured and of what is."""
    size = read_params("checkpoints.own", Measure).batch_size
    for pair, (base, tuned) in PAIRS.items():
        words = folder / ("base.txt" if base == "start" else "own.txt")
        found: list[tuple[Passed, list[tuple[int, str]]]] = []
        for name, thorough in CONTENDERS.items():
            out = folder / "out"
            begun = time.process_time()
            with counting() as passed:
                lora.main(folder / base, folder / tuned, out, str(words), thorough=thorough)
            seconds = time.process_time() - begun
            found.append((passed, chosen(out)))
            shutil.rmtree(out)
            yield {
                "contender": f"make lora, {name}",
                "pair": pair,
                "batches": passed.n // size,
                "with_backward": passed.n_sloped // size,
                "calls": passed.n_calls,
                "of_thorough": passed.n / found[0][0].n,
                "same_rules": str(found[-1][1] == found[0][1]),
                "cpu_s": seconds,
            }


def main(results: Path) -> None:
    with TemporaryDirectory() as at:
        os.environ["DVC_ROOT"] = str(Path(at) / "scratch")  # nothing was measured before
        write_models(Path(at))
        rows = list(rows_of(Path(at)))
    notes = [
        "A batch has four windows. It is counted from the check of the text, which a plan does not "
        "repeat, to the loss of each adapter with peft.",
    ]
    title = "Forward batches of make lora with a TEXT, on a tiny Llama"
    write_results(results, title, rows, 1, ["torch", "transformers", "peft"], {}, notes)


if __name__ == "__main__":
    run(main)
