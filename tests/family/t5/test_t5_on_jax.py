"""Its network needs no TensorFlow: the same numbers on Keras's JAX backend."""

import numpy as np
import pytest

from tests.family.t5 import t5_exact
from tests.modeling.test_jax_backend import check


@pytest.mark.exhaustive
def test_jax_equals_the_release_without_tensorflow(tmp_path):
    np.savez(tmp_path / "t5.npz", **t5_exact.values("v1_1"))
    check("tests/family/t5/t5_on_jax.py", tmp_path / "t5.npz")
