"""What holds for all tests."""

import os

import pytest

# As training/ sets it. Else JAX, where Keras loads it first, would set another one, and
# programs that tests start would take it over and say more than they do for a user.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture
def untraced():
    """For runs of a few updates, which take less time than the tracing of functions.

    Not for tests that look at the numbers of a training.
    """
    from training import tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
