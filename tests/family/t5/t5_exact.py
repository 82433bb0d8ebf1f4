"""The golden T5s computed in float64, by this project's formulas."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from family.t5.decoder import TextToTextModel
from family.t5.text_to_text import TextToText
from tests.family.t5 import t5


def trained(model, batch: dict) -> dict[str, np.ndarray]:
    """The loss, as mesh_tensorflow has it, and "grad:<path>" by each weight."""
    with tf.GradientTape() as tape:
        total, _ = TextToText().losses(batch, model(batch))["target_loss"]
        # Theirs is the mean over all places, padding included.
        loss = total / batch["target_ids"].size
    values = {f"grad:{v.path}": v.value for v in model.weights}
    found = {"training_loss": loss} | tape.gradient(loss, values)
    return {name: tf.convert_to_tensor(value).numpy() for name, value in found.items()}


def values(version: str) -> dict[str, np.ndarray]:
    """The logits, and what `trained` gives, computed in float64: no rounding shows.

    v1_1 multiplies that of float32: the released codes' logits lie 1.02e-4 apart, the exact
    ones 0.76e-4 and 1.06e-4 from theirs, and mesh_tensorflow's gradients up to 1.3e-4 of
    the largest. So these values, and no single run in float32, say whether a formula is
    theirs.
    """
    batch = t5.batch(version)
    read = t5.golden(f"{version}/outputs.npz")["decoder_input_ids"].astype("int32")
    with _in_float64():
        model = TextToTextModel(t5.read_config(version), dtype="float64")
        t5.load(model, version)
        decoded = model.decode(model.encode(batch), batch, read)
        logits = np.asarray(model.logits(decoded["sequence_output"]))
        found = {"logits": logits} | trained(model, batch)
    assert {value.dtype for value in found.values()} == {np.dtype("float64")}
    return found


@contextlib.contextmanager
def _in_float64() -> Iterator[None]:
    """What is cast to float32 is float64 instead."""
    cast, floatx = ops.cast, keras.config.floatx()

    def widened(x, dtype):
        return cast(x, "float64" if dtype == "float32" else dtype)

    keras.config.set_floatx("float64")
    try:
        with mock.patch.object(ops, "cast", widened):
            yield
    finally:
        keras.config.set_floatx(floatx)
