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


def tokenizer(folder, template=None, merges=(), **special):
    """A tokenizer of single bytes, and of pairs of them, written to a folder."""
    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    words = models.BPE({letter: i for i, letter in enumerate(letters)}, list(merges))
    of_bytes = Tokenizer(words)
    of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    of_bytes.decoder = decoders.ByteLevel()
    whole = PreTrainedTokenizerFast(tokenizer_object=of_bytes, **special)
    whole.chat_template = template
    whole.save_pretrained(folder)
    return whole


def read(folder, *rows, n_batches=1, seq_len=99, config=None):
    """The batches of JSON lines."""
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sizes = seq_len, len(rows) // n_batches, n_batches
    return read_batches(folder, config or CAUSAL, folder / "t.jsonl", *sizes)


def counted(words, batch, row=0):
    """The text of the tokens that count."""
    labels = batch["labels"][row]
    assert torch.equal(labels[labels != -100], batch["input_ids"][row][labels != -100])
    return words.decode(labels[labels != -100])


@pytest.mark.parametrize("template", [PLAIN, MARKED], ids=["plain", "marked"])
def test_of_a_conversation_the_tokens_of_the_assistant_count(tmp_path, template):
    words = tokenizer(tmp_path, template)
    [batch] = read(tmp_path, {"messages": CHAT}, {"messages": CHAT[:2]})
    whole = "[user]how?;[assistant]so;[user]why?;[assistant]thus;"
    assert words.decode(batch["input_ids"][0]) == whole
    assert [counted(words, batch, row) for row in (0, 1)] == ["so;thus;", "so;"]
    n = len("[user]how?;[assistant]so;")
    assert batch["attention_mask"].sum(1).tolist() == [len(whole), n]


def test_of_a_completion_all_its_tokens_count_and_of_the_prompt_none(tmp_path):
    words = tokenizer(tmp_path)
    rows = [{"prompt": "2 + 2 =", "completion": " 4"}, {"prompt": "", "completion": "yes"}]
    [batch] = read(tmp_path, *rows)
    assert counted(words, batch, 0) == " 4"
    assert counted(words, batch, 1) == "es", "nothing comes before the first token"


def test_a_token_that_joins_prompt_and_completion_is_the_completions(tmp_path):
    words = tokenizer(tmp_path, merges=[("a", "b")])
    row = {"prompt": "xya", "completion": "bz"}
    [batch] = read(tmp_path, row, config=CAUSAL | {"vocab_size": 257})
    assert words.decode(batch["input_ids"][0]) == "xyabz"
    assert counted(words, batch) == "abz"


def test_rows_are_cut_and_those_of_which_nothing_counts_are_left_out(tmp_path):
    never = {"prompt": "a" * 12, "completion": "never"}
    one = {"prompt": "abc", "completion": "defghijkl"}
    wanted = r"t.jsonl: wanted 2 lines with a token .* first 8, got 1; 1 have none"
    with pytest.raises(InputError, match=wanted):
        read(tmp_path, never, one, seq_len=8)
    [batch] = read_batches(tmp_path, CAUSAL, tmp_path / "t.jsonl", 8, 1, 1)
    assert bytes(batch["input_ids"][0].tolist()) == b"abcdefgh"
    assert (batch["labels"][0] != -100).tolist() == [False] * 3 + [True] * 5


def test_what_is_padded_changes_no_loss(tmp_path):
    model = made("llama")
    rows = [{"prompt": "abc", "completion": "def"}]
    rows.append({"prompt": "abcdefg", "completion": "hijklmnop"})
    alone = [mean_loss(model, read(tmp_path, row)) for row in rows]
    batches = read(tmp_path, *rows, n_batches=2)
    assert batches[0]["input_ids"].shape == batches[1]["input_ids"].shape
    wanted = (3 * alone[0] + 9 * alone[1]) / 12
    assert mean_loss(model, batches) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("the cat", "wanted messages, or prompt and completion, got: Expecting value"),
        ("[1]", "wanted messages, or prompt and completion, got list"),
        ('{"prompt": "a", "completion": 3}', r"as texts, got \['completion', 'prompt'\]"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "wanted some of the assistant, got"),
    ],
)
def test_another_line_is_refused_by_its_number(tmp_path, second, message):
    good = '{"prompt": "a", "completion": "b"}'
    (tmp_path / "t.jsonl").write_text(f"{good}\n\n{second}\n")
    with pytest.raises(InputError, match=f"^{tmp_path}/t.jsonl: line 3: .*{message}"):
        read_batches(tmp_path, CAUSAL, tmp_path / "t.jsonl", 9, 1, 1)


def test_messages_want_a_chat_template_that_grows(tmp_path):
    with pytest.raises(InputError, match="line 1: wanted a chat template, for messages, got none"):
        read(tmp_path, {"messages": CHAT})
    tokenizer(tmp_path, LATE)
    with pytest.raises(InputError, match="line 1: wanted a chat template that writes a turn after"):
        read(tmp_path, {"messages": CHAT})


def test_lines_are_of_a_causal_model(tmp_path):
    config = {"architectures": ["ViTModel"]}
    with pytest.raises(InputError, match=r"wanted a causal model for JSON lines, got \['ViT"):
        read(tmp_path, {"prompt": "a", "completion": "b"}, config=config)


MASKED = {"vocab_size": 256, "architectures": ["BertForMaskedLM"]}


def test_a_masked_language_model_is_measured_on_masked_tokens(tmp_path):
    words = tokenizer(tmp_path, mask_token="#", cls_token="<", sep_token=">")
    (tmp_path / "t.txt").write_text("the cat sat on the mat" * 20)
    [batch] = read_batches(tmp_path, MASKED, tmp_path / "t.txt", 20, 4, 1)
    ids, labels = batch["input_ids"], batch["labels"]
    hidden = labels != -100
    assert hidden.sum(1).tolist() == [3] * 4
    assert (ids == words.mask_token_id).equal(hidden)
    whole = "".join(map(words.decode, torch.where(hidden, labels, ids)))
    text = "the cat sat on the mat" * 20
    assert whole == "".join(f"<{text[18 * i : 18 * i + 18]}>" for i in range(4))
    model = made("bert")
    with torch.no_grad():
        logits = model(input_ids=ids).logits[hidden]
        wanted = torch.nn.functional.cross_entropy(logits, labels[hidden])
        assert float(loss(model, batch)) == pytest.approx(float(wanted), rel=1e-5)


def test_a_masked_language_model_wants_a_mask(tmp_path):
    (tmp_path / "t.txt").write_text("the cat" * 20)
    with pytest.raises(InputError, match="wanted a tokenizer with a mask token, for a masked"):
        read_batches(tmp_path, MASKED, tmp_path / "t.txt", 20, 2, 2)
