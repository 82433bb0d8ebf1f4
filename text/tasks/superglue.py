"""Lists tasks of SuperGLUE with their files, labels and scores, as glue.py does GLUE's.

Their files are JSON lines. COPA has two texts to choose from: run_swag.py reads it. ReCoRD
(an entity for a gap) and WSC (whether two spans of a text mean the same) mark places in
their texts, which a class for a whole text does not see, so they are not here.

A word of WiC stands before its first sentence, and a question of MultiRC before an answer.
How the task's own baseline marks them is not part of the data.

Source: arXiv:1905.00537; files as in v2 of super.gluebenchmark.com.
"""

from collections.abc import Iterator, Mapping

from text.tasks.glue import NLI_LABELS, DataSet, Table


def _data_set(labels, scores, text_a, text_b, rows=None) -> DataSet:
    train, dev, test = (
        Table(f"{split}.jsonl", text_a, text_b, "label", rows=rows)
        for split in ("train", "val", "test")
    )
    return DataSet(train, {"dev": dev}, {"test": test}, labels, scores, {})


def _with_words(values: Mapping) -> dict:
    """The label, if there is one, as a text in place of true and false or of 0 and 1."""
    if "label" not in values:
        return {}
    return {"label": str(values["label"]).lower()}


def _questions(values: Mapping) -> Iterator[dict]:
    yield {**values, **_with_words(values)}


def _words(values: Mapping) -> Iterator[dict]:
    first = f"{values['word']}: {values['sentence1']}"
    yield {**values, "sentence1": first, **_with_words(values)}


def _answers(values: Mapping) -> Iterator[dict]:
    """A row for each answer to each question about a passage."""
    for question in values["passage"]["questions"]:
        for answer in question["answers"]:
            yield {
                "passage": values["passage"]["text"],
                "answer": f"{question['question']} {answer['text']}",
                "index": f"{values['idx']}-{question['idx']}-{answer['idx']}",
                **_with_words(answer),
            }


_NO_YES = ("false", "true")
TASKS = {
    "boolq": _data_set(_NO_YES, ("accuracy",), "question", "passage", _questions),
    "cb": _data_set(NLI_LABELS, ("accuracy", "f1_macro"), "premise", "hypothesis"),
    "multirc": _data_set(
        ("0", "1"), ("f1", "exact_questions"), "passage", "answer", _answers
    ),
    "superglue_rte": _data_set(
        ("entailment", "not_entailment"), ("accuracy",), "premise", "hypothesis"
    ),
    "wic": _data_set(_NO_YES, ("accuracy",), "sentence1", "sentence2", _words),
}
