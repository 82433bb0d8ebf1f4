"""Converts the network of an export to ONNX and LiteRT, in one of several precisions.

It loads TensorFlow when it converts, so that --help can list the formats at once.
"""

import importlib
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from errors import UserError


class _Format(NamedTuple):
    """A row of the table.

    Attributes:
        modules: what writes and runs it; the last one runs it.
        file: its name.
        precisions: what it has.
    """

    modules: tuple[str, ...]
    file: str
    precisions: tuple[str, ...]


PRECISIONS = ("float32", "bfloat16", "float16", "int8")  # of a SavedModel
_FORMATS = {
    "onnx": _Format(
        ("tf2onnx", "onnxruntime"), "model.onnx", ("float32", "float16", "int8")
    ),
    "litert": _Format(
        ("ai_edge_litert",), "model.tflite", ("float32", "float16", "int8")
    ),
}
FORMATS = tuple(_FORMATS)
_LARGE = 1024  # numbers; fewer are kept in float32


def check_known(formats: list[str], precision: str) -> None:
    """Refuses an unknown format, and one that lacks a precision."""
    for name in formats:
        if name not in FORMATS:
            raise UserError(f"--export_formats={name}: not one of {', '.join(FORMATS)}")
        precisions = _FORMATS[name].precisions
        if precision not in precisions:
            raise UserError(
                f"--export_precision={precision}: {name} does not have it, only "
                f"{', '.join(precisions)}; choose one of these, or leave {name} out of "
                "--export_formats"
            )


def check_installed(formats: list[str]) -> None:
    """Refuses a format if the packages that write and run it are not installed."""
    for name in formats:
        for module in _FORMATS[name].modules:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise UserError(
                    f"--export_formats={name} needs more packages; run pip install -r "
                    f"requirements/{name}.txt ({error})"
                ) from error


def format_of(path: str) -> str | None:
    """The format of a file that an export may have; None for anything else."""
    name = os.path.basename(path)
    return next((key for key, row in _FORMATS.items() if row.file == name), None)


def check_runtime(name: str, path: str) -> None:
    """Refuses a file of a format if the package that runs it is not installed."""
    module = _FORMATS[name].modules[-1]
    try:
        importlib.import_module(module)
    except ImportError as error:
        package = module.replace("_", "-")
        raise UserError(
            f"{path}: needs the package {package}, which is not installed; run pip "
            f"install {package} ({error})"
        ) from error


def write(
    name: str,
    saved_model: str,
    batch: Mapping[str, np.ndarray],
    folders: Mapping[str, str],
) -> dict[str, str]:
    """Converts a network once, and writes it in several precisions.

    model.onnx takes any number of rows and tokens; model.tflite takes one row, as long as
    those of the batch.

    Args:
        name: one of FORMATS.
        saved_model: the folder of the network alone, in float32.
        batch: int32 arrays.
        folders: where to write each precision, which the format has. float16: of weights,
            which are multiplied in float32. int8: of weights and, where they are
            multiplied, of what they are multiplied by, which is scaled as it comes, so
            that nothing needs calibration.
    Returns:
        the file of each precision.
    """
    import tensorflow as tf

    loaded = tf.saved_model.load(saved_model)
    serve = loaded.signatures["serving_default"]
    make = {"onnx": _onnx, "litert": _litert}[name](serve, loaded, batch)
    files = {}
    for precision, folder in folders.items():
        files[precision] = os.path.join(folder, _FORMATS[name].file)
        with tf.io.gfile.GFile(files[precision], "wb") as opened:
            opened.write(make(precision))
    return files


def _onnx(serve, loaded, batch) -> Callable[[str], bytes]:
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
    change = {
        "float32": lambda model: model,
        "float16": _with_float16,
        "int8": _with_int8,
    }
    return lambda precision: change[precision](model).SerializeToString()


def _with_int8(model):
    """An ONNX model whose matrices are int8, with a scale for each output."""
    import onnx
    from onnxruntime import quantization

    root = logging.getLogger()
    level = root.level
    root.setLevel("ERROR")  # it advises what changes nothing here
    try:
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "model.onnx")
            quantization.quantize_dynamic(
                model, path, per_channel=True, weight_type=quantization.QuantType.QInt8
            )
            return onnx.load(path)
    finally:
        root.setLevel(level)


def _with_float16(model):
    """An ONNX model whose weights are float16; its runtime casts them when it loads."""
    import onnx

    halved = onnx.ModelProto()
    halved.CopyFrom(model)
    graph = halved.graph
    for weight in graph.initializer:
        numbers = onnx.numpy_helper.to_array(weight)
        if numbers.dtype != np.float32 or numbers.size < _LARGE:
            continue
        name = weight.name
        half = onnx.numpy_helper.from_array(
            numbers.astype(np.float16), f"{name}/float16"
        )
        weight.CopyFrom(half)
        cast = onnx.helper.make_node(
            "Cast", [half.name], [name], to=onnx.TensorProto.FLOAT
        )
        graph.node.insert(0, cast)
    return halved


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


def _litert(serve, loaded, batch) -> Callable[[str], bytes]:
    import tensorflow as tf

    # Without fixed lengths, it lacks operations.
    specs = {
        name: tf.TensorSpec([1, *values.shape[1:]], tf.int32, name)
        for name, values in batch.items()
    }
    function = tf.function(lambda **tensors: serve(**tensors), autograph=False)
    function = function.get_concrete_function(**specs)

    def convert(precision):
        make = tf.lite.TFLiteConverter.from_concrete_functions
        converter = make([function], loaded)
        if precision != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if precision == "float16":
            converter.target_spec.supported_types = [tf.float16]
        return converter.convert()

    return convert
