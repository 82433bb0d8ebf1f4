"""Its network needs no TensorFlow: the same numbers on Keras's JAX backend."""

import pytest

from tests.modeling.test_jax_backend import check


@pytest.mark.exhaustive
def test_jax_equals_the_release_without_tensorflow():
    check("tests/family/elmo/elmo_on_jax.py")
