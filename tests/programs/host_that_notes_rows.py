"""Runs a script, with its flags, on a host that notes the rows of a mixture that it reads.

host_that_notes_rows.py FILE SCRIPT FLAGS
"""

import runpy
import sys

from training.backend import tf
from text.records.mixed import MixedRecords

_training, _path = MixedRecords.training, sys.argv[1]


def _note(batch):
    text = tf.strings.as_string(batch["input_ids"])
    record = tf.strings.to_hash_bucket_fast(tf.strings.reduce_join(text, 1), 1 << 60)
    columns = (batch["row_numbers"], batch["source"], record)
    rows = tf.stack([tf.cast(column, tf.int64) for column in columns], axis=1)
    tf.print(rows, summarize=-1, output_stream=f"file://{_path}")
    return batch


def _noting(self, *args, **given):
    return _training(self, *args, **given).map(_note)


MixedRecords.training = _noting
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
