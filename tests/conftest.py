"""What holds for all tests."""

import os

# As training/ sets it. Else JAX, where Keras loads it first, would set another one, and
# programs that tests start would take it over and say more than they do for a user.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
