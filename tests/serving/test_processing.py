"""model.onnx and model.tflite answer texts as the SavedModel does, whatever their form."""

import functools
import json
import random
import sys

import pytest

import predict
from errors import UserError
from serving import export, runtimes
from serving.predictor import Predictor
from tests import jobs, ner, squad, swag, vectors

pytestmark = pytest.mark.exhaustive  # an export of each form in three formats

FILES = ("model.onnx", "model.tflite")
CASES = {"span": squad, "tags": ner, "choice": swag, "vector": vectors}


def request(form, rng):
    """Of any length, none included."""
    words = {"span": squad.WORDS, "tags": ["Pa", "La", "b", "x", ".", ""]}
    words = words.get(form, "abcdefghxyz")
    text = " ".join(rng.choices(words, k=rng.choice([0, 1, 3, 9, 60])))
    if form == "span":
        return {"question": "what shines?", "context": text}
    if form == "tags":
        return {"words": text.split(" ") if text else []}
    if form == "choice":
        choices = rng.sample("abcdefgh", rng.choice([1, 2, 5]))  # no ties
        return {"context": text, "choices": choices}
    return {"text": text}


def assert_same(answers, expected):
    """The same, numbers to 1e-4."""
    if isinstance(expected, dict):
        assert answers.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(answers[name], value)
    elif isinstance(expected, list):
        assert len(answers) == len(expected)
        for pair in zip(answers, expected, strict=True):
            assert_same(*pair)
    else:
        is_number = isinstance(expected, float)
        assert answers == (pytest.approx(expected, abs=1e-4) if is_number else expected)


@pytest.fixture(scope="module", params=CASES)
def exported(request, tmp_path_factory):
    """A form, the export of a model that was trained a little, and what loads its files.

    It is not loaded in another process, which test_export.py and others look at.
    """
    module, folder = CASES[request.param], tmp_path_factory.mktemp(request.param)
    module.write_files(folder)
    formats = ["onnx", "litert"]
    with pytest.MonkeyPatch.context() as patch, jobs.untraced():
        patch.setattr(export, "_check", lambda product, directory: None)
        module.run(folder, do_train=True, do_export=True, export_formats=formats)
    return request.param, folder / "output" / "export", functools.cache(Predictor)


@pytest.mark.parametrize("file", FILES)
def test_a_network_in_a_file_answers_as_the_saved_model(exported, file):
    form, folder, load = exported
    rng = random.Random(5)
    requests = [request(form, rng) for _ in range(60)]
    expected = load(str(folder)).predict(requests)
    model = load(str(folder / file))
    assert_same(model.predict(requests, batch_size=7), expected)
    assert len({json.dumps(answer) for answer in expected}) > 3
    assert model.predict([]) == []


def test_what_a_network_is_asked_at_once_is_bounded(exported, monkeypatch):
    form, folder, load = exported
    shown, call = [], runtimes._Onnx.__call__

    def note(run, batch):
        shown.append(batch["input_ids"].size)
        return call(run, batch)

    monkeypatch.setattr(runtimes._Onnx, "__call__", note)
    rng = random.Random(1)
    requests = [request(form, rng) for _ in range(600)]
    load(str(folder / "model.onnx")).predict(requests, batch_size=600)
    assert max(shown) <= 8192 < sum(shown)


def test_a_file_of_rows_is_answered_by_it(exported, tmp_path, monkeypatch, capsys):
    form, folder, load = exported
    rng = random.Random(2)
    rows = [request(form, rng) for _ in range(9)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(predict, "Predictor", lambda file, explains: load(file))
    file = str(folder / "model.onnx")
    predict.main(predict.Options(model_dir=file, input_file=str(path)))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    answers = load(str(folder)).predict(rows)
    assert_same(lines, [{**row, **a} for row, a in zip(rows, answers, strict=True)])


@pytest.mark.parametrize("file", FILES)
def test_what_runs_it_is_missing(exported, monkeypatch, file):
    module = {"model.onnx": "onnxruntime", "model.tflite": "ai_edge_litert"}[file]
    monkeypatch.setitem(sys.modules, module, None)
    package = module.replace("_", "-")
    with pytest.raises(UserError, match=f"{file}: needs the package {package}, which"):
        Predictor(str(exported[1] / file))


def test_it_has_no_gradients_to_explain_answers_by(exported):
    with pytest.raises(UserError, match="model.onnx: has no gradients to explain"):
        Predictor(str(exported[1] / "model.onnx"), explains=True)
