"""Exports of fewer bits: nearly the same answers from a smaller file, or no export."""

import contextlib
import dataclasses
import json
import random
import shutil

import numpy as np
import pytest

import run_classifier
import run_pretraining
from training.storage import exported
from training.storage.folder import Folder
from errors import UserError
from serving import export, quantized, speed
from serving.predictor import Predictor
from tests import graph_session, jobs, ner, tiny
from tests.serving.texts import TINY

WORDS = "the a cat dog sat ran on under mat hat red blue".split()
WIDE = dataclasses.replace(
    TINY, hidden_size=64, num_attention_heads=4, intermediate_size=256, vocab_size=600
)
FORMATS = ["onnx", "litert"]
NUM_WEIGHTS = 94_978
MEASURE = speed.measure


def run(folder, **changes):
    own = {
        "task_name": "custom",
        "data_dir": str(folder),
        "train_file": "data.jsonl",
        "dev_file": "data.jsonl",
        "max_seq_length": 16,
        "num_train_epochs": [12.0],
        "learning_rate": [3e-3],
    }
    jobs.run(run_classifier, jobs.flags(folder, **own | changes))


def texts():
    rng = random.Random(1)
    return [" ".join(rng.choices(WORDS, k=rng.randint(2, 9))) for _ in range(120)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model that tells texts of cats from others; only to be read."""
    folder = tmp_path_factory.mktemp("trained")
    tiny.write(folder, WORDS, WIDE)
    rows = [{"text": text, "label": str("cat" in text.split())} for text in texts()]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "data.jsonl").write_text(lines)
    run(folder, do_train=True)
    return folder


@pytest.fixture
def folder(trained, tmp_path, monkeypatch):
    """The model again, to be exported; nothing is timed."""
    monkeypatch.setattr(speed, "measure", lambda forms, rows: dict.fromkeys(forms, 1))
    return shutil.copytree(trained, tmp_path / "trained")


@pytest.fixture(scope="module")
def float32(trained, tmp_path_factory):
    """Its export, which other files check; only to be read."""
    folder = shutil.copytree(trained, tmp_path_factory.mktemp("float32") / "trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_check", lambda product, directory: None)
        run(folder, do_export=True)
    return folder / "output" / "export"


def probabilities(predictor):
    answers = predictor.predict([{"text": text} for text in texts()])
    return np.array([list(answer["probabilities"].values()) for answer in answers])


@pytest.fixture(scope="module")
def expected(float32):
    return probabilities(Predictor(str(float32)))


# Of a file, which has a graph besides the weights.
MOST_BYTES = {"bfloat16": 0.6, "float16": 0.7, "int8": 0.5}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "precision, formats",
    [
        ("bfloat16", []),
        ("float16", FORMATS),
        ("int8", FORMATS),
    ],
)
def test_fewer_bits_answer_nearly_the_same(
    folder, expected, every_export_is_checked, precision, formats
):
    given = {"export_precision": precision, "export_formats": formats}
    explains = precision == "float16"
    run(folder, do_export=True, export_attributions=explains, **given)
    directory = folder / "output" / "export"
    predictor = Predictor(str(directory))
    assert 0 < np.abs(probabilities(predictor) - expected).max() < 0.05
    report = json.loads((directory / "precision.json").read_text())
    assert (report["set"], report["examples"]) == ("dev", 120)
    assert list(report["forms"]) == ["saved_model", *formats]
    for name, values in report["forms"].items():
        assert values["agreement"] >= 0.99
        assert values["largest_change_of_a_probability"] < 0.05
        assert values["accuracy_of_float32"] > 0.95
        assert values["times_as_fast"] == 1
        if name != "saved_model":  # its graph is larger than this network
            assert values["share_of_bytes"] < MOST_BYTES[precision]
    weights = directory / "tensors" / "1" / "variables"
    weights /= "variables.data-00000-of-00001"
    assert weights.stat().st_size < MOST_BYTES[precision] * 4 * NUM_WEIGHTS
    with pytest.raises(UserError, match=f"its weights are {precision}, and only"):
        exported.unpack(str(directory), Folder.open(str(folder / "unpacked")))

    # A server unpacks the weights when it loads the model.
    session = graph_session.GraphSession(str(directory / "text" / "1"))
    with contextlib.closing(session):
        asked = {"text": np.array(texts(), object)}
        found = session.run("serving_default", asked)["probabilities"]
    np.testing.assert_allclose(found, probabilities(predictor), atol=1e-3)

    if explains:
        [found] = predictor.explain([{"text": "a cat"}], 1)
        total = sum(word["contribution"] for word in found["words"])
        difference = found["logit"] - found["baseline_logit"]
        assert abs(difference) > 0.1 and total == pytest.approx(difference, rel=0.01)


@pytest.mark.exhaustive
def test_a_form_is_timed_in_a_process_of_its_own(float32):
    model = str(float32 / "tensors" / "1")
    ids = np.array([[2, 7, 9, 3, *[0] * 12]], np.int32)
    row = {"input_ids": ids, "input_mask": np.sign(ids), "segment_ids": ids * 0}
    [(name, ratio)] = MEASURE({"saved_model": (model, model)}, row).items()
    assert name == "saved_model" and 0.1 < ratio < 10


def test_answers_that_differ_are_not_exported(folder, monkeypatch):
    monkeypatch.setattr(quantized, "_MOST", 0.3)  # so that all weights become 0
    with pytest.raises(UserError, match="less than --min_agreement=0.99"):
        run(folder, do_export=True, export_precision="int8")
    assert not list((folder / "output").glob("*export*"))


def test_labels_that_only_the_training_set_tells_are_exported_in_fewer_bits(folder):
    shutil.rmtree(folder / "output")  # it notes the labels
    run(folder, do_train=True, do_export=True, export_precision="int8")
    report = json.loads((folder / "output" / "export" / "precision.json").read_text())
    assert (report["set"], report["examples"]) == ("dev", 120)


def test_tags_that_only_the_training_set_tells_are_exported_in_fewer_bits(
    tmp_path, monkeypatch, untraced
):
    monkeypatch.setattr(speed, "measure", lambda forms, rows: dict.fromkeys(forms, 1))
    ner.write_files(tmp_path)
    given = {"export_precision": "int8", "min_agreement": 0.5}
    ner.run(tmp_path, do_train=True, do_export=True, **given)
    report = json.loads((tmp_path / "output" / "export" / "precision.json").read_text())
    assert (report["set"], report["examples"]) == ("dev", 20)


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"export_precision": "bfloat16", "export_formats": FORMATS},
            "onnx does not have it, only float32, float16, int8",
        ),
        ({"min_agreement": 0.9}, "--min_agreement has no effect"),
        (
            {"do_train": True, "dev_file": "gone.jsonl", "export_precision": "float16"},
            r"--export_precision=float16: the export is compared with float32 on the set "
            r"dev, but .*gone\.jsonl: No such file or directory; add this set, or leave",
        ),
    ],
)
def test_what_has_no_effect_or_is_missing_is_refused(folder, changes, message):
    with pytest.raises(UserError, match=message):
        run(folder, do_export=True, **changes)


@pytest.mark.parametrize(
    "flag", [{"export_precision": "int8"}, {"export_formats": ["onnx"]}]
)
@pytest.mark.parametrize("script", [run_classifier, run_pretraining])
def test_a_kind_of_export_is_refused_where_nothing_is_exported(script, flag):
    given = {"do_eval": True, "output_dir": "output", **flag}
    if script is run_classifier:
        given |= {"task_name": "custom", "data_dir": "data"}
    else:
        given |= {"input_file": ["records"]}
    [name] = flag
    message = f"--{name} has no effect without --do_export; add it, or remove --{name}"
    with pytest.raises(UserError, match=message):
        script.Options(**given)
