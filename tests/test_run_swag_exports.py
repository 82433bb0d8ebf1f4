"""run_swag.py: a SavedModel answers as Python does, whatever it is asked."""

import dataclasses
import json

import pytest

import run_swag
import tests
from tests import served
from tests.swag import TINY, check_same, flags, write_json_lines

pytestmark = pytest.mark.exhaustive
GOLDEN = tests.GOLDEN / "squad"


def real_questions():
    """Yields questions about encyclopedia text; to choose from: all answers around."""
    for version in ("v1", "v2"):
        content = json.loads((GOLDEN / f"{version}_dev.json").read_text("utf-8"))
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                questions = paragraph["qas"]
                answers = {a["text"]: 0 for each in questions for a in each["answers"]}
                if len(answers) > 1:
                    for each in questions:
                        yield {
                            "context": f" {paragraph['context']}\n",
                            "start": each["question"],
                            "choices": list(answers)[:7],
                        }


class Exported(served.Exported):
    """A model with random weights, in Python and as a SavedModel."""

    def __init__(self, folder):
        write_json_lines(folder / "real.jsonl", *real_questions())
        changes = {
            "vocab_file": str(GOLDEN / "uncased_vocab.txt"),
            "test_file": "real.jsonl",
            "do_predict": True,
            "max_seq_length": 40,
        }
        config = dataclasses.replace(TINY, vocab_size=30522, initializer_range=0.3)
        (folder / "config.json").write_text(config.to_json_string())
        given = run_swag.Options(**flags(folder, **changes))
        task = run_swag.MultipleChoice(given, run_swag.TrainableModel(given).tokenizer)
        model = task.objective().network(config, seed=3)
        super().__init__(task, model, folder)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return Exported(tmp_path_factory.mktemp("swag"))


def test_a_saved_model_answers_as_the_script(exported):
    examples = exported.task.read("test")[:200]
    assert len(examples) == 200
    assert {len(example.choices) for example in examples} == set(range(2, 8))
    expected = exported.in_python(examples)
    assert len({answer["predicted"] for answer in expected}) > 3
    check_same(exported.answers(examples), expected)
    # Whatever the batch.
    check_same(exported.answers(examples[:1]), expected[:1])
    check_same(exported.answers(examples[30:37]), expected[30:37])
    samples = exported.task.samples()
    check_same(exported.answers(samples), exported.in_python(samples))


def ask(exported, context, start, *lists):
    return exported.served.answers(
        [{"context": context, "start": start, "choices": each} for each in lists]
    )


def test_a_saved_model_has_an_answer_to_everything(exported):
    assert ask(exported, "", "") == []
    nothing = {"predicted": 0, "probabilities": []}
    assert ask(exported, "a", "b", []) == [nothing]
    assert ask(exported, "a", "b", [], ["", ""]) == [
        nothing,
        {"predicted": 0, "probabilities": [0.0, 0.0]},
    ]
    assert ask(exported, "a", "", ["b"])[0] == {"predicted": 0, "probabilities": [1.0]}
    huge = "a" * 1_000_000, "b. " * 300_000
    (answer,) = ask(exported, *huge, [*huge, "c"])
    assert sum(answer["probabilities"]) == pytest.approx(1.0)
    odd = ask(exported, b"\xff caf\xe9", b"\xc3", [b"\xff\xfe", "\0", " a"])
    check_same(odd, ask(exported, "caf\ufffd", "", ["\ufffd", "\u200b", "a "]))


def test_padding_counts_for_nothing_and_an_empty_choice_for_itself(exported):
    context, start = "The cat sat.", "Then it"
    plain, padded, empty = ask(
        exported,
        context,
        start,
        ["slept.", "flew away."],
        ["slept.", "flew away.", "", ""],
        ["slept.", "", "flew away."],
    )
    assert padded["probabilities"] == pytest.approx([*plain["probabilities"], 0, 0])
    slept, nothing, flew = empty["probabilities"]
    assert nothing > 0
    assert slept / flew == pytest.approx(
        plain["probabilities"][0] / plain["probabilities"][1], rel=1e-4
    )
