"""The path of ImageNet: made JPEGs from a folder to figures; and ViT-B/16 itself."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from lib.files.params import load_yaml, read_params
from lib.vision import trainings
from lib.vision.datasets import StreamedImages, dataset_file, read_dataset
from lib.vision.variants import Variant
from lib.vision.vit import training_cost
from tests.pipeline.project import ROOT
from tests.stages.made import files
from tests.vision.train_made import Unread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CLASSES = ("n01", "n02", "n03", "n04")
N_TRAIN, N_TEST = 80, 20  # in each class
SMALL = {
    "model": {
        "patch_size": 16,
        "d_model": 24,
        "n_heads": 3,
        "d_head": 8,
        "d_mlp": 32,
        "n_layers": 3,
        "attention_biases": True,
    },
    "device": "cpu",
    "precision": "float32",
    "compile": False,
    "parts": 2,
    "batch_size": 40,
    "n_steps": 16,  # two epochs
    "warmup_steps": 2,
    "snapshot_every": 8,
}


def section(**train):
    """ImageNet's section, at the size of these tests, with what all data sets share."""
    vision = load_yaml(ROOT / "params.yaml")["vision"]
    imagenet = vision["imagenet"]
    imagenet["data"] |= {"size": 48}
    imagenet["train"] |= SMALL | train
    imagenet["cut"] |= {"n_images": 40}
    shared = {name: vision[name] for name in ("cut", "evaluate", "plot")}
    shared["cut"]["rate_step"] = 0.5
    shared["plot"] |= {"lines": 4}
    return {f"vision.{name}": values for name, values in {**shared, "imagenet": imagenet}.items()}


def write_images(folder):
    """JPEGs of four classes, which differ in colour; some of each class are grey."""
    draw = np.random.default_rng(0)
    for part, n in (("train", N_TRAIN), ("val", N_TEST)):
        for label, name in enumerate(CLASSES):
            (folder / part / name).mkdir(parents=True)
            for number in range(n):
                pixels = draw.integers(0, 120, (6, 8, 3), np.uint8)
                pixels[..., label % 3] += 60 * (1 + label // 3)
                image = Image.fromarray(pixels).resize((100, 75), Image.Resampling.BICUBIC)
                image = image.convert("L") if number % 10 == 9 else image
                image.save(folder / part / name / f"{number}.JPEG")


@pytest.fixture
def pipeline(stage, tmp_path):
    """Call `pipeline(name, *arguments)` runs a stage of vision on ImageNet's section."""
    write_images(tmp_path / "imagenet")
    params = section()

    def run(name, *arguments):
        stage(name, params, *arguments)

    (tmp_path / "controls.tsv").write_text("name\tlabels\npermuted_labels\tpermuted\n")
    run("vision.fetch", "vision.imagenet.data", tmp_path / "official")
    run("vision.generate", "vision.imagenet.data", tmp_path / "official", tmp_path / "images")
    return run


def test_a_folder_of_jpegs_becomes_figures(pipeline, fast, tmp_path):
    here = {name: tmp_path / name for name in ("images", "runs", "figures", "metrics")}
    spectra, truncate, prune = (tmp_path / f"{name}.parquet" for name in ("s", "t", "p"))
    training = ("vision.imagenet.train", tmp_path / "controls.tsv", here["images"], here["runs"])
    pipeline("vision.train", *training)
    pipeline("spectra", here["runs"], spectra)
    sections = ("vision.imagenet.cut", "vision.cut", "vision.imagenet.train.device")
    pipeline("vision.cut", *sections, here["images"], here["runs"], truncate, prune)
    sections = ("vision.evaluate", "vision.imagenet.train.model")
    made = (here["runs"], spectra, truncate, prune, here["metrics"], tmp_path / "curves.csv")
    pipeline("vision.evaluate", *sections, *made)
    pipeline("vision.plot", "vision.plot", here["metrics"] / "tables", here["figures"])
    wanted = {"figure-1.svg", "figure-5-KQ.svg", "figure-5-VO.svg", "figure-12.svg"}
    assert wanted < set(files(here["figures"]))


def imagenet(**changes):
    """The params of the real training, as they stand."""
    from stages.vision.train import Train

    params = read_params("vision.imagenet.train", Train, ROOT / "params.yaml")
    return replace(params, **changes)


def test_the_model_is_vit_b_16():
    flops, n_bytes = training_cost(imagenet().model, (3, 224, 224), 1000)
    assert flops == pytest.approx(98.1e9, rel=1e-3)
    assert n_bytes / 4 == pytest.approx(86.6e6, rel=1e-3)


def test_its_whole_loop_reads_no_number_from_its_device(pipeline, tmp_path, monkeypatch):
    """It runs on a device that holds no numbers, at the real sizes, fed by real files."""
    monkeypatch.setattr(trainings, "use_device", lambda *_: torch.device("meta"))
    shorter = {"batch_size": 32, "n_steps": 2, "warmup_steps": 1, "snapshot_every": 1}
    params = imagenet(**shorter, precision="float32", compile=False)
    small = read_dataset(dataset_file(tmp_path / "images"))
    assert isinstance(small, StreamedImages)
    images = replace(small, manifest=replace(small.manifest, size=224))
    kept = Unread()
    trainings.train(images, params, {trainings.Training(Variant(1.0), 1): kept})
    assert [step for step, _ in kept.saved] == [0, 1, 2]
    assert kept.written == 2
