"""SentencePiece equal to XLNet's release, in a graph too."""

import dataclasses
import json

import pytest
import tokenizers

import build_vocab
from training.run import checks
from errors import UserError
from family.xlnet.tokenizer import FAMILY, begins_word
from modeling.architectures.bert import BertConfig
from tests import pieces, tiers
from tests.tokenizer_json import (
    ACCENTS,
    LOWER,
    PIECES,
    QUOTES,
    added,
    changed,
    check_refused,
    check_unigram,
    check_written,
    replace,
    unigram,
)
from text.tokenizers.table import TokenizerOptions

CASES = json.loads((pieces.GOLDEN / "xlnet_cases.json").read_text("utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_ids_are_those_of_the_release(name):
    pieces.check_release(name, CASES[name])


def test_a_piece_of_one_mark_begins_a_word():
    marks = [*"\u2581.-_`@", "\u2581a", "<unk>"]
    begins = map(begins_word, [*marks, *"a1'=>é한", "a.", ".."])
    assert list(begins) == [True] * len(marks) + [False] * 9


def test_text_is_cased_unless_asked_otherwise():
    assert not pieces.load("xlnet").settings["do_lower_case"]
    assert pieces.load("xlnet", do_lower_case=True).settings["do_lower_case"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("``\u0301''' .", ["``\u0301", "''", "'", "."]),
        ("\u0301``` 1", ["``", "`", "1"]),
    ],
)
def test_pieces_are_where_they_come_from(text, parts):
    pieces.check_offsets("xlnet", text, parts)


@pytest.mark.parametrize("name", CASES)
def test_an_annotated_answer_is_found_in_its_text(name):
    pieces.check_answers(name)


@pytest.mark.parametrize("name", tiers.cases(CASES, ["xlnet_digits"]))
def test_a_graph_gives_the_same(name, tmp_path):
    pieces.check_graph_of_cases(name, CASES[name], tmp_path)


def test_a_model_without_the_segment_of_the_last_token_is_refused():
    vocabulary, config = pieces.load("xlnet").vocabulary, BertConfig(1500)
    with pytest.raises(UserError, match="segment 2, but my.json has type_vocab_size=2"):
        two = dataclasses.replace(config, type_vocab_size=2)
        checks.check_vocabulary(vocabulary, two, "my.json")
    three = dataclasses.replace(config, type_vocab_size=3)
    checks.check_vocabulary(vocabulary, three, "my.json")


def test_a_model_is_learned_as_for_the_release(tmp_path):
    line = "Low lower lowest (new) newer - newest! In 2019, £5 for a café.\n"
    (tmp_path / "text.txt").write_text(line * 20)
    path = str(tmp_path / "spiece.model")
    flags = {"special_tokens": "xlnet", "vocab_size": 70, "output_file": path}
    text = [str(tmp_path / "text.txt")]
    build_vocab.main(build_vocab.Options(input_file=text, **flags))
    tokenizer = TokenizerOptions().load_tokenizer(path)
    names = (
        '<unk> <s> </s> <cls> <sep> <pad> <mask> <eod> <eop> . ( ) " - – £ €'.split()
    )
    tokens = tokenizer.vocabulary.tokens
    assert tokens[: len(names)] == names and "L" in "".join(tokens)
    assert tokenizer.family is FAMILY
    assert [tokens[id] for id in tokenizer.encode("``£")] == ["\u2581", '"', "£"]


# --- A tokenizer.json of an XLNet is a SentencePiece model, and back -----------------


def xlnet(steps=(*QUOTES, *ACCENTS)) -> dict:
    layout = "A <sep> <cls>", "A <sep> B <sep> <cls>"
    return unigram("xlnet", layout, list(steps))


@pytest.mark.parametrize(
    ("parts", "flags"),
    [
        (xlnet(), {}),
        (xlnet((*QUOTES, *ACCENTS, *LOWER)), {"do_lower_case": True}),
    ],
)
def test_unigram_is_sentencepiece(tmp_path, parts, flags):
    check_unigram(tmp_path, parts, "xlnet", flags)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (xlnet(ACCENTS), "normalizer has the steps"),
        (xlnet([replace("``", "''"), QUOTES[1]]), "normalizer has the steps"),
        (changed(xlnet(), "model", unk_id=1), "unk_id is 1"),
        (changed(xlnet(), "model", byte_fallback=True), "byte_fallback is true"),
        (xlnet() | {"pre_tokenizer": None}, "pre_tokenizer is"),
        (xlnet() | {"added_tokens": added({".": 9}, False)}, r"added_tokens has '\.'"),
    ],
)
def test_what_is_not_done_exactly_is_refused_by_name(tmp_path, parts, said):
    check_refused(tmp_path, parts, said)


@pytest.mark.parametrize("flags", [{}, {"do_lower_case": True}])
def test_what_is_written_gives_our_ids_and_is_read_back(tmp_path, flags):
    path = str(PIECES / "xlnet.model")
    ours = TokenizerOptions(**flags).load_tokenizer(path)
    check_written(ours, tmp_path, keeps_sigma=True)


def test_what_cannot_be_written_is_said():
    digits = TokenizerOptions().load_tokenizer(str(PIECES / "xlnet_digits.model"))
    assert "a number and a comma" in digits.hugging_face().difference
    theirs = tokenizers.Tokenizer.from_str(digits.hugging_face().json)
    # A piece like 5, is never chosen there: mostly, that is the same.
    text = "a 1,000 or 12."
    encoded = theirs.encode(text, add_special_tokens=False)
    assert encoded.ids == digits.encode(text)
    xlnet = TokenizerOptions().load_tokenizer(str(PIECES / "xlnet.model"))
    assert xlnet.hugging_face().difference is None
