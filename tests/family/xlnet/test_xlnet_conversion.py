"""XLNet's files: the release's and Hugging Face's, read and written bit for bit."""

import dataclasses
import json

import numpy as np
import pytest
from keras import ops
from safetensors.numpy import load_file, save_file

import tests
from training.storage.folder import Folder
from training.storage.source import ModelFolder, Source
from modeling.architectures.table import make_encoder
from modeling.objectives import masked_lm, span_beams, tasks
from modeling.objectives.span_head import DEFAULT
from tests import jobs
from tests.conversion import convert
from tests.family.xlnet.test_xlnet_encoder import inputs_of, read_config
from training.interchange import hugging_face, table
from training.interchange.table import config_from_json

GOLDEN = tests.GOLDEN / "xlnet"
THEIRS = GOLDEN / "hf"
KINDS = ("lm_head", "question_answering", "sequence_classification")


def by_name(source):
    return Source.open(str(source)).read()


def golden(name):
    with np.load(THEIRS / name / "outputs.npz") as file:
        arrays = dict(file)
    config = ModelFolder(Folder.open(str(THEIRS / name))).config
    return arrays, config


def load(model, name):
    weights = {v.path: v for v in model.weights}
    report = Source.open(str(THEIRS / name)).load(
        weights, model.encoder.required_variables
    )
    assert not report.unused
    return report.initial


def logits_of(model, outputs):
    """The language model's, from the encoder's outputs."""
    table = ops.transpose(model.encoder.word_embeddings)
    return ops.matmul(outputs["query_output"], table) + model.masked_lm.output_bias


def test_the_released_checkpoint_loads_by_name():
    model = masked_lm.MaskedLM().network(read_config())
    weights = {v.path: v for v in model.weights}
    path = str(GOLDEN / "pretrain" / "xlnet_model.ckpt")
    report = Source.open(path).load(weights, model.encoder.required_variables)
    assert not report.unused
    # Pre-training has no summary.
    scope = "model/sequnece_summary/summary"
    assert report.initial == [f"{scope}/bias", f"{scope}/kernel"]


def test_their_language_model():
    arrays, config = golden("lm_head")
    model = masked_lm.MaskedLM().network(config)
    assert all("sequnece_summary" in name for name in load(model, "lm_head"))
    both = {
        "input_ids": arrays["input_ids"],
        "segment_ids": arrays["token_type_ids"],
        "hidden_pairs": arrays["perm_mask"].astype(np.int32),
        "memory": arrays["mems"].transpose(2, 0, 1, 3),
        "input_q": np.zeros(arrays["input_ids"].shape, np.float32),
        "target_mapping": arrays["target_mapping"],
    }
    outputs = model.encoder(both, mem_len=8, reuse_len=6)
    np.testing.assert_allclose(
        logits_of(model, outputs), arrays["logits"], rtol=0, atol=1e-5
    )
    memory = np.transpose(outputs["memory"], (1, 2, 0, 3))
    np.testing.assert_allclose(memory, arrays["new_mems"], rtol=0, atol=1e-5)


def test_their_classifier():
    arrays, config = golden("sequence_classification")
    model = tasks.Classification(3).network(config)
    assert load(model, "sequence_classification") == []
    inputs = {  # padded on the left
        "input_ids": arrays["input_ids"],
        "input_mask": arrays["attention_mask"].astype(np.int32),
        "segment_ids": arrays["token_type_ids"],
    }
    logits = model(inputs)["logits"]
    np.testing.assert_allclose(logits, arrays["logits"], rtol=0, atol=1e-5)


def test_their_questions():
    arrays, config = golden("question_answering")
    objective = span_beams.SpanBeams(
        *(DEFAULT, 3, 2), document_first=True, cls_last=True
    )
    model = objective.network(config)
    assert all("sequnece_summary" in name for name in load(model, "question_answering"))
    outputs = model(
        {
            "input_ids": arrays["input_ids"],
            "input_mask": arrays["attention_mask"].astype(np.int32),
            "segment_ids": arrays["token_type_ids"],
        }
    )
    np.testing.assert_array_equal(outputs["start_top"], arrays["start_top_index"])
    probs = np.exp(outputs["start_top_scores"])
    np.testing.assert_allclose(probs, arrays["start_top_probs"], atol=1e-5)
    # Their order is by end, then by start.
    for mine, theirs in (("end_top", "index"), ("end_top_scores", "probs")):
        found = np.swapaxes(outputs[mine], 1, 2).reshape(4, 6)
        found = np.exp(found) if theirs == "probs" else found
        np.testing.assert_allclose(found, arrays[f"end_top_{theirs}"], atol=1e-5)
    # In transformers, the logit of no answer is learned from the true start, but
    # predicted from the possible ones.
    expected = arrays["cls_logits"]
    np.testing.assert_allclose(outputs["no_answer_logit"], expected, atol=1e-5)


def test_questions_may_be_padded_on_either_side():
    arrays, config = golden("question_answering")
    objective = span_beams.SpanBeams(
        *(DEFAULT, 3, 2), document_first=True, cls_last=True
    )
    model = objective.network(config)
    load(model, "question_answering")
    padding = [(0, 0), (0, 3)]
    row = {
        "input_ids": arrays["input_ids"][:1, -6:],
        "input_mask": np.ones((1, 6), np.int32),
        "segment_ids": np.array([[0, 0, 0, 1, 1, 2]]),
    }
    right = model({name: np.pad(value, padding) for name, value in row.items()})
    left = model({k: np.pad(v, [p[::-1] for p in padding]) for k, v in row.items()})
    np.testing.assert_allclose(
        left["start_logits"][:, 3:], right["start_logits"][:, :6], rtol=0, atol=1e-5
    )
    for name in ("no_answer_logit", "start_top_scores", "end_top_scores"):
        np.testing.assert_allclose(left[name], right[name], atol=1e-5, err_msg=name)
    np.testing.assert_array_equal(left["start_top"][0, 0], right["start_top"][0, 0] + 3)


def test_a_released_checkpoint_is_written_as_theirs(tmp_path):
    arrays, said = golden("released")
    convert(
        GOLDEN / "pretrain" / "xlnet_model.ckpt",
        tmp_path,
        bert_config_file=str(GOLDEN / "pretrain" / "xlnet_config.json"),
        layout="hugging_face",
    )
    theirs = load_file(THEIRS / "released" / "model.safetensors")
    found = load_file(tmp_path / "model.safetensors")
    jobs.check_same_bits(found, theirs)
    assert ModelFolder(Folder.open(str(tmp_path))).config == said
    model = masked_lm.MaskedLM().network(said)
    load(model, "released")
    with np.load(GOLDEN / "pretrain" / "case.npz") as file:
        inputs, _, _ = inputs_of(dict(file))
    outputs = model.encoder(inputs, mem_len=8, reuse_len=6)
    np.testing.assert_allclose(
        logits_of(model, outputs), arrays["logits"], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_goes_through_both_layouts_bit_for_bit(tmp_path, kind):
    source = str(THEIRS / kind)
    for layout in ("release", "hugging_face"):
        convert(source, tmp_path / layout, layout=layout)
        source = str(tmp_path / layout)
    theirs = load_file(THEIRS / kind / "model.safetensors")
    found = load_file(tmp_path / "hugging_face" / "model.safetensors")
    jobs.check_same_bits(found, theirs)
    said = json.loads((THEIRS / kind / "config.json").read_text())
    config = json.loads((tmp_path / "hugging_face" / "config.json").read_text())
    for name, value in config.items():
        assert name in ("d_head", "num_labels") or said[name] == value, name
    assert config_from_json(config) == config_from_json(said)


def test_an_encoder_saved_alone_has_no_prefix(tmp_path):
    theirs = load_file(THEIRS / "lm_head" / "model.safetensors")
    of_encoder = {k: v for k, v in theirs.items() if k.startswith("transformer.")}
    bare = {k.removeprefix("transformer."): v for k, v in of_encoder.items()}
    save_file(bare, tmp_path / "model.safetensors")
    said = json.loads((THEIRS / "lm_head" / "config.json").read_text())
    said["architectures"] = ["XLNetModel"]
    (tmp_path / "config.json").write_text(json.dumps(said))
    convert(tmp_path, tmp_path / "ours")
    found, expected = by_name(tmp_path / "ours"), by_name(THEIRS / "lm_head")
    assert expected.keys() - found.keys() == {"model/lm_loss/bias"}
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_biases_that_all_layers_share_are_copied(tmp_path):
    config = dataclasses.replace(read_config("pretrain_tied_relu"), num_hidden_layers=3)
    encoder = make_encoder(config, seed=4)
    tensors = {v.path: v.numpy() for v in encoder.weights}
    hugging_face.write(str(tmp_path), tensors, config)
    theirs = by_name(tmp_path)
    bias = tensors["model/transformer/r_w_bias"]
    np.testing.assert_array_equal(theirs["model/transformer/r_w_bias"], [bias] * 3)
    same = make_encoder(ModelFolder(Folder.open(str(tmp_path))).config)
    for variable in same.weights:
        variable.assign(theirs[variable.path])
    inputs = {
        "input_ids": np.arange(10, 22).reshape(2, 6),
        "segment_ids": np.array([[0, 0, 0, 1, 1, 2]] * 2),
    }
    np.testing.assert_allclose(
        same(inputs)["sequence_output"], encoder(inputs)["sequence_output"], atol=1e-6
    )


def test_kept_layers_keep_their_biases(tmp_path):
    source = str(GOLDEN / "pretrain" / "xlnet_model.ckpt")
    config = str(GOLDEN / "pretrain" / "xlnet_config.json")
    convert(source, tmp_path, bert_config_file=config, keep_layers=[1])
    before, after = by_name(source), by_name(tmp_path)
    for name in ("r_w_bias", "r_r_bias", "r_s_bias", "seg_embed"):
        name = f"model/transformer/{name}"
        np.testing.assert_array_equal(after[name], before[name][1:])
    kernel = "rel_attn/q/kernel"
    np.testing.assert_array_equal(
        after[f"model/transformer/layer_0/{kernel}"],
        before[f"model/transformer/layer_1/{kernel}"],
    )
    assert ModelFolder(Folder.open(str(tmp_path))).config.num_hidden_layers == 1


def test_heads_of_the_release_have_our_names():
    scope = "model/classification_imdb/logit"
    names = [f"{scope}/kernel", f"{scope}/bias", "model/lm_loss/bias"]
    assert table.released_names(names) == {
        "output_weights": (f"{scope}/kernel", True),
        "output_bias": (f"{scope}/bias", False),
        "model/lm_loss/bias": ("model/lm_loss/bias", False),
    }
    more = [*names, "logits/dense/kernel"]
    assert table.released_names(more).keys() == set(more)
