"""The feed of encoded images beside decoding alone, in CPU time, and the cores that a GPU wants.

The images are made: noise whose spectrum falls like a photograph's, 500 × 375 pixels, some 50 KB of
JPEG. Decoding alone is a plain loop of Pillow over bytes in memory, each box known beforehand; the
feed does all else too: it reads Arrow files, draws boxes, makes batches, and hands them from worker
processes to this one. Equality first: both must give the same pixels.
"""

import io
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import psutil
import torch
from PIL import Image
from torch import Tensor

from benchmarks.harness import Row, Spread, write_results
from lib.training.devices import generator, keep_freed_memory, use_threads
from lib.vision.arrow import Manifest, described, read_manifest, write_manifest, write_shard
from lib.vision.streams import Place, places, random_box, stream
from lib.work.command import run

N = 512  # images a round
BATCH = 128
SIZE = 224
DRAW = partial(generator, 1)
RATE = 2246  # images a second: ViT-B/16 on one H100 at 28 % of its rate for matrix products
GOAL = 0.85

Job = Callable[[], float]


def photograph(number: int) -> bytes:
    """Noise in colour with amplitudes like 1 / frequency, as those of photographs are."""
    noise = np.random.default_rng(number).normal(size=(375, 500, 3))
    rows, columns = np.meshgrid(np.fft.fftfreq(375), np.fft.fftfreq(500), indexing="ij")
    frequency = np.hypot(rows, columns)[..., None] + 1 / 500
    smooth = np.fft.ifft2(np.fft.fft2(noise, axes=(0, 1)) / frequency, axes=(0, 1)).real
    colours = smooth @ np.array([[1, 0.9, 0.8], [0.1, 0, -0.1], [0, 0.1, 0]])
    pixels = 128 + 50 * (colours - colours.mean()) / colours.std()
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=65)
    return file.getvalue()


def write_data(folder: Path, images: list[bytes]) -> None:
    rows = [(image, i % 2, f"{i}.JPEG") for i, image in enumerate(images)]
    files = {}
    for part in ("train", "test"):
        write_shard(folder / f"{part}-00000.arrow", rows)
        files[part] = [described(folder / f"{part}-00000.arrow")]
    numbers = ([120.0] * 3, [60.0] * 3, SIZE, 1.0)
    write_manifest(folder, Manifest(["cat", "dog"], files, [], *numbers))


def decoded_alone(images: list[bytes], wanted: list[tuple[int, tuple, bool]]) -> Iterator[Tensor]:
    for index, box, mirrored in wanted:
        with Image.open(io.BytesIO(images[index])) as image:
            crop = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box)
        if mirrored:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        yield torch.from_numpy(np.array(crop))


def boxes(steps: Iterator[list[Place]]) -> Iterator[tuple[int, tuple, bool]]:
    """What is cropped from each image, as the feed draws it."""
    for batch in steps:
        for epoch, index in batch:
            draw = DRAW("crop", epoch, index)
            mirrored, *numbers = torch.rand(23, generator=draw, dtype=torch.float64).tolist()
            yield index, random_box(500, 375, numbers), mirrored < 0.5


def cpu_of(processes: list[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(one.user + one.system for one in times)


def at_rest(processes: list[psutil.Process]) -> float:
    """The CPU time of workers once they have nothing more to decode ahead."""
    before = -1.0
    now = cpu_of(processes)
    while processes and now > before:
        time.sleep(0.3)
        before = now
        now = cpu_of(processes)
    return now


def feeding(folder: Path, n_workers: int) -> tuple[Job, Tensor]:
    """A round of the feed, which gives the CPU seconds of all its processes; and its first batch.

    A round begins and ends with workers at rest: what they decode ahead in it, it took itself.
    """
    others = set(multiprocessing.active_children())
    how = {"cropped": True, "labels": torch.zeros(N, dtype=torch.int64), "n_workers": n_workers}
    feed = stream(folder, read_manifest(folder), BATCH, DRAW, **how)
    first = next(feed)[0].movedim(1, 3)
    workers = set(multiprocessing.active_children()) - others
    processes = [psutil.Process(worker.pid) for worker in workers]

    def once() -> float:
        begun = at_rest(processes)
        here = -time.process_time()
        for _ in islice(feed, N // BATCH):
            pass
        here += time.process_time()
        return here + at_rest(processes) - begun

    return once, first


def main(results: Path, rounds: int = 9) -> None:
    use_threads(1)
    keep_freed_memory()  # as stages do
    images = [photograph(number) for number in range(N)]
    wanted = list(boxes(islice(places(N, BATCH, DRAW), N // BATCH)))

    def alone() -> float:
        begun = time.process_time()
        for _ in decoded_alone(images, wanted):
            pass
        return time.process_time() - begun

    right = torch.stack(list(decoded_alone(images, wanted[:BATCH])))
    jobs = {"decoding alone": alone}
    errors = {"decoding alone": 0}
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), images)
        ways = ("the feed, in this process", "the feed, 1 worker", "the feed, 2 workers")
        for n_workers, name in enumerate(ways):
            jobs[name], first = feeding(Path(folder), n_workers)
            errors[name] = int((first.int() - right.int()).abs().max())
            if errors[name]:
                raise ValueError(f"{name}: wanted the pixels of decoding alone, got others")
        names = list(jobs)
        seconds = {name: np.empty(rounds) for name in names}
        for i in range(rounds):
            first_one = i % len(names)
            for name in names[first_one:] + names[:first_one]:
                seconds[name][i] = jobs[name]()
    rows = [row(name, seconds[name], seconds["decoding alone"], errors[name]) for name in names]
    kilobytes = sum(map(len, images)) / N / 1e3
    notes = [
        "CPU time of all processes, without their start; a share is of the images that decoding "
        "alone, with the same crops, makes of a CPU second in the same round.",
        f"Images of 500 × 375 pixels and {kilobytes:.0f} KB, cropped to {SIZE}; {RATE:,} images a "
        "second are those of ViT-B/16 on one H100 at 28 % of its rate. An error is of a pixel.",
    ]
    title = "Images decoded and fed in a CPU second"
    write_results(results, title, rows, rounds, ["torch", "pillow", "pyarrow"], notes=notes)


def row(name: str, seconds: np.ndarray, alone: np.ndarray, error: int) -> Row:
    share = Spread.of(alone / seconds)
    goal = None if seconds is alone else GOAL
    return {
        "contender": name,
        "cpu_ms": Spread.of(1e3 * seconds / N),
        "images_per_cpu_s": Spread.of(N / seconds),
        "share": share,
        "goal": goal,
        "verdict": "" if goal is None else "met" if share.median >= goal else "missed",
        f"cores_for_{RATE}_a_s": Spread.of(RATE * seconds / N),
        "error": error,
    }


if __name__ == "__main__":
    run(main)
