"""A folder with the data of a plan."""

import pytest


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with text and a task of each kind; the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("text.txt", "held_out.txt", "vocab.txt"):
        content = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"
        (tmp_path / name).write_text(content)
    for name in (
        "SST-2/train.tsv",
        "SST-2/dev.tsv",
        "questions/train-v1.1.json",
        "questions/dev-v1.1.json",
        "names/train.txt",
        "names/dev.txt",
        "trees/en-ud-train.conllu",
        "trees/en-ud-dev.conllu",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path
