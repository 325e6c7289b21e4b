r"""Sequences of tokens, and labels that a decision list of each token determines.

Tokens are 0 .. n_tokens - 1. The list of token a is $L_a = (a_1, \dots, a_m)$ with distinct entries
and $a_m = a$. In a sequence s that holds a, the label of a is $\pi(a_{j^*})$ with $j^* = \min\{j :
a_j \in s\}$: the first entry of the list that occurs anywhere in s determines it. The order of the
tokens of s plays no part, so that sequences come as classes of equal counts: the subsets of the
tokens (distinct tokens), or the multisets (tokens with repeats).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import combinations, combinations_with_replacement
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

Lists = tuple[tuple[int, ...], ...]

OWN_LAWS = ("frequencies", "sequences")


def cyclic_lists(n_tokens: int, length: int) -> Lists:
    """List of a: the `length` - 1 tokens before a on a circle, the farthest first, then a."""
    _check_length(n_tokens, length)
    return tuple(
        tuple((a - i) % n_tokens for i in reversed(range(length))) for a in range(n_tokens)
    )


def random_lists(n_tokens: int, length: int, generator: torch.Generator) -> Lists:
    """List of a: `length` - 1 other tokens in random order, then a."""
    _check_length(n_tokens, length)
    lists = []
    for a in range(n_tokens):
        others = [b for b in torch.randperm(n_tokens, generator=generator).tolist() if b != a]
        lists.append((*others[: length - 1], a))
    return tuple(lists)


def shared_heads_lists(
    n_tokens: int, length: int, n_heads: int, generator: torch.Generator
) -> Lists:
    """Lists whose first entries are the tokens 0 .. n_heads - 1, shared by all others in turn; a
    head's own is itself.

    The others, in random order, take `length` - 1 consecutive heads of the circle of heads, each
    beginning one further on: there are `n_heads` patterns, equally frequent up to one.
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
    """Lists that somebody wrote down, such as `2 1 0 / 1 / 0 2`: that of token 0 first, each ending
    with its token.
    """
    lists = tuple(
        tuple(int(b) if b.isdigit() else -1 for b in entries.split()) for entries in text.split("/")
    )
    if len(lists) != n_tokens:
        raise ValueError(
            f"own lists: wanted one per token, {n_tokens}, between slashes, got {len(lists)}"
        )
    for a, entries in enumerate(lists):
        distinct = len(set(entries)) == len(entries) and all(0 <= b < n_tokens for b in entries)
        if not distinct or entries[-1:] != (a,):
            wanted = f"distinct tokens below {n_tokens}, the last of them {a}"
            raise ValueError(
                f"own lists: wanted for token {a} {wanted}, got {text.split('/')[a].strip()!r}"
            )
    return lists


def _check_length(n_tokens: int, length: int) -> None:
    if not 1 <= length <= n_tokens:
        raise ValueError(f"length must lie in 1..{n_tokens}, got {length}")


def random_permutation(n_tokens: int, generator: torch.Generator) -> tuple[int, ...]:
    """A permutation that is not its own inverse where there is one, so that no transposition of it
    goes unseen.
    """
    while True:
        pi = torch.randperm(n_tokens, generator=generator)
        if n_tokens < 3 or not torch.equal(pi[pi], torch.arange(n_tokens)):
            return tuple(pi.tolist())


def label_matrix(permutation: Sequence[int]) -> Float[Tensor, "token token"]:
    r"""The permutation matrix P with $P_{\pi(b), b} = 1$: rows are labels, columns are tokens."""
    P = torch.zeros(len(permutation), len(permutation), dtype=torch.float64)
    P[list(permutation), range(len(permutation))] = 1
    return P


def in_list_order(lists: Lists) -> Float[Tensor, "key query"]:
    """W that orders every column by its list: 0 outside of it, 1 at its end, one more per place
    towards the head.
    """
    places = [
        (b, a, len(entries) - i) for a, entries in enumerate(lists) for i, b in enumerate(entries)
    ]
    keys, queries, values = torch.tensor(places).T
    return torch.zeros(len(lists), len(lists), dtype=torch.float64).index_put(
        (keys, queries), values.double()
    )


def subsets(n_tokens: int, seq_len: int) -> Float[Tensor, "class token"]:
    """Counts of every sequence class of `seq_len` distinct tokens: zeros and ones."""
    if not 1 <= seq_len <= n_tokens:
        raise ValueError(f"seq_len must lie in 1..{n_tokens}, got {seq_len}")
    return _counts(list(combinations(range(n_tokens), seq_len)), n_tokens)


def multisets(n_tokens: int, seq_len: int) -> Float[Tensor, "class token"]:
    """Counts of every sequence class of `seq_len` tokens that may repeat."""
    return _counts(list(combinations_with_replacement(range(n_tokens), seq_len)), n_tokens)


def _counts(classes: list[tuple[int, ...]], n_tokens: int) -> Float[Tensor, "class token"]:
    counts = torch.zeros(len(classes), n_tokens, dtype=torch.float64)
    tokens = torch.tensor(classes)
    return counts.scatter_add_(1, tokens, torch.ones_like(tokens, dtype=torch.float64))


def zipf_frequencies(
    n_tokens: int, exponent: float, generator: torch.Generator
) -> Float[Tensor, " token"]:
    r"""Frequencies $r^{-\mathrm{exponent}}$ of the ranks r = 1 .. n_tokens, given to the tokens in
    random order.
    """
    ranks = torch.randperm(n_tokens, generator=generator).double() + 1
    return ranks**-exponent


def log_normal_frequencies(
    n_tokens: int, sigma: float, generator: torch.Generator
) -> Float[Tensor, " token"]:
    r"""Frequencies $e^{\sigma g}$, g standard normal."""
    return (sigma * torch.randn(n_tokens, generator=generator, dtype=torch.float64)).exp()


def frequent_heads(n_tokens: int, n_heads: int, ratio: float) -> Float[Tensor, " token"]:
    """Frequency `ratio` for the tokens 0 .. n_heads - 1, one for the others."""
    frequencies = torch.ones(n_tokens, dtype=torch.float64)
    frequencies[:n_heads] = ratio
    return frequencies


def product_law(
    counts: Float[Tensor, "class token"], frequencies: Float[Tensor, " token"]
) -> Float[Tensor, " class"]:
    r"""Probabilities of the classes $\propto \prod_b \theta_b^{N_b} / N_b!$.

    On multisets, the law of tokens drawn independently with the frequencies $\theta$; on subsets,
    that law given that no token repeats.
    """
    weight = (counts @ frequencies.log() - torch.lgamma(counts + 1).sum(1)).exp()
    return weight / weight.sum()


def own_frequencies(text: str, n_tokens: int) -> Float[Tensor, " token"]:
    """Frequencies that somebody wrote down, such as `3 1 1`: one per token, above 0."""
    try:
        frequencies = torch.tensor([float(number) for number in text.split()], dtype=torch.float64)
    except ValueError:
        frequencies = torch.zeros(0)
    if len(frequencies) != n_tokens or not bool(((frequencies > 0) & frequencies.isfinite()).all()):
        raise ValueError(
            f"frequencies: wanted {n_tokens} numbers above 0, one per token, got {text!r}"
        )
    return frequencies


def own_law(counts: Float[Tensor, "class token"], text: str) -> Float[Tensor, " class"]:
    """Probabilities that somebody wrote down, such as `0 1 = 3 / 1 2 = 1`: of some classes, in
    proportion.
    """
    classes = {tuple(row): i for i, row in enumerate(counts.int().tolist())}
    weight = torch.zeros(len(counts), dtype=torch.float64)
    for part in text.split("/"):
        tokens, _, number = part.partition("=")
        try:
            found = torch.bincount(
                torch.tensor([int(b) for b in tokens.split()]), minlength=counts.shape[1]
            )
            at, weight_of_it = classes[tuple(found.tolist())], float(number)
        except (ValueError, RuntimeError, KeyError):
            at, weight_of_it = -1, -1.0
        if not 0 < weight_of_it < math.inf or weight[at] > 0:
            wanted = (
                "sequences of the group's length, each once and with a weight above 0, such "
                "as 0 1 = 3"
            )
            raise ValueError(f"sequences: wanted {wanted}, got {part.strip()!r}")
        weight[at] = weight_of_it
    return weight / weight.sum()


def dirichlet_law(n_classes: int, generator: torch.Generator) -> Float[Tensor, " class"]:
    """Probabilities of the classes drawn from the flat Dirichlet distribution: any law is as likely
    as any other.
    """
    weight = -torch.log1p(-torch.rand(n_classes, generator=generator, dtype=torch.float64))
    return weight / weight.sum()


@dataclass(frozen=True)
class Law:
    """A law over sequences, with its number: Zipf's exponent, the sigma of log-normal frequencies,
    the heads' ratio.

    `frequencies` has the frequency of each token in `own`, and `sequences` the weights of some, all
    others being impossible: `0 1 = 3 / 1 2 = 1`.
    """

    kind: str
    value: float | None = None
    own: str = ""

    def __post_init__(self) -> None:
        alone, numbered = ("uniform", "dirichlet"), ("zipf", "log-normal", "frequent heads")
        fits = (
            self.kind in alone
            if self.value is None
            else self.kind in numbered and 0 < self.value < math.inf
        )
        if not fits and not (self.kind in OWN_LAWS and self.own):
            wanted = (
                f"{', '.join(alone)}, or {', '.join(numbered)} with a number above 0, such "
                "as zipf 1"
            )
            own = "or frequencies 3 1 1, or sequences 0 1 = 3 / 1 2 = 1"
            raise ValueError(f"law: wanted {wanted}, {own}, got {self.name!r}")

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
        """The name, short: without what somebody wrote down."""
        return f"own {self.kind}" if self.own else self.name

    def probabilities(
        self, counts: Float[Tensor, "class token"], n_heads: int, generator: torch.Generator
    ) -> Float[Tensor, " class"]:
        """The probability of each class of sequences; frequent heads are the first `n_heads`
        tokens.
        """
        n_tokens, value = counts.shape[1], self.value or 1.0
        if self.kind == "dirichlet":
            return dirichlet_law(len(counts), generator)
        if self.kind == "sequences":
            return own_law(counts, self.own)
        frequencies = {
            "uniform": lambda: torch.ones(n_tokens, dtype=torch.float64),
            "zipf": lambda: zipf_frequencies(n_tokens, value, generator),
            "log-normal": lambda: log_normal_frequencies(n_tokens, value, generator),
            "frequent heads": lambda: frequent_heads(n_tokens, n_heads, value),
            "frequencies": lambda: own_frequencies(self.own, n_tokens),
        }
        return product_law(counts, frequencies[self.kind]())


def determining_tokens(
    counts: Float[Tensor, "class token"], lists: Lists
) -> tuple[Int[Tensor, "class token"], Int[Tensor, "class token"]]:
    """For each class and query token: the token that determines the label, and its place in the
    list, from 1.

    Both are -1 and 0 where the query is not in the class.
    """
    present = counts > 0
    star = torch.full(counts.shape, -1)
    place = torch.zeros(counts.shape, dtype=torch.int64)
    for a, entries in enumerate(lists):
        for i, b in reversed(list(enumerate(entries, 1))):
            here = present[:, a] & present[:, b]
            star[:, a].masked_fill_(here, b)
            place[:, a].masked_fill_(here, i)
    return star, place


def random_subsets(
    n_tokens: int, seq_len: int, n_samples: int, generator: torch.Generator
) -> Float[Tensor, "sample token"]:
    """Counts of sequences of distinct tokens, drawn uniformly."""
    keys = torch.rand(n_samples, n_tokens, generator=generator)
    counts = torch.zeros(n_samples, n_tokens, dtype=torch.float64)
    return counts.scatter_(1, keys.argsort(1)[:, :seq_len], 1.0)


@dataclass(frozen=True)
class Task:
    """Lists, labels, and the law of the sequences: of `seq_len` distinct tokens, or with
    `repeats`.
    """

    name: str
    group: str
    n_tokens: int
    seq_len: int
    repeats: bool
    lists: Lists
    permutation: tuple[int, ...]
    probability: tuple[float, ...]  # of each class, in the order of `subsets` or `multisets`
    law: str = ""  # its label
    use: str = ""  # in which experiment it takes part

    @cached_property
    def counts(self) -> Float[Tensor, "class token"]:
        """The classes of sequences."""
        return (multisets if self.repeats else subsets)(self.n_tokens, self.seq_len)

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
        """Its place in the list, from 1."""
        return self._determined[1]

    @property
    def classes(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What is to be known of the classes: counts, probabilities, determining tokens, their
        places.
        """
        return self.counts, self.chances, self.star, self.place

    @property
    def memory(self) -> int:
        """Bytes of work on the exact loss: a row per class and token in it, of a number per token,
        in all copies.
        """
        n_rows = len(self.probability) * min(self.seq_len, self.n_tokens)
        return 8 * 12 * n_rows * self.n_tokens

    @property
    def labels(self) -> Int[Tensor, " token"]:
        """The label of each token, where it determines one."""
        return torch.tensor(self.permutation)

    @property
    def label_matrix(self) -> Float[Tensor, "token token"]:
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

    def as_row(self) -> dict[str, Any]:
        """The task as a row of a table."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "Task":
        """The task that a row of a table describes."""
        return cls(
            name=str(row["name"]),
            group=str(row["group"]),
            n_tokens=int(row["n_tokens"]),
            seq_len=int(row["seq_len"]),
            repeats=bool(row["repeats"]),
            lists=tuple(tuple(int(b) for b in entries) for entries in row["lists"]),
            permutation=tuple(int(b) for b in row["permutation"]),
            probability=tuple(float(p) for p in row["probability"]),
            law=str(row["law"]),
            use=str(row["use"]),
        )

    @classmethod
    def drawn(
        cls, most_tokens: int, generator: torch.Generator, repeats: bool | None = None
    ) -> "Task":
        """A random task: 3 to `most_tokens` tokens, sequences of 2 to 5, lists of 1 to 4, any law;
        perhaps repeats.
        """
        n_tokens = whole(3, most_tokens, generator)
        repeats = bool(whole(0, 1, generator)) if repeats is None else repeats
        seq_len = whole(2, min(5, n_tokens - 1), generator)
        lists = random_lists(n_tokens, whole(1, min(4, n_tokens), generator), generator)
        lists = tuple(
            entries[whole(0, len(entries) - 1, generator) :] for entries in lists
        )  # of any lengths
        n_classes = (
            math.comb(n_tokens + seq_len - 1, seq_len) if repeats else math.comb(n_tokens, seq_len)
        )
        probability = tuple(dirichlet_law(n_classes, generator).tolist())
        permutation = random_permutation(n_tokens, generator)
        return cls("", "", n_tokens, seq_len, repeats, lists, permutation, probability, "dirichlet")


COLUMNS = [field.name for field in fields(Task)]  # of a table of tasks


def whole(low: int, high: int, generator: torch.Generator) -> int:
    """A random whole number, both ends possible."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def tasks_by_name(rows: Iterable[Mapping[Any, Any]]) -> dict[str, Task]:
    """The tasks that the rows of a table describe, in order."""
    return {task.name: task for task in map(Task.from_row, rows)}
