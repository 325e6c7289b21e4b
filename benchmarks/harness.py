"""Side-by-side measurements on a noisy machine: equality first, then interleaved rounds, then
medians and ratios.

All contenders do one job in one process with one thread. Each round runs every contender once, in
an order that rotates, so that a busy neighbour hits all of them alike; a ratio is the median of the
ratios within rounds. The machine's own limits are measured in the same rounds: they say what the
numbers are worth elsewhere.

A benchmark writes a table (JSON); `python -m benchmarks.harness README.md results/*.json` writes it
into the README.
"""

import platform
import re
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lib.files.files import InputError, atomic
from lib.files.tables import read_json, write_json
from lib.training.devices import use_threads
from lib.work.command import run
from lib.work.compute import available_cores

Row = dict[str, Any]


@dataclass(frozen=True)
class Spread:
    """The median of what was measured, with its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray) -> "Spread":
        low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
        return cls(median, low, high)


@dataclass(frozen=True)
class Contender:
    """One way to do the job.

    `run` does `units` units of it (times are given per unit) and returns a result, whose `error`
    against the reference must not exceed `bar`. `goal` is the ratio of its time to ours that we set
    out to reach. Where an optional package is absent, `run` is None and `note` says so.
    """

    name: str
    run: Callable[[], Any] | None
    error: Callable[[Any], float]
    bar: float
    units: int
    goal: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Times:
    """Seconds of every round: CPU time (of this process and its ended children) and wall time."""

    cpu: np.ndarray
    wall: np.ndarray


def interleave(jobs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Times]:
    """Time every job once a round; each round begins one job further on."""
    names = list(jobs)
    seconds = {name: np.empty((2, rounds)) for name in names}
    for i in range(rounds):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            start = _clocks()
            jobs[name]()
            seconds[name][:, i] = _clocks() - start
    return {name: Times(cpu, wall) for name, (cpu, wall) in seconds.items()}


def _clocks() -> np.ndarray:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return np.array(
        [time.process_time() + children.ru_utime + children.ru_stime, time.perf_counter()]
    )


def race(contenders: Sequence[Contender], rounds: int) -> tuple[list[Row], dict[str, Spread]]:
    """The rows of a table, one a contender, and the limits of the machine in the same rounds.

    The first contender is ours: the ratios are the others' CPU time in units of its own. A
    contender whose error exceeds its bar is refused and not timed; raises `ValueError` where that
    is ours.
    """
    use_threads(1)
    errors = {c.name: c.error(c.run()) for c in contenders if c.run}  # the first run also warms up
    right = {c.name: c.run for c in contenders if c.run and errors[c.name] <= c.bar}
    ours = contenders[0]
    probes = _probes()
    if ours.name not in right:
        raise ValueError(
            f"{ours.name}: wanted an error of at most {ours.bar}, got {errors.get(ours.name)}"
        )
    times = interleave({**{name: probe for name, (probe, _) in probes.items()}, **right}, rounds)
    limits = {name: Spread.of(work / times[name].cpu) for name, (_, work) in probes.items()}
    return [
        _row(c, errors.get(c.name), times.get(c.name), times[ours.name].cpu / ours.units)
        for c in contenders
    ], limits


def _row(contender: Contender, error: float | None, times: Times | None, ours: np.ndarray) -> Row:
    ratio = Spread.of(times.cpu / contender.units / ours) if times else None
    if ratio is None:
        verdict = "not run" if contender.run is None else "refused: wrong"
    elif contender.goal is None:
        verdict = ""
    else:
        verdict = "met" if ratio.median >= contender.goal else "missed"
    return {
        "contender": contender.name,
        "cpu_ms": Spread.of(times.cpu / contender.units * 1e3) if times else None,
        "wall_ms": Spread.of(times.wall / contender.units * 1e3) if times else None,
        "ratio": ratio,
        "goal": contender.goal,
        "verdict": verdict,
        "error": error,
        "bar": contender.bar,
        "note": contender.note,
    }


def _probes() -> dict[str, tuple[Callable[[], Any], float]]:
    """Work that reaches one limit of the machine each, and its size: divided by seconds it is the
    named rate.
    """
    n = 1024
    single = torch.randn(n, n, generator=torch.Generator().manual_seed(0))
    half = single.bfloat16()
    double = single.double()
    source = torch.zeros(1 << 25)
    target = torch.zeros_like(source)
    flops = 2e-9 * n**3
    return {
        "sgemm GFLOP/s": (lambda: single @ single, flops),
        "bf16 matmul GFLOP/s": (lambda: half @ half, flops),
        "dgemm GFLOP/s": (lambda: double @ double, flops),
        "copy GB/s": (lambda: target.copy_(source), 1e-9 * source.nbytes),
    }


def write_results(
    path: Path,
    title: str,
    rows: Sequence[Row],
    rounds: int,
    packages: Sequence[str],
    limits: Mapping[str, Spread] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Write a table, with the machine and the versions that it was measured on, as JSON; print it
    as Markdown.
    """
    table = {
        "title": title,
        "rows": [
            {key: asdict(v) if isinstance(v, Spread) else v for key, v in row.items()}
            for row in rows
        ],
        "rounds": rounds,
        "limits": {name: asdict(spread) for name, spread in (limits or {}).items()},
        "machine": {
            "cpu": _cpu_model(),
            "cores": available_cores(),
            "simd": torch.backends.cpu.get_cpu_capability(),
        },
        "versions": {"python": platform.python_version()}
        | {name: _version(name) for name in packages},
        "notes": list(notes),
    }
    write_json(table, path)
    print(markdown(read_json(path)))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def markdown(table: Mapping[str, Any]) -> str:
    """A results table as GitHub Markdown: the rows, what they were measured on, and the notes."""
    rows = table["rows"]
    machine = table["machine"]
    columns = [key for key in rows[0] if any(_text(row[key]) for row in rows)]
    versions = ", ".join(f"{name} {number}" for name, number in table["versions"].items())
    limits = ", ".join(f"{name} {_text(spread)}" for name, spread in table["limits"].items())
    return "\n".join(
        [
            f"**{table['title']}**",
            "",
            "| " + " | ".join(key.replace("_", " ") for key in columns) + " |",
            "|" + "---|" * len(columns),
            *("| " + " | ".join(_text(row[key]) for key in columns) + " |" for row in rows),
            "",
            f"Medians (quartiles) of {table['rounds']} rounds on {machine['cpu']}, "
            f"{machine['cores']} cores, "
            f"{machine['simd']}; {versions}.",
            *([f"The machine in the same rounds, one thread: {limits}."] if limits else []),
            *table["notes"],
        ]
    )


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        median, low, high = (f"{value[key]:.3g}" for key in ("median", "low", "high"))
        return f"{median} ({low}–{high})"
    if isinstance(value, float):
        return f"{value:.2g}"
    return "" if value is None else str(value)


def main(readme: Path, results: list[Path]) -> None:
    """Write each results table into the README, between `<!-- results: NAME -->` and `<!-- end
    -->`.
    """
    text = readme.read_text(encoding="utf-8")
    for path in results:
        block = re.compile(
            rf"(<!-- results: {re.escape(path.stem)} -->\n).*?(<!-- end -->)", re.DOTALL
        )
        if len(block.findall(text)) != 1:
            raise InputError(
                f"{readme}: wanted one block '<!-- results: {path.stem} -->', got another number"
            )
        table = markdown(read_json(path))
        text = block.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
    with atomic(readme) as part:
        part.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    run(main)
