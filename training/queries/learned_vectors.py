"""Makes of pooled vectors what a model was trained for: a projection, length 1."""

from typing import NamedTuple

import numpy as np

from training.storage.source import Source
from training.interchange.vector_settings import (
    BIAS,
    KERNEL,
    VectorSettings,
    read_settings,
)


class LearnedVectors(NamedTuple):
    """What follows the pooling in a model that was trained for vectors.

    Attributes:
        settings: the model's.
        projection: the weights of its linear layer, by their names; {} without one.
    """

    settings: VectorSettings
    projection: dict[str, np.ndarray]

    def of(self, pooled: np.ndarray) -> np.ndarray:
        """float32 [n, h] -> [n, d]"""
        if self.projection:
            pooled = pooled @ self.projection[KERNEL] + self.projection[BIAS]
        if self.settings.projection_activation:
            pooled = np.tanh(pooled)
        if self.settings.normalize:
            lengths = np.linalg.norm(pooled, axis=1, keepdims=True)
            pooled = pooled / np.maximum(lengths, 1e-12)
        return pooled


def read_vectors(source: Source) -> LearnedVectors | None:
    """What a model's files say of its vectors; None if it was not trained for any."""
    settings = read_settings(source.task)
    if not settings:
        return None
    names = [KERNEL, BIAS] if settings.projection_size else []
    return LearnedVectors(settings, source.read(names) if names else {})
