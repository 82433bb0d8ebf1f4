"""Every kind of rows with a vocabulary whose rows end with [CLS], written and inspected."""

import numpy as np
import pytest

import create_pretraining_data
import inspect_records
import tests
from tests import jobs
from text.records import encoding, framing

MODEL = str(tests.GOLDEN / "sentencepiece" / "xlnet.model")
PAD, CLS, SEP, EOD = 5, 3, 4, 7


KINDS = ["pairs dynamic", "pairs static", "full_sentences dynamic"]
KINDS += ["doc_sentences static", "sentence_order static", "electra dynamic"]


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_sound(tmp_path, capsys, kind):
    instances, masking = kind.split()
    lines = (tests.GOLDEN / "pretraining" / "corpus.txt").read_text().splitlines()
    text = [line if number % 40 else "" for number, line in enumerate(lines[:240])]
    (tmp_path / "text.txt").write_text("\n".join(text))
    records = str(tmp_path / "out.tfrecord")
    jobs.run(
        create_pretraining_data,
        {
            "input_file": [str(tmp_path / "text.txt")],
            "output_file": [records],
            "vocab_file": MODEL,
            "instances": instances,
            "masking": masking,
            "do_whole_word_mask": True,
            "max_seq_length": 128,
            "max_predictions_per_seq": 20,
            "dupe_factor": 1,
            "num_workers": 1,
        },
    )
    capsys.readouterr()
    jobs.run(inspect_records, {"input_file": [records], "vocab_file": MODEL})
    assert "no problems found" in capsys.readouterr().out
    examples = list(framing.read(records))
    batch = encoding.decode(examples, encoding.schema_of(examples[0]))[0]
    ids, segments = batch["input_ids"], batch["segment_ids"]
    lengths = batch["input_mask"].sum(axis=1)
    rows = np.arange(len(ids))
    assert (ids[rows, lengths - 1] == CLS).all()
    assert (ids[rows, lengths - 2] == SEP).all()
    assert (segments[rows, lengths - 1] == 2).all()
    assert (ids[np.arange(128) >= lengths[:, None]] == PAD).all()
    if masking == "dynamic":  # static masks may put any token in the place of another
        assert (ids == CLS).sum() == len(ids)
        assert (ids == EOD).any() == (instances == "full_sentences")
    if instances not in ("full_sentences", "doc_sentences"):
        assert (segments == 1).any()
