"""Two BERTs side by side, one for each direction."""

import numpy as np
import pytest

from training.backend import keras, tf
from family.side_by_side.encoder import SideBySideConfig, SideBySideEncoder
from modeling.architectures.bert import BertConfig, BertEncoder

_SIZES = {
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
}
CONFIG = SideBySideConfig(50, hidden_size=32, **_SIZES)
INPUTS = {
    "input_ids": np.arange(1, 13, dtype=np.int32).reshape(2, 6),
    "input_mask": np.array([[1] * 6, [1] * 4 + [0] * 2], np.int32),
    "segment_ids": np.array([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]], np.int32),
}


@pytest.fixture(scope="module")
def encoder():
    return SideBySideEncoder(CONFIG, seed=1)


def test_each_half_is_the_bert_that_reads_in_its_direction(encoder):
    outputs = encoder(INPUTS, return_all=True)
    values = {variable.path: variable for variable in encoder.weights}
    for half, direction in enumerate(("left_to_right", "right_to_left")):
        config = BertConfig(50, hidden_size=16, attention_direction=direction, **_SIZES)
        bert = BertEncoder(config)
        for variable in bert.weights:
            below = variable.path.removeprefix("bert/")
            is_shared = below.startswith("embeddings")
            scope = "left_to_right" if is_shared else direction
            if not below.startswith("pooler"):
                variable.assign(values[f"side_by_side/{scope}/{below}"])
        expected = bert(INPUTS, return_all=True)
        own = slice(16 * half, 16 * half + 16)
        for found, right in zip(
            [*outputs["layer_outputs"], outputs["sequence_output"]],
            [*expected["layer_outputs"], expected["sequence_output"]],
            strict=True,
        ):
            np.testing.assert_array_equal(found[..., own], right)
        for number, layer_input in enumerate(
            [outputs["embedding_output"], outputs["layer_outputs"][0]]
        ):
            heads = slice(2 * half, 2 * half + 2)
            np.testing.assert_allclose(
                encoder.attention_scores(number, layer_input)[:, heads],
                bert.attention_scores(number, layer_input[..., own]),
                rtol=1e-5,
                atol=1e-6,
            )


def test_a_row_is_read_where_each_direction_ends(encoder):
    outputs = encoder(INPUTS)
    pooled = encoder.pool(outputs, tf.constant(INPUTS["input_mask"]))
    hidden = outputs["sequence_output"]
    np.testing.assert_array_equal(pooled[1, :16], hidden[1, 3, :16])
    np.testing.assert_array_equal(pooled[1, 16:], hidden[1, 0, 16:])


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras's
def test_every_variable_is_in_one_stage_and_is_kept_by_keras(encoder, tmp_path):
    paths = [variable.path for stage in encoder.stages for variable in stage]
    assert sorted(paths) == sorted(variable.path for variable in encoder.weights)
    assert [len(stage) for stage in encoder.stages] == [5, 32, 32, 0]
    inputs = {name: keras.Input([6], dtype="int32", name=name) for name in INPUTS}
    model = keras.Model(inputs, encoder(inputs)["sequence_output"])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        loaded.predict(INPUTS, verbose=0), model.predict(INPUTS, verbose=0)
    )


def test_a_width_that_cannot_be_shared_is_refused():
    with pytest.raises(ValueError, match=r"make it a multiple of 2 \* num_attention_h"):
        SideBySideConfig(50, hidden_size=36, num_attention_heads=4)
