"""Trains in every way that a user may ask for, and prints a digest of each result.

`same_bits.py few` takes one that combines the sizes, `same_bits.py others` all others.

At sizes where order shows: with few weights or activations, sums that have no fixed order
come out the same by chance.
"""

import hashlib
import json
import sys

import numpy as np

from training.backend import tf
from training.run import distribution, loop
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs

_PREDICTIONS = 20
# Many weights: 30,522 words of 128, so that chains of operations are compiled, too.
_WEIGHTS = {
    "vocab_size": 30522,
    "hidden": 128,
    "layers": 1,
    "heads": 2,
    "rows": 16,
    "length": 128,
}
# Many activations: attention of 8 heads over 512 tokens.
_ACTIVATIONS = {
    "vocab_size": 1000,
    "hidden": 64,
    "layers": 1,
    "heads": 8,
    "rows": 8,
    "length": 512,
}

# Both.
_BOTH = _WEIGHTS | {"heads": 8, "rows": 8, "length": 256}


def batches(vocab_size, rows, length):
    """Four batches of random tokens, for ever."""
    rng = np.random.default_rng(0)

    def integers(high, *shape):
        return rng.integers(0, high, (4, rows, *shape), dtype=np.int32)

    batch = {
        "input_ids": integers(vocab_size, length),
        "input_mask": np.ones((4, rows, length), np.int32),
        "segment_ids": integers(2, length),
        "masked_lm_positions": integers(length, _PREDICTIONS),
        "masked_lm_ids": integers(vocab_size, _PREDICTIONS),
        "masked_lm_weights": np.ones((4, rows, _PREDICTIONS), np.float32),
        "next_sentence_labels": integers(2, 1),
    }
    return tf.data.Dataset.from_tensor_slices(batch).repeat()


def digest(strategy, size, updates, *, dtype="float32", accumulation=1, xla=False):
    """SHA-256 of all weights and slots after some updates with dropout."""
    config = BertConfig(
        vocab_size=size["vocab_size"],
        hidden_size=size["hidden"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        intermediate_size=256,
        max_position_embeddings=512,
    )
    objective = sentence_pairs.MaskedLMNextSentence()
    settings = loop.LoopSettings(
        num_train_steps=1000,
        num_warmup_steps=4,
        learning_rate=1e-3,
        batch_size=size["rows"],
        accumulation_steps=accumulation,
        xla=xla,
    )
    trainer = loop.Trainer(
        strategy,
        lambda: objective.network(config, seed=1, dtype=dtype),
        objective,
        settings,
    )
    rows = size["rows"] // strategy.num_replicas_in_sync
    data = distribution.distribute(
        strategy, lambda part: batches(size["vocab_size"], rows, size["length"])
    )
    for _ in range(2):
        trainer.run_updates(data, updates // 2)
    found = hashlib.sha256()
    for name in sorted(trainer.variables):
        found.update(trainer.variables[name].numpy().tobytes())
    return found.hexdigest()


def main():
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    one, mirrored = distribution.make("one"), distribution.make("mirrored")
    bfloat16 = {"dtype": "mixed_bfloat16"}
    few = {"long rows, many weights": (one, _BOTH, 2, {})}
    others = {
        "replicas, long rows": (mirrored, _BOTH | {"length": 512}, 4, {}),
        "replicas, accumulation, bfloat16": (
            mirrored,
            _WEIGHTS,
            4,
            bfloat16 | {"accumulation": 2},
        ),
        "XLA": (one, _WEIGHTS, 10, {"xla": True}),
        "XLA, bfloat16": (one, _WEIGHTS, 4, bfloat16 | {"xla": True}),
        "bfloat16": (one, _WEIGHTS, 40, bfloat16),
        "accumulation": (one, _WEIGHTS, 10, {"accumulation": 4}),
        "long rows, accumulation, bfloat16": (
            one,
            _ACTIVATIONS,
            4,
            bfloat16 | {"accumulation": 2},
        ),
    }
    ways = few if sys.argv[1:] == ["few"] else others
    print(
        json.dumps({way: digest(*w, **options) for way, (*w, options) in ways.items()})
    )


if __name__ == "__main__":
    main()
