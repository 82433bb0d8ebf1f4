"""A new kind of records is a file and two rows: written, read, inspected."""

import sys

import numpy as np
import pytest

import inspect_records
from tests import jobs
from tests.programs import lone_sentences
from tests.records import VOCAB_FILE, make, write
from text.records import encoding, framing, reading
from text.records.record_set import RecordSet
from text.tokenizers.table import load_vocabulary

TEXT = (
    "The first one.\nThe second is here.\n\nAnother has two.\nThis is it.\nA third.\n"
)
KIND = {"instances": "lone_sentences", "dupe_factor": 1}


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for table, kind in lone_sentences.ROWS:
        monkeypatch.setitem(table, "lone_sentences", kind)
    write("text.txt", TEXT)
    return "out.tfrecord"


def inspected(records, **flags):
    given = {"input_file": [records], "vocab_file": VOCAB_FILE} | flags
    return inspect_records.main(inspect_records.Options(**given))


@pytest.mark.parametrize("masking", ["static", "dynamic"])
def test_it_is_written_read_and_inspected(records, capsys, masking):
    passes = {"dupe_factor": 2} if masking == "static" else {}
    batch = make(**KIND | passes, masking=masking, do_whole_word_mask=True)
    said = capsys.readouterr().out
    number = 5 * passes.get("dupe_factor", 1)
    assert f"{number * 2 // 5} records begin a document" in said
    assert sorted(batch["place"][:, 0])[:: number // 5] == [0, 0, 1, 1, 2]
    features = {f.name: f for f in encoding.schema_of(next(framing.read(records)))}
    data = reading.Records(RecordSet([records]).files, tuple(features.values()))
    first = next(data.training(number, seed=1).as_numpy_iterator())
    np.testing.assert_array_equal(
        np.sort(first["place"], 0), np.sort(batch["place"], 0)
    )
    assert inspected(records, num_shown=number, report_file="report.html") == 0
    said = capsys.readouterr().out
    assert "Place:          0.8 in its document" in said and "no problems found" in said
    assert "sentence 3 of its document" in said
    with open("report.html") as file:
        assert "Place in a document" in file.read()


def test_what_breaks_its_rules_or_its_description_is_told(records, capsys):
    batch = make(**KIND, masking="dynamic")
    schema = encoding.schema_of(next(framing.read(records)))
    sep = load_vocabulary(VOCAB_FILE).sep_id
    for feature, column, value, line in (
        ("place", 0, 9, "says 2 firsts, but the records have 1"),
        ("input_ids", 2, sep, "input_ids[2] is"),
    ):
        changed = {name: values.copy() for name, values in batch.items()}
        changed[feature][int(batch["place"][:, 0].argmin()), column] = value
        with open(records, "wb") as file:
            file.write(framing.frame(encoding.encode(changed, schema)))
        capsys.readouterr()
        assert inspected(records) == 1
        assert line in capsys.readouterr().out


@pytest.mark.slow
def test_its_program_starts_workers_that_know_it(records):
    program = [sys.executable, "-m", "tests.programs.lone_sentences"]
    flags = ["--input_file=text.txt", f"--output_file={records}"]
    flags += [f"--vocab_file={VOCAB_FILE}", "--instances=lone_sentences"]
    flags += ["--dupe_factor=1", "--masking=dynamic", "--num_workers=2"]
    done = jobs.finished([*program, *flags])
    assert done.returncode == 0, done.stderr
    assert len(list(framing.read(records))) == 5
