"""Everything that waits for a GPU, in one command: `make gpu MINUTES=25 KEEP=kept`.

It checks the machine, measures the speed of the training beside a plain loop (benchmarks/gpu.py)
and that of ViT-B/16, trains low_rank_sparse there and on the CPU, and then the paper's CIFAR-10 at
init scale 1, each init scale with its null of permuted labels, then at .1, then at the others; then
CIFAR-100, and the same images with twenty coarse labels. When the minutes are over, the work stops,
and it goes on when the command is given again. After every init scale tables and figures are
published, and `results.tar.gz` in the folder KEEP holds all that is to be kept. A call on another
machine goes on from there and repeats no init scale that is finished; data, checkpoints and runs
stay in FOLDER.

The number of epochs (at most the paper's 500) is chosen once, from the measured speed, so that all
init scales of the first data set are done within the minutes; EPOCHS sets it by hand. DVC is not
needed: for `python -m tools.gpu 25`, Python, torch and the packages that the checks name suffice.
`--device cpu` rehearses on a CPU.
"""

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
from typing import TYPE_CHECKING, Any

from lib.files.files import InputError, atomic, sha256, write_files
from lib.work.command import run

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).parents[1]
EPOCHS = (500, 300, 200, 150, 100, 70, 50, 30, 20, 10, 5, 3, 2, 1)
# the share of the minutes left for training; in the rest, programs start, compile and analyse
FOR_TRAINING = 0.6
LONGEST_MEASUREMENT = 20  # seconds for each loop
WARMUP_SHARE = 0.1  # of the steps, at most
SNAPSHOTS = 20
SEEDS_TOGETHER = 64  # seeds of low_rank_sparse, which are trained as one
CONTROLS = ROOT / "stages" / "vision" / "controls.tsv"
CONFIGURATIONS = ROOT / "stages" / "low_rank_sparse" / "configurations.tsv"
COARSE = "cifar100_coarse"  # CIFAR-100 with the labels of its twenty groups of classes
ARCHIVE = "results.tar.gz"
PART = 15 * 10**6  # bytes of a file in KEEP, at most
# the most parts, so that an archive and the one that it replaces are at most eight files
PARTS = 4
RESULTS = re.compile(  # the files of an archive: none that Python would run
    r"(speed|epochs|seconds|vit_b_16|one_layer)\.json|published/\w[\w.,=+-]*/"
    r"(\w+\.json|measures\.csv|tables/\w+\.parquet|figures/[\w-]+\.svg)"
)
PACKAGES = (  # packages: the name of each in an import, and to be installed
    "torch",
    "numpy",
    "pandas",
    "pyarrow",
    "safetensors",
    "pydantic",
    "ruamel.yaml",
    "jaxtyping",
    "tqdm",
    "filelock",
    "threadpoolctl",
    "scipy",
    "matplotlib",
)
Section = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """A data set with some of its init scales, which are published together; the last of them is
    new.
    """

    dataset: str
    section: Section

    @property
    def new(self) -> "Step":
        """The step with the last init scale alone; controls with an init scale of their own come
        with the first.
        """
        from lib.vision.variants import chosen_cases

        section = deepcopy(self.section)
        train = section["train"]
        if len(train["init_scales"]) > 1:
            cases = chosen_cases(CONTROLS, train["controls"])
            train["controls"] = [case.name for case in cases if case.init_scale is None]
        train["init_scales"] = train["init_scales"][-1:]
        return Step(self.dataset, section)


class OutOfTimeError(Exception):
    """The error that says that the minutes are over."""


class Clock:
    """A clock that runs for the minutes that were given."""

    def __init__(self, minutes: float):
        self.end = time.monotonic() + 60 * minutes

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self.end - time.monotonic())

    def stop(self) -> None:
        """End the minutes now."""
        self.end = 0.0


def main(
    minutes: float,
    folder: Path = Path("gpu"),
    params: Path = ROOT / "params.yaml",
    datasets: str = f"cifar10 cifar100 {COARSE}",
    source: str = "",
    epochs: int = 0,
    device: str = "cuda",
    keep: Path | None = None,
) -> None:
    """Check, measure, train and publish within `minutes`; everything lies in `folder`, where the
    next call finds it.

    `source` is a folder with the official files or archives of CIFAR; without it they are
    downloaded. `keep` is the folder for the archive of results, without it `folder`. A SIGTERM ends
    the minutes.
    """
    clock = Clock(minutes)
    check_packages()
    from lib.files.params import load_yaml

    all_sections = load_yaml(params)
    vision = all_sections["vision"]
    sections = {name: given(vision, name, device, source) for name in datasets.split()}
    check_device(device)
    folder.mkdir(parents=True, exist_ok=True)
    work = Work(folder.absolute(), clock, shared(vision), keep)
    signal.signal(signal.SIGTERM, lambda *_: clock.stop())
    try:
        first = next(iter(sections))
        n_images = work.images(Step(first, sections[first]))
        speed = work.speed(Step(first, sections[first]))
        chosen = work.epochs(epochs, sections[first], n_images, speed)
        work.vit_b_16(vision, device)
        work.one_layer(all_sections.get("low_rank_sparse"), device)
        work.pack()
        for step in steps(sections, chosen, work):
            work.carry_out(step)
    except OutOfTimeError:
        work.pack()
        print("the time is over; the same command goes on where it stopped", flush=True)
    else:
        work.pack()
        print(f"all is done: {work.keep / ARCHIVE}", flush=True)


def check_packages() -> None:
    """Raise `InputError`, with the names of missing packages, where there are any."""
    missing = [name for name in PACKAGES if not there(name)]
    if missing:
        raise InputError(
            f"packages: wanted all that stages import, got none of: {' '.join(missing)} (pip "
            "install them)"
        )


def there(module: str) -> bool:
    """Whether a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def given(vision: Section, dataset: str, device: str, source: str) -> Section:
    """The section of a data set among those of vision, set to that device."""
    known = {
        name: value
        for name, value in vision.items()
        if isinstance(value, dict) and "train" in value
    }
    if "cifar100" in known:
        fine = known["cifar100"]
        known[COARSE] = fine | {"data": fine["data"] | {"labels": "coarse"}}
    if dataset not in known:
        wanted = f"wanted some of {list(known)}, the data sets of vision"
        raise InputError(f"DATASETS: {wanted}, got {dataset!r}")
    section = deepcopy(known[dataset])
    section["train"]["device"] = device
    if source:
        section["data"]["source_folder"] = str(Path(source).absolute())
    return section


def shared(vision: Section) -> Section:
    """The entries in the sections of vision that hold for all data sets."""
    from tools.publish import SHARED

    return {part: vision[part] for part in SHARED}


def check_device(device: str) -> None:
    """Say what the device is; raise `InputError` where torch has none, or where it computes
    wrongly.
    """
    import torch

    from lib.training.devices import use_device

    found = use_device(device)
    draw = torch.Generator().manual_seed(0)
    A, B = torch.randn(2, 256, 256, generator=draw).bfloat16()
    error = ((A.to(found) @ B.to(found)).float().cpu() - A.float() @ B.float()).abs().max().item()
    if not error < 1:  # the entries are near 16, with 8 bits
        raise InputError(
            f"{device}: wanted a product of matrices in bfloat16 right to 1, got an error of "
            f"{error:.3g}"
        )
    print(
        f"python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda}",
        flush=True,
    )
    if found.type == "cuda":
        properties = torch.cuda.get_device_properties(found)
        print(
            f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, driver {driver()}",
            flush=True,
        )


def driver() -> str:
    """The version of NVIDIA's driver, where its tool is there to say it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )[0]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def steps(sections: dict[str, Section], epochs: int, work: "Work") -> Iterator[Step]:
    """The steps in their order: for each data set first the reference scale, then each further
    scale beside it.
    """
    for dataset, section in sections.items():
        n_images = work.images(Step(dataset, section))
        reference = work.shared["evaluate"]["reference_scale"]
        others = sorted(
            (s for s in section["train"]["init_scales"] if s != reference), reverse=True
        )
        for n in range(len(others) + 1):
            yield Step(dataset, shaped(section, [reference, *others[:n]], epochs, n_images))


def shaped(section: Section, scales: list[float], epochs: int, n_images: int) -> Section:
    """The section with these init scales, trained for so many epochs."""
    section = deepcopy(section)
    train = section["train"]
    n_steps = epochs * (n_images // train["batch_size"])
    train |= {
        "init_scales": scales,
        "n_steps": n_steps,
        "warmup_steps": min(train["warmup_steps"], int(WARMUP_SHARE * n_steps)),
        "snapshot_every": max(1, n_steps // SNAPSHOTS),
    }
    return section


def compared(losses: dict[str, "pd.DataFrame"]) -> dict[str, float]:
    """The difference of the mean losses over seeds of two devices, and the standard deviations."""
    by_step = {
        name: table.groupby(["configuration", "step"])["loss"] for name, table in losses.items()
    }
    difference = by_step["device"].mean() - by_step["cpu"].mean()
    return {
        "largest_difference": float(difference.abs().max()),
        "largest_spread": float(by_step["cpu"].std().max()),
    }


def affordable(seconds: float, trainings: int, n_images: int, images_per_second: float) -> int:
    """The most epochs, among `EPOCHS`, for which the seconds suffice; at least one."""
    possible = seconds * images_per_second / (trainings * n_images)
    return next((epochs for epochs in EPOCHS if epochs <= possible), EPOCHS[-1])


def block_of(stage: str) -> dict[str, Any]:
    """The block of a stage of vision in dvc.yaml."""
    from lib.files.params import load_yaml

    return load_yaml(ROOT / "dvc.yaml")["stages"][f"vision_{stage}"]


def command_of(stage: str, dataset: str) -> list[str]:
    """The module of a stage of vision and its arguments, as dvc.yaml has them for a data set."""
    filled = {"${item.dataset}": dataset, "${vision.cases.controls}": str(CONTROLS)}
    words = block_of(stage)["cmd"].removeprefix("python -m ").split()
    for name, value in filled.items():
        words = [word.replace(name, value) for word in words]
    return words


def outs_of(stage: str, dataset: str) -> list[str]:
    """What a stage of vision writes for a data set, as dvc.yaml has it."""
    return [out.replace("${item.dataset}", dataset) for out in block_of(stage)["outs"]]


def put(packed: bytes, keep: Path) -> None:
    """Write an archive into a folder, in parts if it is large; the archive before it stays until
    the new one is whole.
    """
    n_parts = -(-len(packed) // PART)
    if n_parts > PARTS:
        raise InputError(
            f"{keep}: wanted results of at most {PARTS * PART} bytes, got {len(packed)}"
        )
    digest = sha256(packed)[:8]
    names = (
        [f"{ARCHIVE}.{digest}.{i + 1}-of-{n_parts}" for i in range(n_parts)]
        if n_parts > 1
        else [ARCHIVE]
    )
    write_files(keep, {name: packed[i * PART : (i + 1) * PART] for i, name in enumerate(names)})
    for old in [*keep.glob(f"{ARCHIVE}*"), *keep.glob(f".{ARCHIVE}*.part")]:
        if old.name not in names:
            old.unlink()


def archive_in(keep: Path) -> bytes | None:
    """The archive in a folder, None where there is none; raises `InputError` where parts of it are
    missing.
    """
    parts = sorted(keep.glob(f"{ARCHIVE}.*-of-*"))
    for name in {part.stem for part in parts}:  # a killed call may have left parts of two archives
        packed = b"".join(part.read_bytes() for part in parts if part.stem == name)
        if name == f"{ARCHIVE}.{sha256(packed)[:8]}":
            return packed
    if (keep / ARCHIVE).exists():
        return (keep / ARCHIVE).read_bytes()
    if parts:
        raise InputError(
            f"{keep}: wanted all parts of {ARCHIVE}, got {[part.name for part in parts]}"
        )
    return None


def unpack(packed: bytes, folder: Path, keep: Path) -> None:
    """Replace what a folder has published by what `keep` has, and add the other files that the
    folder lacks.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            members = archive.getmembers()
            for member in members:
                if not (member.isfile() and RESULTS.fullmatch(member.name)):
                    raise InputError(
                        f"{keep}: wanted results of `make gpu`, got {member.name!r} in {ARCHIVE}"
                    )
            shutil.rmtree(folder / "published", ignore_errors=True)
            new = [member for member in members if not (folder / member.name).exists()]
            archive.extractall(folder, new, filter="data")
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InputError(f"{keep}: wanted {ARCHIVE} as it was written, got: {error}") from error


class Work:
    """The folder in which stages run as in the repository, with its own params, data, scratch and
    results.

    It begins with the results that are in `keep`.
    """

    def __init__(self, folder: Path, clock: Clock, shared: Section, keep: Path | None = None):
        self.folder, self.clock, self.shared, self.keep = folder, clock, shared, keep or folder
        packed = archive_in(self.keep)
        if packed is not None:
            unpack(packed, folder, self.keep)
        self.seconds: dict[str, float] = self._kept("seconds.json", {})  # wall time by data set

    def images(self, step: Step) -> int:
        """Fetch and make the data set if it is missing; return how many training images it has."""
        from lib.vision.datasets import dataset_file, read_dataset

        [images] = outs_of("generate", step.dataset)
        if not (self.folder / images).exists():
            self._stage(step, "fetch")
            self._stage(step, "generate")
        return read_dataset(dataset_file(self.folder / images)).n_train

    def speed(self, step: Step) -> dict[str, Any]:
        """The rates of this machine, measured once."""
        from benchmarks.gpu import machine
        from lib.training.devices import use_device

        here = machine(use_device(step.section["train"]["device"]))
        found = self._kept("speed.json", {})
        if any(found.get(name) != value for name, value in here.items()):
            [images] = outs_of("generate", step.dataset)
            self._measure(step, "speed.json", "--images", images)
            found = self._kept("speed.json", {})
        return found

    def vit_b_16(self, vision: Section, device: str) -> None:
        """Measure the images per second of ImageNet's model on made images, if params have it."""
        if "imagenet" not in vision or (self.folder / "vit_b_16.json").exists():
            return
        section = given(vision, "imagenet", device, "")
        self._measure(Step("imagenet", section), "vit_b_16.json")

    def one_layer(self, section: Section | None, device: str) -> None:
        """Train low_rank_sparse on the CPU and on the device, where params have it: how long each
        takes, and how far the mean loss over seeds differs at any step, beside its spread.
        """
        from lib.files.tables import read_table

        if section is None or (self.folder / "one_layer.json").exists():
            return
        place = "one_layer"
        samples = f"{place}/samples.safetensors"
        family = "low_rank_sparse"
        of_generate = f"--section={family}.generate"
        generate = [f"stages.{family}.generate", of_generate, f"--dataset={samples}"]
        self._call(place, {family: section}, generate)
        seconds = {}
        losses = {}
        for name, kind in (("cpu", "cpu"), ("device", device)):
            train = section["train"] | {"device": kind, "seeds_together": SEEDS_TOGETHER}
            table = f"{place}/{name}.parquet"
            given_to = [
                f"--section={family}.train",
                f"--n-seeds={family}.generate.n_seeds",
                f"--configurations={CONFIGURATIONS}",
                f"--dataset={samples}",
            ]
            outs = [f"--runs={place}/{name}", f"--losses={table}"]
            command = [f"stages.{family}.train", *given_to, *outs]
            seconds[name] = self._call(place, {family: section | {"train": train}}, command)
            losses[name] = read_table(self.folder / table)
        self._keep("one_layer.json", {"seconds": seconds, **compared(losses)})

    def epochs(self, wanted: int, section: Section, n_images: int, speed: dict[str, Any]) -> int:
        """The number of epochs: the number that is wanted, or that of the call before, or the
        number that speed and time allow.
        """
        before = self._kept("epochs.json", 0)
        if wanted and before not in (0, wanted) and (self.folder / "published").exists():
            raise InputError(
                f"EPOCHS: wanted {before}, those of the results in {self.keep}, got {wanted}"
            )
        chosen = wanted or before
        if not chosen:
            train = section["train"]
            trainings = train["n_seeds"] * (1 + len(train["controls"])) * len(train["init_scales"])
            rate = speed["images_per_second"].get(
                "compiled", speed["images_per_second"]["not compiled"]
            )
            chosen = affordable(FOR_TRAINING * self.clock.left, trainings, n_images, rate)
        self._keep("epochs.json", chosen)
        print(f"{chosen} epochs", flush=True)
        return chosen

    def carry_out(self, step: Step) -> None:
        """Train, analyse, draw and publish, unless that is done; raises `OutOfTimeError` when the
        time is over.
        """
        if self._is_published(step):
            return
        new = step.new
        [scale] = new.section["train"]["init_scales"]
        published = self.folder / "published" / step.dataset / "tables"
        beside = ["--beside", str(published)] if self._provenance(step) else []
        print(f"{step.dataset}: init scale {scale:g}", flush=True)
        self._stage(new, "train")
        self._stage(new, "spectra")
        if scale in step.section["cut"]["init_scales"] or not beside:
            self._stage(new, "cut")
        else:
            self._without_cuts(outs_of("cut", step.dataset), published)
        self._stage(new, "evaluate", *beside)
        self._stage(new, "plot")
        self._publish(step)

    def pack(self) -> None:
        """Keep an archive of the measured speed, of all that is published, and of what the next
        call has to know.
        """
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for file in sorted(self.folder.glob("*.json")) + sorted(
                (self.folder / "published").rglob("*.*")
            ):
                name = file.relative_to(self.folder).as_posix()
                if RESULTS.fullmatch(name):
                    archive.add(file, name)
        put(packed.getvalue(), self.keep)

    def _without_cuts(self, cuts: list[str], published: Path) -> None:
        """Write tables without a row, for an init scale whose updates are not cut."""
        from lib.files.tables import read_table, write_table

        for name in cuts:
            write_table(read_table(published / Path(name).name)[:0], self.folder / name)

    def _provenance(self, step: Step) -> dict[str, Any]:
        """The provenance of what is published of the data set; empty if nothing is."""
        return self._kept(f"published/{step.dataset}/provenance.json", {})

    def _is_published(self, step: Step) -> bool:
        """Whether the step, or more init scales of the same data set, were published.

        Raises `InputError` where the published results have other params: they are not replaced.
        """
        from lib.files.tables import significant

        provenance = self._provenance(step)
        if not provenance:
            return False
        found = provenance["params"]
        wanted = significant(self._recorded(step))
        scales = [set(section["train"].pop("init_scales")) for section in (found, wanted)]
        if found != wanted:
            differ = [f"{part}={found[part]}" for part in wanted if found.get(part) != wanted[part]]
            raise InputError(
                f"{self.keep}: wanted results of these params, got some of {step.dataset} with "
                f"{', '.join(differ)}; "
                f"other params need another KEEP and FOLDER"
            )
        return scales[0] >= scales[1]

    def _publish(self, step: Step) -> None:
        from tools.publish import keep, provenance

        n_images = self.images(step)
        before = self._provenance(step)
        note = provenance(self._recorded(step), n_images)
        scales = note["params"]["train"]["init_scales"]
        made = {"init_scale": scales[-1]} | {
            name: note[name] for name in ("device", "commit", "versions")
        }
        note["made"] = [*before.get("made", []), made]
        note["params"]["train"]["init_scales"] = list(
            dict.fromkeys(one["init_scale"] for one in note["made"])
        )
        note |= {
            "command": " ".join(["python -m tools.gpu", *sys.argv[1:]]),
            "wall_hours": self.seconds[step.dataset] / 3600,
        }
        keep(step.dataset, note, self.folder)
        self.pack()

    def _recorded(self, step: Step) -> Section:
        """The params that are published: all but the folder of the official files on this machine,
        which are verified.
        """
        from tools.publish import with_shared

        section = deepcopy(with_shared(step.section, self.shared))
        section["data"].pop("source_folder", None)
        return section

    def _measure(self, step: Step, file: str, *options: str) -> None:
        """Measure the speed of a data set's training, for some seconds, into a file."""
        seconds = min(LONGEST_MEASUREMENT, self.clock.left / 60)
        command = ["benchmarks.gpu", f"vision.{step.dataset}.train", file, *options]
        self._run(step, [*command, "--seconds", f"{seconds:g}"])

    def _stage(self, step: Step, stage: str, *more: str) -> None:
        """Run a stage of vision by its command in dvc.yaml."""
        self._run(step, [*command_of(stage, step.dataset), *more])

    def _run(self, step: Step, command: list[str]) -> None:
        """Run a module in the folder, with the step's params, until the clock ends it."""
        params = {"vision": self.shared | {step.dataset: step.section}}
        self._call(step.dataset, params, command)

    def _call(self, name: str, params: Section, command: list[str]) -> float:
        """Run a module with these params; return the seconds of wall time, counted under a name."""
        (self.folder / "params.yaml").write_text(json.dumps(params, indent=1))
        environment = {name: value for name, value in os.environ.items() if name != "DVC_ROOT"}
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        begin = time.monotonic()
        if not self.clock.left:
            raise OutOfTimeError
        with subprocess.Popen(
            [sys.executable, "-m", *command], cwd=self.folder, env=environment
        ) as process:
            while process.poll() is None and self.clock.left:
                time.sleep(0.05)
            process.kill()  # if it has not ended
        seconds = time.monotonic() - begin
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._keep("seconds.json", self.seconds)
        if process.returncode and not self.clock.left:
            raise OutOfTimeError
        if process.returncode:
            raise InputError(
                f"{command[0]}: wanted a stage that ends well, got the exit code "
                f"{process.returncode}"
            )
        return seconds

    def _kept(self, name: str, otherwise: Any) -> Any:
        file = self.folder / name
        return json.loads(file.read_text()) if file.exists() else otherwise

    def _keep(self, name: str, value: Any) -> None:
        with atomic(self.folder / name) as part:
            part.write_text(json.dumps(value))


if __name__ == "__main__":
    run(main, environment=True)
