"""Calls SavedModels in a process that knows nothing about how they were made.

    python -P serving/reload.py calls.json answers

Like a program that serves a model, it imports TensorFlow and nothing from this project.
calls.json is a list of objects: `model`, a folder; `libraries`, packages that it needs;
`signature`; and `inputs`, by name dtype, shape and values, with bytes in base64. In the
folder answers, N.npz contains the numbers that call N returns, and N.json the shapes and
values of its texts.
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


def _tensor(dtype, shape, values):
    if dtype == "bytes":
        dtype, values = "string", [base64.b64decode(value) for value in values]
    return tf.constant(values, dtype, shape)


def main(calls_path, folder):
    with open(calls_path, encoding="utf-8") as file:
        calls = json.load(file)
    os.mkdir(folder)
    loaded = {}
    for number, call in enumerate(calls):
        model = call["model"]
        if model not in loaded:
            for library in call["libraries"]:
                importlib.import_module(library)
            loaded[model] = tf.saved_model.load(model)
        function = loaded[model].signatures[call["signature"]]
        outputs = function(**{k: _tensor(*v) for k, v in call["inputs"].items()})
        outputs = {name: value.numpy() for name, value in outputs.items()}
        texts = {k: v for k, v in outputs.items() if v.dtype == object}
        numbers = {k: v for k, v in outputs.items() if v.dtype != object}
        np.savez(os.path.join(folder, f"{number}.npz"), **numbers)
        texts = {k: (v.shape, [x.decode() for x in v.flat]) for k, v in texts.items()}
        with open(
            os.path.join(folder, f"{number}.json"), "w", encoding="utf-8"
        ) as file:
            json.dump(texts, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
