"""Writes SavedModels of a network with the tokenizer in the graph.

An export is a folder that appears when it is complete:

    export.json   description: inputs, form of the answers, labels, vocabulary, versions
    README.md     model card, which its owner may complete; a changed one is kept
    text/1        SavedModel; serving_default: raw text to final answers; tensors: the
                  encoder's inputs to logits; examples: the same from serialized tf.Examples
    tensors/1     SavedModel of the network alone; serving_default: same as tensors;
                  examples
    model.onnx, model.tflite    the network, if requested
    processing/1  what surrounds the network in text/1, for these; see processing.py
    precision.json    what an export of fewer bits than float32 changes

Both SavedModels are laid out for TensorFlow Serving, and use only core TensorFlow
operations. A tokenizer may need other `libraries`, which export.json names. Before the
folder appears, another process loads both, in Python and as TensorFlow Serving does,
and must give the answers that this process computed with text/ and the script; if it
multiplies in bfloat16, the network's numbers within a tolerance. export.json
is written last and lists the files; a folder that contains others is never removed.
"""

import base64
import contextlib
import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from errors import UserError
from files import anywhere, hub
from modeling.architectures.config import EncoderConfig
from serving import (
    checksums,
    comparison,
    export_folder,
    forms,
    portable,
    predictor,
    processing,
    quantized,
    runtimes,
    warm_up,
)
from serving.comparison import ComparedRows
from serving.predictor import PROCESSING, TENSORS, TEXT
from text.graphs.lookup import graph_of, libraries_of
from text.records import encoding
from text.records.rows import Layout
from text.tokenizers.tokenizer import Tokenizer

_RELOAD = os.path.join(os.path.dirname(__file__), "reload.py")
# The loaders of reload.py, and how messages begin.
_LOADERS = {
    "functions": "once loaded, it",
    "session": "once loaded as TensorFlow Serving does, it",
}
# How much numbers may differ.
_TOLERANCE = {"float32": 1e-5, "mixed_bfloat16": 0.05}  # by policy
_CHECKED = 2  # requests to further signatures; an explanation takes dozens of passes


@dataclasses.dataclass(frozen=True)
class Product:
    """A network to export, and the answers it must give.

    Attributes:
        model: from a dict of int32 tensors to a dict of float32 tensors; a layer, or
            `quantized.Quantized`.
        precision: of its weights; one of `portable.PRECISIONS`.
        config: its architecture.
        tokenizer: the tokenizer of its training rows.
        layout: of the rows that the network takes.
        form: of the answers; see serving/forms.py.
        inputs: the parts of a request, "text" or "list" by name.
        serve: the graph from requests to answers; see `Task.serve`.
        more: further signatures by name, which take the same inputs, and their expected
            outputs for the first of `requests`, float32 arrays; None: what they give in
            this process.
        description: what else export.json contains.
        requests, answers: requests for the final check, and their expected answers.
        batch, outputs: int32 and float32 arrays, the same for the network alone.
        formats: further formats in which to write the network; from `portable.FORMATS`.
        reference: the same in float32, and what the model is held to; both are needed for
            another precision, and None for float32.
    """

    model: Callable
    precision: str
    config: EncoderConfig
    tokenizer: Tokenizer
    layout: Layout
    form: str
    inputs: Mapping[str, str]
    serve: Callable
    description: Mapping[str, object]
    requests: list[dict]
    answers: list[dict]
    batch: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    more: Mapping[str, tuple[Callable, Mapping | None]] = dataclasses.field(
        default_factory=dict
    )
    formats: Sequence[str] = ()
    reference: Callable | None = None
    compared: ComparedRows | None = None

    @property
    def answers_exactly(self) -> bool:
        """Whether rounding, which may change a near tie, is that of float32."""
        return quantized.POLICIES[self.precision] == "float32"

    @property
    def tolerance(self) -> float:
        """How much numbers may differ that should be the same, relative to the largest."""
        return _TOLERANCE[quantized.POLICIES[self.precision]]


def make_model(
    make: Callable[[], keras.Layer],
    weights: Mapping[str, keras.Variable | np.ndarray],
    precision: str = "float32",
) -> keras.Layer | quantized.Quantized:
    """A new network on the CPU with these weights, matched by path.

    Args:
        make: makes it, of the policy that belongs to the precision.
        precision: one of `portable.PRECISIONS`.
    """
    with tf.device("CPU"):
        model = make()
        for variable in model.weights:
            value = weights[variable.path]
            is_array = isinstance(value, np.ndarray)
            variable.assign(value if is_array else value.numpy())
    return model if precision == "float32" else quantized.Quantized(model, precision)


def predict(model: Callable, batch: Mapping[str, np.ndarray], size: int = 8) -> dict:
    """A network's outputs for a batch as float32 arrays, `size` rows at a time."""
    parts = []
    with tf.device("CPU"):
        for first in range(0, len(batch["input_ids"]), size):
            part = {k: tf.constant(v[first : first + size]) for k, v in batch.items()}
            parts.append({k: v.numpy() for k, v in model(part).items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def make_served(product: Product, source: str) -> predictor.Served:
    """What `save` writes, in this process and without its files or its check.

    Args:
        source: what messages call the model.
    """
    with tempfile.TemporaryDirectory() as scratch, tf.device("CPU"):
        tokenizer = graph_of(product.tokenizer, scratch)
        signatures = _text_signatures(
            product, tokenizer, _network(product.model, product.layout)
        )
    serve, explain = map(signatures.get, ("serving_default", predictor.SIGNATURE))
    return predictor.Served(_description(product), serve, source, explain)


def save(output_dir: str, product: Product, card: str) -> str:
    """Exports; replaces an earlier export once the new one is complete and checked.

    Args:
        card: the content of README.md.
    Returns:
        the folder.
    Raises:
        UserError: the disk is full or not writable; another process is exporting to the
            same folder; or the reloaded model gives other answers, and was removed.
    """
    final = os.path.join(output_dir, predictor.FOLDER)
    print(f"exporting to {final}", flush=True)
    product = _with_expectations(product)
    with export_folder.replacing(final) as directory:
        _write(product, directory)
        _write_warm_up(product, directory)
        print("loading the export in another process to check it", flush=True)
        _check(product, directory)
        _convert(product, directory)
        checksum = export_folder.write_card(directory, final, card)
        _describe(product, directory, checksum)
    return final


# === Writing =========================================================================


def _write(product: Product, directory: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = graph_of(product.tokenizer, scratch)
        network = _network(product.model, product.layout)
        signatures = _text_signatures(product, tokenizer, network)
        signatures |= {"tensors": network["serving_default"]}
        signatures |= {"examples": network["examples"]}
        _save_model(product.model, network, os.path.join(directory, TENSORS))
        text = os.path.join(directory, TEXT)
        _save_model(product.model, signatures, text, tokenizer=tokenizer)
        if product.formats:
            _write_processing(product, directory, tokenizer, network["serving_default"])


def _write_processing(product, directory, tokenizer, network) -> None:
    """Writes what surrounds the network, and checks it."""
    module, specs = tf.Module(), _text_specs(product.inputs)
    module.tokenizer = tokenizer
    signatures = processing.make_signatures(
        product.serve, tokenizer, network, specs, product.inputs
    )
    path = os.path.join(directory, PROCESSING)
    with anywhere.access(path), _quiet():
        tf.saved_model.save(module, path, signatures=signatures)
        loaded = tf.saved_model.load(path)
    surrounded = processing.Surrounded(loaded, _Network(product.model))
    asked = {name: tf.constant(v, t, s) for name, (t, s, v) in _texts(product).items()}
    outputs = {name: value.numpy() for name, value in surrounded(**asked).items()}
    _check_answers("processing/1 around the network", product, outputs)


class _Network(runtimes.NetworkFile):
    """A network in this process."""

    def __init__(self, model: Callable):
        self._model = model

    def __call__(self, batch):
        return predict(self._model, batch)


def _texts(product, most: int | None = None) -> dict:
    """The first requests in the format of `reload.py`."""
    return {
        name: _strings([request[name] for request in product.requests[:most]], kind)
        for name, kind in product.inputs.items()
    }


def _with_expectations(product: Product) -> Product:
    """With what each further signature must give."""
    more = dict(product.more)
    for name, (function, expected) in more.items():
        if expected is None:
            alone = dataclasses.replace(product, serve=function, more={})
            outputs = make_served(alone, name).outputs(product.requests[:_CHECKED])
            numbers = {k: v for k, v in outputs.items() if v.dtype == np.float32}
            more[name] = function, numbers
    return dataclasses.replace(product, more=more)


def _convert(product: Product, directory: str) -> None:
    """Writes the network in further formats, and what fewer bits change in all."""
    if product.reference is None:
        for name in product.formats:
            print(f"converting the network to {name} and checking it", flush=True)
            source = os.path.join(directory, TENSORS)
            folders = {"float32": directory}
            [file] = _portable(name, source, product, folders).values()
            outputs = _run(name, file, product.batch)
            _compare_arrays(
                f"the {name} file returns different", product.outputs, outputs
            )
        return
    print(f"comparing {product.precision} with float32", flush=True)
    rows = product.compared.batch
    with tempfile.TemporaryDirectory() as scratch:
        source = os.path.join(scratch, TENSORS)
        network = _network(product.reference, product.layout)
        _save_model(product.reference, network, source)
        small, outputs = os.path.join(directory, TENSORS), predict(product.model, rows)
        made = {"saved_model": comparison.FormOutputs(source, small, outputs)}
        for name in product.formats:
            print(f"converting the network to {name} and checking it", flush=True)
            folders = {"float32": scratch, product.precision: directory}
            before, after = _portable(name, source, product, folders).values()
            made[name] = comparison.FormOutputs(before, after, _run(name, after, rows))
        report = comparison.report(product.precision, product.compared, made)
    comparison.write(directory, report)


def _portable(name, source, product, folders) -> dict[str, str]:
    with _quiet():
        return portable.write(name, source, product.batch, folders)


def _run(name, file, batch, size: int = 8) -> dict:
    """The outputs of a converted network, `size` rows at a time."""
    run = runtimes.open_file(name, file)
    parts = [
        run({k: v[first : first + size] for k, v in batch.items()})
        for first in range(0, len(batch["input_ids"]), size)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _write_warm_up(product: Product, directory: str) -> None:
    """Of the first request alone: a sample, while later ones may be a user's texts."""
    texts = {
        name: tf.constant(values, dtype, shape)
        for name, (dtype, shape, values) in _texts(product, 1).items()
    }
    row = {name: values[:1] for name, values in product.batch.items()}
    calls = dict.fromkeys(("serving_default", *product.more), texts)
    warm_up.write(os.path.join(directory, TEXT), calls | {"tensors": row})
    warm_up.write(os.path.join(directory, TENSORS), {"serving_default": row})


def _describe(product: Product, directory: str, card: str) -> None:
    """Writes export.json, the last file, when all others are on disk."""
    files = sorted(export_folder.files(directory))
    for name in files:
        anywhere.sync(os.path.join(directory, name))
    description = _description(product)
    description["files"] = sorted([*files, predictor.DESCRIPTION])
    files.remove(hub.CARD)  # its owner may change it
    description["checksums"] = checksums.of_files(directory, files)
    description[export_folder.CARD] = card
    description = checksums.seal(description)
    content = json.dumps(description, ensure_ascii=False, indent=2) + "\n"
    with anywhere.replacing(
        os.path.join(directory, predictor.DESCRIPTION), "w"
    ) as file:
        file.write(content)


def _save_model(model, signatures, path, **parts):
    module = tf.Module()
    is_quantized = isinstance(model, quantized.Quantized)
    if is_quantized:
        module.weights, module.unpack = model.saved, model.unpack
    else:
        # Explicitly: a Keras layer does not expose all of its variables to tf.Module.
        module.weights = [variable.value for variable in model.weights]
    for name, part in parts.items():
        setattr(module, name, part)
    with (
        anywhere.access(path),
        _quiet(),
        model.empty() if is_quantized else contextlib.nullcontext(),
    ):
        tf.saved_model.save(module, path, signatures=signatures)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses TensorFlow's messages about every file that it writes."""
    verbosity, logger = logging.get_verbosity(), tf.get_logger()
    level = logger.level
    logging.set_verbosity(logging.WARNING)
    logger.setLevel("WARNING")
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        logger.setLevel(level)


def _text_signatures(product, tokenizer, network) -> dict:
    more = {name: function for name, (function, _) in product.more.items()}
    served = {"serving_default": product.serve, **more}
    return {
        name: _text_signature(function, tokenizer, network, product.inputs)
        for name, function in served.items()
    }


def _text_signature(function, tokenizer, network, inputs):
    def predict(batch):
        return network["serving_default"](**batch)

    def call(**texts):
        return function(tokenizer, predict, **texts)

    specs = _text_specs(inputs)
    return tf.function(call, autograph=False).get_concrete_function(**specs)


def _text_specs(inputs):
    shapes = {"text": [None], "list": [None, None]}
    return {
        name: tf.TensorSpec(shapes[kind], tf.string, name)
        for name, kind in inputs.items()
    }


def _network(model: Callable, layout: Layout) -> dict:
    """The signatures of the network alone, which is traced once, for all signatures."""
    fields = layout.fields
    specs = {
        name: tf.TensorSpec([None] * (1 + len(field.shape)), tf.int32, name)
        for name, field in fields.items()
    }

    def of_tensors(**batch):
        return model(batch)

    traced = tf.function(of_tensors, autograph=False).get_concrete_function(**specs)

    def of_examples(examples):
        parsed = tf.io.parse_example(examples, _features(layout))
        return traced(**{k: tf.cast(v, tf.int32) for k, v in parsed.items()})

    return {
        "serving_default": traced,
        "examples": tf.function(of_examples, autograph=False).get_concrete_function(
            examples=tf.TensorSpec([None], tf.string, "examples")
        ),
    }


def _features(layout):
    features = {}
    for name, field in layout.fields.items():
        shape = layout.shape(name)
        features[name] = tf.io.FixedLenFeature(shape, tf.int64)
        if len(field.shape) > 1:  # any number of choices
            features[name] = tf.io.FixedLenSequenceFeature(
                shape[1:], tf.int64, allow_missing=True
            )
    return features


def _description(product: Product) -> dict:
    libraries = libraries_of(product.tokenizer)
    return {
        "form": product.form,
        "inputs": dict(product.inputs),
        **product.description,
        "max_seq_length": product.layout.max_seq_length,
        **product.tokenizer.settings,
        **({"libraries": libraries} if libraries else {}),
        **({"explains": True} if predictor.SIGNATURE in product.more else {}),
        "precision": product.precision,
        "architecture": product.config.architecture,
        "bert_config": dataclasses.asdict(product.config),
        "versions": {
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "python": sys.version.split()[0],
            "unicode": unicodedata.unidata_version,
        },
    }


# === Checking ========================================================================


def _check(product: Product, directory: str) -> None:
    """Removes the export unless another process gets the same answers from it."""
    calls = [*_calls(product)]
    libraries = libraries_of(product.tokenizer)
    called = [call[:3] for call in calls]
    for how, answers in _reload(directory, libraries, called).items():
        for (*_, expected), outputs in zip(calls, answers, strict=True):
            if expected is None:
                _check_answers(how, product, outputs)
            else:
                what = f"{how} returns different"
                _compare_arrays(what, expected, outputs, product.tolerance)


def _calls(product):
    """A SavedModel, its signature, inputs, and expected outputs; None: answers."""
    batch = {k: ("int32", v.shape, v.tolist()) for k, v in product.batch.items()}
    flat = {k: v.reshape(len(v), -1) for k, v in product.batch.items()}
    examples = encoding.encode(flat, product.layout.schema)
    examples = [base64.b64encode(example).decode() for example in examples]
    examples = {"examples": ("bytes", [len(examples)], examples)}
    yield TENSORS, "serving_default", batch, product.outputs
    yield TENSORS, "examples", examples, product.outputs
    yield TEXT, "tensors", batch, product.outputs
    yield TEXT, "examples", examples, product.outputs
    for name, (_, outputs) in product.more.items():
        number = min(map(len, outputs.values()))
        yield TEXT, name, _texts(product, number), outputs
    yield TEXT, "serving_default", _texts(product), None


def _check_answers(how, product, outputs):
    if not product.answers_exactly:
        return
    answers = forms.answers(product.form, outputs, product.requests)
    for request, here, there in zip(
        product.requests, product.answers, answers, strict=True
    ):
        _compare_answers(how, request, here, there)


def _compare_arrays(what, expected, actual, tolerance=_TOLERANCE["float32"]):
    for name, values in expected.items():
        if values.shape != actual[name].shape:
            raise UserError(
                f"the export was removed: {what} {name}, of shape {actual[name].shape} "
                f"instead of {values.shape}; please report it"
            )
        # Relative to the largest: rounding errors grow with the values that are summed.
        most = tolerance * max(1.0, np.abs(values).max(initial=0.0))
        difference = np.abs(values - actual[name]).max(initial=0.0)
        if not difference <= most:
            raise UserError(
                f"the export was removed: {what} {name}, up to {difference:.2g} away from "
                f"the expected values, more than {most:.2g}; check that the weights are "
                "finite"
            )


def _compare_answers(how, request, expected, actual):
    if not _differ(expected, actual):
        return
    shown = [
        json.dumps(x, ensure_ascii=False)[:300] for x in (request, actual, expected)
    ]
    raise UserError(
        "the export was removed: {} answers {} with {}, but {} was expected; an "
        "untrained model may have ties, which can go either way".format(how, *shown)
    )


def _differ(expected, actual) -> bool:
    if isinstance(expected, Mapping):
        return expected.keys() != actual.keys() or any(
            _differ(value, actual[name]) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return len(expected) != len(actual) or any(
            _differ(*pair) for pair in zip(expected, actual, strict=True)
        )
    if isinstance(expected, float):
        tolerance = _TOLERANCE["float32"]
        return not math.isclose(expected, actual, rel_tol=tolerance, abs_tol=tolerance)
    return expected != actual


def _strings(values, kind):
    """Strings in the format of `reload.py`."""
    shape = [len(values)]
    if kind == "list":
        shape.append(max(map(len, values), default=0))
        values = [value + [""] * (shape[1] - len(value)) for value in values]
    return "string", shape, values


def _reload(directory, libraries, calls) -> dict[str, list[dict[str, np.ndarray]]]:
    """The answers of a process that has only the files, by the name of the loader."""
    described = [
        {
            "model": os.path.join(directory, model),
            "loader": loader,
            "libraries": libraries if model == TEXT else (),
            "signature": name,
            "inputs": inputs,
        }
        for loader in _LOADERS
        for model, name, inputs in calls
    ]
    with tempfile.TemporaryDirectory() as scratch:
        asked, answered = (os.path.join(scratch, n) for n in ("calls.json", "answers"))
        with open(asked, "w", encoding="utf-8") as file:
            json.dump(described, file)
        # -P: must not import files from the program's folder.
        command = [sys.executable, "-P", _RELOAD, asked, answered]
        process = subprocess.run(command, capture_output=True, text=True)
        if process.returncode:
            _refuse_to_load(process)
        paths = (os.path.join(answered, str(i)) for i in range(len(described)))
        return {
            name: [_outputs(next(paths)) for _ in calls] for name in _LOADERS.values()
        }


def _refuse_to_load(process):
    lines = process.stderr.strip().split("\n")
    reason = lines[-1][:300]
    if process.returncode < 0:
        reason = f"killed by signal {-process.returncode}; check for a lack of memory"
    raise UserError(f"the export cannot be loaded and was removed: {reason}")


def _outputs(path) -> dict[str, np.ndarray]:
    """What reload.py wrote for one call; texts as in TensorFlow, objects of bytes."""
    with np.load(f"{path}.npz") as numbers:
        outputs = dict(numbers)
    with open(f"{path}.json", encoding="utf-8") as file:
        for name, (shape, texts) in json.load(file).items():
            array = np.empty(shape, object)
            array.flat = [text.encode() for text in texts]
            outputs[name] = array
    return outputs
