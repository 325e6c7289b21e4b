"""The 1797 real 8 × 8 handwritten digits that scikit-learn carries.

Source: UCI Optical Recognition of Handwritten Digits (the official test set); see
`sklearn.datasets.load_digits`.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from lib.files.files import InputError


def digits_file() -> Path:
    """Where scikit-learn has its file `digits.csv.gz`; it is found without loading scikit-learn."""
    package = find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise InputError("wanted scikit-learn, which carries the digits, got none")
    return Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"


def read_digits(folder: Path, n_test: int, seed: int) -> dict[str, np.ndarray]:
    """The digits (values 0 to 16) from the folder of `digits.csv.gz`, split at random by class.

    The keys are train_images (uint8, [n, 1, 8, 8]), train_labels, test_images and test_labels.
    Raises `InputError` where the file is missing or another.
    """
    from sklearn.model_selection import train_test_split

    path = folder / "digits.csv.gz"
    try:
        table = np.loadtxt(path, delimiter=",").astype(np.int64)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path}: wanted scikit-learn's digits, got: {error}") from error
    if (
        table.shape != (1797, 65)
        or table.min() < 0
        or table[:, :64].max() > 16
        or table[:, 64].max() > 9
    ):
        wanted = "wanted 1797 rows of 64 pixels in 0..16 and a class"
        raise InputError(f"{path}: {wanted}, got {table.shape}")
    pictures = table[:, :64].reshape(-1, 1, 8, 8).astype(np.uint8)
    labels = table[:, 64]
    train, test = train_test_split(
        np.arange(len(labels)), test_size=n_test, random_state=seed, stratify=labels
    )
    return {
        "train_images": pictures[train],
        "train_labels": labels[train],
        "test_images": pictures[test],
        "test_labels": labels[test],
    }
