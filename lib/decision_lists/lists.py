r"""Sequences of tokens, and labels that a decision list of each token determines.

Tokens are 0 .. n_tokens - 1. The list of token a is $L_a = (a_1, \dots, a_m)$ with distinct entries
and $a_m = a$. In a sequence s that holds a, the label of a is $\pi(a_{j^*})$ with $j^* = \min\{j :
a_j \in s\}$: the first entry of the list that occurs anywhere in s determines it. The order of the
tokens of s plays no part, so that sequences come as classes of equal counts: the subsets of the
tokens (distinct tokens), or the multisets (tokens with repeats).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, combinations_with_replacement
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lib.decision_lists.tables.tasks import TASKS
from lib.files.inputs import read_as
from lib.training.devices import generator

Lists = tuple[tuple[int, ...], ...]

KINDS = ("cyclic", "random", "shared heads")
OWN = "own "  # begins lists that somebody wrote down
LAWS = ("uniform", "dirichlet")
NUMBERED_LAWS = ("zipf", "log-normal", "frequent heads", "sparse", "topics")
OWN_LAWS = ("frequencies", "sequences")


def lists_of(
    kind: str, n_tokens: int, length: int, n_heads: int, generator: torch.Generator
) -> Lists:
    """Lists of one of `KINDS`, or lists that are written down behind `OWN`."""
    if kind == "cyclic":
        return cyclic_lists(n_tokens, length)
    if kind == "random":
        return random_lists(n_tokens, length, generator)
    if kind == "shared heads":
        return shared_heads_lists(n_tokens, length, n_heads, generator)
    return own_lists(kind.removeprefix(OWN), n_tokens)


def cyclic_lists(n_tokens: int, length: int) -> Lists:
    """Lists on a circle: that of a has the `length` - 1 tokens before it, the farthest first."""
    _check_length(n_tokens, length)
    return tuple(
        tuple((a - i) % n_tokens for i in reversed(range(length))) for a in range(n_tokens)
    )


def random_lists(n_tokens: int, length: int, generator: torch.Generator) -> Lists:
    """Random lists: that of a has `length` - 1 other tokens in random order, then a."""
    _check_length(n_tokens, length)
    lists = []
    for a in range(n_tokens):
        others = [b for b in torch.randperm(n_tokens, generator=generator).tolist() if b != a]
        lists.append((*others[: length - 1], a))
    return tuple(lists)


def shared_heads_lists(
    n_tokens: int, length: int, n_heads: int, generator: torch.Generator
) -> Lists:
    """Lists that begin with the heads, the tokens 0 .. n_heads - 1; a head's list is itself alone.

    The other tokens, in random order, take `length` - 1 consecutive heads on the circle of heads,
    and each begins one head further on: there are `n_heads` patterns, equally frequent up to one.
    """
    _check_length(n_tokens, length)
    if not length - 1 <= n_heads < n_tokens:
        raise ValueError(f"n_heads must lie in {length - 1}..{n_tokens - 1}, got {n_heads}")
    lists: list[tuple[int, ...]] = [(a,) for a in range(n_tokens)]
    for i, j in enumerate(torch.randperm(n_tokens - n_heads, generator=generator).tolist()):
        a = n_heads + j
        lists[a] = (*((i + h) % n_heads for h in range(length - 1)), a)
    return tuple(lists)


def own_lists(text: str, n_tokens: int) -> Lists:
    """Lists that somebody wrote down, such as `2 1 0 / 1 / 0 2`.

    The list of token 0 comes first; each list ends with its own token.
    """
    parts = text.split("/")
    if len(parts) != n_tokens:
        raise ValueError(
            f"own lists: wanted one per token, {n_tokens}, between slashes, got {len(parts)}"
        )
    lists = tuple(tuple(int(b) if b.isdigit() else -1 for b in part.split()) for part in parts)
    for a, entries in enumerate(lists):
        distinct = len(set(entries)) == len(entries) and set(entries) <= set(range(n_tokens))
        if not distinct or entries[-1:] != (a,):
            wanted = f"distinct tokens below {n_tokens}, the last of them {a}"
            raise ValueError(f"own lists: wanted for token {a} {wanted}, got {parts[a].strip()!r}")
    return lists


def _check_length(n_tokens: int, length: int) -> None:
    if not 1 <= length <= n_tokens:
        raise ValueError(f"length must lie in 1..{n_tokens}, got {length}")


def random_permutation(n_tokens: int, generator: torch.Generator) -> tuple[int, ...]:
    """A permutation that is not its own inverse, so that a transposed matrix P is noticed.

    Two tokens have no such permutation: any is returned.
    """
    while True:
        pi = torch.randperm(n_tokens, generator=generator)
        if n_tokens < 3 or not torch.equal(pi[pi], torch.arange(n_tokens)):
            return tuple(pi.tolist())


def label_matrix(
    permutation: Sequence[int] | Int[Tensor, " token"],
) -> Float[Tensor, "label token"]:
    r"""The permutation matrix P with $P_{\pi(b), b} = 1$: rows are labels, columns are tokens."""
    n_tokens = len(permutation)
    P = torch.zeros(n_tokens, n_tokens, dtype=torch.float64)
    P[torch.as_tensor(permutation), torch.arange(n_tokens)] = 1
    return P


def in_list_order(lists: Lists) -> Float[Tensor, "key query"]:
    """W that orders every column by its list.

    An entry is 0 outside of the list, 1 at its end, and one more for each place towards its head.
    """
    W = torch.zeros(len(lists), len(lists), dtype=torch.float64)
    for a, entries in enumerate(lists):
        W[list(entries), a] = torch.arange(len(entries), 0, -1).double()
    return W


def subsets(n_tokens: int, seq_len: int) -> Float[Tensor, "class token"]:
    """The counts of every sequence class of `seq_len` distinct tokens: zeros and ones."""
    if not 1 <= seq_len <= n_tokens:
        raise ValueError(f"seq_len must lie in 1..{n_tokens}, got {seq_len}")
    return _counts(list(combinations(range(n_tokens), seq_len)), n_tokens)


def _counts(classes: list[tuple[int, ...]], n_tokens: int) -> Float[Tensor, "class token"]:
    counts = torch.zeros(len(classes), n_tokens, dtype=torch.float64)
    tokens = torch.tensor(classes)
    return counts.scatter_add_(1, tokens, torch.ones_like(tokens, dtype=torch.float64))


def classes_of(n_tokens: int, seq_len: int, repeats: bool) -> Float[Tensor, "class token"]:
    """The counts of every sequence class, with repeats or without."""
    if not repeats:
        return subsets(n_tokens, seq_len)
    return _counts(list(combinations_with_replacement(range(n_tokens), seq_len)), n_tokens)


def n_classes_of(n_tokens: int, seq_len: int, repeats: bool) -> int:
    """The number of classes of sequences."""
    return math.comb(n_tokens + repeats * (seq_len - 1), seq_len)


def zipf_frequencies(
    n_tokens: int, exponent: float, generator: torch.Generator
) -> Float[Tensor, " token"]:
    r"""Frequencies $r^{-\mathrm{exponent}}$ of the ranks r = 1 .. n_tokens, in random order."""
    ranks = torch.randperm(n_tokens, generator=generator).double() + 1
    return ranks**-exponent


def log_normal_frequencies(
    n_tokens: int, sigma: float, generator: torch.Generator
) -> Float[Tensor, " token"]:
    r"""Frequencies $e^{\sigma g}$, g standard normal."""
    return (sigma * torch.randn(n_tokens, generator=generator, dtype=torch.float64)).exp()


def frequent_heads(n_tokens: int, n_heads: int, ratio: float) -> Float[Tensor, " token"]:
    """The frequency `ratio` for the tokens 0 .. n_heads - 1, and one for the others."""
    frequencies = torch.ones(n_tokens, dtype=torch.float64)
    frequencies[:n_heads] = ratio
    return frequencies


def product_law(
    counts: Float[Tensor, "class token"], frequencies: Float[Tensor, " token"]
) -> Float[Tensor, " class"]:
    r"""Probabilities of the classes $\propto \prod_b \theta_b^{N_b} / N_b!$.

    On multisets it is the law of tokens drawn independently with the frequencies $\theta$; on
    subsets, that law given that no token repeats.
    """
    weight = (counts @ frequencies.log() - torch.lgamma(counts + 1).sum(1)).exp()
    return weight / weight.sum()


def own_frequencies(text: str, n_tokens: int) -> Float[Tensor, " token"]:
    """Frequencies that somebody wrote down, such as `3 1 1`: one per token, above 0."""
    try:
        frequencies = [float(number) for number in text.split()]
    except ValueError:
        frequencies = []
    if len(frequencies) != n_tokens or not all(0 < theta < math.inf for theta in frequencies):
        raise ValueError(
            f"frequencies: wanted {n_tokens} numbers above 0, one per token, got {text!r}"
        )
    return torch.tensor(frequencies, dtype=torch.float64)


def own_law(counts: Float[Tensor, "class token"], text: str) -> Float[Tensor, " class"]:
    """Probabilities that somebody wrote down, such as `0 1 = 3 / 1 2 = 1`.

    The numbers are weights of these classes; every other class is impossible.
    """
    classes = {tuple(row): i for i, row in enumerate(counts.tolist())}
    weights = torch.zeros(len(counts), dtype=torch.float64)
    for part in text.split("/"):
        tokens, _, number = part.partition("=")
        found = tuple(tokens.split().count(str(b)) for b in range(counts.shape[1]))
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        known = sum(found) == len(tokens.split()) and found in classes
        if not known or not 0 < weight < math.inf or weights[classes[found]] > 0:
            wanted = "sequences of the group's length, each once and with a weight above 0"
            raise ValueError(f"sequences: wanted {wanted}, such as 0 1 = 3, got {part.strip()!r}")
        weights[classes[found]] = weight
    return weights / weights.sum()


def dirichlet_law(n_classes: int, generator: torch.Generator) -> Float[Tensor, " class"]:
    """Probabilities of the classes, drawn such that all laws are equally likely."""
    weight = -torch.log1p(-torch.rand(n_classes, generator=generator, dtype=torch.float64))
    return weight / weight.sum()


def sparse_law(n_classes: int, share: float, generator: torch.Generator) -> Float[Tensor, " class"]:
    """Probabilities that are not zero on a `share` of the classes: `dirichlet_law` on some drawn at
    random.

    At least one class is possible.
    """
    possible = torch.randperm(n_classes, generator=generator)[: max(1, round(share * n_classes))]
    probability = torch.zeros(n_classes, dtype=torch.float64)
    probability[possible] = dirichlet_law(len(possible), generator)
    return probability


def topics_law(
    counts: Float[Tensor, "class token"], n_topics: int, generator: torch.Generator
) -> Float[Tensor, " class"]:
    """The mean of `n_topics` product laws, each with log-normal frequencies (sigma 1) of its own.

    A sequence is of one topic, so that its tokens depend on each other.
    """
    topics = [
        product_law(counts, log_normal_frequencies(counts.shape[1], 1.0, generator))
        for _ in range(n_topics)
    ]
    return torch.stack(topics).mean(0)


@dataclass(frozen=True)
class Law:
    """A law over sequences.

    `value` is Zipf's exponent, the sigma of log-normal frequencies, how much more frequent a head
    is, the share of the sequences that are possible (`sparse`), or the number of `topics`. `own` is
    what somebody wrote down: the frequency of each token (`frequencies`), or the
    weights of some sequences (`sequences`, as in `0 1 = 3 / 1 2 = 1`).
    """

    kind: str
    value: float | None = None
    own: str = ""

    def __post_init__(self) -> None:
        if self.own:
            fits = self.kind in OWN_LAWS
        elif self.value is None:
            fits = self.kind in LAWS
        else:
            fits = self.kind in NUMBERED_LAWS and 0 < self.value < math.inf
            fits &= self.kind != "sparse" or self.value <= 1
            fits &= self.kind != "topics" or self.value == round(self.value)
        if not fits:
            numbered = f"{', '.join(NUMBERED_LAWS)} with a number above 0, such as zipf 1"
            numbered += ", at most 1 of sparse and whole of topics"
            own = "or frequencies 3 1 1, or sequences 0 1 = 3 / 1 2 = 1"
            raise ValueError(
                f"law: wanted {', '.join(LAWS)}, or {numbered}, {own}, got {self.name!r}"
            )

    @classmethod
    def named(cls, name: str) -> "Law":
        """The law of a name such as `uniform`, `zipf 1` or `frequencies 3 1 1`."""
        kind, _, own = name.partition(" ")
        if kind in OWN_LAWS:
            return cls(kind, own=own)
        kind, _, number = name.rpartition(" ")
        try:
            return cls(kind, float(number))
        except ValueError:
            return cls(name)

    @property
    def name(self) -> str:
        """The name that `named` reads."""
        if self.own:
            return f"{self.kind} {self.own}"
        return self.kind if self.value is None else f"{self.kind} {self.value:g}"

    @property
    def label(self) -> str:
        """The short name, without what somebody wrote down."""
        return f"own {self.kind}" if self.own else self.name

    def probabilities(
        self, counts: Float[Tensor, "class token"], n_heads: int, generator: torch.Generator
    ) -> Float[Tensor, " class"]:
        """The probability of each class; the first `n_heads` tokens are the heads."""
        if self.kind == "dirichlet":
            return dirichlet_law(len(counts), generator)
        if self.kind == "sequences":
            return own_law(counts, self.own)
        if self.value is not None and self.kind == "sparse":
            return sparse_law(len(counts), self.value, generator)
        if self.value is not None and self.kind == "topics":
            return topics_law(counts, int(self.value), generator)
        return product_law(counts, self._frequencies(counts.shape[1], n_heads, generator))

    def _frequencies(
        self, n_tokens: int, n_heads: int, generator: torch.Generator
    ) -> Float[Tensor, " token"]:
        if self.kind == "frequencies":
            return own_frequencies(self.own, n_tokens)
        if self.value is None:
            return torch.ones(n_tokens, dtype=torch.float64)
        if self.kind == "frequent heads":
            return frequent_heads(n_tokens, n_heads, self.value)
        drawn = zipf_frequencies if self.kind == "zipf" else log_normal_frequencies
        return drawn(n_tokens, self.value, generator)


def determining_tokens(
    counts: Float[Tensor, "class token"], lists: Lists
) -> tuple[Int[Tensor, "class token"], Int[Tensor, "class token"]]:
    """For each class and query: the token that determines the label, and its place in the list.

    Places count from 1. Where the query is not in the class, the token is -1 and the place 0.
    """
    longest = max(len(entries) for entries in lists)
    # Every list is as long as the longest: the last entry, once more, is never the first that is
    # there.
    padded = torch.tensor([[*own, *own[-1:] * (longest - len(own))] for own in lists])
    present = counts > 0
    held = present[:, padded]  # class, query, entry
    first = held.int().argmax(-1)
    found = present & held.any(-1)
    star = padded[torch.arange(len(lists)), first]
    return torch.where(found, star, -1), torch.where(found, first + 1, 0)


def random_subsets(
    n_tokens: int, seq_len: int, n_samples: int, generator: torch.Generator
) -> Float[Tensor, "sample token"]:
    """Counts of sequences of distinct tokens, drawn uniformly."""
    keys = torch.rand(n_samples, n_tokens, generator=generator)
    counts = torch.zeros(n_samples, n_tokens, dtype=torch.float64)
    return counts.scatter_(1, keys.topk(seq_len, largest=False, sorted=False).indices, 1.0)


@dataclass(frozen=True)
class Task:
    """Lists, labels, and a law over sequences of `seq_len` tokens, distinct or with `repeats`."""

    name: str
    group: str
    n_tokens: int
    seq_len: int
    repeats: bool
    lists: Lists
    permutation: tuple[int, ...]
    probability: tuple[float, ...]  # one for each class, in the order of `classes_of`
    law: str = ""  # its label
    use: str = ""  # in which experiment it takes part

    @cached_property
    def counts(self) -> Float[Tensor, "class token"]:
        """The classes of sequences."""
        return classes_of(self.n_tokens, self.seq_len, self.repeats)

    @cached_property
    def chances(self) -> Float[Tensor, " class"]:
        """The probability of each class."""
        return torch.tensor(self.probability, dtype=torch.float64)

    @cached_property
    def _determined(self) -> tuple[Int[Tensor, "class token"], Int[Tensor, "class token"]]:
        return determining_tokens(self.counts, self.lists)

    @property
    def star(self) -> Int[Tensor, "class token"]:
        """For each class and query in it, the token that determines the label."""
        return self._determined[0]

    @property
    def place(self) -> Int[Tensor, "class token"]:
        """The place of that token in the list, from 1."""
        return self._determined[1]

    @property
    def labels(self) -> Int[Tensor, " token"]:
        """The label of each token, where it determines one."""
        return torch.tensor(self.permutation)

    @property
    def label_matrix(self) -> Float[Tensor, "label token"]:
        """The permutation matrix P of the labels."""
        return label_matrix(self.permutation)

    @property
    def heads(self) -> set[int]:
        """The first entries of the lists that hold more than their own token."""
        return {entries[0] for entries in self.lists if len(entries) > 1}

    @property
    def longest(self) -> int:
        """M, the length of the longest list."""
        return max(len(entries) for entries in self.lists)

    def about(self) -> dict[str, Any]:
        """The cells with which a row about the task begins."""
        return {
            "task": self.name,
            "law": self.law,
            "n_tokens": self.n_tokens,
            "seq_len": self.seq_len,
        }

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "Task":
        """The task that a row of a table describes."""
        lists = tuple(tuple(map(int, entries)) for entries in row["lists"])
        permutation = tuple(map(int, row["permutation"]))
        probability = tuple(map(float, row["probability"]))
        listed = {"lists": lists, "permutation": permutation, "probability": probability}
        return cls(**{**row, **listed})

    @classmethod
    def of_setting(
        cls,
        *,
        group: str,
        n_tokens: int,
        seq_len: int,
        length: int,
        kind: str,
        n_heads: int,
        law: Law,
        seed: int,
        repeats: bool = False,
        use: str = "",
    ) -> "Task":
        """The task of a setting, named as its group: lists, labels and law are drawn in turn."""
        setting = f"{n_tokens}, {seq_len}, {length}, {kind}, {n_heads}, {law.name}"
        draw = generator(seed, "task", setting)
        counts = classes_of(n_tokens, seq_len, repeats)
        return cls(
            name=group,
            group=group,
            n_tokens=n_tokens,
            seq_len=seq_len,
            repeats=repeats,
            lists=lists_of(kind, n_tokens, length, n_heads, draw),
            permutation=random_permutation(n_tokens, draw),
            probability=tuple(law.probabilities(counts, n_heads, draw).tolist()),
            law=law.label,
            use=use,
        )

    @classmethod
    def drawn(
        cls, most_tokens: int, generator: torch.Generator, repeats: bool | None = None
    ) -> "Task":
        """A random task, with repeats or without where `repeats` does not say which.

        It has 3 to `most_tokens` tokens, sequences of 2 to 5, lists of 1 to 4, and any law.
        """
        n_tokens = whole(3, most_tokens, generator)
        repeats = bool(whole(0, 1, generator)) if repeats is None else repeats
        seq_len = whole(2, min(5, n_tokens - 1), generator)
        lists = random_lists(n_tokens, whole(1, min(4, n_tokens), generator), generator)
        lists = tuple(
            entries[whole(0, len(entries) - 1, generator) :] for entries in lists
        )  # so that lists have any length
        law = dirichlet_law(n_classes_of(n_tokens, seq_len, repeats), generator)
        permutation = random_permutation(n_tokens, generator)
        chances = tuple(law.tolist())
        return cls("", "", n_tokens, seq_len, repeats, lists, permutation, chances, "dirichlet")


def whole(low: int, high: int, generator: torch.Generator) -> int:
    """A random whole number, both ends possible."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def read_tasks(*files: Path) -> list[Task]:
    """The tasks of some tables; raises `InputError` where one is no table of tasks."""
    return [task for file in files for task in read_as("a table of tasks", _tasks, file)]


def _tasks(file: Path) -> list[Task]:
    return [Task.from_row(row) for row in TASKS.read(file).to_dict("records")]


def used_for(tasks: Iterable[Task], *uses: str) -> list[Task]:
    """The tasks with one of these uses, in their order."""
    return [task for task in tasks if task.use in uses]
