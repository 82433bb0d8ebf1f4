"""bert_config.json: read, written, refused."""

import json

import pytest

from training.storage.source import read_config
from errors import UserError
from modeling.architectures.bert import BertConfig


def test_config_reads_the_release_and_round_trips(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text(
        json.dumps(
            {
                "vocab_size": 21128,
                "type_vocab_size": 2,
                "directionality": "bidi",
                "pooler_fc_size": 768,
                "pooler_num_attention_heads": 12,
                "pooler_num_fc_layers": 3,
                "pooler_size_per_head": 128,
                "pooler_type": "first_token_transform",
            }
        )
    )
    config = BertConfig.from_json_file(path)
    assert (config.vocab_size, config.type_vocab_size) == (21128, 2)
    assert (config.hidden_size, config.hidden_act) == (768, "gelu")
    assert BertConfig(vocab_size=9).type_vocab_size == 16
    path.write_text(config.to_json_string())
    assert BertConfig.from_json_file(path) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "missing key 'vocab_size'"),
        ({"vocab_size": 9, "hiden_size": 8}, "'hiden_size'.*'hidden_size'"),
        ({"vocab_size": 9, "zzz": 8}, "unknown key 'zzz'"),
        ({"vocab_size": "9"}, "vocab_size is '9'.*int"),
        ({"vocab_size": True}, "vocab_size is True.*int"),
        ({"vocab_size": 0}, "vocab_size is 0.*above 0"),
        ({"vocab_size": 2**31}, "vocab_size is 2147483648.* below 2\\^31"),
        ({"vocab_size": 9, "num_hidden_layers": 2**70}, "from 1 to 1000"),
        ({"vocab_size": 9, "hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0"),
        ({"vocab_size": 9, "hidden_act": "swish"}, "hidden_act is 'swish'.*gelu_erf"),
        ({"vocab_size": 9, "hidden_size": 100}, "100.*12 attention heads"),
        ({"vocab_size": 9, "initializer_range": float("nan")}, "initializer_range"),
    ],
)
def test_config_refuses_in_one_line(values, message, tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match=message) as error:
        read_config(str(path))
    assert str(error.value).startswith(f"{path}: ")


def test_config_that_is_no_json_object_is_refused(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text('{\n"vocab_size": 9,\n}')
    with pytest.raises(UserError, match=r"bert_config.json:[23]: not JSON"):
        read_config(str(path))
    path.write_text("[1]")
    with pytest.raises(UserError, match="JSON list"):
        read_config(str(path))
