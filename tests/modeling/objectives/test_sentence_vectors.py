"""How texts become vectors in training."""

import numpy as np

from training.backend import tf
from modeling import layers, vector_losses
from modeling.objectives.sentence_vectors import OUTPUT, SentenceVectors
from tests import tiny


def test_dropout_reads_a_text_in_two_ways():
    """Nothing else makes the pairs of --train_kind=texts differ."""
    objective = SentenceVectors(
        vector_losses.cosine_error, of_whole_batch=False, metric=""
    )
    ids = np.tile(np.int32([2, 7, 8, 3]), (3, 2, 1))
    batch = {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}
    network = objective.network(tiny.config(vocab_size=20))
    vectors = network(batch, dropouts=layers.Dropouts(tf.constant([0, 1])))[OUTPUT]
    flat = np.reshape(vectors, (6, -1))
    distances = np.abs(flat[:, None] - flat[None]).max(axis=-1)
    assert distances[~np.eye(6, dtype=bool)].min() > 1e-3
