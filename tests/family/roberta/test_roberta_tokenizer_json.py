"""A tokenizer.json of RoBERTa as transformers 5 writes it, and as we do."""

import pytest

import tests
from errors import UserError
from tests.tokenizer_json import bpe, changed, check_same_files, check_written, write
from text.tokenizers.table import TokenizerOptions

BYTES = tests.GOLDEN / "byte_bpe"


def roberta() -> dict:
    ends = {"sep": ["</s>", 2], "cls": ["<s>", 0]}
    flags = {"trim_offsets": True, "add_prefix_space": False}
    return bpe(BYTES, "vocab.json", "merges.txt") | {
        "pre_tokenizer": {"type": "ByteLevel", "use_regex": True} | flags,
        "post_processor": {"type": "RobertaProcessing"} | ends | flags,
    }


def test_it_is_the_vocabulary_of_the_two_files(tmp_path):
    check_same_files(roberta(), BYTES, tmp_path)


def test_what_is_written_gives_our_ids_and_is_read_back(tmp_path):
    check_written(TokenizerOptions().load_tokenizer(str(BYTES)), tmp_path)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (changed(roberta(), "pre_tokenizer", add_prefix_space=True), "add_prefix"),
        (roberta() | {"normalizer": {"type": "NFC"}}, "normalizer is"),
        (changed(roberta(), "model", dropout=0.1), "model.dropout is 0.1"),
    ],
)
def test_what_is_not_done_exactly_is_refused_by_name(tmp_path, parts, said):
    folder = write(tmp_path, **parts)
    with pytest.raises(UserError, match=f"tokenizer.json: .*({said})"):
        TokenizerOptions().load_tokenizer(str(folder))
