"""What each row of an update hands to the same row of the next; see `Objective.carried`.

It is in the checkpoints, so that a resumed run continues with it.
"""

from collections.abc import Sequence

from training.backend import keras, tf
from modeling import layers


def make(objective, model, batch_size: int) -> dict[str, keras.Variable]:
    """Variables float32 [batch_size, *shape] by name, at first zeros."""
    shapes = objective.carried(model.encoder.config)
    with layers.name_scopes("training"):
        return {
            name: keras.Variable(
                "zeros", (batch_size, *shape), "float32", trainable=False, name=name
            )
            for name, shape in shapes.items()
        }


def with_parts(wholes: Sequence, number, parts: Sequence) -> list:
    """Puts the part of a micro-batch, [rows, ...], into each [micro-batches, rows, ...]."""
    return [
        tf.tensor_scatter_nd_update(whole, [[number]], part[tf.newaxis])
        for whole, part in zip(wholes, parts, strict=True)
    ]
