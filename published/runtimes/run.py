"""Adapters in llama.cpp beside peft: `python -m published.runtimes.run SOURCES`.

SOURCES is a folder of llama.cpp's sources, whose programs convert the models; its binding,
llama-cpp-python, is built from source. The base and the adapters are those of the example's
Llama-like model (`dvc repro checkpoints_plan`): the adapters of one fine-tune with the ranks of
their plans, and padded to one rank (`RANKS=equal`). The loss is that of the first windows of the
measured text. Table, figure, measures and where they come from are kept beside this program; claims
read them.
"""

import ctypes
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch

from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.models import open_model
from lib.checkpoints.texts import Batch, mean_loss, read_batches
from lib.files.tables import read_json, write_table
from lib.pages.measures import Row, rows_of, write_measures
from lib.work.command import run
from stages.checkpoints import adapt, plot
from tools.publish import write_provenance

MODEL = Path("data/checkpoints/llama")
TEXT = Path("data/checkpoints/texts/measured.txt")
FINE_TUNE = "large-0"
N_WINDOWS = 32
SEQ_LEN = 64
COMMAND = "python -m published.runtimes.run SOURCES"
OUT = Path("published/runtimes")
# The model has bytes for words and no tokenizer, which the converter would look for.
NO_WORDS = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
import conversion.llama
conversion.llama.LlamaModel.set_vocab = lambda self: self._set_vocab_none()
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def main(sources: Path) -> None:
    begun = time.monotonic()
    base = open_checkpoint(MODEL / "base")
    [batch] = read_batches(base.folder, base.config, TEXT, SEQ_LEN, N_WINDOWS, 1)
    rows = []
    with TemporaryDirectory() as folder:
        at = Path(folder)

        def losses(adapter: Path | None) -> dict[str, float]:
            return {
                "peft": in_peft(base.folder, batch, adapter),
                "llama_cpp": in_llama_cpp(sources, base.folder, batch, at, adapter),
            }

        rows.append({"adapter": "none", "ranks": "none", "parameters": 0} | losses(None))
        for ranks in ("mixed", "equal"):
            made = at / ranks
            adapt.main(
                base=base.folder,
                tuned=MODEL / "tuned",
                plans=MODEL / "plans",
                factors=MODEL / "factors",
                adapters=made,
                ranks=ranks,
                name="base",
            )
            for one in read_json(made / "adapters.json"):
                if one["run"] == FINE_TUNE:
                    said = {"adapter": one["folder"], "ranks": ranks}
                    said |= {"parameters": one["parameters"]}
                    rows.append(said | losses(made / one["folder"]))
    table = pd.DataFrame(rows)
    print(table.to_string())
    write_table(table, OUT / "tables" / "runtimes.parquet")
    write_measures(measured(table), OUT, {})
    plot.main(OUT / "tables", OUT / "figures")
    noted = {"fine_tune": FINE_TUNE, "windows": N_WINDOWS, "tokens": SEQ_LEN}
    packages = ["torch", "transformers", "peft", "llama_cpp_python", "gguf"]
    write_provenance(OUT, COMMAND, begun, noted, packages=packages)


def measured(table: pd.DataFrame) -> list[Row]:
    """How far the loss of each adapter in llama.cpp is from that in peft, in nats."""
    apart = (table["llama_cpp"] - table["peft"]).abs().set_axis(table["adapter"])
    ranks = table["ranks"].to_numpy()
    cases = {"equal": "equal", "mixed": "mixed", "base": "none"}
    return [
        row
        for case, kind in cases.items()
        for row in rows_of({"llama_cpp_from_peft": apart[ranks == kind]}, case)
    ]


def in_peft(base: Path, batch: Batch, adapter: Path | None) -> float:
    """The loss of the base with an adapter, in peft."""
    from peft import PeftModel

    model = open_model(base, open_checkpoint(base).config)
    if adapter:
        model = PeftModel.from_pretrained(model, adapter)
    return mean_loss(model, [batch])


def in_llama_cpp(
    sources: Path, base: Path, batch: Batch, folder: Path, adapter: Path | None
) -> float:
    """The loss of the base with an adapter, in llama.cpp, converted by its own programs to f32."""
    ll: Any = import_module("llama_cpp")
    model_file = folder / "base.gguf"
    to_file = [str(base), "--outtype", "f32", "--outfile", str(model_file)]
    converter = str(sources / "convert_hf_to_gguf.py")
    called(sys.executable, "-c", NO_WORDS, str(sources), converter, *to_file)
    ll.llama_backend_init()
    model: Any = ll.llama_model_load_from_file(
        str(model_file).encode(), ll.llama_model_default_params()
    )
    how = ll.llama_context_default_params()
    how.n_ctx = how.n_batch = how.n_ubatch = batch["input_ids"].shape[1]
    context: Any = ll.llama_init_from_model(model, how)
    if adapter:
        adapter_file = folder / "adapter.gguf"
        to_file = ["--base", str(base), "--outtype", "f32", "--outfile", str(adapter_file)]
        converter = str(sources / "convert_lora_to_gguf.py")
        called(sys.executable, converter, *to_file, str(adapter))
        opened: Any = ll.llama_adapter_lora_init(model, str(adapter_file).encode())
        ll.llama_set_adapter_lora(context, opened, 1.0)
    losses = [window_loss(ll, model, context, ids) for ids in batch["input_ids"]]
    ll.llama_free(context)
    ll.llama_model_free(model)
    return sum(losses) / len(losses)


def window_loss(ll: Any, model: Any, context: Any, ids: torch.Tensor) -> float:
    """The mean loss of the tokens of a window after the first, nats."""
    n_words = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    n = len(ids)
    ll.llama_memory_clear(ll.llama_get_memory(context), True)
    given = ll.llama_batch_init(n, 0, 1)
    given.n_tokens = n
    for place, token in enumerate(ids.tolist()):
        given.token[place] = token
        given.pos[place] = place
        given.n_seq_id[place] = 1
        given.seq_id[place][0] = 0
        given.logits[place] = 1
    if ll.llama_decode(context, given):
        raise RuntimeError("llama.cpp: wanted a window decoded, got an error")
    raw = ctypes.cast(ll.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
    logits = torch.tensor(raw[: n * n_words]).view(n, n_words)
    ll.llama_batch_free(given)
    return float(torch.nn.functional.cross_entropy(logits[:-1], ids[1:]))


def called(*words: str) -> None:
    """Run a program of llama.cpp, quietly."""
    subprocess.run(words, check=True, capture_output=True)


if __name__ == "__main__":
    run(main)
