"""Live models of the transformers library: made from a config or read from a folder, their linear
modules, their loss.

The library is loaded here alone, and only when a model is wanted. It runs no code that a checkpoint
brings, and what it cannot open is refused in one line. peft knows modules by their names in the
live model, which are not always those of the tensors on disk: here the two are matched by content,
and what matches nothing is refused by name.
"""

import errno
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

SAFE: dict[str, Any] = {
    "local_files_only": True,
    "trust_remote_code": False,
}  # of all that is loaded
Kind = Literal["llama", "gpt2"]
Batch = dict[str, Tensor]
Weight = Float[Tensor, "_ _"]
NEVER = (
    "lm_head",
    "embed_out",
    "score",
    "classifier",
    "pooler",
    "wte",
    "wpe",
    "router",
    "gate",
)  # never adapted


def small_model(
    kind: Kind,
    *,
    d_model: int,
    n_layers: int,
    n_heads: int,
    n_kv_heads: int,
    d_mlp: int,
    init_scale: float,
    seq_len: int,
    seed: int,
) -> torch.nn.Module:
    """A small causal language model over bytes: Llama-like (rotary positions, grouped heads), or
    GPT-2-like.
    """
    with _quiet():
        from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

        shared: dict[str, Any] = {
            "vocab_size": 256,
            "initializer_range": init_scale,
            "bos_token_id": None,
            "eos_token_id": None,
        }
        config = (
            LlamaConfig(
                hidden_size=d_model,
                intermediate_size=d_mlp,
                num_hidden_layers=n_layers,
                num_attention_heads=n_heads,
                num_key_value_heads=n_kv_heads,
                max_position_embeddings=seq_len,
                pad_token_id=None,
                **shared,
            )
            if kind == "llama"
            else GPT2Config(
                n_embd=d_model,
                n_inner=d_mlp,
                n_layer=n_layers,
                n_head=n_heads,
                n_positions=seq_len,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                **shared,
            )
        )
        with (
            torch.random.fork_rng()
        ):  # the library draws the initial weights from the global generator
            torch.manual_seed(seed)
            return AutoModelForCausalLM.from_config(config)


def open_model(
    folder: Path, config: Mapping[str, Any], dtype: torch.dtype | None = None
) -> torch.nn.Module:
    """The model of a checkpoint, in evaluation mode; raises `ModelError` for one that transformers
    cannot open.
    """
    kind = _model_class(folder, config)
    with _refusing(f"{folder}: wanted a checkpoint that {kind.__name__} can read"):
        model, told = kind.from_pretrained(
            folder, dtype=dtype or "auto", output_loading_info=True, **SAFE
        )
    missing = sorted(told["missing_keys"])
    if missing:
        wanted = f"{folder}: wanted every weight of {kind.__name__}"
        raise ModelError(f"{wanted}, got none for {len(missing)} of them: {missing[:9]}")
    return model.train(False)


def check_architecture(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise `ModelError` where a checkpoint's config alone says that transformers cannot open its
    model.
    """
    kind = _model_class(folder, config)
    with _refusing(f"{folder}: wanted a config that {kind.__name__} can read"):
        kind.config_class.from_pretrained(folder, **SAFE)


def save_model(model: Any, folder: Path) -> None:
    """Write config.json and safetensors, as transformers does; of what does not fit on the disk
    nothing is left.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _quiet(), TemporaryDirectory(dir=folder.parent) as part:
        model.save_pretrained(part)
        (Path(part) / "generation_config.json").unlink(missing_ok=True)
        folder.mkdir(exist_ok=True)
        for file in Path(part).iterdir():
            file.replace(folder / file.name)


def with_adapter(model: torch.nn.Module, config: Mapping[str, Any], seed: int) -> torch.nn.Module:
    """The model with a new LoRA adapter of peft's, to be trained: all else of it is frozen.

    `config` holds the arguments of `LoraConfig`; A is drawn from the seed, B is zero.
    """
    with _quiet():
        from peft import LoraConfig, get_peft_model

        whole: Any = model
        with (
            torch.random.fork_rng(),
            warnings.catch_warnings(),
        ):  # peft draws from the global generator
            warnings.filterwarnings(
                "ignore", "`is_gradient_checkpointing`", FutureWarning
            )  # peft reads it yet
            torch.manual_seed(seed)
            return get_peft_model(whole, LoraConfig(**config))


def linear_modules(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """The linear layers that an adapter may change, by name: no embedding, no head (which may be
    tied), no router.
    """
    whole: Any = model
    head = whole.get_output_embeddings() if hasattr(whole, "get_output_embeddings") else None
    found = {}
    for name, module in model.named_modules():
        if (
            type(module).__name__ in ("Linear", "Conv1D")
            and module is not head
            and not set(name.split(".")) & set(NEVER)
        ):
            found[name] = module
    return found


def stored_as_columns(module: torch.nn.Module) -> bool:
    """Whether the weight is stored as in × out (transformers' Conv1D)."""
    return type(module).__name__ == "Conv1D"


def matched_by_content(
    model: torch.nn.Module, tensors: Iterable[tuple[str, Tensor]]
) -> dict[str, str]:
    """For each linear module, the name of the one tensor on disk that its weight equals to the bit.

    The model must have been read in the types of its checkpoint. Raises `ModelError`, naming the
    module, where no tensor or more than one is equal: then names would have to be guessed.
    """
    by_digest: dict[str, list[str]] = {}
    for name, tensor in tensors:
        if tensor.dim() == 2:
            by_digest.setdefault(_digest(tensor), []).append(name)
    matched = {}
    for name, module in linear_modules(model).items():
        weight: Any = module.weight
        equal = by_digest.get(_digest(weight), [])
        if len(equal) != 1:
            wanted = "wanted one tensor of the checkpoint that equals this module's weight"
            raise ModelError(f"{name}: {wanted}, got {equal}")
        matched[name] = equal[0]
    return matched


class Rest(NamedTuple):
    """What tuning changed beside the weights of linear layers, as peft's `modules_to_save` and
    `bias` carry it.
    """

    modules: list[str]  # saved whole
    parameters: dict[str, Tensor]  # of these modules, and the biases of linear layers
    biases: bool  # whether a bias of a linear layer is among them
    tied: bool  # whether peft must tie a saved head and embedding
    # Parameters that cannot be carried so: of other shapes, or beside linear layers in one module.
    left: list[str]

    @property
    def config(self) -> dict[str, Any]:
        """The arguments of `LoraConfig`."""
        tying = {"ensure_weight_tying": True} if self.tied else {}
        return {"modules_to_save": self.modules, "bias": "all" if self.biases else "none", **tying}


def beside_linear_layers(base: torch.nn.Module, tuned: torch.nn.Module) -> Rest:
    """What differs between two models beside the weights of linear layers; a tied head goes with
    its embedding.
    """
    linear, before, after = (
        linear_modules(tuned),
        dict(base.named_parameters()),
        dict(tuned.named_parameters()),
    )
    moved = [n for n, p in after.items() if n not in before or not p.equal(before[n])]
    owners = {name: name.rpartition(".")[0] for name in moved}
    biases = [n for n in moved if owners[n] in linear and not n.endswith(".weight")]
    rest = [n for n in moved if owners[n] not in linear]
    refused = [
        n
        for n in rest
        if n not in before
        or after[n].shape != before[n].shape
        or any(name.startswith(f"{owners[n]}.") for name in linear)
    ]
    owned = {owners[n] for n in rest if n not in refused}
    modules = {m for m in owned if not any(m.startswith(f"{other}.") for other in owned)}
    whole: Any = tuned
    names = {module: name for name, module in tuned.named_modules()}
    head, embedding = whole.get_output_embeddings(), whole.get_input_embeddings()
    if head is not None and head.weight is embedding.weight and names[embedding] in modules:
        modules.add(names[head])
    told = any(
        name.split(".")[-1] in ("embed_tokens", "lm_head") for name in modules
    )  # peft knows these alone
    parameters = {
        f"{m}.{n}": p for m in sorted(modules) for n, p in tuned.get_submodule(m).named_parameters()
    }
    parameters |= {name: after[name] for name in biases}
    parameters = {
        name: parameter.detach().clone() for name, parameter in parameters.items()
    }  # none shared
    tied = told and bool(whole.config.get_text_config().tie_word_embeddings)
    return Rest(sorted(modules), parameters, bool(biases), tied, refused)


class ModelError(ValueError):
    """A checkpoint or a text that does not fit; the message says what was wanted, what was got, and
    where.
    """


class Factors(NamedTuple):
    """An update as a product of two thin matrices, best first: U diag(sigma) Vh."""

    U: Float[Tensor, "row rank"]
    sigma: Float[Tensor, " rank"]
    Vh: Float[Tensor, "rank col"]

    def first(self, rank: int) -> "Factors":
        """The first `rank` terms."""
        return Factors(self.U[:, :rank], self.sigma[:rank], self.Vh[:rank])

    def cut(self, rank: int) -> Weight:
        """The sum of the first `rank` terms."""
        first = self.first(rank)
        return (first.U * first.sigma) @ first.Vh


class LinearUpdates:
    """The linear modules of a live model, moved in place between their base and what they were
    tuned to.
    """

    def __init__(self, model: torch.nn.Module, base: Mapping[str, Weight]):
        live = linear_modules(model)
        self.model = model
        self.parameters: dict[str, Any] = {name: live[name].weight for name in base}
        self.base = {name: W_0.to(self.parameters[name]) for name, W_0 in base.items()}
        self.tuned = {
            name: parameter.detach().clone() for name, parameter in self.parameters.items()
        }

    @property
    def updates(self) -> dict[str, Weight]:
        """What training added to each."""
        return {name: tuned - self.base[name] for name, tuned in self.tuned.items()}

    def set(self, weights: Mapping[str, Weight]) -> None:
        """Have the model compute with these weights."""
        with torch.no_grad():
            for name, weight in weights.items():
                self.parameters[name].copy_(weight)

    def set_ranks(self, ranks: Mapping[str, int], factors: Mapping[str, Factors]) -> None:
        """Have the model compute with every update cut to its rank; a module that is not named
        keeps its base.
        """
        self.set(
            {
                name: W_0 + factors[name].cut(ranks[name]).to(W_0) if ranks.get(name) else W_0
                for name, W_0 in self.base.items()
            }
        )

    def mean_loss(self, batches: Sequence[Batch]) -> float:
        """The mean of the loss over batches of equal size, with the weights as they are set."""
        return mean_loss(self.model, batches)

    def drop(self, batches: Sequence[Batch]) -> float:
        """By how much the updates lower the loss; the weights are left as tuned."""
        self.set(self.base)
        before = self.mean_loss(batches)
        self.set(self.tuned)
        return before - self.mean_loss(batches)


class GainMeasure:
    """What the linear updates of a model gain on a text, and what of it a cut of them loses; the
    rest is tuned.

    Raises `ModelError` where they gain nothing.
    """

    def __init__(
        self, linear: LinearUpdates, factors: Mapping[str, Factors], batches: Sequence[Batch]
    ):
        self.linear, self.factors, self.batches = linear, factors, batches
        linear.set(linear.tuned)
        self.tuned = linear.mean_loss(batches)
        linear.set(linear.base)
        self.none = linear.mean_loss(batches)
        if not self.gain > 0:
            got = f"got {self.none:.4g} without their updates and {self.tuned:.4g} with them"
            raise ModelError(
                f"TEXT: wanted a text on which the tuned linear layers lower the loss, {got}"
            )

    @property
    def gain(self) -> float:
        """By how much the linear updates lower the loss."""
        return self.none - self.tuned

    def of(self, ranks: Mapping[str, int]) -> float:
        """The loss with every update cut to its rank."""
        self.linear.set_ranks(ranks, self.factors)
        return self.linear.mean_loss(self.batches)

    def on(self, model: torch.nn.Module) -> Callable[[Mapping[str, int]], float]:
        """The loss of another model, such as the base, by the ranks of the adapter that it gets.

        The model computes in its own type; the adapter is added to a layer's output in float32, as
        peft does.
        """
        layers = linear_modules(model)
        dtype = next(model.parameters()).dtype
        batches = [
            {name: of.to(dtype) if of.is_floating_point() else of for name, of in batch.items()}
            for batch in self.batches
        ]

        def lost(ranks: Mapping[str, int]) -> float:
            hooks = []
            for name, rank in ranks.items():
                update = self.factors[name].first(rank)
                by_columns = stored_as_columns(layers[name])
                hooks.append(layers[name].register_forward_hook(_adding(update, by_columns)))
            try:
                return mean_loss(model, batches)
            finally:
                for hook in hooks:
                    hook.remove()

        return lost

    def share_lost(self, loss: float) -> float:
        """0 with the whole update of the linear layers, 1 with none."""
        return (loss - self.tuned) / self.gain


def loss(model: torch.nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The model's own loss of a batch: a mean over tokens, or over samples, in nats."""
    with _refusing(
        f"TEXT: wanted samples of which {type(model).__name__} has a loss, got {sorted(batch)}"
    ):
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
    """The first batches of a text: windows of `seq_len` tokens that do not overlap, or samples of a
    safetensors file.

    Windows are no longer than the positions that the model was made for. A safetensors file holds
    the model's own arguments by name (`input_ids`, `pixel_values`, ...; `labels`, which a causal
    model may lack), samples along the first axis. Raises `ModelError` where there is too little, or
    a token that the vocabulary lacks.
    """
    if text.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            samples = load_file(text)
        except SafetensorError as error:
            raise ModelError(f"{text}: wanted a safetensors file, got: {error}") from error
    else:
        words = text.read_bytes()
        if text.suffix == ".jsonl" or _is_json_line(words.strip().partition(b"\n")[0]):
            raise ModelError(f"{text}: wanted plain text, got JSON lines, which are not read yet")
        tokens = token_ids(folder, words, int(config.get("vocab_size", 0)))
        seq_len = min(
            seq_len,
            int(config.get("max_position_embeddings") or config.get("n_positions") or seq_len),
        )
        samples = {"input_ids": tokens[: len(tokens) // seq_len * seq_len].view(-1, seq_len)}
    n, wanted = min(map(len, samples.values()), default=0), n_batches * batch_size
    if n < wanted:
        sizes = f"{n_batches} batches of {batch_size}, windows of {seq_len} tokens"
        raise ModelError(f"{text}: wanted {wanted} samples ({sizes}), got {n}")
    ids, n_words = samples.get("input_ids"), int(config.get("vocab_size", 0))
    if ids is not None and not 0 <= int(ids[:wanted].min()) <= int(ids[:wanted].max()) < n_words:
        raise ModelError(
            f"{text}: wanted tokens in 0..{n_words - 1}, got {int(ids.min())}..{int(ids.max())}"
        )
    return [
        {name: values[start : start + batch_size].to(device) for name, values in samples.items()}
        for start in range(0, wanted, batch_size)
    ]


def _adding(update: Factors, by_columns: bool) -> Callable[..., Tensor]:
    """A hook that adds x ΔW to what a layer makes of x, as peft does: in float32, then in the
    layer's own type.
    """
    left, right = update.U * update.sigma, update.Vh
    if not by_columns:
        left, right = right.mT, left.mT

    def add(_: torch.nn.Module, given: tuple[Tensor, ...], made: Tensor) -> Tensor:
        return (made + given[0].float() @ left @ right).to(made.dtype)

    return add


def _is_json_line(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def token_ids(folder: Path, text: bytes, vocab_size: int) -> Int[Tensor, " token"]:
    """A text in the tokens of a checkpoint's tokenizer; bytes, where it has none and its vocabulary
    is 256.

    Raises `ModelError` where it has neither.
    """
    if (folder / "tokenizer.json").is_file() or (folder / "tokenizer_config.json").is_file():
        try:
            words = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(f"wanted a text in UTF-8, got: {error}") from error
        with _refusing(f"{folder}: wanted a tokenizer that transformers can read"):
            from transformers import AutoTokenizer

            file = folder / "tokenizer_config.json"
            if file.is_file() and _has_code(json.loads(file.read_bytes())):
                raise ModelError(
                    f"{file}: wanted a tokenizer of transformers, got one with code of its own "
                    "(auto_map)"
                )
            tokenizer: Any = AutoTokenizer.from_pretrained(folder, **SAFE)
            return torch.tensor(tokenizer(words, add_special_tokens=False)["input_ids"])
    if vocab_size != 256:
        raise ModelError(
            f"{folder}: wanted a tokenizer, or a vocabulary of 256 bytes, got neither "
            f"({vocab_size} words)"
        )
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def _model_class(folder: Path, config: Mapping[str, Any]) -> Any:
    """The class of a checkpoint's model; raises `ModelError` where that is no model of
    transformers.
    """
    if _has_code(config):
        raise ModelError(
            f"{folder}: wanted a model of transformers, got one with code of its own (auto_map)"
        )
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    with _refusing(f"{folder}: wanted an architecture that can be imported, got {name}"):
        import transformers

        found: Any = getattr(transformers, name, None) if isinstance(name, str) else None
        is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    if (
        not is_model or found.forward is torch.nn.Module.forward
    ):  # the latter of what models are derived from
        wanted = (
            f"{folder}: wanted an architecture that transformers {transformers.__version__} has"
        )
        raise ModelError(f"{wanted}, got {names}")
    return found


def _has_code(config: Any) -> bool:
    return '"auto_map":' in json.dumps(config)  # also in the config of a part of the model


def _digest(weight: Float[Tensor, "row col"]) -> str:
    data = weight.detach().cpu().contiguous()
    shape = f"{tuple(data.shape)} {data.dtype}".encode()
    return hashlib.sha256(shape + data.view(torch.uint8).numpy().tobytes()).hexdigest()


@contextmanager
def _refusing(wanted: str) -> Iterator[None]:
    """Have the library fail with one line, a `ModelError`; what the machine lacks stays what it
    is.
    """
    with _quiet():
        try:
            yield
        except Exception as error:
            got = " ".join(str(error).split())[:300]
            memory = (
                isinstance(error, MemoryError | torch.OutOfMemoryError)
                or "can't allocate memory" in got
            )
            disk = isinstance(error, OSError) and error.errno not in (None, errno.ENOENT)
            if memory or disk or isinstance(error, ModelError):
                raise
            if "ignore_mismatched_sizes" in got:
                got = "weights of other shapes than its config says"
            raise ModelError(f"{wanted}, got: {got} ({type(error).__name__})") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """No network, no progress bars and no talk of the library; what it finds missing is asked for
    and refused here.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    yield
