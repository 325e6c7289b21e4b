"""The ways to train that are compared: the plain one, and the cases of a table that params name."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from lib.files.files import InputError
from lib.files.params import Interval, Positive, read_cases
from lib.training.sgd import Optimizer
from lib.vision.vit import MATRICES, Attention, Scaled

InitScale = Annotated[float, Interval("(0, 100]")]


@dataclass(frozen=True)
class Variant:
    """One way to train; a case without an init scale is trained at every scale of the plain one."""

    init_scale: InitScale | None = None
    labels: Literal["true", "permuted"] = "true"
    optimizer: Optimizer = "adam"
    learning_rate: Positive | None = None  # where a case has none, the params' own
    weight_decay: Positive | None = None  # for adamw alone
    # What muon orthogonalises: whole matrices, or each head's part.
    muon_of: Literal["matrices", "heads"] = "matrices"
    scaled: Scaled = "layers"
    attention: Attention = "plain"
    name: str = "plain"

    def __post_init__(self) -> None:
        if (self.weight_decay is None) == (self.optimizer == "adamw"):
            got = f"got {self.weight_decay} of {self.optimizer}"
            raise ValueError(f"weight_decay: wanted it of adamw alone, {got}")

    def rule(self, learning_rate: float) -> dict[str, Any]:
        """The arguments of `sgd` by which it updates its weights."""
        whole = self.muon_of == "matrices"
        return {
            "optimizer": self.optimizer,
            "matrices": {name: len(axes) - 1 if whole else 2 for name, axes in MATRICES.items()},
            "learning_rate": self.learning_rate or learning_rate,
            "weight_decay": self.weight_decay or 0.0,
        }

    @property
    def control(self) -> str:
        """What differs from the plain training, as `labels=permuted,optimizer=sgd`, or `none`."""
        plain = asdict(Variant(self.init_scale, name=self.name))
        differs = {key: value for key, value in asdict(self).items() if value != plain[key]}
        parts = [
            f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in differs.items()
        ]
        return ",".join(parts).replace(" ", "-") or "none"

    @property
    def run(self) -> str:
        """The init scale and the control: the run's folder."""
        return f"init_scale={self.init_scale:g},{self.control}".removesuffix(",none")


def chosen_cases(file: Path, names: Sequence[str]) -> list[Variant]:
    """The cases of these names; raises `InputError` where the table lacks one."""
    cases = {case.name: case for case in read_cases(file, Variant)}
    if not cases.keys() >= set(names):
        wanted = f"wanted some of {list(cases)}, the cases of {file}"
        raise InputError(f"controls: {wanted}; got {names}")
    return [cases[name] for name in names]


def chosen_variants(
    file: Path, names: Sequence[str], init_scales: Sequence[float]
) -> list[Variant]:
    """The plain training at every init scale, then the cases of these names."""
    variants = [Variant(scale) for scale in init_scales]
    for case in chosen_cases(file, names):
        scales = init_scales if case.init_scale is None else [case.init_scale]
        variants += [replace(case, init_scale=scale) for scale in scales]
    runs = [variant.run for variant in variants]
    if not runs:
        raise InputError(f"init_scales: wanted one for the controls {list(names)}, got none")
    if len(set(runs)) < len(runs):
        raise InputError(f"controls: wanted variants that differ, got {runs}")
    return variants
