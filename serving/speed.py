"""Times forms of a network, which take turns on one thread; run as a program.

    python -m serving.speed '{"onnx": ["float32.onnx", "int8.onnx"]}' rows.npz

The first argument has the paths of two models for each runtime; rows.npz has their inputs.
Prints, as JSON, how many times as fast the second is by form: the median of rounds in which
each model reads each row, one at a time.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from files import sources
from serving import runtimes

_ROUNDS = 5  # and one before them, which does not count
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def measure(
    forms: Mapping[str, tuple[str, str]], batch: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """How many times as fast the second model of each form is; in another process.

    Args:
        forms: runtime, "saved_model" or one of `portable.FORMATS` -> the two models' paths.
        batch: rows, int32 arrays by name.
    """
    with tempfile.TemporaryDirectory() as scratch:
        rows = os.path.join(scratch, "rows.npz")
        asked = json.dumps({k: [*map(_absolute, v)] for k, v in forms.items()})
        np.savez(rows, **batch)
        command = [sys.executable, "-m", "serving.speed", asked, rows]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
        environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=_ROOT,
            env=environment,
            check=True,
        )
    return json.loads(done.stdout.strip().splitlines()[-1])


def _absolute(path):
    return path if sources.is_remote(path) else os.path.abspath(path)


def _main(asked, rows):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    def load(form, path):
        if form == "saved_model":
            return runtimes.open_saved_model(path)
        return runtimes.open_file(form, path, 1)

    forms = json.loads(asked)
    with np.load(rows) as arrays:
        batch = dict(arrays)
    ratios = {
        form: _ratio([load(form, path) for path in paths], batch)
        for form, paths in forms.items()
    }
    print(json.dumps(ratios))


def _ratio(models, batch):
    rows = [
        {name: values[i : i + 1] for name, values in batch.items()}
        for i in range(len(batch["input_ids"]))
    ]
    ratios = []
    for _ in range(1 + _ROUNDS):
        seconds = [0.0 for _ in models]
        for row in rows:
            for number, run in enumerate(models):
                began = time.perf_counter()
                run(row)
                seconds[number] += time.perf_counter() - began
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios[1:])


if __name__ == "__main__":
    _main(*sys.argv[1:])
