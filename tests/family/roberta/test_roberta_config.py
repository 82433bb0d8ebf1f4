"""RoBERTa's config.json in Hugging Face layout: defaults, other networks, decoders."""

import dataclasses
import json

import numpy as np
import pytest

from training.storage.source import read_config
from errors import UserError
from family.roberta.config import RobertaConfig
from modeling.architectures.table import make_encoder
from tests.conversion import convert
from tests.family.roberta.conversion import CONFIG, change, masked_lm_in
from tests.training.interchange.hugging_face import their_config
from training.interchange.table import config_from_json


def test_an_absent_key_has_the_default_of_their_class():
    """Not the released value: without the keys, transformers makes this network too."""
    config = config_from_json({"model_type": "roberta"})
    assert config == RobertaConfig(
        vocab_size=50265,
        max_position_embeddings=510,
        type_vocab_size=2,
        layer_norm_eps=1e-12,
    )


def test_config_file_keeps_everything(tmp_path):
    config = dataclasses.replace(CONFIG, layer_norm_eps=1e-6, pad_token_id=0)
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    assert read_config(str(tmp_path)) == config
    said = their_config(config)
    assert said["max_position_embeddings"] == 25
    assert config_from_json(said) == config


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"layer_norm_eps": None}, "layer_norm_eps is None; it must be of type float"),
        ({"pad_token_id": -1}, "pad_token_id is -1; it must be at least 0"),
        ({"pad_token_id": None}, "pad_token_id is None; it must be of type int"),
        ({"max_position_embeddings": "514"}, "max_position_embeddings is '514'; it"),
        ({"max_position_embeddings": 2}, "max_position_embeddings is 0; it must be"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu'"),
    ],
)
def test_other_networks_are_refused(tmp_path, said, message):
    folder = masked_lm_in(tmp_path)
    change(folder, **said)
    with pytest.raises(UserError, match=f"config.json: {message}"):
        read_config(str(folder))


def test_a_row_longer_than_the_table_is_refused():
    """The two first rows of a table are not for tokens: 512 of 514, here 24 of 26."""
    encoder = make_encoder(CONFIG)
    assert encoder({"input_ids": np.ones((1, 24), np.int32)})
    with pytest.raises(ValueError, match="25 tokens, but the model has only 24 pos"):
        encoder({"input_ids": np.ones((1, 25), np.int32)})


def test_their_causal_models_read_from_left_to_right(tmp_path):
    folder = masked_lm_in(tmp_path)
    change(folder, is_decoder=True, architectures=["RobertaForCausalLM"])
    config = read_config(str(folder))
    left = dataclasses.replace(CONFIG, attention_direction="left_to_right")
    assert config == left
    convert(folder, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "theirs", layout="hugging_face")
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert said["architectures"] == ["RobertaForCausalLM"] and said["is_decoder"]
