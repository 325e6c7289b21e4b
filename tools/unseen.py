"""Judge every claim on seeds that set no bar: `make unseen SEEDS=90000`.

The last commit is cloned, every seed is made larger by SEEDS (`seeds_from` in params.yaml), and all
families run there, which takes as long as a cold run. The answers and verdicts that turned are
printed with both numbers, and published/unseen/SEEDS keeps all of them, whatever they say; the
answers of the next `make repro` are marked by them. A second call goes on with what the first has
finished, and the clone shares the project's cache: on a later commit only the stages that changed
run again. Runs of another commit are dropped, as they judged other claims; published/unseen.json
says what turned in every run that there ever was.

Items that are younger than a published run join it by `make unseen SEEDS=91000 STAGES="..."`: the
stages that write their measures run on its seeds, and nothing else. What the run says already
stays.
"""

import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lib.files.files import InputError
from lib.files.params import load_yaml
from lib.files.tables import read_json, write_json
from lib.pages.claims import VERDICTS, read_families
from lib.pages.judging import DECIDES
from lib.work.command import run
from tools.git import said
from tools.publish import DETERMINES, PACKAGES

PUBLISHED = Path("published/unseen")
RUNS = PUBLISHED.with_suffix(".json")
DVC = [sys.executable, "-m", "dvc"]


def main(seeds: int = 90000, folder: Path = Path(".dvc/tmp/unseen"), *, stages: str = "") -> None:
    """Clone into the folder, run on seeds that are larger by `seeds`, compare, publish.

    With `stages`, names with spaces between them, only these and what they need are run, and their
    items join the run of these seeds.
    """
    if seeds < 1:
        raise InputError(f"SEEDS: wanted a number above zero, got {seeds}")
    if stages and not (PUBLISHED / str(seeds)).is_dir():
        raise InputError(f"SEEDS: wanted a run that is published, got {seeds}")
    changed = said("status", "--porcelain", "--", *DETERMINES, "params.yaml")
    if changed:
        raise InputError(f"wanted the code and params of a commit, got changes:\n{changed}")
    commit = said("rev-parse", "HEAD")
    clone = folder / f"{commit[:10]}-{seeds}"
    if not clone.exists():
        said("clone", "--quiet", ".", str(clone))
        share_cache(clone)
    shift(clone / "params.yaml", seeds)
    begun = time.monotonic()
    for what in [stages.split(), ["--single-item", "claims"]] if stages else [["claims"]]:
        if subprocess.run([*DVC, "repro", *what], cwd=clone, check=False).returncode:
            raise InputError(f"{clone}: wanted all stages run, got an error; see above")
    hours = (time.monotonic() - begun) / 3600
    names = ("items", "claims")
    before = {name: read_json(Path(f"metrics/{name}.json")) for name in names}
    after = {name: read_json(clone / f"metrics/{name}.json") for name in names}
    if stages:
        names = judged_by(stages.split(), load_yaml(Path("dvc.yaml"))["stages"])
        before, after = only(before, names), only(after, names)
        join(before, after, commit, seeds, stages)
    else:
        publish(before, after, commit, seeds, hours)
    print(*table(before, after), sep="\n")


def judged_by(stages: list[str], blocks: dict[str, Any]) -> list[str]:
    """The items whose measures these stages of dvc.yaml write, by their full names."""
    outs = [out for stage in stages for out in blocks[stage]["outs"]]
    written = {next(iter(out)) if isinstance(out, dict) else out for out in outs}
    families = read_families(sorted(Path("stages").glob("*/claims.yaml")))
    return [
        f"{name}.{item}"
        for name, family in families.items()
        for item, entry in family.items.items()
        if family.run_of(entry).measures in written
    ]


def only(found: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """These items and their claims, of all that were judged."""
    claims = {name: one for name, one in found["claims"].items() if one["item"] in names}
    return {"items": {name: found["items"][name] for name in names}, "claims": claims}


def join(
    before: dict[str, Any], after: dict[str, Any], commit: str, seeds: int, stages: str
) -> None:
    """Add answers and verdicts to the run of these seeds, which has none of them, and say how."""
    folder = PUBLISHED / str(seeds)
    for name, named in after.items():
        kept = read_json(folder / f"{name}.json")
        if again := sorted(kept.keys() & named.keys()):
            raise InputError(f"STAGES: wanted {name} that {folder} lacks, got {again[0]}")
        write_json(kept | short(named), folder / f"{name}.json")
    note = read_json(folder / "provenance.json")
    joined = {"commit": commit, "command": f'make unseen SEEDS={seeds} STAGES="{stages}"'}
    write_json(note | {"joined": [*note.get("joined", []), joined]}, folder / "provenance.json")
    runs = read_json(RUNS)
    [run_now] = [
        one for one in runs if (one["seeds_from"], one["commit"]) == (seeds, note["commit"])
    ]
    for kind in DECIDES:
        run_now["turned"][kind] += turned(kind, before, after)
        run_now["judged"][kind] += len(after[kind])
    write_json(runs, RUNS)


def share_cache(clone: Path) -> None:
    """Have DVC in a clone read and write the cache of the project in which this runs."""
    done = subprocess.run([*DVC, "cache", "dir"], capture_output=True, text=True, check=True)
    command = [*DVC, "config", "--local", "cache.dir", done.stdout.strip()]
    subprocess.run(command, cwd=clone, check=True)


def shift(params: Path, seeds: int) -> None:
    """Set `seeds_from` of a params file."""
    text = params.read_text(encoding="utf-8")
    params.write_text(re.sub(r"(?m)^seeds_from: .*$", f"seeds_from: {seeds}", text))


def publish(
    before: dict[str, Any], after: dict[str, Any], commit: str, seeds: int, hours: float
) -> None:
    """Keep the answers and verdicts, where they come from, and how many turned."""
    for folder in PUBLISHED.glob("*/"):
        if read_json(folder / "provenance.json")["commit"] != commit:
            shutil.rmtree(folder)
    folder = PUBLISHED / str(seeds)
    for name, named in after.items():
        write_json(short(named), folder / f"{name}.json")
    note = {
        "seeds_from": seeds,
        "commit": commit,
        "command": f"make unseen SEEDS={seeds}",
        "device": platform.processor() or platform.machine(),
        "wall_hours": hours,
        "versions": {name: version(name) for name in PACKAGES},
    }
    write_json(note, folder / "provenance.json")
    runs = read_json(RUNS) if RUNS.exists() else []
    run_now = {
        "seeds_from": seeds,
        "commit": commit,
        "turned": {kind: turned(kind, before, after) for kind in DECIDES},
        "judged": {kind: len(named) for kind, named in before.items()},
    }
    kept = [one for one in runs if (one["seeds_from"], one["commit"]) != (seeds, commit)]
    write_json([*kept, run_now], RUNS)


def short(named: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Answers and verdicts with their numbers, those of every case too, and no more."""
    kept = ("answer", "number", "limits", "case", "scale", "holds")
    kept += ("value", "interval_95", "min", "max", "n")

    def of(one: dict[str, Any]) -> dict[str, Any]:
        said = {key: one[key] for key in kept if key in one}
        return said | ({"cases": [of(case) for case in one["cases"]]} if one.get("cases") else {})

    return {name: of(one) for name, one in named.items()}


def turned(kind: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names of the items or claims whose answer or verdict is another."""
    return [
        name
        for name, one in before[kind].items()
        if name in after[kind] and after[kind][name][DECIDES[kind]] != one[DECIDES[kind]]
    ]


def table(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """How many answers and verdicts turned, and a line for each."""
    items = turned("items", before, after)
    yield f"{len(items)} of {len(before['items'])} answers turned"
    for name in items:
        was, now = (
            f"{one['answer']} ({one.get('number', '–')})"
            for one in (before["items"][name], after["items"][name])
        )
        yield f"  {name}: {was}, unseen: {now}"
    claims = turned("claims", before, after)
    yield f"{len(claims)} of {len(before['claims'])} verdicts turned"
    for name in claims:
        was, now = (
            f"{VERDICTS[one['holds']]} ({one.get('value')})"
            for one in (before["claims"][name], after["claims"][name])
        )
        yield f"  {name}: {was}, unseen: {now}"


if __name__ == "__main__":
    run(main, environment=True)
