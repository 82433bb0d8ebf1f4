"""Chooses the devices of a run, and coordinates its hosts."""

import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

from training.backend import require_tensorflow, tf
from errors import UserError, count
from files import json_files
from text.records import reading

_GPU_DEVICE = r"nvidia\d+|dxg"  # on Linux; on Windows' Linux
# TensorFlow's message when one host waits for another that has ended.
_LEFT_ALONE = "Collective ops is aborted"

_Result = TypeVar("_Result")


def make(kind: str, *, tpu: str | None = None, zone=None, project=None):
    """Makes the strategy under whose scope a run creates its variables.

    Call it before anything else in TensorFlow runs.

    Args:
        kind: "one" device; "mirrored": every GPU of this host, or its logical CPUs;
            "multi_worker": the hosts that TF_CONFIG lists; "tpu".
        tpu, zone, project: which TPU; as `TPUClusterResolver` takes them.
    Returns:
        tf.distribute.Strategy.
    Raises:
        UserError: TF_CONFIG is absent or malformed, or the TPU cannot be reached; or Keras
            has another backend.
    """
    require_tensorflow("a script")
    _warn_of_unseen_gpu()
    if kind == "mirrored":
        devices = tf.config.list_logical_devices("GPU")
        devices = devices or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    if kind == "multi_worker":
        _check_tf_config()
        tf.get_logger().setLevel("ERROR")  # it notes every exchange between hosts
        return tf.distribute.MultiWorkerMirroredStrategy()
    if kind == "tpu":
        return _connect_tpu(tpu, zone, project)
    return tf.distribute.get_strategy()


def _warn_of_unseen_gpu():
    """Says so if the run is on the CPU of a machine that has a GPU, unasked."""
    has_one = any(re.fullmatch(_GPU_DEVICE, name) for name in os.listdir("/dev"))
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    if has_one and not is_hidden and not gpus():
        print(
            "warning: this machine has a GPU that TensorFlow cannot use, so the CPU "
            "computes; nvidia-smi shows whether the driver works, and pip install "
            "'tensorflow[and-cuda]' adds the libraries that TensorFlow needs",
            file=sys.stderr,
        )


def gpus() -> list[str]:
    """The names of the GPUs that TensorFlow sees, such as "NVIDIA H200"."""
    details = map(
        tf.config.experimental.get_device_details,
        tf.config.list_physical_devices("GPU"),
    )
    return [of_one.get("device_name", "unknown") for of_one in details]


def description(strategy) -> str:
    """How many devices a run is on, and their kind if these are GPUs."""
    replicas, names = strategy.num_replicas_in_sync, gpus()
    if not names or isinstance(strategy, tf.distribute.TPUStrategy):
        return count(replicas, "device")
    kinds = " and ".join(sorted({*names[:replicas]}))
    return f"{count(replicas, 'GPU')}, {kinds}"


def _check_tf_config() -> None:
    example = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", ...}}'
    try:
        config = json_files.parse(os.environ["TF_CONFIG"])
        config["cluster"][config["task"]["type"]][config["task"]["index"]]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise UserError(
            f"TF_CONFIG is {os.environ.get('TF_CONFIG')!r}; --distribution=multi_worker "
            f"needs it on every host, like {example} with this host's index"
        ) from error


def _connect_tpu(tpu, zone, project):
    tf.get_logger().setLevel("ERROR")  # it notes every step of the connection
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=tpu, zone=zone, project=project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        # What follows is about TensorFlow's own operations.
        reason = " ".join(str(error).partition("No OpKernel")[0].split())
        reason = reason.removesuffix(" Failed in initialization:")
        raise UserError(f"TPU {tpu!r} cannot be reached: {reason}") from error
    return tf.distribute.TPUStrategy(resolver)


@contextlib.contextmanager
def report_lost_hosts() -> Iterator[None]:
    """Wraps a whole run; says in one line if another host left it.

    Raises:
        UserError: another host refused the run or failed while this one waited for it.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if _LEFT_ALONE not in error.message:
            raise
        raise UserError("another host ended or refused; see its output") from error


def is_chief(strategy) -> bool:
    """Whether this host writes checkpoints and reports."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return True
    resolver = strategy.cluster_resolver
    chief = "chief" if "chief" in resolver.cluster_spec().jobs else "worker"
    return (resolver.task_type, resolver.task_id) == (chief, 0)


def distribute(strategy, make_dataset: Callable[[reading.Part], tf.data.Dataset]):
    """An iterator whose elements `strategy.run` splits over the replicas.

    Args:
        make_dataset: maps the part that a host reads to its batches, one for each of
            its replicas in turn. The caller must not take more than there are.
    """

    def of_host(context):
        part = reading.Part(
            host=context.input_pipeline_id,
            hosts=context.num_input_pipelines,
            replicas=context.num_replicas_in_sync,
        )
        # If a dataset could end, batches of several hosts would lose their static shape.
        return make_dataset(part).repeat()

    return iter(strategy.distribute_datasets_from_function(of_host))


def first(strategy, values):
    """The first replica's values, of values that are equal on all."""
    return tf.nest.map_structure(
        lambda value: strategy.experimental_local_results(value)[0], values
    )


def rows_of_all(outputs: dict) -> dict:
    """In a replica: the rows of all replicas; scalars, sums over a batch, are left out."""
    context = tf.distribute.get_replica_context()
    return {
        name: context.all_gather(x, axis=0)
        for name, x in outputs.items()
        if x.shape.rank
    }


def total(values):
    """The sum over all replicas of each tensor of a structure; called by every replica."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values  # TensorFlow would trace six operations for each
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def _everyones(strategy, number):
    """The replicas' numbers, in order, each a scalar; waits for all hosts."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return [number]  # one host

    def gather():
        context = tf.distribute.get_replica_context()
        # Sums vectors with one entry each: all devices can sum int32, and exactly.
        one_hot = tf.one_hot(
            context.replica_id_in_sync_group,
            strategy.num_replicas_in_sync,
            on_value=tf.cast(number, tf.int32),
            off_value=0,
            dtype=tf.int32,
        )
        return total(one_hot)

    return tf.unstack(first(strategy, strategy.run(tf.function(gather))))


def smallest(strategy, count):
    """In a `tf.function`: the smallest of the hosts' counts, the same on all of them.

    TensorFlow pairs what hosts exchange in a loop by the number of the iteration. If one
    host's loop is longer, each waits for the other for ever.

    Args:
        count: int64 scalar.
    """
    return tf.cast(functools.reduce(tf.minimum, _everyones(strategy, count)), tf.int64)


def any_host(strategy, value: bool) -> bool:
    """Whether `value` is true on any host; waits for all."""
    return any(_everyones(strategy, int(value)))


def check_same(strategy, number: int, message: str) -> None:
    """Waits for all hosts, and refuses a run if their numbers differ.

    Raises:
        UserError: with this message, on every host.
    """
    if len({int(n) for n in _everyones(strategy, number)}) > 1:
        raise UserError(message)


def on_chief(strategy, work: Callable[[], _Result]) -> _Result | None:
    """Lets the chief do something while the other hosts wait for it.

    Returns:
        what that gave the chief; None on other hosts.
    Raises:
        UserError: the chief's work raised it; raised on every host, because none can
            continue without the others.
    """
    result = refusal = None
    if is_chief(strategy):
        try:
            result = work()
        except UserError as error:
            refusal = error
    if refusal:
        # A host that heard of it may end while this one still waits for its answer.
        with contextlib.suppress(tf.errors.OpError):
            any_host(strategy, True)
        raise refusal
    if any_host(strategy, False):
        raise UserError("the chief refused the run; see its output")
    return result
