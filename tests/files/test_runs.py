"""A run comes back as it was written, or is refused; the same run has the same bytes."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save

from lib.files import runs
from lib.files.files import InputError, sha256
from lib.files.runs import Layout, open_run, open_runs, write_run
from lib.files.tables import write_table

ROOT = Path(__file__).parents[2]
FILES = ["SHA256SUMS", *(f"snapshot-{k:04d}.safetensors" for k in range(3)), "steps.parquet"]


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
    assert torch.equal(run.weights(-1)["W"], toy_weights(10)["W"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_weights_keep_their_bits_and_their_type(tmp_path, dtype):
    weight = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0)).mT.to(dtype)
    weight.requires_grad_()
    with write_run(tmp_path, "run", Layout("toy", {"W": ["seed", "row", "col"]})) as run:
        run.add({"W": weight}, [{"step": 0}])
    found = open_run(tmp_path / "run").weights(0)["W"]
    assert found.dtype == dtype
    assert torch.equal(found, weight)


def test_a_run_whose_writer_failed_is_refused(tmp_path):
    with pytest.raises(ZeroDivisionError), write_run(tmp_path, "run", toy_layout()) as run:
        run.add(toy_weights(0), [{"step": 0}])
        raise ZeroDivisionError
    with pytest.raises(InputError, match=r"run: wanted a run \(no SHA256SUMS is there\)"):
        open_run(tmp_path / "run")


def test_the_order_of_names_means_nothing(written, tmp_path):
    layout = toy_layout()
    turned = {
        name: dict(reversed(vars(layout)[name].items())) for name in ("matrices", "gauge", "cell")
    }
    with write_run(tmp_path, "turned", replace(layout, **turned)) as run:
        run.add(dict(reversed(toy_weights(0).items())), [{"step": 0}])
    name = "snapshot-0000.safetensors"
    assert (tmp_path / "turned" / name).read_bytes() == (written / name).read_bytes()


@pytest.mark.parametrize("name", ["SHA256SUMS", "snapshot-0001.safetensors", "steps.parquet"])
def test_a_run_with_a_flipped_bit_is_refused(folder, name):
    data = (folder / name).read_bytes()
    step = 5 if name == "SHA256SUMS" else 61
    for position in range(0, len(data), step):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 7
        (folder / name).write_bytes(flipped)
        with pytest.raises(InputError, match=re.escape(str(folder))):
            read_all(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_run_that_lacks_a_file_is_refused(folder, name):
    (folder / name).unlink()
    lacks = rf"the file {name}, which its SHA256SUMS lists|\(no {name} is there\)"
    with pytest.raises(InputError, match=lacks):
        open_run(folder)


def test_a_run_with_a_file_too_many_is_refused(folder):
    (folder / "notes.txt").touch()
    with pytest.raises(InputError, match=r"no file that its SHA256SUMS does not list, got notes.t"):
        open_run(folder)
    seal(folder)
    with pytest.raises(InputError, match=r"wanted the files \['snapshot-0000.*got .*notes.txt"):
        open_run(folder)


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
        headed(b"[" * 100_000),
        headed([TENSOR]),
        headed({"W": TENSOR, "__metadata__": metadata(matrices={"W": 3})}),
        save({"W": torch.ones(2, 2)}),
        save({"W": torch.ones(2, 2)}, metadata(colour="blue")),
        save({"V": torch.ones(2, 2)}, metadata()),
        save({"W": torch.ones(2, 2, 2)}, metadata()),
    ],
)
def test_a_foreign_snapshot_is_refused_even_where_its_digest_fits(tmp_path, foreign):
    write_table(pd.DataFrame({"snapshot": [0], "step": [0]}), tmp_path / "steps.parquet")
    (tmp_path / "snapshot-0000.safetensors").write_bytes(foreign)
    seal(tmp_path)
    with pytest.raises(InputError, match=r"snapshot-0000\.safetensors: wanted "):
        read_all(tmp_path)


@pytest.mark.parametrize(
    "steps",
    [
        pd.DataFrame({"step": [0, 1, 10]}),
        pd.DataFrame({"snapshot": [0.5, 1.0, 2.0]}),
    ],
)
def test_a_foreign_table_of_steps_is_refused_even_where_its_digest_fits(folder, steps):
    write_table(steps, folder / "steps.parquet")
    seal(folder)
    with pytest.raises(InputError, match=r"steps\.parquet: wanted |: wanted the files "):
        open_run(folder)


@pytest.mark.parametrize("axes", [["row"], ["head", "seed", "row", "col"]])
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
    given = toy_weights(0) | {"W": torch.zeros(4, 4)}
    wanted = r"wanted W with axes \['seed', 'row', 'col'\], got \[4, 4\]"
    with (
        pytest.raises(InputError, match=wanted),
        write_run(tmp_path, "run", toy_layout()) as run,
    ):
        run.add(given, [{"step": 0}])


def test_a_folder_of_runs_is_opened_by_name(tmp_path):
    for name in ("b", "a"):
        write_toy(tmp_path / name)
    assert [run.folder.name for run in open_runs(tmp_path)] == ["a", "b"]


@pytest.mark.parametrize("name", ["empty", "gone"])
def test_a_folder_without_runs_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=f"{name}: wanted a folder of runs, got none"):
        open_runs(tmp_path / name)


def test_the_example_of_the_docs_reads_a_run(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    [folder] = re.findall(r'open_runs\(Path\("(.+?)"\)\)', example)
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
    assert [one.folder for one in open_runs(written.parent, "toy")] == [written]
    with pytest.raises(InputError, match=f"{written}: wanted a run of another, got one of toy"):
        open_runs(written.parent, "another")
