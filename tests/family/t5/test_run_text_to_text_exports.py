"""run_text_to_text.py: a SavedModel writes as Python does, whatever it is asked."""

import dataclasses
import json

import pytest

import tests
from family.t5.task import TextToTextExample
from family.t5.tokenizer import FAMILY
from tests import served
from tests.family.t5 import runs as text_to_text
from tests.family.t5.runs import TINY, make_task
from text.tokenizers.learning import sentencepiece_learning

GOLDEN = tests.GOLDEN / "squad"


class Exported(served.Exported):
    """A model with random weights and T5's kind of vocabulary, in both forms."""

    def __init__(self, folder):
        text_to_text.write_files(folder)
        content = sentencepiece_learning.learn(
            iter((GOLDEN / "v1_dev.json").read_text("utf-8").split(",")),
            FAMILY.symbols,
            vocab_size=200,
            character_coverage=0.999,
            input_sentence_size=1000,
        )
        (folder / "spiece.model").write_bytes(content)
        task = make_task(
            folder,
            task_name="squad",
            data_dir=str(GOLDEN),
            dev_file="v1_dev.json",
            vocab_file=str(folder / "spiece.model"),
            max_seq_length=40,
        )
        # More rows than tokens, as the released models have; some will be written.
        size = len(task.tokenizer.vocabulary) + 28
        config = dataclasses.replace(TINY, vocab_size=size, eos_token_id=1)
        objective = task.objective().for_evaluation
        objective.check(config)
        model = objective.network(config, seed=3)
        super().__init__(task, model, folder, "dev")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return Exported(tmp_path_factory.mktemp("text"))


def test_a_saved_model_writes_as_the_script(exported):
    examples = [*exported.task.read("dev")[:60], *exported.task.samples()]
    expected = exported.in_python(examples)
    assert len({answer["predicted"] for answer in expected}) > 10
    assert exported.answers(examples) == expected
    # Whatever the batch.
    assert exported.answers(examples[:1]) == expected[:1]
    assert exported.answers(examples[30:37]) == expected[30:37]
    assert exported.answers([]) == []


def test_a_saved_model_has_an_answer_to_everything(exported):
    huge = "a" * 100_000, "b. " * 30_000
    pairs = [("", ""), huge, ("\0", "<extra_id_0> \u00a0 \ufffd"), ("a\x0bb", " ")]
    names = exported.task.wording.features
    examples = [
        TextToTextExample(dict(zip(names, pair, strict=True)), None, "")
        for pair in pairs
    ]
    expected = exported.in_python(examples)
    assert exported.answers(examples) == expected
    (odd,) = exported.served.answers([{"question": b"\xff", "context": b"caf\xe9"}])
    same = {"question": "\ufffd", "context": "caf\ufffd"}
    assert [odd] == exported.in_python([TextToTextExample(same, None, "")])
    assert json.dumps(odd)
