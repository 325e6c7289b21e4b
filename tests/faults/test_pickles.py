"""Nothing that is read is unpickled: a pickle may run any code."""

import ast
import subprocess
import sys

from tests.pipeline.project import ROOT

# What would unpickle, or may where it is asked for; CIFAR's own format is read by an unpickler that
# looks up no name.
FORBIDDEN = {
    "torch.load",
    "np.load",
    "numpy.load",
    "joblib.load",
    "pd.read_pickle",
    "pickle.load",
    "pickle.loads",
}
FORBIDDEN |= {
    "marshal.load",
    "marshal.loads",
    "shelve.open",
    "cloudpickle.load",
    "cloudpickle.loads",
    "dill.load",
}
FOLDERS = ("lib", "stages", "tools", "benchmarks")
# Reads one file of each kind as stages do, in one process, where a hook notes every name that a
# pickle looks up.
READS = """
import pickle, sys
from pathlib import Path
import pandas as pd, torch
from safetensors.torch import save
from lib.vision import cifar
from lib.vision.images import read_images
from lib.work.compute import spread
from lib.files.inputs import verify, with_digest
from lib.files.params import load_yaml
from lib.checkpoints.folders import open_checkpoint
from lib.files.runs import Layout, open_run, write_run
from lib.work.scratch import Scratch
from lib.files.tables import read_json, read_table, write_json, write_table

found = []
sys.addaudithook(lambda event, args: found.append(args) if event == "pickle.find_class" else None)
here = Path(sys.argv[1])
write_table(pd.DataFrame({"n": [1], "text": ["a"], "list": [[1.0]]}), here / "table.parquet")
read_table(here / "table.parquet")
write_json({"a": 1}, here / "a.json")
read_json(here / "a.json")
(here / "params.yaml").write_text("a: !!python/object/apply:os.system ['true']")
try:
    load_yaml(here / "params.yaml")
except ValueError:
    pass
with write_run(here / "runs", "one", Layout("toy", {"W": ["row", "col"]})) as run:
    run.add({"W": torch.eye(2)}, [{"step": 0}])
open_run(here / "runs" / "one").weights(0)
made = {"images": torch.zeros(2, 1, 2, 2, dtype=torch.uint8), "labels": torch.tensor([0, 1])}
images = {f"{part}_{what}": x.clone() for part in ("train", "test") for what, x in made.items()}
(here / "images.safetensors").write_bytes(with_digest(save(images)))
verify(here / "images.safetensors")
read_images(here / "images.safetensors")
with Scratch("stage", {}, here) as scratch:
    scratch.save("one", {"W": torch.eye(2)}, {"step": 1})
    scratch.load("one")
list(spread(abs, [(1,), (2,)], n_processes=1, label="", unit=""))
(here / "model").mkdir()
(here / "model" / "config.json").write_text("{}")
(here / "model" / "model.safetensors").write_bytes(save({"W": torch.eye(2)}))
open_checkpoint(here / "model").load("W")
try:
    cifar.parse_batch(pickle.dumps(Path("a"), protocol=2), b"labels", 2, "batch")
except ValueError as error:
    assert "the forbidden name pathlib." in str(error), error
assert found == [], found
pickle.loads(pickle.dumps(Path("a")))
assert found, "the hook notes nothing"
print("done")
"""


def test_readers_of_every_kind_of_file_look_up_no_name_of_a_pickle(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", READS, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


def test_no_code_calls_what_unpickles():
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            called = {
                ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)
            }
            if (
                path.name == "ray_workers.py"
            ):  # what a worker of ours gave: the jobs of this process, and their results
                called -= {"pickle.loads"}
            assert not called & FORBIDDEN, path
            imported = {
                name.name
                for node in ast.walk(tree)
                if isinstance(node, ast.Import | ast.ImportFrom)
                for name in node.names
            }
            assert "pickle" not in imported or path.name in ("cifar.py", "ray_workers.py"), path
