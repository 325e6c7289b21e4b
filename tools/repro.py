"""The whole pipeline with a line per stage, of how many and how long it may take: `make repro`.

It is `dvc repro`, whose output it reads, after a check that a killed DVC left nothing half written.
The time that is left is at most that of the stages to come, each as long as it took last here; on a
first run nothing is known of it. The bars of long stages go to the screen by themselves; what else
a stage says is shown where it fails.
"""

import json
import re
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from lib.files.files import atomic
from lib.files.tables import read_json
from lib.pages.claims import turned
from lib.work.command import run
from tools import scratch, unlock

TIMES = Path(".dvc/tmp/stage_times.json")  # seconds of every stage, when it ran last here
BEGINS = re.compile(r"Running stage '(.+)':$")
SKIPS = re.compile(r"Stage '(.+)' (?:didn't change|is cached)")
SHOWN_ON_FAILURE = 60  # lines


@dataclass
class Progress:
    """What is known of a run while it goes: its stages, and the seconds that they took."""

    names: list[str]
    took: dict[str, float]
    seen: list[str] = field(default_factory=list)
    n_run: int = 0
    running: str | None = None
    began: float = 0.0

    def read(self, line: str, now: float) -> str | None:
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

    def end(self, now: float) -> None:
        """The stage that runs has ended."""
        if self.running:
            self.took[self.running] = round(now - self.began, 2)
        self.running = None

    def left(self) -> str:
        """How long this stage and those to come took last, where that is known of all."""
        ahead = [*self.seen[-1:], *(name for name in self.names if name not in self.seen)]
        if any(name not in self.took for name in ahead):
            return ""
        minutes, seconds = divmod(round(sum(self.took[name] for name in ahead)), 60)
        return f" (at most about {minutes}:{seconds:02} left)"


def main() -> None:
    unlock.main()
    progress = Progress(names_of_stages(), times())
    said: deque[str] = deque(maxlen=SHOWN_ON_FAILURE)
    with subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro"], stdout=subprocess.PIPE, text=True
    ) as dvc:
        try:
            for line in dvc.stdout or ():
                said.append(line)
                told = progress.read(line, time.monotonic())
                if told:
                    print(told, flush=True)
        except KeyboardInterrupt:  # DVC was told too, and ends its stage
            sys.exit(dvc.wait() or 130)
    if dvc.returncode == 0:
        progress.end(time.monotonic())
    with atomic(TIMES) as part:
        part.write_text(json.dumps(progress.took))
    if dvc.returncode:
        print(*said, sep="", end="")
        sys.exit(dvc.returncode)
    scratch.main()
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


def times() -> dict[str, float]:
    """The seconds that every stage took when it ran last here; none where that is not known."""
    try:
        found = json.loads(TIMES.read_text())
        return {str(name): float(seconds) for name, seconds in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def closing() -> Iterator[str]:
    """How many items have which answer, which claims turned since the last commit."""
    found = subprocess.run(
        ["git", "show", "HEAD:metrics/claims.json"], capture_output=True, check=False
    )
    claims = read_json(Path("metrics/claims.json"))
    items = read_json(Path("metrics/items.json")).values()
    answers = Counter(item["answer"] for item in items)
    yield f"{len(items)} items: " + ", ".join(f"{n} {word}" for word, n in answers.items())
    yield from turned(claims, json.loads(found.stdout or "{}"))
    yield (
        "Open report.html (or: make report); answers are in metrics/items.json, figures in plots/."
    )


if __name__ == "__main__":
    run(main)
