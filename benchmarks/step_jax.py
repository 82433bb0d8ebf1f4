"""An update of pre-training on Keras's JAX backend: `modeling/` without TensorFlow.

The network, losses, optimizer and schedule of run_pretraining.py, compiled into one
function of JAX. benchmarks/peers.py runs it with --backends=jax, on a GPU if there is one.
"""

import jax
import keras
import numpy as np

from benchmarks import flop, pretraining
from modeling import custom_gradients, fusion, layers, losses
from modeling.objectives import sentence_pairs
from modeling.optimizers import adam, clipping, schedules


def updater(sizes: flop.Sizes, dtype: str, warm_up: int):
    """A function that runs updates, one or as many as it is told, compiled and warm;
    returns the loss of the last.
    """
    assert keras.backend.backend() == "jax"
    objective = sentence_pairs.MaskedLMNextSentence()
    model = objective.network(pretraining.config(sizes), dtype=dtype)
    optimizer = adam.AdamWeightDecay(model.trainable_variables)
    trained, slots = model.trainable_variables, optimizer.variables
    others = [v for v in model.variables if not v.trainable]

    def loss(values, batch, step):
        dropouts = layers.Dropouts(jax.numpy.stack([0, step]))
        with custom_gradients.use_gradients():
            outputs, _ = model.stateless_call(
                values, [v.value for v in others], batch, dropouts=dropouts
            )
            pairs = objective.losses(batch, outputs)
        return sum(losses.mean(*pair) for pair in pairs.values())

    def step_of(state, batch, step):
        values = state[: len(trained)]
        with fusion.whole_program():
            total, gradients = jax.value_and_grad(loss)(values, batch, step)
        scale, _ = clipping.clip_scale(gradients, 1.0)
        pairs = list(zip([*trained, *slots], state, strict=True))
        with keras.StatelessScope(pairs) as scope:
            rate = schedules.bert(step, 1e-4, 1000, 100)
            optimizer.apply(gradients, rate, step, scale)
        return [scope.get_current_value(variable) for variable, _ in pairs], total

    compiled = jax.jit(step_of, donate_argnums=0)
    # Copied, because a donated array is gone after the call.
    state = [jax.numpy.array(v.value) for v in (*trained, *slots)]
    batch = {k: jax.numpy.array(v) for k, v in pretraining.batch(sizes).items()}
    done = 0

    def update(count: int = 1):
        nonlocal state, done
        for _ in range(count):
            state, total = compiled(state, batch, np.int32(done))
            done += 1
        return _figures(jax.block_until_ready((state, total))[1])

    for _ in range(warm_up):
        update()
    return update


def _figures(loss) -> dict:
    outputs = {"loss": float(loss)}
    memory = jax.devices()[0].memory_stats()  # None on a CPU
    return outputs | ({"bytes": memory["peak_bytes_in_use"]} if memory else {})
