"""ELECTRA in Hugging Face's layout, and one network out of a checkpoint of both."""

import json

import numpy as np
import pytest

import convert_checkpoint
import tests
from training.storage import checkpoint, whole_model
from training.storage.source import Source, read_config
from errors import UserError
from family.electra import replaced_tokens
from family.electra.encoder import ElectraConfig, ElectraEncoder
from modeling.objectives import masked_lm
from tests import jobs
from tests import test_convert_checkpoint_layers as keep_layers
from tests.family.electra.test_electra_encoder import CONFIG
from tests.family.electra.test_electra_encoder import golden as released
from tests.training.interchange.hugging_face import (
    convert,
    hidden_states,
    there_and_back,
)

GOLDEN = tests.GOLDEN / "electra" / "hf"
CLASSES = {
    "electra_pretraining": "ElectraForPreTraining",
    "electra_same_width": "ElectraForPreTraining",
    "electra_masked_lm": "ElectraForMaskedLM",
}


def golden(path):
    with np.load(GOLDEN / path) as file:
        return dict(file)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSES)
def test_models_equal_hugging_face_and_return_unchanged(kind, tmp_path):
    source = GOLDEN / kind
    config = read_config(str(source))
    assert isinstance(config, ElectraConfig)
    model = masked_lm.MaskedLM().network(config)
    if kind != "electra_masked_lm":
        model = replaced_tokens.DiscriminatorModel(config)
    report = Source.open(str(source)).load(
        {v.path: v for v in model.weights}, model.encoder.required_variables
    )
    assert not report.unused
    given, expected = golden("inputs.npz"), golden(f"{kind}/outputs.npz")
    mask = given["attention_mask"]
    batch = {
        "input_ids": given["input_ids"],
        "input_mask": mask,
        "segment_ids": given["token_type_ids"],
        "masked_lm_positions": np.tile(np.arange(12), (3, 1)),
    }
    found = hidden_states(model, batch)
    if kind == "electra_masked_lm":
        found["logits"] = model(batch)["masked_lm_logits"]
    else:
        found["logits"] = model.discriminator(model.encoder(batch)["sequence_output"])
    assert found.keys() == expected.keys()
    for name, value in found.items():  # nothing reads padding, which differs
        real = np.array(value)[mask > 0]
        np.testing.assert_allclose(real, expected[name][mask > 0], rtol=0, atol=1e-5)
    said = there_and_back(source, tmp_path)
    assert said["architectures"] == [CLASSES[kind]]
    theirs = json.loads((source / "config.json").read_text())
    for key in ("model_type", "hidden_act", "embedding_size", "intermediate_size"):
        assert said[key] == theirs[key]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The released weights of both networks, as a run of the release leaves them."""
    folder = tmp_path_factory.mktemp("both")
    (folder / "bert_config.json").write_text(CONFIG.to_json_string())
    checkpoint.write_bundle(str(folder / "model.ckpt-0"), released("weights.npz"))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["release", "hugging_face"])
def test_each_network_becomes_a_model(both, tmp_path, layout):
    expected = released("outputs.npz")
    given = released("inputs.npz")
    for network in ("generator", "discriminator"):
        convert(both, tmp_path / network, network=network, layout=layout)
    config = read_config(str(tmp_path / "generator"))
    assert (config.hidden_size, config.num_attention_heads) == (8, 1)
    assert (config.intermediate_size, config.embedding_size) == (32, 12)
    model = whole_model.load_masked_lm(config, Source.open(str(tmp_path / "generator")))
    masked = {
        name: expected[f"masked_{name}"] for name in ("input_ids", "lm_positions")
    }
    logits = model(
        given
        | {
            "input_ids": masked["input_ids"],
            "masked_lm_positions": masked["lm_positions"],
        }
    )["masked_lm_logits"]
    np.testing.assert_allclose(logits, expected["generator_logits"], atol=1e-5)
    found = Source.open(str(tmp_path / "discriminator")).read()
    weights = released("weights.npz")
    assert found.keys() == {
        name for name in weights if name.startswith(("electra", "discriminator"))
    }
    for name, value in found.items():
        np.testing.assert_array_equal(value, weights[name])


@pytest.mark.slow
@pytest.mark.parametrize(("shares", "width"), [("none", 8), ("all", 12)])
def test_a_generator_has_its_own_embeddings_or_those_of_the_encoder(
    tmp_path, shares, width
):
    """As the release can train them, though we do not."""
    objective = replaced_tokens.ReplacedTokens(0.5 if shares == "none" else 1.0)
    weights = {v.path: v.numpy() for v in objective.network(CONFIG).weights}
    left_out = "generator/" if shares == "all" else "generator/embeddings_project/"
    weights = {name: v for name, v in weights.items() if not name.startswith(left_out)}
    if shares == "none":
        head = "generator_predictions/"
        weights |= {
            n: v[..., :8]
            for n, v in weights.items()
            if n.startswith(head) and not n.endswith("output_bias")
        }
        scope = "electra/embeddings/"
        tables = {n: v[..., :8] + 1 for n, v in weights.items() if n.startswith(scope)}
        weights |= {n.replace("electra", "generator"): v for n, v in tables.items()}
    (tmp_path / "bert_config.json").write_text(CONFIG.to_json_string())
    checkpoint.write_bundle(str(tmp_path / "model.ckpt-0"), weights)
    convert(tmp_path, tmp_path / "generator", network="generator")
    config = read_config(str(tmp_path / "generator"))
    assert config.embedding_size == width
    model = whole_model.load_masked_lm(config, Source.open(str(tmp_path / "generator")))
    scope = "generator" if shares == "none" else "electra"
    np.testing.assert_array_equal(
        model.encoder.word_embeddings, weights[f"{scope}/embeddings/word_embeddings"]
    )


def test_two_networks_are_shown_averaged_and_kept(both, tmp_path, capsys):
    jobs.run(convert_checkpoint, {"input": [str(both)], "show": True})
    assert "discriminator_predictions/dense_1/kernel" in capsys.readouterr().out
    same = {"input": [str(both)], "compare_with": str(both)}
    assert convert_checkpoint.main(convert_checkpoint.Options(**same)) == 0
    convert(both, tmp_path / "mean", input=[str(both)] * 2)
    found = Source.open(str(tmp_path / "mean")).read()
    weights = released("weights.npz")
    assert found.keys() == weights.keys() - {"global_step"}
    for name, value in found.items():
        np.testing.assert_array_equal(value, weights[name])


def test_what_reads_one_network_refuses_two(both, tmp_path):
    refused = "contains a generator and a discriminator"
    with pytest.raises(UserError, match=f"{refused}.*--network=generator or disc"):
        convert(both, tmp_path / "a", layout="hugging_face")
    with pytest.raises(UserError, match=f"{refused}.*--network=generator"):
        whole_model.load_masked_lm(CONFIG, Source.open(str(both)))
    convert(both, tmp_path / "alone", network="discriminator")
    with pytest.raises(UserError, match="a discriminator, and only a generator fills"):
        whole_model.load_masked_lm(CONFIG, Source.open(str(tmp_path / "alone")))
    with pytest.raises(UserError, match="does not contain both .* leave --network out"):
        convert(GOLDEN / "electra_masked_lm", tmp_path / "b", network="generator")


def test_what_is_left_of_both_networks_is_one_short_line(both):
    weights = {v.path: v for v in ElectraEncoder(CONFIG).weights}
    report = Source.open(str(both)).load(weights, required="")
    assert str(report).splitlines()[1:] == [
        "  unused in the checkpoint (44): discriminator_predictions/* x 4, "
        "generator/* x 34, generator_predictions/* x 5, global_step"
    ]


@pytest.mark.parametrize("network", ["discriminator", "generator"])
def test_of_two_networks_one_has_a_student(tmp_path, network):
    source = tmp_path / "both"
    source.mkdir()
    (source / "bert_config.json").write_text(CONFIG.to_json_string())
    checkpoint.write_bundle(str(source / "model.ckpt-0"), released("weights.npz"))
    given = {"input": [str(source)], "network": network}
    keep_layers.convert(**given, output_dir=str(tmp_path / "whole"))
    keep_layers.convert(**given, output_dir=str(tmp_path / "student"), keep_layers=[1])
    teacher = Source.open(str(tmp_path / "whole")).read()
    keep_layers.check(tmp_path / "student", teacher, [1])
    with pytest.raises(UserError, match="pass --network=generator or discriminator"):
        keep_layers.convert(
            input=[str(source)], output_dir=str(tmp_path / "new"), keep_layers=[1]
        )
