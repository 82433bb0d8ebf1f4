"""The trials of a command: every combination of the values that a search varies."""

import dataclasses
import itertools


@dataclasses.dataclass(frozen=True)
class Trial:
    """One combination of the values that a search varies."""

    learning_rate: float
    train_batch_size: int
    num_train_epochs: float
    seed: int

    def __str__(self):
        return (
            f"rate{self.learning_rate}-batch{self.train_batch_size}"
            f"-epochs{self.num_train_epochs}-seed{self.seed}"
        )


def every_trial(given) -> list[Trial]:
    product = itertools.product(
        given.learning_rate,
        given.train_batch_size,
        given.num_train_epochs,
        range(given.seed, given.seed + given.num_trials),
    )
    return [Trial(*values) for values in dict.fromkeys(product)]


def varied(trials: list[Trial]) -> dict:
    """What a command's settings say about its trials."""
    if len(trials) == 1:
        return dataclasses.asdict(trials[0])
    return {"searched": [str(trial) for trial in trials]}
