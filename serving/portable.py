"""Converts the network of an export to ONNX and LiteRT, each checked by its own runtime.

It loads TensorFlow when it converts, so that --help can list the formats at once.
"""

import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from errors import UserError

_NEEDED = {"onnx": ("tf2onnx", "onnxruntime"), "litert": ("ai_edge_litert",)}
FORMATS = tuple(_NEEDED)


def check_known(formats: list[str]) -> None:
    """Refuses an unknown format."""
    for name in formats:
        if name not in FORMATS:
            raise UserError(f"--export_formats={name}: not one of {', '.join(FORMATS)}")


def check_installed(formats: list[str]) -> None:
    """Refuses a format if the packages that write and run it are not installed."""
    for name in formats:
        for module in _NEEDED[name]:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise UserError(
                    f"--export_formats={name} needs more packages; run pip install -r "
                    f"requirements/{name}.txt ({error})"
                ) from error


def write(
    name: str,
    saved_model: str,
    directory: str,
    batch: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Converts a network, and returns the file's outputs for a batch.

    model.onnx takes any number of rows and tokens; model.tflite takes one row, as long as
    those of the batch.

    Args:
        name: one of FORMATS.
        saved_model: the folder of the network alone.
        batch: int32 arrays.
    """
    import tensorflow as tf

    loaded = tf.saved_model.load(saved_model)
    serve = loaded.signatures["serving_default"]
    make = {"onnx": _onnx, "litert": _litert}[name]
    content, run = make(serve, loaded, batch)
    file = os.path.join(
        directory, {"onnx": "model.onnx", "litert": "model.tflite"}[name]
    )
    with tf.io.gfile.GFile(file, "wb") as opened:
        opened.write(content)
    return run(batch)


def _onnx(serve, loaded, batch) -> tuple[bytes, Callable]:
    import onnxruntime
    import tensorflow as tf
    import tf2onnx
    from tf2onnx import optimizer

    # It removes a reshape whose sizes the next one keeps, as after a layer without a bias.
    optimizer._optimizers.pop("remove_back_to_back", None)
    logging.getLogger("tf2onnx").setLevel("ERROR")
    # It warns of its own temporary tables; export.py sets the level back.
    tf.get_logger().setLevel("ERROR")
    specs = [
        tf.TensorSpec([None] * values.ndim, tf.int32, name)
        for name, values in batch.items()
    ]

    def call(*tensors):
        return serve(**dict(zip(batch, tensors, strict=True)))

    model, _ = tf2onnx.convert.from_function(
        tf.function(call, autograph=False), input_signature=specs, opset=18
    )
    _name_axes(model.graph, batch, serve(**_tensors(batch)))
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return content, lambda batch: dict(
        zip(names, session.run(names, dict(batch)), strict=True)
    )


def _tensors(batch):
    import tensorflow as tf

    return {name: tf.constant(values) for name, values in batch.items()}


def _name_axes(graph, batch, outputs) -> None:
    """Names the axes of any size in an ONNX graph, which come as numbers.

    Args:
        batch, outputs: arrays by name, whose sizes tell which axes are the same.
    """
    names_of = {}  # names by size, for the axes of the outputs
    for value in graph.input:
        last = "predictions" if value.name == "masked_lm_positions" else "sequence"
        axes = value.type.tensor_type.shape.dim
        names = ["batch", *["choices"] * (len(axes) - 2), last]
        for axis, name, size in zip(axes, names, batch[value.name].shape, strict=True):
            axis.dim_param = name
            names_of.setdefault(size, set()).add(name)
    for value in graph.output:
        first, *others = value.type.tensor_type.shape.dim
        first.dim_param = "batch"
        for axis, size in zip(others, outputs[value.name].shape[1:], strict=True):
            names = names_of.get(size, set()) - {"batch"}
            if not axis.dim_value:
                axis.dim_param = names.pop() if len(names) == 1 else ""


def _litert(serve, loaded, batch) -> tuple[bytes, Callable]:
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    # Without fixed lengths, it lacks operations.
    specs = {
        name: tf.TensorSpec([1, *values.shape[1:]], tf.int32, name)
        for name, values in batch.items()
    }
    function = tf.function(lambda **tensors: serve(**tensors), autograph=False)
    function = function.get_concrete_function(**specs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], loaded)
    content = converter.convert()
    with _silent():
        runner = Interpreter(model_content=content)
        runner = runner.get_signature_runner("serving_default")

    def run(batch):
        with _silent():  # the first call starts more
            rows = [
                runner(**{name: values[i : i + 1] for name, values in batch.items()})
                for i in range(len(batch["input_ids"]))
            ]
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    return content, run


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
