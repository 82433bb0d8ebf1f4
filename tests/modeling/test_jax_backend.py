"""The network needs no TensorFlow: the same numbers on Keras's JAX backend."""

import numpy as np
import pytest
import tensorflow as tf

import tests
from tests import jobs

ROOT = tests.ROOT
GOLDEN = ROOT / "tests" / "golden" / "checkpoint"


@pytest.mark.exhaustive
def test_jax_equals_the_release_without_tensorflow(tmp_path):
    checkpoint = tf.train.load_checkpoint(str(GOLDEN / "bert_model.ckpt"))
    np.savez(
        tmp_path / "weights.npz",
        **{
            name: checkpoint.get_tensor(name)
            for name in checkpoint.get_variable_to_shape_map()
        },
    )
    np.savez(tmp_path / "batches.npz", **first_records(128))
    names = ("weights.npz", "batches.npz")
    files = (GOLDEN, *(tmp_path / name for name in names))
    check("tests/programs/train_on_jax.py", *files)


def check(program, *files):
    """A program that runs on JAX, without TensorFlow."""
    done = jobs.finished(
        [*jobs.command(program, {}), *map(str, files)],
        env=jobs.ENVIRONMENT | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr


def first_records(count):
    path = str(GOLDEN.parent / "pretraining" / "pretraining.tfrecord")
    examples = [
        tf.train.Example.FromString(record.numpy()).features.feature
        for record in tf.data.TFRecordDataset(path).take(count)
    ]
    return {
        key: np.array(
            [
                example[key].int64_list.value or example[key].float_list.value
                for example in examples
            ]
        )
        for key in examples[0]
    }
