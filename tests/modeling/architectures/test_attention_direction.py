"""One-sided attention: equal to the released encoder under such a mask, and blind ahead."""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

import extract_features
import tests
from errors import UserError
from modeling import losses
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs, tasks
from tests import tiny

GOLDEN = tests.GOLDEN / "checkpoint"
DIRECTIONS = {"both": "both", "ltr": "left_to_right", "rtl": "right_to_left"}


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "directions.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def weights():
    """The released checkpoint, and the same with noise, which sharpens its attention."""
    checkpoint = tf.train.load_checkpoint(str(GOLDEN / "bert_model.ckpt"))
    shapes = checkpoint.get_variable_to_shape_map()
    plain = {name: checkpoint.get_tensor(name) for name in shapes}
    random = np.random.RandomState(71)
    sharp = {
        name: (plain[name] + random.normal(0, 0.15, plain[name].shape)).astype(
            "float32"
        )
        for name in sorted(plain, key="{}:0".format)
    }
    return {"plain": plain, "sharp": sharp}


def inputs(golden, padded):
    with np.load(GOLDEN / "model_outputs.npz") as file:
        batch = {key[3:]: file[key] for key in file if key.startswith("in_")}
    lengths = golden["lengths_of_padded"] if padded else np.full(8, 64)
    real = np.arange(64) < lengths[:, None]
    for name in ("input_ids", "input_mask", "segment_ids"):
        batch[name] = np.where(real, batch[name], 0)
    inside = batch["masked_lm_positions"] < lengths[:, None]
    for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        batch[name] = np.where(inside, batch[name], 0).astype(batch[name].dtype)
    return batch


@pytest.mark.parametrize(
    "case",
    [
        "plain/full_ltr",
        "plain/full_rtl",
        "plain/padded_ltr",
        "sharp/full_both",
        "sharp/full_ltr",
        "sharp/full_rtl",
        "sharp/padded_both",
        "sharp/padded_ltr",
    ],
)
def test_outputs_and_losses_equal_the_release_under_the_mask(golden, weights, case):
    kind, _, rest = case.partition("/")
    padded, _, direction = rest.partition("_")
    batch = inputs(golden, padded == "padded")
    config = BertConfig.from_json_file(GOLDEN / "bert_config.json")
    config = dataclasses.replace(config, attention_direction=DIRECTIONS[direction])
    model = sentence_pairs.PretrainingModel(config)
    for variable in model.weights:
        variable.assign(weights[kind][variable.path])
    outputs = model(batch)

    def check(name, found):
        expected = golden[f"{case}_{name}"]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5, err_msg=name)

    hidden = outputs["sequence_output"]
    if f"{case}_sequence_output" in golden:
        check("sequence_output", hidden)
    check("pooled_output", outputs["pooled_output"])
    model.encoder.config = dataclasses.replace(config, pooling="last")
    check("pooled_last", model.encoder.pool(outputs, batch["input_mask"]))
    pairs = sentence_pairs.MaskedLMNextSentence().losses(batch, outputs)
    check("masked_lm_loss", losses.mean(*pairs["masked_lm_loss"]))


def tiny_model(direction):
    config = tiny.config(num_hidden_layers=2, attention_direction=direction)
    return sentence_pairs.PretrainingModel(config).encoder


@pytest.mark.parametrize("direction", ["left_to_right", "right_to_left"])
def test_a_token_never_changes_what_does_not_see_it(direction):
    ids = np.random.default_rng(0).integers(1, 40, (2, 12))
    encoder = tiny_model(direction)
    before = encoder({"input_ids": ids})["sequence_output"].numpy()
    for place in range(12):
        other = ids.copy()
        other[:, place] = (ids[:, place] + 7) % 40
        changed = encoder({"input_ids": other})["sequence_output"].numpy() != before
        sees = np.arange(12) >= place
        sees = sees if direction == "left_to_right" else ~(np.arange(12) > place)
        assert not changed[:, ~sees].any()
        assert changed[:, sees].any(axis=-1).all()


def test_padding_behind_a_row_changes_nothing_of_it():
    ids = np.random.default_rng(1).integers(1, 40, (2, 12))
    encoder = tiny_model("left_to_right")
    expected = encoder({"input_ids": ids[:, :7]})["sequence_output"]
    mask = np.arange(12) < 7
    batch = {"input_ids": ids * mask, "input_mask": np.tile(mask, (2, 1)).astype(int)}
    found = encoder(batch)["sequence_output"][:, :7]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_a_row_of_padding_alone_stays_finite():
    batch = {"input_ids": np.zeros((1, 12), int), "input_mask": np.zeros((1, 12), int)}
    for direction in ("left_to_right", "right_to_left"):
        assert np.isfinite(tiny_model(direction)(batch)["sequence_output"]).all()


def test_what_cannot_be_answered_from_one_side_is_refused(tmp_path):
    with pytest.raises(UserError, match="no token of a text sees the question"):
        tasks.Span().check(tiny.config(attention_direction="right_to_left"))
    golden = BertConfig.from_json_file(GOLDEN / "bert_config.json")
    config = dataclasses.replace(golden, attention_direction="left_to_right")
    for path in GOLDEN.glob("bert_model.ckpt.*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    (tmp_path / "texts.txt").write_text("a text\n")
    given = extract_features.Options(
        input_file=str(tmp_path / "texts.txt"),
        output_file=str(tmp_path / "features.json"),
        vocab_file=str(GOLDEN / "vocab.txt"),
        init_checkpoint=str(tmp_path / "bert_model.ckpt"),
        max_seq_length=32,
        pooling="cls",
    )
    with pytest.raises(
        UserError, match="is the same for every text; use --pooling=mean"
    ):
        extract_features.main(given)


def test_the_key_is_written_only_where_it_is_not_the_releases():
    assert "attention_direction" not in tiny.config().to_json_string()
    config = tiny.config(attention_direction="right_to_left")
    assert '"attention_direction": "right_to_left"' in config.to_json_string()
    with pytest.raises(ValueError, match="attention_direction is 'down'; it must be"):
        tiny.config(attention_direction="down")
