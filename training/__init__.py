"""A run: steps, evaluation, checkpoints, distribution, reports.

Importing it loads TensorFlow, so a script imports it before anything that loads Keras.
"""

import os
import re
import sys
import tempfile

_NOTES = re.compile(
    rb"WARNING: All log messages before absl|I\d{4} |To enable the foll|"
    rb"E\d{4} .* cuInit: .*\(303\)"  # there is no driver: a machine without a GPU
)


def _load_tensorflow():
    """Loads TensorFlow without its start-up notes, which no log level holds back."""
    # Read when Keras and TensorFlow are first imported. The loop is tf.distribute's,
    # whatever backend the user's keras.json names.
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryFile() as written:
        stderr = os.dup(2)
        os.dup2(written.fileno(), 2)
        try:
            import tensorflow

            # Looks which devices there are, and takes none.
            tensorflow.config.list_physical_devices()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            written.seek(0)
            kept = [line for line in written if not _NOTES.match(line)]
            sys.stderr.write(b"".join(kept).decode(errors="replace"))


_load_tensorflow()

from training import determinism  # noqa: E402

determinism.keep_order_of_sums()
