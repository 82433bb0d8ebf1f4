"""Predictors and servers, made when a test first asks for them."""

import contextlib
import functools

import pytest

from training import backend  # noqa: F401  TensorFlow, without its log messages
from serving.predictor import Predictor
from tests import exports
from tests.serving.clients import serving


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    """Maps a form to a predictor of its export."""
    exported = exports.maker(tmp_path_factory)
    return functools.cache(lambda form: Predictor(exported(form)))


@pytest.fixture(scope="module")
def port(predictor):
    """The port of a server of a form, which stays up."""
    with contextlib.ExitStack() as servers:
        yield functools.cache(
            lambda form: servers.enter_context(serving(predictor(form)))
        )
