"""Leading singular triplets of updates, kept in files: a folder for a run, a file for a layer.

A matrix is kept as `U` (rank × row), `sigma` and `Vh` (rank × col), in float32: the first of
them are read without the others, and what is mapped from a file is memory that can be freed.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from lib.checkpoints.update_spectra import LARGEST_FULL, Triplets
from lib.files.files import InputError, atomic
from lib.files.inputs import with_digest

PARTS = ("U", "sigma", "Vh")


def as_tensors(name: str, triplets: Triplets) -> dict[str, Tensor]:
    """The triplets of a matrix as they stand in a file."""
    parts = (triplets.U.mT, triplets.sigma, triplets.Vh)
    return {f"{name}/{key}": one.float() for key, one in zip(PARTS, parts, strict=True)}


def write_factors(folder: Path, layer: int, tensors: Mapping[str, Tensor]) -> None:
    """Write what `as_tensors` gives of the matrices of a layer into the folder of its run."""
    file = folder / f"layer-{layer:04d}.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with atomic(file) as part:
        part.write_bytes(with_digest(save(whole)))


def read_factors(folder: Path) -> dict[str, Triplets]:
    """The triplets of every matrix of a run, mapped from its files: read when they are used.

    Raises `InputError` where a file is cut short, or there is none.
    """
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as opened:
                for name in sorted({key.rpartition("/")[0] for key in opened.keys()}):  # noqa: SIM118
                    U, sigma, Vh = (opened.get_tensor(f"{name}/{part}") for part in PARTS)
                    found[name] = Triplets(U.mT, sigma, Vh)
        except (OSError, SafetensorError) as error:
            raise InputError(f"{file}: wanted factors of updates, got: {error}") from error
    if not found:
        raise InputError(f"{folder}: wanted the factors that spectra keep, got none")
    return found


def factors_disk(shapes: Iterable[Sequence[int]], leading: int, kept: int) -> int:
    """Roughly how many bytes the factors of a run take: at most `kept` triplets a matrix.

    The matrices have these shapes; of a large one the `leading` triplets are known.
    """
    n_bytes = 0
    for shape in shapes:
        known = min(shape) if min(shape) <= LARGEST_FULL else leading
        n_bytes += 4 * min(known, kept) * sum(shape)
    return n_bytes


def rank_of(triplets: Triplets | None) -> int:
    """The number of triplets that are kept of a matrix."""
    return 0 if triplets is None else len(triplets.sigma)


def moved(triplets: Triplets, device: torch.device | str) -> Triplets:
    """The triplets on a device."""
    return Triplets(*(one.to(device) for one in triplets))
