"""Answers from SavedModels in a process that knows nothing of how they were made.

    python -P training/reload.py calls.json answers.json

Imports TensorFlow and nothing of ours, as those who serve a model do. calls.json is a list
of objects: `model`, a folder; `signature`; and `inputs`, by name the dtype and the values,
where bytes are in base64. answers.json has the outputs of each by name.
"""

import base64
import json
import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # whoever trains may hold them
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402


def _tensor(dtype, shape, values):
    if dtype == "bytes":
        dtype, values = "string", [base64.b64decode(value) for value in values]
    return tf.constant(values, dtype, shape)


def _plain(values):
    """Nested lists of numbers and texts."""
    if isinstance(values, list):
        return [_plain(value) for value in values]
    return values.decode() if isinstance(values, bytes) else values


def main(calls_path, answers_path):
    with open(calls_path, encoding="utf-8") as file:
        calls = json.load(file)
    answers, loaded = [], {}
    for call in calls:
        model = call["model"]
        if model not in loaded:
            loaded[model] = tf.saved_model.load(model)
        function = loaded[model].signatures[call["signature"]]
        outputs = function(**{k: _tensor(*v) for k, v in call["inputs"].items()})
        answers.append({k: _plain(v.numpy().tolist()) for k, v in outputs.items()})
    with open(answers_path, "w", encoding="utf-8") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
