"""T5 on JAX: losses and gradients, writing, and the spans of a batch."""

import sys

sys.modules["tensorflow"] = None  # any import of it fails

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

from family.t5.text_to_text import TextToText  # noqa: E402
from modeling import custom_gradients  # noqa: E402
from tests.family.t5 import t5  # noqa: E402

assert keras.backend.backend() == "jax"
(t5_path,) = sys.argv[1:]
theirs, exact = t5.golden("v1_1/outputs.npz"), np.load(t5_path)
objective = TextToText()
model = t5.load(objective.network(t5.read_config("v1_1")), "v1_1")
batch = t5.batch("v1_1")
places = batch["target_ids"].size
fixed = [v.value for v in model.non_trainable_variables]  # of the dropouts in `fit`


@jax.jit
@jax.value_and_grad
def of_places(values):
    with custom_gradients.use_gradients():
        outputs, _ = model.stateless_call(values, fixed, batch)
        return objective.losses(batch, outputs)["target_loss"][0] / places


total, gradients = of_places([v.value for v in model.trainable_variables])
np.testing.assert_allclose(total, exact["training_loss"], rtol=1e-5)
for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
    expected = exact[f"grad:{variable.path}"]
    most = np.abs(expected).max()
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=2e-4 * most)
written = jax.jit(lambda: model.greedy(batch, 12))()
np.testing.assert_array_equal(written, theirs["greedy"][:, 1:])
rows = {"input_ids": np.full((2, 64), 9), "input_mask": np.ones((2, 64), "int32")}
rows["row_numbers"] = np.arange(2)
spans = jax.jit(lambda: t5.spans_of_records().prepare(rows, 0))()
assert (spans["target_mask"].sum(axis=1) == 9 + 3 + 1).all()  # of 62 tokens
