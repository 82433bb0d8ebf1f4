"""Hugging Face's config.json: what it says of a network, and what is refused."""

import dataclasses
import json

import pytest

from training.storage.source import read_config
from errors import UserError
from modeling.architectures.bert import BertConfig
from tests.training.interchange.hugging_face import change_config, config_of
from training.interchange import hugging_face
from training.interchange.table import ADAPTERS, config_from_json


def test_config_keeps_the_exact_gelu(folder):
    config = config_of()
    assert config == BertConfig(
        vocab_size=1200,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=192,
        hidden_act="gelu_erf",
        max_position_embeddings=96,
        type_vocab_size=2,
    )
    # A run writes it down in the release's words; what it reads there means the same.
    path = folder / "bert_config.json"
    path.write_text(config.to_json_string())
    assert read_config(str(folder)) == config
    change_config(folder, hidden_act="gelu_new")
    assert read_config(str(folder / "config.json")).hidden_act == "gelu"


def test_config_has_their_defaults():
    config = config_from_json({"model_type": "bert"})
    assert (config.vocab_size, config.type_vocab_size) == (30522, 2)
    assert config.hidden_act == "gelu_erf"


MODEL_TYPES = ", ".join(repr(row.model_type) for row in ADAPTERS.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model_type": "deberta"},
            f"model_type is 'deberta'; it must be one of {MODEL_TYPES}",
        ),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05, .* 1e-12"),
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type is 'relative_key', .* 'absolute'",
        ),
        ({"is_decoder": "no"}, "is_decoder is 'no'; it must be of type bool"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"pruned_heads": {"1": [0]}}, "pruned_heads is"),
        ({"quantization_config": {"load_in_8bit": True}}, "quantization_config is"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu'; .* one of gelu, "),
        ({"hidden_act": {"a": 1}}, "hidden_act is {'a': 1}; .* one of gelu, "),
        ({"hidden_act": ["gelu"]}, r"hidden_act is \['gelu'\]; .* one of gelu, "),
        ({"model_type": None}, "model_type is None; it must be one of 'bert'"),
        ({"hidden_act": "x" * 10_000}, "hidden_act is 'x{39}; in Hugging"),
        ({"hidden_size": 50}, "hidden_size is 50, which 4 attention heads"),
        ({"hidden_size": "48"}, "hidden_size is '48'; it must be of type int"),
    ],
)
def test_other_networks_are_refused(folder, change, message):
    change_config(folder, **change)
    with pytest.raises(UserError, match=rf"model/config.json: {message}"):
        read_config(str(folder))


def test_a_decoder_of_theirs_reads_from_left_to_right(folder, tmp_path):
    change_config(folder, is_decoder=True)
    # Its next-sentence head reads the first token even so.
    assert read_config(str(folder)).pooling == "first"
    change_config(folder, architectures=["BertLMHeadModel"])
    config = read_config(str(folder))
    assert config == dataclasses.replace(
        config_of(), attention_direction="left_to_right"
    )
    change_config(folder, pooling="cls")  # no key of theirs
    assert read_config(str(folder)) == config
    tensors = hugging_face.HuggingFace(str(folder / "model.safetensors")).read()
    masked_lm = {k: v for k, v in tensors.items() if "seq_relationship" not in k}
    hugging_face.write(str(tmp_path / "causal"), masked_lm, config)
    said = json.loads((tmp_path / "causal" / "config.json").read_text())
    assert said["is_decoder"] and said["architectures"] == ["BertLMHeadModel"]
    assert read_config(str(tmp_path / "causal")) == config
    backwards = dataclasses.replace(config, attention_direction="right_to_left")
    with pytest.raises(UserError, match="'right_to_left', for which Hugging Face's"):
        hugging_face.write(str(tmp_path / "backwards"), masked_lm, backwards)
    assert not (tmp_path / "backwards").exists()


@pytest.mark.parametrize("classes", [5, "BertModel", [["BertModel"]], {"a": 1}])
def test_classes_that_are_no_list_of_names_say_nothing(folder, classes):
    change_config(folder, architectures=classes, is_decoder=True)
    assert read_config(str(folder)).row_pooling == "last"


def test_null_is_their_default(folder, caplog):
    change_config(folder, layer_norm_eps=None, is_decoder=None, pruned_heads=None)
    assert read_config(str(folder)) == config_of()
    assert not caplog.text
    # Not all versions of transformers agreed.
    change_config(folder, position_embedding_type=None)
    assert read_config(str(folder)) == config_of()
    assert "position_embedding_type is null and is read as 'absolute'" in caplog.text


def test_dropout_of_a_head_is_not_dropped_in_silence(folder, caplog):
    for value in (None, 0.1):  # 0.1 is its hidden_dropout_prob
        change_config(folder, classifier_dropout=value)
        assert read_config(str(folder)) == config_of()
    assert not caplog.text
    change_config(folder, classifier_dropout=0.5)
    assert read_config(str(folder)) == config_of()
    assert "classifier_dropout=0.5 is ignored" in caplog.text


def test_config_that_is_not_there(folder):
    with pytest.raises(
        UserError, match="nowhere: no such file; pass --bert_config_file"
    ):
        read_config(str(folder / "nowhere"))
    (folder / "config.json").unlink()
    with pytest.raises(
        UserError, match="model/config.json: no such file; copy it from"
    ):
        read_config(str(folder))
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="bert_config.json: no such file"):
        read_config(str(folder))


def test_config_without_its_type():
    """Some of 2019 lack it; telling the user to remove every other key were no help."""
    with pytest.raises(ValueError, match='if the model is a BERT, add "model_type"'):
        config_from_json({"architectures": ["BertModel"], "vocab_size": 5})
