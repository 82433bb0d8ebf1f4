"""TFRecord files: what is written is what TensorFlow reads, and damage is named."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import UserError
from text.instances.table import RowOptions
from text.records import encoding, framing
from text.records.schema import Feature

BIG = [0, 1, 127, 128, 16383, 16384, 70_000, (1 << 21) - 1, 1 << 21, (1 << 31) - 1]


def make_batch(schema, batch_size, seed=0, largest=70_000):
    rng = np.random.default_rng(seed)
    batch = {}
    for name, dtype, length, _ in schema:
        if dtype == "float32":
            batch[name] = rng.random((batch_size, length), np.float32)
        else:
            batch[name] = rng.integers(0, largest, (batch_size, length), np.int32)
    return batch


def test_tensorflow_reads_what_is_encoded():
    import tensorflow as tf

    # Rows of 512 ids of one to three bytes each, so that the lengths take two, too.
    schema = (
        RowOptions(max_seq_length=512, max_predictions_per_seq=76)
        .make_instances()
        .schema()
    )
    batch = make_batch(schema, 7)
    batch["input_mask"] = (batch["input_mask"] % 2).astype(np.uint8)
    batch["input_ids"] >>= np.arange(512) % 20
    for row, example in enumerate(encoding.encode(batch, schema)):
        parsed = tf.train.Example.FromString(example)
        assert sorted(parsed.features.feature) == sorted(batch)
        for name, dtype, *_ in schema:
            kind = "float_list" if dtype == "float32" else "int64_list"
            values = getattr(parsed.features.feature[name], kind).value
            assert list(values) == batch[name][row].tolist()
        # No byte more than TensorFlow's own encoder, which may order the features anew.
        again = parsed.SerializeToString(deterministic=True)
        assert len(again) == len(example)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_tensorflow_reads_what_is_framed(tmp_path, compression):
    import tensorflow as tf

    examples = [b"one", b"", b"x" * 100_000]
    content = framing.frame(examples)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(content) if compression else content)
    dataset = tf.data.TFRecordDataset(str(path), compression)
    assert [record.numpy() for record in dataset] == examples
    assert list(framing.read(str(path))) == examples


def test_a_large_batch_is_encoded_as_its_rows():
    schema = (Feature("ids", "int64", 5), Feature("weights", "float32", 2))
    rng = np.random.default_rng(0)
    batch = {
        "ids": rng.choice([0, 127, 128, 16383, 16384, 1 << 40], (600, 5)),
        "weights": rng.random((600, 2), np.float32),
    }
    examples = encoding.encode(batch, schema)
    for row, example in enumerate(examples):
        one = {name: values[row : row + 1] for name, values in batch.items()}
        assert encoding.encode(one, schema) == [example]
    nothing = {name: values[:0] for name, values in batch.items()}
    assert encoding.encode(nothing, schema) == []


def test_the_bytes_of_an_example():
    schema = (Feature("ab", "int64", 3), Feature("c", "float32", 1))
    batch = {"ab": np.array([[1, 300, 0]]), "c": np.array([[1.0]], np.float32)}
    (example,) = encoding.encode(batch, schema)
    assert example == bytes.fromhex(
        "0a 1f"  # Features
        "0a 0e  0a 02 61 62  12 08 1a 06 0a 04 01 ac 02 00"  # "ab": Int64List
        "0a 0d  0a 01 63  12 08 12 06 0a 04 00 00 80 3f"  # "c": FloatList
    )


INT_TYPES = st.sampled_from([np.uint8, np.uint16, np.int32, np.uint32, np.int64])


@given(st.data(), st.integers(1, 4), st.integers(1, 150), INT_TYPES)
def test_what_is_encoded_is_decoded(data, batch_size, length, dtype):
    schema = (Feature("n", "int64", length), Feature("w", "float32", 2))
    largest = np.iinfo(dtype).max
    numbers = st.sampled_from([n for n in BIG if n <= largest])
    row = st.lists(numbers, min_size=length, max_size=length)
    batch = {
        "n": np.array([data.draw(row) for _ in range(batch_size)], dtype),
        "w": np.arange(2 * batch_size, dtype=np.float32).reshape(batch_size, 2) / 3,
    }
    batch["n"][-1, -1] = largest
    decoded, faults = encoding.decode(encoding.encode(batch, schema), schema)
    assert not faults
    assert decoded["n"].tolist() == batch["n"].tolist()
    assert decoded["w"].tolist() == batch["w"].tolist()


def flip(content, at):
    changed = bytearray(content)
    changed[at] ^= 1
    return bytes(changed)


GOOD = framing.frame([b"first record", b"second record"])
FIRST = 12 + 12 + 4  # bytes of the first record with its frame


DAMAGED = {
    "within the last checksum": (GOOD[:-1], "record 2: the file ends within it"),
    "within a header": (GOOD[: FIRST + 5], "record 2: the file ends within it"),
    "behind a header": (GOOD[: FIRST + 12], "record 2: the file ends within it"),
    "a length": (flip(GOOD, FIRST), "record 2: the length's checksum is wrong"),
    "a content": (flip(GOOD, FIRST + 15), "record 2: the data's checksum is wrong"),
    "a checksum": (flip(GOOD, -1), "record 2: the data's checksum is wrong"),
    "text": (b"a text file, no records", "record 1: the length's checksum is wrong"),
    "a huge record": (
        framing._header(1 << 40),
        "record 1: has 1,099,511,627,776 bytes",
    ),
    "packed, cut": (gzip.compress(GOOD)[:-9], "the compressed data is damaged"),
    "packed, flipped": (flip(gzip.compress(GOOD), -5), "compressed data is damaged"),
}


@pytest.mark.parametrize("content, message", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_named_by_record(tmp_path, content, message):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"a.tfrecord: .*{message}"):
        list(framing.read(str(path)))


def test_an_empty_file_has_no_records(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"")
    assert list(framing.read(str(path))) == []
