"""--calibrate and --label_thresholds: in results, answers and exports alike."""

import shutil

import numpy as np
import pytest

import bert
from training import metrics
from errors import UserError
from predict import InputTable
from serving import drift
from serving.predictor import Predictor
from tests import classifier, jobs, tiny


@pytest.fixture
def folder(tmp_path):
    tiny.write(tmp_path, classifier.WORDS, classifier.TINY)
    return tmp_path


@pytest.mark.exhaustive
def test_a_temperature_is_in_results_answers_and_the_export(folder, untraced):
    files = classifier.custom(folder, "tsv", ["x", "y", "z", "x"])
    flags = {"do_predict": True, "do_eval": True, **files}
    classifier.run(folder, "custom", do_train=True, **flags)
    plain, before = jobs.predictions(folder), jobs.results(folder)
    classifier.run(folder, "custom", **flags, calibrate=True, do_export=True)
    known, results = jobs.predictions(folder), jobs.results(folder)
    temperature = results["eval_temperature"]
    assert temperature != 1.0
    for name, value in before.items():
        assert results[name] == value, name
    for one, other in zip(plain, known, strict=True):
        assert one["predicted"] == other["predicted"]
        odds = np.log(list(one["probabilities"].values())) / temperature
        expected = metrics.softmax(odds)
        assert list(other["probabilities"].values()) == pytest.approx(expected)
    description = jobs.check_export(folder)
    assert description["temperature"] == temperature
    # What was counted in the dev set is what the export says of its texts.
    predictor, counts = Predictor(str(folder / "output")), drift.DriftCounts()
    tokenizer = drift.tokenizer_of(predictor, predictor.vocabulary)
    table = InputTable(str(folder / "dev.tsv"), "tsv", predictor)
    requests = [table.request(row) for _, row in table.rows()]
    for request, answer in zip(requests, predictor.predict(requests), strict=True):
        counts.add("label", tokenizer, request, answer)
    assert counts.rows and description[drift.DEV_SET] == counts.description
    # A later export takes what was fitted, without the dev set.
    shutil.rmtree(folder / "output" / "export")
    (folder / "dev.tsv").unlink()
    classifier.run(folder, "custom", **files, calibrate=True, do_export=True)
    jobs.check_export(folder)
    lines = (folder / "output" / "eval_results.txt").read_text()
    assert "eval_ece = " in lines and "eval_ece_calibrated = " in lines


@pytest.mark.exhaustive
def test_labels_have_thresholds_of_their_own(folder, untraced):
    files = classifier.custom(folder, "tsv", ["x", "x,y", "", "x,z"])
    flags = files | {"label_kind": "several", "do_eval": True, "do_predict": True}
    flags |= {"label_thresholds": True, "do_train": True}
    classifier.run(folder, "custom", **flags, calibrate=True, do_export=True)
    results, known = jobs.results(folder), jobs.predictions(folder)
    thresholds = {name: results[f"eval_threshold_{name}"] for name in "xyz"}
    assert thresholds != dict.fromkeys("xyz", 0.5)
    for answer in known:
        odds = answer["probabilities"]
        expected = [name for name in "xyz" if odds[name] > thresholds[name]]
        assert answer["predicted"] == expected
    description = jobs.check_export(folder)
    assert description["thresholds"] == list(thresholds.values())
    # Python answers alike, from the checkpoint, with what was fitted to the dev set.
    shutil.rmtree(folder / "output" / "export")
    (folder / "dev.tsv").unlink()
    task = bert.load_task(str(folder / "output"))
    for answer, other in zip(
        task.predict([e["text"] for e in known]), known, strict=True
    ):
        assert answer["predicted"] == other["predicted"]
        assert answer["probabilities"] == pytest.approx(
            other["probabilities"], abs=1e-5
        )
    (folder / "output" / "eval_results.json").unlink()
    with pytest.raises(UserError, match="has no eval_temperature; pass --do_eval"):
        bert.load_task(str(folder / "output"))
    with pytest.raises(UserError, match="label_thresholds was True and is now False"):
        changes = {"label_thresholds": False, "do_eval": False}
        classifier.run(folder, "custom", **flags | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"calibrate": True, "do_eval": False},
            "--calibrate has no effect without --do_eval",
        ),
        (
            {"calibrate": True, "do_eval": True, "label_kind": "number"},
            "--calibrate: this task predicts a number",
        ),
        (
            {"label_thresholds": True, "do_eval": True},
            "no effect with --label_kind=single; it is for --label_kind=several",
        ),
    ],
)
def test_what_has_no_probabilities_is_refused(folder, changes, message):
    with pytest.raises(UserError, match=message):
        classifier.options(folder, "custom", do_train=True, **changes)
