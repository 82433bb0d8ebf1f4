"""What tests do with whole runs."""

import contextlib

import pytest

from training import loop


class Killed(BaseException):
    """No part of the program expects it."""


@contextlib.contextmanager
def dying(step: int):
    """A training inside dies where it has saved a step and is about to go on.

    In this process, and so fast; tests/test_determinism.py kills processes, anywhere.
    """
    save = loop.Trainer.save

    def saved(trainer, directory):
        prefix = save(trainer, directory)
        if trainer.progress.step == step:
            raise Killed
        return prefix

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(loop.Trainer, "save", saved)
        yield
