"""A training on streamed images is the one on the same pixels in memory, to the byte."""

from dataclasses import replace

import pytest

from lib.files.files import InputError
from lib.vision.arrow import write_manifest
from lib.vision.images import channel_statistics
from tests.vision.arrow_made import encoded, write_data
from tests.vision.train_made import ONE, files_of
from tests.vision.vit_made import make_images


def write_both(tmp_path):
    """The same squares as pixels in `memory`, and as files without loss in `streamed`."""
    tensors = make_images(tmp_path / "memory", 13, 9, 3, (3, 8, 8))
    parts = []
    for part in ("train", "test"):
        pixels = tensors[f"{part}_images"].permute(0, 2, 3, 1).numpy()
        labels = tensors[f"{part}_labels"].tolist()
        parts.append([(encoded(p, "PNG"), k, "a") for p, k in zip(pixels, labels, strict=True)])
    streamed = tmp_path / "streamed"
    streamed.mkdir()
    manifest = write_data(streamed, *parts)
    mean, deviation = (s.tolist() for s in channel_statistics(tensors["train_images"]))
    write_manifest(streamed, replace(manifest, mean=mean, deviation=deviation))


@pytest.fixture
def train(stage, fast, tmp_path):
    """Trains on one of both data sets; gives the files of the runs."""

    def run(dataset, **changes):
        (tmp_path / "controls.tsv").write_text("name\tlabels\npermuted\tpermuted\n")
        paths = [tmp_path / name for name in ("controls.tsv", dataset, f"{dataset} runs")]
        section = "vision.any.train"
        stage("vision.train", {section: ONE | changes}, section, *paths)
        return files_of(tmp_path / f"{dataset} runs")

    write_both(tmp_path)
    return run


@pytest.mark.parametrize("changes", [{"controls": ["permuted"]}, {"batch_size": 4, "parts": 2}])
def test_without_crops_a_streamed_training_has_the_bytes_of_one_in_memory(train, changes):
    found, wanted = train("streamed", **changes), train("memory", **changes)
    assert sorted(found) == sorted(wanted)
    assert found == wanted


def test_crops_change_what_is_learned(train):
    whole, cropped = train("streamed"), train("streamed", augmentation="resized_crop_flip")
    assert whole != cropped


@pytest.mark.parametrize("crop", ["none", "resized_crop_flip"])
def test_a_training_that_was_cut_off_goes_on_to_the_same_bytes(
    train, updates, hasty, tmp_path, monkeypatch, crop
):
    """RandAugment draws by step and part, crops by epoch and image: neither by what came before."""
    changes = {
        "augmentation": crop,
        "randaugment": {"n_operations": 2, "magnitude": 9},
        "batch_size": 4,
        "parts": 2,
    }
    wanted = train("streamed", **changes)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "another scratch"))
    updates.made, updates.allowed = 0, 3
    with pytest.raises(KeyboardInterrupt):
        train("streamed", **changes)
    updates.allowed = 100
    assert train("streamed", **changes) == wanted
    assert updates.made < 6


@pytest.mark.parametrize(
    ("dataset", "crop"), [("streamed", "crop_flip"), ("memory", "resized_crop_flip")]
)
def test_a_crop_that_the_images_do_not_allow_is_refused(train, dataset, crop):
    with pytest.raises(InputError, match=rf"augmentation: wanted one of .* got {crop}"):
        train(dataset, augmentation=crop)


def test_a_data_set_of_neither_kind_is_refused(train, tmp_path):
    (tmp_path / "memory" / "images.safetensors").rename(tmp_path / "memory" / "old")
    with pytest.raises(InputError, match="memory: wanted a data set, with images"):
        train("memory")
