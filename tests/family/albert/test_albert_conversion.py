"""ALBERT in Hugging Face's layout: the same numbers, there and back."""

import dataclasses
import json

import numpy as np
import pytest

import tests
from training.storage.source import Source, read_config
from errors import UserError
from family.albert.encoder import AlbertConfig
from modeling.architectures.table import make_encoder
from modeling.objectives import masked_lm, sentence_pairs, tasks
from tests.conversion import convert
from tests.training.interchange.hugging_face import (
    hidden_states,
    their_config,
    there_and_back,
)
from training.interchange import hugging_face

GOLDEN = tests.GOLDEN / "albert" / "hf"
OBJECTIVES = {
    "masked_lm": (masked_lm.MaskedLM(), "AlbertForMaskedLM"),
    "pretraining": (sentence_pairs.MaskedLMNextSentence(), "AlbertForPreTraining"),
    "classifier": (tasks.Classification(3), "AlbertForSequenceClassification"),
    "qa": (tasks.Span(), "AlbertForQuestionAnswering"),
}
# Their names for the outputs -> ours.
OURS = {
    "masked_lm": {"logits": "masked_lm_logits"},
    "pretraining": {
        "prediction_logits": "masked_lm_logits",
        "sop_logits": "next_sentence_logits",
    },
}


def golden(path):
    with np.load(GOLDEN / path) as file:
        return dict(file)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_models_equal_hugging_face_and_return_unchanged(kind, tmp_path):
    objective, their_class = OBJECTIVES[kind]
    source = GOLDEN / kind
    model = objective.network(read_config(str(source)))
    assert isinstance(model.config, AlbertConfig)
    report = Source.open(str(source)).load(
        {v.path: v for v in model.weights}, required=model.encoder.required_variables
    )
    poolers = ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
    assert report.initial == (poolers if kind in ("masked_lm", "qa") else [])
    given, expected = golden("inputs.npz"), golden(f"{kind}/outputs.npz")
    mask = given["attention_mask"]
    batch = {
        "input_ids": given["input_ids"],
        "input_mask": mask,
        "segment_ids": given["token_type_ids"],
        "masked_lm_positions": np.tile(np.arange(12), (3, 1)),
    }
    outputs = model(batch)
    names = {name: name for name in outputs} | OURS.get(kind, {})
    found = {theirs: outputs[ours] for theirs, ours in names.items()}
    found |= hidden_states(model, batch)
    assert expected.keys() <= found.keys()
    assert len(expected) == 6 + (kind in ("pretraining", "qa"))
    for name, value in expected.items():
        mine = np.array(found[name])
        # Nothing reads padding, which differs.
        real = mask > 0 if mine.shape[:2] == mask.shape else slice(None)
        np.testing.assert_allclose(mine[real], value[real], rtol=0, atol=1e-5)

    said = there_and_back(source, tmp_path)
    assert said["architectures"] == [their_class]
    theirs = json.loads((source / "config.json").read_text())
    for key in ("model_type", "hidden_act", "embedding_size", "num_hidden_groups"):
        assert said[key] == theirs[key]


SQUARE = AlbertConfig(
    vocab_size=9,
    embedding_size=16,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=4,
    max_position_embeddings=8,
)


@pytest.mark.parametrize("projects", [False, True], ids=["released", "theirs"])
def test_embeddings_as_wide_as_layers_keep_their_numbers_in_both_layouts(
    tmp_path, projects
):
    """The release then has no projection, and Hugging Face always has one."""
    config = dataclasses.replace(SQUARE, projects_embeddings=projects)
    encoder = make_encoder(config, seed=1)
    weights = {v.path: v.numpy() for v in encoder.weights}
    name = "bert/encoder/embedding_hidden_mapping_in/kernel"
    assert (name in weights) == projects
    hugging_face.write(str(tmp_path / "theirs"), weights, config)
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert "projects_embeddings" not in said
    convert(tmp_path / "theirs", tmp_path / "released")
    batch = {"input_ids": np.arange(8)[None]}
    expected = np.array(encoder(batch)["sequence_output"])
    for folder in ("theirs", "released"):
        path = str(tmp_path / folder)
        assert read_config(path).projects_embeddings
        again = make_encoder(read_config(path))
        Source.open(path).load({v.path: v for v in again.weights}, required="")
        np.testing.assert_array_equal(again(batch)["sequence_output"], expected)


def test_a_direction_that_their_layout_lacks_is_not_written(tmp_path):
    config = dataclasses.replace(SQUARE, attention_direction="left_to_right")
    with pytest.raises(UserError, match="Face's albert has no key"):
        hugging_face.write(str(tmp_path / "theirs"), {}, config)


# 22 layers in 22 groups: 15 / 22 * 22 is just below 15.
@pytest.mark.parametrize(("layers", "groups"), [(18, 14), (22, 22)])
def test_groups_that_they_number_otherwise_are_not_converted(tmp_path, layers, groups):
    config = dataclasses.replace(
        SQUARE, num_hidden_layers=layers, num_hidden_groups=groups
    )
    encoder = make_encoder(config, seed=1)
    weights = {v.path: v.numpy() for v in encoder.weights}
    with pytest.raises(
        UserError, match=f"num_hidden_groups is {groups} for {layers} l"
    ):
        hugging_face.write(str(tmp_path / "theirs"), weights, config)
    said = their_config(dataclasses.replace(config, num_hidden_groups=1))
    (tmp_path / "config.json").write_text(
        json.dumps(said | {"num_hidden_groups": groups})
    )
    with pytest.raises(
        UserError, match=f"num_hidden_groups is {groups} for {layers} l"
    ):
        read_config(str(tmp_path))


def test_groups_that_do_not_divide_the_layers_and_are_numbered_alike(tmp_path):
    config = dataclasses.replace(SQUARE, num_hidden_layers=5, num_hidden_groups=2)
    encoder = make_encoder(config, seed=1)
    weights = {v.path: v.numpy() for v in encoder.weights}
    hugging_face.write(str(tmp_path), weights, config)
    assert read_config(str(tmp_path)).num_hidden_groups == 2
