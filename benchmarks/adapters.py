"""From two checkpoints to an adapter of rank 16, without a text: CPU seconds and peak memory, by
size.

Ours is `make lora` without TEXT as a user types it, the whole command: it reads and tests both
checkpoints, and writes spectra (all singular values up to 4096, edges of rounding), plans, adapters
and the page. Beside it stands `LEADING=yes`, which knows no more than the adapter needs; neither
has products of heads. The command of an earlier commit has them, and is otherwise asked for the
same; its files come from git's history, which a shallow clone lacks. The two loops read tensor by
tensor and cut each update to rank 16: by a whole decomposition in float32 (mergekit's way, as its
documentation describes it) and by `torch.svd_lowrank`. Every contender is a process of its own on
one core; checkpoints are in bfloat16. An error is the squared error of the cut of one matrix over
that of the best one, less 1.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from math import prod
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from benchmarks.harness import Row, Spread, write_results
from lib.files.files import InputError
from lib.work.command import run

ROOT = Path(__file__).parents[1]
RANK = 16
SIZES = {  # d_model, d_mlp, layers
    "10 M": (256, 1024, 10),
    "50 M": (1024, 2816, 4),
    "200 M": (1024, 4096, 12),
}
LARGE = {"8B": 8.0, "70B": 70.6}  # 10⁹ parameters
PLACE = "model.layers.0.mlp.up_proj"
OURS = {
    "make lora": (),
    "make lora, LEADING=yes": ("--leading=yes",),
}
EARLIER = "52b9dfa7"
LOOPS = {"whole svd f32, mergekit's way": "whole", "torch svd_lowrank": "low_rank"}
NAMES = (*OURS, EARLIER, *LOOPS)
PAIRS = (  # of which the first is said in units of the second
    ("make lora", EARLIER),
    ("make lora, LEADING=yes", "torch svd_lowrank"),
    ("make lora, LEADING=yes", "whole svd f32, mergekit's way"),
)


def shapes(d_model: int, d_mlp: int, n_layers: int) -> dict[str, tuple[int, ...]]:
    """The tensors of a Llama of that size, with an embedding of 256 words."""
    wide = (d_mlp, d_model)
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (256, d_model),
        "model.norm.weight": (d_model,),
    }
    for i in range(n_layers):
        at = f"model.layers.{i}"
        found |= {f"{at}.self_attn.{x}_proj.weight": (d_model, d_model) for x in "qkvo"}
        found |= {f"{at}.mlp.{x}_proj.weight": wide for x in ("gate", "up")}
        found[f"{at}.mlp.down_proj.weight"] = wide[::-1]
        found |= {f"{at}.{x}_layernorm.weight": (d_model,) for x in ("input", "post_attention")}
    return found


def write_pair(folder: Path, d_model: int, d_mlp: int, n_layers: int) -> int:
    """A base, and a tuned checkpoint that differs by 32 directions and noise; gives its size."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": d_model,
        "intermediate_size": d_mlp,
        "num_hidden_layers": n_layers,
        "num_attention_heads": d_model // 64,
        "num_key_value_heads": d_model // 64,
        "vocab_size": 256,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    random = torch.Generator().manual_seed(0)
    base, tuned = {}, {}
    for name, shape in shapes(d_model, d_mlp, n_layers).items():
        W = torch.randn(shape, generator=random) / d_model**0.5
        base[name] = W.bfloat16()
        if len(shape) == 2:
            left = torch.randn(shape[0], 32, generator=random)
            W = W + 1e-3 * left @ torch.randn(32, shape[1], generator=random)
        tuned[name] = (W + 1e-3 * torch.randn(shape, generator=random)).bfloat16()
    for name, tensors in (("base", base), ("tuned", tuned)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        save_file(tensors, folder / name / "model.safetensors", {"format": "pt"})
    return sum(map(prod, shapes(d_model, d_mlp, n_layers).values()))


def whole(update: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """B and A of the update, cut by its whole decomposition."""
    U, sigma, Vh = torch.linalg.svd(update, full_matrices=False)
    return U[:, :RANK] * sigma[:RANK], Vh[:RANK]


def low_rank(update: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """B and A of the update, by torch's own randomised range with two passes."""
    U, sigma, V = torch.svd_lowrank(update, q=RANK + 16, niter=2)
    return U[:, :RANK] * sigma[:RANK], V[:, :RANK].mT


def loop(how: str, folder: Path) -> None:
    """Read tensor by tensor, take the difference in float32, cut it, and keep the factors."""
    torch.set_num_threads(1)
    cut: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]] = globals()[how]
    adapter = {}
    files = [folder / name / "model.safetensors" for name in ("base", "tuned")]
    with safe_open(files[0], "pt") as base, safe_open(files[1], "pt") as tuned:
        for name in base.keys():  # noqa: SIM118 (no mapping)
            if name.endswith("_proj.weight"):
                B, A = cut(tuned.get_tensor(name).float() - base.get_tensor(name).float())
                place = f"base_model.model.{name.removesuffix('.weight')}"
                adapter[f"{place}.lora_B.weight"] = B.contiguous()
                adapter[f"{place}.lora_A.weight"] = A.contiguous()
    (folder / how).mkdir(exist_ok=True)
    save_file(adapter, folder / how / "adapter_model.safetensors")


def write_earlier(tree: Path) -> None:
    """The files of the earlier commit."""
    archive = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, capture_output=True)
    if archive.returncode:
        got = archive.stderr.decode().strip()
        raise InputError(f"{ROOT}: wanted a clone with the commit {EARLIER}, got: {got}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(tree, filter="data")


def command(contender: str, folder: Path, tree: Path) -> tuple[list[str], Path, Path]:
    """What a contender is started by, the folder that it is started in, and the adapter that it
    writes; `tree` has its code.
    """
    if contender in LOOPS:
        how = LOOPS[contender]
        code = f"from pathlib import Path; from benchmarks.adapters import loop; loop({how!r}, "
        return [sys.executable, "-c", f"{code}Path({str(folder)!r}))"], folder, folder / how
    at = folder / f"lora-{NAMES.index(contender)}"
    write_params(at, tree)
    options = OURS.get(contender, ())
    given = [str(folder / "base"), str(folder / "tuned"), str(at / "out"), *options]
    made = at / "out" / "adapters" / f"rank-{RANK}"
    return [sys.executable, "-m", "tools.lora", *given], at, made


def write_params(at: Path, tree: Path) -> None:
    """The params that stand beside some code, with one budget."""
    at.mkdir(exist_ok=True)
    params = yaml.safe_load((tree / "params.yaml").read_text())["checkpoints"]
    params["own"]["budgets"] = [RANK]
    (at / "params.yaml").write_text(yaml.safe_dump({"checkpoints": params}))


def measured(contender: str, folder: Path, earlier: Path) -> tuple[float, float, Path]:
    """CPU seconds of a contender, with those of every process that it starts; the peak memory of
    the largest process, in GB; and the adapter.
    """
    tree = earlier if contender == EARLIER else ROOT
    words, at, made = command(contender, folder, tree)
    core = str(min(os.sched_getaffinity(0)))
    with TemporaryDirectory(dir=folder) as scratch, (folder / "said").open("w+") as said:
        environment = os.environ | {"PYTHONPATH": str(tree), "DVC_ROOT": scratch}
        pinned = ["taskset", "-c", core, *words]
        process = subprocess.Popen(pinned, cwd=at, env=environment, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        if status:
            said.seek(0)
            raise RuntimeError(f"{contender}: {said.read()}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20, made


def error_of(folder: Path, adapter: Path) -> float:
    """The squared error of the adapter at one matrix."""
    W_0, W = (
        load_file(folder / name / "model.safetensors")[f"{PLACE}.weight"].double()
        for name in ("base", "tuned")
    )
    tensors = load_file(adapter / "adapter_model.safetensors")
    A, B = (tensors[f"base_model.model.{PLACE}.lora_{x}.weight"].double() for x in "AB")
    return float((W - W_0 - B @ A).square().sum())


def in_own_process(function: Callable[..., float], *arguments: object) -> float:
    """The result of a function in a process of its own.

    This one must stay small: the system counts its memory as that of every process that it starts.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def rows_of(size: str, rounds: int, earlier: Path) -> tuple[list[Row], str]:
    """A row for each contender at one size, and what the pairs of some took; the order rotates from
    round to round.
    """
    names = [*NAMES]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with TemporaryDirectory() as at:
        folder = Path(at)
        billions = in_own_process(write_pair, folder, *SIZES[size]) / 1e9
        made = {}
        for i in range(rounds):
            first = i % len(names)
            for name in names[first:] + names[:first]:
                seconds, peak, made[name] = measured(name, folder, earlier)
                found[name].append((seconds / billions, peak))
        errors = {name: in_own_process(error_of, folder, adapter) for name, adapter in made.items()}
    best = min(errors.values())
    ours = np.array(found[names[0]])[:, 0]
    rows = []
    for name in names:
        seconds, peaks = np.array(found[name]).T
        row = {"contender": name, "parameters": size, "cpu_s": Spread.of(seconds * billions)}
        row |= {"cpu_s_per_1e9": Spread.of(seconds)}
        row |= {"peak_GB": Spread.of(peaks), "ratio": Spread.of(seconds / ours)}
        rows.append(row | {"error": errors[name] / best - 1})
    said = []
    for one, other in PAIRS:
        ratios = np.array(found[one])[:, 0] / np.array(found[other])[:, 0]
        of_rounds = ", ".join(f"{ratio:.3g}" for ratio in ratios)
        said.append(f"{one} took {np.median(ratios):.3g} of {other} ({of_rounds})")
    return rows, f"At {size}, round by round: {'; '.join(said)}."


def forecasts(rows: list[Row], sizes: dict[str, float]) -> Iterator[str]:
    """The cost of large models, from the difference of the two largest sizes: no process starts."""
    one, other = list(sizes)[-2:]
    for name in NAMES:
        seconds = {r["parameters"]: r["cpu_s"].median for r in rows if r["contender"] == name}
        rate = (seconds[other] - seconds[one]) / (sizes[other] - sizes[one])
        minutes = [f"{large} {rate * n / 60:.2g} minutes" for large, n in LARGE.items()]
        yield f"{name}: {rate:.3g} CPU s per 10⁹ parameters more; so {', '.join(minutes)}."


def write_table(results: Path, rows: list[Row], pairs: list[str], rounds: int) -> None:
    """Write what was measured of the sizes that are done."""
    done = list(dict.fromkeys(row["parameters"] for row in rows))
    sizes = {size: sum(map(prod, shapes(*SIZES[size]).values())) / 1e9 for size in done}
    notes = [
        "CPU seconds are those of the whole command, its start too, also per 10⁹ parameters; the "
        "peak is that of its largest process, with the pages of files that are mapped; a ratio is "
        "to `make lora` in the same round.",
        *pairs,
        *(forecasts(rows, sizes) if len(sizes) > 1 else ()),
        "A decomposition costs more for each parameter the longer the shorter side is: those of 8B "
        "are up to 4096, where all singular values are computed, those of 70B larger, where the "
        "leading 256 are. Nothing of that size was run.",
    ]
    title = f"From two checkpoints to an adapter of rank {RANK}, on one core"
    write_results(results, title, rows, rounds, ["torch", "transformers"], {}, notes)


def main(results: Path, rounds: int = 3) -> None:
    if rounds < 3:
        raise InputError(f"rounds: wanted at least 3, for a spread, got {rounds}")
    rows = []
    pairs = []
    with TemporaryDirectory() as at:
        write_earlier(Path(at))
        for size in SIZES:  # the table is written after each: the largest takes most of the time
            of_size, said = rows_of(size, rounds, Path(at))
            rows += of_size
            pairs.append(said)
            write_table(results, rows, pairs, rounds)


if __name__ == "__main__":
    run(main)
