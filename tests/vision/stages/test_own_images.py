"""A folder of one's own images, fetched and made into pixels or Arrow files, image by image."""

import hashlib

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from safetensors.numpy import load_file

from lib.files.files import InputError
from lib.vision import shards
from lib.vision.arrow import open_part, read_manifest
from tests.stages.made import files

SECTION = "vision.any.data"
OWN = {
    "source": "folder",
    "source_folder": "pictures",
    "kept": "pixels",
    "size": 8,
    "centre": 0.75,
    "broken": "refuse",
    "test_share": 0.3,
    "seed": 5,
}
N_IMAGES = {"owl": 4, "cat": 7}
SIZES = [(20, 12), (8, 30), (9, 9)]


@pytest.fixture
def pictures(tmp_path):
    """Images of two classes, of several sizes; the pixels of each by name."""
    draw = np.random.default_rng(0)
    found = {}
    for label, n in N_IMAGES.items():
        (tmp_path / "pictures" / label).mkdir(parents=True)
        for number in range(n):
            width, height = SIZES[number % len(SIZES)]
            pixels = draw.integers(0, 256, (height, width, 3), np.uint8)
            name = f"{label}/{number}.png"
            Image.fromarray(pixels).save(tmp_path / "pictures" / name)
            found[name] = pixels
    return found


@pytest.fixture
def fetch(stage, tmp_path):
    def run(**changes):
        stage("vision.fetch", {SECTION: OWN | changes}, SECTION, tmp_path / "official")
        return pd.read_parquet(tmp_path / "official" / "files.parquet")

    return run


@pytest.fixture
def generate(stage, fetch, tmp_path):
    """Fetch, then make the data set; gives its folder."""

    def run(**changes):
        fetch(**changes)
        again(**changes)
        return tmp_path / "images"

    def again(**changes):
        paths = (tmp_path / "official", tmp_path / "images")
        stage("vision.generate", {SECTION: OWN | changes}, SECTION, *paths)

    run.again = again
    return run


def middle(pixels):
    """The middle three quarters of the shorter side, resized by Pillow to 8 × 8."""
    height, width = pixels.shape[:2]
    side = 0.75 * min(width, height)
    box = ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)
    resized = Image.fromarray(pixels).resize((8, 8), Image.Resampling.BILINEAR, box)
    return np.asarray(resized).transpose(2, 0, 1)


def break_one(tmp_path):
    path = tmp_path / "pictures" / "cat" / "3.png"
    path.write_bytes(path.read_bytes()[:-40])


def test_every_file_is_listed_with_its_digest(fetch, pictures, tmp_path):
    table = fetch()
    assert table["name"].tolist() == sorted(pictures)
    assert set(table["part"]) == {"all"}
    for row in table.to_dict("records"):
        data = (tmp_path / "pictures" / row["name"]).read_bytes()
        assert row["sha256"] == hashlib.sha256(data).hexdigest()
        assert (row["bytes"], row["class"]) == (len(data), row["name"][:3])


def test_the_folder_counts_from_the_root_of_the_project(fetch, pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "pictures"))
    assert len(fetch(source_folder="../pictures")) == len(pictures)


def test_the_middle_of_every_image_is_kept_with_its_class(generate, pictures):
    found = load_file(generate() / "images.safetensors")
    images = np.concatenate([found["train_images"], found["test_images"]])
    labels = np.concatenate([found["train_labels"], found["test_labels"]])
    wanted = {middle(pixels).tobytes(): name for name, pixels in pictures.items()}
    names = [wanted.pop(image.tobytes()) for image in images]
    assert wanted == {}
    assert [["cat", "owl"][label] for label in labels] == [name[:3] for name in names]
    assert np.bincount(found["test_labels"]).tolist() == [2, 1]


def test_parts_of_the_folder_stay_parts(generate, pictures, tmp_path):
    (tmp_path / "parts" / "val" / "owl").mkdir(parents=True)
    (tmp_path / "pictures" / "owl" / "2.png").rename(tmp_path / "parts" / "val" / "owl" / "2.png")
    (tmp_path / "pictures").rename(tmp_path / "parts" / "train")
    found = load_file(generate(source_folder="parts") / "images.safetensors")
    assert found["test_images"].tolist() == [middle(pictures["owl/2.png"]).tolist()]
    assert len(found["train_images"]) == len(pictures) - 1


@pytest.mark.parametrize("kept", ["pixels", "jpegs"])
def test_a_broken_image_is_refused_with_its_name_and_nothing_is_written(
    generate, pictures, tmp_path, kept
):
    break_one(tmp_path)
    with pytest.raises(InputError, match=r"cat/3.png: wanted a whole image, .*broken: skip"):
        generate(kept=kept)
    assert not (tmp_path / "images").exists()


def test_a_broken_image_may_be_left_out(generate, pictures, tmp_path, capsys):
    break_one(tmp_path)
    found = load_file(generate(broken="skip") / "images.safetensors")
    assert len(found["train_labels"]) + len(found["test_labels"]) == len(pictures) - 1
    assert "1 broken images are left out: cat/3.png" in capsys.readouterr().out


def test_an_image_that_changed_since_it_was_fetched_is_refused(generate, pictures, tmp_path):
    generate()
    Image.fromarray(pictures["owl/1.png"][::-1]).save(tmp_path / "pictures" / "owl" / "1.png")
    with pytest.raises(InputError, match=r"owl/1.png: wanted the image that was fetched, got"):
        generate.again()


def test_jpegs_are_kept_byte_by_byte_with_label_and_name(generate, pictures, tmp_path):
    folder = generate(kept="jpegs")
    assert files(folder) == ["manifest.json", "test-00000.arrow", "train-00000.arrow"]
    manifest = read_manifest(folder)
    assert (manifest.classes, manifest.size, manifest.centre) == (["cat", "owl"], 8, 0.75)
    names = []
    for part in ("train", "test"):
        shards = open_part(folder, manifest, part)
        for number, label in enumerate(shards.labels()):
            name = shards.name(number)
            assert shards.image(number) == (tmp_path / "pictures" / name).read_bytes()
            assert manifest.classes[label] == name[:3]
            names.append(name)
    assert sorted(names) == sorted(pictures)


def test_channels_of_what_is_streamed_are_those_of_the_pixels(generate, pictures, tmp_path):
    pixels = load_file(generate() / "images.safetensors")["train_images"].astype(float)
    (tmp_path / "images" / "images.safetensors").unlink()
    manifest = read_manifest(generate(kept="jpegs"))
    np.testing.assert_allclose(manifest.mean, pixels.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(manifest.deviation, pixels.std((0, 2, 3)), rtol=1e-6)


def test_arrow_files_that_are_finished_are_not_written_again(
    generate, pictures, tmp_path, monkeypatch
):
    """The stage is cut off at the fifth file of one image; afterwards it reads only what was
    missing.
    """
    monkeypatch.setattr(shards, "SHARD", 1)
    original = shards.write_shard
    written = []

    def write(path, rows):
        if len(written) == 4:
            raise KeyboardInterrupt
        original(path, rows)
        written.append(path.name)

    monkeypatch.setattr(shards, "write_shard", write)
    with pytest.raises(KeyboardInterrupt):
        generate(kept="jpegs")
    first = list(written)
    written.append("a fifth")
    generate.again(kept="jpegs")
    assert len(set(written)) == len(pictures) + 1
    assert written[:5] == [*first, "a fifth"]
