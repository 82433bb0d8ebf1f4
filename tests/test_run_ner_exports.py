"""run_ner.py: a tagger as a SavedModel answers as Python does, whatever it is asked."""

import dataclasses
import json
import pathlib

import pytest

import run_ner
import tests
from tests import served
from tests.ner import DEEP, TINY, flags
from text.tasks import tags

pytestmark = pytest.mark.exhaustive
GOLDEN = tests.GOLDEN / "squad"


def real_sentences():
    """Lines of a file: paragraphs of encyclopedia text, each a document."""
    contents = (
        json.loads((GOLDEN / f"{version}_dev.json").read_text("utf-8"))
        for version in ("v1", "v2")
    )
    paragraphs = dict.fromkeys(
        paragraph["context"]
        for content in contents
        for article in content["data"]
        for paragraph in article["paragraphs"]
    )
    for paragraph in paragraphs:
        yield "-DOCSTART-\n\n"
        yield paragraph.replace(". ", " .\n\n").replace(" ", "\n") + "\n\n"


class Exported(served.Exported):
    """A tagger with random weights, in Python and as a SavedModel."""

    def __init__(self, folder, config=TINY, **changes):
        changes = {
            "vocab_file": str(GOLDEN / "uncased_vocab.txt"),
            "do_lower_case": True,
            "entity_types": ["LOC", "PER"],
            "test_file": "real.txt",
            "max_seq_length": 32,
        } | changes
        folder = pathlib.Path(folder)
        (folder / "real.txt").write_text("".join(real_sentences()))
        config = dataclasses.replace(config, vocab_size=30522, initializer_range=0.5)
        (folder / "config.json").write_text(config.to_json_string())
        given = run_ner.Options(**flags(folder, do_predict=True, **changes))
        # LSTMs take time: what they are asked need not be as much.
        self.size = 40 if given.features else 200
        task = run_ner.Tagger(given, run_ner.TrainableModel(given).tokenizer)
        model = task.objective().network(config, seed=3)
        super().__init__(task, model, folder)


def check_same(answers, expected):
    assert len(answers) == len(expected) > 0
    for answer, other in zip(answers, expected, strict=True):
        assert answer["tags"] == other["tags"]
        assert answer["entities"] == other["entities"]
        assert answer["probabilities"] == pytest.approx(
            other["probabilities"], abs=1e-5
        )


KINDS = {
    "context": {"document_context": True, "tag_scheme": "iob1"},
    "frozen": {"config": DEEP, "features": "concat_last_four", "lstm_size": 5},
}


@pytest.fixture(scope="module", params=KINDS)
def exported(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp(request.param)
    return Exported(folder, **KINDS[request.param])


def test_a_saved_model_answers_as_the_script(exported):
    examples = exported.task.read("test")[: exported.size]
    assert len(examples) == exported.size
    expected = exported.in_python(examples)
    check_same(exported.answers(examples), expected)
    kinds = {entity["type"] for answer in expected for entity in answer["entities"]}
    assert kinds == {"LOC", "PER"}
    # Whatever the batch.
    check_same(exported.answers(examples[:1]), expected[:1])
    check_same(exported.answers(examples[30:37]), expected[30:37])
    samples = exported.task.samples()
    check_same(exported.answers(samples), exported.in_python(samples))


def test_sentences_of_one_request_are_a_document(exported):
    examples = exported.task.read("test")
    examples = [each for each in examples if each.document == examples[0].document]
    words, tags_, entities = [], [], []
    for example, answer in zip(examples, exported.in_python(examples), strict=True):
        for entity in answer["entities"]:
            place = {name: entity[name] + len(words) for name in ("start", "stop")}
            entities.append(entity | place)
        words += [*example.words, ""]
        tags_ += [*answer["tags"], ""]
    request = {name: "" for name in exported.task.inputs} | {"words": words}
    (answer,) = exported.served.answers([request])
    assert len(examples) > 1
    assert answer["tags"] == tags_
    assert answer["entities"] == entities


def test_a_saved_model_has_an_answer_to_everything(exported):
    def ask(*lists):
        others = {name: "" for name in exported.task.inputs}
        return exported.served.answers([others | {"words": each} for each in lists])

    nothing = {"tags": [], "probabilities": [], "entities": []}
    assert ask() == []
    assert ask([]) == [nothing]
    assert ask([], []) == [nothing, nothing]
    (answer,) = ask(["", "", ""])
    assert answer == {"tags": [""] * 3, "probabilities": [0.0] * 3, "entities": []}
    huge = ["a" * 1_000_000, "a." * 500_000, "x"]
    odd = [b"\xff\xfe", b"caf\xe9", "\x00", " ", "\u3000"]
    (*plain, odd_answer), alone = ask(huge, ["London"], odd), ask(["London"])
    check_same(plain[1:], alone)
    assert all(tags.is_tag(tag) for tag in (*plain[0]["tags"], *odd_answer["tags"]))
    assert odd_answer["tags"] == ask(["\ufffd", "caf\ufffd", *"\u200b" * 3])[0]["tags"]
    many = ["London"] * 150 * exported.size
    (answer,) = ask(many)
    assert len(answer["tags"]) == len(many)
