"""ELMo's scans and their written gradients on JAX: the first update of bilm's code."""

import sys

sys.modules["tensorflow"] = None  # any import of it fails

import functools  # noqa: E402

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

import tests  # noqa: E402
from family.elmo import bidirectional_lm  # noqa: E402
from family.elmo.encoder import ElmoConfig  # noqa: E402
from modeling import custom_gradients  # noqa: E402
from modeling.optimizers import clipping  # noqa: E402

assert keras.backend.backend() == "jax"
elmo = np.load(tests.GOLDEN / "elmo" / "bilm_training.npz")
model = bidirectional_lm.BidirectionalLMModel(
    ElmoConfig(23, hidden_size=16, lstm_size=10, hidden_dropout_prob=0.0)
)
stream = elmo["stream"]
texts = stream[:, :7], stream[:, ::-1][:, :7]


def their_name(path):
    if path == "elmo/table":
        return "embedding"
    layer, _, name = path.rpartition("/")
    if name == "output_bias":
        return "softmax/b"
    way, part = name.split("_")
    part += "/kernel" if part == "projection" else ""
    cell = layer.replace("elmo/layer", "cell")
    number = ("forward", "backward").index(way)
    return f"RNN_{number}/rnn/multi_rnn_cell/{cell}/lstm_cell/{part}"


@jax.jit
@functools.partial(jax.value_and_grad, has_aux=True)
def update_elmo(values):
    state = list(zip(model.trainable_variables, values, strict=True))
    found = []
    with custom_gradients.use_gradients(), keras.StatelessScope(state):
        for number, rows in enumerate(texts):
            order = slice(None, None, -1 if number else None)
            outputs = model.encoder({"input_ids": rows[:, :6][:, order]})
            hidden = outputs["sequence_output"][:, order, 8 * number : 8 * number + 8]
            weights = np.ones((3, 6), "float32")
            sums = model.compare("one", hidden, rows[:, 1:], weights)
            found.append(sums["one_loss"] / 18.0)
    return 3.0 * sum(found), found  # the mean of both, times the 6 steps of a row


values = [elmo[f"shared_start:{their_name(v.path)}"] for v in model.trainable_variables]
(_, found), gradients = update_elmo(values)
_, norm = clipping.clip_scale(gradients, 10.0)
expected = elmo["shared_trace_forward_backward_total_norm"][0]
np.testing.assert_allclose([*found, norm], expected[[0, 1, 3]], rtol=1e-5)
