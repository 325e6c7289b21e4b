"""What the updates of linear layers gain on a text, and how much of it a cut loses."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lib.checkpoints.accuracy import Judged, judged
from lib.checkpoints.factors import moved
from lib.checkpoints.folders import Checkpoint, aligned
from lib.checkpoints.known_structures import known_places
from lib.checkpoints.library import refusing
from lib.checkpoints.linear_modules import linear_modules, stored_as_columns
from lib.checkpoints.models import linear_places, open_base, open_tuned_model
from lib.checkpoints.part_losses import part_losses
from lib.checkpoints.split_texts import Split
from lib.checkpoints.texts import (
    Batch,
    batch_losses,
    check_next_token,
    counted,
    digest,
    loss,
    mean_loss,
    mean_of,
    shares,
)
from lib.checkpoints.update_spectra import Triplets
from lib.files.files import InputError
from lib.work.cells import kept

PARTS = 8  # of a batch, at most, each of which has a loss of its own: what noise is told by
Weight = Float[Tensor, "_ _"]


class LinearUpdates:
    """The linear modules of a live model, moved between their base and what they were tuned to.

    `base` and `tuned` are held as they are given, in the types in which they are stored; the model
    may be on another device, and one module at a time is made in its type. Without `tuned` a copy
    is held of what the model has.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        base: Mapping[str, Weight],
        tuned: Mapping[str, Weight] | None = None,
    ):
        live = linear_modules(model)
        self.model = model
        self.parameters: dict[str, Any] = {name: live[name].weight for name in base}
        self.base = base
        self.tuned = tuned or {n: one.detach().clone() for n, one in self.parameters.items()}

    @property
    def updates(self) -> Mapping[str, Weight]:
        """What training added to each, made when it is asked for."""
        return _Updates(self)

    def set(self, weights: Iterable[tuple[str, Weight]]) -> None:
        """Have the model compute with these weights."""
        with torch.no_grad():
            for name, weight in weights:
                self.parameters[name].copy_(weight)

    def set_ranks(self, ranks: Mapping[str, int], factors: Mapping[str, Triplets]) -> None:
        """Have the model compute with every update cut to its rank; none is a rank of 0."""

        def cut() -> Iterator[tuple[str, Weight]]:
            for name, parameter in self.parameters.items():
                weight = self.base[name].to(parameter)
                rank = ranks.get(name, 0)
                if rank:
                    first = moved(factors[name].first(rank), weight.device)
                    weight = weight + first.cut(rank).to(weight)
                yield name, weight

        self.set(cut())

    def leave(self, names: Collection[str]) -> None:
        """Move these modules no more: they stay as they are."""
        for held in ("parameters", "base", "tuned"):
            of = getattr(self, held)
            setattr(self, held, {name: one for name, one in of.items() if name not in names})

    def release(self) -> None:
        """Let go of the model and of all weights."""
        self.model = torch.nn.Module()
        self.parameters, self.base, self.tuned = {}, {}, {}

    def mean_loss(self, batches: Sequence[Batch]) -> float:
        """The mean of the loss over batches of equal size, with the weights as they are set."""
        return mean_loss(self.model, batches)

    def drop(self, batches: Sequence[Batch]) -> float:
        """By how much the updates lower the loss; the weights are left as tuned."""
        self.set(self.base.items())
        before = self.mean_loss(batches)
        self.set(self.tuned.items())
        return before - self.mean_loss(batches)


class _Updates(Mapping[str, Weight]):
    """W - W_0 of each module, in the type and on the device in which the model has it."""

    def __init__(self, linear: LinearUpdates):
        self._linear = linear

    def __getitem__(self, name: str) -> Weight:
        linear = self._linear
        parameter = linear.parameters[name]
        return linear.tuned[name].to(parameter) - linear.base[name].to(parameter)

    def __iter__(self) -> Iterator[str]:
        return iter(self._linear.parameters)

    def __len__(self) -> int:
        return len(self._linear.parameters)


class Ends(NamedTuple):
    """The losses of some batches with the whole update of the linear modules, and with none."""

    tuned: list[float]
    none: list[float]


class GainMeasure:
    """What the linear updates of a model gain on a text, and how much of it a cut loses.

    All else of the model is tuned. Raises `InputError` where the updates gain nothing.
    """

    def __init__(
        self,
        linear: LinearUpdates,
        factors: Mapping[str, Triplets],
        batches: Sequence[Batch],
        ends: Ends,
    ):
        self.linear = linear
        self.factors = factors
        self.batches = batches
        self.each_tuned, self.each_none = ends
        self.tuned = mean_of(self.each_tuned, batches)
        self.none = mean_of(self.each_none, batches)
        if not self.gain > 0:
            got = f"got {self.none:.4g} without their updates and {self.tuned:.4g} with them"
            wanted = "wanted a text on which the tuned linear layers lower the loss"
            raise InputError(f"TEXT: {wanted}, {got}")

    @property
    def gain(self) -> float:
        """By how much the linear updates lower the loss."""
        return self.none - self.tuned

    def of(self, ranks: Mapping[str, int]) -> list[float]:
        """The loss of each batch with every update cut to its rank."""
        self.linear.set_ranks(ranks, self.factors)
        return batch_losses(self.linear.model, self.batches)

    def on(
        self, model: torch.nn.Module, parts: "Parts", some: slice = slice(None)
    ) -> Callable[[Mapping[str, int]], list[float]]:
        """The losses of another model, such as the base, on some parts of a text, by the ranks of
        the adapter that it gets.

        The model computes in its own type; the adapter is added to a layer's output in float32, as
        peft does.
        """
        layers = linear_modules(model)
        device = next(model.parameters()).device

        def lost(ranks: Mapping[str, int]) -> list[float]:
            hooks = []
            for name, rank in ranks.items():
                update = moved(self.factors[name].first(rank), device)
                by_columns = stored_as_columns(layers[name])
                hooks.append(layers[name].register_forward_hook(_adding(update, by_columns)))
            try:
                return losses_of(model, parts, some)
            finally:
                for hook in hooks:
                    hook.remove()

        return lost

    def without(self, parameters: Mapping[str, Tensor]) -> float:
        """The loss of the tuned model with these parameters in place of its own; the model is left
        as tuned.
        """
        self.linear.set(self.linear.tuned.items())
        live = {name: self.linear.model.get_parameter(name) for name in parameters}
        held = {name: one.detach().clone() for name, one in live.items()}
        with torch.no_grad():
            for name, one in live.items():
                one.copy_(parameters[name])
            found = self.linear.mean_loss(self.batches)
            for name, one in live.items():
                one.copy_(held[name])
        return found

    def share_lost(self, loss: Any) -> Any:
        """0 with the whole update of the linear layers, 1 with none."""
        return (loss - self.tuned) / self.gain

    def share_noise(self, losses: Sequence[float]) -> float:
        """The noise of the share that is lost, of the losses of the batches."""
        weights = np.array(shares(self.batches)) / len(self.batches)
        lost, gain = (np.subtract(one, self.each_tuned) for one in (losses, self.each_none))
        return share_and_noise(weights, lost, gain)[1]


def share_and_noise(
    weights: Float[np.ndarray, " part"],
    some: Float[np.ndarray, " part"],
    whole: Float[np.ndarray, " part"],
) -> tuple[float, float]:
    r"""The share $s = \sum w_i a_i / \sum w_i b_i$ of weighted means over parts, and its noise.

    The noise is two standard errors of this ratio, to first order: $2 \sqrt{\frac{n}{n-1} \sum
    w_i^2 (a_i - s b_i)^2} / |\sum w_i b_i|$; infinity where there is one part. Both are no number
    where the whole is zero.
    """
    total = float(weights @ whole)
    if not total:
        return np.nan, np.nan
    share = float(weights @ some) / total
    n = len(weights)
    spread = float(np.sqrt((weights**2) @ (some - share * whole) ** 2)) / abs(total)
    return share, 2 * spread * (n / (n - 1)) ** 0.5 if n > 1 else np.inf


def mean_and_noise(
    weights: Float[np.ndarray, " part"], values: Float[np.ndarray, " part"]
) -> tuple[float, float]:
    r"""The weighted mean over parts, and its noise: $2 \sqrt{\frac{n}{n-1} \sum w_i^2
    (x_i - \bar x)^2}$, two standard errors; infinity where there is one part.
    """
    mean = float(weights @ values)
    n = len(values)
    spread = float(np.sqrt((weights**2) @ (values - mean) ** 2))
    return mean, 2 * spread * (n / (n - 1)) ** 0.5 if n > 1 else np.inf


class Parts:
    """A text in parts of some samples: what its loss is, and how certainly it is less than another.

    A part has the weight of what it counts, so that the mean over parts is that over batches. What
    counts nothing is left out.
    """

    def __init__(self, batches: Sequence[Batch]):
        self.whole = batches
        self.batches: list[Batch] = []
        of_batch = []
        for i, batch in enumerate(batches):
            pieces = {name: values.chunk(PARTS) for name, values in batch.items()}
            parts = [
                dict(zip(pieces, one, strict=True)) for one in zip(*pieces.values(), strict=True)
            ]
            counting = [part for part in parts if counted(part)]
            self.batches += counting
            of_batch += [i] * len(counting)
        self.weights = np.array(shares(self.batches)) / len(self.batches)
        self.of_batch = np.array(of_batch)

    def of_batches(self, some: slice = slice(None)) -> list[list[Batch]]:
        """Some of the parts, those of one batch together."""
        found: dict[int, list[Batch]] = {}
        for i, part in zip(self.of_batch[some].tolist(), self.batches[some], strict=True):
            found.setdefault(i, []).append(part)
        return list(found.values())

    def mean(self, losses: Sequence[float]) -> float:
        """The loss over all parts."""
        return float(self.weights @ np.array(losses))

    def by_batch(self, losses: Sequence[float]) -> list[float]:
        """The loss of each batch, which is the mean over its parts."""
        weighted = np.bincount(self.of_batch, self.weights * np.array(losses))
        return (weighted / np.bincount(self.of_batch, self.weights)).tolist()

    def difference(self, one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
        """By how much the mean of some losses is above that of others, and its noise: two standard
        errors of the paired differences over parts; infinity where there is one part.
        """
        return mean_and_noise(self.weights, np.subtract(one, other))

    def kept(
        self, losses: Sequence[float], alone: Sequence[float], whole: Sequence[float]
    ) -> tuple[float, float]:
        """The share of the fall of the loss from `alone` to `whole` that is there with some losses,
        and its noise.
        """
        return share_and_noise(self.weights, np.subtract(alone, losses), np.subtract(alone, whole))

    def best(self, losses: Mapping[str, Sequence[float]]) -> str:
        """The rule with the lowest loss of those that are below `uniform` by more than the noise.

        It is `uniform` where there is none: then an adapter of one rank is as good, and right in
        every runtime. A loss that is no number is above all others.
        """
        uniform = losses["uniform"]
        means = {}
        for rule, found in losses.items():
            above, noise = self.difference(found, uniform)
            if found is uniform or above < -noise or not np.isfinite(uniform).all():
                mean = self.mean(found)
                means[rule] = mean if np.isfinite(mean) else np.inf
        return min(means, key=means.__getitem__)


def losses_of(model: torch.nn.Module, parts: Parts, some: slice = slice(None)) -> list[float]:
    """The loss of each part, or of some."""
    own_type = [[in_type_of(model, part) for part in of] for of in parts.of_batches(some)]
    return part_losses(model, own_type)


def losses_with_whole(
    model: torch.nn.Module,
    base: Mapping[str, Weight],
    tuned: Mapping[str, Weight],
    parts: Parts,
) -> list[float]:
    """The losses of a model, such as the base, with every linear update whole, none of it cut.

    An update is added as an adapter's is, to a layer's output in float32; one is made at a time.
    """
    layers = linear_modules(model)
    hooks = []
    for name in base:
        adding = _adding_whole(base[name], tuned[name], stored_as_columns(layers[name]))
        hooks.append(layers[name].register_forward_hook(adding))
    try:
        return losses_of(model, parts)
    finally:
        for hook in hooks:
            hook.remove()


def measured_ends(
    base: Checkpoint, tuned: Checkpoint, linear: LinearUpdates, parts: Parts, device: str = "cpu"
) -> tuple[Judged, Ends]:
    """The tuned model's losses of the parts, and of batches those of both ends.

    They are kept by what they depend on: what the check of a text measured, its plan finds.
    """
    files = [*base.files, *tuned.files]
    given = {"modules": sorted(linear.base), "batches": [digest(one) for one in parts.whole]}

    def with_all() -> Judged:
        linear.set(linear.tuned.items())
        return judged(linear.model, partial(losses_of, linear.model, parts))

    def with_none() -> list[float]:
        linear.set(linear.base.items())
        return batch_losses(linear.model, parts.whole)

    with kept(measured_ends, *files, given, device=device) as keep:
        whole = keep("tuned", with_all)
        none = keep("none", with_none)
    return whole, Ends(parts.by_batch(whole["losses"]), none)


def check_text(
    base: Checkpoint, tuned: Checkpoint, text: Split | None, without: Collection[str] = ()
) -> tuple[list[str], int]:
    """Raise `InputError` where a plan of this pair and text would, `without` some modules: before
    any work.

    One batch goes through both models, in the types in which they run; the batches that are
    measured tell whether there is a gain. Gives the modules that are never called (`uncalled`),
    which a plan has to do without too, and how many it then has. Without a text only the names of
    modules are matched.
    """
    base = aligned(base, tuned)
    if text is None:
        return [], len(places_of_updates(base, tuned, without))
    batches = text.batches
    shares(batches)
    _check_loss(open_base(base)[0], batches[0])
    linear, _ = opened_updates(base, tuned, without=without)
    _check_loss(linear.model, batches[0])
    check_next_token(linear.model, tuned.config, batches)
    dead = uncalled(linear, batches[0])
    linear.leave(dead)
    if linear.base:
        _, ends = measured_ends(base, tuned, linear, Parts(text.measured))
        GainMeasure(linear, {}, text.measured, ends)
    return dead, len(linear.base)


def uncalled(linear: LinearUpdates, batch: Batch) -> list[str]:
    """The linear modules whose weight a loss depends on and whose forward never runs.

    What reads a weight past its module, as a fused kernel does, never sees what peft adds to the
    module. One forward and one backward pass; a slope is dropped as soon as it is there. Raises
    `InputError` where a pass fails, and where no module has a slope: Reformer makes its own in
    training mode alone.
    """
    if not linear.parameters:
        return []
    layers = linear_modules(linear.model)
    read: set[str] = set()
    called: set[str] = set()

    def note(name: str, parameter: Tensor) -> None:
        read.add(name)
        parameter.grad = None

    def call(name: str, *_: Any) -> None:
        called.add(name)

    hooks = []
    for name, weight in linear.parameters.items():
        hooks.append(weight.register_post_accumulate_grad_hook(partial(note, name)))
        hooks.append(layers[name].register_forward_pre_hook(partial(call, name)))
    try:
        wanted = f"TEXT: wanted samples of which {type(linear.model).__name__} has a slope"
        with refusing(wanted):
            found = loss(linear.model, in_type_of(linear.model, batch))
            found.backward(inputs=list(linear.parameters.values()))
    finally:
        for hook in hooks:
            hook.remove()
    if not read:
        n = len(linear.parameters)
        raise InputError(f"{wanted}, got none by the weight of any of its {n} linear layers")
    return [name for name in linear.parameters if name in read - called]


def opened_updates(
    base: Checkpoint, tuned: Checkpoint, device: str = "cpu", without: Collection[str] = ()
) -> tuple[LinearUpdates, dict[str, tuple[str, bool]]]:
    """The model of a checkpoint in float32 with its updates, and where its modules are stored.

    The modules that a plan is `without` are left as tuned. Beside the model nothing is held but
    what is mapped from the files.
    """
    model = open_tuned_model(tuned)
    found = places_of_updates(base, tuned, without, model)
    begun, ended = ({n: of.load(at) for n, (at, _) in found.items()} for of in (base, tuned))
    return LinearUpdates(model.float().to(device), begun, ended), found


def places_of_updates(
    base: Checkpoint,
    tuned: Checkpoint,
    without: Collection[str] = (),
    model: torch.nn.Module | None = None,
) -> dict[str, tuple[str, bool]]:
    """The tensor of each linear module that a plan may have, and whether it is stored as in × out.

    A layer that the base lacks has no update, and a plan is `without` some. Where no live model is
    given, names alone decide.
    """
    places = (None if model else known_places(tuned)) or linear_places(tuned, model)
    shared = {name: at for name, at in places.items() if at[0] in base.tensors}
    return {name: at for name, at in shared.items() if name not in without}


def _check_loss(model: torch.nn.Module, batch: Batch) -> None:
    """Raise `InputError` where the loss of a batch is no number."""
    found = mean_loss(model, [in_type_of(model, batch)])
    if not np.isfinite(found):
        name = type(model).__name__
        raise InputError(f"TEXT: wanted samples of which {name} has a finite loss, got {found}")


def in_type_of(model: torch.nn.Module, batch: Batch) -> Batch:
    """A batch whose real numbers have the type of the model's."""
    dtype = next(model.parameters()).dtype
    return {name: of.to(dtype) if of.is_floating_point() else of for name, of in batch.items()}


def _adding(update: Triplets, by_columns: bool) -> Callable[..., Tensor]:
    """A hook that adds x ΔW to what a layer makes of x: in float32, as peft does."""
    scaled = update.U * update.sigma
    first = scaled if by_columns else update.Vh.mT
    second = update.Vh if by_columns else scaled.mT

    def add(_: torch.nn.Module, given: tuple[Tensor, ...], made: Tensor) -> Tensor:
        return (made + given[0].float() @ first @ second).to(made.dtype)

    return add


def _adding_whole(base: Weight, tuned: Weight, by_columns: bool) -> Callable[..., Tensor]:
    """A hook that adds x (W - W_0) to what a layer makes of x, in float32."""

    def add(_: torch.nn.Module, given: tuple[Tensor, ...], made: Tensor) -> Tensor:
        update = tuned.to(made.device).float() - base.to(made.device).float()
        return (made + given[0].float() @ (update if by_columns else update.mT)).to(made.dtype)

    return add
