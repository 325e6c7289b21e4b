"""Run the whole pipeline and say in a line per stage how many there are and how long it may take:
`make repro`.

It is `dvc repro`, whose output it reads, after a check that a killed DVC left nothing half written.
The time that is left is at most that of the stages to come, by the CPU time that each took last
here and the share of the cores that it kept busy; on a first run nothing is known of it. The bars
of long stages go to the screen by themselves; what else a stage says is shown where it fails.
"""

import json
import re
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import yaml

from lib.files.files import atomic
from lib.files.inputs import without_json_digest
from lib.files.tables import read_json
from lib.pages.claims import turned
from lib.pages.measures import read_measures
from lib.work.command import run
from lib.work.compute import available_cores
from lib.work.machines import PACKAGES
from tools import scratch, unlock

TIMES = Path(".dvc/tmp/stage_times.json")  # of every stage, when it ran last here
COMPUTED_WITH = Path(".dvc/tmp/computed_with.json")  # the packages of the last run here
PIN = re.compile(r"^([A-Za-z][^=\s]*)==(\S+)", re.MULTILINE)
BEGINS = re.compile(r"Running stage '(.+)':$")
SKIPS = re.compile(r"Stage '(.+)' (?:didn't change|is cached)")
SHOWN_ON_FAILURE = 60  # lines


@dataclass(frozen=True)
class Took:
    """What a stage took: CPU seconds, and the mean share of this machine's cores that were busy."""

    cpu_s: float
    busy: float

    @classmethod
    def of(cls, begun: "Clocks", ended: "Clocks") -> "Took":
        """What a stage took between two looks at the clocks."""
        cpu = ended.cpu - begun.cpu
        cores = max((ended.wall - begun.wall) * available_cores(), 1e-9)
        return cls(round(cpu, 2), round(cpu / cores, 3))

    @property
    def seconds(self) -> float:
        """How long the stage takes on these cores."""
        return self.cpu_s / (self.busy * available_cores()) if self.busy else 0.0


@dataclass(frozen=True)
class Clocks:
    """The time, and the CPU time of DVC and of every command that it has run."""

    wall: float
    cpu: float

    @classmethod
    def now(cls, dvc: psutil.Process) -> "Clocks":
        """The CPU time of a DVC that runs; the CPU time of a command is known when it has ended."""
        return cls(time.monotonic(), sum(dvc.cpu_times()[:4]))


@dataclass
class Progress:
    """What is known of a run while it goes: its stages, and what they took."""

    names: list[str]
    took: dict[str, Took]
    seen: list[str] = field(default_factory=list)
    n_run: int = 0
    running: str | None = None
    began: Clocks = Clocks(0.0, 0.0)

    def read(self, line: str, now: Clocks) -> str | None:
        """What to say of a line of DVC's output, if anything."""
        begins = BEGINS.match(line)
        found = begins or SKIPS.match(line)
        if not found:
            return None
        self.end(now)
        self.seen.append(found[1])
        if not begins:
            return None
        self.running = found[1]
        self.began = now
        self.n_run += 1
        n_seen = len(self.seen)
        return f"stage {n_seen} of {max(len(self.names), n_seen)}: {found[1]}{self.left()}"

    def end(self, now: Clocks) -> None:
        """The stage that runs has ended."""
        if self.running:
            self.took[self.running] = Took.of(self.began, now)
        self.running = None

    def left(self) -> str:
        """How long this stage and those after it took last time, if that is known for all."""
        ahead = [*self.seen[-1:], *(name for name in self.names if name not in self.seen)]
        if any(name not in self.took for name in ahead):
            return ""
        minutes, seconds = divmod(round(sum(self.took[name].seconds for name in ahead)), 60)
        return f" (at most about {minutes}:{seconds:02} left)"


def main() -> None:
    unlock.main()
    with_packages = versions()
    print(*upgraded(with_packages), sep="\n", end="", flush=True)
    progress = Progress(names_of_stages(), times())
    said: deque[str] = deque(maxlen=SHOWN_ON_FAILURE)
    with subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro"], stdout=subprocess.PIPE, text=True
    ) as dvc:
        watched = psutil.Process(dvc.pid)
        now = Clocks.now(watched)
        try:
            for line in dvc.stdout or ():
                said.append(line)
                with suppress(psutil.Error):  # it has ended, and these are its last lines
                    now = Clocks.now(watched)
                told = progress.read(line, now)
                if told:
                    print(told, flush=True)
        except KeyboardInterrupt:  # DVC was told too, and ends its stage
            sys.exit(dvc.wait() or 130)
    if dvc.returncode == 0:
        progress.end(now)
    with atomic(TIMES) as part:
        part.write_text(json.dumps({name: asdict(took) for name, took in progress.took.items()}))
    if dvc.returncode:
        print(*said, sep="", end="")
        if not Path(sys.executable).exists():
            sys.exit(
                f"error: wanted the Python that began this, {sys.executable}, got none: it "
                "was removed while this ran, and the next `make repro` sets it up again"
            )
        sys.exit(dvc.returncode)
    with atomic(COMPUTED_WITH) as part:
        part.write_text(json.dumps(with_packages))
    scratch.after_a_run()
    print(
        f"{len(progress.seen)} stages are up to date; {progress.n_run} of them ran.",
        *closing(),
        sep="\n",
        flush=True,
    )


def names_of_stages() -> list[str]:
    """The stages that dvc.lock, which git has, knows; none where it is not there."""
    try:
        with Path("dvc.lock").open(encoding="utf-8") as file:
            return list(yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["stages"])
    except OSError:
        return []


def versions() -> dict[str, str]:
    """The versions of the packages here that compute."""
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def upgraded(here: Mapping[str, str]) -> Iterator[str]:
    """A line where the packages that compute differ from those of the last run here or, in the
    first run, from those of requirements.txt, with which the results in git were made. A version
    that is pinned means every build of it: `2.13.0` is 2.13.0+cpu, too.

    DVC knows nothing of packages, and keeps what it has.
    """
    try:
        before = json.loads(COMPUTED_WITH.read_text(encoding="utf-8"))
        others = {name: before.get(name) for name in here if before.get(name) != here[name]}
    except (OSError, ValueError, AttributeError):
        pinned = dict(PIN.findall(text_of("requirements.txt")))
        others = {
            name: pinned[name]
            for name, got in here.items()
            if name in pinned and pinned[name] not in (got, got.partition("+")[0])
        }
    if others:
        said = ", ".join(f"{name} {old or 'none'} → {here[name]}" for name, old in others.items())
        yield (
            f"packages that compute are others than before: {said}; what DVC has stays: "
            "`dvc repro --force` computes all again\n"
        )


def text_of(file: str) -> str:
    """What a file says; nothing where it is not there."""
    path = Path(file)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def times() -> dict[str, Took]:
    """What every stage took when it ran last here; nothing where that is not known."""
    try:
        found = json.loads(TIMES.read_text())
        return {name: Took(float(one["cpu_s"]), float(one["busy"])) for name, one in found.items()}
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return {}


def closing() -> Iterator[str]:
    """How many items have which answer, which claims turned since the last commit."""
    found = subprocess.run(
        ["git", "show", "HEAD:metrics/claims.json"], capture_output=True, check=False
    )
    for file in sorted(Path("metrics").rglob("measures.csv")):
        read_measures(file)  # which refuses one that was altered
    claims = read_json(Path("metrics/claims.json"))
    items = read_json(Path("metrics/items.json")).values()
    answers = Counter(item["answer"] for item in items)
    yield f"{len(items)} items: " + ", ".join(f"{n} {word}" for word, n in answers.items())
    committed = without_json_digest(json.loads(found.stdout or "{}"), "the last commit's claims")
    yield from turned(claims, committed)
    yield (
        "Open report.html (or: make report); answers are in metrics/items.json, figures in plots/."
    )


if __name__ == "__main__":
    run(main)
