"""Which models `make lora` works with: `python -m published.architectures.run`.

Every class that the installed transformers lists for a task (causal and masked language models,
sequence-to-sequence, classification of sequences, images, videos and audio, masked images,
segmentation)
is made tiny, tuned, and goes through `make lora` to its page, in one worker process with small
budgets. A class that fails, hangs or ends its worker is a row of the table and not its end. Rows
are kept as they come, for this code and these versions, and a call that was interrupted goes on
from them. `--only=LlamaForCausalLM,ViTForImageClassification` and `--sample=40` try some, and
publish nothing. When all are done the table is kept beside this program, with where it comes from,
and `docs/architectures.md` is written from it. It takes about an hour of one CPU core.
"""

import json
import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from lib.files.files import InputError, atomic
from lib.files.tables import write_csv, write_json
from lib.work.command import run
from lib.work.scratch import scratch_root
from published.architectures.page import OUTCOMES, written_page
from published.architectures.pairs import Pair, Row, surveyed
from tools.publish import commit, versions, write_provenance

TASKS = {  # as they are called here, and in the library's tables
    "causal": "CAUSAL_LM",
    "masked": "MASKED_LM",
    "sequence-to-sequence": "SEQ_TO_SEQ_CAUSAL_LM",
    "sequence classification": "SEQUENCE_CLASSIFICATION",
    "image classification": "IMAGE_CLASSIFICATION",
    "masked images": "MASKED_IMAGE_MODELING",
    "semantic segmentation": "SEMANTIC_SEGMENTATION",
    "video classification": "VIDEO_CLASSIFICATION",
    "audio classification": "AUDIO_CLASSIFICATION",
}
PACKAGES = ("transformers", "peft", "torch", "safetensors", "tokenizers")
LIMIT = 600  # seconds of a pair, on a machine that does other work too
STARTING = 300  # seconds in which a worker loads its libraries
SEED = 0  # of the sample
OUT = Path("published/architectures")
PAGE = Path("docs/architectures.md")
COMMAND = "python -m published.architectures.run"


def main(only: str = "", sample: int = 0) -> None:
    begun = time.monotonic()
    wanted = chosen(pairs(), only.split(",") if only else [], sample)
    key = {"code": commit(), "versions": versions(PACKAGES)}
    file = scratch_root() / "architectures.jsonl"
    done = read_rows(file, key)
    left = [one for one in wanted if one not in done]
    print(f"{len(wanted)} pairs of task and class, {len(left)} of them to do", flush=True)
    with file.open("a") as kept:
        for number, row in enumerate(of_worker(left), len(wanted) - len(left) + 1):
            kept.write(json.dumps(asdict(row)) + "\n")
            kept.flush()
            done[Pair(row.task, row.name)] = row
            said = f"{row.outcome}: {row.said}" if row.said else row.outcome
            print(f"{number} of {len(wanted)}: {row.task}, {row.name}: {said}", flush=True)
    table = pd.DataFrame([asdict(done[one]) for one in wanted])
    print(table["outcome"].value_counts().to_string())
    if not only and not sample:
        publish(table, begun)


def publish(table: pd.DataFrame, begun: float) -> None:
    """Keep the whole table, and write the page; raises `InputError` for code of no commit."""
    if "changed" in commit():
        raise InputError(f"wanted the code of a commit, got {commit()}")
    counts = pd.crosstab(table["task"], table["outcome"])
    counts = counts.reindex(index=list(TASKS), columns=list(OUTCOMES), fill_value=0)
    write_csv(table, OUT / "tables" / "architectures.csv")
    write_json(counts.to_dict("index"), OUT / "summary.json")
    noted = {"pairs": len(table), "cpu_hours": float(table["seconds"].sum()) / 3600}
    write_provenance(OUT, COMMAND, begun, noted, packages=PACKAGES)
    with atomic(PAGE) as part:
        part.write_text(written_page(table, versions(PACKAGES)), encoding="utf-8")


def pairs() -> list[Pair]:
    """Every pair of a task and a class that the library lists for it, in the library's order."""
    from transformers.models.auto import modeling_auto

    found: dict[Pair, None] = {}
    for task, listed in TASKS.items():
        for names in getattr(modeling_auto, f"MODEL_FOR_{listed}_MAPPING_NAMES").values():
            for name in [names] if isinstance(names, str) else names:
                found[Pair(task, name)] = None
    return list(found)


def chosen(found: Sequence[Pair], names: Sequence[str], n: int) -> list[Pair]:
    """The pairs of some classes, or some at random; all where neither is wanted.

    Raises `InputError` for a class that is in no pair.
    """
    unknown = sorted({*names} - {one.name for one in found})
    if unknown:
        raise InputError(f"--only: wanted classes of transformers with a task, got {unknown}")
    wanted = [one for one in found if not names or one.name in names]
    return random.Random(SEED).sample(wanted, min(n, len(wanted))) if n else wanted


def read_rows(file: Path, key: dict[str, Any]) -> dict[Pair, Row]:
    """The rows that an earlier call kept with this key; a file of another key begins anew."""
    lines = file.read_text().splitlines() if file.is_file() else []
    if not lines or json.loads(lines[0]) != key:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(key) + "\n")
        return {}
    found = []
    for line in lines[1:]:
        try:
            found.append(Row(**json.loads(line)))
        except ValueError:  # a line that was cut short: its pair is done again
            continue
    return {Pair(one.task, one.name): one for one in found}


def of_worker(wanted: Sequence[Pair], limit: float = LIMIT) -> Iterator[Row]:
    """A row for each pair, from a worker that is started anew where a pair has ended it."""
    worker = None
    try:
        for pair in wanted:
            worker = worker or Worker()
            row = worker.row(pair, limit)
            if row is None:
                row = Row(pair.task, pair.name, "traceback", worker.ended(), seconds=limit)
                worker = None
            yield row
    finally:
        if worker:
            worker.ended()


class Worker:
    """A process that surveys pairs one after another."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.here, there = context.Pipe()
        self.process = context.Process(target=serve, args=(there,), daemon=True)
        self.process.start()
        there.close()
        if not self.here.poll(STARTING):
            raise InputError(f"wanted a worker within {STARTING} s, got none")
        self.here.recv()

    def row(self, pair: Pair, limit: float) -> Row | None:
        """The row of a pair; None where the worker has ended, or is not done in time."""
        try:
            self.here.send(pair)
            return self.here.recv() if self.here.poll(limit) else None
        except (EOFError, OSError):
            return None

    def ended(self) -> str:
        """End the process; says how it ended where it already had."""
        self.here.close()
        self.process.join(1)
        status = self.process.exitcode
        self.process.kill()
        self.process.join()
        return "no page in time" if status is None else f"the process ended with {status}"


def serve(there: Connection) -> None:
    """Answer pairs with rows until the other end is closed."""
    import torch

    torch.set_num_threads(1)
    there.send("ready")
    while True:
        try:
            pair = there.recv()
        except EOFError:
            return
        with TemporaryDirectory() as folder:
            there.send(surveyed(pair, Path(folder)))


if __name__ == "__main__":
    run(main)
