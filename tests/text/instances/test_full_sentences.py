"""Rows of whole sentences: what goes into one, and what every program makes of them."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import run_pretraining
from errors import UserError
from tests.inspection import inspect
from tests.pretraining import flags
from tests.records import make_records
from tests.text.corpus.test_corpus import documents_in, write
from text.inspection.table import make_inspector
from text.instances import instances
from text.instances.table import RowOptions
from text.tokenizers.vocabulary import Vocabulary

PAD, CLS, SEP = 100, 102, 103
VOCABULARY = Vocabulary(
    [*map(str, range(100)), "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
)
SIZE = 12
SENTENCE = st.lists(st.integers(0, 99), min_size=1, max_size=25)
DOCUMENTS = st.lists(st.lists(SENTENCE, min_size=1, max_size=6), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("corpus")


def packed(folder, documents, kind):
    """The rows of a text as lists of ids, and the batch they are in."""
    piece = []
    for document in documents:
        piece += [*document, None]
    corpus = write(folder, [piece])
    assert documents_in(corpus) == documents
    options = RowOptions(instances=kind, max_seq_length=SIZE, masking="dynamic")
    instances = options.make_instances()
    planned, counts = instances.plan(corpus, 0, len(documents), VOCABULARY, None)
    starts, lengths = instances.runs(planned)
    tokens = corpus.ids.gather(starts, lengths)
    batch, is_text = instances.pack(corpus, planned, tokens, VOCABULARY)
    ids = batch["input_ids"]
    np.testing.assert_array_equal(tokens, ids[is_text])
    rows = [
        row[mask].tolist()
        for row, mask in zip(ids, batch["input_mask"] > 0, strict=True)
    ]
    assert (ids[batch["input_mask"] == 0] == PAD).all()
    batch = {name: values.astype(np.int64) for name, values in batch.items()}
    return rows, counts, instances, batch


def broken(instances, batch):
    """The rules that some row breaks."""
    inspector = make_inspector(instances.options, VOCABULARY)
    text = inspector.masks.unmask(batch)
    return [rule.text for rule in inspector.rules(batch, text) if rule.is_broken.any()]


def reference(documents, crosses):
    """The same rows, sentence by sentence."""
    rows, row = [], []
    for document in documents:
        if not crosses:
            row = []
        open_ = False  # whether the row's last [SEP] is this document's
        for sentence in document:
            rest = sentence
            while rest:
                if not row:
                    row = [CLS]
                    rows.append(row)
                    open_ = False
                room = SIZE - len(row) - (not open_)
                if len(rest) > room:
                    if len(row) > 1:
                        row = []
                        continue
                    taken = room
                else:
                    taken = len(rest)
                if open_:
                    row.pop()
                row += [*rest[:taken], SEP]
                open_ = True
                rest = rest[taken:]
    return rows


@pytest.mark.parametrize("kind", ["full_sentences", "doc_sentences"])
@given(documents=DOCUMENTS)
def test_rows_are_those_of_the_plain_rule(folder, kind, documents):
    rows, _, instances, batch = packed(folder, documents, kind)
    assert rows == reference(documents, kind == "full_sentences")
    assert not batch["segment_ids"].any()
    # Nothing is lost and nothing comes twice.
    text = [id for row in rows for id in row if id < 100]
    assert text == [id for document in documents for s in document for id in s]
    assert broken(instances, batch) == []


def test_an_example(folder):
    documents = [[[1, 1, 1], [2, 2]], [[3, 3]], [[4] * 14, [5]]]
    rows, counts, *_ = packed(folder, documents, "full_sentences")
    assert rows == [
        [CLS, 1, 1, 1, 2, 2, SEP, 3, 3, SEP],
        [CLS, *[4] * 10, SEP],
        [CLS, 4, 4, 4, 4, 5, SEP],
    ]
    assert counts == {"split_sentences": 1}
    rows, *_ = packed(folder, documents, "doc_sentences")
    assert [len(row) for row in rows] == [7, 4, 12, 7]


def test_a_document_longer_than_a_window_gives_the_same_rows(folder, monkeypatch):
    rng = np.random.default_rng(0)
    documents = [
        [rng.integers(0, 100, n).tolist() for n in rng.integers(1, 9, 50)]
        for _ in "abc"
    ]
    whole, *_ = packed(folder, documents, "full_sentences")
    monkeypatch.setattr(instances, "_WINDOW", 7)
    assert packed(folder, documents, "full_sentences")[0] == whole


BROKEN = {
    "no [SEP] at the end": ("input_ids", 6, 7, "must be [SEP] after the text"),
    "[SEP] behind [CLS]": ("input_ids", 1, SEP, "after [CLS] and after another"),
    "two [SEP]": ("input_ids", 5, SEP, "after [CLS] and after another"),
    "another segment": ("segment_ids", 2, 1, "must be 0"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_row_is_told(folder, case):
    feature, column, value, text = BROKEN[case]
    _, _, instances, batch = packed(folder, [[[1, 1, 1], [2, 2]]], "full_sentences")
    batch[feature][0, column] = value
    assert any(text in rule for rule in broken(instances, batch))


# --- From a text to a model ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["full_sentences", "doc_sentences"])
def test_records_are_sound_and_shown(tmp_path, capsys, kind):
    records = make_records(tmp_path, instances=kind)
    report = tmp_path / "report.html"
    status, lines = inspect(records, capsys=capsys, report_file=str(report))
    shown = "\n".join(lines)
    assert status == 0 and "\n  Text: " in shown
    assert "Next sentence" not in shown and "Documents:" in shown
    assert "<b>Text</b>" in report.read_text()


def test_next_sentences_cannot_be_learned_from_them(tmp_path):
    records = make_records(tmp_path, instances="doc_sentences")
    given = flags(tmp_path, input_file=[records])
    with pytest.raises(UserError) as refusal:
        run_pretraining.main(run_pretraining.Options(**given))
    assert re.search(
        r"records-00000-of-00002: these records \(doc_sentences\) have no "
        "next_sentence_labels, which --objective=masked_lm_next_sentence needs; use "
        "--objective=masked_lm, or other records",
        str(refusal.value),
    )
    assert not (tmp_path / "output").exists()


def test_records_of_two_kinds_are_refused(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    a = make_records(tmp_path / "a", instances="doc_sentences")
    b = make_records(tmp_path)
    given = flags(tmp_path, input_file=[a, b], objective="masked_lm")
    with pytest.raises(
        UserError, match="contains pairs with static masks, but .* doc_sen"
    ):
        run_pretraining.main(run_pretraining.Options(**given))
    status, _ = inspect(a, b, capsys=capsys)
    assert status == 1


@pytest.mark.parametrize("kind", ["of_a_later_version", ["x"], None])
def test_a_kind_that_is_not_known_is_refused(tmp_path, capsys, kind):
    records = make_records(tmp_path)
    (path,) = tmp_path.glob("*.description.json")
    description = json.loads(path.read_text())
    del description["sha256"]
    description["origin"]["flags"]["instances"] = kind
    path.write_text(json.dumps(description))
    message = "this version supports pairs, full_sentences"
    with pytest.raises(UserError, match=message):
        run_pretraining.main(
            run_pretraining.Options(**flags(tmp_path, input_file=[records]))
        )
    with pytest.raises(UserError, match=message):
        inspect(records, capsys=capsys)
