"""The models of transformers in tests/golden/hf/, read and changed."""

import json

from safetensors.numpy import load_file, save_file

import tests
from training import checkpoint

GOLDEN = tests.GOLDEN / "hf"


def config_of(kind="pretraining"):
    return checkpoint.read_config(str(GOLDEN / kind))


def loaded(model, source, **arguments):
    """Loads a model's weights; returns the report."""
    variables = {v.path: v for v in model.variables}
    return checkpoint.load(variables, str(source), **arguments)


def change_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors")


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
