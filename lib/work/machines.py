"""The packages that compute and the kind of processor, on which the bits of a result depend."""

import functools
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "pillow",
    "transformers",
    "peft",
)  # the packages that compute


@functools.cache
def machine(device: str = "cpu") -> dict[str, str]:
    """The packages of this machine and the kind of its CPU or GPU, on which bits depend."""
    import torch

    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    if device.startswith("cuda"):
        here = torch.cuda.is_available()
        found["GPU"] = torch.cuda.get_device_name(device) if here else "of another machine"
        return found
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    named = [
        line.partition(":")[2].strip()
        for line in lines
        if line.startswith(("vendor_id", "CPU implementer"))
    ]
    found["CPU"] = f"{platform.machine()} {named[0] if named else platform.processor()}".strip()
    found["vector instructions"] = torch.backends.cpu.get_cpu_capability()
    return found
