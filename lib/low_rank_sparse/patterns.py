r"""Sequences of noisy orthogonal patterns, labelled by a majority vote (Li et al. 2024).

A token is one of $M$ orthonormal patterns $\mu_1, \dots, \mu_M$ plus Gaussian noise. The first
patterns are discriminative: each belongs to one class. The tokens of a sample are `n_relevant` of
one pattern of its class (the *label-relevant* ones), `n_confusion` of patterns of other classes,
and else irrelevant patterns, drawn uniformly; their order is random. So the class with the most
discriminative tokens is the label. Tokens are rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from safetensors.torch import load_file
from torch import Tensor

from lib.files.files import InputError
from lib.files.inputs import read_header
from lib.files.params import Interval


@dataclass(frozen=True)
class PatternTask:
    """How a sample is made.

    In the paper's letters `n_patterns` is M, `seq_len` is L, `noise` is the c₀ of N(μ, c₀² I), α*
    is n_relevant / seq_len, and α# is n_confusion / seq_len. `patterns_of_classes` says how many
    discriminative patterns each class has; two classes of one pattern each are the paper's task.
    Raises `ValueError` where no such samples exist.
    """

    d_model: int
    n_patterns: int
    seq_len: int
    n_relevant: int
    n_confusion: int
    noise: float
    patterns_of_classes: tuple[int, ...] = (1, 1)

    def __post_init__(self) -> None:
        if len(self.patterns_of_classes) < 2 or min(self.patterns_of_classes) < 1:
            raise ValueError(
                "patterns_of_classes: wanted two classes or more with a pattern each, got "
                f"{self.patterns_of_classes}"
            )
        if not sum(self.patterns_of_classes) < self.n_patterns <= self.d_model:
            raise ValueError(
                f"n_patterns: wanted more than the {sum(self.patterns_of_classes)} discriminative "
                f"patterns and at most d_model = {self.d_model}, which can be orthogonal, got "
                f"{self.n_patterns}"
            )
        if not 0 <= self.n_confusion < self.n_relevant <= self.seq_len - self.n_confusion:
            raise ValueError(
                f"n_relevant: wanted more than n_confusion, and both to fit into {self.seq_len} "
                f"tokens, got {self.n_relevant} and {self.n_confusion}"
            )

    @property
    def n_discriminative(self) -> int:
        """The number of patterns that belong to a class; they come first."""
        return sum(self.patterns_of_classes)


def patterns_of_classes(labels: str) -> tuple[int, ...]:
    """How many label-relevant patterns each class has in a labelling such as "1|1" or "2|1".

    Raises `ValueError` for a text that is none.
    """
    try:
        return tuple(int(part) for part in labels.split("|"))
    except ValueError as error:
        raise ValueError(
            f"labels: wanted numbers of patterns such as 1|1, got {labels!r}"
        ) from error


@dataclass(frozen=True)
class Samples:
    """Samples; `patterns` has the pattern of each token, `relevant` a sample's label-relevant one.

    Labels count classes from 0; the paper's y = +1 is class 0. Further axes, such as seeds, may
    come first.
    """

    tokens: Float[Tensor, "*stack sample token d_model"]
    labels: Int[Tensor, "*stack sample"]
    patterns: Int[Tensor, "*stack sample token"]
    relevant: Int[Tensor, "*stack sample"]

    @property
    def is_relevant(self) -> Bool[Tensor, "*stack sample token"]:
        """Which tokens are label-relevant."""
        return self.patterns == self.relevant[..., None]

    def __getitem__(self, index: int | slice | Tensor) -> "Samples":
        return Samples(**{name: tensor[index] for name, tensor in vars(self).items()})

    def to(self, device: torch.device) -> "Samples":
        """The same samples on a device."""
        return Samples(**{name: tensor.to(device) for name, tensor in vars(self).items()})


def orthonormal_patterns(
    task: PatternTask, generator: torch.Generator
) -> Float[Tensor, "pattern d_model"]:
    """M orthonormal patterns in random position: rows of the Q of a Gaussian matrix."""
    G = torch.randn(task.d_model, task.d_model, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(G).Q.T[: task.n_patterns].float()


def draw_samples(
    task: PatternTask,
    mu: Float[Tensor, "pattern d_model"],
    n_samples: int,
    generator: torch.Generator,
) -> Samples:
    """Draw samples with classes in equal numbers (to within one), in random order.

    The label-relevant pattern is uniform among those of the class; each confusion token is of a
    class drawn uniformly from the others, and of a pattern drawn uniformly from that class's.
    """
    sizes = torch.tensor(task.patterns_of_classes)
    first = sizes.cumsum(0) - sizes
    n_classes = len(sizes)

    def draw(n: Tensor) -> Tensor:
        """A uniform whole number below each of n."""
        return (torch.rand(n.shape, generator=generator, dtype=torch.float64) * n).long()

    order = torch.randperm(n_samples, generator=generator)
    labels = (torch.arange(n_samples) % n_classes)[order]
    relevant = first[labels] + draw(sizes[labels])
    other = labels[:, None] + 1 + draw(torch.full((n_samples, task.n_confusion), n_classes - 1))
    other = other % n_classes
    confusion = first[other] + draw(sizes[other])
    n_others = task.seq_len - task.n_relevant - task.n_confusion
    n_irrelevant = task.n_patterns - task.n_discriminative
    irrelevant = task.n_discriminative + draw(torch.full((n_samples, n_others), n_irrelevant))
    patterns = torch.cat([relevant[:, None].expand(-1, task.n_relevant), confusion, irrelevant], 1)
    places = torch.rand(patterns.shape, generator=generator).argsort(dim=1, stable=True)
    patterns = patterns.gather(1, places)
    noise = torch.randn(*patterns.shape, task.d_model, generator=generator)
    return Samples(mu[patterns] + task.noise * noise, labels, patterns, relevant)


def draw_patterns(
    task: PatternTask, n_train: int, n_test: int, source: Callable[[str], torch.Generator]
) -> tuple[Float[Tensor, "pattern d_model"], Samples, Samples]:
    """The patterns, the training samples and the test samples.

    `source` gives the generators of `patterns`, `train` and `test`.
    """
    mu = orthonormal_patterns(task, source("patterns"))
    train = draw_samples(task, mu, n_train, source("train"))
    test = draw_samples(task, mu, n_test, source("test"))
    return mu, train, test


def permuted(labels: Int[Tensor, " sample"], generator: torch.Generator) -> Int[Tensor, " sample"]:
    """The labels in a random order, so that every class is as frequent as before."""
    return labels[torch.randperm(len(labels), generator=generator).to(labels.device)]


def epochs(
    n_samples: int, batch_size: int, n_steps: int, generator: torch.Generator
) -> Iterator[Int[Tensor, " batch"]]:
    """The samples of each of `n_steps` batches.

    Every epoch has a new random order; its incomplete batch is left out. Raises `InputError` for a
    batch of more than all samples.
    """
    per_epoch = n_samples // batch_size
    if per_epoch == 0:
        raise InputError(f"batch_size: wanted at most the {n_samples} samples, got {batch_size}")
    for epoch in range(0, n_steps, per_epoch):
        order = torch.randperm(n_samples, generator=generator)[: per_epoch * batch_size]
        yield from order.view(per_epoch, batch_size)[: n_steps - epoch]


def stacked_epochs(
    n_samples: int, batch_size: int, n_steps: int, generators: Sequence[torch.Generator]
) -> Iterator[tuple[Int[Tensor, "training 1"], Int[Tensor, "training batch"]]]:
    """The batches of several trainings, each in its own order.

    A batch is an index into tensors whose first axis counts the trainings.
    """
    which = torch.arange(len(generators))[:, None]
    feeds = [epochs(n_samples, batch_size, n_steps, draw) for draw in generators]
    for chosen in zip(*feeds, strict=True):
        yield which, torch.stack(chosen)


TENSORS = tuple(field.name for field in fields(Samples))


@dataclass(frozen=True)
class PatternData:
    """A task's patterns, training and test samples, the seeds stacked as the first axis."""

    seeds: tuple[int, ...]
    patterns: Float[Tensor, "seed pattern d_model"]
    train: Samples
    test: Samples

    def index(self, seed: int) -> int:
        """The place of a seed; raises `InputError` where it is not in the data set."""
        if seed not in self.seeds:
            raise InputError(f"seeds: wanted seeds of the data set, {list(self.seeds)}, got {seed}")
        return self.seeds.index(seed)

    def of(self, seed: int) -> tuple[Float[Tensor, "pattern d_model"], Samples, Samples]:
        """The patterns, the training samples and the test samples of a seed."""
        i = self.index(seed)
        return self.patterns[i], self.train[i], self.test[i]

    def tensors(self) -> dict[str, Tensor]:
        """Everything by name, for a file."""
        train = {f"train_{name}": tensor for name, tensor in vars(self.train).items()}
        test = {f"test_{name}": tensor for name, tensor in vars(self.test).items()}
        return {"seeds": torch.tensor(self.seeds), "patterns": self.patterns, **train, **test}


def stacked(seeds: Sequence[int], drawn: Sequence[tuple[Tensor, Samples, Samples]]) -> PatternData:
    """What was drawn for each seed, as one data set."""
    patterns, train, test = zip(*drawn, strict=True)

    def stack(parts: Sequence[Samples]) -> Samples:
        return Samples(
            **{name: torch.stack([getattr(part, name) for part in parts]) for name in TENSORS}
        )

    return PatternData(tuple(seeds), torch.stack(patterns), stack(train), stack(test))


def read_patterns(path: Path) -> PatternData:
    """Read a data set that a generate stage wrote; raises `InputError` where it is broken."""
    names = [f"{part}_{name}" for part in ("train", "test") for name in TENSORS]
    read_header(path, "a data set of patterns", ["seeds", "patterns", *names])
    tensors = load_file(path)
    parts = [{name: tensors[f"{part}_{name}"] for name in TENSORS} for part in ("train", "test")]
    seeds = tuple(tensors["seeds"].tolist())
    mu = tensors["patterns"]
    for part in parts:
        shape = part["tokens"].shape
        if (
            len(shape) != 4
            or part["patterns"].shape != shape[:3]
            or any(part[name].shape != shape[:2] for name in ("labels", "relevant"))
            or shape[0] != len(seeds)
            or shape[3] != mu.shape[-1]
        ):
            shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
            raise InputError(
                f"{path}: wanted tokens, labels and patterns that fit one another, got {shapes}"
            )
    train, test = (Samples(**part) for part in parts)
    return PatternData(seeds, mu, train, test)


NSamples = Annotated[int, Interval("[1, 1e6]")]
Size = Annotated[int, Interval("[1, 16384]")]
Tokens = Annotated[int, Interval("[0, 16384]")]


@dataclass(frozen=True)
class PatternSizes:
    """How many samples there are, and how one is made (`PatternTask`)."""

    n_train: NSamples
    n_test: NSamples
    d_model: Size
    n_patterns: Size
    seq_len: Size
    n_relevant: Size
    n_confusion: Tokens
    noise: Annotated[float, Interval("[0, 100]")]

    def task(self, patterns_of_classes: tuple[int, ...] = (1, 1)) -> PatternTask:
        """How its samples are made."""
        return PatternTask(
            self.d_model,
            self.n_patterns,
            self.seq_len,
            self.n_relevant,
            self.n_confusion,
            self.noise,
            patterns_of_classes,
        )
