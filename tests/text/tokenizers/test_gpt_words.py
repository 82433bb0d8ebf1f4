"""OpenAI's words by the packages themselves; skipped where they are not installed.

.ci/run installs them in an environment of their own. test_gpt_bpe.py, which runs
everywhere, uses the words that they gave for the golden texts.
"""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests
from text.tokenizers import gpt_words
from text.tokenizers.kinds import TokenizerOptions

pytest.importorskip("spacy")
pytest.importorskip("ftfy")

GOLDEN = tests.GOLDEN / "gpt_bpe"
CASES = json.loads(gzip.decompress((GOLDEN / "cases.json.gz").read_bytes()))
PARTS = [
    "the cats",
    "don't",
    "“no”",
    "\n",
    " \r\n",
    "ﬁ",
    "e\u0301",
    "…",
    " — ",
    "(U.K.)",
]
PARTS += ["http://a.b/c", "Mr.", "a\\b", "&amp;", "<b>", "İ", "ΣΑΣ"]
TEXTS = st.lists(
    st.sampled_from([*PARTS, " ", "한국", "سلام", "😀", "â€™", "\x85", "\ufeff"])
    | st.characters(exclude_categories=("Cs",)),
    max_size=20,
).map("".join)


@pytest.fixture(scope="module")
def tokenizer():
    given = TokenizerOptions(gpt_words="openai")
    return given.load_tokenizer(str(GOLDEN / "encoder_bpe_40000.json"))


def test_texts_have_the_words_and_ids_of_the_release(tokenizer):
    splitter = tokenizer.splitter
    for case in CASES:
        words = [w for c in splitter.chunks(case["text"]) for w in splitter.words(c)]
        # spaCy's word for a line break has the space after it.
        assert words == [word.lower().rstrip(" ") for word in case["words"]]
        assert tokenizer.encode(case["text"]) == case["ids"]


@settings(max_examples=200)
@given(TEXTS)
def test_words_of_a_text_are_those_of_its_chunks(tokenizer, text):
    """So that each chunk is split once."""
    splitter = tokenizer.splitter
    fix, tokens = gpt_words._packages()
    clean = gpt_words.standardized(fix(text))
    words = [word.lower().rstrip(" ") for _, word in tokens(clean)]
    assert [w for c in splitter.chunks(text) for w in splitter.words(c)] == words


@settings(max_examples=200)
@given(TEXTS)
def test_offsets_are_in_the_original_text(tokenizer, text):
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    assert starts == sorted(starts) and ends == sorted(ends)
    for id, start, end in zip(ids, starts, ends, strict=True):
        assert 0 <= start < end <= len(text)
        piece = tokenizer.vocabulary.texts[id]
        if text.isascii() and text.isprintable() and id and "&" not in text:
            assert text[start:end].lower() == piece
