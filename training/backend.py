"""Loads TensorFlow and Keras without their start-up messages.

Whatever else loads them would show the messages and take twice as long, so modules of
training/ take `tf` and `keras` from here, before they import from modeling/ or serving/.

Keras has the backend that its own setting names: KERAS_BACKEND, its keras.json, or that of
a Keras which is already loaded. Scripts set the variable (see command_line.py), `bert` does
not. On another backend than TensorFlow, TensorFlow only reads and writes files.
"""

import contextlib
import gc
import os
import platform
import re
import sys
import tempfile

from errors import UserError
from files import sources
from text import progress

_NOTES = re.compile(
    rb"WARNING: All log messages before absl|I\d{4} |To enable the foll|"
    rb"E\d{4} .* cuInit: .*\(303\)"  # no driver: a machine without a GPU
)
_LOOKED_FOR = ("matplotlib", "sklearn")


@contextlib.contextmanager
def _hold_back():
    """Keeps packages from being loaded that Keras and TensorFlow only look for.

    They take half the time of a start, and serve functions that nothing here calls, such
    as keras.wrappers.SKLearnClassifier, which is then not available in this process. JAX is
    one of them where it is certain that Keras does not run on it.
    """
    is_certain = os.environ.get("KERAS_BACKEND") == "tensorflow"
    names = (*_LOOKED_FOR, "jax") if is_certain else _LOOKED_FOR
    names = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(names))
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


def _load_tensorflow():
    """Loads TensorFlow without its start-up messages, which no log level suppresses."""
    # All variables are read on first import.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sources.limit_waiting()
    # oneDNN's routines, which TensorFlow itself takes from AVX-512 VNNI on only. With AVX2
    # an update takes less time with them, too: benchmarks/README.md.
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    progress.show("loading TensorFlow")
    with _hold_back(), tempfile.TemporaryFile() as written:
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
            progress.clear()
            written.seek(0)
            kept = [line for line in written if not _NOTES.match(line)]
            sys.stderr.write(b"".join(kept).decode(errors="replace"))


_load_tensorflow()

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.core.protobuf import rewriter_config_pb2  # noqa: E402
from tensorflow.python.eager import context  # noqa: E402
from tensorflow.python.framework.ops import uid  # noqa: E402, F401  numbers names

NAME = keras.backend.backend()
if NAME == "jax":
    import jax
else:
    jax = None


def require_tensorflow(what: str) -> None:
    """Refuses what only TensorFlow computes.

    Raises:
        UserError: Keras has another backend.
    """
    if NAME != "tensorflow":
        raise UserError(
            f"{what} needs TensorFlow, but Keras runs on {NAME}; start Python again with "
            "KERAS_BACKEND=tensorflow"
        )


def _leave_gpus() -> None:
    """Keeps TensorFlow, which would take their whole memory, from claiming any GPU."""
    with contextlib.suppress(RuntimeError):  # it already has them
        tf.config.set_visible_devices([], "GPU")


def _keep_order_of_sums() -> None:
    """Makes TensorFlow add three or more tensors in the order of the program.

    If it considers memory short, on a CPU from 205 MB on, its graph optimizer turns such
    a sum into additions in whatever order the terms become ready. This affects gradients
    of what several layers read, and anything added up in a chain: the same command then
    ends with different bits each time, even with op determinism. (Source:
    tensorflow/core/grappler/optimizers/memory_optimizer.cc, SchedulingPass.) No public
    function switches that off; test_determinism.py shows whether this still does.
    """
    config = tf.compat.v1.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.memory_optimization = rewriter_config_pb2.RewriterConfig.NO_MEM_OPT
    context.context()._config = config


_keep_order_of_sums()
if NAME != "tensorflow":
    _leave_gpus()
