"""Exports of pre-trained encoders: masks and vectors of raw text, or none."""

import json
import random

import h5py
import numpy as np
import pytest

import extract_features
import run_pretraining
from training.backend import tf
from training.pretraining import exports
from training.queries import mask_filling
from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import Source
from errors import UserError
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs
from serving import speed
from serving.predictor import Predictor
from tests.serving.texts import GOLDEN, TINY, real_texts, write_words
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPiece


@pytest.fixture
def folder(tmp_path):
    write_words(tmp_path)
    return tmp_path


@pytest.mark.exhaustive
def test_vectors_are_checked_too(folder, every_export_is_checked, monkeypatch):
    weights = {v.path: v.numpy() for v in sentence_pairs.PretrainingModel(TINY).weights}
    wrong = {"mean": np.full((5, TINY.hidden_size), 7, np.float32)}
    monkeypatch.setattr(exports.MasksExport, "_vectors", lambda self: wrong)
    with pytest.raises(UserError, match="once loaded, it returns different mean, up"):
        run_pretraining.main(
            run_pretraining.Options(
                do_export=True,
                output_dir=str(folder / "output"),
                max_seq_length=32,
                vocab_file=str(folder / "vocab.txt"),
                bert_config_file=str(folder / "config.json"),
                init_checkpoint=checkpoint.save(
                    Folder.open(str(folder)), 1, weights, keep=1
                ),
            )
        )
    assert not (folder / "output" / "export").exists()


def extracted(folder, pooling, **files):
    """What extract_features.py makes of texts.txt."""
    path = folder / f"{pooling}.h5"
    extract_features.main(
        extract_features.Options(
            input_file=str(folder / "texts.txt"),
            output_file=str(path),
            output_format="hdf5",
            pooling=pooling,
            max_seq_length=64,
            batch_size=200,  # one shape to compile for
            **files,
        )
    )
    with h5py.File(path) as file:
        return file["layer_-1"][:]


def best_chances(model, texts):
    """The probability of each token among the best of each mask."""
    answers = model.predict([{"text": text} for text in texts])
    return [
        {each["token"]: each["probability"] for each in mask}
        for answer in answers
        for mask in answer["masks"]
    ]


def export_masks(output_dir, **changes):
    """Exports the released checkpoint to fill masks; nothing is timed."""
    golden = GOLDEN / "checkpoint"
    flags = run_pretraining.Options(
        vocab_file=str(golden / "vocab.txt"),
        bert_config_file=str(golden / "bert_config.json"),
        init_checkpoint=str(golden / "bert_model.ckpt"),
        output_dir=str(output_dir),
        max_seq_length=32,
        max_predictions_per_seq=3,
        do_export=True,
        **changes,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "measure", lambda forms, rows: dict.fromkeys(forms, 1))
        run_pretraining.main(flags)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    export_masks(folder)
    return folder


@pytest.mark.exhaustive
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_masks_in_fewer_bits_and_other_formats(whole, tmp_path, precision):
    small = tmp_path / "small"
    export_masks(small, export_precision=precision, export_formats=["onnx", "litert"])
    if precision == "int8":
        report = json.loads((small / "export" / "precision.json").read_text())
        assert list(report["forms"]) == ["saved_model", "onnx", "litert"]
        assert all(form["share_of_bytes"] < 0.8 for form in report["forms"].values())
    most = 1e-4 if precision == "float32" else 0.05
    texts = ["", "none", "[MASK]", "a [MASK] of [MASK]", "[MASK] " * 3 + "a " * 40]
    expected = best_chances(Predictor(str(whole)), texts)
    for file in ("text/1", "model.onnx", "model.tflite"):
        model = Predictor(str(small / "export" / file))
        found = best_chances(model, texts)
        assert [len(mask) for mask in found] == [5] * 6
        for mask, other in zip(found, expected, strict=True):
            same = mask.keys() & other.keys()
            assert same and all(abs(mask[k] - other[k]) <= most for k in same)
        if file == "model.tflite":
            with pytest.raises(UserError, match="needs 4 masked_lm_positions, but the"):
                model.predict([{"text": "[MASK]" * 4}])


@pytest.mark.exhaustive
def test_masks_and_vectors_of_raw_text(tmp_path, request):
    """Of many texts: the tokens of fill_mask.py, the vectors of extract_features.py."""
    golden = GOLDEN / "checkpoint"
    files = {
        "vocab_file": str(golden / "vocab.txt"),
        "bert_config_file": str(golden / "bert_config.json"),
        "init_checkpoint": str(golden / "bert_model.ckpt"),
    }
    run_pretraining.main(
        run_pretraining.Options(
            do_export=True, output_dir=str(tmp_path), max_seq_length=64, **files
        )
    )
    # Once megabytes.
    everything = request.config.getoption("everything")
    number, size = (200, 1 << 19) if everything else (60, 1 << 14)
    texts = [text.replace("\n", " ") for text in real_texts(number)]
    rng = random.Random(2)
    masked = [f"[MASK] {text[:40]}[MASK]{rng.choice(texts)[:20]}" for text in texts]
    predictor = Predictor(str(tmp_path))
    found = predictor.predict([{"text": text} for text in masked])
    tokenizer = WordPiece(Vocabulary.load(files["vocab_file"]))
    config = BertConfig.from_json_file(files["bert_config_file"])
    model = sentence_pairs.PretrainingModel(config)
    weights = {v.path: v for v in model.weights}
    Source.open(files["init_checkpoint"]).load(weights, required="")
    shape = tf.TensorSpec([None, None], tf.int32)
    names = ("input_ids", "segment_ids", "masked_lm_positions")
    batch = dict.fromkeys(names, shape)
    model = tf.function(model.call, input_signature=[batch])
    for text, answer in zip(masked, found, strict=True):
        row = mask_filling.encode(tokenizer, text, config, "text")
        expected = mask_filling.probabilities(model, *row)
        assert len(answer["masks"]) == text.count("[MASK]")
        for row, mask in zip(expected, answer["masks"], strict=True):
            best = np.argsort(-row, kind="stable")[:5]
            assert [tokenizer.vocabulary.ids[each["token"]] for each in mask] == list(
                best
            )
            chances = [each["probability"] for each in mask]
            np.testing.assert_allclose(chances, row[best], rtol=0, atol=1e-5)

    signatures = predictor._loaded.signatures
    odd = [b"", b"\xff[MASK]\xfe", b"a " * size, b"[MASK]" * 1000, b"\x00"]
    for texts_, masks in (([], 0), ([b""], 0), (odd, 62)):
        given = tf.constant(texts_, tf.string)
        filled = signatures["serving_default"](text=given)
        for answers in (filled, signatures["vectors"](text=given)):
            for name, values in answers.items():
                assert len(values) == len(texts_), name
        assert filled["tokens"].shape == (len(texts_), masks, 5)

    (tmp_path / "texts.txt").write_text("\n".join(texts))
    vectors = signatures["vectors"](text=tf.constant(texts))
    for pooling in ("mean", "cls"):
        values = extracted(tmp_path, pooling, **files)
        np.testing.assert_allclose(vectors[pooling], values, rtol=0, atol=1e-5)
