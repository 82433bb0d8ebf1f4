"""Writes requests with which TensorFlow Serving warms up a model before it serves it.

The first call of a signature takes much longer than others. The file is a TFRecord of
tensorflow.serving.PredictionLog; the package with that protocol buffer is not needed.
"""

import os
from collections.abc import Mapping

import tensorflow as tf

# Next to the SavedModel's own files, where TensorFlow Serving looks for it.
FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")


def write(saved_model: str, calls: Mapping[str, Mapping]) -> None:
    """Writes one request for each signature.

    Args:
        saved_model: the folder of the SavedModel.
        calls: by signature, the inputs by name; whatever `tf.make_tensor_proto` takes.
    """
    path = os.path.join(saved_model, FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.TFRecordWriter(path) as writer:
        for signature, inputs in calls.items():
            writer.write(_prediction_log(signature, inputs))


def _prediction_log(signature: str, inputs: Mapping) -> bytes:
    request = _field(1, _field(3, signature.encode()))  # model_spec.signature_name
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        # An entry of the map `inputs`.
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))
    return _field(6, _field(1, request))  # predict_log.request


def _field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer that has a length."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])
