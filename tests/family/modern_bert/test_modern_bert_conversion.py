"""ModernBERT's files: the release's layout and Hugging Face's, old and new keys."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from training.storage.source import Source, read_config
from errors import UserError
from tests.conversion import convert
from tests.family.modern_bert import golden
from tests.relatives import CONFIGS
from training.interchange import hugging_face
from training.interchange.table import ADAPTERS, config_from_json

ADAPTER = ADAPTERS["modern_bert"]
# What answerdotai/ModernBERT-base says, where that is not a default.
RELEASED = {
    "model_type": "modernbert",
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "classifier_pooling": "mean",
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "hidden_activation": "gelu",
    "layer_norm_eps": 1e-05,
    "local_attention": 128,
    "local_rope_theta": 10000.0,
    "norm_eps": 1e-05,
    "position_embedding_type": "absolute",
    "pad_token_id": 50283,
    "sparse_prediction": False,
    "vocab_size": 50368,
}
_FULL, _NEAR = "full_attention", "sliding_attention"


@pytest.mark.parametrize("name", golden.OBJECTIVES)
def test_a_model_goes_through_both_layouts_bit_for_bit(name, tmp_path):
    source = str(golden.FOLDER / name)
    for layout in ("release", "hugging_face"):
        convert(input=[source], output_dir=str(tmp_path / layout), layout=layout)
        source = str(tmp_path / layout)
        assert read_config(source) == read_config(str(golden.FOLDER / name))
        golden.load(name, source)  # all weights, and no others
    theirs = load_file(golden.FOLDER / name / "model.safetensors")
    found = load_file(tmp_path / "hugging_face" / "model.safetensors")
    assert found.keys() == theirs.keys()
    assert all(np.array_equal(found[name], value) for name, value in theirs.items())
    theirs = json.loads((golden.FOLDER / name / "config.json").read_text())
    found = json.loads((tmp_path / "hugging_face" / "config.json").read_text())
    assert found["architectures"] == theirs["architectures"]
    for key in found.keys() & theirs.keys():
        assert found[key] == theirs[key], key


def test_an_encoder_alone_is_read_and_written_without_the_head(tmp_path):
    tensors = Source.open(str(golden.FOLDER / "tokens")).read()
    config = read_config(str(golden.FOLDER / "tokens"))
    encoder = {k: v for k, v in tensors.items() if k.startswith("modern_bert/")}
    hugging_face.write(str(tmp_path), encoder, config)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["architectures"] == ["ModernBertModel"]
    found = Source.open(str(tmp_path)).read()
    assert {*encoder} - {*found} == {
        "modern_bert/head/dense/kernel",
        "modern_bert/head/LayerNorm/gamma",
    }
    network = golden.OBJECTIVES["tokens"].network(config)
    report = Source.open(str(tmp_path)).load(
        {v.path: v for v in network.weights},
        network.encoder.required_variables,
        network.encoder.scope,
    )
    assert len(report.initial) == 4 and not report.unused


def test_a_masked_lm_without_a_bias_of_tokens_keeps_its_class(tmp_path):
    values = json.loads((golden.FOLDER / "masked_lm" / "config.json").read_text())
    config = config_from_json(values | {"decoder_bias": False})
    network = golden.OBJECTIVES["masked_lm"].network(config)
    tensors = {v.path: v.numpy() for v in network.weights}
    assert "cls/predictions/output_bias" not in tensors
    hugging_face.write(str(tmp_path), tensors, config)
    assert read_config(str(tmp_path)) == config
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["architectures"] == ["ModernBertForMaskedLM"]
    assert Source.open(str(tmp_path)).read().keys() == tensors.keys()


def test_the_older_keys_of_the_released_models_and_the_newer_ones_mean_the_same():
    config = config_from_json(RELEASED)
    assert (config.pooling, config.hidden_act) == ("mean", "gelu_erf")
    assert (config.num_hidden_layers, config.reach) == (22, 64)
    newer = {k: v for k, v in RELEASED.items() if "rope" not in k and "every" not in k}
    newer["layer_types"] = ([_FULL, _NEAR, _NEAR] * 8)[:22]
    newer["rope_parameters"] = {
        _FULL: {"rope_theta": 160000.0, "rope_type": "default"},
        _NEAR: {"rope_theta": 10000.0, "rope_type": "default"},
    }
    assert config_from_json(newer) == config
    newer["layer_types"] = [_FULL] * 22
    newer["rope_parameters"][_NEAR] = None
    newer["rope_parameters"][_FULL]["rope_theta"] = 500.0
    config = config_from_json(newer)
    assert config.global_attn_every_n_layers == 1 and config.global_rope_theta == 500.0
    assert config_from_json(ADAPTER.to_hugging_face(config)) == config


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"layer_types": [_FULL, _NEAR]}, "layer_types is"),  # of 22 layers
        (
            {"layer_types": [_NEAR, _FULL], "num_hidden_layers": 2},
            "layer_types is .*full_attention for the first of",
        ),
        (
            {"layer_types": [_FULL, _NEAR, _FULL, _FULL], "num_hidden_layers": 4},
            "layer_types is",
        ),
        ({"layer_types": "full_attention"}, "layer_types is 'full_attention'"),
        (
            {"rope_parameters": {_FULL: {"rope_type": "yarn", "factor": 4.0}}},
            r"rope_parameters.full_attention.rope_type is 'yarn'",
        ),
        (
            {"rope_parameters": {_NEAR: {"rope_theta": 1.0, "factor": 4.0}}},
            r"sliding_attention.factor is 4.0; positions with rope_theta",
        ),
        ({"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters.rope_theta is 5.0"),
        ({"rope_parameters": [1]}, "rope_parameters is .1.; it must be an object"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling is .*must be None"),
        (
            {"rope_theta": 500.0},
            "rope_theta is 500.0; .*only the keys global_rope_theta",
        ),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; of rotary"),
        ({"local_rope_theta": None}, "local_rope_theta is None; it must be of type fl"),
        ({"classifier_pooling": "max"}, "classifier_pooling is 'max'; .* cls, mean"),
        ({"hidden_activation": "silu"}, "hidden_activation is 'silu'"),
        ({"mlp_dropout": 1.0}, "mlp_dropout is 1.0; .*at least 0 and below 1"),
        ({"num_attention_heads": 256}, "hidden_size is 768, and 256 attention heads"),
        ({"pad_token_id": 50368}, "pad_token_id is 50368; it must be below vocab_size"),
    ],
)
def test_other_networks_are_refused_in_one_line(values, said):
    with pytest.raises(ValueError, match=said) as error:
        config_from_json(RELEASED | values)
    assert "\n" not in str(error.value)


def test_the_last_layers_are_not_left_out(tmp_path):
    source = str(golden.FOLDER / "masked_lm")
    with pytest.raises(UserError, match="alternate between local and global"):
        convert(input=[source], output_dir=str(tmp_path / "new"), keep_layers=[0, 1])


def test_a_file_of_ours_has_their_keys_and_is_read_back():
    config = CONFIGS["modern_bert"]
    values = json.loads(config.to_json_string())
    assert values["architecture"] == "modern_bert"
    assert values["norm_eps"] == 1e-5 and values["embedding_dropout"] == 0.0
    assert config_from_json(values) == config
