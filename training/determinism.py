"""Settings that make a run's bits follow from its command alone."""

import sys

import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2
from tensorflow.python.eager import context


def keep_order_of_sums() -> None:
    """Has TensorFlow add three tensors or more in the order of the program.

    Where it takes memory to be short, and on a CPU it does from 205 MB on, its graph
    optimizer turns such a sum into additions in whatever order the terms are ready. These
    are gradients of what several layers read, and anything added up in a chain: the same
    command then ends with other bits each time, op determinism or not. (Source:
    tensorflow/core/grappler/optimizers/memory_optimizer.cc, SchedulingPass.) No public
    function switches that off; tests/test_determinism.py says whether this still does.
    """
    config = tf.compat.v1.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.memory_optimization = rewriter_config_pb2.RewriterConfig.NO_MEM_OPT
    context.context()._config = config


def configure(deterministic: bool | None, allow_tf32: bool) -> None:
    """Sets what GPUs may do to speed; to be called before anything is computed.

    Args:
        deterministic: have every operation give the same bits each time; None leaves a
            GPU as it is and says so. CPUs and TPUs need nothing.
        allow_tf32: let GPUs round the factors of float32 matrix products.
    """
    tf.config.experimental.enable_tensor_float_32_execution(allow_tf32)
    if deterministic:
        tf.config.experimental.enable_op_determinism()
    elif deterministic is None and tf.config.list_physical_devices("GPU"):
        print(
            "GPUs add in no fixed order, so that runs of one command differ in their last "
            "bits; --deterministic makes them equal, and slower (--deterministic=false "
            "leaves out this line)",
            file=sys.stderr,
        )
