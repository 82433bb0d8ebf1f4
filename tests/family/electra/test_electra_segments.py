"""ELECTRA's rows: what the release makes of a text, without its skipped sentences."""

import numpy as np
import pytest

import inspect_records
from family.electra.rows import ElectraSegments
from tests.records import VOCAB_FILE, make_records
from tests.text.corpus.test_corpus import write
from tests.text.instances.test_full_sentences import VOCABULARY
from text.inspection.table import make_inspector
from text.instances.table import RowOptions

# Sentences of up to 40 tokens.
RNG = np.random.default_rng(5)
DOCUMENTS = [
    [
        RNG.integers(5, 60, RNG.integers(1, 40)).tolist()
        for _ in range(RNG.integers(1, 30))
    ]
    for _ in range(200)
]


def rows(folder, documents, size, seed=1):
    """The rows of a text, its counts, and all of its tokens in order."""
    piece = []
    for document in documents:
        piece += [*document, None]
    corpus = write(folder, [piece])
    instances = RowOptions(instances="electra", max_seq_length=size).make_instances()
    planned, counts = instances.plan(
        corpus, 0, len(documents), VOCABULARY, np.random.default_rng(seed)
    )
    starts, lengths = instances.runs(planned)
    tokens = corpus.ids.gather(starts, lengths)
    batch, is_text = instances.pack(corpus, planned, tokens, VOCABULARY)
    np.testing.assert_array_equal(tokens, batch["input_ids"][is_text])
    return planned, batch, counts


def released(documents, size, rng):
    """The lengths of the release's rows, whose segments are in the order of the text."""
    found, target = [], size
    for document in documents:
        sentences, length = [], 0
        for number, sentence in enumerate(document, start=1):
            sentences.append(len(sentence))
            length += len(sentence)
            if length < target and number < len(document):
                continue
            wanted = 100_000 if rng.random() < 0.1 else (target - 3) // 2
            first = second = 0
            for each in sentences:
                fits = first + each < wanted and not second
                if (
                    not first
                    or fits
                    or (not second and first < wanted and rng.random() < 0.5)
                ):
                    first += each
                else:
                    second += each
            a = min(first, size - 2)
            found.append((a, min(second, max(0, size - a - 3))))
            target = rng.integers(5, size + 1) if rng.random() < 0.05 else size
            sentences, length = [], 0
    return np.array(found)


@pytest.mark.parametrize("size", [64, 128])
def test_rows_are_drawn_like_the_releases(tmp_path, size):
    documents = DOCUMENTS * 3
    planned, batch, counts = rows(tmp_path, documents, size)
    expected = released(documents, size, np.random.default_rng(2))
    a, b = (planned[name].astype(int) for name in ("a_length", "b_length"))
    assert len(a) == pytest.approx(len(expected), rel=0.02)
    for ours, theirs in (
        ((b == 0).mean(), (expected[:, 1] == 0).mean()),
        ((a + b >= size - 3).mean(), (expected.sum(axis=1) >= size - 3).mean()),
    ):
        assert ours == pytest.approx(theirs, abs=0.02)
    for ours, theirs in ((a, expected[:, 0]), (b, expected[:, 1])):
        assert ours.mean() == pytest.approx(theirs.mean(), rel=0.03)
        quarters = [0.25, 0.5, 0.75]
        np.testing.assert_allclose(
            np.quantile(ours, quarters), np.quantile(theirs, quarters), atol=3
        )
    number = sum(len(sentence) for document in documents for sentence in document)
    assert counts["truncated_tokens"] + a.sum() + b.sum() == number
    assert counts["one_segment"] == (b == 0).sum()
    # In the order of the text.
    two = b > 0
    cut = planned["a_start"] + a < planned["b_start"]
    assert (planned["b_start"] >= planned["a_start"] + a)[two].all()
    assert (cut & two).mean() < 0.01
    seps = (batch["input_ids"] == VOCABULARY.sep_id).sum(axis=1)
    np.testing.assert_array_equal(seps, 1 + two)
    np.testing.assert_array_equal(batch["input_mask"].sum(axis=1), a + b + 2 + two)
    np.testing.assert_array_equal(batch["segment_ids"].sum(axis=1), b + two)


def test_records_are_sound(tmp_path, capsys):
    records = make_records(tmp_path, instances="electra", masking="dynamic")
    said = capsys.readouterr().out
    assert "of the records have one segment; " in said
    given = inspect_records.Options(input_file=[records], vocab_file=VOCAB_FILE)
    assert inspect_records.main(given) == 0
    assert "no problems found" in capsys.readouterr().out


def test_broken_rows_are_told(tmp_path):
    planned, batch, _ = rows(tmp_path, DOCUMENTS[:20], 64)
    kind = RowOptions(instances="electra", max_seq_length=64, masking="dynamic")
    assert isinstance(kind.make_instances(), ElectraSegments)
    inspector = make_inspector(kind, VOCABULARY)

    def broken(changed):
        rules = inspector.rules(changed, inspector.masks.unmask(changed))
        return [rule.text for rule in rules if rule.is_broken.any()]

    assert broken(batch) == []
    (row,) = np.flatnonzero(planned["b_length"] > 1)[:1]
    end = int(planned["a_length"][row]) + 1
    for name, column, value, message in (
        ("input_ids", end, 9, "0 in the first segment and 1 in the second"),
        ("input_ids", end + 1, VOCABULARY.sep_id, "end of each segment"),
        ("input_ids", 1, VOCABULARY.sep_id, "each with tokens"),
        ("segment_ids", end + 1, 0, "0 in the first segment and 1 in the second"),
    ):
        changed = {key: value.copy() for key, value in batch.items()}
        changed[name][row, column] = value
        assert any(message in text for text in broken(changed)), (name, column)
