"""The whole pipeline made small, by the values in `tiny.yaml`, and a run on them.

The params are derived from the committed params.yaml, so that a new key needs a line there only
where it makes work; a new family adds a section.
"""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from ruamel.yaml import YAML

from lib.files.params import load_yaml
from tests.pipeline.project import (
    ROOT,
    Stage,
    checkout,
    commit,
    dvc,
    git,
    one_core,
    params_of,
    set_params,
    stages,
)

Section = dict[str, Any]

FILE = Path(__file__).with_suffix(".yaml")
VALUES = load_yaml(FILE)
TABLES: dict[str, str] = {}  # small tables of cases, by their paths in the project


def tiny(params: dict[str, Section]) -> dict[str, Section]:
    """The params with every family's seeds, steps, scales and sizes made small."""
    params = copy.deepcopy(params)
    unknown = sorted(set(params) - set(VALUES["params"]) - {"seeds_from"})
    assert not unknown, f"{unknown}: wanted small values of this family in {FILE}, got none"
    replace(params, VALUES["params"])
    for make_small in (vision, decision_lists, gradual_rank, low_rank_sparse):
        make_small(params[make_small.__name__])
    for key, changes in VALUES["tables"].items():
        family, _, name = key.split(".")
        path = params[family]["cases"][name]
        rows = read_rows(path)[: changes.get("first")]
        rows = rows[-1:] if "last" in changes else rows
        write_rows(path, [row | changes.get("set", {}) for row in rows])
    return params


def vision(section: Section) -> None:
    """Two scales of every data set, of which one is the reference."""
    reference = section["evaluate"]["reference_scale"]
    for data in (section[name] for name in section["datasets"]):
        replace(data, VALUES["dataset"])
        data["train"]["init_scales"] = sorted([reference, min(data["train"]["init_scales"])])
        data["cut"] |= {"init_scales": [reference], "n_images": 16}


def decision_lists(section: Section) -> None:
    """The first settings and a seed of every group, at the smallest sizes that its use allows; few
    steps and cases.
    """
    groups: dict[str, Section] = {}
    for group in read_rows(section["cases"]["groups"]):
        spectral = group["use"] == "spectral"
        if group["use"] != "both" and group["group"] != "lost":
            group |= {"n_tokens": 6 if spectral else 5, "seq_len": 2}
        group |= {key: group[key][:1] for key in ("list_lengths", "lists", "laws")}
        group |= {"n_heads": group["n_heads"][: 2 if spectral else 1], "n_seeds": 1}
        groups.setdefault(group["group"], group)
    _, *descents = [name for name, group in groups.items() if group["use"] == "both"]
    kept = [group for name, group in groups.items() if name not in descents]
    write_rows(section["cases"]["groups"], kept)
    section["scales"]["law_scales"] = section["scales"]["law_scales"][-2:]


def gradual_rank(section: Section) -> None:
    """Few stages and scales of every problem, at coarse tolerances."""
    problems = []
    for row in read_rows(section["cases"]["problems"]):
        row["atol"] = 1e-2
        if row["name"] != section["studied"]:  # whose cells are empty
            row |= VALUES["problem"] | {"n_seeds": min(2, row["n_seeds"])}
            row["forecast_scales"] = [] if row["name"] == "draws" else [-4]
            row["max_stages"] = 1 if row["frames"] else 3
        problems.append(row)
    write_rows(section["cases"]["problems"], problems)


def low_rank_sparse(section: Section) -> None:
    """Each sweep at two values, three labellings of at most two kinds."""
    n_patterns = [section["evaluate"]["fit_from_n_patterns"], 10]
    values = VALUES["values"] | {"n_relevant": [6, 12], "n_patterns": n_patterns}
    for table in section["cases"]["sweeps"].values():
        sweeps = []
        for row in read_rows(table):
            if "labels" in row:
                row["labels"] = row["labels"][:2]
            else:
                row["values"] = values[row["varies"]]
            if "crossed" in row:
                row["crossed_values"] = values[row["crossed"]]
            if "n_neurons" in row:
                row["n_neurons"] = 16
            sweeps.append(row | {"n_seeds": 2, "n_steps": 3})
        write_rows(table, sweeps)


def read_rows(path: str) -> list[Section]:
    """The lines of a committed table of cases, by their columns."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    header, *rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [dict(zip(header, map(YAML(typ="safe").load, row), strict=True)) for row in rows]


def write_rows(path: str, rows: list[Section]) -> None:
    """Have the tiny checkout hold this table of cases at that path."""
    lines = [list(rows[0]), *([json.dumps(cell) for cell in row.values()] for row in rows)]
    TABLES[path] = "".join("\t".join(line) + "\n" for line in lines)


def replace(params: Section, values: Section) -> None:
    """Set those values that a section has already: a key that is not in params.yaml has no tiny
    value.
    """
    for key, value in values.items():
        if isinstance(value, dict) and key in params:
            replace(params[key], value)
        elif key in params:
            params[key] = value


def make_tiny(folder: Path) -> None:
    """Give the project in that folder the tiny params and tables of cases."""
    set_params(folder, tiny(params_of(folder)))
    for path, text in TABLES.items():
        (folder / path).write_text(text, encoding="utf-8")
    # it is of other params, and DVC reads and writes all of it after every stage
    (folder / "dvc.lock").unlink()


@dataclass(frozen=True)
class TinyPipeline:
    """A repository of three commits: the project, its params made tiny, and what `dvc repro` then
    made.
    """

    folder: Path
    said: str  # by `dvc repro`
    status: str  # of git, before the last commit

    @property
    def stages(self) -> tuple[Stage, ...]:
        return stages(self.folder)

    def stage(self, name: str) -> Stage:
        [found] = [stage for stage in self.stages if stage.name == name]
        return found


def tiny_pipeline(folder: Path) -> TinyPipeline:
    """Run the pipeline on tiny params, once for every folder: another process waits for it."""
    said = folder.with_suffix(".json")
    with FileLock(folder.with_suffix(".lock")):
        if not said.exists():
            said.write_text(json.dumps(run_tiny(folder)), encoding="utf-8")
    return TinyPipeline(folder, **json.loads(said.read_text(encoding="utf-8")))


def run_tiny(folder: Path, *names: str) -> dict[str, str]:
    """Make the three commits, with all stages or those of these names; what DVC and git said."""
    checkout(folder)
    make_tiny(folder)
    commit(folder, "Tiny params")
    # starting processes costs more than such work; each stage alone is then run on all cores
    with one_core():
        said = dvc("repro", *names, at=folder)
    status = git("status", "--porcelain", "--untracked-files=all", at=folder)
    commit(folder, "What dvc repro makes of them")
    return {"said": said, "status": status}
