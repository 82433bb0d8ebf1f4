"""XLNet's two streams on JAX, and its spans and orders under jit."""

import sys

sys.modules["tensorflow"] = None  # any import of it fails

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

import tests  # noqa: E402
from family.xlnet import permuted  # noqa: E402
from family.xlnet.encoder import XlnetConfig  # noqa: E402
from modeling import losses  # noqa: E402

assert keras.backend.backend() == "jax"
xlnet = tests.GOLDEN / "xlnet"
trace = dict(np.load(xlnet / "train_adam.npz"))
config = XlnetConfig.from_json_file(xlnet / "pretrain" / "xlnet_config.json")
draw = permuted.DrawSpans(
    alpha=6,
    beta=1,
    counts=np.full(25, 4),
    max_predictions_per_seq=4,
    mask_share=0.8,
    random_share=0.1,
    whole_words=False,
    vocab_size=48,
    mask_id=6,
    special_ids=(3, 4),
)
model = permuted.Permuted().network(config)
for variable in model.trainable_variables:
    variable.assign(trace[f"start/{variable.path}"])
first = {k[3:]: np.moveaxis(v[0], -1, 0) for k, v in trace.items() if k[:3] == "in/"}
inputs = {
    "input_ids": first["input_k"],
    "segment_ids": first["seg_id"],
    "hidden_pairs": first["perm_mask"].astype(np.int32),
    "input_q": first["input_q"],
    "target_mapping": first["target_mapping"].astype(np.float32),
    "memory": np.zeros((4, 2, 8, 32), np.float32),
}
outputs = model.answer(model.encoder(inputs, mem_len=8, reuse_len=6), {})
pair = losses.cross_entropy(
    outputs["permuted_lm_logits"], first["target"], first["target_mask"]
)
np.testing.assert_allclose(pair[0] / pair[1], trace["out/loss"][0], rtol=1e-5)
ids = np.random.default_rng(0).integers(7, 48, (3, 24)).astype(np.int32)
batch = {
    "input_ids": ids,
    "input_mask": np.ones_like(ids),
    "segment_ids": np.zeros_like(ids),
    "row_numbers": np.arange(3, dtype=np.int32),
}
plain = draw(batch, 5)
for name, value in jax.jit(draw, static_argnums=1)(batch, 5).items():
    np.testing.assert_array_equal(value, plain[name])
