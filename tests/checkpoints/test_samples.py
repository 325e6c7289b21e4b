"""Conversations, completions and masked windows, against tokens that are counted by hand."""

import json

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lib.checkpoints.texts import loss, mean_loss, read_batches
from lib.files.files import InputError
from tests.checkpoints.transformers_made import made

TURN = "[{{ m['role'] }}]{{ m['content'] }};"
ENDED = "{% if add_generation_prompt %}[assistant]{% endif %}"
PLAIN = "{% for m in messages %}" + TURN + "{% endfor %}" + ENDED
MARKED = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}[assistant]"
    "{% generation %}{{ m['content'] }};{% endgeneration %}{% else %}" + TURN + "{% endif %}"
    "{% endfor %}" + ENDED
)
LATE = "{{ messages|length }}" + PLAIN  # what is written first depends on what comes later
CAUSAL = {"vocab_size": 256, "architectures": ["LlamaForCausalLM"]}
CHAT = [
    {"role": "user", "content": "how?"},
    {"role": "assistant", "content": "so"},
    {"role": "user", "content": "why?"},
    {"role": "assistant", "content": "thus"},
]


def tokenizer(folder, template=None, **special):
    """A tokenizer of single bytes, written to a folder."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = models.BPE({letter: i for i, letter in enumerate(letters)}, [])
    of_bytes = Tokenizer(words)
    of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    of_bytes.decoder = decoders.ByteLevel()
    whole = PreTrainedTokenizerFast(tokenizer_object=of_bytes, **special)
    whole.chat_template = template
    whole.save_pretrained(folder)
    return whole


def written(folder, *rows):
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder / "t.jsonl"


def counted(read, batch, row=0):
    """The text of the tokens that count."""
    labels = batch["labels"][row]
    assert torch.equal(labels[labels != -100], batch["input_ids"][row][labels != -100])
    return read.decode(labels[labels != -100])


@pytest.mark.parametrize("template", [PLAIN, MARKED], ids=["plain", "marked"])
def test_of_a_conversation_the_tokens_of_the_assistant_count(tmp_path, template):
    read = tokenizer(tmp_path, template)
    file = written(tmp_path, {"messages": CHAT}, {"messages": CHAT[:2]})
    [batch] = read_batches(tmp_path, CAUSAL, file, 99, 2, 1)
    whole = "[user]how?;[assistant]so;[user]why?;[assistant]thus;"
    assert read.decode(batch["input_ids"][0]) == whole
    assert [counted(read, batch, row) for row in (0, 1)] == ["so;thus;", "so;"]
    n = len("[user]how?;[assistant]so;")
    assert batch["attention_mask"].sum(1).tolist() == [len(whole), n]


def test_of_a_completion_all_its_tokens_count_and_of_the_prompt_none(tmp_path):
    read = tokenizer(tmp_path)
    rows = [{"prompt": "2 + 2 =", "completion": " 4"}, {"prompt": "", "completion": "yes"}]
    [batch] = read_batches(tmp_path, CAUSAL, written(tmp_path, *rows), 99, 2, 1)
    assert counted(read, batch, 0) == " 4"
    assert counted(read, batch, 1) == "es", "nothing comes before the first token"


def test_a_token_that_joins_prompt_and_completion_is_the_completions(tmp_path):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: i for i, letter in enumerate(letters)} | {"ab": 256}
    merged = Tokenizer(models.BPE(words, [("a", "b")]))
    merged.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    merged.decoder = decoders.ByteLevel()
    read = PreTrainedTokenizerFast(tokenizer_object=merged)
    read.save_pretrained(tmp_path)
    file = written(tmp_path, {"prompt": "xya", "completion": "bz"})
    [batch] = read_batches(tmp_path, CAUSAL | {"vocab_size": 257}, file, 99, 1, 1)
    assert read.decode(batch["input_ids"][0]) == "xyabz"
    assert counted(read, batch) == "abz"


def test_rows_are_cut_and_those_of_which_nothing_counts_are_left_out(tmp_path):
    rows = [
        {"prompt": "a" * 12, "completion": "never"},
        {"prompt": "abc", "completion": "defghijkl"},
    ]
    file = written(tmp_path, *rows)
    [batch] = read_batches(tmp_path, CAUSAL, file, 8, 1, 1)
    assert bytes(batch["input_ids"][0].tolist()) == b"abcdefgh"
    assert (batch["labels"][0] != -100).tolist() == [False] * 3 + [True] * 5
    wanted = r"t.jsonl: wanted 2 lines with a token .* first 8, got 1; 1 have none"
    with pytest.raises(InputError, match=wanted):
        read_batches(tmp_path, CAUSAL, file, 8, 2, 1)


def test_what_is_padded_changes_no_loss(tmp_path):
    model = made("llama")
    rows = [
        {"prompt": "abc", "completion": "def"},
        {"prompt": "abcdefg", "completion": "hijklmnop"},
    ]
    alone = []
    for row in rows:
        [batch] = read_batches(tmp_path, CAUSAL, written(tmp_path, row), 99, 1, 1)
        alone.append(mean_loss(model, [batch]))
    batches = read_batches(tmp_path, CAUSAL, written(tmp_path, *rows), 99, 1, 2)
    assert batches[0]["input_ids"].shape == batches[1]["input_ids"].shape
    wanted = (3 * alone[0] + 9 * alone[1]) / 12
    assert mean_loss(model, batches) == pytest.approx(wanted, rel=1e-5)


GOOD = '{"prompt": "a", "completion": "b"}'


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            '{"text": "the cat"}',
            r"wanted messages, or prompt and completion as texts, got \['text'",
        ),
        ("the cat", "wanted messages, or prompt and completion, got: Expecting value"),
        ("[1]", "wanted messages, or prompt and completion, got list"),
        ('{"prompt": "a", "completion": 3}', r"as texts, got \['completion', 'prompt'\]"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "wanted some of the assistant, got"),
        ('{"messages": "a"}', "messages: wanted some of the assistant, got none"),
    ],
)
def test_another_line_is_refused_by_its_number(tmp_path, second, message):
    (tmp_path / "t.jsonl").write_text(f"{GOOD}\n\n{second}\n")
    with pytest.raises(InputError, match=f"^{tmp_path}/t.jsonl: line 3: .*{message}"):
        read_batches(tmp_path, CAUSAL, tmp_path / "t.jsonl", 9, 1, 1)


def test_messages_want_a_chat_template_that_grows(tmp_path):
    file = written(tmp_path, {"messages": CHAT})
    with pytest.raises(InputError, match="line 1: wanted a chat template, for messages, got none"):
        read_batches(tmp_path, CAUSAL, file, 99, 1, 1)
    tokenizer(tmp_path, LATE)
    with pytest.raises(InputError, match="line 1: wanted a chat template that writes a turn after"):
        read_batches(tmp_path, CAUSAL, file, 99, 1, 1)


def test_lines_are_of_a_causal_model(tmp_path):
    file = written(tmp_path, {"prompt": "a", "completion": "b"})
    with pytest.raises(InputError, match=r"wanted a causal model for JSON lines, got \['ViT"):
        read_batches(tmp_path, {"architectures": ["ViTModel"]}, file, 99, 1, 1)


MASKED = {"vocab_size": 256, "architectures": ["BertForMaskedLM"]}


def test_a_masked_language_model_is_measured_on_masked_tokens(tmp_path):
    read = tokenizer(tmp_path, mask_token="#", cls_token="<", sep_token=">")
    (tmp_path / "t.txt").write_text("the cat sat on the mat" * 20)
    batches = read_batches(tmp_path, MASKED, tmp_path / "t.txt", 20, 2, 2)
    again = read_batches(tmp_path, MASKED, tmp_path / "t.txt", 20, 2, 2)
    model = made("bert")
    for batch, same in zip(batches, again, strict=True):
        ids, labels = batch["input_ids"], batch["labels"]
        assert torch.equal(ids, same["input_ids"])
        hidden = labels != -100
        assert hidden.sum(1).tolist() == [3, 3]
        assert (ids == read.mask_token_id).equal(hidden)
        whole = torch.where(hidden, labels, ids)
        assert read.decode(whole[0])[0] + read.decode(whole[0])[-1] == "<>"
        with torch.no_grad():
            logits = model(input_ids=ids).logits[hidden]
            wanted = torch.nn.functional.cross_entropy(logits, labels[hidden])
            assert float(loss(model, batch)) == pytest.approx(float(wanted), rel=1e-5)
    joined = torch.cat([torch.where(b["labels"] < 0, b["input_ids"], b["labels"]) for b in batches])
    text = "".join(read.decode(row[1:-1]) for row in joined)
    assert text == ("the cat sat on the mat" * 20)[: len(text)]


def test_a_masked_language_model_wants_a_mask(tmp_path):
    (tmp_path / "t.txt").write_text("the cat" * 20)
    with pytest.raises(InputError, match="wanted a tokenizer with a mask token, for a masked"):
        read_batches(tmp_path, MASKED, tmp_path / "t.txt", 20, 2, 2)
