"""The optimizer called modern_bert has the values of ModernBERT's release."""

import keras
import numpy as np
import pytest
from keras import ops

import bert
import run_pretraining
from errors import UserError
from modeling.optimizers.table import OptimizerSettings

KIND = "modern_bert"


def test_its_updates_are_stable_adamws_with_the_releases_values():
    draw = np.random.default_rng(0).normal
    start, gradients = draw(size=(3, 4)), draw(size=(4, 3, 4)).astype("float32")
    explicit = {"adam_beta_2": 0.98, "weight_decay": 0.0125}
    found = []
    for settings in (
        OptimizerSettings(KIND),
        OptimizerSettings("stable_adamw", **explicit),
        OptimizerSettings("stable_adamw", weight_decay=0.0125),
    ):
        variable = keras.Variable(start.astype("float32"), name="kernel")
        optimizer = settings.make([variable])
        for step, gradient in enumerate(gradients):
            optimizer.apply([gradient], 8e-4, step)
        found.append(variable.numpy())
    own, same, other_beta = found
    np.testing.assert_array_equal(own, same)
    assert np.abs(own - other_beta).max() > 1e-7


def test_an_update_at_the_peak_subtracts_the_releases_weight_decay():
    for given, expected in (({}, 1e-5), ({"weight_decay": 0.0}, 0.0)):
        variable = keras.Variable(ops.ones(2), name="kernel")
        made = OptimizerSettings(KIND, **given).make([variable])
        made.apply([ops.zeros(2)], 8e-4, 0)
        np.testing.assert_allclose(1.0 - variable.numpy(), expected, rtol=0.01)


def test_its_rate_rises_stays_and_falls_with_the_root():
    settings = OptimizerSettings(KIND, num_decay_steps=4)
    rates = [float(settings.learning_rate(step, 8e-4, 12, 2)) for step in range(12)]
    falling = [1 - np.sqrt(x / 4) for x in range(4)]
    expected = [0.0, 0.5, *[1.0] * 6, *falling]
    np.testing.assert_allclose(rates, 8e-4 * np.array(expected), rtol=1e-6)


@pytest.mark.parametrize("name", ["adam_beta_2", "weight_decay"])
def test_a_value_of_ones_own_is_refused(name):
    with pytest.raises(UserError, match=f"--{name}=0.5: --optimizer={KIND} does not"):
        run_pretraining.Options(output_dir="out", optimizer=KIND, **{name: 0.5})
    with pytest.raises(UserError, match=f"{name}: optimizer={KIND} does not have it"):
        bert.optimizer(1e-3, 10, optimizer=KIND, **{name: 0.5})
