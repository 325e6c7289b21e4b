"""The training stage of vision beside a plain loop: images a second, and their share of the rate
for matrix products.

`python -m benchmarks.gpu SECTION OUT.json --images FOLDER` on a machine with a GPU, e.g.
`vision.cifar10.train`, or as a part of `make gpu`. Without images, made ones of ImageNet's size are
trained on, a part of a batch at a time. The stage's own loop (its batches, loss,
compilation and update) is measured compiled and not; the plain loop is a textbook ViT of the same
sizes under autocast, with torch's Adam, whose images come one by one, cropped and mirrored, from
the workers of a DataLoader, and whose loss is read at every step.
"""

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
from torch.utils.data import DataLoader, Dataset

from lib.files.params import read_params
from lib.files.tables import write_json
from lib.training.devices import generator, matmul_rate, use_device
from lib.training.sgd import State, sgd
from lib.training.stacked import Losses
from lib.vision.datasets import dataset_file
from lib.vision.images import Images, read_images, standardise
from lib.vision.trainings import Recipe, Training, feed
from lib.vision.variants import Variant
from lib.vision.vit import ViT, forward_flops, training_loss
from lib.work.command import run
from lib.work.compute import available_cores

WARM_UP = 5  # steps, which compile and fill caches
MOST_WORKERS = 14
IMAGENET_SIZE = 224
IMAGENET_CLASSES = 1000


def measured(params: Recipe, images: Images, seconds: float) -> dict[str, Any]:
    """Rates of the training and of the plain loop, each taken over `seconds`."""
    device = use_device(params.device)
    weights = initial(params, images)
    flops = 3 * forward_flops(weights)
    peak = matmul_rate(
        device, getattr(torch, params.precision), 8192 if device.type == "cuda" else 512
    )
    loops = {"compiled": lambda: ours(params, images, weights, device)} if params.compile else {}
    loops |= {
        "not compiled": lambda: ours(replace(params, compile=False), images, weights, device),
        "plain loop": lambda: plain(params, images, device),
    }
    rates = {
        name: params.batch_size * steps_per_second(loop(), device, seconds)
        for name, loop in loops.items()
    }
    best = max(rates[name] for name in rates if name != "plain loop")
    return {
        **machine(device),
        "precision": params.precision,
        "batch_size": params.batch_size,
        "matmul_flops_per_second": peak,
        "training_flops_per_image": flops,
        "images_per_second": rates,
        "share_of_matmul_rate": {name: rate * flops / peak for name, rate in rates.items()},
        "over_plain_loop": best / rates["plain loop"],
    }


def machine(device: torch.device) -> dict[str, Any]:
    """The machine that computes: its device and the versions."""
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"CPU, {platform.machine()}"
    )
    return {
        "device": name,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cores": available_cores(),
    }


def initial(params: Recipe, images: Images) -> dict[str, Tensor]:
    """The weights of the first seed at init scale 1."""
    sizes = tuple(images.train_images.shape[1:]), images.n_classes
    return params.model.initial_weights(*sizes, 1.0, "layers", generator(0, "weights"))


def steps_per_second(steps: Iterator[object], device: torch.device, seconds: float) -> float:
    """The rate of an endless loop after its warm-up."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(WARM_UP):
        next(steps)
    wait()
    begin = time.perf_counter()
    n = 0
    while time.perf_counter() - begin < seconds:
        for _ in range(WARM_UP):
            next(steps)
        wait()
        n += WARM_UP
    return n / (time.perf_counter() - begin)


def ours(
    params: Recipe, images: Images, weights: dict[str, Tensor], device: torch.device
) -> Iterator[State]:
    """The states of the training as the stage runs it."""
    statistics = [s.to(device) for s in images.statistics()]

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return training_loss(weights, standardise(x, *statistics), y, params.precision)

    wrap: list[Callable] = [torch.compile] if params.compile else []
    start = State(0, {name: w.to(device) for name, w in weights.items()})
    batches = feed(images.on(device), params, Training(Variant(1.0), 0), 0)
    yield from sgd(
        Losses(loss, 1, device, *wrap),
        start,
        batches,
        10**9,
        optimizer="adam",
        learning_rate=params.learning_rate,
        warmup_steps=params.warmup_steps,
    )


class Block(nn.Module):
    """A pre-norm block of heads of any width."""

    def __init__(self, model: ViT):
        super().__init__()
        inner = model.n_heads * model.d_head
        self.n_heads = model.n_heads
        self.norms = nn.ModuleList(nn.LayerNorm(model.d_model) for _ in range(2))
        self.qkv = nn.Linear(model.d_model, 3 * inner, bias=False)
        self.out = nn.Linear(inner, model.d_model, bias=False)
        self.up, self.down = (
            nn.Linear(model.d_model, model.d_mlp),
            nn.Linear(model.d_mlp, model.d_model),
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            self.qkv(self.norms[0](x)).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        )
        x = x + self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.norms[1](x))))


class Textbook(nn.Module):
    """A vision transformer of these sizes, written down as in a textbook."""

    def __init__(self, model: ViT, shape: tuple[int, ...], n_classes: int):
        super().__init__()
        channels, height, width = shape
        n_patches = (height // model.patch_size) * (width // model.patch_size)
        self.patch = nn.Conv2d(channels, model.d_model, model.patch_size, model.patch_size)
        self.token = nn.Parameter(torch.zeros(1, 1, model.d_model))
        self.positions = nn.Parameter(0.1 * torch.randn(1, n_patches + 1, model.d_model))
        self.blocks = nn.Sequential(*(Block(model) for _ in range(model.n_layers)))
        self.norm, self.head = nn.LayerNorm(model.d_model), nn.Linear(model.d_model, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x)[:, 0]))


class OneByOne(Dataset):
    """A plain data set, which crops and mirrors image by image."""

    def __init__(self, images: Images, augment: bool):
        self.images, self.labels, self.augment = images.train_images, images.train_labels, augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = self.images[index]
        if self.augment:
            height, width = x.shape[1:]
            padding = width // 8
            down, across = torch.randint(0, 2 * padding + 1, (2,)).tolist()
            x = nn.functional.pad(x, [padding] * 4)[
                :, down : down + height, across : across + width
            ]
            x = x.flip(-1) if torch.rand(()) < 0.5 else x
        return (x.float() / 255 - 0.5) / 0.25, self.labels[index]


def plain(params: Recipe, images: Images, device: torch.device) -> Iterator[float]:
    """The losses of the plain loop, read step by step."""
    model = Textbook(params.model, tuple(images.train_images.shape[1:]), images.n_classes).to(
        device
    )
    rule = torch.optim.Adam(model.parameters(), lr=params.learning_rate)
    n_workers = min(MOST_WORKERS, max(0, available_cores() - 2))
    loader = DataLoader(
        OneByOne(images, params.augmentation != "none"),
        params.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=n_workers,
        persistent_workers=n_workers > 0,
        pin_memory=device.type == "cuda",
    )
    while True:
        for x, y in loader:
            with torch.autocast(
                device.type, torch.bfloat16, enabled=params.precision == "bfloat16"
            ):
                loss = cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            rule.step()
            rule.zero_grad()
            yield loss.item()


def made(params: Recipe) -> Images:
    """Noise of ImageNet's size and classes, enough for a batch."""
    draw = torch.Generator().manual_seed(0)
    tensors = {}
    for part, n in (("train", params.batch_size), ("test", 1)):
        shape = (n, 3, IMAGENET_SIZE, IMAGENET_SIZE)
        tensors[f"{part}_images"] = torch.randint(0, 256, shape, generator=draw).byte()
        tensors[f"{part}_labels"] = torch.arange(n) * (IMAGENET_CLASSES - 1) // max(1, n - 1)
    return Images(**tensors)


def main(section: str, out: Path, images: Path | None = None, seconds: float = 20.0) -> None:
    params = read_params(section, Recipe, part=True)
    if images is None:
        part = params.batch_size // params.parts
        params = replace(params, batch_size=part, parts=1, augmentation="none")
        found = measured(params, made(params), seconds)
    else:
        found = measured(params, read_images(dataset_file(images)), seconds)
    for name, rate in found["images_per_second"].items():
        print(
            f"{name:14s} {rate:10.0f} images/s {100 * found['share_of_matmul_rate'][name]:6.1f} % "
            "of the matrix rate"
        )
    write_json(found, out)


if __name__ == "__main__":
    run(main)
