"""tf.train.Example, whoever encoded it."""

import hypothesis
import numpy as np
from hypothesis import strategies

from text.records import encoding
from text.records.schema import Feature


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


@hypothesis.given(strategies.binary(max_size=40), strategies.integers(0, 200))
def test_no_bytes_confuse_the_decoder(noise, start):
    (example,) = encoding.encode(
        {"a": np.full((1, 9), 300), "b": np.ones((1, 9), np.float32)},
        schema := (Feature("a", "int64", 9), Feature("b", "float32", 9)),
    )
    start %= len(example)
    broken = example[:start] + noise + example[start + len(noise) :]
    batch, faults = encoding.decode([broken, example], schema)
    assert (
        1 not in faults and (batch["a"][1] == 300).all() and (batch["b"][1] == 1).all()
    )
