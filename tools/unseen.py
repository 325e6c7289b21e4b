"""Every claim on seeds that set no bar: `make unseen SEEDS=9000`.

The last commit is cloned, every seed is made larger by SEEDS (`seeds_from` in params.yaml), and all
families run there, which takes as long as a cold run. The answers and verdicts that turned are
printed with both numbers, and published/unseen keeps all of them, whatever they say, with the
offsets that were ever used. A second call goes on with what the first has finished.
"""

import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lib.files.files import InputError
from lib.files.tables import read_json, write_json
from lib.pages.claims import VERDICTS
from lib.work.command import run
from tools.git import said
from tools.publish import DETERMINES, PACKAGES

PUBLISHED = Path("published/unseen")


def main(seeds: int = 9000, folder: Path = Path(".dvc/tmp/unseen")) -> None:
    """Clone into the folder, run on seeds that are larger by `seeds`, compare, publish."""
    if seeds < 1:
        raise InputError(f"SEEDS: wanted a number above zero, got {seeds}")
    changed = said("status", "--porcelain", "--", *DETERMINES, "params.yaml")
    if changed:
        raise InputError(f"wanted the code and params of a commit, got changes:\n{changed}")
    commit = said("rev-parse", "HEAD")
    clone = folder / f"{commit[:10]}-{seeds}"
    if not clone.exists():
        said("clone", "--quiet", ".", str(clone))
    shift(clone / "params.yaml", seeds)
    begun = time.monotonic()
    command = [sys.executable, "-m", "dvc", "repro", "claims"]
    if subprocess.run(command, cwd=clone, check=False).returncode:
        raise InputError(f"{clone}: wanted all families run, got an error; see above")
    hours = (time.monotonic() - begun) / 3600
    publish(clone / "metrics", commit, seeds, hours)
    names = ("items", "claims")
    before = {name: read_json(Path(f"metrics/{name}.json")) for name in names}
    after = {name: read_json(clone / f"metrics/{name}.json") for name in names}
    print(*table(before, after), sep="\n")


def shift(params: Path, seeds: int) -> None:
    """Set `seeds_from` of a params file."""
    text = params.read_text(encoding="utf-8")
    params.write_text(re.sub(r"(?m)^seeds_from: .*$", f"seeds_from: {seeds}", text))


def publish(metrics: Path, commit: str, seeds: int, hours: float) -> None:
    """Keep the answers and verdicts, and where they come from."""
    file = PUBLISHED / "provenance.json"
    offsets = read_json(file)["offsets"] if file.exists() else []
    for name in ("items", "claims"):
        write_json(short(read_json(metrics / f"{name}.json")), PUBLISHED / f"{name}.json")
    note = {
        "seeds_from": seeds,
        "offsets": list(dict.fromkeys([*offsets, seeds])),
        "commit": commit,
        "command": f"make unseen SEEDS={seeds}",
        "device": platform.processor() or platform.machine(),
        "wall_hours": hours,
        "versions": {name: version(name) for name in PACKAGES},
    }
    write_json(note, file)


def short(named: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Answers and verdicts with their numbers, and no more."""
    kept = ("answer", "number", "limits", "holds", "value", "interval_95", "min", "max", "n")
    return {name: {key: one[key] for key in kept if key in one} for name, one in named.items()}


def table(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """How many answers and verdicts turned, and a line for each."""
    items = [
        f"  {name}: {item['answer']} ({item.get('number', '–')}), "
        f"unseen: {after['items'][name]['answer']} ({after['items'][name].get('number', '–')})"
        for name, item in before["items"].items()
        if name in after["items"] and after["items"][name]["answer"] != item["answer"]
    ]
    claims = [
        f"  {name}: {VERDICTS[claim['holds']]} ({claim.get('value')}), "
        f"unseen: {VERDICTS[after['claims'][name]['holds']]} ({after['claims'][name].get('value')})"
        for name, claim in before["claims"].items()
        if name in after["claims"] and after["claims"][name]["holds"] != claim["holds"]
    ]
    yield f"{len(items)} of {len(before['items'])} answers turned"
    yield from items
    yield f"{len(claims)} of {len(before['claims'])} verdicts turned"
    yield from claims


if __name__ == "__main__":
    run(main, environment=True)
