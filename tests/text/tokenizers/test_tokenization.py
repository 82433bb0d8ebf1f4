"""Tokens equal to the release's, offsets, switches, and the refusals."""

import json
import unicodedata

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

import tests
from errors import UserError
from text.tokenizers import word_by_word
from text.tokenizers.table import (
    OpenVocabulary,
    TokenizerOptions,
)
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.word_splitter import WordSplitter
from text.tokenizers.wordpiece import WordPiece, check_case

GOLDEN = tests.GOLDEN / "tokenization"

# Code points of the golden texts that Unicode 11 (Python 3.7, where the release ran) does
# not know, or knows as another category than ours; texts with them are left out.
CHANGED_SINCE_UNICODE_11 = {
    0x061D: "ARABIC END OF TEXT MARK, punctuation since Unicode 14"
}


def tokenizer(*tokens, **switches):
    return WordPiece(Vocabulary([*SPECIAL_TOKENS, *tokens]), **switches)


def words(text, **switches):
    return WordSplitter(**switches).words(text)


@pytest.mark.parametrize("mode", ["uncased", "cased"])
def test_tokens_equal_the_release(mode):
    vocabulary = Vocabulary.load(str(GOLDEN / f"{mode}_vocab.txt"))
    tokenize = WordPiece(vocabulary, do_lower_case=mode == "uncased").tokenize
    lines = (GOLDEN / "texts.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line) for line in lines]
    assert len(texts) == 978
    unlike = [text for text in texts if " ".join(tokenize(text["text"])) != text[mode]]
    unexplained = [
        text
        for text in unlike
        if not set(map(ord, text["text"])) & set(CHANGED_SINCE_UNICODE_11)
    ]
    assert unexplained == []
    assert len(unlike) <= 1


def test_every_code_point_is_treated_as_the_release_does():
    """Its passes, one after the other, on each code point between two letters."""

    def passes(character):
        category = unicodedata.category(character)
        text = f"A{character}B"
        if category == "Zs" or character in "\t\n\r\u2028\u2029":
            text = "A B"
        elif character in "\0\ufffd" or category in ("Cc", "Cf"):
            text = "AB"
        text = unicodedata.normalize("NFD", text.lower())
        text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        for part in set(text):
            symbols = "$+<=>^`|~"  # punctuation to the release, not to Unicode
            if unicodedata.category(part)[0] == "P" or part in symbols:
                text = text.replace(part, f" {part} ")
        return text.split()

    splitter = WordSplitter(split_cjk=False)
    unlike = [
        hex(point)
        for point in (*range(0x32000), *range(0xE0000, 0xE0200))
        if splitter.words(f"A{chr(point)}B") != passes(chr(point))
    ]
    assert unlike == []


@pytest.mark.parametrize(
    "first_and_last",
    [
        "\u3400\u4dbf",
        "\u4e00\u9fff",
        "\uf900\ufaff",
        "\U00020000\U0002a6df",
        "\U0002a700\U0002ceaf",
        "\U0002f800\U0002fa1f",
    ],
)
def test_the_blocks_of_chinese_characters_are_the_release_s(first_and_last):
    first, last = first_and_last
    assert len(words(f"a{first}b")) == len(words(f"a{last}b")) == 3
    for neighbour in (chr(ord(first) - 1), chr(ord(last) + 1)):
        assert len(words(f"a{neighbour}b")) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A capital sigma that ends a word, also before a full stop or a lost character.
        ("ΟΔΟΣ ΟΔΟΣ. ΣΑΣ\x01Α Σ", ["οδος", "οδος", ".", "σασα", "σ"]),
        ("ΣΑΣ\ufffdΑ", ["σασα"]),
        # NFD sorts marks that stay: 226 goes behind 216.
        ("a\U0001d16d\U0001d165", ["a\U0001d165\U0001d16d"]),
        # Controls are deleted even where Python would split: \x1c, \x0b, \x85.
        ("a\x1cb\x0bc\x85d", ["abcd"]),
        ("a\u2028b\u2029c\u3000d", ["a", "b", "c", "d"]),
        ("İ ß ½ ﬁ", ["i", "ß", "½", "ﬁ"]),
        ("\ud800x\0y", ["\ud800xy"]),
    ],
)
def test_words_of_rare_texts(text, expected):
    splitter = WordSplitter()
    chunks = splitter.chunks(text)
    assert [word for chunk in chunks for word in splitter.words(chunk)] == expected


def test_accents_and_case_are_separate():
    assert words("Él", do_lower_case=True) == ["el"]
    assert words("Él", do_lower_case=True, strip_accents=False) == ["él"]
    assert words("Él", do_lower_case=False) == ["Él"]
    assert words("Él", do_lower_case=False, strip_accents=True) == ["El"]


def test_chinese_may_stay_together():
    assert words("我们a") == ["我", "们", "a"]
    assert words("我们a", split_cjk=False) == ["我们a"]


def test_hangul_and_voiced_kana_stay_whole_without_stripping():
    assert words("한 が") == ["\u1112\u1161\u11ab", "か"]
    assert words("한 が", strip_accents=False) == ["한", "が"]


def hangul(text):
    """Pieces and offsets of a text with a vocabulary of NFC syllables and some letters."""
    characters = "가각나한글a\u1100\u1161\u11a8\u1113\u0301"
    tokens = [*SPECIAL_TOKENS, *characters, *(f"##{c}" for c in characters)]
    tokenizer = WordPiece(Vocabulary(tokens), strip_accents=False)
    assert tokenizer.encode(text) == tokenizer.encode_with_offsets(text)[0]
    ids, *spans = tokenizer.encode_with_offsets(text)
    return list(zip([tokens[id] for id in ids], *spans, strict=True))


@pytest.mark.parametrize(
    "text, pieces",
    [
        ("\u1112\u1161\u11ab\u1100\u1173\u11af", [("한", 0, 3), ("##글", 3, 6)]),
        ("가\u11a8a", [("각", 0, 2), ("##a", 2, 3)]),
        ("\u1100\u1161\u11a8\u11a8", [("각", 0, 3), ("##\u11a8", 3, 4)]),
        ("각\u11a8", [("각", 0, 1), ("##\u11a8", 1, 2)]),
        # What is deleted does not separate; a space, a mark and old letters do.
        ("\u1100\u200d\u1161", [("가", 0, 3)]),
        ("\u1100 \u1161", [("\u1100", 0, 1), ("\u1161", 2, 3)]),
        (
            "\u1100\u0301\u1161",
            [("\u1100", 0, 1), ("##\u0301", 1, 2), ("##\u1161", 2, 3)],
        ),
        ("\u1113\u1161", [("\u1113", 0, 1), ("##\u1161", 1, 2)]),
        ("한글", [("한", 0, 1), ("##글", 1, 2)]),
    ],
)
def test_hangul_is_composed_if_accents_are_kept(text, pieces):
    assert hangul(text) == pieces


@pytest.mark.parametrize("text", ["가", "힣", "が", "ポ", "abc ヴ"])
def test_decomposition_is_announced(text):
    assert tokenizer().decomposes(text)
    assert not tokenizer(strip_accents=False).decomposes(text)
    assert not tokenizer(do_lower_case=False).decomposes(text)


@pytest.mark.parametrize("text", ["\u1112\u1161\u11ab", "a\u1161"])
def test_hangul_in_letters_is_announced_too(text):
    assert tokenizer().decomposes(text)


@pytest.mark.parametrize("text", ["abc", "é", "か", "カ", "我", "\u1100"])
def test_other_text_is_not_announced(text):
    assert not tokenizer().decomposes(text)


def test_words_of_200_characters_are_the_longest():
    assert tokenizer("a", "##a").tokenize("a" * 200) == ["a"] + ["##a"] * 199
    assert tokenizer("a", "##a").tokenize("b" + "a" * 200 + " a") == ["[UNK]", "a"]
    assert tokenizer("a", "##a").tokenize("a" * 201) == ["[UNK]"]


def test_a_word_without_all_its_pieces_is_unknown_as_a_whole():
    assert tokenizer("a", "##b").tokenize("ab abc a") == ["a", "##b", "[UNK]", "a"]


def test_special_tokens_in_text_are_plain_text():
    found = tokenizer("[", "]", "cls").tokenize("[CLS]")
    assert found == ["[", "cls", "]"]


def test_ids_come_from_the_file():
    vocabulary = Vocabulary(["a", "[MASK]", "[SEP]", "[CLS]", "[UNK]", "[PAD]"])
    assert WordPiece(vocabulary).encode("a b a") == [0, 4, 0]


def test_offsets_point_into_the_original_text():
    text = "  Un\u00adaffable,\x1c  CAFE\u0301\u0301s 我们 xx"
    tokens = ["una", "##ffa", "##ble", ",", "cafe", "##s", "我"]
    ids, starts, ends = tokenizer(*tokens).encode_with_offsets(text)
    assert ids == [5, 6, 7, 8, 9, 10, 11, 1, 1]
    found = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    # The dropped accents belong to the letter before them.
    assert found == [
        *["Un\u00ada", "ffa", "ble", ",", "CAFE\u0301\u0301", "s", "我", "们", "xx"]
    ]


def test_pieces_of_one_character_share_its_offsets():
    _, starts, ends = tokenizer("\u1112", "##\u1161", "##\u11ab").encode_with_offsets(
        "x 한"
    )
    assert (starts, ends) == ([0, 2, 2, 2], [1, 3, 3, 3])


@hypothesis.given(strategies.text(), strategies.booleans(), strategies.booleans())
def test_offsets_agree_with_encode(text, lower, strip):
    single = [chr(point) for point in range(32, 0x250)]
    both = tokenizer(
        *single, *(f"##{c}" for c in single), do_lower_case=lower, strip_accents=strip
    )
    ids, starts, ends = both.encode_with_offsets(text)
    assert ids == both.encode(text)
    packed = np.array(ids, np.uint16).tobytes()
    words, word_starts = both.encode_words(text)
    assert both.encode_packed(text) == words == packed
    assert len(word_starts) == len(ids) and word_starts[:1] in (b"", b"\1")
    assert starts == sorted(starts) and ends == sorted(ends)
    assert all(0 <= a < b <= len(text) for a, b in zip(starts, ends, strict=True))


def test_a_full_cache_changes_no_token(monkeypatch):
    monkeypatch.setattr(word_by_word, "_MOST_CACHED", 3)
    small = tokenizer("a", "b", "c", "d", "e", "##a", ",")
    text = "a, b c, d e aa, ba " * 3
    tokens = ["a", ",", "b", "c", ",", "d", "e", "a", "##a", ",", "b", "##a"]
    assert small.tokenize(text) == tokens * 3
    assert len(small._chunk_ids) <= 3 and len(small._word_ids) <= 3


@pytest.mark.parametrize(
    ("do_lower_case", "path"),
    [
        (False, "/m/uncased_L-12_H-768_A-12/bert_model.ckpt"),
        (False, "gs://b/chinese_L-12_H-768_A-12/bert_model.ckpt"),
        (False, "multilingual_L-12_H-768_A-12"),
        (True, "/m/cased_L-24_H-1024_A-16/bert_model.ckpt"),
        (True, "/m/multi_cased_L-12_H-768_A-12/vocab.txt"),
    ],
)
def test_a_case_against_the_released_name_is_refused(do_lower_case, path):
    with pytest.raises(UserError) as error:
        check_case(do_lower_case, path)
    assert path in str(error.value)
    assert f"pass --do_lower_case={str(not do_lower_case).lower()}" in str(error.value)
    check_case(not do_lower_case, path)


@pytest.mark.parametrize("path", [None, "", "/m/mine/bert_model.ckpt", "model.ckpt-10"])
def test_any_case_goes_with_other_names(path):
    check_case(True, path)
    check_case(False, path)


# --- Korean vocabularies --------------------------------------------------------------


@pytest.fixture
def korean(tmp_path):
    tokens = [*SPECIAL_TOKENS, "한국", "##어", "ab", "\u1112\u1161\u11ab"]
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in tokens))
    return str(path)


def test_a_korean_vocabulary_finds_its_syllables(korean):
    options = TokenizerOptions()
    assert options.load_tokenizer(korean).tokenize("한국어 AB") == [
        "한국",
        "##어",
        "ab",
    ]
    in_letters = unicodedata.normalize("NFD", "한국어")
    assert options.load_tokenizer(korean).tokenize(in_letters) == ["한국", "##어"]
    resolved = OpenVocabulary.open(korean).resolve(options)
    assert (resolved["do_lower_case"], resolved["strip_accents"]) == (True, False)
    # As an English model's command has it.
    with_case = TokenizerOptions(do_lower_case=True)
    assert with_case.load_tokenizer(korean).tokenize("한국어") == ["한국", "##어"]


def test_a_korean_vocabulary_obeys_a_flag(korean):
    release = TokenizerOptions(strip_accents=True).load_tokenizer(korean)
    assert release.tokenize("한 한국") == ["\u1112\u1161\u11ab", "[UNK]"]


def test_a_few_syllables_do_not_make_a_vocabulary_korean(tmp_path):
    tokens = [*SPECIAL_TOKENS, "한", *(f"word{number}" for number in range(200))]
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in tokens))
    assert (
        OpenVocabulary.open(str(path)).resolve(TokenizerOptions())["strip_accents"]
        is True
    )
