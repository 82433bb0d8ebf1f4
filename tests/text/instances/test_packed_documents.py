"""Rows of packed documents: what goes into one, and what inspection says of it."""

import pytest
from hypothesis import given

from tests.inspection import inspect
from tests.records import CORPUS, make_records
from tests.text.instances.test_full_sentences import (
    CLS,
    DOCUMENTS,
    SEP,
    SIZE,
    VOCABULARY,
    broken,
    packed,
)
from text.inspection.inspector import first_broken
from text.inspection.table import make_inspector
from text.records.descriptions import Description


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("corpus")


def reference(documents):
    """The documents of the same rows, as each would be alone."""
    rows, room = [], 0
    for document in documents:
        rest = sum(document, [])
        while rest:
            if room < 3:
                rows.append([])
                room = SIZE
            rows[-1].append([CLS, *rest[: room - 2], SEP])
            rest = rest[room - 2 :]
            room -= len(rows[-1][-1])
    return rows


@given(documents=DOCUMENTS)
def test_rows_are_those_of_the_plain_rule(folder, documents):
    rows, counts, instances, batch = packed(folder, documents, "packed")
    expected = reference(documents)
    assert rows == [sum(row, []) for row in expected]
    for places, row in zip(batch["position_ids"], expected, strict=True):
        counted = [place for document in row for place in range(len(document))]
        assert places.tolist() == counted + [0] * (SIZE - len(counted))
    assert all(SIZE - len(row) <= 2 for row in rows[:-1])
    number = sum(map(len, expected))
    assert counts == {"split_documents": number - len(documents)}
    assert broken(instances, batch) == []


def test_what_is_wrong_with_a_row_is_said(folder):
    documents = [[[1, 1, 1], [2, 2]], [[3, 3]]]
    _, _, instances, batch = packed(folder, documents, "packed")
    assert batch["input_ids"].tolist() == [
        [CLS, 1, 1, 1, 2, 2, SEP, CLS, 3, 3, SEP, 100]
    ]
    for name, place, value, rule in (
        ("position_ids", 3, 9, "must count from 0 in each document, and be 0"),
        ("position_ids", 11, 4, "must count from 0 in each document, and be 0"),
        ("input_ids", 6, 5, "must be [SEP] at the end of each document"),
        ("input_ids", 8, SEP, "must be [SEP] at the end of each document"),
        ("segment_ids", 8, 1, "must be 0, or"),
    ):
        changed = {key: values.copy() for key, values in batch.items()}
        changed[name][0, place] = value
        assert broken(instances, changed)[0].startswith(rule)


def test_a_corpus_fills_its_rows(tmp_path, capsys):
    pattern = make_records(
        tmp_path,
        CORPUS.read_text(),
        instances="packed",
        dupe_factor=1,
        do_whole_word_mask=True,
    )
    description = Description.read(
        f"{tmp_path}/records-00000-of-00002.description.json"
    )
    counts = description.counts
    empty = counts["instances"] * 64 - counts["instance_tokens"]
    assert 0 <= empty <= 2 * counts["instances"] + 64
    assert "continues in the next record" in capsys.readouterr().out
    status, lines = inspect(pattern, capsys=capsys, num_shown=1)
    printed = "\n".join(lines)
    assert status == 0
    assert "% of the positions" not in printed
    assert "Documents:" in printed


def test_cls_is_asked_for_in_every_document(folder):
    documents = [[[1, 1]], [[3, 3, 3]]]
    _, _, instances, batch = packed(folder, documents, "packed")
    batch["input_ids"][0, 4] = 7
    inspector = make_inspector(instances.options, VOCABULARY)
    text = inspector.masks.unmask(batch)
    [(rule, where)] = first_broken(batch, text, inspector).values()
    assert rule == "input_ids must begin with [CLS]"
    assert where.startswith("input_ids[4] is 7")
