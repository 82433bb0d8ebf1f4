"""Models in Hugging Face layout: the same numbers, and one line for what does not fit."""

import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from training.backend import tf
from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import Source, read_config
from errors import UserError
from modeling.architectures.bert import BertEncoder
from modeling.objectives import sentence_pairs, tasks
from tests.training.interchange.hugging_face import (
    GOLDEN,
    change_config,
    change_weights,
    config_of,
    loaded,
    split,
)
from training.interchange import hugging_face
from training.interchange.bert_adapter import BertAdapter

INDEX = "model.safetensors.index.json"
KEYS = ("input_ids", "input_mask", "segment_ids")


def golden_outputs(kind):
    with np.load(GOLDEN / f"{kind}_outputs.npz") as file:
        values = dict(file)
    return {key: values[key] for key in KEYS}, values


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


# --- the same numbers ----------------------------------------------------------------


def test_pretraining_model_equals_hugging_face():
    inputs, values = golden_outputs("pretraining")
    model = sentence_pairs.PretrainingModel(config_of())
    report = loaded(model, GOLDEN / "pretraining", required="")
    assert (report.initial, report.unused) == ([], [])
    encoded = model.encoder(inputs)
    for key in ("sequence_output", "pooled_output"):
        assert_close(encoded[key], values[key])
    everywhere = np.tile(np.arange(40, dtype=np.int32), (4, 1))
    outputs = model(inputs | {"masked_lm_positions": everywhere})
    assert_close(outputs["masked_lm_logits"], values["prediction_logits"])
    assert_close(outputs["next_sentence_logits"], values["seq_relationship_logits"])


POOLER = ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]


@pytest.mark.parametrize(
    ("kind", "objective", "initial", "unused"),
    [
        ("sequence_classification", tasks.Classification(3), [], []),
        ("question_answering", tasks.Span(), POOLER, []),
        ("token_classification", tasks.Tagging(3), POOLER, []),
        # A bias that all choices share changes no probability.
        ("multiple_choice", tasks.Choice(), [], ["output_bias"]),
    ],
)
def test_fine_tuned_models_equal_hugging_face(kind, objective, initial, unused):
    inputs, values = golden_outputs(kind)
    bias = 0.0
    if kind == "multiple_choice":
        inputs = {key: x.reshape(2, 2, 40) for key, x in inputs.items()}
        read = hugging_face.HuggingFace(str(GOLDEN / kind / "model.safetensors")).read()
        bias = read["output_bias"]
    model = objective.network(config_of(kind))
    report = loaded(model, GOLDEN / kind, required=model.encoder.required_variables)
    assert (report.initial, report.unused) == (initial, unused)
    outputs = model(inputs)
    assert outputs
    for key, found in outputs.items():
        assert_close(found + bias, values[key])


def test_encoder_without_its_prefix_and_with_the_older_names(folder):
    """As sentence-transformers and the models of 2019 name their tensors."""

    def rename(name):
        name = name.removeprefix("bert.").replace("LayerNorm.weight", "LayerNorm.gamma")
        return name.replace("LayerNorm.bias", "LayerNorm.beta")

    change_weights(
        folder,
        lambda tensors: {
            "embeddings.position_ids": np.arange(96)[None],
            **{rename(k): v for k, v in tensors.items() if k.startswith("bert.")},
        },
    )
    inputs, values = golden_outputs("pretraining")
    encoder = BertEncoder(config_of())
    report = loaded(encoder, folder, required="bert/")
    assert report.unused == ["embeddings.position_ids"]
    assert_close(encoder(inputs)["sequence_output"], values["sequence_output"])


@pytest.mark.parametrize(
    "stored", [np.float64, np.float16, np.dtype(ml_dtypes.bfloat16)]
)
def test_floats_of_any_size_become_float32(folder, stored):
    expected = hugging_face.HuggingFace(str(folder / "model.safetensors")).read()
    change_weights(folder, lambda t: {k: v.astype(stored) for k, v in t.items()})
    found = hugging_face.HuggingFace(str(folder / "model.safetensors")).read()
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, expected[name].astype(stored))


def test_file_may_lie_wherever_tensorflow_reaches(folder):
    for name in ("config.json", "model.safetensors"):
        tf.io.gfile.copy(
            str(folder / name), f"ram://models/tiny/{name}", overwrite=True
        )
    config = read_config("ram://models/tiny")
    assert config == config_of()
    model = sentence_pairs.PretrainingModel(config)
    report = loaded(model, "ram://models/tiny/model.safetensors", required="")
    assert len(report.matched) == len(model.weights)


# --- the table -----------------------------------------------------------------------


def test_every_weight_of_every_model_has_its_pair():
    """By it alone a file can be written as well: both directions are one to one."""
    model = sentence_pairs.PretrainingModel(config_of())
    released = {v.path for v in model.weights}
    released |= {"output_weights", "output_bias"}
    released |= {"cls/squad/output_weights", "cls/squad/output_bias"}
    in_files = set()
    for path in GOLDEN.glob("*/model.safetensors"):
        for name in load_file(path):
            pair = BertAdapter().of_hugging_face(name)
            assert pair.hugging_face == name
            in_files.add(pair.released)
    assert in_files == released
    for side in ("released", "hugging_face"):
        names = [getattr(pair, side) for pair in BertAdapter().pairs]
        assert len(set(names)) == len(names)


# --- what cannot be read -------------------------------------------------------------


def load_encoder(path):
    return loaded(BertEncoder(config_of()), path, required="bert/")


@pytest.mark.parametrize("keep", [0, 5, 300, -8])
def test_cut_file_is_refused(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match="model.safetensors: the file is damaged"):
        load_encoder(folder)


def test_something_else_under_the_name_is_refused(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec")
    with pytest.raises(UserError, match="git lfs pull"):
        load_encoder(folder)


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "tf_model.h5", "pytorch_model-00001-of-00002.bin"]
)
def test_other_weights_alone_are_refused_with_the_remedy(folder, name):
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(
        UserError, match=rf"{name}: only safetensors .* save_pretrained"
    ):
        load_encoder(folder)


def test_pickle_named_by_its_path_is_refused(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="pytorch_model.bin: only safetensors"):
        load_encoder(folder / "pytorch_model.bin")


def test_weights_in_several_files_are_read_as_one(folder):
    path = Source.open(str(folder)).prefix
    expected, shapes = Source.open(path).read(), Source.open(path).shapes()
    split(folder)
    path = Source.open(str(folder)).prefix
    assert path == str(folder / INDEX) == Source.open(path).prefix
    found = Source.open(path).read()
    assert found.keys() == expected.keys() and Source.open(path).shapes() == shapes
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert load_encoder(folder).initial == []


SHARD, WORDS = "model-00002-of-00002.safetensors", "bert.embeddings.word_embeddings"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / SHARD).unlink(), f"{INDEX}: {SHARD} is missing, with bert"),
        (lambda f: (f / SHARD).write_bytes(b"x"), f"{SHARD}: the file is damaged"),
        (
            lambda f: change_index(f, "none", SHARD),
            f"none is not in {SHARD}; the files",
        ),
        (lambda f: (f / INDEX).unlink(), f"must also contain {INDEX}"),
        (lambda f: (f / INDEX).write_text("{"), f"{INDEX}:1: not JSON"),
        (
            lambda f: (f / INDEX).write_text("[" * 99999),
            f"{INDEX}: nested too deeply",
        ),
        (lambda f: (f / INDEX).write_text("{}"), f"{INDEX}: the index is damaged"),
        (
            lambda f: (f / INDEX).write_text('{"weight_map": {}}'),
            f"{INDEX}: the index is damaged",
        ),
        *(
            (lambda f, name=name: change_index(f, f"{WORDS}.weight", name), message)
            for message in (
                "word_embeddings.weight is in .*, but only safetensors files",
            )
            for name in (
                "../model.safetensors",
                "/etc/passwd",
                "..\\model.safetensors",
                "pytorch_model.bin",
                None,
            )
        ),
    ],
)
def test_an_unusable_index_is_refused(folder, change, message):
    shutil.copy(folder / "model.safetensors", folder.parent)  # which nothing may read
    split(folder)
    change(folder)
    with pytest.raises(UserError, match=message) as refused:
        load_encoder(folder)
    assert "\n" not in str(refused.value)


def change_index(folder, tensor, name):
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"][tensor] = name
    (folder / INDEX).write_text(json.dumps(index))


def test_one_of_several_files_is_refused(folder):
    split(folder)
    with pytest.raises(
        UserError, match=f"{SHARD}: is one of several .* pass their fold"
    ):
        load_encoder(folder / SHARD)


def test_missing_file_is_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="there is no model.safetensors"):
        load_encoder(folder)
    with pytest.raises(UserError, match="model.safetensors: no such file"):
        load_encoder(folder / "model.safetensors")


def test_bundle_goes_before_safetensors(folder):
    bundle = checkpoint.save(Folder.open(str(folder)), 1, {"x": np.zeros(1)}, keep=1)
    assert Source.open(str(folder)).prefix == bundle


def test_quantized_weights_are_refused(folder):
    name = "bert.encoder.layer.0.output.dense.weight"
    change_weights(folder, lambda t: t | {name: t[name].astype(np.int8)})
    with pytest.raises(UserError, match=rf"{name} has type I8, but only unquantized"):
        load_encoder(folder)


# Eight values each; numpy has none of these types.
@pytest.mark.parametrize(("kind", "size"), [("F4", 4), ("F8_E4M3", 8), ("F6_E2M3", 6)])
def test_types_that_numpy_lacks_are_refused(folder, kind, size):
    name = "extra"
    entry = {"dtype": kind, "shape": [8], "data_offsets": [0, size]}
    head = json.dumps({name: entry}).encode()
    content = len(head).to_bytes(8, "little") + head + bytes(size)
    (folder / "model.safetensors").write_bytes(content)
    assert hugging_face.HuggingFace(str(folder / "model.safetensors")).shapes() == {
        name: (8,)
    }
    with pytest.raises(UserError, match=f"extra has type {kind}, but only unquantized"):
        hugging_face.HuggingFace(str(folder / "model.safetensors")).read()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("bert.pooler.dense.bias", "pooler.dense.bias"),
        ("bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma"),
        ("bert.pooler.dense.bias", "bert/pooler/dense/bias"),
    ],
)
def test_a_weight_under_two_names_is_refused(folder, name, other):
    change_weights(folder, lambda t: t | {other: t[name] + 1})
    with pytest.raises(UserError, match="are the same weight.*; remove one") as error:
        load_encoder(folder)
    assert name in str(error.value) and other in str(error.value)


def test_folder_under_the_name_is_refused(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    with pytest.raises(UserError, match="safetensors: cannot be read as a safetensors"):
        load_encoder(folder)


@pytest.mark.parametrize("labels", [{"0": 1}, {"0": None}, {"1": "a"}, "ab", [5]])
def test_labels_that_are_no_texts_are_refused(folder, labels):
    change_config(folder, id2label=labels, architectures=True)
    with pytest.raises(UserError, match="config.json: id2label must have a label for"):
        hugging_face.HuggingFace(str(folder / "model.safetensors")).task()
    change_config(folder, id2label={"0": "a"})
    path = str(folder / "model.safetensors")
    assert hugging_face.HuggingFace(path).task() == {"label_names": ["a"]}


def test_masked_lm_head_with_a_matrix_of_its_own(folder):
    """Such a head cannot be had, but its encoder can."""
    words = "bert.embeddings.word_embeddings.weight"
    matrix = "cls.predictions.decoder.weight"
    change_weights(folder, lambda t: t | {matrix: t[words].copy()})
    assert loaded(sentence_pairs.PretrainingModel(config_of()), folder).unused == [
        matrix
    ]
    change_weights(folder, lambda t: t | {matrix: t[matrix] + 1})
    with pytest.raises(UserError, match="decoder.weight differs from the table of"):
        loaded(sentence_pairs.PretrainingModel(config_of()), folder)
    load_encoder(folder)


# --- another number of labels --------------------------------------------------------


def test_head_for_another_number_of_labels():
    model = tasks.Classification(5).network(config_of())
    initial = model.output_weights.numpy()
    source = GOLDEN / "sequence_classification"
    with pytest.raises(UserError, match="safetensors: its head .* check the") as error:
        loaded(model, source, scope=model.encoder.scope)
    assert "output_weights is [3,48] in the checkpoint and [5,48]" in str(error.value)
    np.testing.assert_array_equal(model.output_weights, initial)
