"""ModernBERT's optimizer and schedule, each compared with its formula in float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from training.run import compiler
from modeling import fusion
from modeling.optimizers.table import OptimizerSettings

SPIKE = 3  # the update whose gradient is far larger than those before it


def drawn():
    """Starts and the gradients of six updates, by name."""
    draw = np.random.default_rng(0).normal
    shapes = {"kernel": (3, 4), "bias": (4,)}
    starts = {name: draw(size=shape) for name, shape in shapes.items()}
    gradients = [
        {
            name: draw(size=s) * (1.0 if t == SPIKE else 1e-3)
            for name, s in shapes.items()
        }
        for t in range(6)
    ]
    return starts, gradients


def updated(w, gradients, rates, decay, beta_2):
    """Algorithm 2 of arXiv:2304.13013, step by step; and the RMS of each update."""
    m, v, all_rms = 0.0, 0.0, []
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        hat_1, hat_2 = (b * (1 - b ** (t - 1)) / (1 - b**t) for b in (0.9, beta_2))
        m = hat_1 * m + (1 - hat_1) * g
        v = hat_2 * v + (1 - hat_2) * g**2
        rms = np.sqrt(np.mean(g**2 / np.maximum(v, 1e-6**2)))
        lowered = rate / max(1.0, rms)
        w = w - lowered * decay * w - lowered * m / (np.sqrt(v) + 1e-6)
        all_rms.append(rms)
    return w, m, v, all_rms


@pytest.mark.parametrize("compile_", [None, compiler.compile_function])
def test_six_updates_equal_the_formula(compile_):
    starts, gradients = drawn()
    rates = [0.1 * (t + 1) for t in range(6)]
    variables = {
        name: keras.Variable(start.astype("float32"), name=name)
        for name, start in starts.items()
    }
    settings = OptimizerSettings("stable_adamw", adam_beta_2=0.98, weight_decay=0.0125)
    optimizer = settings.make(variables.values())
    for step, (each, rate) in enumerate(zip(gradients, rates, strict=True)):
        halves = [ops.cast(g / 2, "float32") for g in each.values()]
        with fusion.fuse_with(compile_):
            optimizer.apply(halves, rate, tf.constant(step, tf.int64), scale=2.0)
    for number, (name, variable) in enumerate(variables.items()):
        decay = 0.0125 if name == "kernel" else 0.0
        own = [each[name] for each in gradients]
        w, m, v, all_rms = updated(starts[name], own, rates, decay, 0.98)
        assert all_rms[SPIKE] > 1.5  # the test is about this
        for found, expected in (
            (variable, w),
            (optimizer.first_moments[number], m),
            (optimizer.second_moments[number], v),
        ):
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-7)


def test_layers_have_their_shares_of_the_rate():
    one, other = (keras.Variable(np.ones(3, "float32"), name=n) for n in "ab")
    settings = OptimizerSettings("stable_adamw", weight_decay=0.0)
    settings.make([one, other], {other.path: 0.5}).apply([ops.ones(3)] * 2, 0.1, 0)
    np.testing.assert_allclose(one, [0.9] * 3, rtol=1e-5)
    np.testing.assert_allclose(other, [0.95] * 3, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "falling"),
    [
        ({"lr_schedule": "wsd"}, [1.0, 0.75, 0.5, 0.25]),
        ({"lr_schedule": "wsd", "lr_decay_power": 2.0}, [1.0, 0.5625, 0.25, 0.0625]),
        ({"lr_schedule": "wsd_sqrt"}, [1.0, 0.5, 1 - 0.5**0.5, 1 - 0.75**0.5]),
        (
            {"lr_schedule": "wsd_sqrt", "min_lr_ratio": 0.1},
            [
                1.0,
                0.1 + 0.9 * 0.5,
                0.1 + 0.9 * (1 - 0.5**0.5),
                0.1 + 0.9 * (1 - 0.75**0.5),
            ],
        ),
    ],
)
def test_the_rate_rises_stays_and_falls(settings, falling):
    settings = OptimizerSettings(num_decay_steps=4, **settings)
    rates = [float(settings.learning_rate(step, 8e-4, 12, 2)) for step in range(12)]
    expected = [0.0, 0.5, *[1.0] * 6, *falling]
    np.testing.assert_allclose(rates, 8e-4 * np.array(expected), rtol=1e-6)
    # To the bit, so that another decay can begin there.
    assert set(rates[2:9]) == {float(np.float32(8e-4))}
