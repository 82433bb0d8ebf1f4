"""TensorFlow alone reads a bundle, as a graph of TensorFlow 1 did; nothing here is ours.

    python read_as_tensorflow_1.py WRITTEN RELEASED

Ends well if WRITTEN holds what RELEASED, a checkpoint of 2018, does, under its names.
"""

import sys

import numpy as np
import tensorflow as tf


def main(written, released):
    golden = tf.train.load_checkpoint(released)
    expected = {
        name: golden.get_tensor(name)
        for name in golden.get_variable_to_shape_map()
        if name.startswith(("bert/", "cls/"))
    }
    reader = tf.train.load_checkpoint(written)
    assert reader.get_variable_to_shape_map().keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(reader.get_tensor(name), value, strict=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            name: tf.compat.v1.get_variable(name, value.shape)
            for name, value in expected.items()
        }
        # As the release's scripts do: every name is mapped to itself.
        tf.compat.v1.train.init_from_checkpoint(
            written, {name: name for name in expected}
        )
        session.run(tf.compat.v1.global_variables_initializer())
        for name, value in session.run(variables).items():
            np.testing.assert_array_equal(value, expected[name], strict=True)
    print(f"{len(expected)} variables are the same")


if __name__ == "__main__":
    main(*sys.argv[1:])
