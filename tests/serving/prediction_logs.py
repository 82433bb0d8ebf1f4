"""Reads the requests in a tf_serving_warmup_requests with TensorFlow's own decoder."""

import tensorflow as tf
from google.protobuf import descriptor_pb2
from tensorflow.core.framework import tensor_pb2


def request(record):
    """The signature and the inputs of a tensorflow.serving.PredictionLog."""
    (predict_log,) = fields(record)[6]
    (content,) = fields(predict_log)[1]
    content = fields(content)
    (model,) = content[1]
    inputs = {}
    for entry in map(fields, content[2]):
        tensor = tensor_pb2.TensorProto.FromString(entry[2][0])
        inputs[entry[1][0].decode()] = tf.make_ndarray(tensor)
    return fields(model)[3][0].decode(), inputs


def fields(content):
    """The fields of a protocol buffer by number, as TensorFlow's own decoder has them."""
    numbers = range(1, 8)
    _, values = tf.io.decode_proto(
        content,
        "Message",
        [f"f{number}" for number in numbers],
        [tf.string] * len(numbers),
        descriptor_source=b"bytes://" + descriptor(numbers),
    )
    return {n: list(v.numpy()) for n, v in zip(numbers, values, strict=True)}


def descriptor(numbers):
    described = descriptor_pb2.FileDescriptorSet()
    message = described.file.add(name="m.proto").message_type.add(name="Message")
    for number in numbers:
        message.field.add(name=f"f{number}", number=number, type=12, label=3)  # bytes
    return described.SerializeToString()
