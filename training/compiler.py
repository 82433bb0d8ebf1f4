"""Which parts of a training step TensorFlow compiles; see modeling/fusion.py."""

from collections.abc import Callable

import keras
import tensorflow as tf

# With fewer weights, compiling (seconds) takes longer than it saves.
_FEWEST_WEIGHTS = 1_000_000


def for_model(model) -> Callable | None:
    """The compiler for `fusion.compiled_by` while this model trains.

    None on GPUs and TPUs: the first were never measured and need parts of CUDA that
    are often absent; the second compile everything.
    """
    weights = sum(v.shape.num_elements() for v in model.weights)
    on_cpu = not tf.config.list_logical_devices("GPU") and not _is_tpu()
    return compiled if on_cpu and weights >= _FEWEST_WEIGHTS else None


def _is_tpu():
    return isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)


def compiled(function: Callable) -> Callable:
    """Compiles `function` for the shapes and constants of each call."""
    compiled = tf.function(function, jit_compile=True, autograph=False)

    def call(*args):
        # A variable would be given by reference, and be read at another time.
        return compiled(
            *(tf.convert_to_tensor(a) if _is_variable(a) else a for a in args)
        )

    return call


def _is_variable(value):
    return isinstance(value, (keras.Variable, tf.Variable))
