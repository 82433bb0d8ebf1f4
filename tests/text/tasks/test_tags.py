"""Tag schemes: entities in tags, and tags for entities."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import metrics
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
    assert metrics.precision_recall_f1(gold, predicted) == pytest.approx(
        {"precision": precision, "recall": recall, "f1": f1}
    )


def test_nothing_found_is_a_zero_and_no_warning():
    zeros = {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert metrics.precision_recall_f1(set(), set()) == zeros
    assert metrics.precision_recall_f1({1}, set()) == zeros
    assert metrics.precision_recall_f1(set(), {1}) == zeros
