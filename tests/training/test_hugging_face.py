"""Models in Hugging Face layout: the same numbers, and one line for what does not fit."""

import dataclasses
import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tests
from training import checkpoint
from training.backend import tf
from modeling.encoders.bert import BertEncoder
from modeling.encoders.bert_config import BertConfig
from modeling.objectives import pretraining, tasks
from text.errors import UserError
from text.tokenizers.byte_bpe import ByteBpe
from text.tokenizers.wordpiece import WordPiece, WordSplitter
from training.layouts import hugging_face
from training.layouts.bert_names import BERT

GOLDEN = tests.GOLDEN / "hf"
KEYS = ("input_ids", "input_mask", "segment_ids")


def config_of(kind="pretraining"):
    return checkpoint.read_config(str(GOLDEN / kind))


def loaded(model, source, **arguments):
    """Loads a model's weights; returns the report."""
    variables = {v.path: v for v in model.variables}
    return checkpoint.load(variables, str(source), **arguments)


def golden_outputs(kind):
    with np.load(GOLDEN / f"{kind}_outputs.npz") as file:
        values = dict(file)
    return {key: values[key] for key in KEYS}, values


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.fixture
def folder(tmp_path):
    """A copy of the pre-trained model, and a way to change it."""
    shutil.copytree(GOLDEN / "pretraining", tmp_path / "model")
    return tmp_path / "model"


def change_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors")


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


# --- the same numbers ----------------------------------------------------------------


def test_pretraining_model_equals_hugging_face():
    inputs, values = golden_outputs("pretraining")
    model = pretraining.PretrainingModel(config_of())
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
        read = hugging_face.read(str(GOLDEN / kind / "model.safetensors"))
        bias = read["output_bias"]
    model = objective.network(config_of(kind))
    report = loaded(model, GOLDEN / kind, required=model.encoder.required)
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
    expected = hugging_face.read(str(folder / "model.safetensors"))
    change_weights(folder, lambda t: {k: v.astype(stored) for k, v in t.items()})
    found = hugging_face.read(str(folder / "model.safetensors"))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, expected[name].astype(stored))


def test_file_may_lie_wherever_tensorflow_reaches(folder):
    for name in ("config.json", "model.safetensors"):
        tf.io.gfile.copy(
            str(folder / name), f"ram://models/tiny/{name}", overwrite=True
        )
    config = checkpoint.read_config("ram://models/tiny")
    assert config == config_of()
    model = pretraining.PretrainingModel(config)
    report = loaded(model, "ram://models/tiny/model.safetensors", required="")
    assert len(report.matched) == len(model.variables)


# --- the table -----------------------------------------------------------------------


def test_every_weight_of_every_model_has_its_pair():
    """By it alone a file can be written as well: both directions are one to one."""
    model = pretraining.PretrainingModel(config_of())
    released = {v.path for v in model.variables}
    released |= {"output_weights", "output_bias"}
    released |= {"cls/squad/output_weights", "cls/squad/output_bias"}
    in_files = set()
    for path in GOLDEN.glob("*/model.safetensors"):
        for name in load_file(path):
            pair = BERT.of_theirs(name)
            assert pair.theirs == name
            in_files.add(pair.released)
    assert in_files == released
    for side in ("released", "theirs"):
        names = [getattr(pair, side) for pair in BERT.pairs]
        assert len(set(names)) == len(names)


def test_number_of_a_layer_is_kept():
    pair = BERT.of_theirs("encoder.layer.11.attention.output.LayerNorm.gamma")
    assert pair == (
        "bert/encoder/layer_11/attention/output/LayerNorm/gamma",
        "bert.encoder.layer.11.attention.output.LayerNorm.weight",
        False,
    )
    assert BERT.of_theirs("bert.encoder.layer.0.crossattention.x") is None


# --- config.json ---------------------------------------------------------------------


def test_config_keeps_the_exact_gelu(folder):
    config = config_of()
    assert config == BertConfig(
        vocab_size=1200,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=192,
        hidden_act="gelu_erf",
        max_position_embeddings=96,
        type_vocab_size=2,
    )
    # A run writes it down in the release's words; what it reads there means the same.
    path = folder / "bert_config.json"
    path.write_text(config.to_json_string())
    assert checkpoint.read_config(str(folder)) == config
    change_config(folder, hidden_act="gelu_new")
    assert checkpoint.read_config(str(folder / "config.json")).hidden_act == "gelu"


def test_config_has_their_defaults():
    config = BertConfig.from_dict({"model_type": "bert"})
    assert (config.vocab_size, config.type_vocab_size) == (30522, 2)
    assert config.hidden_act == "gelu_erf"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model_type": "deberta"},
            "model_type is 'deberta'; it must be one of 'bert', 'albert', 'roberta'",
        ),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05, .* 1e-12"),
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type is 'relative_key', .* 'absolute'",
        ),
        ({"is_decoder": "no"}, "is_decoder is 'no'; it must be of type bool"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"pruned_heads": {"1": [0]}}, "pruned_heads is"),
        ({"quantization_config": {"load_in_8bit": True}}, "quantization_config is"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu'; .* one of gelu, "),
        ({"hidden_act": {"a": 1}}, "hidden_act is {'a': 1}; .* one of gelu, "),
        ({"hidden_act": ["gelu"]}, r"hidden_act is \['gelu'\]; .* one of gelu, "),
        ({"model_type": None}, "model_type is None; it must be one of 'bert'"),
        ({"hidden_act": "x" * 10_000}, "hidden_act is 'x{39}; in Hugging"),
        ({"hidden_size": 50}, "hidden_size is 50, which 4 attention heads"),
        ({"hidden_size": "48"}, "hidden_size is '48'; it must be of type int"),
    ],
)
def test_other_networks_are_refused(folder, change, message):
    change_config(folder, **change)
    with pytest.raises(UserError, match=rf"model/config.json: {message}"):
        checkpoint.read_config(str(folder))


def test_a_decoder_of_theirs_reads_from_left_to_right(folder, tmp_path):
    change_config(folder, is_decoder=True)
    # Its next-sentence head reads the first token even so.
    assert checkpoint.read_config(str(folder)).pooling == "first"
    change_config(folder, architectures=["BertLMHeadModel"])
    config = checkpoint.read_config(str(folder))
    assert config == dataclasses.replace(
        config_of(), attention_direction="left_to_right"
    )
    change_config(folder, pooling="cls")  # no key of theirs
    assert checkpoint.read_config(str(folder)) == config
    tensors = hugging_face.read(str(folder / "model.safetensors"))
    masked_lm = {k: v for k, v in tensors.items() if "seq_relationship" not in k}
    hugging_face.write(str(tmp_path / "causal"), masked_lm, config)
    said = json.loads((tmp_path / "causal" / "config.json").read_text())
    assert said["is_decoder"] and said["architectures"] == ["BertLMHeadModel"]
    assert checkpoint.read_config(str(tmp_path / "causal")) == config
    backwards = dataclasses.replace(config, attention_direction="right_to_left")
    with pytest.raises(UserError, match="'right_to_left', for which Hugging Face's"):
        hugging_face.write(str(tmp_path / "backwards"), masked_lm, backwards)
    assert not (tmp_path / "backwards").exists()


def test_null_is_their_default(folder, caplog):
    change_config(folder, layer_norm_eps=None, is_decoder=None, pruned_heads=None)
    assert checkpoint.read_config(str(folder)) == config_of()
    assert not caplog.text
    # Not all versions of transformers agreed.
    change_config(folder, position_embedding_type=None)
    assert checkpoint.read_config(str(folder)) == config_of()
    assert "position_embedding_type is null and is read as 'absolute'" in caplog.text


def test_dropout_of_a_head_is_not_dropped_in_silence(folder, caplog):
    for value in (None, 0.1):  # 0.1 is its hidden_dropout_prob
        change_config(folder, classifier_dropout=value)
        assert checkpoint.read_config(str(folder)) == config_of()
    assert not caplog.text
    change_config(folder, classifier_dropout=0.5)
    assert checkpoint.read_config(str(folder)) == config_of()
    assert "classifier_dropout=0.5 is ignored" in caplog.text


def test_config_that_is_not_there(folder):
    with pytest.raises(
        UserError, match="nowhere: no such file; pass --bert_config_file"
    ):
        checkpoint.read_config(str(folder / "nowhere"))
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match="bert_config.json: no such file"):
        checkpoint.read_config(str(folder))


def test_config_without_its_type():
    """Some of 2019 lack it; telling the user to remove every other key were no help."""
    with pytest.raises(ValueError, match='if the model is a BERT, add "model_type"'):
        BertConfig.from_dict({"architectures": ["BertModel"], "vocab_size": 5})


# --- what cannot be read -------------------------------------------------------------


def load_encoder(path):
    return loaded(BertEncoder(config_of()), path, required="bert/")


@pytest.mark.parametrize("keep", [0, 5, 300, -8])
def test_cut_file_is_refused(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match="model.safetensors: the file is damaged") as e:
        load_encoder(folder)
    assert "\n" not in str(e.value)


def test_something_else_under_the_name_is_refused(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec")
    with pytest.raises(UserError, match="git lfs pull"):
        load_encoder(folder)


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "tf_model.h5", "pytorch_model-00001-of-00002.bin"],
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


def test_weights_in_several_files_are_refused(folder):
    part = folder / "model-00001-of-00002.safetensors"
    (folder / "model.safetensors").rename(part)
    (folder / "model.safetensors.index.json").write_text("{}")
    for path in (folder, part):
        with pytest.raises(
            UserError, match="split into several files; .* max_shard_size"
        ):
            load_encoder(path)


def test_missing_file_is_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="there is no model.safetensors"):
        load_encoder(folder)
    with pytest.raises(UserError, match="model.safetensors: no such file"):
        load_encoder(folder / "model.safetensors")


def test_bundle_goes_before_safetensors(folder):
    bundle = checkpoint.save(str(folder), 1, {"x": np.zeros(1)}, keep=1)
    assert checkpoint.resolve(str(folder)) == bundle


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
    assert hugging_face.shapes(str(folder / "model.safetensors")) == {name: (8,)}
    with pytest.raises(UserError, match=f"extra has type {kind}, but only unquantized"):
        hugging_face.read(str(folder / "model.safetensors"))


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


def test_model_without_an_encoder_is_refused(folder):
    change_weights(folder, lambda t: {k: v for k, v in t.items() if "bert." not in k})
    with pytest.raises(UserError, match="not in the checkpoint: all variables"):
        load_encoder(folder)


def test_missing_layer_is_refused(folder):
    change_weights(
        folder, lambda t: {k: v for k, v in t.items() if ".layer.1." not in k}
    )
    with pytest.raises(
        UserError, match=r"not in the checkpoint: bert/encoder/layer_\*"
    ):
        load_encoder(folder)


@pytest.mark.parametrize("labels", [{"0": 1}, {"0": None}, {"1": "a"}, "ab", [5]])
def test_labels_that_are_no_texts_are_refused(folder, labels):
    change_config(folder, id2label=labels, architectures=True)
    with pytest.raises(UserError, match="config.json: id2label must have a label for"):
        hugging_face.read_task(str(folder / "model.safetensors"))
    change_config(folder, id2label={"0": "a"})
    path = str(folder / "model.safetensors")
    assert hugging_face.read_task(path) == {"labels": ["a"]}


def test_shapes_are_named_as_the_release_has_them(folder):
    change_config(folder, intermediate_size=96)
    encoder = BertEncoder(checkpoint.read_config(str(folder)))
    with pytest.raises(UserError, match="check --bert_config_file") as error:
        loaded(encoder, folder)
    assert (
        "bert/encoder/layer_0/intermediate/dense/kernel is [48,192] in the checkpoint "
        "and [48,96] in the model" in str(error.value)
    )


def test_masked_lm_head_with_a_matrix_of_its_own(folder):
    """Such a head cannot be had, but its encoder can."""
    words = "bert.embeddings.word_embeddings.weight"
    matrix = "cls.predictions.decoder.weight"
    change_weights(folder, lambda t: t | {matrix: t[words].copy()})
    assert loaded(pretraining.PretrainingModel(config_of()), folder).unused == [matrix]
    change_weights(folder, lambda t: t | {matrix: t[matrix] + 1})
    with pytest.raises(
        UserError, match="decoder.weight differs from the table of word emb"
    ):
        loaded(pretraining.PretrainingModel(config_of()), folder)
    load_encoder(folder)


# --- another number of labels --------------------------------------------------------


def test_head_for_another_number_of_labels():
    model = tasks.Classification(5).network(config_of())
    initial = model.output_weights.numpy()
    source = GOLDEN / "sequence_classification"
    with pytest.raises(
        UserError, match="safetensors: its head .* check the number of labels"
    ) as error:
        loaded(model, source, scope=model.encoder.scope)
    assert "output_weights is [3,48] in the checkpoint and [5,48]" in str(error.value)
    np.testing.assert_array_equal(model.output_weights, initial)


# --- the tokenizer beside it ---------------------------------------------------------


def check(path, splitter):
    classes = WordPiece.hugging_face_classes
    hugging_face.check_tokenizer(path, splitter.settings, classes)


def test_byte_level_models_need_a_byte_level_vocabulary(folder):
    said = json.dumps({"tokenizer_class": "RobertaTokenizer"})
    (folder / "tokenizer_config.json").write_text(said)
    path = checkpoint.resolve(str(folder))
    hugging_face.check_tokenizer(path, {}, ByteBpe.hugging_face_classes)
    with pytest.raises(
        UserError, match="RobertaTokenizer.*the --vocab_file next to it"
    ):
        check(path, WordSplitter())
    said = json.dumps({"tokenizer_class": "BertTokenizer"})
    (folder / "tokenizer_config.json").write_text(said)
    with pytest.raises(UserError, match="BertTokenizer.* as RobertaTokenizer"):
        hugging_face.check_tokenizer(path, {}, ByteBpe.hugging_face_classes)


@pytest.mark.parametrize(
    ("said", "flags"),
    [
        ({"do_lower_case": False}, "--do_lower_case=false --strip_accents=false"),
        ({"do_lower_case": True, "strip_accents": False}, "--strip_accents=false"),
        ({"do_lower_case": True, "tokenize_chinese_chars": False}, "--split_cjk=false"),
    ],
)
def test_text_split_otherwise_is_refused(folder, said, flags):
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    path = checkpoint.resolve(str(folder))
    with pytest.raises(UserError, match=f"split differently; pass {flags}$"):
        check(path, WordSplitter())
    values = dict(flag.removeprefix("--").split("=") for flag in flags.split())
    given = {name: value == "true" for name, value in values.items()}
    check(path, WordSplitter(**given))


def test_tokenizer_that_says_nothing_passes(folder):
    path = checkpoint.resolve(str(folder))
    for splitter in (WordSplitter(), WordSplitter(False), WordSplitter(True, False)):
        check(path, splitter)
    (folder / "tokenizer_config.json").write_text("{}")
    for splitter in (WordSplitter(), WordSplitter(False), WordSplitter(True, False)):
        check(path, splitter)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"tokenizer_class": "BertJapaneseTokenizer"}', "'BertJapaneseTokenizer'"),
        ('{"do_lower_case":', "not a tokenizer's JSON"),
        ("3", "not a tokenizer's JSON"),
        ("[" * 100_000, "not a tokenizer's JSON"),
    ],
)
def test_other_tokenizers_are_refused(folder, content, message):
    (folder / "tokenizer_config.json").write_text(content)
    with pytest.raises(UserError, match=f"tokenizer_config.json: .*{message}"):
        check(checkpoint.resolve(str(folder)), WordSplitter())
