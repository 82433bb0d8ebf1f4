"""Exact match and F1 as SQuAD's scripts count them, and the best thresholds."""

import gzip
import json
import re

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

import tests
from training.finetuning import squad_metrics

GOLDEN = tests.GOLDEN / "squad"


@pytest.mark.parametrize(
    "text, normalized",
    [
        ("The Cat", "cat"),
        ("a cat, an ape & the  dog.", "cat ape dog"),
        ("theory of another", "theory of another"),
        ("O'Neill's 3.5 %", "oneills 35"),
        ("semi-final", "semifinal"),
        ("the-cat", "thecat"),  # punctuation goes before articles
        ("\u201cquoted\u201d \u2013 dash", "\u201cquoted\u201d \u2013 dash"),
        ("\u00c9TUDE\u00a0a\tb", "\u00e9tude b"),
        ("\ud55c\uad6d\uc5b4\ub294 the \ub9d0.", "\ud55c\uad6d\uc5b4\ub294 \ub9d0"),
        ("The", ""),
        (" ?! ", ""),
    ],
)
def test_normalized(text, normalized):
    assert squad_metrics.normalize(text) == normalized


@pytest.mark.parametrize(
    "references, answer, exact, f1",
    [
        (["Denver Broncos"], "the Denver Broncos.", 1, 1),
        # Two words of three right, two of two found: 2 * 2 / (3 + 2).
        (["Denver Broncos"], "Denver Broncos team", 0, 0.8),
        # Each word counts as often as both have it: 2 * 1 / (2 + 3).
        (["no no no"], "no yes", 0, 0.4),
        (["no no no"], "no no", 0, 0.8),
        # The best reference counts, for each of both.
        (["red", "red green blue", "red green"], "green red", 0, 1),
        (["blue", "blue"], "red", 0, 0),
        (["\ud55c\uad6d \uc0ac\ub78c"], "\ud55c\uad6d", 0, 2 / 3),
        (["\ud55c\uad6d"], "\ud55c\uad6d\uc740", 0, 0),
        (["red"], "", 0, 0),
        (["red"], None, 0, 0),
    ],
)
@pytest.mark.parametrize("version_2", [False, True])
def test_an_answer_is_compared(references, answer, exact, f1, version_2):
    found = squad_metrics.score([references], [answer], version_2=version_2)
    assert [values.tolist() for values in found] == [[exact], [pytest.approx(f1)]]


@pytest.mark.parametrize(
    "references, answer, of_1, of_2",
    [
        (["the"], "a", (1, 0), (1, 1)),  # both are empty when normalized
        ([], "", (0, 0), (1, 1)),
        ([], "red", (0, 0), (0, 0)),
        (["the", "red"], "", (1, 0), (0, 0)),  # 2.0 leaves out references without text
        (["the", "red"], "red", (1, 1), (1, 1)),
    ],
)
def test_versions_differ_where_nothing_is_left(references, answer, of_1, of_2):
    for version_2, expected in ((False, of_1), (True, of_2)):
        exact, f1 = squad_metrics.score([references], [answer], version_2=version_2)
        assert (exact[0], f1[0]) == expected


def test_answers_in_korquad_score_as_by_its_script():
    with gzip.open(GOLDEN / "korquad_answers.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = list(map(json.loads, file))
    found = squad_metrics.score(
        [row["answers"] for row in rows],
        [row["prediction"] for row in rows],
        by=squad_metrics.ANSWER_SCORES["characters"],
    )
    expected = [[row[name] for row in rows] for name in ("exact_match", "f1")]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    "references, answer, exact, rouge_w",
    [
        (
            ["서울 특별시"],
            "서울특별시",
            0,
            2 * 3 / 11,
        ),  # spaces count, "특별시" is common
        (["abcd"], "xbcd.", 0, 2 * 3 / 8),  # punctuation does not
        (["abcXde"], "abcYde", 0, 2 * 3 / 12),  # one run alone
        (
            ["《서울》"],
            "서울",
            0,
            2 * 2 / 6,
        ),  # marks do: the script's pattern never matches
        ([], "", 1, 1),
        ([], "서울", 0, 0),
        (["?", "서울"], "", 1, 1),  # a reference without text counts
    ],
)
def test_answers_in_klue_mrc_score_as_by_its_script(references, answer, exact, rouge_w):
    by = squad_metrics.ANSWER_SCORES["rouge_w"]
    found = squad_metrics.score([references], [answer], version_2=True, by=by)
    assert [values.tolist() for values in found] == [[exact], [pytest.approx(rouge_w)]]


def test_a_set_is_scored():
    references = [["red"], ["green blue"], ["cat"]]
    assert squad_metrics.evaluate(references, ["Red", "green", None]) == {
        "exact": pytest.approx(100 / 3),
        "f1": pytest.approx(100 * (1 + 2 / 3) / 3),
        "total": 3,
        "missing": 1,
    }


def test_a_set_with_questions_without_answer_is_scored():
    references = [["red"], ["green blue"], [], ["the"], ["cat"]]
    found = squad_metrics.evaluate(
        references,
        ["red", "", "", "dog", "cat"],
        version_2=True,
        texts=["red", "green", "dog", "dog", "cat"],
        null_odds=[-2.0, 0.5, 1.0, -1.0, -3.0],
    )
    assert found == {
        "exact": 60.0,
        "f1": 60.0,
        "total": 5,
        "HasAns_exact": 50.0,
        "HasAns_f1": 50.0,
        "HasAns_total": 4,
        "NoAns_exact": 100.0,
        "NoAns_f1": 100.0,
        "NoAns_total": 1,
        # Answering the first and the last is best; the second, half right, would come
        # only behind the fourth, where "" is right, as its reference is an article.
        "best_exact": 80.0,
        "best_exact_thresh": -2.0,
        "best_f1": 80.0,
        "best_f1_thresh": -2.0,
    }


def test_an_empty_set_has_no_score():
    assert squad_metrics.evaluate([], []) == {"exact": 0.0, "f1": 0.0, "total": 0}
    found = squad_metrics.evaluate([], [], version_2=True, texts=[], null_odds=[])
    assert (found["total"], found["best_f1"], found["best_f1_thresh"]) == (0, 0, 0)


def test_a_set_may_lack_one_kind_of_question():
    assert "NoAns_total" not in squad_metrics.evaluate([["a b"]], ["b"], version_2=True)
    assert "HasAns_total" not in squad_metrics.evaluate([[]], ["b"], version_2=True)


# --- Thresholds ----------------------------------------------------------------------


def test_never_to_answer_may_be_best():
    found = squad_metrics.best_threshold(np.zeros(3), np.ones(3), [5.0, -7.0, 2.0])
    assert found == (100.0, -8.0)


def test_always_to_answer_may_be_best():
    found = squad_metrics.best_threshold(np.ones(3), np.zeros(3), [5.0, -7.0, 2.0])
    assert found == (100.0, 5.0)


def test_equal_odds_are_not_divided():
    """Between the two of 1.0 the score would be 100, but no threshold is there."""
    found = squad_metrics.best_threshold([1.0, 0.0, 0.0], [0, 1, 1], [1.0, 1.0, 3.0])
    assert found == (pytest.approx(200 / 3), 0.0)


few = strategies.integers(-3, 3).map(float)


@hypothesis.given(
    strategies.lists(
        strategies.tuples(
            strategies.sampled_from([0.0, 0.5, 1.0]), strategies.booleans(), few
        ),
        min_size=1,
    )
)
def test_a_threshold_gives_its_score_and_no_other_gives_more(questions):
    scores, null_scores, odds = np.array(questions, np.float64).T

    def at(threshold):
        return 100 * np.where(odds > threshold, null_scores, scores).mean()

    best, threshold = squad_metrics.best_threshold(scores, null_scores, odds)
    assert at(threshold) == pytest.approx(best)
    tried = [at(candidate) for candidate in np.arange(-5, 5, 0.5)]
    assert max(tried) == pytest.approx(best)


# --- Against the rules, written down once more ---------------------------------------


def plain_words(text):
    text = "".join(
        c for c in text.lower() if c not in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    )
    return [w for w in re.sub(r"\b(?:a|an|the)\b", " ", text).split() if w]


def plain_f1(answer, reference, version_2):
    answer, reference = plain_words(answer), plain_words(reference)
    if version_2 and not (answer and reference):
        return float(answer == reference)
    left = list(reference)
    same = 0
    for word in answer:
        if word in left:
            left.remove(word)
            same += 1
    if not same:
        return 0.0
    precision, recall = same / len(answer), same / len(reference)
    return 2 * precision * recall / (precision + recall)


def plain_scores(references, answer, version_2):
    if version_2:
        references = [r for r in references if plain_words(r)] or [""]
    exact = max(plain_words(answer) == plain_words(r) for r in references)
    return float(exact), max(plain_f1(answer, r, version_2) for r in references)


def plain_best(scores, texts, odds, has_answer):
    """From no answer at all, each question in turn, the surest text first."""
    now = best = sum(not known for known in has_answer)
    for i in sorted(range(len(odds)), key=odds.__getitem__):
        now += scores[i] if has_answer[i] else -1.0 if texts[i] else 0.0
        best = max(best, now)
    return 100 * best / len(odds)


sayings = strategies.lists(
    strategies.sampled_from(
        "the a red Red green, . - \u00e9 \ud55c\uad6d a.".split(" ")
    ),
    max_size=5,
).map(" ".join)


@hypothesis.given(strategies.lists(sayings, min_size=1), sayings, strategies.booleans())
def test_scores_are_those_of_the_rules(references, answer, version_2):
    exact, f1 = squad_metrics.score([references], [answer], version_2=version_2)
    expected = plain_scores(references, answer, version_2)
    assert (exact[0], f1[0]) == pytest.approx(expected)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_release_s_answers_have_the_scores_of_the_rules(version):
    version_2 = version == "v2"
    data = json.loads((GOLDEN / f"{version}_dev.json").read_text("utf-8"))["data"]
    paragraphs = [p for article in data for p in article["paragraphs"]]
    questions = {q["id"]: q["answers"] for p in paragraphs for q in p["qas"]}
    given = json.loads((GOLDEN / f"{version}_predictions.json").read_text("utf-8"))
    with gzip.open(GOLDEN / f"{version}_nbest_predictions.json.gz") as file:
        lists = json.load(file)
    texts = [next(e["text"] for e in lists[id] if e["text"]) for id in questions]
    odds = None
    if version_2:
        by_id = json.loads((GOLDEN / "v2_null_odds.json").read_text("utf-8"))
        odds = [by_id[id] for id in questions]
    # The logits are random, so some answers are set right.
    references = [
        [answer["text"] for answer in answers] for answers in questions.values()
    ]
    for place in range(0, len(references), 3):
        if references[place] and plain_words(texts[place]):
            references[place] = [texts[place].upper()]
    found = squad_metrics.evaluate(
        references,
        [given[id] for id in questions],
        version_2=version_2,
        texts=texts,
        null_odds=odds,
    )
    expected = np.array(
        [
            plain_scores(r, given[id], version_2)
            for r, id in zip(references, questions, strict=True)
        ]
    )
    assert [found["exact"], found["f1"]] == pytest.approx(100 * expected.mean(axis=0))
    assert 20 < found["exact"] < found["f1"] < 60
    if version_2:
        has_answer = [bool(named) for named in references]
        assert found["HasAns_f1"] == pytest.approx(100 * expected[has_answer, 1].mean())
        pairs = [
            plain_scores(r, t, True) for r, t in zip(references, texts, strict=True)
        ]
        exact, f1 = zip(*pairs, strict=True)
        assert found["best_exact"] == plain_best(exact, texts, odds, has_answer)
        assert found["best_f1"] == pytest.approx(
            plain_best(f1, texts, odds, has_answer)
        )
        assert found["best_exact"] >= found["exact"]
