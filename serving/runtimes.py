"""Runs the network of an export, in each form that it may have, on one row after another.

A runtime is loaded when it is asked for. What runs is a function from int32 arrays by
name, [rows, ...], to float32 arrays.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from files import anywhere

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def open_saved_model(folder: str) -> Run:
    """The SavedModel of the network alone."""
    loaded = tf.saved_model.load(folder)

    def run(batch):
        tensors = {name: tf.constant(values) for name, values in batch.items()}
        outputs = loaded.signatures["serving_default"](**tensors)
        return {name: value.numpy() for name, value in outputs.items()}

    return run


def open_file(name: str, file: str, num_threads: int = 0) -> Run:
    """A network in one of `portable.FORMATS`; 0 threads: one for each core."""
    with anywhere.open_file(file) as opened:
        content = opened.read()
    return {"onnx": _open_onnx, "litert": _open_litert}[name](content, num_threads)


def _open_onnx(content: bytes, num_threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = num_threads
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(
        content, options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return lambda batch: dict(zip(names, session.run(names, dict(batch)), strict=True))


def _open_litert(content: bytes, num_threads: int) -> Run:
    # It takes rows of one length, and one at a time.
    from ai_edge_litert.interpreter import Interpreter

    with _silent():
        interpreter = Interpreter(
            model_content=content, num_threads=num_threads or os.cpu_count()
        )
        runner = interpreter.get_signature_runner("serving_default")
    lock = threading.Lock()

    def run(batch):
        with lock, _silent():  # the first call starts more
            rows = [
                runner(**{name: values[i : i + 1] for name, values in batch.items()})
                for i in range(len(batch["input_ids"]))
            ]
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    return run


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Drops what C++ code says on stderr, such as that it was started."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
