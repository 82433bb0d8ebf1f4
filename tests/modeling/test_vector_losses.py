"""Which texts of a batch count as negatives. The losses' numbers are compared with
sentence-transformers' in tests/training/interchange/test_transformers_vectors.py."""

import numpy as np

from training.backend import tf
from modeling import vector_losses


def in_batch(vectors, keys, **changes):
    settings = {"temperature": 0.5, "symmetric": False} | changes
    pairs = vector_losses.in_batch_negatives(
        tf.constant(vectors),
        {"text_keys": tf.constant(keys, tf.int32)},
        tf.ones(len(vectors)),
        **settings,
    )
    return [float(total) for total, _ in pairs]


def entropy(logits):
    """-log p of the first."""
    return np.log(np.exp(np.array(logits) - logits[0]).sum())


def test_texts_that_fit_as_well_are_no_negatives():
    vectors = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    products = vectors[:, 0] @ vectors[:, 1].T / 0.5
    # Rows 0 and 1 have the same second text, 2 and 3 the same first one, and the second
    # text of row 3 is the first of row 0.
    keys = [[1, 2], [3, 2], [4, 5], [4, 1]]
    negatives = {0: [2], 1: [2, 3], 2: [0, 1], 3: [0, 1]}
    expected = sum(
        entropy([products[i, i], *products[i, others]])
        for i, others in negatives.items()
    )
    loss, right = in_batch(vectors, keys)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert right == sum(
        products[i, i] > products[i, others].max() for i, others in negatives.items()
    )


def test_a_text_that_fits_an_equal_first_one_is_no_hard_negative():
    """Not even for another row with this first text."""
    vectors = np.random.default_rng(3).normal(size=(3, 3, 4)).astype(np.float32)
    keys = [[1, 2, 10], [1, 3, 11], [5, 6, 3]]
    candidates = np.concatenate([vectors[:, 1], vectors[:, 2]])
    products = vectors[:, 0] @ candidates.T / 0.5
    # The last candidate is text 3, which fits text 1.
    negatives = {0: [2, 3, 4], 1: [2, 3, 4], 2: [0, 1, 3, 4, 5]}
    expected = sum(
        entropy([products[i, i], *products[i, others]])
        for i, others in negatives.items()
    )
    loss, _ = in_batch(vectors, keys)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_texts_that_a_row_does_not_have_change_nothing():
    vectors = np.random.default_rng(1).normal(size=(3, 3, 4)).astype(np.float32)
    keys = np.arange(1, 10).reshape(3, 3)
    for symmetric in (False, True):
        expected = in_batch(vectors[:, :2], keys[:, :2], symmetric=symmetric)
        found = in_batch(vectors, keys * [1, 1, 0], symmetric=symmetric)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_scores_order_cosines():
    """Of pairs of rows with equal scores, neither must be before the other."""
    vectors = np.random.default_rng(2).normal(size=(3, 2, 3)).astype(np.float32)
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    cosines = (unit[:, 0] * unit[:, 1]).sum(axis=-1)
    scores = [0.2, 0.9, 0.2]
    surplus = [
        (cosines[i] - cosines[j]) / 0.5
        for i in range(3)
        for j in range(3)
        if scores[i] < scores[j]
    ]
    compiled = tf.function(vector_losses.cosent, jit_compile=True)  # as on a TPU
    (loss, weight), (right, number) = compiled(
        tf.constant(vectors),
        {"scores": tf.constant(scores)},
        tf.ones(3),
        temperature=0.5,
    )
    assert (float(weight), float(number)) == (3.0, len(surplus)) == (3.0, 2)
    np.testing.assert_allclose(loss / weight, entropy([0.0, *surplus]), rtol=1e-5)
    assert float(right) == sum(x < 0 for x in surplus)
