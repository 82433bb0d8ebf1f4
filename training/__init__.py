"""Training runs: steps, evaluation, checkpoints, distribution and reports.

Importing this package loads TensorFlow, so scripts import it before anything that loads
Keras, and take `tf` and `keras` from here: `from training import tf`.
"""

import contextlib
import gc
import os
import re
import sys
import tempfile

_NOTES = re.compile(
    rb"WARNING: All log messages before absl|I\d{4} |To enable the foll|"
    rb"E\d{4} .* cuInit: .*\(303\)"  # no driver: a machine without a GPU
)
_LOOKED_FOR = ("jax", "matplotlib", "sklearn")


@contextlib.contextmanager
def _held_back():
    """Keeps packages from being loaded that Keras and TensorFlow only look for.

    They take half the time of a start, and serve functions that nothing here calls, such
    as keras.wrappers.SKLearnClassifier, which is then not available in this process.
    """
    names = [name for name in _LOOKED_FOR if name not in sys.modules]
    sys.modules.update(dict.fromkeys(names))
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


def _load_tensorflow():
    """Loads TensorFlow without its start-up messages, which no log level suppresses."""
    # Both variables are read on first import. The loop uses tf.distribute, whatever
    # backend the user's keras.json names.
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _held_back(), tempfile.TemporaryFile() as written:
        stderr = os.dup(2)
        os.dup2(written.fileno(), 2)
        gc.disable()  # nothing is garbage yet; looking for it is a quarter of the time
        try:
            import tensorflow

            # Lists the devices without claiming any.
            tensorflow.config.list_physical_devices()
        finally:
            gc.enable()
            os.dup2(stderr, 2)
            os.close(stderr)
            written.seek(0)
            kept = [line for line in written if not _NOTES.match(line)]
            sys.stderr.write(b"".join(kept).decode(errors="replace"))


_load_tensorflow()

import keras  # noqa: E402, F401
import tensorflow as tf  # noqa: E402, F401

from training import determinism  # noqa: E402

determinism.keep_order_of_sums()
