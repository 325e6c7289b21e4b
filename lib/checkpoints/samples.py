"""Samples of which only some tokens count: conversations, completions, masked windows.

Every sample is a row of `input_ids` with `labels`: -100 stands where a token does not count.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from lib.checkpoints.library import refusing
from lib.files.files import InputError
from lib.training.devices import generator

Tokens = Int[Tensor, "sample token"]
Ids = Callable[[str], list[int]]  # the tokens of a text
IGNORED = -100  # the label of a token that does not count
MASKED_SHARE = 0.15  # of the tokens of a window, as BERT was trained
SEED = 0  # of the tokens that are masked
FEW_LABELS = 300  # a share that is measured on fewer labels is hardly told from another
WANTED = "wanted messages, or prompt and completion"


class Sample(NamedTuple):
    """The tokens of a sample, and which of them count."""

    ids: list[int]
    counts: list[bool]


def of_json_lines(file: Path) -> bool:
    """Whether the first line of a text that is not empty is a JSON object."""
    first = next((line for _, line in _lines(file)), b"")
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def labels_of_samples(samples: Mapping[str, Tensor]) -> Int[Tensor, " sample"]:
    """How many labels of each sample count: tokens after the first, or one for its class.

    A sample with real numbers for labels counts once, however many they are.
    """
    given = samples.get("labels", samples.get("input_ids"))
    if given is None or given.is_floating_point():
        return torch.ones(min(map(len, samples.values())), dtype=torch.long)
    counts = given != IGNORED
    if "labels" not in samples:
        counts = counts[:, 1:]  # nothing foretells the first token
    return counts.flatten(1).sum(1) if counts.dim() > 1 else counts.long()


def count_labels(batches: Sequence[Mapping[str, Tensor]]) -> int:
    """How many labels of some batches count."""
    return sum(int(labels_of_samples(batch).sum()) for batch in batches)


def count_samples(batches: Sequence[Mapping[str, Tensor]]) -> int:
    """How many samples some batches have."""
    return sum(len(next(iter(batch.values()))) for batch in batches)


def enough_samples(
    samples: Mapping[str, Tensor], batch_size: int, n_batches: int, n_labels: int
) -> int:
    """The number of samples of a batch with which the batches have `n_labels` labels each, in the
    mean: at least `batch_size`, and no more than the samples are enough for.

    A classifier has one label a sample, where a window of tokens has hundreds.
    """
    counts = labels_of_samples(samples).cumsum(0)
    n_needed = int((counts < n_labels * n_batches).sum()) + 1
    most = len(counts) // n_batches
    return max(batch_size, min(-(-n_needed // n_batches), most))


def few_labels(n_labels: int, n_measured: int) -> str | None:
    """What is to be said where a text has too few labels to measure by, else None."""
    if n_labels >= FEW_LABELS:
        return None
    noise = 1 / max(n_labels, 1) ** 0.5
    return (
        f"only {n_labels} labels in the {n_measured} samples that are measured: of so few, an "
        f"accuracy has a noise of up to {noise:.1g}, and a loss or a share of the gain is as "
        f"uncertain; give a text with more, if you have one"
    )


def json_samples(
    file: Path, ids: Ids, tokenizer: Any, seq_len: int, n_wanted: int, n_labels: int = 0
) -> dict[str, Tokens]:
    """The first samples of JSON lines, each cut to `seq_len` tokens; one line is held at a time.

    They are `n_wanted`, or as many more as it takes for `n_labels` labels, as far as the file goes.

    A line has `messages`, of which the assistant's tokens count, or `prompt` and `completion`, of
    which the completion's do. A sample of which no token counts after the cut is left out. Raises
    `InputError`, with the line's number, for any other line, also beyond the samples that are
    wanted, and where they are too few.
    """
    for i, line in _lines(file):
        _object(f"{file}: line {i}", line)
    found = []
    n_left = 0
    n_counted = 0
    for i, line in _lines(file):
        if len(found) >= n_wanted and n_counted >= n_labels:
            break
        where = f"{file}: line {i}"
        sample = _sample(where, _object(where, line), ids, tokenizer)
        sample = Sample(sample.ids[:seq_len], [False, *sample.counts[1:seq_len]])
        if any(sample.counts):
            found.append(sample)
            n_counted += sum(sample.counts)
        else:
            n_left += 1
    if len(found) < n_wanted:
        got = f"got {len(found)}; {n_left} have none"
        counted = f"with a token that counts among the first {seq_len}"
        raise InputError(f"{file}: wanted {n_wanted} lines {counted}, {got}")
    return padded(found)


def padded(samples: Sequence[Sample]) -> dict[str, Tokens]:
    """Samples as rows of equal length; what is added is not attended to and does not count."""
    length = max(len(one.ids) for one in samples)
    ids = torch.zeros(len(samples), length, dtype=torch.long)
    attended = torch.zeros_like(ids)
    labels = torch.full_like(ids, IGNORED)
    for row, one in enumerate(samples):
        n = len(one.ids)
        ids[row, :n] = torch.tensor(one.ids)
        attended[row, :n] = 1
        labels[row, :n] = torch.where(torch.tensor(one.counts), ids[row, :n], IGNORED)
    return {"input_ids": ids, "attention_mask": attended, "labels": labels}


def masked(samples: dict[str, Tokens], folder: Path, tokenizer: Any) -> dict[str, Tokens]:
    """Samples as a masked language model is measured: 15 % of the tokens masked, and only they
    count.

    Special tokens, and those that are not attended to, are never masked. Raises `InputError` where
    the tokenizer has no mask.
    """
    if tokenizer is None or tokenizer.mask_token_id is None:
        wanted = "wanted a tokenizer with a mask token, for a masked language model"
        raise InputError(f"{folder}: {wanted}, got none")
    ids = samples["input_ids"]
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    allowed = ~special & samples.get("attention_mask", torch.ones_like(ids)).bool()
    order = torch.rand(ids.shape, generator=generator(SEED, "masks")).masked_fill(~allowed, 2.0)
    n_masked = max(round(MASKED_SHARE * ids.shape[1]), 1)
    chosen = torch.zeros_like(allowed).scatter(1, order.topk(n_masked, largest=False).indices, 1)
    chosen &= allowed
    return {
        **samples,
        "input_ids": ids.masked_fill(chosen, tokenizer.mask_token_id),
        "labels": ids.masked_fill(~chosen, IGNORED),
    }


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not empty, with their numbers from 1."""
    with file.open("rb") as opened:
        for i, line in enumerate(opened, 1):
            if line.strip():
                yield i, line


def _object(where: str, line: bytes) -> dict[str, Any]:
    """The object of a line; raises `InputError` for what has no conversation and no completion."""
    try:
        one = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: {WANTED}, got: {error}") from error
    if not isinstance(one, dict):
        raise InputError(f"{where}: {WANTED}, got {type(one).__name__}")
    messages = one.get("messages")
    if messages is not None:
        told = isinstance(messages, list) and all(isinstance(m, dict) for m in messages)
        if not told or not any(m.get("role") == "assistant" for m in messages):
            raise InputError(f"{where}: messages: wanted some of the assistant, got none")
    elif not all(isinstance(one.get(key), str) for key in ("prompt", "completion")):
        raise InputError(f"{where}: {WANTED} as texts, got {sorted(one)}")
    return one


def _sample(where: str, one: dict[str, Any], ids: Ids, tokenizer: Any) -> Sample:
    if "messages" not in one or one["messages"] is None:
        return _told_apart(ids, [one["prompt"], one["prompt"] + one["completion"]])
    messages = one["messages"]
    if tokenizer is None or not tokenizer.chat_template:
        raise InputError(f"{where}: wanted a chat template, for messages, got none")
    with refusing(f"{where}: wanted messages that the chat template can write"):
        if re.search(r"\{%-?\s*generation\b", tokenizer.get_chat_template()):
            how = {"return_dict": True, "return_assistant_tokens_mask": True}
            written = tokenizer.apply_chat_template(messages, **how)
            return Sample(written["input_ids"], list(map(bool, written["assistant_masks"])))
        return _told_apart(ids, list(_growing(where, messages, tokenizer)))


def _growing(where: str, messages: Sequence[Any], tokenizer: Any) -> Iterator[str]:
    """The conversation before and after each turn of the assistant, and whole."""

    def written(n: int, *, begun: bool = False) -> str:
        if n == 0:
            return ""
        how = {"tokenize": False, "add_generation_prompt": begun}
        return tokenizer.apply_chat_template(messages[:n], **how)

    whole = written(len(messages))
    for i, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        for part in (written(i, begun=True), written(i + 1)):
            if not whole.startswith(part):
                wanted = "wanted a chat template that writes a turn after those before it"
                marks = "put generation marks into it, or give prompt and completion"
                raise InputError(f"{where}: {wanted}, got one that does not: {marks}")
            yield part
    yield whole


def _told_apart(ids: Ids, texts: Sequence[str]) -> Sample:
    """The tokens of the last of some growing texts; those that every second text adds count.

    A token that joins the end of one text and the start of the next is the next one's.
    """
    whole = ids(texts[-1])
    counts = [False] * len(whole)
    borders = [_common(ids(text), whole) for text in texts]
    for start, stop in zip(borders[::2], borders[1::2], strict=False):
        counts[start:stop] = [True] * (stop - start)
    return Sample(whole, counts)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the part that two sequences begin with."""
    differ = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))
