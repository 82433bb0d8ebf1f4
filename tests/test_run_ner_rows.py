"""run_ner.py: every word of any sentence has one place in one row, in context too."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ner import VOCABULARY, task_of, write_files
from text.tasks import tag_files


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


WORDS = st.text(alphabet="abPL.x\x01\u200b\u00a0가", min_size=1, max_size=14)


@given(st.data())
def test_every_word_of_any_sentence_has_one_place(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    sentences = data.draw(
        st.lists(st.lists(WORDS, min_size=1, max_size=9), min_size=1, max_size=4)
    )
    length = data.draw(st.integers(3, 12))
    text = "\n\n".join("\n".join(f"{w} O" for w in words) for words in sentences)
    (folder / "dev.txt").write_text(text)
    context = data.draw(st.booleans())
    task = task_of(
        folder, max_seq_length=length, document_context=context, entity_types=["X"]
    )
    examples = task.read("dev")
    assert [list(example.words) for example in examples] == sentences
    for example in examples:
        answered = np.zeros(len(example.words), int)
        for row in task.featurize(example, "dev"):
            assert len(row.input_ids) <= length
            own, places = row.notes
            answered[own] += 1
            assert row.labels["label_weights"].sum() == len(places)
            assert row.labels["label_weights"][places].all()
            for word, place in zip(example.words[own], places, strict=True):
                first = [*task.tokenizer.tokenize(word), "[UNK]"][0]
                assert VOCABULARY[row.input_ids[place]] == first
        assert (answered == 1).all()


def test_document_context_fills_rows_with_the_sentences_around(folder):
    (folder / "dev.txt").write_text(
        "-DOCSTART- O\n\na O\nPa B-PER\n\nb O\n. O\n\n-DOCSTART- O\n\nLab B-LOC\n"
    )
    task = task_of(folder, document_context=True, entity_types=["LOC", "PER"])

    def rows(**changes):
        task.flags = dataclasses.replace(task.flags, **changes)
        examples = task.read("dev")
        made = [row for e in examples for row in task.featurize(e, "dev")]
        texts = [" ".join(VOCABULARY[id] for id in row.input_ids) for row in made]
        return texts, [row.notes[1].tolist() for row in made]

    around = "[CLS] a P ##a b . [SEP]"
    assert rows() == ([around, around, "[CLS] L ##a ##b [SEP]"], [[1, 2], [4, 5], [1]])
    assert rows(max_seq_length=6) == (
        ["[CLS] a P ##a b [SEP]", "[CLS] P ##a b . [SEP]", "[CLS] L ##a ##b [SEP]"],
        [[1, 2], [3, 4], [1]],
    )
    alone = ["[CLS] a P ##a [SEP]", "[CLS] b . [SEP]", "[CLS] L ##a ##b [SEP]"]
    assert rows(document_context=False) == (alone, [[1, 2], [1, 2], [1]])


def test_the_work_for_a_sentence_does_not_grow_with_its_document(folder):
    """Without -DOCSTART- lines a whole file is one document."""
    looked_at = 0

    class Word(str):
        def __hash__(self):
            nonlocal looked_at
            looked_at += 1
            return super().__hash__()

        def __eq__(self, other):
            nonlocal looked_at
            looked_at += 1
            return super().__eq__(other)

    task = task_of(folder, document_context=True, entity_types=["X"])
    counts = []
    for number in (100, 200):
        looked_at = 0
        sentences = [
            tag_files.Sentence((Word("Pa"), Word("b")), None, range(2), 0, 2 * i)
            for i in range(number)
        ]
        made = [
            list(task.featurize(example, "test"))
            for example in tag_files.in_documents(sentences)
        ]
        assert sum(map(len, made)) == number
        counts.append(looked_at)
    assert counts[1] <= 2 * counts[0]


def test_documents_of_like_number_are_not_taken_for_each_other(folder):
    task = task_of(folder, document_context=True, entity_types=["X"])
    for words in (("a", "b"), ("b", "a"), ("a", "b")):
        sentences = [tag_files.Sentence(words, None, range(2), 0, 0)]
        (example,) = tag_files.in_documents(sentences)
        (row,) = task.featurize(example, "dev")
        inside = [task.tokenizer.vocabulary.ids[word] for word in words]
        assert row.input_ids[1:-1] == inside
