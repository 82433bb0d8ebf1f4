"""What is compiled computes what single operations do."""

import keras
import numpy as np
import pytest

from training.backend import tf
from training.run import compiler
from modeling import custom_gradients, fusion, layers, losses
from modeling.architectures import bert
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs

RNG = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    return tf.cast(RNG.normal(size=shape), dtype)


def with_gradients(function, *given):
    with custom_gradients.use_gradients(), tf.GradientTape() as tape:
        tape.watch(given)
        result = function(*given)
        first = result[0] if isinstance(result, tuple) else result
        total = tf.reduce_sum(
            tf.cast(first, "float32") * (1.0 + tf.cast(first, "float32"))
        )
    return [result, *tape.gradient(total, given)]


LABELS = np.array([3, 0, 49])
CHAINS = {
    "tanh": (lambda x, b: layers._activate(x, b, layers.gelu_tanh), [(4, 50), (50,)]),
    "erf": (lambda x, b: layers._activate(x, b, layers.gelu_erf), [(4, 50), (50,)]),
    "heads": (
        lambda x, b: bert._split_heads(x, b, 2, 0.5, (0, 2, 3, 1)),
        [(3, 5, 8), (8,)],
    ),
    "output": (
        lambda x, b, y: layers._drop_and_add(
            x,
            tf.cast(b, x.dtype),
            tf.cast(y, x.dtype),
            0.3,
            *layers.Dropouts([3, 4]).key(0.3),
        ),
        [(3, 5, 8), (8,), (3, 5, 8)],
    ),
    "dropout": (lambda x: layers.Dropouts([3, 4])(x, 0.3), [(4, 5, 50)]),
    "bias": (layers.add_wide, [(3, 50), (50,)]),
    "loss": (
        lambda x: losses.cross_entropy(
            tf.cast(x, "float32"), LABELS, np.float32([1, 0.5, 2])
        ),
        [(3, 50)],
    ),
    "hits": (lambda x: losses.accuracy(x, LABELS, np.ones(3, "float32")), [(3, 50)]),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CHAINS)
def test_compiled_chains_equal_single_operations(name, dtype):
    function, shapes = CHAINS[name]
    given = [
        normal(*shape, dtype=dtype if i == 0 else "float32")
        for i, shape in enumerate(shapes)
    ]
    plain = with_gradients(function, *given)
    calls = []

    def counting(function):
        calls.append(function)
        return compiler.compile_function(function)

    with fusion.fuse_with(counting):
        found = with_gradients(function, *given)
    assert calls
    tolerance = 3e-6 if dtype == "float32" else 2e-2
    for a, b in zip(tf.nest.flatten(plain), tf.nest.flatten(found), strict=True):
        if a is None:  # what a gradient does not reach
            assert b is None or not b.numpy().any()
            continue
        assert a.dtype == b.dtype
        a, b = tf.cast(a, "float32"), tf.cast(b, "float32")
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# --- gradients that are written out ---------------------------------------------------


@pytest.mark.parametrize(
    "compile", [None, compiler.compile_function], ids=["plain", "fused"]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("center", [True, False])
def test_layer_norm_and_its_gradients_equal_keras(compile, dtype, center):
    policy = "float32" if dtype == "float32" else "mixed_bfloat16"
    layer = layers.LayerNorm(1e-6, policy, center=center)
    theirs = keras.layers.LayerNormalization(
        epsilon=1e-6, dtype="float32", center=center
    )
    x, weights = normal(4, 8, 32, dtype=dtype), normal(4, 8, 32)
    values = [normal(32), normal(32)] if center else [normal(32)]
    found = []
    for one in (layer, theirs):
        one.build(x.shape)
        one.set_weights(values)
        with (
            fusion.fuse_with(compile),
            custom_gradients.use_gradients(),
            tf.GradientTape() as tape,
        ):
            tape.watch(x)
            y = one(x)
            loss = tf.reduce_sum(tf.cast(y, "float32") * weights)
        trained = [v.value for v in one.trainable_variables]
        found.append([y, *tape.gradient(loss, [x, *trained])])
    tolerance = 1e-5 if dtype == "float32" else 5e-2
    for ours, expected in zip(*found, strict=True):
        ours, expected = tf.cast(ours, "float32"), tf.cast(expected, "float32")
        np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance)
    assert found[0][2].dtype == "float32"


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_cross_entropy_and_its_gradient_equal_keras(scale):
    logits = scale * normal(6, 50)
    labels, weights = np.array([0, 1, 2, 3, 4, 49]), np.float32([1, 1, 0, 0.5, 2, 1])
    with custom_gradients.use_gradients(), tf.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        ours, weight = losses.cross_entropy(logits, labels, weights)
        entropy = keras.ops.sparse_categorical_crossentropy(
            labels, logits, from_logits=True
        )
        expected = tf.reduce_sum(entropy * weights)
    assert float(weight) == 5.5
    np.testing.assert_allclose(ours, expected, rtol=1e-6)
    gradients = [tape.gradient(x, logits) for x in (ours, expected)]
    np.testing.assert_allclose(*gradients, rtol=1e-5, atol=1e-6)


def test_of_equal_logits_the_first_is_the_highest():
    logits = np.float32([[1, 2, 2], [2, 2, 1], [0, -0.0, -1], [1, 2, 3]])
    ones = np.ones(4, "float32")

    def hits(labels):
        return float(losses.accuracy(logits, np.array(labels), ones)[0])

    assert hits([1, 0, 0, 2]) == 4
    assert hits([2, 1, 1, 1]) == 0
    assert hits(np.argmax(logits, axis=1)) == 4
    assert float(losses.accuracy(logits * np.nan, np.zeros(4, int), ones)[0]) == 0


# --- when to compile ------------------------------------------------------------------


def test_small_models_and_gpus_are_not_compiled(monkeypatch):
    def network(vocab_size):
        config = BertConfig(
            vocab_size=vocab_size,
            hidden_size=64,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=64,
        )
        return sentence_pairs.PretrainingModel(config)

    assert compiler.for_model(network(100)) is None
    assert compiler.for_model(network(48_000)) is compiler.compile_function
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    assert compiler.for_model(network(48_000)) is None
