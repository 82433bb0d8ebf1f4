"""What an export does around its network: from texts to rows, and from outputs to answers.

A network in ONNX or LiteRT takes rows of numbers. So an export in these formats has the
rest of text/1 in a SavedModel without weights, processing/1, whose signatures are:

    rows      texts -> the inputs of the network, how many rows, and how many at once
    outputs   these inputs and the network's outputs for some rows -> what to keep of them
    answers   texts, and what was kept of all rows -> the answers of text/1
"""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from errors import UserError
from serving import runtimes
from text.graphs.graph_tokenizer import GraphTokenizer
from text.graphs.row_chunks import BoundedRows, Substitute

_COUNT, _MOST = "num_rows", "rows_at_once"  # what `rows` returns besides the inputs
_POSITIONS = "masked_lm_positions"
# Texts that are read while `outputs` is traced, and on which it does not depend.
_ANY_TEXTS = {"text": [""], "list": [[""]]}


class _Reached(Exception):
    """Ends the trace of a task's `serve` where it asks the network."""

    def __init__(self, value):
        self.value = value


class _Stop(Substitute):
    """Hands over what it is asked."""

    def __init__(self, value: Callable):
        self._value = value

    def outputs_of(self, rows, then):
        raise _Reached(self._value(rows, then))


class _Known(Substitute):
    """Outputs that are known."""

    def __init__(self, outputs: Mapping):
        self._outputs = outputs

    def outputs_of(self, rows, then):
        return self._outputs


def make_signatures(
    serve: Callable,
    tokenizer: GraphTokenizer,
    network: Callable,
    texts: Mapping[str, tf.TensorSpec],
    inputs: Mapping[str, str],
) -> dict[str, Callable]:
    """The signatures of processing/1.

    Args:
        serve: see `Task.serve`.
        network: the concrete function of the network alone.
        texts: what a request consists of.
        inputs: the same, each "text" or "list".
    """

    def serve_to_network(texts, value):
        try:
            serve(tokenizer, _Stop(value), **texts)
        except _Reached as reached:
            return reached.value
        raise AssertionError("serve does not call run_in_chunks")

    def rows(**texts):
        reached: BoundedRows = serve_to_network(texts, lambda rows, _: rows)
        return {**reached.batch, _COUNT: reached.count, _MOST: reached.most}

    rows = _trace(rows, texts)
    batch = _any_rows(_inputs_of(rows))
    found = _any_rows(network.structured_outputs)

    def outputs(**tensors):
        some, own = ({k: tensors[k] for k in names} for names in (batch, found))
        texts = {
            name: tf.raw_ops.PlaceholderWithDefault(
                input=_ANY_TEXTS[kind], shape=[None] * (1 + (kind == "list"))
            )
            for name, kind in inputs.items()
        }
        return serve_to_network(texts, lambda _, then: then(own, some) if then else own)

    outputs = _trace(outputs, {**batch, **found})
    kept = _any_rows(outputs.structured_outputs)

    def answers(**tensors):
        own, known = ({k: tensors[k] for k in names} for names in (texts, kept))
        return serve(tokenizer, _Known(known), **own)

    answers = _trace(answers, {**texts, **kept})
    return {"rows": rows, "outputs": outputs, "answers": answers}


def _trace(function, specs):
    specs = {k: tf.TensorSpec(spec.shape, spec.dtype, k) for k, spec in specs.items()}
    return tf.function(function, autograph=False).get_concrete_function(**specs)


def _inputs_of(rows):
    """What `rows` returns for the network."""
    outputs = rows.structured_outputs.items()
    return {k: spec for k, spec in outputs if k not in (_COUNT, _MOST)}


def _any_rows(specs):
    return {
        name: tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
        for name, spec in specs.items()
    }


class Surrounded:
    """A network in another format, called like the signature for texts of a SavedModel.

    Attributes:
        structured_input_signature, structured_outputs: as of a signature.
    """

    def __init__(self, processing, run: runtimes.NetworkFile):
        """Args:
        processing: the loaded SavedModel.
        run: the network.
        """
        self._loaded = processing  # keeps its tables alive
        self._rows, self._outputs, self._answers = (
            processing.signatures[name] for name in ("rows", "outputs", "answers")
        )
        self._run = run
        self.structured_input_signature = self._rows.structured_input_signature
        self.structured_outputs = self._answers.structured_outputs

    def __call__(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = self._rows(**texts)
        count, most = (int(rows.pop(name)) for name in (_COUNT, _MOST))
        batch = {name: values.numpy() for name, values in rows.items()}
        parts = []
        for first in range(0, max(count, 1), most):
            part = {
                name: values[first : first + most] for name, values in batch.items()
            }
            found = self._run_rows(part)
            parts.append(self._outputs(**_tensors(part), **_tensors(found)))
        kept = {
            name: tf.concat([part[name] for part in parts], 0)[:count]
            for name in parts[0]
        }
        return self._answers(**texts, **kept)

    def _run_rows(self, batch):
        """The outputs of the network, whose rows may have to have fixed lengths."""
        if not self._run.shapes:
            return self._run(batch)
        full = {k: _fit(values, self._run.shapes[k], k) for k, values in batch.items()}
        # The length of an axis in the network, and here; that of positions comes last.
        lengths = {}
        for name in sorted(batch, key=_POSITIONS.__eq__):
            lengths |= zip(full[name].shape[1:], batch[name].shape[1:], strict=True)
        outputs, specs = self._run(full), self._outputs.structured_input_signature[1]
        for name, values in outputs.items():
            for axis, size in enumerate(specs[name].shape):
                if axis and size is None:
                    values = _to_length(values, axis, lengths[values.shape[axis]])
            outputs[name] = values
        return outputs


def _tensors(arrays):
    return {name: tf.constant(values) for name, values in arrays.items()}


def _fit(values, shape, name):
    """Rows of another length; only zeros are cut off."""
    for axis in range(1, values.ndim):
        used = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).any(1)
        if used[shape[axis] :].any():
            raise UserError(
                f"the text needs {np.flatnonzero(used)[-1] + 1} {name}, but the network in "
                f"this format takes only {shape[axis]}; ask the SavedModel of the export"
            )
        values = _to_length(values, axis, shape[axis])
    return values


def _to_length(values, axis, length):
    """Pads an axis with zeros, or cuts it."""
    values = np.take(values, range(min(length, values.shape[axis])), axis)
    missing = [(0, 0)] * values.ndim
    missing[axis] = (0, length - values.shape[axis])
    return np.pad(values, missing)
