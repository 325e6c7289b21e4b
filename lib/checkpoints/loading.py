"""How an adapter's user opens its base, and the task by which peft knows the adapter.

A classifier whose base is a backbone has a head that the base lacks: the library must be told how
many classes it has before peft can put the head of the adapter in its place.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

# How the name of a class ends, peft's task, and the modules that peft saves whole for that task.
TASKS = {
    "ForCausalLM": ("CAUSAL_LM", ()),
    "LMHeadModel": ("CAUSAL_LM", ()),
    "ForSequenceClassification": ("SEQ_CLS", ("classifier", "score")),
    "ForTokenClassification": ("TOKEN_CLS", ("classifier", "score")),
    "ForQuestionAnswering": ("QUESTION_ANS", ("qa_outputs",)),
}
SEQUENCES = ("SEQ_2_SEQ_LM", ())


def task_type(
    config: Mapping[str, Any], tensors: Iterable[str], saved: Collection[str]
) -> str | None:
    """The task of an adapter of a model with this config and these tensors; None where peft has no
    class for it, or would look for a head that the adapter does not carry.

    For a classifier peft takes it that an adapter has the head; `saved` are the modules that this
    one carries whole.
    """
    name = _class(config)
    ends = (task for end, task in TASKS.items() if name.endswith(end))
    none = SEQUENCES if config.get("is_encoder_decoder") and "Conditional" in name else (None, ())
    task, heads = next(ends, none)
    for tensor in tensors:
        parts = tensor.split(".")
        of_head = [".".join(parts[: i + 1]) for i, part in enumerate(parts) if part in heads]
        if any(not _within(module, saved) for module in of_head):
            return None
    return task


def opened_by(base: Mapping[str, Any], tuned: Mapping[str, Any], named: str) -> str:
    """The Python that opens the base of an adapter, as a call of a class of transformers.

    `base` and `tuned` are their configs. Where the base lacks the head, the number of classes is
    said, which the base's own config does not know.
    """
    words = [json.dumps(named)]
    classes = tuned.get("id2label")
    if classes and _class(base) != _class(tuned):
        words.append(f"num_labels={len(classes)}")
    return f"{_class(tuned)}.from_pretrained({', '.join(words)})"


def _class(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _within(module: str, others: Collection[str]) -> bool:
    """Whether a module is one of some others, or a part of one."""
    return any(module == other or module.startswith(f"{other}.") for other in others)
