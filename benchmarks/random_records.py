"""Writes random records of pre-training, with the description that
create_pretraining_data.py would write; needs no TensorFlow.
"""

import os

import numpy as np

from text.instances.table import RowOptions
from text.records import descriptions, encoding, framing

VOCAB_SIZE = 30522
_FILES = 8
_FIRST_WORD = 1000  # ids before it are special tokens, or unused
_SPECIAL_IDS = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
_FLAGS = ("instances", "masking", "do_whole_word_mask")


def write(
    folder: str, count: int, rows: RowOptions, vocab_size: int = VOCAB_SIZE
) -> str:
    """Writes full rows of random tokens into several files; returns their pattern.

    Args:
        vocab_size: more than 1,000; ids are below it.
    """
    rng = np.random.default_rng(0)
    schema = rows.make_instances().schema()
    outputs = []
    for number in range(_FILES):
        name = f"records-{number}"
        instances = count * (number + 1) // _FILES - count * number // _FILES
        offsets = []
        with open(os.path.join(folder, name), "wb") as file:
            for begin in range(0, instances, descriptions.OFFSET_EVERY):
                size = min(descriptions.OFFSET_EVERY, instances - begin)
                batch = {f.name: _values(f, size, vocab_size, rng) for f in schema}
                offsets.append(file.tell())
                file.write(framing.frame(encoding.encode(batch, schema)))
            output = {"file": name, "instances": instances, "bytes": file.tell()}
        outputs.append(output | {"offsets": offsets})
    descriptions.Description(
        outputs,
        format=2,
        max_seq_length=rows.max_seq_length,
        max_predictions_per_seq=rows.max_predictions_per_seq,
        vocab_size=vocab_size,
        special_ids=_SPECIAL_IDS,
        instances=count,
        origin={"flags": {name: getattr(rows, name) for name in _FLAGS}},
    ).write(os.path.join(folder, "records-0" + descriptions.SUFFIX))
    return os.path.join(folder, "records-?")


def _values(feature, count, vocab_size, rng):
    """Of one feature: ids of words, masks of ones, anything that is allowed elsewhere."""
    shape = (count, feature.length)
    if feature.name in ("input_mask", "masked_lm_weights"):
        return np.ones(shape, np.int64)
    if feature.below == "vocab_size":
        return rng.integers(_FIRST_WORD, vocab_size, shape)
    below = feature.below if isinstance(feature.below, int) else 2
    return rng.integers(0, below, shape)
