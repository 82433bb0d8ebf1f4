"""Scores of tags against values by hand, and sentences on the page of mistakes."""

import collections

import numpy as np
import pytest

from errors import UserError
from serving import forms
from text.tasks import tags
from text.tasks.tag_files import Sentence
from training.finetuning.entities import Entities, klue_scores
from training.finetuning.plain_tags import PlainTags


def sentence(words, marks=None, line=1):
    marks = None if marks is None else tuple(marks.split())
    return Sentence(tuple(words), marks, range(line, line + len(words)), 0, 0)


def sure_of(scheme, marks):
    """Logits of a model that is sure of these tags."""
    numbers = [scheme.labels.index(mark) for mark in marks.split()]
    return np.eye(len(scheme.labels))[numbers] * 20.0


def plain(*sentences):
    scheme = PlainTags(collections.Counter())
    scheme.read(list(sentences), "train.txt", "train")
    return scheme


# --- Plain tags ----------------------------------------------------------------------


def test_plain_scores_are_those_by_hand():
    train = sentence("abc", "N V ,")
    dev = [sentence("abcd", "N N V X", 1), sentence("e", "N", 6)]
    scheme = plain(train)
    assert scheme.labels == [",", "N", "V"]
    scheme.read(dev, "dev.txt", "dev")
    logits = [sure_of(scheme, "N V V N"), sure_of(scheme, "N")]
    # N: 2 right of 3 predicted and 3 true; V: 1 of 2 and 1; X: none. The tag , is nowhere.
    macro = (2 / 3 + 2 / 3 + 0) / 3
    assert scheme.score(dev, logits) == pytest.approx(
        {"accuracy": 3 / 5, "f1_macro": macro}
    )
    assert scheme.trivial_score(dev) == 3 / 5
    ids, weights = scheme.encode(dev[0].tags, "dev")
    assert ids[:3].tolist() == [1, 1, 2]
    assert weights.tolist() == [1, 1, 1, 0]  # the loss of a tag without a class
    message = "word(s) have a tag that was not learned, the first in dev.txt:4"
    ((what, number),) = (
        item for item in scheme.counts.items() if item[0].startswith(message)
    )
    assert number == 1 and "mistakes" in what


def test_spaces_are_read_and_not_scored():
    train = sentence("a b", "N S V")
    scheme = plain(train)
    assert scheme.is_by_character and scheme.state()["characters"]
    assert scheme.score([train], [sure_of(scheme, "N N N")]) == pytest.approx(
        {"accuracy": 1 / 2, "f1_macro": (2 / 3 + 0) / 2}
    )
    (judgement,) = scheme.judge(train, sure_of(scheme, "N N N"))
    assert judgement.pairs == [("N", "N"), ("V", "N")]
    assert judgement.text == "a [b]"


def test_a_sentence_is_judged_as_a_whole():
    one = sentence(["time", "flies", "fast"], "N V ADV")
    scheme = plain(one)
    logits = np.log([[0.1, 0.8, 0.1], [0.1, 0.7, 0.2], [0.5, 0.25, 0.25]])
    (judgement,) = scheme.judge(one, logits)
    assert scheme.labels == ["ADV", "N", "V"]
    assert judgement.text == "time [flies] fast"
    assert (judgement.gold, judgement.predicted) == ("flies/V", "flies/N")
    assert judgement.error == pytest.approx(-np.log([0.8, 0.2, 0.5]).mean())
    assert judgement.pairs == [("N", "N"), ("V", "N"), ("ADV", "ADV")]
    long = sentence([f"w{i}" for i in range(100)], "N " * 100)
    marks = ["N"] * 100
    marks[50] = marks[52] = "V"
    (judgement,) = scheme.judge(long, sure_of(scheme, " ".join(marks)))
    shown = judgement.text.split()
    assert shown[0] == shown[-1] == "…" and len(shown) == 15
    assert shown[6:9] == ["[w50]", "w51", "[w52]"]


def test_a_set_of_other_tags_is_refused():
    scheme = plain(sentence("ab", "N V"))
    with pytest.raises(UserError, match="dev.txt:3: neither 'B-X' nor any other tag"):
        scheme.read([sentence("ab", "B-X O", 3)], "dev.txt", "dev")


# --- Entities of characters ----------------------------------------------------------


def test_strict_entities_begin_with_b():
    marks = "I-A B-A I-A I-B B-B B-B I-B O I-B".split()
    assert tags.strict_entities(marks) == [("A", 1, 3), ("B", 4, 5), ("B", 5, 7)]
    assert tags.strict_entities(["B", "I", "O", "I"]) == [("", 0, 2)]


def test_scores_of_klue_are_those_by_hand():
    gold = ["B-PS I-PS O B-LC".split(), "I-LC O".split()]
    predicted = ["B-PS I-PS O B-PS".split(), "B-LC O".split()]
    # PS: one right of two predicted and one true. LC: I-LC alone is no entity, so one true
    # and one predicted are apart.
    entity = ((2 * 1 / 3) + 0) / 2
    # O 1, B-PS 2/3, I-PS 1, B-LC and I-LC 0.
    character = (1 + 2 / 3 + 1 + 0 + 0) / 5
    labels = tags.labels_of(["LC", "PS"])
    assert klue_scores(gold, predicted, labels) == pytest.approx(
        {"f1_macro": entity, "character_f1_macro": character}
    )
    more = tags.labels_of(["DT", "LC", "PS"])  # a label that is nowhere counts as right
    assert klue_scores(gold, predicted, more)["character_f1_macro"] == pytest.approx(
        (1 + 2 / 3 + 1 + 0 + 0 + 1 + 1) / 7
    )


def test_a_space_alone_is_not_an_entity():
    scheme = Entities(collections.Counter(), ["PS"])
    answer = scheme.answer(tuple("김 구 "), sure_of(scheme, "B-PS O B-PS B-PS"))
    assert [entity["start"] for entity in answer["entities"]] == [0, 2]
    (exported,) = forms.answers(
        "tags",
        {
            "tags": np.array([[b"B-PS", b"O", b"B-PS", b"B-PS"]]),
            "probabilities": np.ones((1, 4)),
            "entities": np.array([["김".encode(), "구".encode(), b" "]]),
            "entity_types": np.array([[b"PS"] * 3]),
            "entity_starts": np.array([[0, 2, 3]]),
            "entity_stops": np.array([[1, 3, 4]]),
        },
        [{"words": list("김 구 ")}],
    )
    assert exported["entities"] == answer["entities"]


@pytest.mark.parametrize("scheme", tags.SCHEMES)
@pytest.mark.parametrize(
    "predicted",
    ["O B-QT I-QT O O", "B-QT I-QT O O B-QT", "O O B-QT O O", "O O O O I-QT"],
)
def test_scores_of_characters_are_those_of_the_written_tags(scheme, predicted):
    """Where an entity begins with a space, the answer has its next character inside."""
    train = sentence("근 2 1", "O B-QT I-QT O B-QT")
    marks = tags.mark(tags.entities(train.tags), 5, scheme)
    train = train._replace(tags=tuple(marks))
    entities = Entities(collections.Counter(), scheme=scheme)
    entities.read([train], "train.txt", "train")
    logits = sure_of(entities, predicted)
    scores = entities.score([train], [logits])
    pairs = list(
        zip(train.tags, entities.answer(train.words, logits)["tags"], strict=True)
    )
    written = [pairs[place] for place in (0, 2, 4)]
    assert scores["accuracy"] == pytest.approx(np.mean([a == b for a, b in written]))
    gold, answer = (
        tags.mark(tags.entities(x), 5, "iob2") for x in zip(*pairs, strict=True)
    )
    assert scores["character_f1_macro"] == pytest.approx(
        klue_scores([gold[::2]], [answer[::2]], entities.labels)["character_f1_macro"]
    )


def test_a_broken_tag_is_scored_as_it_is_in_the_file():
    """As by conlleval: the entity is right, and its first tag is not."""
    train = sentence("abc", "B-X I-X O")
    scheme = Entities(collections.Counter())
    scheme.read([train], "train.txt", "train")
    dev = [train, sentence("abc", "O I-X I-X", 5), train]
    read = scheme.read(dev, "dev.txt", "dev")
    logits = [sure_of(scheme, " ".join(one.tags)) for one in dev]
    scores = scheme.score(read, logits)
    assert (scores["f1"], scores["accuracy"]) == (1, pytest.approx(8 / 9))
    scheme.encode(dev[1].tags, "dev")
    message = "tag(s) break the rules of iob2, the first in dev.txt:6"
    assert [n for what, n in scheme.counts.items() if what.startswith(message)] == [1]
    # A file of another scheme says the same in other tags.
    dev = [sentence("abc", "I-X I-X O"), sentence("abc", "O I-X B-X", 5)]
    read = scheme.read(dev, "dev.txt", "dev")
    logits = [sure_of(scheme, "B-X I-X O"), sure_of(scheme, "O B-X B-X")]
    assert scheme.score(read, logits)["accuracy"] == 1


def test_spaces_of_entities_are_left_out():
    train = sentence("김 구 1 ", "B-PS I-PS I-PS O B-QT O")
    scheme = Entities(collections.Counter())
    assert scheme.metric == "f1"
    scheme.read([train], "train.txt", "train")
    assert scheme.metric == "f1_macro"
    found = scheme.score([train], [sure_of(scheme, "B-PS O I-PS I-PS B-QT O")])
    # Without spaces B-PS I-PS B-QT is true, and predicted B-PS B-PS B-QT: the tags of an
    # answer are whole entities.
    assert found["f1"] == pytest.approx(2 * 1 / (2 + 3))
    assert found["f1_macro"] == pytest.approx((0 + 1) / 2)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["character_f1_macro"] == pytest.approx((1 + 2 / 3 + 0 + 1 + 1) / 5)
    answer = scheme.answer(train.words, sure_of(scheme, "B-PS I-PS I-PS O B-QT O"))
    assert [entity["text"] for entity in answer["entities"]] == ["김 구", "1"]
