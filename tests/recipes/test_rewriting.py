"""Texts rewritten: what a word is, what may replace it, and that all else stays."""

import collections
import json

import numpy as np
import pytest

import tests
from recipes import rewriting
from tests import samples
from text.tokenizers.table import TokenizerOptions

KINDS = {
    "uncased": ("tokenization/uncased_vocab.txt", {}),
    "cased": ("tokenization/cased_vocab.txt", {"do_lower_case": False}),
    "bytes": ("byte_bpe", {}),
    "pieces": ("sentencepiece/tiny.model", {}),
}
TEXTS = [
    "It's the dog's b2b e-mail; a 'quoted' word.",
    "  cafe\u0301 \u00a0NA\u00cfVE\tZu\u0308rich  \u200b",
    "東京は大きい。서울은 크다 ภาษาไทย हिन्दी",
    "😀 snake_case [MASK] ½ ﬁne İ ß \ufffd \x00 x",
    "",
    " ",
    "one " * 150,
]


@pytest.fixture(params=KINDS)
def tokenizer(request):
    path, flags = KINDS[request.param]
    return TokenizerOptions(**flags).load_tokenizer(str(tests.GOLDEN / path))


def replaced(text, words, numbers, by):
    change = rewriting.Change({n: 0.5 for n in numbers}, (0, len(words)))
    return rewriting.rewrite(text, words, change, {n: ["-", by] for n in numbers})


def test_only_words_change_and_every_piece_is_in_one(tokenizer):
    golden = (tests.GOLDEN / "tokenization" / "texts.jsonl").read_text().splitlines()
    said = [json.loads(line) for line in golden[::8]]
    texts = [*TEXTS, *(v for each in said for v in each.values() if type(v) is str)]
    assert len(texts) > 30
    changed = 0
    for text in texts:
        ids, words = rewriting.split(tokenizer, text)
        assert ids == tokenizer.encode(text)
        # The pieces follow one another without a gap; the characters do not overlap.
        assert [w.first for w in words] == [0, *(w.last for w in words)][: len(words)]
        assert not words or words[-1].last == len(ids)
        ends = [0, *(w.end for w in words)]
        assert all(e <= w.start <= w.end for e, w in zip(ends, words, strict=False))
        numbers = [n for n, word in enumerate(words) if word.replaceable]
        assert replaced(text, words, [], "") == text
        # What was between the words is still there, and nothing else.
        mark = "\U0001f998"
        parts = replaced(text, words, numbers, mark).split(mark)
        originals = [text[words[n].start : words[n].end] for n in numbers]
        whole = parts[0] + "".join(
            a + b for a, b in zip(originals, parts[1:], strict=True)
        )
        assert whole == text
        assert all(len(word) > 0 and not set(word) & set(" .'_2") for word in originals)
        changed += len(numbers)
    assert changed > 100


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("uncased", "It's the dog's b2b e-mail.", "the e mail"),
        ("uncased", "a 'quoted' word", "a quoted word"),
        ("uncased", "ZU\u0308RICH cafe\u0301", "ZU\u0308RICH cafe\u0301"),
        ("cased", "日本の本 タタ", "日 本 の 本"),  # the vocabulary has no word of タ
        ("cased", "unflinchingly", "unflinchingly"),  # however many pieces it has
        ("bytes", "The dog's bone, here", "The bone here"),
        ("bytes", "오늘 날씨", "오늘 날씨"),
        ("pieces", "the function's result", "the result"),
    ],
)
def test_words_that_may_be_replaced(kind, text, words):
    path, flags = KINDS[kind]
    tokenizer = TokenizerOptions(**flags).load_tokenizer(str(tests.GOLDEN / path))
    _, found = rewriting.split(tokenizer, text)
    assert [text[w.start : w.end] for w in found if w.replaceable] == words.split()


def test_whole_words_of_letters_replace_others(tokenizer):
    vocabulary = tokenizer.vocabulary
    allowed = rewriting.candidates_of(vocabulary)
    assert len(allowed) == len(vocabulary) and allowed.sum() > 50
    found = {vocabulary.tokens[id] for id in np.flatnonzero(allowed)}
    assert not found & {vocabulary.mask, "[UNK]", "[CLS]", "<s>", "##s", ".", "1"}
    assert not any(token.startswith("##") for token in found)
    assert all(vocabulary.texts[id].isalpha() for id in np.flatnonzero(allowed)[:50])


def test_a_new_word_has_the_capitals_of_the_old_one(tokenizer):
    text = "Film FILM film A"
    _, words = rewriting.split(tokenizer, text)
    numbers = range(len(words))
    assert replaced(text, words, numbers, "movie") == "Movie MOVIE movie Movie"


WORDS = [rewriting.Word(2 * i, 2 * i + 1, i, i + 1, i != 3) for i in range(8)]


def test_draws_depend_on_the_key_alone_and_have_their_probabilities():
    draws = [rewriting.draw((1, n), WORDS, 0.4, 0.25) for n in range(4000)]
    again = [rewriting.draw((1, n), WORDS, 0.4, 0.25) for n in (7, 3999)]
    assert again == [draws[7], draws[3999]]
    assert rewriting.draw((2, 7), WORDS, 0.4, 0.25) != draws[7]
    whole = [draw for draw in draws if draw.kept == (0, 8)]
    assert len(whole) / 4000 == pytest.approx(0.75, abs=0.03)
    counts = collections.Counter(n for draw in whole for n in draw.words)
    assert counts.keys() == set(range(8)) - {3}  # that one may not be replaced
    for count in counts.values():
        assert count / len(whole) == pytest.approx(0.4, abs=0.04)
    choices = [x for draw in whole for x in draw.words.values()]
    assert np.histogram(choices, 5, (0, 1))[0] / len(choices) == pytest.approx(
        0.2, abs=0.02
    )
    ngrams = [draw for draw in draws if draw.kept != (0, 8)]
    sizes = collections.Counter(
        last - first for first, last in (d.kept for d in ngrams)
    )
    assert sizes.keys() == {1, 2, 3, 4, 5}
    for count in sizes.values():
        assert count / len(ngrams) == pytest.approx(0.2, abs=0.05)
    begins = {draw.kept[0] for draw in ngrams if draw.kept[1] - draw.kept[0] == 1}
    assert begins == set(range(8))
    for draw in ngrams:
        assert all(draw.kept[0] <= n < draw.kept[1] for n in draw.words)


def test_an_ngram_is_cut_out_with_what_is_between_its_words():
    text = "a b,c d e f g h"
    words = [w._replace(replaceable=True) for w in WORDS]
    change = rewriting.Change({2: 0.0}, (1, 4))
    assert rewriting.rewrite(text, words, change, {2: ["x"]}) == "b,x d"
    assert rewriting.draw((1,), [], 1.0, 1.0) == ({}, (0, 0))
    assert rewriting.rewrite(" ", [], rewriting.Change({}, (0, 0)), {}) == " "


def test_a_row_has_one_mask_for_a_word_and_then_the_whole_text(tokenizer):
    vocabulary = tokenizer.vocabulary
    word = rewriting.Word(0, 0, 2, 5, True)
    ids, segments, position = rewriting.mask_word(
        [11, 12, 13, 14, 15, 16], word, vocabulary, 32
    )
    cls, sep, mask = vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id
    separators = [sep] * vocabulary.separators
    head = [cls, 11, 12, mask, 16, *separators]
    assert ids == [*head, 11, 12, 13, 14, 15, 16, sep] and position == 3
    assert segments == [0] * len(head) + [vocabulary.second_segment] * 7


@pytest.mark.parametrize("place", [0, 1, 50, 98, 99])
def test_of_a_long_text_the_part_around_the_word_is_read(tokenizer, place):
    vocabulary = tokenizer.vocabulary
    word = rewriting.Word(0, 0, place, place + 1, True)
    long = list(range(100, 200))
    ids, segments, position = rewriting.mask_word(long, word, vocabulary, 24)
    assert len(ids) == len(segments) <= 24 and ids[position] == vocabulary.mask_id
    size = (24 - vocabulary.num_special_tokens) // 2
    shown = ids[-1 - size : -1]
    assert shown == list(range(shown[0], shown[0] + size))
    assert 100 + place in shown
    if place == 50:  # both sides are seen
        assert min(150 - shown[0], shown[-1] - 150) >= size // 2 - 1


@pytest.mark.skipif(
    "xlnet" not in samples.collect("CONFIGS"), reason="family/xlnet is not there"
)
def test_a_word_to_replace_is_where_it_is_said_to_be_with_cls_last():
    model = tests.GOLDEN / "sentencepiece" / "xlnet.model"
    tokenizer = TokenizerOptions().load_tokenizer(str(model))
    vocabulary = tokenizer.vocabulary
    ids, words = rewriting.split(tokenizer, "The statement is short.")
    word = words[2]
    row, segments, position = rewriting.mask_word(ids, word, vocabulary, 40)
    assert row[position] == vocabulary.mask_id and row[-2:] == [4, 3]
    assert segments[-1] == 2
