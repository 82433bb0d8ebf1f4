"""Which cases of a test the default tier has; `pytest --everything` has all."""

from collections.abc import Container, Iterable

import pytest

import tests


def cases(every: Iterable, default: Container) -> list:
    """Parameters of a test; all but those of the default tier are exhaustive."""
    return [
        case
        if case in default
        else _exhaustive(case if type(case) is tuple else (case,))
        for case in every
    ]


def of_family(name: str) -> pytest.MarkDecorator:
    """Marks what a copy without this folder of family/ cannot have."""
    is_here = (tests.ROOT / "family" / name).is_dir()
    return pytest.mark.skipif(not is_here, reason=f"family/{name} is not here")


def _exhaustive(values):
    return pytest.param(*values, marks=pytest.mark.exhaustive)
