"""Texts in batches of tokens, and a model's own loss on them."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from torch.nn.functional import cross_entropy

from lib.checkpoints.library import SAFE, has_code, is_causal, is_masked, refusing, text_config
from lib.checkpoints.samples import (
    IGNORED,
    enough_samples,
    json_samples,
    masked,
    of_json_lines,
)
from lib.files.files import InputError, sha256

Batch = dict[str, Tensor]
TOKENIZERS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
TABLES = (".csv", ".tsv", ".parquet", ".json", ".arrow", ".xlsx")
WITHIN = 0.005  # of a loss, by which it is told from another
LEAST_PART = 1 << 20  # bytes of a text that are read at once
BYTES_A_TOKEN = 16  # more than a token of a text has, so that one part is nearly always enough


def loss(model: torch.nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The model's own loss of a batch: a mean over tokens, or over samples, in nats."""
    return loss_and_output(model, batch)[0]


def loss_and_output(model: torch.nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
    """The model's own loss of a batch, and all that it gives with it.

    What a model in evaluation mode keeps from one pass to the next is made anew, by a change of its
    mode: Levit keeps biases, with the graph of the pass that made them.
    """
    wanted = f"TEXT: wanted samples of which {type(model).__name__} has a loss, got {sorted(batch)}"
    with refusing(wanted):
        if not model.training:
            model.train()
            model.eval()
        given = dict(batch)
        if "labels" not in given and "input_ids" in given:
            given["labels"] = given["input_ids"]
        output = model(**given)
    found = getattr(output, "loss", None)
    if found is None:
        raise InputError(f"{wanted}: it has other labels, give them as safetensors")
    if found.numel() != 1:
        raise InputError(f"{wanted}: wanted one number, got a loss of shape {list(found.shape)}")
    return found, output


def check_next_token(
    model: torch.nn.Module, config: Mapping[str, Any], batches: Sequence[Batch]
) -> None:
    """Raise `InputError` where a causal model's loss is that of each token itself: of copying.

    For one sample whose labels are its own tokens, the model's loss is compared with the cross
    entropies of its logits. Other labels are the user's to choose.
    """
    if not is_causal(config) or "input_ids" not in batches[0]:
        return
    [batch, *_] = pieces(batches[:1], 1)
    ids = batch["input_ids"]
    labels = batch.get("labels", ids)
    if labels.shape != ids.shape or not ((labels == ids) | (labels == IGNORED)).all():
        return
    with torch.no_grad():
        found, output = loss_and_output(model, batch)
    logits = getattr(output, "logits", None)
    if logits is None or logits.shape[:-1] != ids.shape:
        return
    logits = logits.float()
    same = float(cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED))
    following = (logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    after = float(cross_entropy(*following, ignore_index=IGNORED))
    if math.isclose(found, same, rel_tol=WITHIN) and not math.isclose(found, after, rel_tol=WITHIN):
        got = f"got {type(model).__name__}, whose loss {same:.4g} is of the same token"
        wanted = "wanted a model that has the loss of the next token"
        raise InputError(f"TEXT: {wanted}, {got} (of the next one: {after:.4g})")


def mean_loss(model: torch.nn.Module, batches: Sequence[Batch]) -> float:
    """The mean of the loss over all that counts in the batches."""
    return mean_of(batch_losses(model, batches), batches)


def batch_losses(model: torch.nn.Module, batches: Sequence[Batch]) -> list[float]:
    """The loss of each batch."""
    with torch.no_grad():
        return [float(loss(model, batch)) for batch in batches]


def mean_of(losses: Sequence[float], batches: Sequence[Batch]) -> float:
    """The mean of the losses of batches over all that counts in them."""
    weighted = (share * one for share, one in zip(shares(batches), losses, strict=True))
    return sum(weighted) / len(batches)


def pieces(batches: Sequence[Batch], size: int) -> list[Batch]:
    """Batches of at most `size` samples, each with a label that counts; smaller ones as they are.

    The slopes of one piece alone are held in memory.
    """
    found = []
    for batch in batches:
        n = len(next(iter(batch.values())))
        parts = [{k: of[i : i + size] for k, of in batch.items()} for i in range(0, n, size)]
        found += [batch] if n <= size else [part for part in parts if counted(part)]
    return found


def shares(batches: Sequence[Batch]) -> list[float]:
    """What each batch counts in a mean: its labels that count, over the mean number of them.

    Raises `InputError` where a batch has none.
    """
    counts = [counted(batch) for batch in batches]
    if not all(counts):
        raise InputError(f"TEXT: wanted a label that counts in every batch, got {IGNORED} alone")
    return [count * len(counts) / sum(counts) for count in counts]


def digest(batch: Batch) -> str:
    """The digest of a batch: of its names, types, shapes and values."""
    return sha256(save({name: of.cpu().contiguous() for name, of in batch.items()}))


def counted(batch: Batch) -> int:
    """The number of labels, masked parts of images, or samples whose mean is a batch's loss."""
    if "labels" in batch:
        return int((batch["labels"] != IGNORED).sum())
    if "bool_masked_pos" in batch:
        return int(batch["bool_masked_pos"].sum())
    return len(next(iter(batch.values())))


def read_batches(
    folder: Path,
    config: Mapping[str, Any],
    text: Path,
    seq_len: int,
    batch_size: int,
    n_batches: int,
    device: str = "cpu",
    n_labels: int = 0,
) -> list[Batch]:
    """The first batches of a text: windows of tokens that do not overlap, or samples of a file.

    A batch has `batch_size` samples, or as many more as it takes for `n_labels` labels, as far as
    the text has them: a classifier has one label a sample.

    Windows have `seq_len` tokens, or as many positions as the model was made for; for a masked
    language model some are masked. A file of JSON lines holds conversations or completions
    (`json_samples`). A safetensors file holds the model's own arguments by name (`input_ids`,
    `pixel_values`, ...; `labels`, which a language model may lack), samples along the first axis.
    Raises `InputError` where there is too little, or a token that the vocabulary lacks.
    """
    read = text_config(config)
    n_words = int(getattr(read, "vocab_size", 0) or 0)
    most = getattr(read, "max_position_embeddings", None) or 0
    wanted = n_batches * batch_size
    kind = ""
    has_masks = is_masked(config)
    try:
        check_plain(text, config)
        if text.suffix == ".safetensors":
            samples = load_file(text)
        else:
            seq_len = min(seq_len, int(most)) if most > 0 else seq_len
            if text.suffix == ".jsonl" or of_json_lines(text):
                samples = lines(folder, config, text, seq_len, wanted, n_labels * n_batches)
            else:
                kind = f", windows of {seq_len} tokens"
                tokens = first_tokens(folder, text, n_words, wanted * seq_len)
                samples = {"input_ids": windows(folder, tokens, seq_len, special=has_masks)}
        if has_masks and "input_ids" in samples and "labels" not in samples:
            samples = masked(samples, folder, open_tokenizer(folder))
    except SafetensorError as error:
        raise InputError(f"{text}: wanted a safetensors file, got: {error}") from error
    except OSError as error:
        raise InputError(f"{text}: wanted a text, got: {error}") from error
    n = min(map(len, samples.values()), default=0)
    if n < wanted:
        sizes = f"{n_batches} batches of {batch_size}{kind}"
        raise InputError(f"{text}: wanted {wanted} samples ({sizes}), got {n}")
    batch_size = enough_samples(samples, batch_size, n_batches, n_labels)
    wanted = n_batches * batch_size
    ids = samples.get("input_ids")
    if ids is not None and not 0 <= int(ids[:wanted].min()) <= int(ids[:wanted].max()) < n_words:
        got = f"{int(ids.min())}..{int(ids.max())}"
        raise InputError(f"{text}: wanted tokens in 0..{n_words - 1}, got {got}")
    return [
        {name: values[start : start + batch_size].to(device) for name, values in samples.items()}
        for start in range(0, wanted, batch_size)
    ]


def check_plain(text: Path, config: Mapping[str, Any]) -> None:
    """Raise `InputError` where a file is a table or a JSON list, or the model wants two texts.

    Their brackets and commas would be measured as text, and an encoder and decoder on copying.
    """
    with text.open("rb") as opened:
        begun = opened.read(4096).lstrip()
    is_list = re.match(rb"\[\s*[\[{\"]", begun)
    if text.suffix.lower() in TABLES or begun.startswith(b"PAR1") or is_list:
        wanted = "wanted a text, JSON lines, or safetensors"
        raise InputError(f"{text}: {wanted}, got a table or a JSON list: write a line for each row")
    if config.get("is_encoder_decoder") and text.suffix != ".safetensors":
        wanted = "wanted safetensors with input_ids and labels, for a model of encoder and decoder"
        raise InputError(f"{text}: {wanted}, got one text")


def windows(
    folder: Path, tokens: Int[Tensor, " token"], seq_len: int, *, special: bool
) -> Int[Tensor, "sample position"]:
    """Windows of tokens; `special` ones begin and end as the tokenizer's samples do."""
    tokenizer = open_tokenizer(folder) if special else None
    first, last = (
        [] if one is None else [one]
        for one in (
            getattr(tokenizer, "cls_token_id", None),
            getattr(tokenizer, "sep_token_id", None),
        )
    )
    width = seq_len - len(first) - len(last)
    rows = tokens[: len(tokens) // width * width].view(-1, width)
    begun, ended = (
        torch.tensor(one, dtype=torch.long).expand(len(rows), -1) for one in (first, last)
    )
    return torch.cat([begun, rows, ended], 1)


def lines(
    folder: Path,
    config: Mapping[str, Any],
    file: Path,
    seq_len: int,
    n_wanted: int,
    n_labels: int = 0,
) -> dict[str, Int[Tensor, "sample position"]]:
    """The samples of JSON lines, which a causal model alone has, also one that reads images too."""
    if not is_causal(config):
        got = f"got {config.get('architectures')}: give its own arguments as safetensors"
        raise InputError(f"{file}: wanted a causal model for JSON lines, {got}")
    tokenizer = open_tokenizer(folder)
    n_words = int(getattr(text_config(config), "vocab_size", 0) or 0)

    def ids(words: str) -> list[int]:
        if tokenizer is None:
            return token_ids(folder, words.encode(), n_words).tolist() if words else []
        return tokenizer(words, add_special_tokens=False)["input_ids"]

    return json_samples(file, ids, tokenizer, seq_len, n_wanted, n_labels)


def first_tokens(folder: Path, file: Path, vocab_size: int, n_wanted: int) -> Int[Tensor, " token"]:
    """The tokens of a text, at least `n_wanted` where it has them; of a long one, its beginning.

    What is read grows with what is wanted and not with the file. A part of a text ends with a line,
    and is long enough for twice the tokens that are wanted, so that its end moves none of these.
    """
    n_bytes = LEAST_PART + BYTES_A_TOKEN * n_wanted
    while True:
        with file.open("rb") as opened:
            part = opened.read(n_bytes)
            whole = not opened.read(1)
        if not whole:
            part = part[: part.rfind(b"\n") + 1] or _whole_characters(part)
        tokens = token_ids(folder, part, vocab_size)
        if whole or len(tokens) >= 2 * n_wanted:
            return tokens
        n_bytes *= 2


def _whole_characters(part: bytes) -> bytes:
    """A part of a text in UTF-8 without the character that its end cuts."""
    for cut in range(4):
        try:
            part[len(part) - 4 - cut :].decode("utf-8")
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return part[: len(part) - 4 - cut + error.start]
        else:
            return part
    return part


def token_ids(folder: Path, text: bytes, vocab_size: int) -> Int[Tensor, " token"]:
    """A text in the tokens of a checkpoint's tokenizer, or of its bytes.

    Bytes are read where it has no tokenizer and a vocabulary of 256. Raises `InputError` where it
    has neither.
    """
    if has_tokenizer(folder):
        try:
            words = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"wanted a text in UTF-8, got: {error}") from error
        tokenizer = open_tokenizer(folder)
        with refusing(f"{folder}: wanted a tokenizer that transformers can read"):
            return torch.tensor(tokenizer(words, add_special_tokens=False)["input_ids"])
    if vocab_size != 256:
        wanted = "wanted a tokenizer, or a vocabulary of 256 bytes"
        raise InputError(f"{folder}: {wanted}, got neither ({vocab_size} words)")
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def has_tokenizer(folder: Path) -> bool:
    """Whether a tokenizer stands beside a checkpoint."""
    return any((folder / name).is_file() for name in TOKENIZERS)


def open_tokenizer(folder: Path) -> Any:
    """The tokenizer of a checkpoint, None where it has none; raises `InputError` for one with
    code.
    """
    if not has_tokenizer(folder):
        return None
    file = folder / "tokenizer_config.json"
    with refusing(f"{folder}: wanted a tokenizer that transformers can read"):
        from transformers import AutoTokenizer

        if file.is_file() and has_code(json.loads(file.read_bytes())):
            got = "got one with code of its own (auto_map)"
            raise InputError(f"{file}: wanted a tokenizer of transformers, {got}")
        return AutoTokenizer.from_pretrained(folder, **SAFE)
