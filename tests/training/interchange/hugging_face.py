"""Models of transformers: read, changed, taken to the release's layout and back."""

import json

from safetensors.numpy import load_file, save_file

import tests
from training.storage.source import Source, read_config
from tests import jobs
from tests.conversion import convert
from training.interchange.table import adapter_of

GOLDEN = tests.GOLDEN / "hf"


def config_of(kind="pretraining"):
    return read_config(str(GOLDEN / kind))


def their_config(config) -> dict:
    """What a config.json says of a network."""
    return adapter_of(config).to_hugging_face(config)


def loaded(model, source, **arguments):
    """Loads a model's weights; returns the report."""
    variables = {v.path: v for v in model.weights}
    return Source.open(str(source)).load(variables, **arguments)


def change_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors")


def split(folder):
    """Splits a model's weights into two files with an index, as transformers does."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shards = {}
    for number, tensor in enumerate(sorted(tensors)):
        name = f"model-0000{1 + number % 2}-of-00002.safetensors"
        shards.setdefault(name, {})[tensor] = tensors[tensor]
    for name, part in shards.items():
        save_file(part, folder / name)
    places = {tensor: name for name, part in shards.items() for tensor in part}
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def there_and_back(source, folder) -> dict:
    """Converts a model to the release's layout and back; it must keep its bits."""
    convert(source, folder / "released")
    convert(folder / "released", folder / "theirs", layout="hugging_face")
    before = load_file(source / "model.safetensors")
    after = load_file(folder / "theirs" / "model.safetensors")
    jobs.check_same_bits(before, after)
    return json.loads((folder / "theirs" / "config.json").read_text())


def hidden_states(model, batch) -> dict:
    """The outputs of embeddings and layers, by transformers' names."""
    outputs = model.encoder(batch, return_all=True)
    hidden = [outputs["embedding_output"], *outputs["layer_outputs"]]
    return {f"hidden_states_{i}": value for i, value in enumerate(hidden)}
