"""One GPU: images a second and share of the bf16 matrix rate, of our training by attention kernel and of a plain loop.

Run on a machine with a GPU: `python -m benchmarks.gpu OUT.json`. The plain loop is a textbook ViT of the same sizes
(the library's TransformerEncoder) under autocast, fed by DataLoader workers that crop and flip image by image, with
Adam and a loss that is read at every step.
"""

import json
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import lib.models.attention as attention_module
from lib.data.images import batches, channel_statistics, crop_and_flip, standardise
from lib.dynamics.sgd import State, sgd
from lib.io.compute import generator, matmul_rate
from lib.models.vit import ViT, forward_flops, logits

N, BATCH, SHAPE = 25600, 512, (3, 32, 32)
MODEL = ViT(patch_size=4, d_model=512, n_heads=8, d_head=128, d_mlp=512, n_layers=6)


def ours(images, labels, steps, *, compiled=True, augment=True, profile=None):
    """Images a second of the training loop as the stage runs it."""
    device = images.device
    statistics = channel_statistics(images)
    weights = MODEL.initial_weights(SHAPE, 10, 1.0, "layers", generator(0, "weights"))
    weights = {name: w.to(device) for name, w in weights.items()}

    def loss(weights, x, y):
        with torch.autocast(device.type, torch.bfloat16):
            found = logits(weights, standardise(x, *statistics))
        return cross_entropy(found.float(), y)

    def changed(whole, epoch):
        return crop_and_flip(whole, 4, generator(0, epoch, device=device)) if augment else whole

    feed = batches(images, labels, BATCH, changed, lambda p, e: generator(0, p, e))
    torch._dynamo.reset()
    states = sgd(torch.compile(loss) if compiled else loss, State(0, weights), feed, 10**9,
                 optimizer="adam", learning_rate=1e-4, warmup_steps=100)  # fmt: skip
    return rate(states, steps, profile)


def rate(states, steps, profile=None):
    """Images a second, after a warm-up that compiles."""
    for _ in range(10):
        state = next(states)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        state = next(states)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    if profile is not None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
            for _ in range(5):
                next(states)
            torch.cuda.synchronize()
        events = sorted(trace.key_averages(), key=lambda e: -e.self_device_time_total)[:25]
        profile += [(e.key[:90], e.self_device_time_total / 5e3, e.count / 5) for e in events]
    del state
    return steps * BATCH / seconds


class Textbook(nn.Module):
    """The same sizes with the library's encoder (head dimension 64: it ties it to the width)."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 512, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 512))
        self.positions = nn.Parameter(0.1 * torch.randn(1, 65, 512))
        layer = nn.TransformerEncoderLayer(512, 8, 512, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 6, nn.LayerNorm(512), enable_nested_tensor=False)
        self.head = nn.Linear(512, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.blocks(x)[:, 0])


class OneByOne(Dataset):
    """Image by image, with crop and flip, as a plain data set does it."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        x = nn.functional.pad(self.images[i], [4] * 4)
        down, across = torch.randint(0, 9, (2,)).tolist()
        x = x[:, down : down + 32, across : across + 32]
        x = x.flip(-1) if torch.rand(()) < 0.5 else x
        return (x.float() / 255 - 0.5) / 0.25, self.labels[i]


def plain(images, labels, device, workers=14):
    """Images a second of the plain loop, over an epoch after the first batches."""
    model = Textbook().to(device)
    rule = torch.optim.Adam(model.parameters(), lr=1e-4)
    loader = DataLoader(OneByOne(images, labels), BATCH, shuffle=True, num_workers=workers, drop_last=True,
                        persistent_workers=True, pin_memory=True)  # fmt: skip
    for _ in range(2):
        begin = time.perf_counter()
        for x, y in loader:
            with torch.autocast("cuda", torch.bfloat16):
                loss = cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            rule.step()
            rule.zero_grad()
            loss.item()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
    return len(loader) * BATCH / seconds


def explicit(Q, K, V):
    """softmax(QKᵀ)V as two matrix products."""
    return torch.softmax(Q @ K.transpose(-1, -2) * K.shape[-1] ** -0.5, -1) @ V


def main(out: Path, steps: int = 100) -> None:
    device = torch.device("cuda")
    images = torch.randint(0, 256, (N, *SHAPE), dtype=torch.uint8)
    labels = torch.randint(0, 10, (N,))
    there = images.to(device), labels.to(device)
    peak = matmul_rate(device, torch.bfloat16, 8192)
    weights = MODEL.initial_weights(SHAPE, 10, 1.0, "layers", generator(0, "weights"))
    flops = 3 * forward_flops(weights, SHAPE)
    found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "batch": BATCH,
             "bf16_matmul_tflops": peak / 1e12, "training_gflop_per_image": flops / 1e9, "rates": {}}  # fmt: skip

    def note(name, images_per_second):
        share = images_per_second * flops / peak
        found["rates"][name] = {"images_per_second": images_per_second, "share_of_bf16_rate": share}
        print(f"{name:40s} {images_per_second:10.0f} images/s {100 * share:5.1f} %", flush=True)
        out.write_text(json.dumps(found, indent=2) + "\n")

    kernels = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
               "efficient": SDPBackend.EFFICIENT_ATTENTION}  # fmt: skip
    profile: list = []
    for name, kernel in kernels.items():
        try:
            with sdpa_kernel(kernel):
                note(f"compiled, {name}", ours(*there, steps, profile=profile if name == "flash" else None))
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
    kept = attention_module.attend
    attention_module.attend = explicit
    note("compiled, explicit", ours(*there, steps))
    attention_module.attend = kept
    note("compiled, library's choice", ours(*there, steps))
    note("compiled, no augmentation", ours(*there, steps, augment=False))
    note("not compiled", ours(*there, steps, compiled=False))
    note("plain loop", plain(images, labels, device))
    found["kernels_ms_per_step"] = profile
    out.write_text(json.dumps(found, indent=2) + "\n")
    for row in profile:
        print(f"{row[1]:8.3f} ms {row[2]:6.1f} × {row[0]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
