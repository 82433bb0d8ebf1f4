"""Models of transformers, to be changed."""

import shutil

import pytest

from tests.training.interchange.hugging_face import GOLDEN


@pytest.fixture
def folder(tmp_path):
    """A copy of the pre-trained BERT."""
    return shutil.copytree(GOLDEN / "pretraining", tmp_path / "model")
