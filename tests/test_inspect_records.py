"""Inspection: sound records pass, and every way to break one is found and named."""

import contextlib
import gzip
import json
import pathlib
import re
import shutil

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

import create_pretraining_data
import inspect_records
import tests
from text.errors import UserError
from text.inspection import words
from text.inspection.statistics import Repeats
from text.instances.kinds import RowOptions
from text.records import encoding, framing
from text.records.schema import Feature
from text.tokenizers.vocabulary import Vocabulary

GOLDEN = tests.GOLDEN
VOCAB = str(GOLDEN / "checkpoint" / "vocab.txt")
SCHEMA = RowOptions(max_seq_length=32, max_predictions_per_seq=6).make().schema()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with records of this project, and their description."""
    folder = tmp_path_factory.mktemp("made")
    words = [w for w in Vocabulary.load(VOCAB).tokens if w.isalpha()]
    rng = np.random.default_rng(1)
    documents = [
        "\n".join(" ".join(rng.choice(words, rng.integers(3, 12))) for _ in range(12))
        for _ in range(60)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    create_pretraining_data.main(
        create_pretraining_data.Options(
            input_file=[str(folder / "text.txt")],
            output_file=[str(folder / "part@2")],
            vocab_file=VOCAB,
            max_seq_length=32,
            max_predictions_per_seq=6,
            dupe_factor=4,
            num_workers=1,
        )
    )
    return folder


@pytest.fixture
def copy(made, tmp_path):
    """The same, to be spoilt; without its second file."""
    for path in made.glob("part-*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "part-00001-of-00002").unlink()
    return tmp_path / "part-00000-of-00002"


def inspect(*files, capsys, vocab_file=VOCAB, **flags):
    """Exit status and lines of the output."""
    given = inspect_records.Options(
        input_file=[str(file) for file in files], vocab_file=str(vocab_file), **flags
    )
    status = inspect_records.main(given)
    return status, capsys.readouterr().out.splitlines()


def decoded(path):
    examples = list(framing.read(str(path)))
    batch, faults = encoding.decode(examples, SCHEMA)
    assert not faults
    return batch


def rewrite(path, batch):
    path.write_bytes(framing.frame(encoding.encode(batch, SCHEMA)))


@pytest.mark.slow
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


# === Each rule: record 3 is broken in one way ===


def last_token(batch):
    return batch["input_mask"][2].sum() - 1


def first_sep(batch):
    return np.flatnonzero(batch["segment_ids"][2])[0] - 1


def first_prediction(batch):
    return batch["masked_lm_positions"][2, 0]


def unpredicted(batch):
    """A position of side A or B where nothing is predicted."""
    taken = {0, first_sep(batch), *batch["masked_lm_positions"][2].tolist()}
    return min(set(range(last_token(batch))) - taken)


def put(feature, where, value):
    def spoil(batch):
        column = where(batch) if callable(where) else where
        batch[feature][2, column] = value

    return spoil


def swap_predictions(batch):
    for feature in ("masked_lm_positions", "masked_lm_ids"):
        batch[feature][2, :2] = batch[feature][2, 1::-1]


def repeat_position(batch):
    batch["masked_lm_positions"][2, 1] = batch["masked_lm_positions"][2, 0]


def drop_prediction(batch):
    count = int(batch["masked_lm_weights"][2].sum())
    for feature in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        batch[feature][2, count - 1] = 0


def drop_all_predictions(batch):
    for feature in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        batch[feature][2] = 0


VOCABULARY = Vocabulary.load(VOCAB)
CLS, SEP, MASK = VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.mask_id


def predict_last_sep(batch):
    count = int(batch["masked_lm_weights"][2].sum())
    batch["masked_lm_positions"][2, count - 1] = last_token(batch)
    batch["masked_lm_ids"][2, count - 1] = SEP
    batch["input_ids"][2, last_token(batch)] = MASK


def predict_last_sep_as_word(batch):
    predict_last_sep(batch)
    count = int(batch["masked_lm_weights"][2].sum())
    batch["masked_lm_ids"][2, count - 1] = 1000


def empty_first_side(batch):
    batch["input_ids"][2, 1] = SEP
    batch["input_ids"][2, first_sep(batch)] = 1000
    batch["masked_lm_positions"][2, 0] = max(2, batch["masked_lm_positions"][2, 0])


@pytest.mark.parametrize(
    "spoil, line",
    [
        (
            put("input_ids", unpredicted, 2941),
            r"input_ids\[\d+\] is 2941 \(no token\); must be in the vocabulary, "
            r"from 0 to 2940",
        ),
        (
            put("masked_lm_ids", 0, 3000),
            r"masked_lm_ids\[0\] is 3000 \(no token\); must",
        ),
        (put("input_mask", 3, 0), r"input_mask\[3\] is 0; must be 1 for every token"),
        (put("input_mask", 0, 2), r"input_mask\[0\] is 2; must be 1 for every token"),
        (put("segment_ids", 1, 1), r"segment_ids\[1\] is 1; must be 0 up to the first"),
        (
            put("segment_ids", last_token, 0),
            r"segment_ids\[\d+\] is 0; must be 0 up to",
        ),
        (
            put("segment_ids", last_token, 2),
            r"segment_ids\[\d+\] is 2; must be 0 up to",
        ),
        (
            put("input_ids", 0, 1000),
            r"input_ids\[0\] is 1000 \(.+\); must begin with \[CLS\]",
        ),
        (
            put("input_ids", last_token, 1000),
            r"input_ids\[\d+\] is 1000 .*must be \[SEP\]",
        ),
        (
            put("input_ids", first_sep, 1000),
            r"input_ids\[\d+\] is \d+ .*must have two sides",
        ),
        (
            put("input_ids", unpredicted, SEP),
            r"input_ids\[\d+\] is \d+ .*must be \[SEP\]",
        ),
        (empty_first_side, r"input_ids\[1\] is \d+ \(\[SEP\]\); must have two sides"),
        (
            put("input_ids", unpredicted, MASK),
            r"\(\[MASK\]\); must be a token of the text",
        ),
        (
            put("input_ids", unpredicted, CLS),
            r"\(\[CLS\]\); must be a token of the text",
        ),
        (put("masked_lm_positions", 0, 0), r"positions\[0\] is 0; must be within the"),
        (
            put("masked_lm_positions", 0, 32),
            r"positions\[0\] is 32; must be within the",
        ),
        (swap_predictions, r"positions\[1\] is \d+; must rise"),
        (repeat_position, r"positions\[1\] is \d+; must rise"),
        (put("masked_lm_weights", 0, 0.5), r"weights\[0\] is 0.5; must be 1 for every"),
        (put("masked_lm_weights", 0, 0), r"weights\[0\] is 0.0; must be 1 for every"),
        (
            drop_all_predictions,
            r"weights\[0\] is 0.0; must be 1 for every prediction, at",
        ),
        (
            drop_prediction,
            r"weights\[\d\] is 0.0; --masked_lm_prob=0.15 asks for a different",
        ),
        (
            put("masked_lm_positions", 5, 3),
            r"positions\[5\] is 3; must be 0 for padding",
        ),
        (
            put("masked_lm_ids", 5, 1000),
            r"ids\[5\] is 1000 \(.+\); must be 0 for padding",
        ),
        (predict_last_sep, r"\(\[SEP\]\); must be a token .* never predicted"),
        (predict_last_sep_as_word, r"must be \[SEP\] at the end of the two sides"),
        (
            put("next_sentence_labels", 0, 2),
            r"labels\[0\] is 2; must be 0 \(the next sentence\)",
        ),
    ],
)
def test_a_broken_record_is_named(copy, capsys, spoil, line):
    batch = decoded(copy)
    spoil(batch)
    rewrite(copy, batch)
    status, lines = inspect(copy, capsys=capsys, num_shown=3)
    assert status == 1
    found = [text for text in lines if f"{copy}: record 3: " in text]
    assert re.search(line, found[-1])
    assert lines[-1].endswith("records in 1 file(s): 1 violation(s)")


def test_padding_ids_are_zero(copy, capsys):
    batch = decoded(copy)
    row = int(np.argmin(batch["input_mask"].sum(axis=1)))
    length = int(batch["input_mask"][row].sum())
    batch["input_ids"][row, length] = 1000
    rewrite(copy, batch)
    status, lines = inspect(copy, capsys=capsys, num_shown=0)
    assert status == 1
    assert f"{copy}: record {row + 1}: input_ids[{length}] is 1000" in lines[-2]
    assert lines[-2].endswith("must be 0 or [PAD] after the tokens")
    batch["input_ids"][row, length] = 0
    rewrite(copy, batch)
    assert inspect(copy, capsys=capsys)[0] == 0


# === All records together, and their description ===


def alone(path):
    """Takes the description away."""
    path.with_name(f"{path.name}.description.json").unlink()


def change_description(path, change):
    path = path.with_name(f"{path.name}.description.json")
    description = json.loads(path.read_text())
    change(description)
    path.write_text(json.dumps(description))


@pytest.mark.slow
def test_the_mask_rate_given_must_hold(copy, capsys):
    alone(copy)
    assert inspect(copy, capsys=capsys)[0] == 0
    assert inspect(copy, capsys=capsys, masked_lm_prob=0.15)[0] == 0
    status, lines = inspect(copy, capsys=capsys, masked_lm_prob=0.12)
    assert status == 1
    assert "predictions must match --masked_lm_prob (by default, the" in lines[-2]


def test_whole_words_may_leave_predictions_out_but_not_add_any(copy, capsys):
    def change(description):
        flags = description["origin"]["flags"]
        flags["do_whole_word_mask"], flags["masked_lm_prob"] = True, 0.17

    change_description(copy, change)
    status, lines = inspect(copy, capsys=capsys)
    assert status == 0

    def change_more(description):
        description["origin"]["flags"]["masked_lm_prob"] = 0.25

    change_description(copy, change_more)
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
    def change(description):
        description["origin"]["flags"]["random_next_sentences"] = False

    change_description(copy, change)
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


def test_repeated_records_are_counted(copy, capsys):
    alone(copy)
    copy.write_bytes(copy.read_bytes() * 2)
    status, lines = inspect(copy, capsys=capsys)
    assert status == 1
    assert "Repeated:       50.00% of the records" in lines
    assert "50.0% of those with 5 or more predictions do" in lines[-2]


def test_repeats_are_found_in_bounded_memory():
    repeats = Repeats(most_remembered=1000)
    rng = np.random.default_rng(0)
    for number in rng.permutation(np.repeat(np.arange(20_000), 2)):
        repeats.add(number.tobytes(), num_predictions=9)
    assert len(repeats) <= 1000
    assert repeats.kept_share == 1 / 32
    assert repeats.share() == 0.5


def test_a_description_must_agree(made, copy, capsys):
    name = f"{copy}.description.json"
    described = json.loads(pathlib.Path(name).read_text())
    status, lines = inspect(made / "part-0*2", capsys=capsys, num_shown=0)
    assert status == 0

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
    with pytest.raises(
        UserError, match="description.json: is not a description of records"
    ):
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
        (
            framing.frame([b"no proto"]),
            "record 1 is not a tf.train.Example; it is not a pre-training record",
        ),
        (
            framing.frame(
                encoding.encode(
                    {"label": np.ones((1, 1), int)},
                    (Feature("label", "int64", 1),),
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
    short = RowOptions(max_seq_length=16, max_predictions_per_seq=6).make().schema()
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
    with pytest.raises(UserError, match="masked_lm_prob=0: must be above 0"):
        inspect("x", capsys=capsys, masked_lm_prob=0.0)
    with pytest.raises(UserError, match="num_shown=-1: must be at least 0"):
        inspect("x", capsys=capsys, num_shown=-1)


def test_the_report_never_replaces_the_records(copy, capsys):
    before = copy.read_bytes()
    with pytest.raises(UserError, match="is also an input"):
        inspect(copy, capsys=capsys, report_file=str(copy))
    assert copy.read_bytes() == before


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
    schema = RowOptions(max_seq_length=12, max_predictions_per_seq=4).make().schema()
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


# === tf.train.Example, whoever encoded it ===


def test_examples_of_other_encoders_are_decoded():
    # Features in another order and under another name, one number a field.
    def field(tag, content):
        return bytes([tag, len(content)]) + content

    unpacked = field(0x1A, b"\x08\x07\x08\xac\x02")
    floats = field(0x12, b"\x0d" + np.float32(0.5).tobytes())
    example = field(
        0x0A,
        field(0x0A, field(0x0A, b"masked_lm_weights") + field(0x12, floats))
        + field(0x0A, field(0x0A, b"input_word_ids") + field(0x12, unpacked)),
    )
    schema = (
        Feature("input_ids", "int64", 2),
        Feature("masked_lm_weights", "float32", 1),
    )
    assert encoding.schema_of(example) == schema
    batch, faults = encoding.decode([example, b"", b"\x0a\x05", example], schema)
    assert batch["input_ids"][[0, 3]].tolist() == [[7, 300], [7, 300]]
    assert batch["masked_lm_weights"][[0, 3]].tolist() == [[0.5], [0.5]]
    assert faults == {1: "is not a tf.train.Example", 2: "is not a tf.train.Example"}


@hypothesis.given(
    strategies.lists(
        strategies.lists(strategies.integers(0, 2**63 - 1), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    )
)
def test_decoding_undoes_encoding(rows):
    schema = Feature("a", "int64", 3), Feature("b", "float32", 3)
    batch = {"a": np.array(rows), "b": np.array(rows, np.float32)}
    decoded, faults = encoding.decode(encoding.encode(batch, schema), schema)
    assert not faults
    for name, values in batch.items():
        np.testing.assert_array_equal(decoded[name], values)


@hypothesis.given(strategies.binary(max_size=40), strategies.integers(0, 200))
def test_no_bytes_confuse_the_decoder(noise, start):
    (example,) = encoding.encode(
        {"a": np.full((1, 9), 300), "b": np.ones((1, 9), np.float32)},
        schema := (
            Feature("a", "int64", 9),
            Feature("b", "float32", 9),
        ),
    )
    start %= len(example)
    broken = example[:start] + noise + example[start + len(noise) :]
    batch, faults = encoding.decode([broken, example], schema)
    assert (
        1 not in faults and (batch["a"][1] == 300).all() and (batch["b"][1] == 1).all()
    )
