"""Runs and trains the golden model on JAX, where TensorFlow cannot be imported."""

import sys

sys.modules["tensorflow"] = None  # any import of it fails

import dataclasses  # noqa: E402
import functools  # noqa: E402

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

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

assert keras.backend.backend() == "jax"
golden, weights_path, batches_path = sys.argv[1:]
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
        with custom_gradients.use_gradients():
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
    with custom_gradients.use_gradients():
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
