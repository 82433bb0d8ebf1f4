"""Settings under which a run's bits depend on its command alone."""

import sys

from training.backend import tf


def configure(deterministic: bool | None, allow_tf32: bool) -> None:
    """Sets what GPUs may trade for speed; call it before anything is computed.

    Args:
        deterministic: make every operation give the same bits each time; None leaves a
            GPU as it is and says so. CPUs and TPUs always do.
        allow_tf32: let GPUs round the factors of float32 matrix products.
    """
    tf.config.experimental.enable_tensor_float_32_execution(allow_tf32)
    if deterministic:
        tf.config.experimental.enable_op_determinism()
    elif deterministic is None and tf.config.list_physical_devices("GPU"):
        print(
            "GPUs add in no fixed order, so runs of the same command differ in their last "
            "bits; --deterministic makes them identical, but is slower, and without XLA "
            "unless --xla is given (--deterministic=false hides this message)",
            file=sys.stderr,
        )
