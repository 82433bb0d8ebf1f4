"""Losses and gradients of a network, and how near values are to those of a release."""

import numpy as np
import tensorflow as tf

from modeling import custom_gradients, losses


def gradients(objective, model, batch):
    """The losses, named as in the releases, and the gradient of each variable."""
    variables = {v.path: v for v in model.trainable_variables}
    with custom_gradients.use_gradients(), tf.GradientTape() as tape:
        pairs = objective.losses(batch, model(batch))
        means = {name: losses.mean(*pair) for name, pair in pairs.items()}
        loss = sum(objective.loss_weights[name] * means[name] for name in means)
    found = tape.gradient(
        loss, [v.value for v in variables.values()], unconnected_gradients="zero"
    )
    found = [tf.convert_to_tensor(gradient) for gradient in found]
    return {"total_loss": loss, **means}, dict(zip(variables, found, strict=True))


def check_close(found, expected, prefix="", tolerance=1e-5):
    for path, value in found.items():
        np.testing.assert_allclose(
            value, expected[prefix + path], rtol=0, atol=tolerance, err_msg=path
        )
