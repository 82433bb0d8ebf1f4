"""Tag schemes, files of tagged words, and which words share a row."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import metrics
from errors import UserError
from text.tasks import tags
from text.tasks.tags import Entity

NEW_YORK_PARIS = {
    "iob1": ["O", "I-LOC", "I-LOC", "B-LOC", "O", "I-PER"],
    "iob2": ["O", "B-LOC", "I-LOC", "B-LOC", "O", "B-PER"],
    "iobes": ["O", "B-LOC", "E-LOC", "S-LOC", "O", "S-PER"],
}


def conlleval(sentences):
    """Counts of entities: gold, predicted, right; by the rules of the original script.

    It goes through a file once and looks at the tag before and the tag at hand only.

    Args:
        sentences: lists of (gold, predicted).
    """

    def split(tag):
        return (tag, "") if tag == "O" else (tag[0], tag[2:])

    def starts(before, before_kind, now, now_kind):
        if (before, now) in {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")}:
            return True
        return now != "O" and before_kind != now_kind

    def stops(before, before_kind, now, now_kind):
        if (before, now) in {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}:
            return True
        return before != "O" and before_kind != now_kind

    gold_count = predicted_count = right = 0
    for sentence in sentences:
        open_both = False
        gold_before, predicted_before = ("O", ""), ("O", "")
        for gold_tag, predicted_tag in [*sentence, ("O", "O")]:
            gold, predicted = split(gold_tag), split(predicted_tag)
            gold_stops = stops(*gold_before, *gold)
            predicted_stops = stops(*predicted_before, *predicted)
            if open_both:
                if gold_stops and predicted_stops:
                    right += 1
                    open_both = False
                elif gold_stops != predicted_stops or gold[1] != predicted[1]:
                    open_both = False
            gold_starts = starts(*gold_before, *gold)
            predicted_starts = starts(*predicted_before, *predicted)
            if gold_starts and predicted_starts and gold[1] == predicted[1]:
                open_both = True
            gold_count += gold_starts
            predicted_count += predicted_starts
            gold_before, predicted_before = gold, predicted
    return gold_count, predicted_count, right


# --- Entities ------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", tags.SCHEMES)
def test_a_scheme_is_read_written_and_found_out(scheme):
    marked = NEW_YORK_PARIS[scheme]
    found = [Entity("LOC", 1, 3), Entity("LOC", 3, 4), Entity("PER", 5, 6)]
    assert tags.entities(marked) == found
    assert tags.mark(found, 6, scheme) == marked
    assert tags.faults(marked, scheme) == []
    assert tags.detect([["O"], marked]) == scheme


def test_the_scheme_with_the_fewest_faults_is_taken():
    # One careless tag does not make a file of IOB2 one of IOB1, or the other way round.
    assert tags.detect([["B-A", "O", "B-A", "I-A"], ["O", "I-A"]]) == "iob2"
    assert tags.detect([["I-A", "O", "I-A", "I-A"], ["O", "B-A"]]) == "iob1"
    assert tags.detect([["O", "O"]]) == "iob2"
    assert tags.faults(["B-A", "O", "I-A", "I-B"], "iob2") == [2, 3]


@pytest.mark.parametrize(
    ("marked", "found"),
    [
        (["I-A", "I-B"], [("A", 0, 1), ("B", 1, 2)]),
        (["B-A", "I-B", "I-A"], [("A", 0, 1), ("B", 1, 2), ("A", 2, 3)]),
        (["E-A", "E-A", "I-A"], [("A", 0, 1), ("A", 1, 2), ("A", 2, 3)]),
        (["S-A", "I-A"], [("A", 0, 1), ("A", 1, 2)]),
        (["B", "I", "O", "I"], [("", 0, 2), ("", 3, 4)]),  # files with one type only
        (["B-a-b", "I-a-b"], [("a-b", 0, 2)]),
        ([], []),
    ],
)
def test_broken_tags_still_make_entities(marked, found):
    assert tags.entities(marked) == found


@given(st.integers(0, 2**32))
def test_entities_survive_every_scheme(seed):
    rng = random.Random(seed)
    found, place = [], 0
    while place < 12:
        length = rng.randint(1, 3)
        if rng.random() < 0.7:
            found.append(Entity(rng.choice(["A", "B"]), place, place + length))
        place += length
    for scheme in tags.SCHEMES:
        marked = tags.mark(found, place, scheme)
        assert tags.entities(marked) == found
        assert tags.faults(marked, scheme) == []


def random_tags(rng, length):
    """Any order of I, B and O: mostly broken."""
    return [rng.choice(["O", "I-A", "B-A", "I-B", "B-B"]) for _ in range(length)]


@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_those_of_conlleval(seed):
    rng = random.Random(seed)
    sentences = []
    for _ in range(rng.choice([1, 50])):
        gold = random_tags(rng, rng.randint(1, 12))
        predicted = [
            tag if rng.random() < 0.7 else rng.choice(["O", "I-A", "B-B"])
            for tag in gold
        ]
        sentences.append(list(zip(gold, predicted, strict=True)))
    gold_count, predicted_count, right = conlleval(sentences)
    gold, predicted = (
        {
            (number, *entity)
            for number, sentence in enumerate(sentences)
            for entity in tags.entities([pair[side] for pair in sentence])
        }
        for side in (0, 1)
    )
    assert (len(gold), len(predicted)) == (gold_count, predicted_count)
    assert len(gold & predicted) == right
    precision = right / predicted_count if predicted_count else 0.0
    recall = right / gold_count if gold_count else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    assert metrics.found(gold, predicted) == pytest.approx(
        {"precision": precision, "recall": recall, "f1": f1}
    )


def test_nothing_found_is_a_zero_and_no_warning():
    zeros = {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert metrics.found(set(), set()) == zeros
    assert metrics.found({1}, set()) == zeros
    assert metrics.found(set(), {1}) == zeros


# --- Files ---------------------------------------------------------------------------

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O
\t
German JJ B-NP I-MISC

-DOCSTART- -X- -X- O

Peter NNP B-NP I-PER
Blackburn NNP I-NP I-PER
"""


def parse(text, **columns):
    return tags.parse(text.split("\n"), "a.txt", tags.Columns(**columns))


def test_sentences_and_documents():
    assert parse(CONLL) == [
        (("EU", "rejects"), ("I-ORG", "O"), 3, 1, 0),
        (("German",), ("I-MISC",), 6, 1, 2),
        (("Peter", "Blackburn"), ("I-PER", "I-PER"), 10, 2, 0),
    ]


def test_columns_are_counted_from_both_ends():
    (sentence,) = parse("O\tx\ten:Rome\nB-LOC\ty\ten:", word=-1, tag=0, prefix="en:")
    assert sentence.words == ("Rome", "")
    assert sentence.tags == ("O", "B-LOC")
    (sentence,) = parse("Rome\nLondon\n", tag=None)
    assert sentence == (("Rome", "London"), None, 1, 0, 0)


def test_only_spaces_and_tabs_separate():
    (sentence,) = parse("10\u00a0000  O\r\n\x0b \t O\r\n\ufeff O\r\n\u2028\tO")
    assert sentence.words == ("10\u00a0000", "\x0b", "\ufeff", "\u2028")
    # What is left over where files were joined is no word.
    assert len(parse("a O\n\ufeff\nb O")) == 2


def test_predictions_stand_beside_their_words_line_for_line():
    lines = CONLL.replace("\n", "\r\n").replace("Peter ", "Peter\t").split("\n")
    added = {3: "B-ORG", 4: "O", 6: "B-MISC", 10: "B-PER", 11: "I-PER"}
    assert list(tags.with_column(lines, tags.Columns(), added)) == [
        "-DOCSTART- -X- -X- O O\r",
        "\r",
        "EU NNP B-NP I-ORG B-ORG\r",
        "rejects VBZ B-VP O O\r",
        "\t\r",
        "German JJ B-NP I-MISC B-MISC\r",
        "\r",
        "-DOCSTART- -X- -X- O O\r",
        "\r",
        "Peter\tNNP B-NP I-PER\tB-PER\r",
        "Blackburn NNP I-NP I-PER I-PER\r",
        "",
    ]


def test_documents_begin_wherever_the_word_stands():
    text = "0 -DOCSTART- O\n\n0 Rome B\n\n1 -DOCSTART- O\n\n0 Ohio B"
    assert [(s.words, s.document) for s in parse(text, word=1)] == [
        (("Rome",), 1),
        (("Ohio",), 2),
    ]
    prefixed = "en:-DOCSTART- O\n\nen:Rome B"
    assert [s.document for s in parse(prefixed, prefix="en:")] == [1]
    lines = tags.with_column(text.split("\n"), tags.Columns(word=1), {3: "B", 7: "O"})
    assert list(lines)[::2] == [
        "0 -DOCSTART- O O",
        "0 Rome B B",
        "1 -DOCSTART- O O",
        "0 Ohio B O",
    ]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", {}, "a.txt: contains no words"),
        ("-DOCSTART- O\n\n\t\n", {}, "a.txt: contains no words"),
        ("a O\n\nb x O", {}, "a.txt:3: 3 columns, but the first line has 2"),
        ("a", {}, r"a.txt:1: the column of the tag is that of the word \('a'\)"),
        ("a O", {"word": 1}, r"a.txt:1: the column of the tag is that of the word"),
        ("a O", {"word": 2}, "a.txt:1: 2 columns, but --word_column=2"),
        ("a O", {"tag": -3}, "a.txt:1: 2 columns, but --tag_column=-3"),
        ("a O\nb NNP", {}, "a.txt:2: 'NNP' is not a tag; tags are O outside of"),
        ("a B-", {}, "a.txt:1: 'B-' is not a tag"),
        ("a L-PER", {}, "a.txt:1: 'L-PER' is not a tag"),
        ("a o", {}, "a.txt:1: 'o' is not a tag"),
    ],
)
def test_a_bad_line_is_named(text, columns, message):
    with pytest.raises(UserError, match=message):
        parse(text, **columns)


# --- Rows ----------------------------------------------------------------------------


def windows(lengths, start, stop, capacity):
    edges = np.cumsum([0, *lengths])
    return list(tags.windows(edges, start, stop, capacity))


def test_a_sentence_that_fits_is_one_row_with_what_is_around_it():
    assert windows([1] * 5, 0, 5, 5) == [(0, 0, 5, 5)]
    # Four on either side, or more where the other side has less.
    assert windows([1] * 30, 10, 12, 10) == [(6, 10, 12, 16)]
    assert windows([1] * 30, 1, 3, 10) == [(0, 1, 3, 10)]
    assert windows([1] * 30, 28, 30, 10) == [(20, 28, 30, 30)]
    assert windows([1] * 4, 1, 3, 10) == [(0, 1, 3, 4)]
    # Words around it are whole or not there.
    assert windows([3, 1, 3], 1, 2, 4) == [(1, 1, 2, 2)]
    assert windows([3, 1, 3], 1, 2, 7) == [(0, 1, 2, 3)]


def test_a_longer_one_is_read_in_parts_with_context_on_both_sides():
    assert windows([1] * 12, 0, 12, 8) == [(0, 0, 4, 8), (2, 4, 8, 10), (4, 8, 12, 12)]
    # A word of more pieces than half a row is a part of its own.
    assert windows([8, 1, 1], 0, 3, 8) == [(0, 0, 1, 1), (1, 1, 3, 3)]


@given(st.data())
def test_every_word_is_asked_for_once_and_rows_hold_it(data):
    capacity = data.draw(st.integers(1, 9))
    lengths = data.draw(st.lists(st.integers(1, capacity), min_size=1, max_size=25))
    start = data.draw(st.integers(0, len(lengths) - 1))
    stop = data.draw(st.integers(start + 1, len(lengths)))
    asked = []
    for window in windows(lengths, start, stop, capacity):
        assert 0 <= window.start <= window.own_start
        assert window.own_stop <= window.stop <= len(lengths)
        assert sum(lengths[window.start : window.stop]) <= capacity
        asked += range(window.own_start, window.own_stop)
    assert asked == list(range(start, stop))
