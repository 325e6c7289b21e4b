"""A stream of batches depends on its seed and step alone: not on workers, slices, or its start."""

import multiprocessing
import os
import signal
import subprocess
import sys
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lib.files.files import InputError
from lib.training.devices import generator
from lib.vision.arrow import read_manifest
from lib.vision.images import batches
from lib.vision.parts import Block
from lib.vision.streams import places, random_resized_crop, scored_batches, stream
from lib.work.errors import StoppedError
from tests.faults.harness import alive, until
from tests.pipeline.project import PYTHON, ROOT
from tests.vision.arrow_made import drawn, encoded, rows_of, write_data

N = 100  # images: three batches of 28 an epoch
B = 28
DRAW = partial(generator, 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder, rows_of([encoded(drawn(40, 30, i)) for i in range(N)]), size=16)
    return folder


@pytest.fixture(scope="module")
def squares(tmp_path_factory):
    """Images of the model's size that are kept without loss, and their pixels."""
    folder = tmp_path_factory.mktemp("squares")
    images = [drawn(16, 16, i) for i in range(N)]
    write_data(folder, rows_of([encoded(image, "PNG") for image in images]), size=16)
    return folder, torch.stack([torch.from_numpy(np.array(image)) for image in images]).movedim(
        3, 1
    )


def fed(folder, *, cropped, **options):
    """A stream of a folder, from seed 5."""
    manifest = read_manifest(folder)
    return stream(folder, manifest, B, DRAW, cropped=cropped, labels=torch.arange(N) % 3, **options)


def scored(folder, n_images, batch_size, **options):
    return scored_batches(folder, read_manifest(folder), n_images, batch_size, **options)


def taken(n, *arguments, **options):
    """The first batches of a stream."""
    return list(islice(fed(*arguments, **options), n))


def assert_same(found, wanted):
    assert len(found) == len(wanted)
    for (images, labels), (wanted_images, wanted_labels) in zip(found, wanted, strict=True):
        assert torch.equal(images, wanted_images)
        assert torch.equal(labels, wanted_labels)


@pytest.mark.parametrize("start", [0, 2, 3, 7])
def test_whole_images_are_fed_as_from_memory(squares, start):
    folder, pixels = squares
    labels = torch.arange(N) % 3
    memory = batches(pixels, labels, B, lambda x, _: x, DRAW, start)
    found = taken(7, folder, cropped=False, start=start)
    assert_same(found, list(islice(memory, 7)))


def test_a_crop_is_that_of_seed_epoch_and_index(folder):
    step = 4  # the second batch of the second epoch
    images, labels = taken(1, folder, cropped=True, start=step)[0]
    for image, label, (epoch, index) in zip(
        images, labels, next(places(N, B, DRAW, step)), strict=True
    ):
        data = encoded(drawn(40, 30, index))
        wanted = random_resized_crop(data, 16, generator(5, "crop", epoch, index))
        assert epoch == 1
        assert torch.equal(image, torch.tensor(wanted.copy()).movedim(2, 0))
        assert label == index % 3


@pytest.mark.parametrize("world", [2, 4])
def test_slices_make_up_the_batches(folder, world):
    slices = [
        taken(4, folder, cropped=True, own=Block(world, rank, world).of(B)) for rank in range(world)
    ]
    joined = [
        tuple(map(torch.cat, zip(*parts, strict=True))) for parts in zip(*slices, strict=True)
    ]
    assert_same(joined, taken(4, folder, cropped=True))


def test_a_batch_of_several_pieces_is_whole(folder, monkeypatch):
    wanted = taken(4, folder, cropped=True)
    monkeypatch.setattr("lib.vision.streams.PIECE", 7)
    assert_same(taken(4, folder, cropped=True), wanted)


def test_a_stream_draws_from_no_generator_of_torch(folder):
    before = torch.get_rng_state()
    taken(2, folder, cropped=True)
    assert torch.equal(torch.get_rng_state(), before)


def test_scored_batches_have_every_image_in_order_and_the_last_may_be_smaller(squares):
    folder, pixels = squares
    found = list(scored(folder, N, 48))
    assert [len(labels) for _, labels in found] == [48, 48, 4]
    assert torch.equal(torch.cat([images for images, _ in found]), pixels)
    assert torch.equal(torch.cat([labels for _, labels in found]), torch.arange(N) % 3)


@pytest.mark.parametrize("n_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_broken_image_ends_the_stream_in_its_turn_with_its_name(tmp_path, n_workers, monkeypatch):
    monkeypatch.setattr("lib.vision.streams.PIECE", 10)
    rows = rows_of([encoded(drawn(40, 30, i)) for i in range(200)])
    data, label, _ = rows[150]
    rows[150] = (data[: len(data) // 2], label, "n02_17.JPEG")
    write_data(tmp_path, rows, size=16)
    feed = scored(tmp_path, 200, 100, n_workers=n_workers)
    next(feed)
    with pytest.raises(InputError, match=r"^n02_17\.JPEG: wanted a whole image, got: [^\n]*$"):
        next(feed)


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [1, 2])
def test_workers_change_no_bit(folder, n_workers, monkeypatch):
    monkeypatch.setattr("lib.vision.streams.PIECE", 8)
    whole = taken(7, folder, cropped=True)
    found = taken(5, folder, cropped=True, start=2, n_workers=n_workers)
    assert_same(found, whole[2:])


@pytest.mark.slow
def test_a_killed_worker_ends_the_stream_with_an_error(folder):
    feed = fed(folder, cropped=True, n_workers=2)
    next(feed)
    worker = multiprocessing.active_children()[0]
    assert worker.pid
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(StoppedError, match="a process that decodes images has died"):
        list(feed)


ENDLESS = """
import multiprocessing, os, signal, sys
from pathlib import Path
from functools import partial
import torch
from lib.training.devices import generator
from lib.vision.arrow import read_manifest
from lib.vision.streams import stream
folder = Path(sys.argv[1])
how = dict(cropped=True, labels=torch.zeros(100, dtype=torch.int64), n_workers=2)
feed = stream(folder, read_manifest(folder), 30, partial(generator, 5), **how)
next(feed)
print(*(worker.pid for worker in multiprocessing.active_children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_workers_end_with_a_process_that_is_killed(folder):
    command = [PYTHON, "-c", ENDLESS, str(folder)]
    killed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert killed.returncode == -signal.SIGKILL
    workers = [int(pid) for pid in killed.stdout.split()]
    assert len(workers) == 2
    assert until(lambda: not any(map(alive, workers)), 60)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells it")
def test_the_images_that_are_fed_do_not_stay_in_memory(tmp_path):
    """Mapped pages are the system's, which takes them back: what counts is anonymous memory."""
    small = encoded(Image.new("RGB", (8, 8)))
    data = [small + bytes(500_000)] * 300  # what follows an image's end is not looked at
    write_data(tmp_path, rows_of(data))
    before = anonymous_bytes()
    held = [anonymous_bytes() - before for _ in scored(tmp_path, 300, 10)]
    assert max(held) < 30_000_000 < 500_000 * 300 / 4


def anonymous_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
