"""RoBERTa: the numbers of Hugging Face's and fairseq's models, there and back."""

import dataclasses
import json
import re
import shutil

import keras
import numpy as np
import pytest
import tokenizers
from keras import ops
from safetensors.numpy import load_file

import tests
from training.backend import tf
from training.run import distribution, loop, settle
from training.storage import whole_model
from training.storage.source import Source, read_config
from errors import UserError
from family.roberta.tokenizer import RobertaBpe
from modeling.architectures.table import make_encoder
from modeling.objectives import masked_lm, tasks
from modeling.optimizers.table import OptimizerSettings
from tests.family.roberta.conversion import (
    CONFIG,
    GOLDEN,
    change,
    convert,
    masked_lm_in,
)
from tests.log import Log
from tests.training.interchange.test_hugging_face_tokenizer import check
from text.tokenizers.recorded_settings import FolderText
from text.tokenizers.table import TOKENIZERS, TokenizerOptions
from text.tokenizers.word_splitter import WordSplitter
from training.interchange import hugging_face, table
from training.interchange.table import ADAPTERS

POOLER = ["roberta/pooler/dense/bias", "roberta/pooler/dense/kernel"]
HEADS = {
    "masked_lm": (masked_lm.MaskedLM(), POOLER),
    "sequence_classification": (tasks.Classification(3), []),
    "token_classification": (tasks.Tagging(5), POOLER),
    "question_answering": (tasks.Span(), POOLER),
    "multiple_choice": (tasks.Choice(), []),
}


def golden_outputs(kind):
    """Inputs under our names, with segments that RoBERTa must not see; and outputs."""
    with np.load(GOLDEN / "hf" / f"{kind}_outputs.npz") as file:
        values = dict(file)
    ids, mask = values["input_ids"], values["attention_mask"]
    segments = np.tile(np.arange(24) % 2, (*ids.shape[:-1], 1))
    return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}, values


def loaded(model, source, **arguments):
    variables = {v.path: v for v in model.weights}
    return Source.open(str(source)).load(variables, **arguments)


def everywhere(inputs):
    rows = len(inputs["input_ids"])
    return inputs | {"masked_lm_positions": np.tile(np.arange(24), (rows, 1))}


def assert_close(found, expected, mask=None):
    """Everywhere, or at the tokens alone: fairseq replaces padding by zeros."""
    mask = slice(None) if mask is None else mask > 0
    np.testing.assert_allclose(np.array(found)[mask], expected[mask], rtol=0, atol=1e-5)


# --- the same numbers ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEADS)
def test_models_equal_hugging_face(kind):
    inputs, values = golden_outputs(kind)
    objective, initial = HEADS[kind]
    model = objective.network(read_config(str(GOLDEN / "hf" / kind)))
    assert model.config == CONFIG
    report = loaded(
        model, GOLDEN / "hf" / kind, required=model.encoder.required_variables
    )
    # A bias that all choices share changes no probability.
    assert report.initial == initial
    assert report.unused == (["output_bias"] if kind == "multiple_choice" else [])
    if kind == "masked_lm":
        outputs = model(everywhere(inputs))
        assert_close(outputs["masked_lm_logits"], values["logits"])
        encoded = model.encoder(inputs, return_all=True)
        hidden = [encoded["embedding_output"], *encoded["layer_outputs"]]
        for found, expected in zip(hidden, values["hidden_states"], strict=True):
            assert_close(found, expected)
    elif kind == "question_answering":
        outputs = model(inputs)
        assert_close(outputs["start_logits"], values["start_logits"])
        assert_close(outputs["end_logits"], values["end_logits"])
    elif kind == "token_classification":
        assert_close(model(inputs)["logits"], values["logits"])
    else:
        bias = 0.0
        if kind == "multiple_choice":
            path = GOLDEN / "hf" / kind / "model.safetensors"
            bias = hugging_face.HuggingFace(str(path)).read(["output_bias"])[
                "output_bias"
            ]
        assert_close(model(inputs)["logits"] + bias, values["logits"])


def test_padding_trains_no_embeddings():
    """A span's softmax reads its outputs, yet its rows of both tables stay as they are."""
    inputs, _ = golden_outputs("question_answering")
    objective = tasks.Span()
    model = objective.network(CONFIG)
    answers = {"start_positions": [3, 1, 4], "end_positions": [5, 1, 6]}
    tables = [model.encoder.word_embeddings, model.encoder.position_embeddings]
    with tf.GradientTape() as tape:
        loss, _ = objective.losses(inputs | answers, model(inputs))["loss"]
    rows = tape.gradient(loss, [table.value for table in tables])
    for of_table in map(tf.convert_to_tensor, rows):
        assert not np.any(of_table[CONFIG.pad_token_id])
        assert np.any(of_table[CONFIG.pad_token_id + 1 :])


def released(name):
    """fairseq's name -> ours, for what does not belong to the classification head."""
    name = name.replace("encoder.sentence_encoder.layers.", "roberta/encoder/layer_")
    name = name.replace("encoder.sentence_encoder.", "roberta/embeddings/")
    for theirs, ours in (
        ("embed_tokens.weight", "word_embeddings"),
        ("embed_positions.weight", "position_embeddings"),
        ("layernorm_embedding", "LayerNorm"),
        ("self_attn.out_proj", "attention/output/dense"),
        ("self_attn_layer_norm", "attention/output/LayerNorm"),
        ("self_attn.q_proj", "attention/self/query"),
        ("self_attn.k_proj", "attention/self/key"),
        ("self_attn.v_proj", "attention/self/value"),
        ("fc1", "intermediate/dense"),
        ("fc2", "output/dense"),
        ("final_layer_norm", "output/LayerNorm"),
        ("encoder.lm_head.bias", "cls/predictions/output_bias"),
        ("encoder.lm_head.dense", "cls/predictions/transform/dense"),
        ("encoder.lm_head.layer_norm", "cls/predictions/transform/LayerNorm"),
    ):
        name = name.replace(theirs, ours)
    name = re.sub(r"(?<=LayerNorm)\.weight$", "/gamma", name)
    name = re.sub(r"(?<=LayerNorm)\.bias$", "/beta", name)
    name = name.removesuffix(".weight") + "/kernel" * name.endswith(".weight")
    return re.sub(r"(?<=layer_\d)\.", "/", name).replace(".bias", "/bias")


def of_fairseq(name):
    """The weights of a model of fairseq, under our names and in our shapes."""
    return {
        ours: value.T if ours.endswith("/kernel") else value
        for theirs, value in load_file(GOLDEN / "fairseq" / name).items()
        if (ours := released(theirs)).startswith(("roberta/", "cls/"))
        and not ours.endswith("version")
    }


@pytest.fixture(scope="module")
def fairseq_weights():
    return of_fairseq("roberta_tiny.safetensors")


def test_masked_lm_equals_fairseq(fairseq_weights):
    model = masked_lm.MaskedLM().network(CONFIG)
    weights = {v.path: v for v in model.weights}
    # fairseq has neither a pooler nor a row that all tokens share.
    types = "roberta/embeddings/token_type_embeddings"
    assert weights.keys() - fairseq_weights.keys() == {*POOLER, types}
    assert not np.any(weights[types])
    for name, value in fairseq_weights.items():
        weights[name].assign(value)
    with np.load(GOLDEN / "fairseq" / "roberta_tiny_outputs.npz") as file:
        values = dict(file)
    mask = (values["input_ids"] != CONFIG.pad_token_id).astype(np.int32)
    inputs = {"input_ids": values["input_ids"], "input_mask": mask}
    outputs = model(everywhere(inputs))
    assert_close(outputs["masked_lm_logits"], values["logits"], mask)
    assert_close(outputs["sequence_output"], values["features"], mask)


# --- the same training ---------------------------------------------------------------


def masked_rows(trace):
    """The rows of fairseq's updates, as records give them: padded places of targets."""
    tokens, targets = trace["src_tokens"], trace["target"]
    is_target = targets != CONFIG.pad_token_id
    places = np.argsort(~is_target, axis=-1, kind="stable")[..., :9]
    weights = np.take_along_axis(is_target, places, -1)
    return {
        "input_ids": tokens,
        "input_mask": tokens != CONFIG.pad_token_id,
        "masked_lm_positions": places * weights,
        "masked_lm_ids": np.take_along_axis(targets, places, -1) * weights,
        "masked_lm_weights": weights,
    }


def test_its_optimizer_decays_everything_and_always_corrects():
    for rate, expected in ((0.01, 0.9999), (0.0, 1.0)):
        bias = keras.Variable([1.0], name="LayerNorm_bias")
        settings = OptimizerSettings("fairseq_adam", weight_decay=rate)
        settings.make([bias]).apply([ops.zeros(1)], 0.01, 0)
        assert float(bias[0]) == pytest.approx(expected, abs=1e-7)
    bias = keras.Variable([1.0], name="bias")
    settings = OptimizerSettings("fairseq_adam", weight_decay=0.0)
    # Epsilon joins the root of 0.001 * 1e-6 ** 2 before that is corrected.
    settings.make([bias]).apply([ops.full((1,), 1e-6)], 1.0, 0)
    update = 1e-7 / (0.001**0.5 * 1e-6 + 1e-6) * 0.001**0.5 / 0.1
    assert float(bias[0]) == pytest.approx(1.0 - update, rel=1e-6)


@pytest.mark.slow
def test_twenty_updates_equal_fairseq(fairseq_weights):
    with np.load(GOLDEN / "fairseq" / "train_trace.npz") as file:
        trace = dict(file)
    rows = {name: x.astype(np.int32) for name, x in masked_rows(trace).items()}
    assert rows["masked_lm_weights"].sum() == trace["sample_size"].sum()
    objective = masked_lm.MaskedLM()
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = dataclasses.replace(CONFIG, **still)
    optimizer = OptimizerSettings("fairseq_adam", adam_beta_2=0.98, clip_norm=0.0)
    run = loop.Trainer(
        distribution.make("one"),
        lambda: objective.network(config),
        objective,
        loop.LoopSettings(
            num_train_steps=20,
            num_warmup_steps=5,
            learning_rate=5e-3,
            batch_size=4,
            optimizer=optimizer,
            save_every_steps=0,
            log_every_steps=1,
        ),
    )
    for name, value in fairseq_weights.items():
        run.weights[name].assign(value)
    log = Log()
    data = tf.data.Dataset.from_tensor_slices(rows)
    run.train(lambda first, part: data, "nowhere", log)
    for name, expected in (
        ("masked_lm_loss", trace["loss_sum"] / trace["sample_size"]),
        ("learning_rate", trace["lr"]),
        ("gradient_norm", trace["gnorm"]),
    ):
        found = [row[name] for row in log.rows]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-9)
    after = of_fairseq("roberta_tiny_after_20_updates.safetensors")
    assert after.keys() == fairseq_weights.keys()
    for name, value in after.items():
        np.testing.assert_allclose(
            run.weights[name].numpy(), value, rtol=0, atol=1e-4, err_msg=name
        )


# --- there and back ------------------------------------------------------------------


@pytest.mark.parametrize("kind", HEADS)
def test_models_come_back_bit_for_bit(tmp_path, kind):
    source = GOLDEN / "hf" / kind
    convert(source, tmp_path / "ours")
    assert read_config(str(tmp_path / "ours")) == CONFIG
    head = {"head": "tagging"} if kind == "token_classification" else {}
    convert(tmp_path / "ours", tmp_path / "theirs", layout="hugging_face", **head)
    expected = load_file(source / "model.safetensors")
    found = load_file(tmp_path / "theirs" / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if kind != "multiple_choice" or name != "classifier.bias":
            assert np.array_equal(found[name], value), name
    said = json.loads((source / "config.json").read_text())
    written = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert written["architectures"] == said["architectures"]
    for name in written.keys() - {"num_labels"}:
        assert written[name] == said[name], name


def test_every_tensor_has_its_name():
    in_files = set()
    for kind in HEADS:
        for name in load_file(GOLDEN / "hf" / kind / "model.safetensors"):
            in_files.add(ADAPTERS["roberta"].of_hugging_face(name).released)
    weights = {v.path for v in masked_lm.MaskedLM().network(CONFIG).weights}
    heads = {"output_weights", "output_bias"}
    assert in_files == weights | heads | {f"cls/squad/{name}" for name in heads}
    for side in ("released", "hugging_face"):
        names = [getattr(pair, side) for pair in ADAPTERS["roberta"].pairs]
        assert len(set(names)) == len(names)


def test_a_pooler_next_to_a_classifier_is_not_read(tmp_path):
    """Classifiers that earlier versions of transformers saved have both."""
    source = tmp_path / "source"
    shutil.copytree(GOLDEN / "hf" / "sequence_classification", source)
    pooler = {"roberta.pooler.dense.weight": np.ones((32, 32), np.float32)}
    change(source, lambda tensors: tensors | pooler)
    found = hugging_face.HuggingFace(str(source / "model.safetensors")).read()
    golden = load_file(source / "model.safetensors")
    kernel = golden["classifier.dense.weight"].T
    assert np.array_equal(found["roberta/pooler/dense/kernel"], kernel)
    convert(source, tmp_path / "ours")
    assert Source.open(str(tmp_path / "ours" / "bert_model.ckpt")).read().keys() == (
        found.keys()
    )


def test_an_encoder_alone_is_read_by_its_config(tmp_path):
    """Without their prefix, its names are those of a BERT."""
    folder = masked_lm_in(tmp_path)

    def alone(tensors):
        return {
            name.removeprefix("roberta."): value
            for name, value in tensors.items()
            if name.startswith("roberta.")
        }

    change(folder, alone, architectures=["RobertaModel"])
    encoder = make_encoder(read_config(str(folder)))
    assert loaded(encoder, folder, required=encoder.required_variables).unused == []
    change(folder, model_type="bert", layer_norm_eps=1e-12)
    encoder = make_encoder(read_config(str(folder)))
    assert loaded(encoder, folder, required=encoder.required_variables).unused == []


def test_tied_weights_are_dropped_and_others_refused(tmp_path):
    folder = masked_lm_in(tmp_path)
    words = "roberta.embeddings.word_embeddings.weight"
    extra = {
        "lm_head.decoder.weight": load_file(folder / "model.safetensors")[words],
        "roberta.embeddings.position_ids": np.arange(26)[None],
    }
    change(folder, lambda tensors: tensors | extra)
    convert(folder, tmp_path / "ours")
    written = Source.open(str(tmp_path / "ours" / "bert_model.ckpt")).read()
    assert not written.keys() & extra.keys()
    change(folder, lambda t: t | {"lm_head.decoder.weight": t[words] + 1})
    with pytest.raises(UserError, match="lm_head.decoder.weight differs from the tab"):
        convert(folder, tmp_path / "again")


def test_added_positions_leave_the_unused_rows(tmp_path):
    convert(GOLDEN / "hf" / "masked_lm", tmp_path, max_position_embeddings=50)
    assert read_config(str(tmp_path)).max_position_embeddings == 50
    name = "roberta/embeddings/position_embeddings"
    found = Source.open(str(tmp_path / "bert_model.ckpt")).read()[name]
    before = hugging_face.HuggingFace(
        str(GOLDEN / "hf" / "masked_lm" / "model.safetensors")
    ).read([name])[name]
    np.testing.assert_array_equal(found[:26], before)
    np.testing.assert_array_equal(found[26:50], before[2:])
    np.testing.assert_array_equal(found[50:], before[2:4])
    with pytest.raises(UserError, match="the model already has 50"):
        convert(tmp_path, tmp_path / "out", max_position_embeddings=26)


def test_masks_are_filled_with_all_that_the_encoder_adds():
    """The row of token types is not trained, and is not zero in this model."""
    folder = GOLDEN / "hf" / "masked_lm"
    config = read_config(str(folder))
    model = whole_model.load_masked_lm(config, Source.open(str(folder)))
    with np.load(GOLDEN / "hf" / "masked_lm_outputs.npz") as file:
        golden = dict(file)
    ids, mask = golden["input_ids"], golden["attention_mask"]
    found = model(everywhere({"input_ids": ids, "input_mask": mask}))
    assert_close(found["masked_lm_logits"], golden["logits"], mask)


@pytest.mark.parametrize(("theirs", "ours"), [("relu", "relu"), ("gelu_new", "gelu")])
def test_their_masked_lm_head_has_the_exact_gelu(tmp_path, theirs, ours):
    """Whatever hidden_act is; of a model trained here, the head has hidden_act."""
    folder = masked_lm_in(tmp_path)
    change(folder, hidden_act=theirs)
    convert(folder, tmp_path / "ours")
    for source in (folder, tmp_path / "ours"):
        config = read_config(str(source))
        assert config.hidden_act == ours
        model = masked_lm.MaskedLM().network(config)
        loaded(model, source, required=model.encoder.required_variables)
        outputs = model(everywhere(golden_outputs("masked_lm")[0]))
        head = model.masked_lm
        inner = outputs["sequence_output"] @ head.dense.kernel + head.dense.bias
        inner = head.norm(inner * (1 + tf.math.erf(inner / 2**0.5)) / 2)
        expected = tf.matmul(inner, model.encoder.word_embeddings, transpose_b=True)
        assert_close(outputs["masked_lm_logits"], expected + head.output_bias)
    convert(tmp_path / "ours", tmp_path / "theirs", layout="hugging_face")
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert said["hidden_act"] == theirs and "masked_lm_act" not in said
    tensors = hugging_face.HuggingFace(str(folder / "model.safetensors")).read()
    trained = dataclasses.replace(config, masked_lm_act=None)
    with pytest.raises(UserError, match=f"masked-LM head is '{ours}'.* 'gelu_erf'"):
        hugging_face.write(str(tmp_path / "no"), tensors, trained)
    encoder = {k: v for k, v in tensors.items() if not k.startswith("cls/")}
    hugging_face.write(str(tmp_path / "encoder"), encoder, trained)


def test_byte_pairs_go_along_as_they_are(tmp_path):
    pieces = tests.GOLDEN / "byte_bpe"
    size = len(json.loads((pieces / "vocab.json").read_text()))
    config = dataclasses.replace(CONFIG, vocab_size=size)
    network = masked_lm.MaskedLM().network(config)
    tensors = {v.path: v.numpy() for v in network.weights if v.path not in POOLER}
    folder = tmp_path / "model"
    hugging_face.write(str(folder), tensors, config)
    files = {
        name: (pieces / name).read_bytes() for name in ("vocab.json", "merges.txt")
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    convert(folder, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "theirs", layout="hugging_face")
    for name, content in files.items():
        assert (tmp_path / "theirs" / name).read_bytes() == content
    said = json.loads((tmp_path / "theirs" / "tokenizer_config.json").read_text())
    assert said["tokenizer_class"] == "RobertaTokenizer"
    assert said["model_max_length"] == 24
    described = tokenizers.Tokenizer.from_file(f"{tmp_path}/theirs/tokenizer.json")
    assert described.get_vocab_size() == size
    assert said["mask_token"]["content"] == "<mask>" and said["mask_token"]["lstrip"]
    (tmp_path / "words.txt").write_text("word\n")
    with pytest.raises(UserError, match="needs the --vocab_file of a WordPiece model"):
        words = str(tmp_path / "words.txt")
        convert(folder, tmp_path / "more", add_words_file=words)
    (folder / "merges.txt").unlink()
    with pytest.raises(UserError, match="merges.txt"):
        convert(folder, tmp_path / "again")


def test_what_their_layout_lacks_is_refused(tmp_path, monkeypatch):
    folder = masked_lm_in(tmp_path)
    tensors = hugging_face.HuggingFace(str(folder / "model.safetensors")).read()
    tensors["cls/seq_relationship/output_weights"] = np.zeros((2, 32), np.float32)
    with pytest.raises(UserError, match="cls/seq_relationship/output_weights: Hugging"):
        hugging_face.write(str(tmp_path / "theirs"), tensors, CONFIG)
    others = {name: row for name, row in ADAPTERS.items() if name != "roberta"}
    monkeypatch.setattr(table, "ADAPTERS", others)
    (tmp_path / "ours.json").write_text(CONFIG.to_json_string())
    with pytest.raises(UserError, match="no names for the architecture 'roberta', onl"):
        given = {"bert_config_file": str(tmp_path / "ours.json")}
        convert(folder, tmp_path / "ours", **given)
    with pytest.raises(UserError, match="no names for the architecture 'roberta', onl"):
        hugging_face.write(str(tmp_path / "theirs"), tensors, CONFIG)


def test_the_merges_of_a_tokenizer_json_next_to_weights_count(tmp_path):
    path = str(tests.GOLDEN / "tokenization" / "uncased_vocab.txt")
    ours = TokenizerOptions().load_tokenizer(path)
    bytes_folder = tests.GOLDEN / "byte_bpe"
    pieces = TokenizerOptions().load_tokenizer(str(bytes_folder))
    (tmp_path / "tokenizer.json").write_text(pieces.hugging_face().json)
    settle.check_ids(pieces, FolderText(str(tmp_path)))
    fewer = RobertaBpe(pieces.vocabulary, pieces.merges[:-1]).hugging_face().json
    (tmp_path / "tokenizer.json").write_text(fewer)
    with pytest.raises(UserError, match="has another merges.txt than"):
        settle.check_ids(pieces, FolderText(str(tmp_path)))
    with pytest.raises(UserError, match="another kind of vocabulary"):
        settle.check_ids(ours, FolderText(str(tmp_path)))


def test_byte_level_models_need_a_byte_level_vocabulary(tmp_path):
    folder = tmp_path
    (folder / "model.safetensors").touch()
    said = json.dumps({"tokenizer_class": "RobertaTokenizer"})
    (folder / "tokenizer_config.json").write_text(said)
    Source.open(str(folder)).text.check({}, TOKENIZERS["byte_bpe"])
    with pytest.raises(UserError, match="RobertaTokenizer.*the --vocab_file next to"):
        check(folder, WordSplitter())
    said = json.dumps({"tokenizer_class": "BertTokenizer"})
    (folder / "tokenizer_config.json").write_text(said)
    with pytest.raises(UserError, match="BertTokenizer.* as RobertaTokenizer"):
        Source.open(str(folder)).text.check({}, TOKENIZERS["byte_bpe"])
