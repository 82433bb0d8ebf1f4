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
from training.storage.source import Source
from errors import UserError
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs
from serving import export, speed
from serving.predictor import Predictor
from tests.serving.texts import GOLDEN, real_texts
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPiece

FORMATS = ["onnx", "litert"]
GOLDEN_FILES = {
    "vocab_file": str(GOLDEN / "checkpoint" / "vocab.txt"),
    "bert_config_file": str(GOLDEN / "checkpoint" / "bert_config.json"),
    "init_checkpoint": str(GOLDEN / "checkpoint" / "bert_model.ckpt"),
}


def extracted(folder, pooling):
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
            **GOLDEN_FILES,
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
    flags = run_pretraining.Options(
        **GOLDEN_FILES,
        output_dir=str(output_dir),
        max_seq_length=64,
        max_predictions_per_seq=3,
        do_export=True,
        **changes,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "measure", lambda forms, rows: dict.fromkeys(forms, 1))
        run_pretraining.main(flags)


@pytest.fixture(scope="module")
def whole(request, tmp_path_factory):
    """A folder with an export; in every format and checked, where everything is tested.

    Also the answers of the process that checked it.
    """
    folder, answers, formats = tmp_path_factory.mktemp("whole"), {}, []
    reload = export._reload
    if request.config.getoption("everything"):
        request.getfixturevalue("every_export_is_checked")
        formats = FORMATS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            export, "_reload", lambda *given: answers.update(reload(*given)) or answers
        )
        export_masks(folder, export_formats=formats)
    return folder, answers


@pytest.fixture(scope="module")
def predictor(whole):
    return Predictor(str(whole[0]))


@pytest.mark.exhaustive
def test_vectors_are_checked_too(whole, tmp_path, monkeypatch):
    """Where all else is answered as expected."""
    wrong = {"mean": np.full((5, 64), 7, np.float32)}
    monkeypatch.setattr(exports.MasksExport, "_vectors", lambda self: wrong)
    monkeypatch.setattr(export, "_write", lambda product, directory: None)
    monkeypatch.setattr(export, "_write_warm_up", lambda product, directory: None)
    monkeypatch.setattr(export, "_reload", lambda *given: whole[1])
    with pytest.raises(UserError, match="once loaded, it returns different mean, up"):
        export_masks(tmp_path)
    assert not (tmp_path / "export").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_masks_in_fewer_bits_and_other_formats(
    whole, predictor, tmp_path, monkeypatch, precision
):
    output, most, files = whole[0], 1e-4, ["model.onnx", "model.tflite"]
    if precision == "int8":
        output, most, files = tmp_path, 0.05, ["text/1", *files]
        # test_small_exports.py has int8 checked by another process.
        monkeypatch.setattr(export, "_check", lambda product, directory: None)
        export_masks(output, export_precision=precision, export_formats=FORMATS)
        report = json.loads((output / "export" / "precision.json").read_text())
        assert list(report["forms"]) == ["saved_model", *FORMATS]
        assert all(form["share_of_bytes"] < 0.8 for form in report["forms"].values())
    texts = ["", "none", "[MASK]", "a [MASK] of [MASK]", "[MASK] " * 3 + "a " * 80]
    expected = best_chances(predictor, texts)
    for file in files:
        model = Predictor(str(output / "export" / file))
        found = best_chances(model, texts)
        assert [len(mask) for mask in found] == [5] * 6
        for mask, other in zip(found, expected, strict=True):
            same = mask.keys() & other.keys()
            assert same and all(abs(mask[k] - other[k]) <= most for k in same)
        if file == "model.tflite":
            with pytest.raises(UserError, match="needs 4 masked_lm_positions, but the"):
                model.predict([{"text": "[MASK]" * 4}])


def test_masks_and_vectors_of_raw_text(predictor, tmp_path, request):
    """Of many texts: the tokens of fill_mask.py, the vectors of extract_features.py."""
    # Once megabytes.
    everything = request.config.getoption("everything")
    number, size = (200, 1 << 19) if everything else (60, 1 << 14)
    texts = [text.replace("\n", " ") for text in real_texts(number)]
    rng = random.Random(2)
    masked = [f"[MASK] {text[:40]}[MASK]{rng.choice(texts)[:20]}" for text in texts]
    found = predictor.predict([{"text": text} for text in masked])
    tokenizer = WordPiece(Vocabulary.load(GOLDEN_FILES["vocab_file"]))
    config = BertConfig.from_json_file(GOLDEN_FILES["bert_config_file"])
    model = sentence_pairs.PretrainingModel(config)
    weights = {v.path: v for v in model.weights}
    Source.open(GOLDEN_FILES["init_checkpoint"]).load(weights, required="")
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
        values = extracted(tmp_path, pooling)
        np.testing.assert_allclose(vectors[pooling], values, rtol=0, atol=1e-5)
