"""The golden ModernBERT on JAX, where TensorFlow cannot be imported."""

import sys

sys.modules["tensorflow"] = None  # any import of it fails

import json  # noqa: E402

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

import tests  # noqa: E402
from modeling.architectures.table import make_encoder  # noqa: E402
from training.interchange.table import ADAPTERS, config_from_json  # noqa: E402

assert keras.backend.backend() == "jax"
folder = tests.GOLDEN / "modern_bert"
adapter, model = ADAPTERS["modern_bert"], folder / "masked_lm"
config = config_from_json(json.loads((model / "config.json").read_text()))
encoder, tensors = make_encoder(config), load_file(model / "model.safetensors")
for variable in encoder.weights:
    pair = adapter.of_released(variable.path)
    value = tensors[pair.hugging_face]
    variable.assign(value.T if pair.transposed else value)
inputs, expected = np.load(folder / "inputs.npz"), np.load(model / "outputs.npz")


@jax.jit
def run(ids, mask):
    return encoder({"input_ids": ids, "input_mask": mask})["sequence_output"]


for kind in ("long", "short"):
    ids, mask = inputs[f"{kind}_ids"], inputs[f"{kind}_mask"]
    found, real = np.array(run(ids, mask)), mask > 0
    last = expected[f"{kind}_hidden_{config.num_hidden_layers}"]
    np.testing.assert_allclose(found[real], last[real], rtol=0, atol=1e-5)
