"""What a model that was trained for vectors does with the tokens of a text."""

from collections.abc import Mapping
from typing import NamedTuple

TASK = "SentenceVectorTask"  # what a run's task.json calls it
KERNEL, BIAS = "vectors/projection/kernel", "vectors/projection/bias"


class VectorSettings(NamedTuple):
    """The settings, as a run's task.json has them.

    Attributes:
        pooling: one of `features.TOKEN_POOLINGS`.
        normalize: whether vectors have the length 1.
        projection_size: outputs of a linear layer on the vectors; None without one.
        projection_activation: of that layer, "tanh" or None.
        query_prompt, passage_prompt: what is put before texts that are searched for, and
            before those that are found.
        max_seq_length: tokens of a text; None if it is not known.
    """

    pooling: str = "mean"
    normalize: bool = True
    projection_size: int | None = None
    projection_activation: str | None = None
    query_prompt: str = ""
    passage_prompt: str = ""
    max_seq_length: int | None = None

    @property
    def prompts(self) -> dict[str, str]:
        """By name; {} without any."""
        both = {"query": self.query_prompt, "passage": self.passage_prompt}
        return both if any(both.values()) else {}

    def prompt(self, are_queries: bool) -> str:
        """What is put before texts."""
        return self.query_prompt if are_queries else self.passage_prompt


def read_settings(task: Mapping) -> VectorSettings | None:
    """Those of a model; None if it was trained for something else.

    Args:
        task: what its files say of its head; see `Source.task`.
    """
    if task.get("task") != TASK:
        return None
    known = {name: task[name] for name in VectorSettings._fields if name in task}
    settings = VectorSettings(**known)
    length = task.get("flags", {}).get("max_seq_length", settings.max_seq_length)
    return settings._replace(max_seq_length=length)
