"""An encoder that is a table: vectors without context, for BiLSTM layers to read."""

import json

import keras
import numpy as np
import pytest

from training.backend import tf
from errors import UserError
from modeling import layers
from modeling.architectures.table import config_from_dict, make_encoder
from modeling.architectures.word_vectors import WordEmbeddingsConfig
from modeling.bilstm import BiLstm
from modeling.objectives import tasks
from modeling.objectives.table import OBJECTIVES
from modeling.optimizers.table import layerwise_shares

CONFIG = WordEmbeddingsConfig(vocab_size=40, hidden_size=5, hidden_dropout_prob=0.2)
TABLE = "word_embeddings/table"
LENGTHS = np.array([3, 700, 1])


def batch():
    ids = np.random.default_rng(0).integers(1, 40, (3, 700))
    mask = (np.arange(700) < LENGTHS[:, None]).astype(np.int32)
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": mask}


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_every_token_gets_its_row_whatever_is_around_it(dtype):
    encoder = make_encoder(CONFIG, seed=3, dtype=dtype)
    (table,) = encoder.weights
    assert (table.path, table.dtype) == (TABLE, "float32")
    outputs = encoder(batch(), dropouts=layers.Dropouts([1, 2]), return_all=True)
    rows = keras.ops.cast(table, encoder.compute_dtype).numpy()
    (of_layer,) = outputs["layer_outputs"]
    for found in (outputs["sequence_output"], outputs["embedding_output"], of_layer):
        np.testing.assert_array_equal(found.numpy(), rows[batch()["input_ids"]])
    np.testing.assert_array_equal(table, make_encoder(CONFIG, seed=3).word_embeddings)
    assert np.any(table != make_encoder(CONFIG, seed=4).word_embeddings)


def test_a_head_for_rows_reads_the_mean_of_the_tokens():
    model = tasks.Classification(3).network(CONFIG)
    rows = model.encoder.word_embeddings.numpy()[batch()["input_ids"]]
    means = [row[:n].mean(axis=0) for row, n in zip(rows, LENGTHS, strict=True)]
    expected = np.stack(means) @ model.output_weights.numpy().T
    np.testing.assert_allclose(model(batch())["logits"], expected, rtol=0, atol=1e-6)
    assert model.description_suffix == "; its head reads the mean of all tokens"


def test_vectors_pass_one_dropout_before_a_bilstm():
    seen = []

    class Noting(layers.Dropouts):
        def __call__(self, x, rate):
            seen.append((x.shape[-1], rate))
            return x

    objective = tasks.Classification(3)
    objective.lstm = BiLstm(1, 4)
    short = {name: values[:, :4] for name, values in batch().items()}
    objective.network(CONFIG)(short, dropouts=Noting([1, 2]))
    assert seen == [(5, 0.2), (8, 0.2)]


def test_the_gradient_of_the_table_is_dense():
    """Replicas can neither add nor clip the slices of a lookup."""
    encoder = make_encoder(CONFIG)
    with tf.GradientTape() as tape:
        total = keras.ops.sum(encoder(batch())["sequence_output"])
    gradient = tape.gradient(total, encoder.word_embeddings.value)
    assert isinstance(gradient, tf.Tensor)
    counts = np.bincount(batch()["input_ids"].ravel(), minlength=40)
    np.testing.assert_allclose(gradient, np.repeat(counts[:, None], 5, axis=1))


def test_the_table_has_the_rate_of_a_top_layer():
    assert layerwise_shares(make_encoder(CONFIG).stages, 0.5) == {TABLE: 0.25}


def test_a_config_names_its_architecture_and_has_no_keys_without_effect():
    values = json.loads(CONFIG.to_json_string())
    assert values.keys() == {
        "architecture",
        "vocab_size",
        "hidden_size",
        "hidden_dropout_prob",
        "initializer_range",
    }
    assert config_from_dict(values) == CONFIG
    assert config_from_dict(
        {"architecture": "word_embeddings", "vocab_size": 9}
    ) == WordEmbeddingsConfig(9, hidden_size=300)
    for name in ("max_position_embeddings", "num_hidden_layers", "pooling"):
        with pytest.raises(ValueError, match=f"unknown key '{name}'; remove it"):
            config_from_dict(values | {name: 1})


@pytest.mark.parametrize("name", OBJECTIVES)
def test_it_cannot_be_pre_trained(name):
    message = "sees only its own token|which only an ELECTRA has|with a decoder writes"
    with pytest.raises(UserError, match=message):
        OBJECTIVES[name].load()().check(CONFIG)


def test_answers_need_a_bilstm_to_see_the_question():
    objective = tasks.Span()
    with pytest.raises(UserError, match="sees the question; add BiLSTM layers"):
        objective.check(CONFIG)
    objective.lstm = BiLstm(1, 4)
    objective.check(CONFIG)
