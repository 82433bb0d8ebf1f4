"""A folder with a text, and the sizes of tasks."""

import pytest

from tests.text.generation.settings import TEXT
from text.corpus import text_format
from text.generation import stages
from text.records import descriptions


@pytest.fixture(autouse=True)
def no_fsync(no_fsync):
    """For each of these tests."""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


@pytest.fixture
def many_tasks(monkeypatch):
    """Pieces so small that a short text makes many tasks."""
    monkeypatch.setattr(descriptions, "OFFSET_EVERY", 8)
    monkeypatch.setattr(text_format, "PIECE_BYTES", 1000)
    monkeypatch.setattr(stages, "BLOCK_TOKENS", 300)
    monkeypatch.setattr(stages, "SEGMENT_ROWS", 40)
    monkeypatch.setattr(stages, "BATCH_ROWS", 16)
