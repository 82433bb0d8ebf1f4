"""Measures examples per second of one update, by number type and compiler.

python -m benchmarks.training [--num_hidden_layers=4 --hidden_size=256]
"""

import dataclasses
import statistics
import time

import numpy as np

import command_line
import options
from training.backend import tf
from training.run import distribution, loop
from benchmarks.flop import HEAD_SIZE, NUM_PREDICTIONS
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs

_VARIANTS = {
    "float32": {"dtype": "float32", "xla": False},
    "float32, XLA": {"dtype": "float32", "xla": True},
    "bfloat16": {"dtype": "mixed_bfloat16", "xla": False},
    "bfloat16, XLA": {"dtype": "mixed_bfloat16", "xla": True},
}


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    num_hidden_layers: int = options.field(4, help="Layers.")
    hidden_size: int = options.field(256, help="Width; 64 per attention head.")
    vocab_size: int = options.field(30522, help="Size of the vocabulary.")
    batch_size: int = options.field(32, help="Examples per update.")
    max_seq_length: int = options.field(128, help="Tokens per example.")
    repeats: int = options.field(15, help="Updates timed; the median is printed.")


def batches(chosen: Options) -> tf.data.Dataset:
    """One batch of random tokens, repeated forever."""
    rng = np.random.default_rng(0)
    rows, length = chosen.batch_size, chosen.max_seq_length

    def integers(high, *shape):
        return rng.integers(0, high, shape, dtype=np.int32)

    batch = {
        "input_ids": integers(chosen.vocab_size, rows, length),
        "input_mask": np.ones((rows, length), np.int32),
        "segment_ids": integers(2, rows, length),
        "masked_lm_positions": integers(length, rows, NUM_PREDICTIONS),
        "masked_lm_ids": integers(chosen.vocab_size, rows, NUM_PREDICTIONS),
        "masked_lm_weights": np.ones((rows, NUM_PREDICTIONS), np.float32),
        "next_sentence_labels": integers(2, rows, 1),
    }
    return tf.data.Dataset.from_tensors(batch).repeat()


def updater(
    chosen: Options, dtype: str, xla: bool, recompute: bool = False, warm_up: int = 3
):
    """A function that runs updates, one or as many as it is told; traced and warm."""
    config = BertConfig(
        vocab_size=chosen.vocab_size,
        hidden_size=chosen.hidden_size,
        num_hidden_layers=chosen.num_hidden_layers,
        num_attention_heads=chosen.hidden_size // HEAD_SIZE,
        intermediate_size=4 * chosen.hidden_size,
        type_vocab_size=2,
    )
    objective = sentence_pairs.MaskedLMNextSentence()
    trainer = loop.Trainer(
        distribution.make("one"),
        lambda: objective.network(config, dtype=dtype),
        objective,
        loop.LoopSettings(
            num_train_steps=1000,
            num_warmup_steps=100,
            learning_rate=1e-4,
            batch_size=chosen.batch_size,
            xla=xla,
            recompute=recompute,
        ),
    )
    iterator = distribution.distribute(trainer.strategy, lambda part: batches(chosen))

    def update(count: int = 1):
        trainer.run_updates(iterator, count)

    for _ in range(warm_up):
        update()
    return update


def device_memory() -> dict:
    """The peak bytes of a GPU that this process computed on; nothing on a CPU."""
    if not distribution.gpus():
        return {}
    return {"bytes": tf.config.experimental.get_memory_info("GPU:0")["peak"]}


def main(chosen: Options) -> None:
    """Prints the table; variants take turns, so that a busy machine affects all."""
    updates = {name: updater(chosen, **how) for name, how in _VARIANTS.items()}
    seconds = {name: [] for name in updates}
    for _ in range(chosen.repeats):
        for name, update in updates.items():
            began = time.perf_counter()
            update()
            seconds[name].append(time.perf_counter() - began)
    print(
        f"{chosen.num_hidden_layers} layers of {chosen.hidden_size}, "
        f"batch {chosen.batch_size}, {chosen.max_seq_length} tokens"
    )
    print(f"{'':15} {'ms/update':>10} {'examples/s':>11} {'fastest ms':>11}")
    for name, times in seconds.items():
        median = statistics.median(times)
        speed = chosen.batch_size / median
        print(
            f"{name:15} {median * 1000:10.0f} {speed:11.1f} {min(times) * 1000:11.0f}"
        )


if __name__ == "__main__":
    command_line.run(main, Options)
