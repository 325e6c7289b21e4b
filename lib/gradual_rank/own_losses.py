r"""A loss of one's own under Algorithm 1 and the flow: any function of the products.

A network with diagonal weights (Definition 3.1 of Boix-Adserà et al. 2023) enters the theory by its
loss $L(p)$ of the products $p = u \odot v$ alone. So a function that takes p and gives L(p) is a
problem; its gradient and Hessian come from automatic differentiation. It may stand in a Python file
that a table of problems names: the code that runs is the user's own, and no checkpoint can bring
any.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lib.files.files import InputError
from lib.gradual_rank.diagonal_heads import DiagonalLoss, Products

NAME = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")
NEAR = 1e-6  # of its largest entry: how exactly a gradient by hand is that of the loss


class OwnLoss(DiagonalLoss):
    r"""The loss of a function of `size` products, with its gradient by a function or by autograd.

    `function` takes p [size] in float64 and gives a scalar in float64. `slope`, where it is given,
    gives $\partial L / \partial p$ [size]. Raises `InputError`, which begins with `where`, for
    functions that give anything else, or numbers that are not finite, at p = 0 or near it, for a
    loss that is zero at p = 0, of which shares are taken, and for a slope that is another's.
    """

    def __init__(
        self,
        function: Callable[[Tensor], Any],
        size: int,
        where: str,
        slope: Callable[[Tensor], Any] | None = None,
    ):
        self.size = size
        self._function = function
        self._slope = slope
        self._where = where
        zero = torch.zeros(size, dtype=torch.float64)
        first = float(self._checked(zero))
        if first == 0:
            raise InputError(f"{where}: wanted a loss that is not zero at p = 0, got {first:g}")
        beside = torch.linspace(-0.1, 0.1, size + 1, dtype=torch.float64)[1:]
        for p in (zero, beside):
            self._checked(p)
            g = self._checked_gradient(p)
            if slope is not None and not _near(g, super().gradient(p)):
                wanted = [f"{value:.6g}" for value in (-super().gradient(p))[:3].tolist()]
                got = [f"{value:.6g}" for value in (-g)[:3].tolist()]
                raise InputError(
                    f"{where}: wanted the gradient of the loss, which begins with "
                    f"{', '.join(wanted)}, got {', '.join(got)}"
                )

    def on_share(self, share: float) -> "OwnLoss":
        """The loss itself, which is not known to be one over samples."""
        return self

    def value(self, p: Products) -> Float[Tensor, "*batch"]:
        """The loss L(p), row by row."""
        if p.dim() == 1:
            return self._function(p)
        rows = [self._function(row) for row in p.reshape(-1, p.shape[-1])]
        return torch.stack(rows).reshape(p.shape[:-1])

    def gradient(self, p: Products) -> Products:
        """The negative gradient g(p)."""
        if self._slope is None:
            return super().gradient(p)
        rows = [-self._slope(row) for row in p.detach().reshape(-1, p.shape[-1])]
        return torch.stack(rows).reshape(p.shape)

    def _checked(self, p: Tensor) -> Tensor:
        """The loss at p, if it is a finite scalar in float64 that depends on p."""
        found = self._called(lambda: self._function(p))
        if not isinstance(found, Tensor) or found.shape or found.dtype != torch.float64:
            wanted = "wanted a loss that is a scalar tensor of float64"
            raise InputError(f"{self._where}: {wanted}, got {_said(found)}")
        if not found.isfinite():
            raise InputError(f"{self._where}: wanted a finite loss, got {float(found)}")
        return found.detach()

    def _checked_gradient(self, p: Tensor) -> Tensor:
        found = self._called(lambda: self.gradient(p))
        if not isinstance(found, Tensor) or found.shape != p.shape or found.dtype != p.dtype:
            wanted = f"wanted a gradient of {len(p)} numbers in float64"
            raise InputError(f"{self._where}: {wanted}, got {_said(found)}")
        if not found.isfinite().all():
            raise InputError(f"{self._where}: wanted a finite gradient, got {(-found).tolist()}")
        return found

    def _called(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # whatever the user's code raises
            raise InputError(
                f"{self._where}: wanted a loss of {self.size} products, got "
                f"{type(error).__name__}: {error}"
            ) from error


@dataclass(frozen=True)
class Named:
    """The names MODULE:FUNCTION of a loss, and of its gradient where there is one by hand."""

    loss: str
    gradient: str | None = None

    def of(self, file: Path, size: int, seed: int) -> OwnLoss:
        """The loss of `size` products for a seed, from the functions of a file.

        Both are called as function(p, seed). Raises `InputError` where a name is none of the file,
        or the functions are not what `OwnLoss` wants.
        """
        where = f"{file}: {self.loss}, seed {seed}"
        function = partial(named(self.loss, file), seed=seed)
        slope = None if self.gradient is None else partial(named(self.gradient, file), seed=seed)
        return OwnLoss(function, size, where, slope)


def named(name: str, file: Path) -> Callable[..., Any]:
    """The function that a table calls MODULE:FUNCTION, which must stand in the file.

    The module of a/b.py is a.b. The file is named beside the table, as DVC runs a stage anew where
    the content of a file that it knows has changed. Raises `InputError`.
    """
    found = NAME.fullmatch(name)
    if not found:
        raise InputError(f"wanted a loss as MODULE:FUNCTION, got {name!r}")
    module, function = found.groups()
    path = Path(*module.split(".")).with_suffix(".py")
    if path != file:
        raise InputError(f"{name}: wanted a function of {file}, the file of losses, got {path}")
    loaded = _module(module, file)
    value = getattr(loaded, function, None)
    if not callable(value):
        has = sorted(key for key, one in vars(loaded).items() if _is_own(one, module))
        raise InputError(f"{file}: wanted a function {function!r}, got the functions {has}")
    return value


def _module(name: str, file: Path) -> Any:
    """The module of a file, which is run anew."""
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file}: wanted a Python file, got another")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's code raises
        raise InputError(
            f"{file}: wanted a file that can be imported, got {type(error).__name__}: {error}"
        ) from error
    return module


def _is_own(value: Any, module: str) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module


def _near(g: Tensor, wanted: Tensor) -> bool:
    return bool((g - wanted).abs().max() <= NEAR * wanted.abs().max())


def _said(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} with the shape {list(value.shape)}"
    return f"{type(value).__name__}"
