"""Small models for convert_checkpoint.py, for its tests."""

import functools
import json
import shutil

import numpy as np
import safetensors.numpy

import convert_checkpoint
import tests
from training.storage import checkpoint
from training.storage.folder import Folder
from modeling.architectures.bert import BertConfig
from modeling.objectives import tasks
from text.tokenizers.vocabulary import SPECIAL_TOKENS

GOLDEN = tests.GOLDEN
RELEASED = str(GOLDEN / "checkpoint" / "bert_model.ckpt")
TOKENS = [*SPECIAL_TOKENS, "[unused1]", "play", "##ing", "##er", "the"]
TINY = BertConfig(
    vocab_size=12,  # more than the vocabulary
    hidden_size=8,
    num_hidden_layers=12,  # layer_1 is the beginning of layer_10
    num_attention_heads=2,
    intermediate_size=8,
    max_position_embeddings=6,
    type_vocab_size=2,
    hidden_act="gelu_erf",
)


def convert(source=None, target=None, **flags):
    """One checkpoint, or a list of them, into a folder."""
    if source is not None:
        sources = source if isinstance(source, list) else [source]
        flags["input"] = [str(each) for each in sources]
    if target is not None:
        flags["output_dir"] = str(target)
    return convert_checkpoint.main(convert_checkpoint.Options(**flags))


@functools.cache
def shapes(objective):
    """Of its weights, by name."""
    return {v.path: v.shape for v in objective.network(TINY).weights}


SPAN, CLASSIFIER = tasks.Span(), tasks.Classification(2)


def made(folder, objective, seed=0):
    """A model of random weights, with all that stands beside one."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    tensors = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in shapes(objective).items()
    }
    checkpoint.save(
        Folder.open(str(folder)), 7, tensors | {"global_step": np.int64(7)}, keep=1
    )
    (folder / "bert_config.json").write_text(TINY.to_json_string())
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    return tensors


def of_golden(folder, kind="pretraining", change=lambda tensors: tensors, **config):
    """A copy of a model of transformers, changed."""
    shutil.copytree(GOLDEN / "hf" / kind, folder)
    path = folder / "model.safetensors"
    safetensors.numpy.save_file(change(safetensors.numpy.load_file(path)), path)
    said = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(said))
    return folder
