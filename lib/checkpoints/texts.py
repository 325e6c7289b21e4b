"""Texts in batches of tokens, and a model's own loss on them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lib.checkpoints.library import SAFE, has_code, refusing
from lib.files.files import InputError

Batch = dict[str, Tensor]


def loss(model: torch.nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The model's own loss of a batch: a mean over tokens, or over samples, in nats."""
    wanted = f"TEXT: wanted samples of which {type(model).__name__} has a loss, got {sorted(batch)}"
    with refusing(wanted):
        given = dict(batch)
        if "labels" not in given:
            given["labels"] = given["input_ids"]
        return model(**given).loss


def mean_loss(model: torch.nn.Module, batches: Sequence[Batch]) -> float:
    """The mean of the loss over batches of equal size."""
    with torch.no_grad():
        return sum(float(loss(model, batch)) for batch in batches) / len(batches)


def read_batches(
    folder: Path,
    config: Mapping[str, Any],
    text: Path,
    seq_len: int,
    batch_size: int,
    n_batches: int,
    device: str = "cpu",
) -> list[Batch]:
    """The first batches of a text: windows of tokens that do not overlap, or samples of a file.

    Windows have `seq_len` tokens, or as many positions as the model was made for. A safetensors
    file holds the model's own arguments by name (`input_ids`, `pixel_values`, ...; `labels`, which
    a causal model may lack), samples along the first axis. Raises `InputError` where there is too
    little, or a token that the vocabulary lacks.
    """
    n_words = int(config.get("vocab_size", 0))
    try:
        if text.suffix == ".safetensors":
            samples = load_file(text)
        else:
            most = config.get("max_position_embeddings") or config.get("n_positions") or seq_len
            seq_len = min(seq_len, int(most))
            tokens = token_ids(folder, plain_text(text), n_words)
            samples = {"input_ids": tokens[: len(tokens) // seq_len * seq_len].view(-1, seq_len)}
    except SafetensorError as error:
        raise InputError(f"{text}: wanted a safetensors file, got: {error}") from error
    except OSError as error:
        raise InputError(f"{text}: wanted a text, got: {error}") from error
    n = min(map(len, samples.values()), default=0)
    wanted = n_batches * batch_size
    if n < wanted:
        sizes = f"{n_batches} batches of {batch_size}, windows of {seq_len} tokens"
        raise InputError(f"{text}: wanted {wanted} samples ({sizes}), got {n}")
    ids = samples.get("input_ids")
    if ids is not None and not 0 <= int(ids[:wanted].min()) <= int(ids[:wanted].max()) < n_words:
        got = f"{int(ids.min())}..{int(ids.max())}"
        raise InputError(f"{text}: wanted tokens in 0..{n_words - 1}, got {got}")
    return [
        {name: values[start : start + batch_size].to(device) for name, values in samples.items()}
        for start in range(0, wanted, batch_size)
    ]


def plain_text(file: Path) -> bytes:
    """The bytes of a text; raises `InputError` for JSON lines, which are not read yet."""
    words = file.read_bytes()
    try:
        of_json = isinstance(json.loads(words.strip().partition(b"\n")[0]), dict)
    except (ValueError, RecursionError):
        of_json = False
    if of_json or file.suffix == ".jsonl":
        raise InputError(f"{file}: wanted plain text, got JSON lines, which are not read yet")
    return words


def token_ids(folder: Path, text: bytes, vocab_size: int) -> Int[Tensor, " token"]:
    """A text in the tokens of a checkpoint's tokenizer, or of its bytes.

    Bytes are read where it has no tokenizer and a vocabulary of 256. Raises `InputError` where it
    has neither.
    """
    file = folder / "tokenizer_config.json"
    if (folder / "tokenizer.json").is_file() or file.is_file():
        try:
            words = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"wanted a text in UTF-8, got: {error}") from error
        with refusing(f"{folder}: wanted a tokenizer that transformers can read"):
            from transformers import AutoTokenizer

            if file.is_file() and has_code(json.loads(file.read_bytes())):
                got = "got one with code of its own (auto_map)"
                raise InputError(f"{file}: wanted a tokenizer of transformers, {got}")
            tokenizer: Any = AutoTokenizer.from_pretrained(folder, **SAFE)
            return torch.tensor(tokenizer(words, add_special_tokens=False)["input_ids"])
    if vocab_size != 256:
        wanted = "wanted a tokenizer, or a vocabulary of 256 bytes"
        raise InputError(f"{folder}: {wanted}, got neither ({vocab_size} words)")
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
