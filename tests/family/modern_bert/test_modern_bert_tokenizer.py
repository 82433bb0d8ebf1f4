"""ModernBERT's tokenizer equals Hugging Face's, in Python and in a graph."""

import json
import random

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from errors import UserError
from family.modern_bert import normal_form
from family.modern_bert.tokenizer import ModernBertBpe
from tests import hostile_texts
from tests.family.modern_bert.golden import FOLDER
from tests.learning import TEXT, learn
from tests.pieces import check_graph, in_graph
from tests.saved_tokenizers import check_server
from tests.tokenizer_json import check_written
from text.tokenizers.table import TokenizerOptions

CONTENT = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))
THEIRS = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
# Marks that the package's tables have, that only newer ones have, and what they meet.
_MARKED = ("a\u0301", "e\u0323\u0301", "\u1112\u1161\u11ab", "\u0958", "\u212b", "\0")
_NEWER = ("\U00010d24", "\u1abf\u0301", "\U0001e136\u0323", "\U00011935\U00011930")
_CUT_OUT = ("  ", "     ", " " * 30, "[unused3]", "[unused", "|||", "|||IP_ADDRESS|||")
PARTS = [*"ab'st \n\t.1é한", *_MARKED, *_NEWER, *_CUT_OUT, "\u0301", "\u0323", "<|end"]
TEXTS = st.lists(
    st.sampled_from(PARTS) | st.characters(exclude_categories=("Cs",)), max_size=20
).map("".join)


@pytest.fixture(scope="module")
def ours() -> ModernBertBpe:
    return TokenizerOptions().load_tokenizer(str(FOLDER))


def hostile(number: int) -> list[str]:
    """Texts without special tokens, which are split here like any text."""
    drawn, texts = random.Random(0), []
    for text in hostile_texts.texts(number):
        place = drawn.randrange(len(text) + 1)
        texts.append(text[:place] + drawn.choice(PARTS) + text[place:])
    never = [added["content"] for added in CONTENT["added_tokens"] if added["special"]]
    return [text for text in texts if not any(token in text for token in never)]


def test_the_file_is_of_its_kind(ours):
    assert type(ours) is ModernBertBpe
    assert len(ours.cut_out) == 23 + 20 + 3
    row = ours.vocabulary
    assert [row.tokens[id] for id in (*row.head, *row.tail)] == ["[CLS]", "[SEP]"]
    assert row.second_segment == 0


def test_texts_have_their_ids(ours):
    texts = hostile(3000)
    theirs = THEIRS.encode_batch(texts, add_special_tokens=False)
    assert len(texts) > 2500
    for text, expected in zip(texts, theirs, strict=True):
        assert ours.encode(text) == expected.ids, text
    pieces = ours.tokenize("a  b[unused3]\n" + " " * 30)
    assert pieces[1:2] == ["  "] and pieces[3] == "[unused3]"
    assert pieces[-2:] == [" " * 24, " " * 6]


@given(TEXTS)
def test_pieces_come_from_their_part_of_the_text(text):
    """In form C, what pieces are made of is what they stand for."""
    ours = TokenizerOptions().load_tokenizer(str(FOLDER))
    ids, starts, ends = ours.encode_with_offsets(text)
    assert ids == ours.encode(text)
    assert ids == THEIRS.encode(text, add_special_tokens=False).ids
    if normal_form.normalize(text) == text:
        same = THEIRS.encode(text, add_special_tokens=False)
        spans = [text[a:b].strip() for a, b in same.offsets]
        found = [text[a:b].strip() for a, b in zip(starts, ends, strict=True)]
        assert found == spans
    normal, firsts, lasts = normal_form.with_offsets(text)
    assert normal == normal_form.normalize(text)
    assert list(firsts) == sorted(firsts) and list(lasts) == sorted(lasts)
    assert all(0 <= a <= b <= len(text) for a, b in zip(starts, ends, strict=True))


def test_a_composed_letter_comes_from_all_of_its_marks(ours):
    text = "xe\u0323\u0301x"
    ids, starts, ends = ours.encode_with_offsets(text)
    assert (starts[0], ends[0], starts[-1], ends[-1]) == (0, 1, 4, 5)
    assert {*zip(starts[1:-1], ends[1:-1], strict=True)} == {(1, 4)}
    assert ids == ours.encode("xẹ\u0301x")


def test_a_word_begins_after_what_is_cut_out(ours):
    ids, starts = ours.encode_words("ab  ab ab")
    ids = np.frombuffer(ids, ours.vocabulary.id_type)
    pieces = [ours.vocabulary.tokens[id] for id in ids]
    first = pieces.index("  ") + 1
    starts = np.frombuffer(starts, np.uint8)
    assert starts[0] == starts[first] == 1 and starts.sum() == 4


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_graph_gives_the_same(ours, tmp_path):
    encode = in_graph(ours, tmp_path)
    texts = [*hostile(3000), *hostile_texts.SPECIAL, "", *_MARKED, *_NEWER, *_CUT_OUT]
    for some in (texts, [], [""], ["", "a", ""]):
        check_graph(ours, encode, some)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_server_gives_the_same_ids(ours, tmp_path):
    check_server(ours, tmp_path)


def test_what_is_written_gives_our_ids_and_is_read_back(ours, tmp_path):
    check_written(ours, tmp_path)


def test_the_two_files_are_the_same_vocabulary(ours, tmp_path):
    for name, content in ours.files.items():
        (tmp_path / name).write_bytes(content)
    again = TokenizerOptions().load_tokenizer(str(tmp_path))
    assert type(again) is ModernBertBpe and again.settings == ours.settings
    assert again.encode("a  b") == ours.encode("a  b")


def changed_token(token: str, **values) -> dict:
    tokens = [
        each | values if each["content"] == token else each
        for each in CONTENT["added_tokens"]
    ]
    return CONTENT | {"added_tokens": tokens}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (changed_token("[unused3]", rstrip=True), "unused3.*rstrip is true"),
        (changed_token("[unused3]", content="<tool>"), "added_tokens has '<tool>'"),
        (CONTENT | {"model": CONTENT["model"] | {"dropout": 0.1}}, "dropout is 0.1"),
        (CONTENT | {"normalizer": None}, "normalizer is null"),
    ],
)
def test_what_is_not_done_exactly_is_refused_by_name(tmp_path, content, said):
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"tokenizer.json: .*{said}"):
        TokenizerOptions().load_tokenizer(str(tmp_path))


def test_a_vocabulary_is_learned_by_its_name(tmp_path):
    file = str(tmp_path / "vocab.json")
    learn(tmp_path, TEXT, output_file=file, kind="modern_bpe", vocab_size=285)
    tokenizer = TokenizerOptions().load_tokenizer(file)
    assert type(tokenizer) is ModernBertBpe
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.vocabulary.tokens[-5:] == special
    assert tokenizer.encode("e\u0301") == tokenizer.encode("é")
