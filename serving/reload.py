"""Calls SavedModels in a process that knows nothing about how they were made.

    python -P serving/reload.py calls.json answers

Like a program that serves a model, it imports TensorFlow and nothing from this project.
calls.json is a list of objects: `model`, a folder; `loader`, "functions" as in Python or
"session" as in TensorFlow Serving; `libraries`, packages that the model needs; `signature`;
and `inputs`, by name dtype, shape and values, with bytes in base64. In the folder answers,
N.npz contains the numbers that call N returns, and N.json the shapes and values of its
texts. If a call fails, the last line on stderr says which and why.
"""

import base64
import gc
import importlib
import json
import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the training process may use them
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
# TensorFlow and Keras look for them, and would take seconds to load them.
sys.modules.update(dict.fromkeys(("jax", "matplotlib", "sklearn")))

gc.disable()  # nothing is garbage yet, and looking for it takes a quarter of the time
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

gc.enable()


class _Functions:
    def __init__(self, model):
        self._loaded = tf.saved_model.load(model)

    def call(self, signature, inputs):
        outputs = self._loaded.signatures[signature](**inputs)
        return {name: value.numpy() for name, value in outputs.items()}


class _Session:
    """A graph and what its init op has filled, as TensorFlow Serving loads a model."""

    def __init__(self, model):
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            self._meta_graph = tf.compat.v1.saved_model.load(
                self._session, [tf.saved_model.SERVING], model
            )

    def call(self, signature, inputs):
        signature = self._meta_graph.signature_def[signature]
        fed = {signature.inputs[k].name: value.numpy() for k, value in inputs.items()}
        return self._session.run({k: v.name for k, v in signature.outputs.items()}, fed)


def _tensor(dtype, shape, values):
    if dtype == "bytes":
        dtype, values = "string", [base64.b64decode(value) for value in values]
    return tf.constant(values, dtype, shape)


def main(calls_path, folder):
    with open(calls_path, encoding="utf-8") as file:
        calls = json.load(file)
    os.mkdir(folder)
    loaders = {"functions": _Functions, "session": _Session}
    of_last, loaded = None, None
    for number, call in enumerate(calls):
        for library in call["libraries"]:
            importlib.import_module(library)
        place = call["model"], call["loader"]
        inputs = {name: _tensor(*tensor) for name, tensor in call["inputs"].items()}
        try:
            if place != of_last:
                of_last, loaded = place, None  # never two of them in memory
                loaded = loaders[call["loader"]](call["model"])
            outputs = loaded.call(call["signature"], inputs)
        except tf.errors.OpError as error:
            reason = " ".join(error.message.split())
            sys.exit(f"{call['signature']}, loaded as {call['loader']}: {reason}")
        _write(os.path.join(folder, str(number)), outputs)


def _write(path, outputs):
    texts = {k: v for k, v in outputs.items() if v.dtype == object}
    numbers = {k: v for k, v in outputs.items() if v.dtype != object}
    np.savez(f"{path}.npz", **numbers)
    texts = {k: (v.shape, [x.decode() for x in v.flat]) for k, v in texts.items()}
    with open(f"{path}.json", "w", encoding="utf-8") as file:
        json.dump(texts, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
