"""A run comes back as it was written, or is refused; the same run has the same bytes."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save

from lib.files import runs
from lib.files.files import InputError, sha256
from lib.files.runs import Layout, open_chosen, open_run, open_runs, write_run
from lib.files.tables import write_table

ROOT = Path(__file__).parents[2]


def toy_layout():
    return Layout(
        family="toy",
        matrices={
            "W_K": ["seed", "head", "row", "col"],
            "W_Q": ["seed", "head", "row", "col"],
            "W": ["seed", "row", "col"],
        },
        products={"W_KQ": ["W_K", "W_Q"]},
        gauge={"W": "column shift"},
        cell={"init_scale": 0.1, "labels": "true"},
        seeds=[4, 2],
    )


def toy_weights(step):
    g = torch.Generator().manual_seed(step)
    shapes = {"W_K": (2, 3, 4, 2), "W_Q": (2, 3, 4, 2), "W": (2, 4, 4), "bias": (2, 4)}
    return {name: torch.randn(shape, generator=g) for name, shape in shapes.items()}


def write_toy(folder):
    with write_run(folder.parent, folder.name, toy_layout()) as run:
        for step in (0, 1, 10):
            rows = [{"seed": seed, "step": step, "loss": 1 / (1 + step + seed)} for seed in (4, 2)]
            run.add(toy_weights(step), rows)


def seal(folder):
    """Write the digests of what lies in a folder, as if it were right."""
    names = sorted(path.name for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{sha256(folder / name)}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(lines))


def read_all(folder):
    run = open_run(folder)
    return [run.weights(snapshot) for snapshot in run.snapshots]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "run"
    write_toy(folder)
    return folder


@pytest.fixture
def folder(written, tmp_path):
    return Path(shutil.copytree(written, tmp_path / "run"))


def test_a_run_comes_back_as_it_was_written(written):
    run = open_run(written)
    assert run.layout == toy_layout()
    assert run.snapshots == [0, 1, 2]
    assert run.steps["step"].tolist() == [0, 0, 1, 1, 10, 10]
    assert run.steps["seed"].tolist() == [4, 2] * 3
    assert run.steps["loss"].tolist() == [1 / (1 + t + s) for t in (0, 1, 10) for s in (4, 2)]
    for snapshot, step in enumerate((0, 1, 10)):
        found = run.weights(snapshot)
        assert found.keys() == toy_weights(step).keys()
        assert all(torch.equal(found[name], weight) for name, weight in toy_weights(step).items())


def test_the_last_snapshot_is_minus_one(written):
    assert torch.equal(open_run(written).weights(-1)["W"], toy_weights(10)["W"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_weights_keep_their_bits_and_their_type(tmp_path, dtype):
    weight = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0)).mT.to(dtype)
    weight.requires_grad_()
    with write_run(tmp_path, "run", Layout("toy", {"W": ["seed", "row", "col"]})) as run:
        run.add({"W": weight}, [{"step": 0}])
    found = open_run(tmp_path / "run").weights(0)["W"]
    assert found.dtype == dtype
    assert torch.equal(found, weight)


def test_writing_a_run_empties_its_folder_first(folder):
    (folder / "snapshot-0099.safetensors").write_text("old")
    write_toy(folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "SHA256SUMS",
        "snapshot-0000.safetensors",
        "snapshot-0001.safetensors",
        "snapshot-0002.safetensors",
        "steps.parquet",
    ]


def test_a_run_whose_writer_failed_is_refused(tmp_path):
    with pytest.raises(ZeroDivisionError), write_run(tmp_path, "run", toy_layout()) as run:
        run.add(toy_weights(0), [{"step": 0}])
        raise ZeroDivisionError
    with pytest.raises(InputError, match=r"run: wanted a run \(no SHA256SUMS is there\)"):
        open_run(tmp_path / "run")


def test_the_steps_of_a_run_are_read_without_torch(written):
    script = (
        "import sys; from pathlib import Path; from lib.files.runs import open_run\n"
        "run = open_run(Path(sys.argv[1]))\n"
        "print(run.layout.family, run.snapshots, run.steps['loss'].sum(), *{'torch', "
        "'safetensors'} & {*sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, written],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"toy [0, 1, 2] {open_run(written).steps['loss'].sum()}\n"


def test_the_digests_are_what_sha256sum_checks(written):
    if shutil.which("sha256sum") is None:
        pytest.skip("this machine has no sha256sum")
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(command, cwd=written, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": OK") == 4


def test_the_same_run_has_the_same_bytes(written, tmp_path):
    write_toy(tmp_path / "again")
    for path in written.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_the_order_of_names_means_nothing(written, tmp_path):
    layout = toy_layout()
    turned = {
        name: dict(reversed(vars(layout)[name].items())) for name in ("matrices", "gauge", "cell")
    }
    with write_run(tmp_path, "turned", replace(layout, **turned)) as run:
        run.add(dict(reversed(toy_weights(0).items())), [{"step": 0}])
    name = "snapshot-0000.safetensors"
    assert (tmp_path / "turned" / name).read_bytes() == (written / name).read_bytes()


def test_another_process_writes_the_same_bytes(written, tmp_path):
    script = (
        "import runpy, pathlib, sys; "
        "runpy.run_path(sys.argv[1])['write_toy'](pathlib.Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", script, __file__, tmp_path / "again"]
    subprocess.run(command, cwd=ROOT, check=True)
    assert (tmp_path / "again" / "SHA256SUMS").read_bytes() == (written / "SHA256SUMS").read_bytes()


@pytest.mark.parametrize(
    "name", ["snapshot-0000.safetensors", "snapshot-0002.safetensors", "steps.parquet"]
)
@pytest.mark.parametrize("part", range(8))
def test_a_run_with_a_flipped_bit_is_refused(folder, name, part):
    data = (folder / name).read_bytes()
    for position in range(part * len(data) // 8, (part + 1) * len(data) // 8, 11):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        (folder / name).write_bytes(flipped)
        with pytest.raises(InputError, match=rf"{name}: the content does not fit"):
            read_all(folder)


def test_a_flipped_bit_in_the_digests_is_refused(folder):
    data = (folder / "SHA256SUMS").read_bytes()
    for position, byte in enumerate(data):
        for bit in range(8) if byte in b" \n" else [position % 8][: position % 2]:
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            (folder / "SHA256SUMS").write_bytes(flipped)
            with pytest.raises(InputError, match=re.escape(str(folder))):
                read_all(folder)


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.99])
@pytest.mark.parametrize(
    "name",
    ["snapshot-0000.safetensors", "snapshot-0001.safetensors", "steps.parquet", "SHA256SUMS"],
)
def test_a_run_with_a_truncated_file_is_refused(folder, name, kept):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(kept * len(data))])
    with pytest.raises(InputError, match=re.escape(str(folder))):
        read_all(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "snapshot-0000.safetensors",
            "wanted the file snapshot-0000.safetensors, which its SHA256SUMS lists",
        ),
        (
            "snapshot-0002.safetensors",
            "wanted the file snapshot-0002.safetensors, which its SHA256SUMS lists",
        ),
        ("steps.parquet", "wanted the file steps.parquet, which its SHA256SUMS lists"),
        ("SHA256SUMS", "wanted a run (no SHA256SUMS is there)"),
    ],
)
def test_a_run_that_lacks_a_file_is_refused(folder, name, message):
    (folder / name).unlink()
    with pytest.raises(InputError, match=re.escape(message)):
        open_run(folder)


@pytest.mark.parametrize("name", ["snapshot-0003.safetensors", "notes.txt"])
def test_a_run_with_a_file_too_many_is_refused(folder, name):
    shutil.copy(folder / "snapshot-0001.safetensors", folder / name)
    seal(folder)
    with pytest.raises(InputError, match=rf"wanted the files \['snapshot-0000.*got .*{name}"):
        open_run(folder)


def test_a_run_with_a_file_that_its_digests_do_not_list_is_refused(folder):
    shutil.copy(folder / "snapshot-0001.safetensors", folder / "snapshot-0003.safetensors")
    with pytest.raises(
        InputError, match=r"its SHA256SUMS does not list, got snapshot-0003\.safetensors"
    ):
        open_run(folder)


def test_a_snapshot_without_its_row_is_refused(folder):
    steps = pd.read_parquet(folder / "steps.parquet")
    write_table(steps[steps["snapshot"] != 1], folder / "steps.parquet")
    seal(folder)
    with pytest.raises(InputError, match=r"wanted the files .* got "):
        open_run(folder)


def test_snapshots_cannot_change_places(folder):
    (folder / "snapshot-0001.safetensors").rename(folder / "other")
    (folder / "snapshot-0002.safetensors").rename(folder / "snapshot-0001.safetensors")
    (folder / "other").rename(folder / "snapshot-0002.safetensors")
    with pytest.raises(InputError, match=r"snapshot-0001\.safetensors: the content does not fit"):
        read_all(folder)


def test_a_run_of_another_format_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(runs, "FORMAT", "transformer dynamics run 2")
        write_toy(tmp_path / "run")
    message = "wanted the format 'transformer dynamics run 1', got 'transformer dynamics run 2'"
    with pytest.raises(InputError, match=message):
        open_run(tmp_path / "run")


def metadata(**changes):
    """The metadata of a toy snapshot, changed."""
    description = {
        "format": runs.FORMAT,
        "family": "toy",
        "matrices": {"W": ["row", "col"]},
        **changes,
    }
    return {
        "run": json.dumps({key: value for key, value in description.items() if value is not None})
    }


def headed(header, data=b""):
    """The bytes of a safetensors file of this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


TENSOR = {"dtype": "F64", "shape": [2, 2], "data_offsets": [0, 32]}


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"\x08\x00",
        (2**64 - 1).to_bytes(8, "little") + b"{}",
        save({"W": torch.ones(2, 2)}, metadata())[:40],
        save({"W": torch.ones(2, 2)}, metadata())[:-1],
        headed(b"[" * 100_000),
        headed(b'{"a":' * 100_000),
        headed([TENSOR]),
        headed({"W": TENSOR, "__metadata__": metadata(matrices={"W": 3})}),
        headed({"W": TENSOR, "__metadata__": {"run": "[" * 100_000}}),
        headed({"W": TENSOR | {"shape": 2}, "__metadata__": metadata()}),
        headed({"W": [2, 2], "__metadata__": metadata()}),
        b"not a tensor in sight",
        b"\xff" * 64,
        save({"W": torch.ones(2, 2)}),
        save({"W": torch.ones(2, 2)}, {"run": "{"}),
        save({"W": torch.ones(2, 2)}, {"run": "[]"}),
        save({"W": torch.ones(2, 2)}, metadata(colour="blue")),
        save({"W": torch.ones(2, 2)}, metadata(family=None)),
        save({"W": torch.ones(2, 2)}, metadata(format=None)),
        save({"W": torch.ones(2, 2)}, metadata(matrices={"W": ["col", "row"]})),
        save({"V": torch.ones(2, 2)}, metadata()),
        save({"W": torch.ones(2, 2, 2)}, metadata()),
    ],
)
def test_a_foreign_snapshot_is_refused_even_where_its_digest_fits(tmp_path, foreign):
    write_table(pd.DataFrame({"snapshot": [0], "step": [0]}), tmp_path / "steps.parquet")
    (tmp_path / "snapshot-0000.safetensors").write_bytes(foreign)
    seal(tmp_path)
    with pytest.raises(
        InputError, match=r"snapshot-0000\.safetensors: wanted |: wanted axes in the order"
    ):
        read_all(tmp_path)


@pytest.mark.parametrize(
    "steps",
    [
        pd.DataFrame({"step": [0, 1, 10]}),
        pd.DataFrame({"snapshot": ["a", "b", "c"]}),
        pd.DataFrame({"snapshot": [0.5, 1.0, 2.0]}),
        pd.DataFrame({"snapshot": pd.array([0, 1, None], dtype="Int64")}),
        pd.DataFrame({"snapshot": pd.array([], dtype="int64")}),
    ],
)
def test_a_foreign_table_of_steps_is_refused_even_where_its_digest_fits(folder, steps):
    write_table(steps, folder / "steps.parquet")
    seal(folder)
    with pytest.raises(InputError, match=r"steps\.parquet: wanted |: wanted the files "):
        open_run(folder)


@pytest.mark.parametrize(
    "line", ["x  steps.parquet", f"{'0' * 64}  ../steps.parquet", f"{'0' * 64} steps.parquet"]
)
def test_digests_that_are_none_are_refused(folder, line):
    with (folder / "SHA256SUMS").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError, match="SHA256SUMS: wanted 'digest  name' lines, got "):
        open_run(folder)


@pytest.mark.parametrize(
    "axes",
    [
        ["col", "row"],
        ["row"],
        ["head", "seed", "row", "col"],
        ["row", "col", "depth"],
        ["row", "row", "col"],
        [],
    ],
)
def test_a_layout_with_other_axes_is_refused(axes):
    with pytest.raises(
        InputError, match=r"W: wanted axes in the order \('seed', 'layer', 'head', 'row', 'col'\)"
    ):
        Layout("toy", {"W": axes})


@pytest.mark.parametrize("factors", [["W_K"], ["W_K", "W_V"], ["W_K", "W_Q", "W_Q"]])
def test_a_product_of_other_than_two_known_matrices_is_refused(factors):
    axes = ["row", "col"]
    with pytest.raises(InputError, match=r"W_KQ: wanted two of \['W_K', 'W_Q'\], got "):
        Layout("toy", {"W_K": axes, "W_Q": axes}, {"W_KQ": factors})


def test_weights_that_do_not_fit_the_layout_are_refused(tmp_path):
    def add(weights):
        with write_run(tmp_path, "run", toy_layout()) as run:
            run.add(weights, [{"step": 0}])

    weights = toy_weights(0)
    with pytest.raises(
        InputError,
        match=r"wanted W with axes \['seed', 'row', 'col'\], got \['W_K', 'W_Q', 'bias'\]",
    ):
        add({name: weight for name, weight in weights.items() if name != "W"})
    with pytest.raises(
        InputError, match=r"wanted W with axes \['seed', 'row', 'col'\], got \[4, 4\]"
    ):
        add({**weights, "W": weights["W"][0]})


def test_a_folder_of_runs_is_opened_by_name(tmp_path):
    for name in ("b", "a"):
        write_toy(tmp_path / name)
    assert [run.folder.name for run in open_runs(tmp_path)] == ["a", "b"]
    assert [run.folder.name for run in open_chosen(tmp_path, ["c", "b"], "x.runs")] == ["b"]
    with pytest.raises(
        InputError, match=r"x\.runs: wanted some of \['a', 'b'\], the runs in .*; got \['c'\]"
    ):
        open_chosen(tmp_path, ["c"], "x.runs")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: wanted a folder of runs, got none"):
        open_runs(tmp_path / "empty")
    with pytest.raises(InputError, match="gone: wanted a folder of runs, got none"):
        open_runs(tmp_path / "gone")
    with pytest.raises(InputError, match=r"empty: wanted a run \(no SHA256SUMS is there\)"):
        open_runs(tmp_path)


def test_the_example_of_the_docs_reads_a_run(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    [folder] = re.findall(r'open_runs\(Path\("(.+?)"\)\)', example)
    assert len(example.strip().splitlines()) <= 10
    with write_run(tmp_path / folder, "one", toy_layout()) as writer:
        for step in (0, 7):
            writer.add(toy_weights(step), [{"step": step, "seed": seed} for seed in (4, 2)])
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/architecture.md", "exec"), {})
    begun, ended = toy_weights(0), toy_weights(7)
    products = [weights["W_K"] @ weights["W_Q"].mT for weights in (begun, ended)]
    sigma = torch.linalg.svdvals(products[1] - products[0])[..., :3]
    said = capsys.readouterr().out
    assert said == f"one {toy_layout().cell} ['snapshot', 'step', 'seed']\nW_KQ {sigma}\n"


def test_a_run_of_another_family_is_refused_where_one_is_wanted(written):
    folder, family = written.parent, toy_layout().family
    assert [one.folder for one in open_runs(folder, family)] == [written]
    with pytest.raises(
        InputError, match=f"{written}: wanted a run of another, got one of {family}"
    ):
        open_runs(folder, "another")
    with pytest.raises(
        InputError, match=f"{written}: wanted a run of another, got one of {family}"
    ):
        open_run(written, "another")
