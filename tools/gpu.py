"""All that waits for a GPU, for the day on which one is at hand: `make gpu MINUTES=25 KEEP=folder`.

It checks the machine, measures the speed of the training beside a plain loop (benchmarks/gpu.py), and trains the
paper's CIFAR-10 at init scale 1, each init scale with its null of permuted labels, then at .1, then at the others;
then CIFAR-100. What the minutes do not suffice for is stopped, and goes on when the command is given again. After
every training the tables and figures of all that is finished are published and packed: `results.tar.gz` is all that is
to be kept, and all that a call on another machine needs so as to repeat nothing that is finished.

How many epochs (at most the paper's 500) is chosen once, from the measured speed, so that all init scales of the first
data set are done within the minutes; EPOCHS chooses it by hand. No DVC is needed: with `python -m tools.gpu 25` python,
torch and the packages that the checks name suffice. `--device cpu` rehearses on a CPU.
"""

import gzip
import importlib.util
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.io.base.command import run
from lib.io.base.files import InputError, atomic, sha256, write_files

ROOT = Path(__file__).parents[1]
EPOCHS = (500, 300, 200, 150, 100, 70, 50, 30, 20, 10, 5, 3, 2, 1)
FOR_TRAINING = 0.6  # of the minutes that are left when the speed is known; the others start, compile and analyse
LONGEST_MEASUREMENT = 20  # seconds for each loop
WARMUP_SHARE = 0.1  # at most, of the steps
SNAPSHOTS = 20
CONTROLS = ROOT / "stages" / "vision" / "controls.tsv"
ARCHIVE = "results.tar.gz"
PART = 15 * 10**6  # bytes of a file in KEEP
PARTS = 4  # so that the old parts and the new ones are at most eight files while these take the place of those
MEMBERS = re.compile(  # of an archive of results
    r"(notes|speed)\.json|published/[A-Za-z0-9_][A-Za-z0-9_.,=+-]*/"
    r"((provenance|measures|summary|headlines)\.json|tables/[a-z_]+\.parquet|figures/[A-Za-z0-9_-]+\.svg)"
)
FREE = ("init_scales", "n_seeds", "first_seed", "max_hours")  # params of `train` in which kept results may differ
PACKAGES = {
    "torch": "torch", "numpy": "numpy", "pandas": "pandas", "pyarrow": "pyarrow", "safetensors": "safetensors",
    "pydantic": "pydantic", "ruamel.yaml": "ruamel.yaml", "jaxtyping": "jaxtyping", "tqdm": "tqdm",
    "filelock": "filelock", "threadpoolctl": "threadpoolctl", "scipy": "scipy", "matplotlib": "matplotlib",
}  # fmt: skip
Section = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One seed at one init scale, with its controls: what is trained, measured and kept at a time."""

    dataset: str
    section: Section  # of all that is trained of the data set
    scale: float
    seed: int

    @property
    def alone(self) -> Section:
        """The section with nothing but this cell to train."""
        section = deepcopy(self.section)
        section["train"] |= {"init_scales": [self.scale], "n_seeds": 1, "first_seed": self.seed}
        section["train"]["controls"] = self._controls()
        return section

    @property
    def is_cut(self) -> bool:
        """Whether the section has updates of this init scale cut."""
        return self.scale in self.section["cut"]["init_scales"]

    def _controls(self) -> list[str]:
        """The controls at this init scale; those of a scale that is not trained come with the first."""
        from lib.io.cases import chosen_cases
        from stages.vision.train import Variant

        train = self.section["train"]
        scales = train["init_scales"]
        here = [None, self.scale]
        cases = chosen_cases(CONTROLS, Variant, train["controls"], "controls")
        return [
            case.name
            for case in cases
            if case.init_scale in here or (self.scale == scales[0] and case.init_scale not in scales)
        ]


class OutOfTimeError(Exception):
    """The minutes are over."""


class Clock:
    """The minutes that were given."""

    def __init__(self, minutes: float):
        self.end = time.monotonic() + 60 * minutes

    @property
    def left(self) -> float:
        """Seconds, at least 0."""
        return max(0.0, self.end - time.monotonic())

    def stop(self) -> None:
        """The minutes are over now."""
        self.end = 0.0


def main(
    minutes: float,
    folder: Path = Path("gpu"),
    params: Path = ROOT / "params.yaml",
    datasets: str = "cifar10 cifar100",
    source: str = "",
    epochs: int = 0,
    device: str = "cuda",
    keep: Path | None = None,
) -> None:
    """Check, measure, train and publish within `minutes`; all lies in `folder`, and is found there by the next call.

    `source` is a folder with the official files or archives of CIFAR; without it they are downloaded. `keep` is a
    folder for the results, from which a call in another `folder` goes on.
    """
    clock = Clock(minutes)
    check_packages()
    sections = {name: given(params, name, device, source) for name in datasets.split()}
    check_device(device)
    signal.signal(signal.SIGTERM, lambda *_: clock.stop())
    work = Work(folder.absolute(), clock, shared(params), keep)
    try:
        chosen = work.epochs(epochs, sections)
        for cell in cells(sections, chosen, work):
            work.carry_out(cell)
    except OutOfTimeError:
        work.pack()
        print("the time is over; the same command goes on where it stopped", flush=True)
    else:
        work.pack()
        print(f"all is done: {keep or folder}", flush=True)


def check_packages() -> None:
    """Raises `InputError` that names the packages which are missing."""
    missing = [package for name, package in PACKAGES.items() if not there(name)]
    if missing:
        raise InputError(
            f"packages: wanted all that stages import, got none of: {' '.join(missing)} (pip install them)"
        )


def there(module: str) -> bool:
    """Whether a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def given(params: Path, dataset: str, device: str, source: str) -> Section:
    """The section of a data set in the params file, for that device."""
    from lib.io.base.params import load_yaml

    sections = load_yaml(params)["vision"]
    known = [name for name, value in sections.items() if isinstance(value, dict) and "train" in value]
    if dataset not in known:
        raise InputError(f"DATASETS: wanted some of {known}, the data sets of vision in {params}, got {dataset!r}")
    section = deepcopy(sections[dataset])
    section["train"]["device"] = device
    if source:
        section["data"]["source_folder"] = str(Path(source).absolute())
    return section


def shared(params: Path) -> Section:
    """What the params file says of all data sets."""
    from lib.io.base.params import load_yaml
    from tools.publish import SHARED

    sections = load_yaml(params)["vision"]
    return {part: sections[part] for part in SHARED}


def check_device(device: str) -> None:
    """Say what the device is; raises `InputError` where torch has none, or where it computes something else."""
    import torch

    from lib.io.device import use_device

    found = use_device(device)
    draw = torch.Generator().manual_seed(0)
    A, B = torch.randn(2, 256, 256, generator=draw).bfloat16()
    error = ((A.to(found) @ B.to(found)).float().cpu() - A.float() @ B.float()).abs().max().item()
    if not error < 1:  # of entries near 16, with 8 bits
        raise InputError(f"{device}: wanted a product of matrices in bfloat16 right to 1, got an error of {error:.3g}")
    print(f"python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)
    if found.type == "cuda":
        properties = torch.cuda.get_device_properties(found)
        print(f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, driver {driver()}", flush=True)


def driver() -> str:
    """The version of NVIDIA's driver, where its tool is there to say it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def cells(sections: dict[str, Section], epochs: int, work: "Work") -> Iterator[Cell]:
    """What is done one after another: of each data set all init scales with its first seed, then with the next."""
    for dataset, section in sections.items():
        section = shaped(section, work.shared["evaluate"]["reference_scale"], epochs, work.images(dataset, section))
        train = section["train"]
        first = train.get("first_seed", 0)
        for seed in range(first, first + train["n_seeds"]):
            for scale in train["init_scales"]:
                yield Cell(dataset, section, scale, seed)


def shaped(section: Section, reference: float, epochs: int, n_images: int) -> Section:
    """The section with the reference scale before the others, the largest first, trained for so many epochs."""
    section = deepcopy(section)
    train = section["train"]
    n_steps = epochs * (n_images // train["batch_size"])
    train |= {
        "init_scales": [reference, *sorted(set(train["init_scales"]) - {reference}, reverse=True)],
        "n_steps": n_steps,
        "warmup_steps": min(train["warmup_steps"], int(WARMUP_SHARE * n_steps)),
        "snapshot_every": max(1, n_steps // SNAPSHOTS),
    }
    return section


def affordable(seconds: float, trainings: int, n_images: int, images_per_second: float) -> int:
    """The most epochs of `EPOCHS` that so many trainings can have in the seconds; at least one."""
    possible = seconds * images_per_second / (trainings * n_images)
    return next((epochs for epochs in EPOCHS if epochs <= possible), EPOCHS[-1])


def put(packed: bytes, keep: Path) -> None:
    """Write the results into a folder, in parts where they are large; what was there stays until they are whole."""
    n_parts = -(-len(packed) // PART)
    if n_parts > PARTS:
        raise InputError(f"{keep}: wanted results of at most {PARTS * PART / 1e6:g} MB, got {len(packed) / 1e6:.1f} MB")
    name = f"{ARCHIVE}.{sha256(packed)[:8]}"
    names = [f"{name}.{i + 1}-of-{n_parts}" for i in range(n_parts)] if n_parts > 1 else [ARCHIVE]
    write_files(keep, {name: packed[i * PART : (i + 1) * PART] for i, name in enumerate(names)})
    for old in [*keep.glob(f"{ARCHIVE}*"), *keep.glob(f".{ARCHIVE}*.part")]:
        if old.name not in names:
            old.unlink()


def archive_in(keep: Path) -> bytes | None:
    """The results in a folder, of which a killed call may have left old parts and new ones; None where there are none.

    Raises `InputError` where some parts are missing.
    """
    parts = sorted(keep.glob(f"{ARCHIVE}.*-of-*"))
    for name in dict.fromkeys(part.name.rsplit(".", 1)[0] for part in parts):
        packed = b"".join(part.read_bytes() for part in parts if part.name.startswith(name))
        if sha256(packed)[:8] == name.removeprefix(f"{ARCHIVE}."):
            return packed
    if (keep / ARCHIVE).exists():
        return (keep / ARCHIVE).read_bytes()
    if parts:
        raise InputError(f"{keep}: wanted all parts of {ARCHIVE}, got {[part.name for part in parts]}")
    return None


def unpack(packed: bytes, folder: Path, keep: Path) -> None:
    """Put the results, which come from `keep`, in place of those in a folder; raises `InputError` for anything else."""
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for member in archive:
                if not (member.isfile() and MEMBERS.fullmatch(member.name)):
                    raise InputError(f"{keep}: wanted results of `make gpu`, got {member.name!r} in {ARCHIVE}")
            if (folder / "published").exists():
                shutil.rmtree(folder / "published")
            archive.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{keep}: wanted {ARCHIVE} as it was written, got: {error}") from error


class Work:
    """The folder in which stages run as in the repository, with its own params, data, scratch and results.

    It begins with the results in `keep`, or else with those that an earlier call has packed in the folder itself.
    """

    def __init__(self, folder: Path, clock: Clock, shared: Section, keep: Path | None = None):
        self.folder, self.clock, self.shared, self.keep = folder, clock, shared, keep
        folder.mkdir(parents=True, exist_ok=True)
        for place in filter(None, [keep, folder]):
            packed = archive_in(place)
            if packed is not None:
                unpack(packed, folder, place)
                break
        self.notes: dict[str, Any] = self._read("notes.json") or {"epochs": 0, "n_images": {}, "seconds": {}}

    def images(self, dataset: str, section: Section) -> int:
        """The number of training images; what no call has counted is fetched."""
        from lib.data.images import read_images

        if dataset not in self.notes["n_images"]:
            images = read_images(self._fetched(dataset, section))
            self.notes["n_images"][dataset] = len(images.train_labels)
        return self.notes["n_images"][dataset]

    def speed(self, dataset: str, section: Section) -> dict[str, Any]:
        """The measured rates, once for a machine."""
        from benchmarks.gpu import machine
        from lib.io.device import use_device

        here = machine(use_device(section["train"]["device"]))
        found = self._read("speed.json") or {}
        if any(found.get(name) != value for name, value in here.items()):
            images = self._fetched(dataset, section)
            seconds = min(LONGEST_MEASUREMENT, self.clock.left / 60)
            arguments = [f"vision.{dataset}.train", str(images), "speed.json", "--seconds", f"{seconds:g}"]
            self._run(dataset, section, ["benchmarks.gpu", *arguments])
            found = self._read("speed.json") or {}
        return found

    def epochs(self, wanted: int, sections: dict[str, Section]) -> int:
        """How many epochs: those that are wanted, those of the call before, or what the speed and the time allow."""
        dataset, section = next(iter(sections.items()))
        n_images = self.images(dataset, section)
        speed = self.speed(dataset, section)
        chosen = wanted or self.notes["epochs"]
        if not chosen:
            train = section["train"]
            trainings = train["n_seeds"] * (1 + len(train["controls"])) * len(train["init_scales"])
            rate = speed["images_per_second"].get("compiled", speed["images_per_second"]["not compiled"])
            chosen = affordable(FOR_TRAINING * self.clock.left, trainings, n_images, rate)
        self.notes["epochs"] = chosen
        self._note()
        print(f"{chosen} epochs", flush=True)
        return chosen

    def carry_out(self, cell: Cell) -> None:
        """Train, analyse, draw and publish, if that is not done; raises `OutOfTimeError` where the clock ends it."""
        from lib.io.base.tables import significant

        found = self._published(cell)
        if (significant(cell.scale), cell.seed) in [(one["init_scale"], one["seed"]) for one in found]:
            return
        name = f"init_scale={cell.scale:g},seed={cell.seed}"
        print(f"{cell.dataset}: {name}", flush=True)
        images = str(self._fetched(cell.dataset, cell.section))
        data, metrics = f"data/vision/{cell.dataset}/{name}", f"metrics/vision/{cell.dataset}"
        runs, spectra = f"{data}/runs", f"{data}/spectra.parquet"
        cuts = [f"{data}/truncate.parquet", f"{data}/prune.parquet"]
        plots, ours = f"plots/vision/{cell.dataset}", f"vision.{cell.dataset}"
        beside = ["--beside", f"published/{cell.dataset}/tables"] if found else []

        def stage(*command: str) -> None:
            self._run(cell.dataset, cell.alone, [*command])

        stage("stages.vision.train", f"{ours}.train", str(CONTROLS), images, runs)
        stage("stages.spectra", runs, spectra)
        if cell.is_cut or not found:
            stage("stages.vision.cut", f"{ours}.cut", "vision.cut", f"{ours}.train.device", images, runs, *cuts)
        else:
            self._without_cuts(cuts)
        made = [runs, spectra, *cuts, metrics, f"{plots}/training.csv"]
        stage("stages.vision.evaluate", "vision.evaluate", f"{ours}.train.model", *made, *beside)
        stage("stages.vision.plot", "vision.plot", f"{metrics}/tables", f"{plots}/figures")
        self._publish(cell, found)
        self.pack()

    def pack(self) -> None:
        """Write the archive of results: what is published, the speeds, and what calls note for the next."""
        self._note()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for file in sorted(self.folder.glob("*.json")) + sorted((self.folder / "published").rglob("*.*")):
                if MEMBERS.fullmatch(file.relative_to(self.folder).as_posix()):
                    archive.add(file, file.relative_to(self.folder))
        write_files(self.folder, {ARCHIVE: packed.getvalue()})
        if self.keep is not None:
            put(packed.getvalue(), self.keep)

    def _fetched(self, dataset: str, section: Section) -> Path:
        """The data set, in the folder; it is fetched and made where it is not there."""
        images = Path("data", "vision", dataset, "images.safetensors")
        official = f"data/vision/{dataset}/official"
        if not (self.folder / images).exists():
            data = f"vision.{dataset}.data"
            self._run(dataset, section, ["stages.vision.fetch", data, official])
            self._run(dataset, section, ["stages.vision.generate", data, official, str(images)])
        return self.folder / images

    def _without_cuts(self, cuts: list[str]) -> None:
        """Tables of no cut model."""
        import pandas as pd

        from lib.io.base.tables import write_table

        for name in cuts:
            write_table(pd.DataFrame({"init_scale": [], "control": [], "seed": []}), self.folder / name)

    def _published(self, cell: Cell) -> list[dict[str, Any]]:
        """What is finished of the data set; raises `InputError` where other params have made it."""
        from lib.io.base.tables import significant

        note = self._read(f"published/{cell.dataset}/provenance.json")
        if note is None:
            return []
        got, wanted = compared(note["params"]), compared(significant(self._recorded(cell)))
        if got != wanted:
            differ = [f"{name}={got.get(name)}" for name in got | wanted if got.get(name) != wanted.get(name)]
            raise InputError(
                f"{self.keep or self.folder}: wanted results of these params, got some of {cell.dataset} with "
                f"{', '.join(differ)}; give another KEEP and FOLDER, which keeps both"
            )
        return note["trainings"]

    def _publish(self, cell: Cell, found: list[dict[str, Any]]) -> None:
        """Copy what was measured of this cell and those before it, with where each was made."""
        from tools.publish import code, copy, provenance

        note = provenance(self._recorded(cell), self.images(cell.dataset, cell.section))
        made = {name: note[name] for name in ("device", "commit", "versions")} | {"code": code(ROOT)}
        trainings = [*found, {"init_scale": cell.scale, "seed": cell.seed} | made]
        seeds = sorted({one["seed"] for one in trainings})
        note["params"]["train"] |= {
            "init_scales": list(dict.fromkeys(one["init_scale"] for one in trainings)),
            "n_seeds": len(seeds),
        }
        note |= {
            "seeds": seeds,
            "command": " ".join(["python -m tools.gpu", *sys.argv[1:]]),
            "wall_hours": self.notes["seconds"][cell.dataset] / 3600,
            "trainings": trainings,
        }
        copy(cell.dataset, note, self.folder)

    def _recorded(self, cell: Cell) -> Section:
        """What is published of the params: not where this machine has the official files, which are verified."""
        from tools.publish import with_shared

        section = deepcopy(with_shared(cell.section, self.shared))
        section["data"].pop("source_folder", None)
        return section

    def _run(self, dataset: str, section: Section, command: list[str]) -> None:
        """Run a module in the folder, with these params, until the clock ends it."""
        params = {"vision": self.shared | {dataset: section}}
        (self.folder / "params.yaml").write_text(json.dumps(params, indent=1))
        environment = {name: value for name, value in os.environ.items() if name != "DVC_ROOT"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        begin = time.monotonic()
        if not self.clock.left:
            raise OutOfTimeError
        process = subprocess.Popen([sys.executable, "-m", *command], cwd=self.folder, env=environment)
        try:
            while process.poll() is None and self.clock.left:
                time.sleep(0.05)
        finally:
            process.kill()
            code = process.wait()
            seconds = self.notes["seconds"]
            seconds[dataset] = seconds.get(dataset, 0.0) + time.monotonic() - begin
            self._note()
        if code and not self.clock.left:
            raise OutOfTimeError
        if code:
            raise InputError(f"{command[0]}: wanted a stage that ends well, got the exit code {code}")

    def _read(self, name: str) -> Any:
        file = self.folder / name
        return json.loads(file.read_text()) if file.exists() else None

    def _note(self) -> None:
        with atomic(self.folder / "notes.json") as part:
            part.write_text(json.dumps(self.notes))


def compared(params: Section) -> Section:
    """The params by name in which results that are kept together must agree."""
    parts = {part: dict(params[part]) for part in ("data", "train", "cut", "evaluate")}
    for name in FREE:
        parts["train"].pop(name, None)
    return {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}


if __name__ == "__main__":
    run(main, environment=True)
