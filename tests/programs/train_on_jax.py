"""Runs and trains the golden model on JAX, where TensorFlow cannot be imported."""

import sys

sys.modules["tensorflow"] = None  # any import of it fails

import dataclasses  # noqa: E402
import functools  # noqa: E402
import pathlib  # noqa: E402

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

from family.elmo import bidirectional_lm  # noqa: E402
from family.elmo.encoder import ElmoConfig  # noqa: E402
from family.t5.text_to_text import TextToText  # noqa: E402
from family.xlnet import permuted  # noqa: E402
from family.xlnet.encoder import XlnetConfig  # noqa: E402
from modeling import (  # noqa: E402
    attention,
    custom_gradients,
    fusion,
    layers,
    losses,
)
from modeling.architectures.bert import BertConfig  # noqa: E402
from modeling.objectives import sentence_pairs  # noqa: E402
from modeling.optimizers import adam, clipping, schedules  # noqa: E402
from tests.family.t5 import t5  # noqa: E402

assert keras.backend.backend() == "jax"
golden, weights_path, batches_path, t5_path = sys.argv[1:]
weights, expected, trace = (
    np.load(path)
    for path in (
        weights_path,
        f"{golden}/model_outputs.npz",
        f"{golden}/training_trace.npz",
    )
)
config = BertConfig.from_json_file(f"{golden}/bert_config.json")


def load(config):
    model = sentence_pairs.PretrainingModel(config)
    for variable in model.weights:
        variable.assign(weights[variable.path])
    return model


# The forward pass, and dropout under jit.
batch = {key[3:]: expected[key] for key in expected if key.startswith("in_")}
model = load(config)
outputs = model.encoder(batch)
for key in ("sequence_output", "pooled_output"):
    np.testing.assert_allclose(outputs[key], expected[key], rtol=0, atol=1e-5)


def fixed(model):
    """What is no weight to train: the state of the dropouts in `fit`."""
    return [v.value for v in model.non_trainable_variables]


@jax.jit
def logits(seed):
    return model(batch, dropouts=layers.Dropouts(seed))["next_sentence_logits"]


# Recomputed layers have the same gradients, and so has recomputed attention.
attention._FEWEST = 1


@functools.partial(jax.jit, static_argnums=(1, 2))
def gradients(values, recompute, is_whole):
    @jax.grad
    def of(values):
        with custom_gradients.written_out():
            outputs, _ = model.stateless_call(
                values,
                fixed(model),
                batch,
                dropouts=layers.Dropouts(np.array([1, 2]), recompute),
            )
        return (outputs["next_sentence_logits"] ** 2).sum()

    with fusion.whole_program(is_whole):
        return of(values)


values = [v.value for v in model.trainable_variables]
kept = gradients(values, False, False)
for others in (gradients(values, True, False), gradients(values, False, True)):
    for pair in zip(kept, others, strict=True):
        np.testing.assert_allclose(*pair, rtol=1e-4, atol=1e-6)

first = logits(np.array([1, 2]))
assert (first == logits(np.array([1, 2]))).all()
assert (first != logits(np.array([1, 3]))).any()

# Updates, against the release's trace.
objective = sentence_pairs.MaskedLMNextSentence()
model = load(
    dataclasses.replace(
        config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
)
optimizer = adam.AdamWeightDecay(model.trainable_variables)
trained = model.trainable_variables


def loss(values, batch):
    with custom_gradients.written_out():
        outputs, _ = model.stateless_call(values, fixed(model), batch)
        pairs = objective.losses(batch, outputs)
    return sum(losses.mean(*x) for x in pairs.values())


@jax.jit
def update(values, slots, batch, step):
    total, gradients = jax.value_and_grad(loss)(values, batch)
    scale, norm = clipping.clip_scale(gradients, 1.0)
    state = list(zip(trained + optimizer.variables, values + slots, strict=True))
    with keras.StatelessScope(state) as scope:
        rate = schedules.bert(step, 1e-3, 20, 5)
        optimizer.apply(gradients, rate, scale=scale)
    new = [scope.get_current_value(variable) for variable, _ in state]
    return new[: len(values)], new[len(values) :], total, norm


values = [v.value for v in trained]
slots = [v.value for v in optimizer.variables]
batches = np.load(batches_path)
for step in range(4):
    batch = {key: batches[key][32 * step : 32 * step + 32] for key in batches}
    values, slots, total, norm = update(values, slots, batch, step)
    np.testing.assert_allclose(total, trace["loss"][step], rtol=1e-5)
    np.testing.assert_allclose(norm, trace["global_norm"][step], rtol=1e-5)

# XLNet's two streams, and its spans and orders under jit.
xlnet = pathlib.Path(golden).parent / "xlnet"
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
# ELMo's scans and their written gradients, against the first update of bilm's code.
elmo = np.load(f"{golden}/../elmo/bilm_training.npz")
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
    with custom_gradients.written_out(), keras.StatelessScope(state):
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

# T5: losses and gradients, writing, and the spans of a batch.
theirs, exact = t5.golden("v1_1/outputs.npz"), np.load(t5_path)
objective = TextToText()
model = t5.load(objective.network(t5.read_config("v1_1")), "v1_1")
batch = t5.batch("v1_1")
places = batch["target_ids"].size


@jax.jit
@jax.value_and_grad
def of_places(values):
    with custom_gradients.written_out():
        outputs, _ = model.stateless_call(values, fixed(model), batch)
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
