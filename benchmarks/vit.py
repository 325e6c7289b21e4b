"""The vision transformer on a CPU: a training step beside a textbook's, and feeding it images.

The step: forward and backward of the CIFAR configuration with head dimension 64, float32, one
thread, beside the library's own TransformerEncoder with the same weights. Feeding: 512 CIFAR-sized
images, cropped and mirrored at random, from the resident tensor, beside Pillow images through a
DataLoader as tutorials do it.
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from benchmarks.harness import Contender, race, write_results
from lib.training.attention import merge_heads
from lib.training.devices import generator
from lib.vision.augmentation import crop_and_flip
from lib.vision.images import batches, standardise
from lib.vision.vit import ViT, Weights, logits, patches
from lib.work.command import run

SHAPE = (3, 32, 32)
BATCH = 16
MODEL = ViT(patch_size=4, d_model=512, n_heads=8, d_head=64, d_mlp=512, n_layers=6)


class Textbook(nn.Module):
    """The same function of the same weights, out of the library's parts."""

    def __init__(self, weights: Weights):
        super().__init__()
        self.patch = nn.Linear(*weights["patch"].shape)
        self.token = nn.Parameter(weights["class_token"].clone())
        self.positions = nn.Parameter(weights["positions"].clone())
        layer = nn.TransformerEncoderLayer(
            512, 8, 512, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 6, nn.LayerNorm(512), enable_nested_tensor=False)
        self.head = nn.Linear(512, 10)
        with torch.no_grad():
            self.patch.weight.copy_(weights["patch"].T)
            self.patch.bias.copy_(weights["patch_bias"])
            self.head.weight.copy_(weights["head"].T)
            self.head.bias.copy_(weights["head_bias"])
            for i, block in enumerate(self.blocks.layers):
                parts = [merge_heads(weights[name][i]).T for name in ("W_Q", "W_K", "W_V")]
                block.self_attn.in_proj_weight.copy_(torch.cat(parts))
                block.self_attn.in_proj_bias.zero_()
                block.self_attn.out_proj.weight.copy_(merge_heads(weights["W_O"][i]))
                block.self_attn.out_proj.bias.zero_()
                block.linear1.weight.copy_(weights["W_1"][i].T)
                block.linear1.bias.copy_(weights["b_1"][i])
                block.linear2.weight.copy_(weights["W_2"][i].T)
                block.linear2.bias.copy_(weights["b_2"][i])

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(patches(x, 4))
        x = torch.cat([self.token.expand(len(x), 1, -1), x], 1) + self.positions
        return self.head(self.blocks(x)[:, 0])


def steps(weights: Weights) -> list[Contender]:
    """Loss and gradients of a batch; the result is the gradient of the patch embedding."""
    source = generator(0, "images")
    x = torch.randn(BATCH, *SHAPE, generator=source)
    y = torch.randint(0, 10, (BATCH,), generator=source)
    leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
    textbook = Textbook(weights)

    def ours() -> Tensor:
        for w in leaves.values():
            w.grad = None
        cross_entropy(logits(leaves, x), y).backward()
        return leaves["patch"].grad

    def library() -> Tensor:
        textbook.zero_grad()
        cross_entropy(textbook(x), y).backward()
        return textbook.patch.weight.grad.T

    right = ours().clone()

    def error(gradient: Tensor) -> float:
        return float((gradient - right).norm() / right.norm())

    return [
        Contender("ours: class token only in the last block", ours, error, 1e-5, BATCH),
        Contender("the library's TransformerEncoder", library, error, 1e-5, BATCH, goal=1),
    ]


class Pillow(Dataset):
    """Images as Pillow objects, cropped, mirrored and made tensors one by one."""

    def __init__(self, images: Tensor):
        self.images = [
            Image.fromarray(np.ascontiguousarray(x.permute(1, 2, 0).numpy())) for x in images
        ]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Tensor:
        picture = ImageOps.expand(self.images[i], 4)
        down, across, mirrored = (int(torch.randint(0, n, ())) for n in (9, 9, 2))
        picture = picture.crop((across, down, across + 32, down + 32))
        picture = ImageOps.mirror(picture) if mirrored else picture
        return (torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() - 120) / 64


def feeds(n: int = 8192, batch: int = 512) -> list[Contender]:
    """An epoch of batches; the result is the mean pixel, which both must have about equal."""
    images = torch.randint(0, 256, (n, *SHAPE), dtype=torch.uint8, generator=generator(0, "pixels"))
    labels = torch.zeros(n, dtype=torch.long)
    statistics = (torch.full((3,), 120.0), torch.full((3,), 64.0))
    part = 1024
    pillow = DataLoader(Pillow(images[:part]), batch, shuffle=True)

    def ours() -> float:
        feed = batches(
            images,
            labels,
            batch,
            lambda x, e: crop_and_flip(x, 4, generator(0, e)),
            lambda p, e: generator(0, p, e),
        )
        return float(
            np.mean([standardise(next(feed)[0], *statistics).mean() for _ in range(n // batch)])
        )

    def tutorial() -> float:
        return float(np.mean([x.mean() for x in pillow]))

    def error(mean: float) -> float:
        return abs(mean - right)

    right = ours()
    return [
        Contender("ours: resident tensor", ours, error, 0.02, n),
        Contender("Pillow + DataLoader", tutorial, error, 0.02, part, goal=10),
    ]


def main(step: Path, feed: Path, rounds: int = 9) -> None:
    weights = MODEL.initial_weights(SHAPE, 10, 1.0, "layers", generator(0, "weights"))
    rows, limits = race(steps(weights), rounds)
    notes = [
        "Times are milliseconds an image, forward and backward; an error is that of the gradient, "
        "relative."
    ]
    write_results(
        step,
        f"A training step of the CIFAR transformer, batch {BATCH}, float32",
        rows,
        rounds,
        ["torch"],
        limits,
        notes,
    )
    rows, limits = race(feeds(), rounds)
    notes = ["Times are milliseconds an image; an error is that of the mean pixel."]
    write_results(
        feed,
        "Feeding CIFAR-sized images with crop and flip",
        rows,
        rounds,
        ["torch", "pillow"],
        limits,
        notes,
    )


if __name__ == "__main__":
    run(main)
