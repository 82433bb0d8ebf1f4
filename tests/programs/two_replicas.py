"""Trains a tiny model on two logical CPUs; fails if the replicas' copies part."""

import numpy as np
import tensorflow as tf

from modeling import layers
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs
from modeling.optimizers import adam

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
config = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=6,
)
with strategy.scope():
    model = sentence_pairs.PretrainingModel(config)
    optimizer = adam.AdamWeightDecay(model.trainable_variables)
batch = {
    "input_ids": tf.ones((2, 6), tf.int32),
    "masked_lm_positions": tf.ones((2, 1), tf.int32),
    "masked_lm_ids": tf.ones((2, 1), tf.int32),
    "masked_lm_weights": tf.ones((2, 1)),
    "next_sentence_labels": tf.ones((2, 1), tf.int32),
}


def replica_step(step):
    """The same rows on both replicas: only dropout can make their losses differ."""
    context = tf.distribute.get_replica_context()
    seed = tf.stack([0, 2 * step + context.replica_id_in_sync_group])
    with tf.GradientTape() as tape:
        outputs = model(batch, dropouts=layers.Dropouts(seed))
        pairs = sentence_pairs.MaskedLMNextSentence().losses(batch, outputs)
        loss = sum(total for total, _ in pairs.values()) / 4.0
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    optimizer.apply(context.all_reduce("SUM", gradients), 0.01)
    return loss


@tf.function
def train():
    losses = strategy.run(replica_step, (0,))
    for step in tf.range(1, 4):
        strategy.run(replica_step, (step,))
    return losses


before = {v.path: v.numpy() for v in model.weights}
first, second = strategy.experimental_local_results(train())
assert float(first) != float(second), "both replicas drew the same dropout masks"
for variable in model.weights + optimizer.variables:
    first, second = strategy.experimental_local_results(variable.value)
    assert np.array_equal(first.numpy(), second.numpy()), variable.path
for variable in model.weights:
    assert (variable.numpy() != before[variable.path]).any(), variable.path
