"""ELECTRA's encoder: the release's numbers, names and sizes."""

import dataclasses
import json

import numpy as np
import pytest

import tests
from family.electra.encoder import ElectraConfig, ElectraEncoder
from modeling import layers
from modeling.architectures.table import make_encoder
from modeling.objectives import masked_lm
from tests.training.interchange.hugging_face import their_config
from training.interchange.table import config_from_json

GOLDEN = tests.GOLDEN / "electra"
CONFIG = ElectraConfig(
    vocab_size=60,
    embedding_size=12,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=24,
)
SIZES = {"small": (256, 12), "base": (768, 12), "large": (1024, 24)}


def golden(name):
    with np.load(GOLDEN / name) as file:
        return dict(file)


def facts():
    """Names and shapes of what the release trains, and its layer-wise rates."""
    return json.loads((GOLDEN / "facts.json").read_text())


def shapes(model):
    return {v.path: list(v.shape) for v in model.weights}


def released(size):
    """The config of a released model."""
    width, depth = SIZES[size]
    config = ElectraConfig(
        vocab_size=30522, embedding_size=128 if size == "small" else width
    )
    return config.of_sizes(width, depth)


def size_of(make):
    """The number of weights of a network; only their shapes are made."""
    with layers.shapes_only():
        return sum(np.prod(v.shape) for v in make().weights)


def test_both_encoders_equal_the_release():
    weights, expected = golden("weights.npz"), golden("outputs.npz")
    discriminator = ElectraEncoder(CONFIG)
    generator = ElectraEncoder(
        CONFIG.generator(0.5, 1.0),
        scope="generator",
        embeddings=discriminator.embeddings,
    )
    for variable in [*discriminator.weights, *generator.weights]:
        variable.assign(weights[variable.path])
    assert {v.path for v in discriminator.weights + generator.weights} == {
        path for path in weights if "predictions/" not in path and path != "global_step"
    }
    shared = golden("inputs.npz")
    for name, encoder, ids in (
        ("generator", generator, expected["masked_input_ids"]),
        ("discriminator", discriminator, expected["discriminator_input_ids"]),
    ):
        outputs = encoder(shared | {"input_ids": ids}, return_all=True)
        found = {"embedding_output_after_projection": outputs["embedding_output"]}
        found["sequence_output"] = outputs["sequence_output"]
        for number, layer in enumerate(outputs["layer_outputs"]):
            found[f"layer_{number}"] = layer
        assert len(found) == 4
        for key, value in found.items():
            np.testing.assert_allclose(
                value, expected[f"{name}_{key}"], rtol=0, atol=1e-5
            )
        first = outputs["sequence_output"][:, 0]
        np.testing.assert_array_equal(encoder.pool(outputs), first)


def test_rows_can_be_pooled_in_other_ways():
    encoder = ElectraEncoder(dataclasses.replace(CONFIG, pooling="mean"))
    ids = np.array([[2, 5, 6, 0]])
    mask = np.array([[1, 1, 1, 0]])
    outputs = encoder({"input_ids": ids, "input_mask": mask})
    mean = np.mean(outputs["sequence_output"][:, :3], axis=1)
    np.testing.assert_allclose(encoder.pool(outputs, mask), mean, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "parameters", "of_generator"),
    [
        ("small", 13_483_008, 13_546_682),
        ("base", 108_891_648, 33_740_602),
        ("large", 334_092_288, 51_295_290),
    ],
)
def test_released_sizes(size, parameters, of_generator):
    config = released(size)
    assert size_of(lambda: make_encoder(config)) == parameters
    generator = config.generator(256 / config.hidden_size, 1.0)
    network = masked_lm.MaskedLM().network
    assert size_of(lambda: network(generator)) == of_generator


def test_the_projection_is_drawn_as_in_the_release():
    config = released("small")
    config = dataclasses.replace(config, vocab_size=9, num_hidden_layers=1)
    encoder = ElectraEncoder(config)
    kernel = encoder.projection.kernel.numpy()
    limit = np.sqrt(6 / (128 + 256))
    assert 0.99 * limit < np.abs(kernel).max() < limit
    same_width = dataclasses.replace(config, embedding_size=config.hidden_size)
    names = {v.path for v in ElectraEncoder(same_width).weights}
    assert names == {v.path for v in encoder.weights} - {
        "electra/embeddings_project/kernel",
        "electra/embeddings_project/bias",
    }
    other = ElectraEncoder(config, seed=1).projection.kernel.numpy()
    assert (other != kernel).all()


def test_a_masked_lm_has_the_names_of_the_release():
    """Those of its electra_objective False: one network, and the generator's head."""
    model = masked_lm.MaskedLM().network(CONFIG)
    assert shapes(model) == facts()["variables"]["mlm_only"]
    assert all(v.trainable for v in model.weights)


def test_a_config_file_names_its_architecture():
    written = json.loads(CONFIG.to_json_string())
    assert written["architecture"] == "electra"
    assert config_from_json(written) == CONFIG
    theirs = their_config(CONFIG)
    assert (theirs["model_type"], theirs["hidden_act"]) == ("electra", "gelu")
    assert config_from_json(theirs) == CONFIG
    with pytest.raises(ValueError, match="hidden_act is 'relu', but must be 'gelu'"):
        config_from_json(theirs | {"hidden_act": "relu"})
    with pytest.raises(ValueError, match="generator's head always has the exact GELU"):
        their_config(dataclasses.replace(CONFIG, hidden_act="gelu"))


def test_sizes_of_a_generator():
    base = released("base").generator(0.33333, 1.0)
    assert (base.hidden_size, base.num_attention_heads) == (256, 4)
    assert (base.intermediate_size, base.embedding_size) == (1024, 768)
    with pytest.raises(ValueError, match="hidden_size is 0; it must be above 0"):
        CONFIG.generator(0.01, 1.0)
