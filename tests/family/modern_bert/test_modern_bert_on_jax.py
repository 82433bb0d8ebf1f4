"""Its network needs no TensorFlow: the same numbers on Keras's JAX backend."""

import pytest

from tests.modeling.test_jax_backend import check


@pytest.mark.exhaustive
@pytest.mark.slow
def test_jax_equals_transformers_without_tensorflow():
    check("tests/family/modern_bert/modern_bert_on_jax.py")
