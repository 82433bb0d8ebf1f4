"""Runs the network of an export, in each form that it may have, on one row after another.

A runtime is loaded when it is asked for. What runs is a function from int32 arrays by
name, [rows, ...], to float32 arrays.
"""

import abc
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from files import anywhere


class NetworkFile(abc.ABC):
    """A network in a file.

    Attributes:
        shapes: of its inputs by name, if they are fixed; it takes any number of rows.
    """

    shapes: Mapping[str, tuple[int, ...]] | None = None

    @abc.abstractmethod
    def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs for some rows."""


def open_saved_model(folder: str) -> Callable[[Mapping], dict]:
    """The SavedModel of the network alone."""
    loaded = tf.saved_model.load(folder)

    def run(batch):
        tensors = {name: tf.constant(values) for name, values in batch.items()}
        outputs = loaded.signatures["serving_default"](**tensors)
        return {name: value.numpy() for name, value in outputs.items()}

    return run


def open_file(name: str, file: str, num_threads: int = 0) -> NetworkFile:
    """A network in one of `portable.FORMATS`; 0 threads: one for each core."""
    with anywhere.open_file(file) as opened:
        content = opened.read()
    return {"onnx": _Onnx, "litert": _LiteRt}[name](content, num_threads)


class _Onnx(NetworkFile):
    def __init__(self, content: bytes, num_threads: int):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = num_threads
        options.log_severity_level = 3  # errors
        self._session = onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
        self._names = [output.name for output in self._session.get_outputs()]

    def __call__(self, batch):
        outputs = self._session.run(self._names, dict(batch))
        return dict(zip(self._names, outputs, strict=True))


class _LiteRt(NetworkFile):
    """Takes rows of one length, and one at a time."""

    def __init__(self, content: bytes, num_threads: int):
        from ai_edge_litert.interpreter import Interpreter

        self._lock = threading.Lock()
        with _silent():
            interpreter = Interpreter(
                model_content=content, num_threads=num_threads or os.cpu_count()
            )
            self._runner = interpreter.get_signature_runner("serving_default")
            self.shapes = {
                name: tuple(map(int, details["shape"]))
                for name, details in self._runner.get_input_details().items()
            }
            # The first call starts more.
            self({k: np.zeros(shape, np.int32) for k, shape in self.shapes.items()})

    def __call__(self, batch):
        with self._lock:
            rows = [
                self._runner(**{k: values[i : i + 1] for k, values in batch.items()})
                for i in range(len(batch["input_ids"]))
            ]
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


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
