"""The trials of a command."""

import dataclasses


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


def describe_trials(trials: list[Trial]) -> dict:
    """What a command's settings say about its trials."""
    if len(trials) == 1:
        return dataclasses.asdict(trials[0])
    return {"searched": [str(trial) for trial in trials]}
