"""Settings under which a run's bits depend on its command alone."""

import sys

import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2
from tensorflow.python.eager import context


def keep_order_of_sums() -> None:
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
            "bits; --deterministic makes them identical, but slower (--deterministic=false "
            "hides this message)",
            file=sys.stderr,
        )
