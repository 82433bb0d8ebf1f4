"""serving/predictor.py: an export as a function, every form of answer, every refusal."""

import functools
import json
import os
import pathlib
import shutil
import sys

import numpy as np
import pytest

from errors import UserError
from serving import checksums, forms
from serving.predictor import Predictor
from tests import exports, jobs


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The folder of a form's export."""
    return exports.maker(tmp_path_factory)


@pytest.fixture(scope="module")
def predictor(exported):
    return functools.cache(lambda form: Predictor(exported(form)))


@pytest.fixture
def copied(exported, tmp_path):
    """An export to spoil."""
    return shutil.copytree(exported("label"), tmp_path / "copy")


# Requests of one batch, so that lists of several lengths are padded, and their answers.
ANSWERS = {
    "number": [({"text_a": "four"}, {"predicted": 4.0})],
    "label": [
        (
            {"text_a": "a good day"},
            {
                "predicted": "positive",
                "probabilities": {"negative": 0.1, "positive": 0.9},
            },
        ),
        (
            {"text_a": ""},
            {
                "predicted": "negative",
                "probabilities": {"negative": 0.8, "positive": 0.2},
            },
        ),
    ],
    "labels": [
        (
            {"text_a": "money in sport"},
            {
                "predicted": ["sport", "money"],
                "probabilities": {"sport": 0.75, "money": 0.75},
            },
        ),
        (
            {"text_a": "weather"},
            {"predicted": [], "probabilities": {"sport": 0.25, "money": 0.25}},
        ),
    ],
    "choice": [
        (
            {"context": "c", "endings": ["a", "bbb"]},
            {"predicted": 1, "probabilities": [0.25, 0.75]},
        ),
        (
            {"context": "", "endings": ["aa", "b", "b"]},
            {"predicted": 0, "probabilities": [0.5, 0.25, 0.25]},
        ),
    ],
    "span": [
        (
            {"question": "Zoë", "context": "𝔄 cat and Zoë."},
            {
                "answer": "Zoë",
                "start": 10,
                "end": 13,
                "probability": 0.8,
                "score": 11.5,
                "null_odds": -3.0,
            },
        ),
        (
            {"question": "dog", "context": ""},
            {
                "answer": "",
                "start": 0,
                "end": 0,
                "probability": 0.3,
                "score": 2.0,
                "null_odds": 4.0,
            },
        ),
    ],
    "tags": [
        (
            {"words": ["Ada", "", "met", "Bob"]},
            {
                "tags": ["B-PER", "", "O", "B-PER"],
                "probabilities": [0.9, 0.0, 0.6, 0.9],
                "entities": [
                    {"text": "Ada", "type": "PER", "start": 0, "stop": 1},
                    {"text": "Bob", "type": "PER", "start": 3, "stop": 4},
                ],
            },
        ),
        ({"words": ["met"]}, {"tags": ["O"], "probabilities": [0.6], "entities": []}),
        ({"words": []}, {"tags": [], "probabilities": [], "entities": []}),
    ],
    "word_tags": [
        (
            {"words": ["Ada", "", "met"]},
            {"tags": ["PROPN", "", "NOUN"], "probabilities": [0.9, 0.0, 0.6]},
        ),
        ({"words": []}, {"tags": [], "probabilities": []}),
    ],
    "masks": [
        (
            {"text": "[MASK] and [MASK]"},
            {
                "masks": [
                    [
                        {"token": "Paris", "probability": 0.6},
                        {"token": "Rome", "probability": 0.3},
                    ]
                ]
                * 2
            },
        ),
        ({"text": "none"}, {"masks": []}),
    ],
    "next": [({"text": "from"}, {"tokens": [{"token": "Paris", "probability": 0.6}]})],
    "replaced": [
        (
            {"text": "東京 is Rome"},
            {
                "tokens": [
                    {"text": "東京", "start": 0, "end": 2, "probability": 0.1},
                    {"text": "is", "start": 3, "end": 5, "probability": 0.1},
                    {"text": "Rome", "start": 6, "end": 10, "probability": 0.9},
                ]
            },
        ),
        ({"text": ""}, {"tokens": []}),
    ],
    "text": [
        ({"text_a": "so\nbe it"}, {"predicted": "SO\nBE IT"}),
        ({"text_a": "nothing"}, {"predicted": ""}),
    ],
    "rating": [({"text_a": "abba", "text_b": "bb xx"}, {"predicted": 2.0})],
}


@pytest.mark.parametrize("form", sorted({*exports.FORMS} - {"vector", "prompted"}))
def test_every_form_of_answer(predictor, form):
    requests, wanted = zip(*ANSWERS[form], strict=True)
    answers = predictor(form).predict(list(requests))
    assert answers == list(wanted)
    assert json.loads(json.dumps(answers, allow_nan=False)) == answers
    assert all(
        answer.keys() == set(forms.FORMS[exports.ANSWERS.get(form, form)].names)
        for answer in answers
    )


def test_model_that_may_not_decline_has_no_null_odds():
    """Only models of SQuAD 2.0 give them."""
    outputs = {
        "answer": np.array([b"a"], object),
        "start": np.array([0], np.int32),
        "end": np.array([1], np.int32),
        "probability": np.array([0.5], np.float32),
        "score": np.array([2.0], np.float32),
    }
    (answer,) = forms.answers("span", outputs, [{"question": "", "context": "a"}])
    assert list(answer) == ["answer", "start", "end", "probability", "score"]


def test_texts_of_like_length_share_a_batch_and_answers_keep_their_order(predictor):
    """The model of this form answers with the longest text of the batch."""
    sizes = [9, 1, 300, 2, 8, 299]
    requests = [{"text_a": "é" * size} for size in sizes]
    answers = predictor("number").predict(requests, batch_size=2)
    assert [a["predicted"] for a in answers] == [9, 2, 300, 2, 9, 300]


def test_no_request_no_answer(predictor):
    assert predictor("label").predict([]) == []


def test_every_folder_that_a_user_may_mean(exported, tmp_path):
    export = exported("label")
    (tmp_path / "run").mkdir()
    os.symlink(export, tmp_path / "run" / "export")
    folders = [export, f"{export}/", str(tmp_path / "run"), f"{export}/text/1"]
    for folder in folders:
        predictor = Predictor(folder)
        run = folder.endswith("run")
        assert predictor.title == ("run" if run else os.path.basename(export))
        (answer,) = predictor.predict([{"text_a": "good"}])
        assert answer["predicted"] == "positive"
        assert predictor.description["max_seq_length"] == 128
        assert predictor.names == ["predicted", "probabilities"]


def test_start_loads_no_code_of_the_model(exported):
    """The graph holds all, and starting is quick."""
    program = (
        "import sys; from training import backend; "
        "from serving.predictor import Predictor; "
        "print(Predictor(sys.argv[1]).predict([{'text_a': 'good'}])[0]['predicted'], "
        "'modeling' in sys.modules)"
    )
    result = jobs.finished([sys.executable, "-c", program, exported("label")])
    assert result.stdout.split() == ["positive", "False"], result.stderr
    assert result.stderr == ""


BAD_REQUESTS = [
    (
        "label",
        {},
        "request 2: has no text_a; expected an object with text_a (a string)",
    ),
    (
        "span",
        {"context": "a"},
        "has no question; expected an object with question (a string) ",
    ),
    ("span", {}, "has no question and no context"),
    ("label", {"text_a": "a", "b": ""}, "has 'b', which the model does not take"),
    ("label", {"text_a": None}, "text_a is null, not a string"),
    ("label", {"text_a": 3}, "text_a is a number, not a string"),
    ("label", {"text_a": ["a"]}, "text_a is a list, not a string"),
    ("label", "a", "is a string; expected an object with text_a"),
    ("label", [], "is a list; expected"),
    ("label", {"text_a": "a\ud83d"}, "text_a contains \\ud83d, half a character"),
    ("tags", {"words": "a b"}, "words is a string, not a list of strings"),
    ("tags", {"words": ["a", True]}, "words contains true or false, not a string"),
    ("tags", {"words": ["a", "\udc00"]}, "words contains \\udc00, half a character"),
    ("choice", {"context": "a", "endings": []}, "endings is empty: nothing to choose"),
]


@pytest.mark.parametrize(("form", "request_", "message"), BAD_REQUESTS)
def test_bad_requests(predictor, form, request_, message):
    good = ANSWERS[form][0][0]
    with pytest.raises(UserError) as error:
        predictor(form).predict([good, request_])
    assert message in str(error.value)


def spoil_form(copy):
    (copy / "export.json").write_text('{"form": "poem", "inputs": {"a": "text"}}')


def spoil_json(copy):
    (copy / "export.json").write_text('{"form": ')


def remove_model(copy):
    shutil.rmtree(copy / "text")


def damage_model(copy):
    (copy / "text" / "1" / "saved_model.pb").write_bytes(b"nonsense")


def other_inputs(copy):
    exports.describe(copy, {"form": "label", "inputs": {"question": "text"}})


def leave_out(*names):
    """Without keys that every export has; nothing else is changed."""

    def spoil(copy):
        known = json.loads((copy / "export.json").read_text())
        known = checksums.seal({k: v for k, v in known.items() if k not in names})
        known = {k: v for k, v in known.items() if k not in names}
        (copy / "export.json").write_text(json.dumps(known))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_form, "does not describe a known kind of export (form 'poem'"),
        (spoil_json, "export.json:1: not JSON"),
        (remove_model, "not a SavedModel that this TensorFlow"),
        (damage_model, "not a SavedModel that this TensorFlow"),
        (other_inputs, "takes text_a, but"),
        (
            leave_out("checksum"),
            "export.json: does not describe a known kind of export",
        ),
        (
            leave_out("checksums"),
            "(it is damaged or was changed); export the model again",
        ),
        (leave_out("checksum", "checksums"), "(it is damaged or was changed)"),
        (lambda x: (x / "export.json").unlink(), "contains no exported model (export"),
        (shutil.rmtree, "there is no such file or folder; use the --output_dir of a"),
    ],
)
def test_what_is_no_whole_export(copied, spoil, message):
    spoil(copied)
    with pytest.raises(UserError) as error:
        Predictor(str(copied))
    assert message in str(error.value)
    assert str(copied) in str(error.value)


@pytest.fixture
def sealed(copied):
    """An export that is described as `serving/export.py` does."""
    content = json.loads((copied / "export.json").read_text())
    (copied / "text" / "1" / "assets" / "vocab.txt").write_text("some\nwords\n")
    files = [x for x in copied.glob("text/**/*") if x.is_file()]
    names = [str(file.relative_to(copied)) for file in files]
    exports.describe(copied, content, names)
    return copied


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def make_folder(path):
    path.unlink()
    path.mkdir()


DAMAGES = {
    "text/1/saved_model.pb": (flip, "is damaged or was changed"),
    "text/1/variables/variables.index": (flip, "is damaged or was changed"),
    "text/1/assets/vocab.txt": (lambda path: path.write_text("some\n"), "is damaged"),
    "text/1/variables/variables.data-00000-of-00001": (pathlib.Path.unlink, "missing"),
    "export.json": (
        lambda path: path.write_text(path.read_text().replace('"text_a"', '"text_b"')),
        "is damaged or was changed",
    ),
}


@pytest.mark.parametrize("name", [*DAMAGES, "folder"])
def test_a_damaged_file_is_named(sealed, name):
    damage, message = DAMAGES.get(name, (make_folder, "is not a file; copy the whole"))
    name = "text/1/assets/vocab.txt" if name == "folder" else name
    damage(sealed / name)
    with pytest.raises(UserError) as error:
        Predictor(str(sealed))
    assert str(error.value).startswith(f"{sealed / name}: ")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_part_of_a_sealed_export_is_enough(sealed):
    """What only others read may be missing, and the version have another number."""
    (sealed / "text" / "1").rename(sealed / "text" / "7")
    (sealed / "text" / "7" / "fingerprint.pb").unlink()
    predictor = Predictor(str(sealed / "text" / "7"))
    predictor.warm_up()
    assert predictor.predict([{"text_a": "good"}])[0]["predicted"] == "positive"


def test_saved_model_by_itself(copied):
    (copied / "export.json").unlink()
    with pytest.raises(UserError, match=r"a SavedModel without export\.json"):
        Predictor(str(copied / "text" / "1"))


def test_model_that_diverged(tmp_path):
    """Weights of NaN give answers of NaN, which JSON cannot hold."""
    tf = exports.tf
    folder = exports.write(tmp_path, "number")
    module = tf.Module()
    module.serve = tf.function(
        lambda text_a: {"predicted": tf.fill(tf.shape(text_a), float("nan"))}
    ).get_concrete_function(tf.TensorSpec([None], tf.string, "text_a"))
    tf.saved_model.save(
        module, f"{folder}/text/1", signatures={"serving_default": module.serve}
    )
    with pytest.raises(UserError, match="model's output predicted is not finite"):
        Predictor(folder).predict([{"text_a": "a"}])
