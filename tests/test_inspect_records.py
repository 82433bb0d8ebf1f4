"""Inspection: sound records pass; what is wrong with all together, or a file, is named."""

import contextlib
import gzip
import json
import pathlib
import re
import shutil

import numpy as np
import pytest

import tests
from errors import UserError
from tests.inspection import (
    MASK,
    VOCABULARY,
    copy_first,
    decoded,
    inspect,
    rewrite,
    write,
)
from text.inspection import words
from text.instances.table import RowOptions
from text.records import encoding, framing
from text.records.schema import Feature

GOLDEN = tests.GOLDEN


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with records of this project, and their description."""
    return write(tmp_path_factory.mktemp("made"))


@pytest.fixture
def copy(made, tmp_path):
    """The same, to be spoilt; without its second file."""
    return copy_first(made, tmp_path)


def test_what_this_project_makes_is_sound(made, capsys):
    status, lines = inspect(made / "part-0*2", capsys=capsys, num_shown=1)
    assert status == 0
    assert lines[0] == words.LEGEND
    assert re.search(
        r"part-00000-of-00002: record 1: \d+ tokens, \d to predict", lines[2]
    )
    described = json.loads(next(made.glob("*.json")).read_text())["instances"]
    assert lines[-1] == f"{described:,} records in 2 file(s): no problems found"


def test_what_the_release_made_is_sound(capsys):
    path = GOLDEN / "pretraining" / "pretraining.tfrecord"
    status, lines = inspect(path, capsys=capsys, masked_lm_prob=0.15)
    assert status == 0
    assert "Tokens:         63.9 per record, median 64, 99.3% full (64)" in lines
    assert "Next sentence:  58.7% random" in lines
    assert lines[-1] == "838 records in 1 file(s): no problems found"


# === All records together, and their description ===


def alone(path):
    """Takes the description away."""
    path.with_name(f"{path.name}.description.json").unlink()


def set_flags(path, **flags):
    """Changes what the description says of the flags."""

    def change(description):
        description["origin"]["flags"] |= flags

    change_description(path, change)


def change_description(path, change):
    path = path.with_name(f"{path.name}.description.json")
    description = json.loads(path.read_text())
    description.pop("sha256", None)
    change(description)
    path.write_text(json.dumps(description))


def test_the_mask_rate_given_must_hold(copy, capsys):
    alone(copy)
    assert inspect(copy, capsys=capsys)[0] == 0
    assert inspect(copy, capsys=capsys, masked_lm_prob=0.15)[0] == 0
    status, lines = inspect(copy, capsys=capsys, masked_lm_prob=0.12)
    assert status == 1
    assert "predictions must match --masked_lm_prob (by default, the" in lines[-2]


def test_whole_words_may_leave_predictions_out_but_not_add_any(copy, capsys):
    set_flags(copy, do_whole_word_mask=True, masked_lm_prob=0.17)
    status, lines = inspect(copy, capsys=capsys)
    assert status == 0

    set_flags(copy, masked_lm_prob=0.25)
    status, lines = inspect(copy, capsys=capsys)
    assert status == 1
    assert re.search(
        "description's\\); it asks for [0-9,]+ predictions, but there are", lines[-2]
    )

    status, lines = inspect(copy, capsys=capsys, masked_lm_prob=0.1)
    assert status == 1
    found = [line for line in lines if "--masked_lm_prob=0.1 asks for fewer" in line]
    assert found[0].startswith(f"{copy}: record ")


def test_the_shares_of_the_outcomes_must_hold(copy, capsys):
    batch = decoded(copy)
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    positions = batch["masked_lm_positions"][rows, slots]
    batch["input_ids"][rows[::2], positions[::2]] = MASK
    rewrite(copy, batch)
    status, lines = inspect(copy, capsys=capsys)
    assert status == 1
    assert (
        "original and random token must be 80.0% / 10.0% / 10.0%; they are" in lines[-2]
    )


@pytest.mark.parametrize("label, share", [(0, "0.0%"), (1, "100.0%")])
def test_the_labels_must_be_balanced(copy, capsys, label, share):
    alone(copy)
    batch = decoded(copy)
    batch["next_sentence_labels"][:] = label
    rewrite(copy, batch)
    status, lines = inspect(copy, capsys=capsys)
    assert status == 1
    assert f"more of the second sides must be random; {share} are" in lines[-2]


def test_without_random_next_sentences_no_label_is_random(copy, capsys):
    set_flags(copy, random_next_sentences=False)
    batch = decoded(copy)
    batch["next_sentence_labels"][:] = 0
    rewrite(copy, batch)
    assert inspect(copy, capsys=capsys)[0] == 0
    batch["next_sentence_labels"][2] = 1
    rewrite(copy, batch)
    status, lines = inspect(copy, capsys=capsys)
    assert status == 1
    assert (
        "record 3: next_sentence_labels[0] is 1; must be 0, because the description has "
        "--random" in lines[-2]
    )


def test_a_description_must_agree(made, copy, capsys):
    name = f"{copy}.description.json"
    described = json.loads(pathlib.Path(name).read_text())
    shutil.copy(made / "part-00001-of-00002", copy.parent)
    counts = described["counts"]

    def more_predictions(description):
        description["counts"]["predictions"] += 1

    change_description(copy, more_predictions)
    status, lines = inspect(copy.parent / "part-0*2", capsys=capsys)
    assert status == 1
    assert (
        f"{name}: says {counts['predictions'] + 1:,} predictions, but the records have "
        f"{counts['predictions']:,}" in lines
    )

    def one_more(description):
        description["outputs"][0]["instances"] += 1

    change_description(copy, one_more)
    status, lines = inspect(copy, capsys=capsys)
    number = described["outputs"][0]["instances"]
    assert (
        f"{copy}: contains {number} records, but its description says {number + 1}"
        in lines
    )


def test_another_vocabulary_is_refused(copy, tmp_path, capsys):
    other = tmp_path / "vocab.txt"
    other.write_text("\n".join(VOCABULARY.tokens + ["more"]), encoding="utf-8")
    with pytest.raises(
        UserError, match="made with a different vocabulary than .*--vocab_file"
    ):
        inspect(copy, capsys=capsys, vocab_file=other)


@pytest.mark.parametrize("missing", ["origin", "counts"])
def test_a_broken_description_is_refused(copy, capsys, missing):
    change_description(copy, lambda description: description.pop(missing))
    with pytest.raises(UserError, match="description.json: is not a description of"):
        inspect(copy, capsys=capsys)


# === Files ===


def test_max_records_reads_the_first_ones(copy, capsys):
    status, lines = inspect(copy, capsys=capsys, max_records=50)
    assert status == 0
    assert lines[-2:] == [
        "Only the first 50 records of each file were read.",
        "50 records in 1 file(s): no problems found",
    ]


def test_a_file_packed_by_gzip_is_read(copy, capsys):
    number = len(decoded(copy)["input_ids"])
    copy.write_bytes(gzip.compress(copy.read_bytes()))
    status, lines = inspect(copy, capsys=capsys)
    assert status == 0
    assert lines[-1] == f"{number} records in 1 file(s): no problems found"


def test_a_damaged_file_is_read_up_to_there_and_the_others_go_on(made, copy, capsys):
    whole = made / "part-00001-of-00002"
    copy.write_bytes(copy.read_bytes()[:3000])
    number = len(list(_until_damaged(copy)))
    status, lines = inspect(copy, whole, capsys=capsys, num_shown=0)
    total = number + len(decoded(whole)["input_ids"])
    assert status == 1
    assert lines[-2] == (
        f"{copy}: record {number + 1}: the file ends within it; write or copy "
        "the file again"
    )
    assert lines[-1] == f"{total} records in 2 file(s): 1 violation(s)"


def _until_damaged(path):
    with contextlib.suppress(UserError):
        yield from framing.read(str(path))


@pytest.mark.parametrize(
    "content, line",
    [
        (b"", "contains no records"),
        (b"no records, but a text\n", "record 1: the length's checksum is wrong"),
        (framing.frame([b"no proto"]), "record 1 is not a tf.train.Example; it is"),
        (
            framing.frame(
                encoding.encode(
                    {"label": np.ones((1, 1), int)}, (Feature("label", "int64", 1),)
                )
            ),
            "record 1 has the features label; it is not a pre-training record",
        ),
    ],
)
def test_a_foreign_file_is_named(tmp_path, capsys, content, line):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    status, lines = inspect(path, capsys=capsys, report_file=str(tmp_path / "r.html"))
    assert status == 1
    assert lines[0].startswith(f"{path}: {line}")
    assert lines[1].endswith("in 1 file(s): 1 violation(s)")


def test_records_of_another_length_are_named(copy, capsys):
    short = (
        RowOptions(max_seq_length=16, max_predictions_per_seq=6)
        .make_instances()
        .schema()
    )
    batch = {
        name: values[:7, :length]
        for (name, _, length, _), values in zip(
            short, decoded(copy).values(), strict=True
        )
    }
    other = copy.parent / "short"
    other.write_bytes(framing.frame(encoding.encode(batch, short)))
    status, lines = inspect(copy, other, capsys=capsys, num_shown=0)
    assert status == 1
    assert f"{other}: record 1: has 16 values of input_ids, not 32" in lines
    assert lines[-2] == "... and 2 more: another schema"


def test_missing_files_and_wrong_flags_are_refused(tmp_path, capsys):
    with pytest.raises(UserError, match="no file matches"):
        inspect(tmp_path / "none-*", capsys=capsys)
    with pytest.raises(UserError, match="masked_lm_prob=0.0: must be above 0"):
        inspect("x", capsys=capsys, masked_lm_prob=0.0)
    with pytest.raises(UserError, match="num_shown=-1: must be at least 0"):
        inspect("x", capsys=capsys, num_shown=-1)


def test_the_report_never_replaces_the_records(copy, capsys):
    before = copy.read_bytes()
    with pytest.raises(UserError, match="is also an input"):
        inspect(copy, capsys=capsys, report_file=str(copy))
    assert copy.read_bytes() == before
    description = pathlib.Path(f"{copy}.description.json")
    before = description.read_bytes()
    with pytest.raises(UserError, match="is a part of the records of"):
        inspect(copy, capsys=capsys, report_file=str(description))
    assert description.read_bytes() == before


def test_a_pattern_may_match_what_lies_beside_the_records(made, capsys):
    status, lines = inspect(made / "part-*", capsys=capsys)
    assert status == 0
    assert "2 file(s): no problems found" in lines[-1]


def test_a_weight_that_is_no_number_is_a_violation(copy, capsys):
    batch = decoded(copy)
    batch["masked_lm_weights"][0, 0] = np.nan
    rewrite(copy, batch)
    status, lines = inspect(copy, capsys=capsys, num_shown=1)
    assert status == 1
    assert any("record 1: " in line for line in lines)


# === What a reader sees ===


@pytest.fixture
def fixed(tmp_path):
    """One record of a small vocabulary, in a file whose name is no text."""
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] <b> the quick un ##believ ##able fox ."
    (tmp_path / "vocab.txt").write_text("\n".join(words.split()))
    batch = {
        # [CLS] the quick fox un ##believ ##able [SEP] ##able . [SEP]
        "input_ids": np.array([[2, 6, 4, 11, 8, 5, 10, 3, 10, 12, 3, 0]]),
        "input_mask": np.array([[1] * 11 + [0]]),
        "segment_ids": np.array([[0] * 8 + [1] * 3 + [0]]),
        "masked_lm_positions": np.array([[2, 3, 5, 0]]),
        "masked_lm_ids": np.array([[7, 11, 9, 0]]),
        "masked_lm_weights": np.array([[1, 1, 1, 0]], np.float32),
        "next_sentence_labels": np.array([[1]]),
    }
    path = tmp_path / "part-\udcff<i>"
    schema = (
        RowOptions(max_seq_length=12, max_predictions_per_seq=4)
        .make_instances()
        .schema()
    )
    path.write_bytes(framing.frame(encoding.encode(batch, schema)))
    return path


def test_a_record_is_shown_as_text(fixed, capsys):
    vocab = fixed.parent / "vocab.txt"
    status, lines = inspect(fixed, capsys=capsys, vocab_file=vocab)
    assert status == 0
    shown = str(fixed).replace("\udcff", "\\udcff")
    assert lines[2:5] == [
        f"{shown}: record 1: 11 tokens, 3 to predict; B is random text from elsewhere",
        "  A: the [MASK→quick] [=fox] un[<b>→believ]able",
        "  B: ##able .",
    ]


def test_the_report_is_one_file(fixed, copy, capsys):
    report = fixed.parent / "new_folder" / "report.html"
    inspect(
        fixed,
        capsys=capsys,
        vocab_file=fixed.parent / "vocab.txt",
        report_file=str(report),
    )
    page = report.read_text(encoding="utf-8")
    assert not re.search(r"https?:|src=|href=|url\(|@import|<script", page)
    assert "<b>→" not in page and "part-\\udcff&lt;i&gt;: record 1" in page
    assert '<span class="mask">quick</span>' in page
    assert '<span class="kept">fox</span>' in page
    assert '<span class="shown">&lt;b&gt;→</span>believ</span>able' in page
    assert page.count("<svg ") == 6
    assert "<title>11 tokens: 1 records</title>" in page
    assert "--masked_lm_prob" not in page

    inspect(copy, capsys=capsys, report_file=str(report))
    page = report.read_text(encoding="utf-8")
    assert "<th>--masked_lm_prob</th><td>0.15</td>" in page
    assert "no problems found" in page


def test_violations_stand_in_the_report(copy, capsys):
    batch = decoded(copy)
    batch["next_sentence_labels"][:10] = 3
    rewrite(copy, batch)
    report = copy.parent / "report.html"
    _, lines = inspect(copy, capsys=capsys, report_file=str(report))
    page = report.read_text(encoding="utf-8")
    assert page.count("<li>") == 6
    assert (
        "... and 5 more: next_sentence_labels must be 0 (the next sentence) or 1 (random)"
        in page
    )
