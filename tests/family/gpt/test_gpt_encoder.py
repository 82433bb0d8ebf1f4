"""GPT's encoder and its language model: OpenAI's and Hugging Face's numbers."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
from keras import ops

import tests
from family.gpt import next_token
from family.gpt.encoder import GptConfig
from modeling import layers, losses
from modeling.architectures.table import make_encoder
from tests.training.interchange.hugging_face import their_config
from training.interchange.table import config_from_json

GOLDEN = tests.GOLDEN / "gpt"


def golden(name):
    with np.load(GOLDEN / name) as file:
        return dict(file)


def read_config():
    return config_from_json(json.loads((GOLDEN / "hf/config.json").read_text()))


def weights():
    """Of the golden model, by our names."""
    theirs = safetensors.numpy.load_file(GOLDEN / "hf/model.safetensors")
    theirs = {k.removeprefix("transformer."): v for k, v in theirs.items()}
    found = {
        f"gpt/embeddings/{ours}_embeddings": theirs[f"{name}s_embed.weight"]
        for ours, name in (("word", "token"), ("position", "position"))
    }
    for number in range(3):
        layer, h = f"gpt/encoder/layer_{number}", f"h.{number}"
        for mine, theirs_ in (("kernel", "weight"), ("bias", "bias")):
            parts = np.split(theirs[f"{h}.attn.c_attn.{theirs_}"], 3, axis=-1)
            for name, part in zip(("query", "key", "value"), parts, strict=True):
                found[f"{layer}/attention/self/{name}/{mine}"] = part
            for scope, module in (
                ("attention/output/dense", "attn.c_proj"),
                ("intermediate/dense", "mlp.c_fc"),
                ("output/dense", "mlp.c_proj"),
            ):
                found[f"{layer}/{scope}/{mine}"] = theirs[f"{h}.{module}.{theirs_}"]
        for mine, theirs_ in (("gamma", "weight"), ("beta", "bias")):
            for scope, module in (("attention/output", "ln_1"), ("output", "ln_2")):
                name = f"{layer}/{scope}/LayerNorm/{mine}"
                found[name] = theirs[f"{h}.{module}.{theirs_}"]
    return found


def load(model):
    """Gives a network the golden weights."""
    values = weights()
    assert {v.path for v in model.weights} >= set(values)
    for variable in model.weights:
        if variable.path in values:
            variable.assign(values[variable.path])
    return model


def test_every_layer_equals_both_codes():
    theirs, openai = golden("hf/outputs.npz"), golden("outputs.npz")
    encoder = load(make_encoder(read_config()))
    ids = theirs["in_ids"].reshape(-1, 24)
    outputs = encoder({"input_ids": ids}, return_all=True)
    layers = [outputs["embedding_output"], *outputs["layer_outputs"]]
    for number, layer in enumerate(layers):
        for expected in (theirs, openai):
            np.testing.assert_allclose(
                layer, expected[f"hidden_{number}"], rtol=0, atol=1e-5
            )
    assert len(layers) == 4
    scores = ops.where(np.tri(24) > 0, encoder.attention_scores(0, layers[0]), -1e9)
    np.testing.assert_allclose(
        ops.softmax(scores), theirs["attention_0"], rtol=0, atol=1e-5
    )
    # Padding does not change the tokens before it; the last of them is what heads read.
    mask = theirs["in_mask"].reshape(-1, 24).astype("int32")
    padded = encoder({"input_ids": ids, "input_mask": mask})
    last = theirs["hidden_3"][np.arange(8), mask.sum(axis=1) - 1]
    np.testing.assert_allclose(encoder.pool(padded, mask), last, rtol=0, atol=1e-5)


def test_the_losses_of_the_next_token_equal_both_codes():
    theirs, openai = golden("hf/outputs.npz"), golden("outputs.npz")
    objective = next_token.NextToken()
    model = load(objective.network(read_config()))
    assert {v.path for v in model.weights} == set(weights())  # no head of its own
    ids, mask = (theirs[name].reshape(-1, 24) for name in ("in_ids", "in_mask"))
    batch = {"input_ids": ids, "input_mask": mask.astype("int32")}
    outputs = model(batch)
    pair = objective.losses(batch, outputs)["next_token_loss"]
    expected = theirs["lm_loss_mean_over_real_targets"]
    np.testing.assert_allclose(losses.mean(*pair), expected, rtol=0, atol=1e-5)
    hidden = model.encoder({"input_ids": ids})["sequence_output"]  # of padding, too
    table = model.encoder.word_embeddings
    logits = ops.matmul(hidden, ops.transpose(table))
    np.testing.assert_allclose(logits, theirs["logits"], rtol=0, atol=1e-4)
    # OpenAI's softmax also has a class for each position.
    of_positions = ops.matmul(hidden, ops.transpose(model.encoder.position_embeddings))
    logits = ops.concatenate([logits, of_positions], axis=-1)
    expected = openai["lm_logits_first2"]
    np.testing.assert_allclose(logits[:2], expected, rtol=0, atol=1e-4)
    for number in range(8):
        row = (logits[number, :-1], ids[number, 1:], mask[number, 1:])
        found, expected = losses.mean(*losses.cross_entropy(*row)), openai["lm_losses"]
        np.testing.assert_allclose(found, expected[number], rtol=0, atol=1e-5)


def test_the_released_size():
    with layers.shapes_only():
        encoder = make_encoder(GptConfig(vocab_size=40478))
        assert sum(np.prod(v.shape) for v in encoder.weights) == 116_534_784
    assert config_from_json({"model_type": "openai-gpt"}) == GptConfig(40478)


def test_configs_of_both_kinds():
    config = read_config()
    assert (config.hidden_size, config.intermediate_size, config.hidden_act) == (
        *(32, 128),
        "gelu",
    )
    assert config.hidden_dropout_prob == 0
    written = json.loads(config.to_json_string())
    assert written["architecture"] == "gpt"
    assert "type_vocab_size" not in written
    assert config_from_json(written) == config
    assert config_from_json(their_config(config)) == config
    with pytest.raises(ValueError, match="unknown key 'type_vocab_size'"):
        config_from_json(written | {"type_vocab_size": 2})
    with pytest.raises(ValueError, match="attention_direction.* one of left_to_right"):
        config_from_json(written | {"attention_direction": "both"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "tanh"}, "hidden_act is 'tanh'.*one of gelu, relu"),
        ({"intermediate_size": 64}, "is 64; in Hugging Face's openai-gpt .*128"),
    ],
)
def test_what_their_config_cannot_say(change, message):
    with pytest.raises(ValueError, match=message):
        their_config(dataclasses.replace(read_config(), **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"afn": "silu"}, "afn is 'silu'.*one of gelu, relu"),
        ({"afn": []}, "afn is .*one of gelu, relu"),
        ({"n_embd": "32"}, "hidden_size is '32'.*int"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads is"),
    ],
)
def test_configs_that_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        config_from_json({"model_type": "openai-gpt"} | change)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("summary_type", "mean"),
        ("summary_use_proj", False),
        ("summary_activation", "tanh"),
        ("summary_proj_to_labels", False),
    ],
)
def test_a_head_for_choices_that_computes_something_else_is_refused(key, value):
    said = {"model_type": "openai-gpt", key: value}
    with pytest.raises(
        ValueError, match=f"{key} is {value!r}; in an OpenAIGPTDoubleHeadsModel it must"
    ):
        config_from_json(said | {"architectures": ["OpenAIGPTDoubleHeadsModel"]})
    config_from_json(said | {"architectures": ["OpenAIGPTLMHeadModel"]})  # of no effect
