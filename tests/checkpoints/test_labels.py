"""Labels of samples: how many count, how many samples they take, what is right, and what is told of
shares.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lib.checkpoints import pruned_gains
from lib.checkpoints.accuracy import accuracy, counting_right
from lib.checkpoints.gains import GainMeasure, LinearUpdates, Parts, share_and_noise
from lib.checkpoints.loading import opened_by, task_type
from lib.checkpoints.samples import enough_samples, few_labels, labels_of_samples
from lib.checkpoints.texts import counted, pieces, read_batches
from lib.files.files import InputError

IDS = torch.arange(40).view(8, 5)
CLASSES = {"input_ids": IDS, "labels": torch.tensor([0, 1, -100, 1, 0, 1, 0, 1])}
SOME = torch.where(IDS % 5 > 2, IDS, -100)


@pytest.mark.parametrize(
    ("samples", "counts"),
    [
        ({"input_ids": IDS}, [4] * 8),
        ({"input_ids": IDS, "labels": SOME}, [2] * 8),
        (CLASSES, [1, 1, 0, 1, 1, 1, 1, 1]),
        ({"pixel_values": torch.zeros(8, 3), "labels": torch.zeros(8, 4)}, [1] * 8),
    ],
    ids=["windows", "completions", "classes", "real numbers"],
)
def test_labels_that_count(samples, counts):
    assert labels_of_samples(samples).tolist() == counts


@pytest.mark.parametrize(
    ("samples", "n_labels", "size"),
    [
        ({"input_ids": IDS}, 4, 1),
        ({"input_ids": IDS}, 5, 2),
        (CLASSES, 0, 1),
        (CLASSES, 2, 3),  # one of the first four has no label that counts
        (CLASSES, 99, 4),
    ],
)
def test_a_batch_has_as_many_samples_as_its_labels_take(samples, n_labels, size):
    assert enough_samples(samples, 1, 2, n_labels) == size


def test_of_a_classifier_more_is_read_where_there_is_more(tmp_path):
    from safetensors.torch import save_file

    save_file(CLASSES, tmp_path / "a.safetensors")
    read = (tmp_path, {"vocab_size": 256}, tmp_path / "a.safetensors", 512, 1, 2)
    assert [len(batch["labels"]) for batch in read_batches(*read)] == [1, 1]
    batches = read_batches(*read, n_labels=3)
    assert [batch["labels"].tolist() for batch in batches] == [[0, 1, -100, 1], [0, 1, 0, 1]]
    with pytest.raises(InputError, match=r"wanted 10 samples \(2 batches of 5\), got 8"):
        read_batches(*read[:4], 5, 2)


def test_of_short_completions_more_lines_are_read(tmp_path):
    lines = [json.dumps({"prompt": "ab", "completion": "c"})] * 9
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    config = {"vocab_size": 256, "architectures": ["GPT2LMHeadModel"]}
    read = (tmp_path, config, tmp_path / "t.jsonl", 8, 1, 2)
    assert [len(batch["labels"]) for batch in read_batches(*read)] == [1, 1]
    assert [len(batch["labels"]) for batch in read_batches(*read, n_labels=3)] == [3, 3]
    assert [len(batch["labels"]) for batch in read_batches(*read, n_labels=9)] == [4, 4]


def test_pieces_of_a_batch_have_a_label_each_and_the_small_batch_is_itself():
    assert pieces([CLASSES], 8)[0] is CLASSES
    found = pieces([{name: of[2:] for name, of in CLASSES.items()}], 1)
    assert [counted(piece) for piece in found] == [1] * 5
    assert [piece["labels"].tolist() for piece in found] == [[1], [0], [1], [0], [1]]


def test_few_labels_are_told_and_some_hundred_are_not():
    assert few_labels(300, 300) is None
    assert "only 299 labels in the 7 samples" in str(few_labels(299, 7))


def test_a_share_of_means_has_the_noise_of_its_parts():
    """Where every part loses the same share there is no noise; else it is a ratio's, by hand."""
    weights = np.full(3, 1 / 3)
    whole = np.array([1.0, 2.0, 3.0])
    assert share_and_noise(weights, whole / 4, whole) == (0.25, 0)
    share, noise = share_and_noise(weights, np.array([0.5, 1.0, 0.0]), whole)
    assert share == pytest.approx(0.25)
    left = np.array([0.25, 0.5, -0.75])
    assert noise == pytest.approx(2 * (left @ left / 9 * 3 / 2) ** 0.5 / 2)
    assert share_and_noise(np.ones(1), whole[:1], whole[:1]) == (1, np.inf)
    parts = Parts([{"input_ids": torch.zeros(3, 3, dtype=torch.long)}])
    assert parts.kept([3.0, 3.0, 4.0], [4.0, 4.0, 4.0], [2.0, 2.0, 2.0])[0] == pytest.approx(1 / 3)


class TokenClassification(torch.nn.Module):
    def forward(self, labels, logits):
        return SimpleNamespace(logits=logits)


class Other(TokenClassification):
    """A model whose name does not say that it is a classifier."""


def test_what_is_right_is_counted_from_the_logits_meanwhile():
    logits = torch.tensor([[[2.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    labels = torch.tensor([[0, 0], [1, -100]])
    model = TokenClassification()
    with counting_right(model) as right:
        model(labels=labels, logits=logits)
    model(labels=labels, logits=logits)
    assert (right.n_right, right.n_labels) == (2, 3)
    assert accuracy(1, 4) == pytest.approx((0.25, 2 * (0.25 * 0.75 / 4) ** 0.5))
    for model, given in ((Other(), labels), (TokenClassification(), labels.double())):
        with counting_right(model) as right:
            model(labels=given, logits=logits)
        assert right.n_labels == 0


@pytest.mark.parametrize(
    ("name", "saved", "task"),
    [
        ("GPT2LMHeadModel", (), "CAUSAL_LM"),
        ("LlamaForCausalLM", (), "CAUSAL_LM"),
        ("BertForSequenceClassification", ("classifier",), "SEQ_CLS"),
        ("BertForSequenceClassification", (), None),
        ("ViTForImageClassification", ("classifier",), None),
        ("BertForMaskedLM", (), None),
    ],
)
def test_the_task_is_peft_s_where_the_adapter_has_the_head_that_it_looks_for(name, saved, task):
    tensors = ["h.0.weight", "classifier.dense.weight"]
    assert task_type({"architectures": [name]}, tensors, saved) == task


def test_a_model_of_encoder_and_decoder_has_a_task_of_its_own():
    config = {"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}
    assert task_type(config, [], ()) == "SEQ_2_SEQ_LM"


def test_the_number_of_classes_is_said_where_the_base_lacks_the_head():
    tuned = {"architectures": ["BertForSequenceClassification"], "id2label": dict.fromkeys("abc")}
    opened = opened_by({"architectures": ["BertModel"]}, tuned, 'a "b"')
    assert opened == 'BertForSequenceClassification.from_pretrained("a \\"b\\"", num_labels=3)'
    assert opened_by(tuned, tuned, "a") == 'BertForSequenceClassification.from_pretrained("a")'


class Held(LinearUpdates):
    """The weights of three modules of like size, and of one a tenth as large; what is set stays."""

    def __init__(self, small: float):
        source = torch.Generator().manual_seed(0)
        self.tuned = {name: torch.randn(20, 20, generator=source) for name in "abcd"}
        self.tuned["c"] *= small
        self.base = {name: W / 2 for name, W in self.tuned.items()}
        self.made = {}

    def set(self, weights):
        self.made = dict(weights)

    def mean_loss(self, _):
        return sum(int((W == 0).sum()) for W in self.made.values())


@pytest.mark.parametrize(
    ("small", "groups", "lost"), [(0.1, [["a", "b", "d"], ["c"]], 200), (0.5, [[*"abcd"]], None)]
)
def test_a_module_of_much_smaller_entries_is_pruned_on_its_own(small, groups, lost):
    """Ranked with the others the smallest half would have it nearly whole."""
    linear = Held(small)
    assert pruned_gains.of_like_size(linear) == groups
    measure = object.__new__(GainMeasure)
    measure.linear = linear
    measure.batches = []

    def keep(name, compute):
        zeros = {one: int((W == 0).sum()) for one, W in linear.made.items()}
        return zeros if "weights" in name else compute()

    [(what, rate, zeros), *others] = pruned_gains.pruned([0.5], measure, keep)
    assert (what, rate, len(others)) == ("weights, smallest first", 0.5, 2)
    assert sum(zeros.values()) == 800
    assert zeros["c"] == lost if lost else zeros["c"] > 220
