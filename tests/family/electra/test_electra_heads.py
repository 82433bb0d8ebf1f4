"""Fine-tuned ELECTRAs in Hugging Face's layout: the same numbers, there and back."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from training.storage.source import Source, read_config
from errors import UserError
from family.electra.encoder import ElectraConfig
from modeling.objectives import tasks
from tests.family.electra.test_electra_conversion import GOLDEN, golden
from tests.modeling.objectives.test_first_weights_of_heads import SIZES, TASKS, drawn
from tests.training.interchange.hugging_face import (
    hidden_states,
    their_config,
    there_and_back,
)
from training.interchange import hugging_face
from training.interchange.table import config_from_json

HEADS = {
    "electra_classifier": (tasks.Classification(3), "ElectraForSequenceClassification"),
    "electra_qa": (tasks.Span(), "ElectraForQuestionAnswering"),
    "electra_tokens": (tasks.Tagging(5), "ElectraForTokenClassification"),
}
SMALL = ElectraConfig(
    vocab_size=9,
    embedding_size=4,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=4,
    max_position_embeddings=8,
)


@pytest.mark.parametrize("kind", HEADS)
def test_models_equal_hugging_face_and_return_unchanged(kind, tmp_path):
    objective, their_class = HEADS[kind]
    source = GOLDEN / kind
    model = objective.network(read_config(str(source)))
    weights = {v.path: v for v in model.weights}
    report = Source.open(str(source)).load(weights, required=tuple(weights))
    assert not report.initial
    assert not report.unused
    given, expected = golden("inputs.npz"), golden(f"{kind}/outputs.npz")
    mask = given["attention_mask"]
    batch = {
        "input_ids": given["input_ids"],
        "input_mask": mask,
        "segment_ids": given["token_type_ids"],
    }
    found = hidden_states(model, batch) | model(batch)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        # Nothing reads padding, which differs.
        real = mask > 0 if value.shape[:2] == mask.shape else slice(None)
        np.testing.assert_allclose(
            np.array(value)[real], expected[name][real], rtol=0, atol=1e-5
        )
    said = there_and_back(source, tmp_path)
    assert said["architectures"] == [their_class]
    assert "pooler_act" not in said


def test_multiple_choice_goes_there_and_back(tmp_path):
    theirs = their_config(SMALL) | {"architectures": ["ElectraForMultipleChoice"]}
    config = config_from_json(theirs)
    assert config.pooler_act == "gelu_erf"
    model = tasks.Choice().network(config, seed=3)
    weights = {v.path: v.numpy() for v in model.weights}
    first = tmp_path / "first"
    hugging_face.write(str(first), weights, config)
    written = load_file(first / "model.safetensors")
    kernel = weights["electra/pooler/dense/kernel"]
    np.testing.assert_array_equal(written["sequence_summary.summary.weight"], kernel.T)
    assert written["classifier.weight"].shape == (1, 8)
    there_and_back(first, tmp_path)
    for key, value in (("summary_type", "last"), ("summary_use_proj", False)):
        with pytest.raises(
            ValueError, match=f"{key} is {value!r}; in an ElectraForMul"
        ):
            config_from_json(theirs | {key: value})
        config_from_json(their_config(SMALL) | {key: value})  # of no effect


@pytest.mark.parametrize(
    ("objective", "layer"),
    [
        (
            tasks.Classification(3),
            "SequenceClassification has a layer classifier.dense",
        ),
        (tasks.Choice(), "MultipleChoice has a layer sequence_summary.summary"),
    ],
)
def test_the_release_s_head_without_a_layer_is_not_written(tmp_path, objective, layer):
    model = objective.network(SMALL)
    weights = {v.path: v.numpy() for v in model.weights}
    assert "electra/pooler/dense/kernel" not in weights
    with pytest.raises(UserError, match=f'{layer}: .*"pooler_act": "gelu_erf"'):
        hugging_face.write(str(tmp_path / "theirs"), weights, SMALL)
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize("task", TASKS)
def test_first_weights_are_glorot_s(task):
    objective, number = TASKS[task]
    weights = drawn(ElectraConfig(**SIZES), objective)
    assert weights.shape == (number, 64)
    limit = np.sqrt(6 / (number + 64))
    assert 0.9 * limit < np.abs(weights).max() <= limit
    assert weights.std() == pytest.approx(limit / np.sqrt(3), rel=0.1)
