"""Estimates the time and memory of a training from a few updates; writes nothing."""

import dataclasses
import resource
import statistics
import time

from training.backend import tf
from training.run import distribution, loop
from errors import duration, size
from text.records import reading

# A multiplication and an addition; the gradients take two products more.
_PASSES = 3 * 2
_UPDATES = 3  # timed, after a first that traces and compiles

# Floating-point operations of the paper's runs (arXiv:1810.04805, A.2): a million updates
# of 256 rows, of 128 tokens and then a tenth of 512. Rows of 512 have 76 predictions.
PAPER = {"BERT-Base": 2.38e19, "BERT-Large": 8.15e19}


@dataclasses.dataclass(frozen=True)
class Measurements:
    """What was counted and measured.

    Attributes:
        weights: of the model.
        checkpoint_bytes: of one checkpoint, with the optimizer's slots.
        flops: floating-point operations of one update, over all devices.
        seconds: of one update, the median of a few.
        peak_bytes: the most memory in use so far: of a GPU, else of this process.
    """

    weights: int
    checkpoint_bytes: int
    flops: float
    seconds: float
    peak_bytes: int

    def lines(self, num_train_steps: int, epochs: float | None) -> list[str]:
        """What to tell a user about a run of this many updates.

        Args:
            epochs: of its records; None if these are mixed.
        """
        total = self.flops * num_train_steps
        paper = ", ".join(
            f"{total / flops:.2g} of {name}'s in the paper"
            for name, flops in PAPER.items()
        )
        return [
            f"{self.weights:,} weights; a checkpoint takes {size(self.checkpoint_bytes)}",
            f"an update: {self.flops / 1e12:.3g} TFLOP in {self.seconds:.3g} s, "
            f"{self.flops / self.seconds / 1e12:.3g} TFLOP/s; "
            f"{size(self.peak_bytes)} of memory",
            f"the run: {num_train_steps:,} updates, "
            + (f"{epochs:.1f} epochs, " if epochs is not None else "")
            + f"{duration(num_train_steps * self.seconds)} without evaluations",
            f"computation: {total:.2g} FLOP, {paper}",
        ]


def measure(trainer: loop.Trainer, data: reading.Records) -> Measurements:
    """Runs some updates of a trainer, which must not train or save afterwards."""
    settings = trainer.settings
    batches = distribution.distribute(
        trainer.strategy,
        lambda part: data.training(
            settings.batch_size, seed=settings.seed, first_batch=0, part=part
        ),
    )
    trainer.run_updates(batches, 1)
    seconds = []
    for _ in range(_UPDATES):
        began = time.perf_counter()
        trainer.run_updates(batches, 1)
        seconds.append(time.perf_counter() - began)
    weights, slots = (
        sum(v.shape.num_elements() for v in variables)
        for variables in (trainer.weights.values(), trainer.optimizer.variables)
    )
    return Measurements(
        weights=weights,
        checkpoint_bytes=4 * (weights + slots),
        flops=settings.batch_size * of_row(trainer, data),
        seconds=statistics.median(seconds),
        peak_bytes=_peak_bytes(),
    )


def of_row(trainer: loop.Trainer, data: reading.Records) -> int:
    """Floating-point operations of training on one row, in products of matrices."""
    settings = trainer.settings
    rows = data.training(settings.batch_size, seed=settings.seed, first_batch=0)
    batch = trainer.prepare(next(iter(rows)))
    predicted = ("masked_lm_positions", "target_ids", "input_ids")
    name = next(name for name in predicted if name in batch)
    sizes = batch["input_ids"].shape[1], batch[name].shape[1]
    return _PASSES * trainer.model.multiplications(*sizes)


def _peak_bytes():
    gpus = tf.config.list_logical_devices("GPU")
    if gpus:
        return max(tf.config.experimental.get_memory_info(g.name)["peak"] for g in gpus)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
