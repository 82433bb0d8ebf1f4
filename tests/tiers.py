"""Which cases of a test the default tier has; `pytest --everything` has all."""

from collections.abc import Container, Iterable

import pytest


def cases(every: Iterable, default: Container) -> list:
    """Parameters of a test; all but those of the default tier are exhaustive."""
    return [
        case
        if case in default
        else _exhaustive(case if type(case) is tuple else (case,))
        for case in every
    ]


def _exhaustive(values):
    return pytest.param(*values, marks=pytest.mark.exhaustive)
