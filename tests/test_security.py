"""What docs/SECURITY.md promises of files that strangers made."""

import ast
import os
import pathlib
import pickle
import zipfile

import numpy as np
import pytest

import bert
import tests
from training.backend import keras
from training.distillation import answer_files
from training.storage.source import Source, read_config
from errors import UserError
from files import json_files, tables
from serving.predictor import Predictor
from tests import test_architecture
from text.records import framing
from text.records.descriptions import Description
from text.tokenizers.table import TokenizerOptions

ROOT = tests.ROOT
# Packages and calls by which a file could become code.
_RUN_CODE = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve", "torch"}
_CALLS = {"eval", "exec", "enable_unsafe_deserialization", "load_model", "load_pickle"}


class Payload:
    """Makes a folder in the working directory when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_no_code_here_makes_code_of_a_file():
    for path in test_architecture.product_files():
        assert not test_architecture.imported(path) & _RUN_CODE, path
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                assert name not in _CALLS, (path, node.lineno)
                passed = {argument.arg: argument.value for argument in node.keywords}
                for unsafe in ("allow_pickle", "shell"):
                    value = getattr(passed.get(unsafe), "value", False)
                    assert value is False, (path, node.lineno)


def pickled(path: pathlib.Path) -> None:
    """Writes what unpickling would run, in the form that the ending of a name means."""
    if path.suffix in (".npy", ".npz"):
        save = np.save if path.suffix == ".npy" else np.savez
        save(path, np.array([Payload()], object))
    elif path.suffix in (".pt", ".pth", ".bin"):  # as torch.save does
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("archive/data.pkl", pickle.dumps(Payload()))
    else:
        path.write_bytes(pickle.dumps(Payload()))


READERS = {
    "weights": lambda path: Source.open(path).read(),
    "folder": lambda path: Source.open(os.path.dirname(path)).read(),
    "model": bert.load,
    "task": bert.load_task,
    "config": read_config,
    "JSON": json_files.read,
    "vocabulary": lambda path: TokenizerOptions().load_tokenizer(path),
    "table": lambda path: list(tables.read(path)),
    "records": lambda path: list(framing.read(path)),
    "description": Description.read,
    "answers": lambda path: answer_files.read(path, ()),
    "export": Predictor,
}
NAMES = (
    "pytorch_model.bin model.pt model.pth model.pkl model.ckpt model.safetensors x.npy "
    "x.npz x_weights.hdf5 config.json vocab.txt vocab.json spiece.model tokenizer.json "
    "model.keras"
).split()


@pytest.mark.parametrize("reader", READERS)
def test_a_pickle_is_refused_by_every_reader_and_never_run(
    reader, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        path = tmp_path / name
        pickled(path)
        with pytest.raises(UserError):
            READERS[reader](str(path))
        path.unlink()
    assert not (tmp_path / "ran").exists()


def test_keras_refuses_code_in_a_file_also_after_bert_was_imported(tmp_path):
    layers = [keras.Input([2]), keras.layers.Lambda(lambda x: [os.mkdir("ran"), x][1])]
    path = str(tmp_path / "model.keras")
    keras.Sequential(layers).save(path)
    with pytest.raises(ValueError, match="[Uu]nsafe|safe_mode"):
        keras.models.load_model(path)
