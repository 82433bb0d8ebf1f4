"""Lists the operations of an update of pre-training by the time they take, and says how
much of the update its products of matrices would take alone.

python -m benchmarks.step_profile --dtype=mixed_bfloat16

The times are those of single operations; several run at once, so they add up to
more than the update takes.
"""

import collections
import dataclasses
import glob
import os
import statistics
import tempfile
import time

from tensorflow.tsl.profiler.protobuf import xplane_pb2

import command_line
import options
from training.backend import tf
from benchmarks import flop, products, training

_UPDATES = 5
# What the runtime notes of itself, not of operations.
_RUNTIME = {
    "Process",
    "_updates",
    "EagerExecute",
    "EagerKernelExecute",
    "TFE_Py_ExecuteCancelable",
    "Run",
    "Start",
    "Done",
    "Execute",
    "ExecuteAsyncOnStream",
    "BlockUntilReady",
}


@dataclasses.dataclass(frozen=True)
class Options(training.Options):
    dtype: str = options.field("float32", help="float32 or mixed_bfloat16.")
    num_shown: int = options.field(25, help="Operations in the list.")


def operations(update) -> list[tuple[str, float, float]]:
    """Kind, milliseconds and number in one update of each operation, longest first."""
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        for _ in range(_UPDATES):
            update()
        tf.profiler.experimental.stop()
        [path] = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
        space = xplane_pb2.XSpace()
        with open(path, "rb") as file:
            space.ParseFromString(file.read())
    spent, number = collections.Counter(), collections.Counter()
    for plane in space.planes:
        if "CPU" not in plane.name:
            continue
        for event in (event for line in plane.lines for event in line.events):
            name = plane.event_metadata[event.metadata_id].name
            kind = name.rpartition(":")[2]
            if kind in _RUNTIME or "__inference" in kind:
                continue
            spent[kind] += event.duration_ps / 1e9 / _UPDATES
            number[kind] += 1 / _UPDATES
    return [(kind, spent[kind], number[kind]) for kind, _ in spent.most_common()]


def _products(chosen, update):
    """What products of matrices would take alone, of an update of so many seconds."""
    dtype = tf.bfloat16 if "bfloat16" in chosen.dtype else tf.float32
    of_update = flop.of_update(chosen)
    alone = sum(products.seconds(product, dtype) for product in of_update)
    total = sum(product.flop for product in of_update)
    return (
        f"{alone * 1000:.0f} ms, {alone / update:.0%} of it, would take its products of "
        f"matrices alone: {total / 1e9:.0f} GFLOP at {total / alone / 1e9:.0f} GFLOP/s"
    )


def main(chosen: Options) -> None:
    """Prints the list."""
    update = training.updater(chosen, chosen.dtype, xla=False)
    seconds = []
    for _ in range(chosen.repeats):
        began = time.perf_counter()
        update()
        seconds.append(time.perf_counter() - began)
    median = statistics.median(seconds)
    print(f"{median * 1000:.0f} ms an update, {chosen.dtype}")
    print(_products(chosen, median))
    for kind, spent, number in operations(update)[: chosen.num_shown]:
        print(f"{spent:8.1f} ms {number:6.0f} times {kind}")


if __name__ == "__main__":
    command_line.run(main, Options)
