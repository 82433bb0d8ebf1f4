"""What Keras does with any layer, it does with every encoder, on any backend.

python fit_in_keras.py FOLDER [formats | replicas]

`formats` checks the formats of all encoders, `replicas` that two train as one device; else
it is everything else, with BERT.
"""

import dataclasses
import pathlib
import sys

import keras
import numpy as np

from modeling.architectures.bert import BertConfig
from modeling.architectures.table import make_encoder
from modeling.architectures.word_vectors import WordEmbeddingsConfig
from modeling.bilstm import BiLstm
from modeling.objectives import tasks
from modeling.objectives.masked_lm import MaskedLM
from modeling.objectives.span_beams import SpanBeams
from modeling.objectives.span_head import DEFAULT
from modeling.objectives.with_language_model import WithLanguageModel
from modeling.optimizers.in_keras import LearningRate, Optimizer
from tests import samples

# Of one layer, because each compilation takes a second for each.
SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
}
BERT = BertConfig(**SIZES, hidden_dropout_prob=0.5)
RELATIVES = {
    name: dataclasses.replace(config, vocab_size=40)
    for name, config in samples.collect("CONFIGS").items()
}
CONFIGS = [BERT, *RELATIVES.values(), WordEmbeddingsConfig(40, hidden_size=16)]
RNG = np.random.default_rng(0)
BATCH = {
    "input_ids": RNG.integers(5, 40, (8, 6)).astype("int32"),
    "input_mask": np.ones((8, 6), "int32"),
}
LABELS = np.arange(8) % 2
HEAD = np.sin(np.arange(32.0)).reshape(16, 2)  # not constant: outputs have a sum of 0
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
# By XLA, each training would take seconds more, and of a few updates tracing takes nearly
# all; JAX always compiles.
IS_TENSORFLOW = keras.backend.backend() == "tensorflow"
UNCOMPILED = {"jit_compile": False} if IS_TENSORFLOW else {}
UNTRACED = UNCOMPILED | ({"run_eagerly": True} if IS_TENSORFLOW else {})


def classifier(encoder, length=None) -> keras.Model:
    inputs = {name: keras.Input((length,), dtype="int32", name=name) for name in BATCH}
    outputs = encoder(inputs)
    vectors = outputs["sequence_output"][:, 0]
    return keras.Model(inputs, keras.layers.Dense(2, dtype="float32")(vectors))


class Subclassed(keras.Model):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.head = encoder, keras.layers.Dense(2)

    def call(self, inputs):
        return self.head(self.encoder(inputs)["sequence_output"][:, 0])


def answers(model) -> np.ndarray:
    """As `predict`, which would trace the model."""
    return keras.ops.convert_to_numpy(model(BATCH))


def trained(model, epochs=1, **settings) -> list[float]:
    rate = LearningRate(1e-2, 20, 2)
    model.compile(Optimizer(rate), LOSS, **settings or UNTRACED)
    if model.built:  # else `fit` traces twice, because the first time makes the slots
        model.optimizer.build(model.trainable_variables)
    done = model.fit(BATCH, LABELS, epochs=epochs, batch_size=8, verbose=0)
    return done.history["loss"]


def check_dropout():
    encoder = make_encoder(BERT)

    def drawn():
        return keras.ops.convert_to_numpy(
            encoder(BATCH, training=True)["sequence_output"]
        )

    assert (drawn() != drawn()).any()
    plain = [
        keras.ops.convert_to_numpy(encoder(BATCH)["sequence_output"]) for _ in range(2)
    ]
    assert np.array_equal(*plain)
    losses = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        model = classifier(make_encoder(BERT))
        model.layers[-1].kernel.assign(HEAD)
        model.compile(keras.optimizers.SGD(0.0), LOSS, **UNCOMPILED)
        done = model.fit(BATCH, LABELS, epochs=3, batch_size=8, verbose=0)
        losses.append(done.history["loss"])
    # At a rate of 0, only dropout makes the losses of a model differ.
    assert losses[0] == losses[1] != losses[2], losses
    assert len(set(losses[0])) == 3, losses


HEADS = [
    (tasks.Classification(2), BERT),
    (tasks.Span(), BERT),
    (tasks.Tagging(3), BERT),
    (tasks.Classification(2).with_layers(BiLstm(2, size=8), None), BERT),
    (SpanBeams(DEFAULT, document_first=False, cls_last=False), BERT),
    (MaskedLM(), BERT),
]
if "gpt" in RELATIVES:
    HEADS.append((WithLanguageModel(tasks.Classification(2), 0.5), RELATIVES["gpt"]))


class WithHead(keras.Model):
    """A network of the scripts, as a person would train it by `fit`."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def call(self, inputs, training=None):  # on JAX, `fit` tells only the model itself
        outputs = self.network(inputs, training=training)
        return keras.ops.mean(next(iter(outputs.values())), axis=0, keepdims=True)


def check_heads():
    """What the scripts train draws dropout in `fit`, and only there."""
    more = {"masked_lm_positions": np.ones((8, 2), "int32")}
    more |= {"segment_ids": np.ones((8, 6), "int32")}
    for objective, config in HEADS:
        model = WithHead(objective.network(config, seed=1))
        inputs = BATCH | more
        plain = [keras.ops.convert_to_numpy(model(inputs)) for _ in range(2)]
        drawn = [
            keras.ops.convert_to_numpy(model(inputs, training=True)) for _ in range(2)
        ]
        assert np.array_equal(*plain), objective
        assert (drawn[0] != drawn[1]).any(), objective
    model = WithHead(tasks.Classification(2).network(BERT))
    model.compile(keras.optimizers.SGD(0.0), "mse", **UNCOMPILED)
    still = model.fit(BATCH, np.ones((8, 2)), epochs=3, batch_size=8, verbose=0)
    assert len(set(still.history["loss"])) == 3, still.history


def check_formats(config, folder):
    model = classifier(make_encoder(config, seed=3))
    expected = answers(model)
    path = str(folder / "model.keras")
    model.save(path)
    again = keras.models.load_model(path)
    np.testing.assert_array_equal(answers(again), expected)
    model.save_weights(folder / "some.weights.h5")
    other = classifier(make_encoder(config, seed=4))
    assert (answers(other) != expected).any()
    other.load_weights(folder / "some.weights.h5")
    np.testing.assert_array_equal(answers(other), expected)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(answers(clone), expected)
    assert trained(again)  # and it goes on


def check_training():
    """In a subclass, frozen, compiled, in bfloat16, and with low-rank updates."""
    subclassed = Subclassed(make_encoder(BERT))
    assert trained(subclassed)
    frozen = make_encoder(BERT)
    frozen.trainable = False
    before = [keras.ops.convert_to_numpy(v) for v in frozen.weights]
    model = classifier(frozen)
    trained(model, epochs=2)
    assert len(model.trainable_variables) == 2
    for variable, value in zip(frozen.weights, before, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable), value)
    if IS_TENSORFLOW:  # JAX always compiles
        assert trained(classifier(make_encoder(BERT), length=6), jit_compile=True)
    rounded = classifier(make_encoder(BERT, dtype="mixed_bfloat16"))
    assert np.isfinite(trained(rounded)).all()
    encoder = make_encoder(BERT)
    plain = classifier(encoder)
    expected = answers(plain)
    for variable in encoder.weights:
        variable.trainable = False
    dense = [
        layer
        for layer in encoder._flatten_layers()
        if isinstance(layer, keras.layers.Dense)
    ]
    for layer in dense:
        layer.enable_lora(2)
    np.testing.assert_allclose(answers(plain), expected, atol=1e-6)
    assert len(encoder.trainable_variables) == 2 * len(dense)
    trained(plain, epochs=3)
    assert (answers(plain) != expected).any()


def check_learning():
    still = BertConfig(
        **SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    losses = trained(classifier(make_encoder(still)), epochs=20, **UNCOMPILED)
    assert losses[-1] < 0.1 < 0.5 < losses[0], losses


def check_replicas():
    """Two replicas train as one device does."""
    import tensorflow as tf

    still = BertConfig(
        **SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    settings = {"clip_norm": 0.0}  # Keras clips before it adds the replicas' gradients

    def losses():
        model = classifier(make_encoder(still, seed=3), length=6)
        model.layers[-1].kernel.assign(HEAD)
        # Low, because the first updates of Adam follow the sign of the smallest gradients.
        rate = LearningRate(1e-3, 20, 2, settings)
        model.compile(Optimizer(rate, settings), LOSS, **UNCOMPILED)
        done = model.fit(
            BATCH, LABELS, epochs=6, batch_size=8, verbose=0, shuffle=False
        )
        return done.history["loss"]

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        found = losses()
    np.testing.assert_allclose(found, losses(), rtol=1e-4)


def main(folder, part="bert"):
    folder = pathlib.Path(folder)
    if part == "replicas":
        check_replicas()
    elif part == "formats":
        for config in CONFIGS:
            check_formats(config, folder)
    else:
        check_dropout()
        check_heads()
        if not IS_TENSORFLOW:  # there, `formats` does, and the page on Python
            check_formats(BERT, folder)
        check_training()
        check_learning()
    print("all checks passed on", keras.backend.backend())


if __name__ == "__main__":
    main(*sys.argv[1:])
