"""The small RoBERTa of transformers in tests/golden/roberta/, converted and changed."""

import json
import shutil

from safetensors.numpy import load_file, save_file

import tests
from family.roberta.config import RobertaConfig

GOLDEN = tests.GOLDEN / "roberta"
CONFIG = RobertaConfig(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=24,  # of 26 rows
)


def masked_lm_in(folder):
    """A copy of their masked LM, to be changed."""
    return shutil.copytree(GOLDEN / "hf" / "masked_lm", folder / "model")


def change(folder, tensors=lambda tensors: tensors, **said):
    path = folder / "model.safetensors"
    save_file(tensors(load_file(path)), path)
    values = json.loads((folder / "config.json").read_text()) | said
    values = {name: value for name, value in values.items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(values))
