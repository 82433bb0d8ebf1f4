"""Tasks as text: T5's inputs and targets, and its answers read back."""

import json
import types

import pytest

import tests
from training.backend import tf
from family.t5 import as_text, as_text_graph
from text.tasks import glue

CASES = [
    json.loads(line)
    for line in (tests.GOLDEN / "t5" / "task_formats.jsonl").read_text().splitlines()
]
NAMES = {wording.prefix: name for name, wording in as_text.GLUE.items()}
NAMES["mnli"] = "mnli"
# Those of the golden file, in the order of the columns of GLUE's files, and the label.
GIVEN = [
    ("He is here.", None, "1"),
    ("it works", None, "0"),
    ("A b.", "C d.", "1"),
    ("Why?", "How?", "0"),
    ("P one.", "H two.", "contradiction"),
    ("Q?", "S.", "entailment"),
    ("A.", "B.", "not_entailment"),
    ("A.", "B.", "1"),
    ("no label", "h", None),
]
NASTY = [
    ("", ""),
    (" ", "\t a\n\nb\u00a0c\x0bd"),
    ("Who's \\1?", "«Zürich»—“quoted”_x_ $5 (e.g.) 東京、大きい。 \u200b"),
    ("  two  spaces ", "ends?"),
]


def same(text):
    return text


@pytest.mark.parametrize("place", range(len(GIVEN)))
def test_glue_is_written_as_in_t5(place):
    case, (text_a, text_b, label) = CASES[place], GIVEN[place]
    name = NAMES[case["task"]]
    wording = as_text.GLUE[name]
    texts = as_text.features_of(name, text_a, text_b)
    assert wording.input(texts) == case["inputs"]
    assert wording.target(label) == case["targets"]
    assert wording.reader(same)(case["targets"]) == label


def test_scores_are_rounded_as_in_t5():
    wording = as_text.GLUE["sts-b"]
    cases = [case for case in CASES if case["task"] == "stsb"]
    texts = as_text.features_of("sts-b", "A.", "B.")
    assert {wording.input(texts)} == {case["inputs"] for case in cases}
    for case in cases:
        assert wording.target(case["label"]) == case["targets"]
        assert wording.reader(same)(case["targets"]) == float(case["targets"])


def test_questions_are_written_as_in_t5():
    for case in CASES[-2:]:
        texts = {name: case[name] for name in as_text.SQUAD.features}
        assert as_text.SQUAD.input(texts) == case["inputs"]
        assert as_text.SQUAD.target(case["answers"][0]) == case["targets"]
        found = as_text.answer_in_context(case["targets"], case["context"])
        assert found == case["answers"][0]


def test_every_task_of_glue_has_its_words():
    for name, data in glue.TASKS.items():
        wording = as_text.GLUE[name]
        assert tuple(sorted(wording.words)) == tuple(sorted(data.labels or ()))
        assert len(wording.features) == 1 + data.has_pairs
        assert sorted(wording.features) == list(wording.features)


def test_labels_are_in_the_order_of_the_release():
    """A model that was trained with it has no other word for what its outputs mean."""
    nli = ("contradiction", "entailment", "neutral")
    assert glue.TASKS["mnli"].labels == glue.TASKS["ax"].labels == nli
    assert glue.TASKS["mrpc"].labels == glue.TASKS["cola"].labels == ("0", "1")


def test_an_answer_counts_only_if_it_is_exactly_a_word():
    read = as_text.GLUE["mrpc"].reader(same)
    assert read("equivalent") == "1"
    assert read("Equivalent") is read("equivalent.") is read("") is None
    number = as_text.GLUE["sts-b"].reader(same)
    assert [number(text) for text in ("3.8", "3.81", "-2", "four", "nan", "")] == [
        3.8,
        3.81,
        -2.0,
        *[as_text.WRONG_NUMBER] * 3,
    ]


def test_words_are_compared_as_the_vocabulary_spells_them():
    def spell(text):  # as an uncased WordPiece vocabulary
        return text.replace("_", " _ ").replace(".", " . ")

    assert as_text.GLUE["mrpc"].reader(spell)("not _ equivalent") == "0"
    assert as_text.GLUE["sts-b"].reader(spell)("2 . 4") == 2.4


@pytest.mark.parametrize(
    ("answer", "context", "part"),
    [
        ("J . R . Ewing", "by J.R. Ewing, J. R. Ewing", "J.R. Ewing"),
        ("well - known", "a well-known\u00a0text", "well-known"),
        ("he re", "here he re", "he re"),  # spaces between letters are the text's own
        ("not there", "here", "not there"),
        ("", "here", ""),
        (" ? ", "is it?", "?"),
        ("it ' s", "What? It's, it's", "it's"),
        ("it ' s a", "İt: It's A", "It's A"),  # as an uncased vocabulary writes it
    ],
)
def test_an_answer_is_found_in_its_text_again(answer, context, part):
    assert as_text.answer_in_context(answer, context) == part


def test_a_graph_writes_the_same():
    for wording in (as_text.SQUAD, as_text.GLUE["mnli"], as_text.GLUE["cola"]):
        columns = dict(zip(wording.features, zip(*NASTY, strict=True), strict=False))
        found = as_text_graph.inputs(
            wording, {name: tf.constant(texts) for name, texts in columns.items()}
        )
        expected = [
            wording.input(dict(zip(wording.features, texts, strict=False)))
            for texts in NASTY
        ]
        assert [text.decode() for text in found.numpy()] == expected


def test_a_graph_makes_the_same_rows():
    kind = types.SimpleNamespace(end_id=1, pad_id=9)
    texts = [[5, 6, 7], [], [4] * 9, [3] * 3, [2] * 4]
    for most in (2, 4, 20):
        batch = as_text_graph.rows(kind, tf.ragged.constant(texts, tf.int32), most)
        batch = {name: values.numpy().tolist() for name, values in batch.items()}
        expected = [as_text.row(kind, ids, most)[0] for ids in texts]
        longest = max(map(len, expected))
        assert batch["input_ids"] == [e + [9] * (longest - len(e)) for e in expected]
        sizes = [sum(mask) for mask in batch["input_mask"]]
        assert sizes == list(map(len, expected))
        assert not any(map(any, batch["segment_ids"]))
    assert as_text.row(kind, [5, 6], 3) == ([5, 6, 1], False)
    assert as_text.row(kind, [5, 6], 2) == ([5, 1], True)
    nothing = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), [])
    assert as_text_graph.rows(kind, nothing, 4)["input_ids"].shape[0] == 0
