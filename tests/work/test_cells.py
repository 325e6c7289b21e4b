"""Cells are computed once for as long as what they are made of stays what it is, and read back
alike.
"""

import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from lib.files import sources
from lib.files.inputs import header_of
from lib.files.sources import digest_of
from lib.work import cells
from lib.work.cells import joined, kept, key_of, spread_cells
from lib.work.errors import StoppedError
from lib.work.machines import machine

CALLS: list[tuple] = []


@dataclass(frozen=True)
class Params:
    factor: float
    names: tuple[str, ...] = ()


def cell(file: Path, params: Params, index: int) -> dict[str, pd.DataFrame]:
    CALLS.append((file.name, params.factor, index))
    number = float(file.read_text()) * params.factor
    rows = [{"index": index, "number": number, "list": np.array([index, 2], np.int64)}]
    return {"numbers": pd.DataFrame(rows), "none": pd.DataFrame({"seed": pd.Series(dtype=int)})}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    CALLS.clear()
    for name, number in (("a", 2), ("b", 3)):
        Path(name).write_text(str(number))


def run(*arguments):
    jobs = {
        "one": [(cell, Path("a"), *arguments, i) for i in (1, 0)],
        "two": [(cell, Path("b"), *arguments, 5)],
    }
    return spread_cells(jobs, label="cells", unit="cell")


def test_what_has_been_computed_is_read_and_what_has_changed_is_computed_alone():
    first = run(Params(10.0))
    assert CALLS == [("a", 10.0, 1), ("a", 10.0, 0), ("b", 10.0, 5)]
    assert [table["numbers"]["number"].tolist() for table in first["one"]] == [[20.0], [20.0]]
    assert joined(first["one"], "numbers")["index"].tolist() == [1, 0]
    assert first["two"][0]["numbers"]["list"].iloc[0].dtype == np.int64
    CALLS.clear()
    again = run(Params(10.0))
    assert CALLS == []
    for kind, parts in first.items():
        for mine, other in zip(parts, again[kind], strict=True):
            for name, table in mine.items():
                pd.testing.assert_frame_equal(table, other[name])
    Path("b").write_text("4")
    assert run(Params(10.0))["two"][0]["numbers"]["number"].tolist() == [40.0]
    assert CALLS == [("b", 10.0, 5)]
    CALLS.clear()
    run(Params(10.0, ("x",)))
    assert len(CALLS) == 3


def test_a_folder_counts_by_all_files_below_it():
    Path("runs/one").mkdir(parents=True)
    Path("runs/one/a").write_text("1")
    before = key_of(cell, Path("runs"))
    Path("runs/one/a").write_text("2")
    assert key_of(cell, Path("runs")) != before


def test_large_weights_are_known_by_their_state_and_what_is_written_again_is_another(monkeypatch):
    """Each of these is a change, though size and time of writing are the same."""
    monkeypatch.setattr(cells, "LARGE", 4)
    weights = Path("weights")
    weights.write_text("12345")
    past = time.time() - 100

    def key():
        os.utime(weights, (past, past))
        return key_of(cell, cells.OnDisk(weights))

    new = key()
    assert new["arguments"] == [digest_of(weights)]  # its inode has changed just now
    monkeypatch.setattr(cells, "SETTLED", 0)
    before = key_of(cell, cells.OnDisk(weights))
    assert before != new
    assert key_of(cell, cells.OnDisk(weights)) == before
    with weights.open("r+") as written:
        written.write("5")
    in_place = key()
    shutil.copy2(weights, "copy")
    Path("copy").replace(weights)
    assert len({repr(one) for one in (before, in_place, key_of(cell, cells.OnDisk(weights)))}) == 3


def test_small_weights_are_known_by_their_content():
    Path("weights").write_text("1")
    Path("folder").mkdir()
    shutil.copy("weights", "folder")
    before = key_of(cell, cells.OnDisk(Path("weights")), cells.OnDisk(Path("folder")))
    digest = digest_of(Path("weights"))
    assert before["arguments"] == [digest, {"weights": digest}]


SOURCES = {
    "stages/toy.py": "import lib.used\nfrom lib.work import machinery\n"
    "def toy():\n    from lib.late import late\n",
    "lib/used.py": "from . import deeper\n",
    "lib/deeper.py": "",
    "lib/late.py": "",
    "lib/elsewhere.py": "",
    "lib/work/machinery.py": "import lib.through\n",
    "lib/through.py": "",
}
OF_TOY = {"stages/toy.py", "lib/used.py", "lib/deeper.py", "lib/late.py", "lib/through.py"}


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A function of a repository of few modules, and its key as another program would have it."""
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    module = ModuleType("toy")
    module.__file__ = str(tmp_path / "stages" / "toy.py")
    monkeypatch.setitem(sys.modules, "toy", module)
    monkeypatch.setattr(sources, "ROOT", tmp_path)

    def toy():
        pass

    def key():
        monkeypatch.setattr(sources, "begun", {})
        sources._code.cache_clear()
        return key_of(toy)

    toy.__module__ = "toy"
    return key


@pytest.mark.parametrize("edited", SOURCES)
def test_an_edit_of_the_code_of_a_cell_makes_another_and_an_edit_elsewhere_does_not(
    edited, toy, tmp_path
):
    """This is so for what is imported late, too, or by the machinery that is itself no part of the
    code.
    """
    before = toy()
    assert set(before["code"]) == OF_TOY
    (tmp_path / edited).write_text(SOURCES[edited] + "# more\n")
    assert (toy() != before) == (edited in OF_TOY)


def test_what_is_imported_no_longer_is_no_longer_a_part(toy, tmp_path):
    (tmp_path / "lib" / "used.py").write_text("")
    assert set(toy()["code"]) == OF_TOY - {"lib/deeper.py"}


def save(n):
    return {"table": pd.DataFrame({"n": [n]})}


@pytest.mark.parametrize("n_cores", [1, 2])
def test_nothing_is_kept_that_was_computed_by_code_that_has_changed(monkeypatch, n_cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(n_cores)), raising=False)
    spread_cells({"": [(save, 1)] * 2}, label="toy", unit="cell")
    of_this = sources.code_of(save) | {"lib/files/tables.py": "as it was when this began"}
    monkeypatch.setattr("lib.work.cells.code_of", lambda _: of_this)
    with pytest.raises(StoppedError, match=r"lib/files/tables\.py changed while this ran"):
        spread_cells({"": [(save, 2)] * 2}, label="toy", unit="cell")
    assert len(list(Path(".dvc/tmp/scratch").rglob("done-*.safetensors"))) == 1


def test_after_an_upgrade_or_on_another_kind_of_machine_all_is_computed_again(monkeypatch):
    run(Params(1.0))
    for other in ({"scipy": "0.1"}, {"CPU": "another"}):
        monkeypatch.setattr(
            "lib.work.cells.machine", lambda device, other=other: machine(device) | other
        )
        run(Params(1.0))
    assert len(CALLS) == 9


def test_values_are_kept_for_one_machine(monkeypatch):
    def value():
        with kept(cell, Path("a"), {"n": 1}) as keep:
            return keep("sum", lambda: next(numbers))

    numbers = iter([1.0, 2.0, 3.0])
    assert [value(), value()] == [1.0, 1.0]
    monkeypatch.setattr(
        "lib.work.cells.machine", lambda device: machine(device) | {"transformers": "0.1"}
    )
    assert value() == 2.0
    Path("a").write_text("7")
    assert value() == 3.0


def test_an_altered_cell_is_computed_again_with_a_warning():
    run(Params(1.0))
    [file] = [
        path
        for path in Path(".dvc/tmp/scratch").rglob("numbers.parquet")
        if pd.read_parquet(path)["index"].tolist() == [5]
    ]
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    CALLS.clear()
    with pytest.warns(UserWarning, match="is altered; its cell is computed again"):
        found = run(Params(1.0))
    assert CALLS == [("b", 1.0, 5)]
    assert found["two"][0]["numbers"]["number"].tolist() == [3.0]


def test_a_cell_says_what_it_was_made_of():
    run(Params(1.5))
    keys = []
    for file in Path(".dvc/tmp/scratch").rglob("done-*.safetensors"):
        note = json.loads(header_of(file.read_bytes())[0]["__metadata__"]["note"])
        keys.append((note["key"]["function"], note["key"]["arguments"][1:]))
    assert sorted(keys, key=str) == [("cell", [{"factor": 1.5, "names": []}, i]) for i in (0, 1, 5)]
