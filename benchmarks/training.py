"""Measures examples per second of one update, by number type and compiler.

python -m benchmarks.training [--num_hidden_layers=4 --hidden_size=256]
"""

import dataclasses
import statistics
import time

import command_line
import options
from training.backend import tf
from training.run import distribution, loop
from benchmarks import flop, pretraining
from modeling.objectives import sentence_pairs

_VARIANTS = {
    "float32": {"dtype": "float32", "xla": False},
    "float32, XLA": {"dtype": "float32", "xla": True},
    "bfloat16": {"dtype": "mixed_bfloat16", "xla": False},
    "bfloat16, XLA": {"dtype": "mixed_bfloat16", "xla": True},
}


@dataclasses.dataclass(frozen=True)
class Options(flop.Sizes):
    repeats: int = options.field(15, help="Updates timed; the median is printed.")


def updater(
    sizes: flop.Sizes, dtype: str, xla: bool, recompute: bool = False, warm_up: int = 3
):
    """A function that runs updates, one or as many as it is told; traced and warm."""
    config = pretraining.config(sizes)
    objective = sentence_pairs.MaskedLMNextSentence()
    trainer = loop.Trainer(
        distribution.make("one"),
        lambda: objective.network(config, dtype=dtype),
        objective,
        loop.LoopSettings(
            num_train_steps=1000,
            num_warmup_steps=100,
            learning_rate=1e-4,
            batch_size=sizes.batch_size,
            xla=xla,
            recompute=recompute,
        ),
    )
    data = tf.data.Dataset.from_tensors(pretraining.batch(sizes)).repeat()
    iterator = distribution.distribute(trainer.strategy, lambda part: data)

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
