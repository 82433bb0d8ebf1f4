"""Exports: raw text gives the script's own answers to whoever loads it, or go."""

import dataclasses
import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import types

import numpy as np
import onnxruntime
import pytest
from ai_edge_litert import interpreter as litert
from tensorflow.core.protobuf import saved_model_pb2

import run_classifier
from training.backend import tf
from errors import UserError
from modeling.architectures.features import TOKEN_POOLINGS
from modeling.objectives.sentence_vectors import SentenceModel
from serving import export, portable, speed
from serving.predictor import FOLDER, Predictor
from tests import graph_session, jobs, vectors
from tests.serving import prediction_logs
from tests.serving.test_export_folder import left_by_a_killed_process
from tests.serving.texts import TINY, real_texts, write_words
from text.graphs.graph_tokenizer import GraphTokenizer
from text.records.rows import Layout

pytestmark = pytest.mark.usefixtures("every_export_is_checked")


@pytest.fixture
def folder(tmp_path):
    write_words(tmp_path)
    return tmp_path


def write_sets(folder, label, *, pairs):
    """JSON lines of a train, dev and test set; 200 in the last."""
    rng = random.Random(1)
    texts = real_texts(200)
    for name, size in (("train", 40), ("dev", 20), ("test", 200)):
        lines = []
        for i in range(size):
            example = {"text": texts[i], "label": label(rng)}
            if pairs:
                example["other"] = rng.choice(texts)
            lines.append(json.dumps(example))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def run(folder, **changes):
    own = {
        "task_name": "custom",
        "data_dir": str(folder),
        "train_file": "train.jsonl",
        "dev_file": "dev.jsonl",
        "test_file": "test.jsonl",
        "max_seq_length": 32,
        "num_train_epochs": [2.0],
        "learning_rate": [1e-2],
        "predict_batch_size": 100,
        "do_train": True,
    }
    jobs.run(run_classifier, jobs.flags(folder, **own | changes))


def same(expected, found):
    return not export._differ(expected, found)


KINDS = {
    "single": lambda rng: rng.choice(["yes", "no", "Straße"]),
    "several": lambda rng: [c for c in "abc" if rng.random() < 0.5],
    "number": lambda rng: rng.random() * 5,
}


@pytest.fixture(scope="module")
def exported(every_export_is_checked, tmp_path_factory):
    """A folder with a run and its export, in every format; only to be read.

    It was loaded as users have it loaded, in a process that has nothing of ours.
    """
    folder = tmp_path_factory.mktemp("exported")
    write_words(folder)
    config = dataclasses.replace(TINY, hidden_act="gelu_erf")
    (folder / "config.json").write_text(config.to_json_string())
    write_sets(folder, KINDS["single"], pairs=False)
    with pytest.MonkeyPatch.context() as patch, jobs.untraced():
        patch.setattr(export, "subprocess", subprocess)
        run(folder, do_predict=True, do_export=True, export_formats=portable.FORMATS)
    return folder


@pytest.fixture(scope="module")
def predictor(exported):
    return Predictor(str(exported / "output"))


@pytest.fixture
def copied(exported, tmp_path):
    """That folder, to be changed."""
    return shutil.copytree(exported, tmp_path / "copied")


@pytest.fixture
def unloaded(monkeypatch):
    """Exports are not loaded in another process, where something else matters."""
    monkeypatch.setattr(export, "_check", lambda product, directory: None)


def assert_gives_the_scripts_predictions(output, predictor):
    """200 texts of many languages: the same labels, probabilities to 1e-5."""
    with open(output / "predictions.jsonl", encoding="utf-8") as lines:
        written = [json.loads(line) for line in lines]
    requests = [{k: line.pop(k) for k in predictor.parts} for line in written]
    assert len(requests) == 200
    for line, answer in zip(written, predictor.predict(requests), strict=True):
        del line["gold"], line["index"]
        assert same(line, answer)


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", [export.TEXT, export.TENSORS])
def test_no_gradient_is_saved_as_a_function_of_its_own(exported, part):
    """They would take as long to load as the network."""
    path = exported / "output" / FOLDER / part / "saved_model.pb"
    content = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    (graph,) = content.meta_graphs
    assert graph.graph_def.library.function
    assert not graph.graph_def.library.registered_gradients


def test_raw_text_gives_the_scripts_predictions_of_a_label(exported, predictor):
    assert_gives_the_scripts_predictions(exported / "output", predictor)


@pytest.mark.exhaustive
def test_raw_text_gives_the_scripts_predictions_of_a_number(folder, untraced, unloaded):
    write_sets(folder, KINDS["number"], pairs=True)
    kind = {"label_kind": "number", "text_b_column": "other", "train_batch_size": [20]}
    run(folder, do_predict=True, do_export=True, **kind)
    output = folder / "output"
    assert_gives_the_scripts_predictions(output, Predictor(str(output)))


@pytest.mark.exhaustive
def test_bfloat16_training_of_several_labels_exports_float32_unless_asked(
    folder, untraced, monkeypatch, capfd
):
    write_sets(folder, KINDS["several"], pairs=True)
    kind = {"label_kind": "several", "text_b_column": "other"}
    run(folder, dtype="mixed_bfloat16", do_eval=True, do_export=True, **kind)
    assert "the same answers to 21 requests" in capfd.readouterr().out
    output = folder / "output"
    directory = output / "export"
    assert sorted(os.listdir(directory)) == [
        *("README.md", "export.json", "tensors", "text")
    ]
    description = json.loads((directory / "export.json").read_text())
    assert description["precision"] == "float32"
    predictor = Predictor(str(output))

    # A second export of the same checkpoint takes the place of the first.
    only_files = {"files": description["files"]}
    (directory / "export.json").write_text(json.dumps(only_files))
    # test_small_exports.py loads one of bfloat16 elsewhere, and takes its time.
    monkeypatch.setattr(export, "_check", lambda product, directory: None)
    monkeypatch.setattr(speed, "measure", lambda forms, rows: dict.fromkeys(forms, 1))
    kind |= {"export_precision": "bfloat16", "do_train": False}
    run(folder, do_predict=True, do_export=True, **kind)
    assert_gives_the_scripts_predictions(output, predictor)
    written = json.loads((directory / "export.json").read_text())
    for one in (written, description):
        del one["checksum"], one["checksums"]
    assert description.pop("dev_set")  # without --do_eval, nothing is known of one
    files = sorted([*description["files"], "precision.json"])
    assert written == description | {"precision": "bfloat16", "files": files}
    loaded = tf.saved_model.load(str(directory / "tensors" / "1"))
    graph = loaded.signatures["serving_default"].graph.as_graph_def()
    nodes = [node for function in graph.library.function for node in function.node_def]
    types = {node.attr["T"].type for node in nodes if node.op == "MatMul"}
    assert tf.bfloat16.as_datatype_enum in types


@pytest.mark.without_family
def test_what_an_export_holds_and_what_it_answers_to_anything(exported, predictor):
    directory = exported / "output" / "export"
    assert sorted(os.listdir(directory)) == [
        "README.md",
        "export.json",
        "model.onnx",
        "model.tflite",
        "processing",
        "tensors",
        "text",
    ]
    description = json.loads((directory / "export.json").read_text())
    wanted = {
        "form": "label",
        "inputs": {"text": "text"},
        "task": "Classifier",
        "labels": ["Straße", "no", "yes"],
        "max_seq_length": 32,
        "do_lower_case": True,
        "precision": "float32",
        "global_step": 10,
    }
    assert {name: description[name] for name in wanted} == wanted
    assert description["bert_config"]["hidden_act"] == "gelu_erf"
    assert "README.md" not in description["checksums"]  # its owner may change it
    assert description["versions"]["tensorflow"] == tf.__version__
    vocabulary = (directory / "text" / "1" / "assets" / "vocab.txt").read_bytes()
    assert vocabulary == (exported / "vocab.txt").read_bytes()

    serve = predictor._loaded.signatures["serving_default"]
    nothing = serve(text=tf.constant([], tf.string))
    assert nothing["probabilities"].shape == (0, 3)
    assert nothing["predicted"].shape == (0,)
    odd = [b"", b"\xff\xfe", b"a " * (1 << 19), b"x" * (1 << 20), b"\x00", "é".encode()]
    for texts in (odd, odd[:1]):
        answers = serve(text=tf.constant(texts))
        assert np.isfinite(answers["probabilities"]).all()
        assert set(answers["predicted"].numpy()) <= {b"no", b"yes", "Straße".encode()}


@pytest.mark.without_family
def test_the_network_alone_takes_rows_of_any_length_and_examples(exported):
    model = tf.saved_model.load(str(exported / "output" / "export" / export.TENSORS))
    serve = model.signatures["serving_default"]
    ids = tf.constant([[2, 5, 6, 3, 0], [2, 5, 3, 0, 0]])
    batch = {"input_ids": ids, "input_mask": tf.cast(ids > 0, tf.int32)}
    batch["segment_ids"] = tf.zeros_like(ids)
    both = serve(**batch)["logits"]
    one = serve(**{name: values[1:, :3] for name, values in batch.items()})["logits"]
    assert both.shape == (2, 3)
    tf.debugging.assert_near(both[1:], one, atol=1e-5)
    example = tf.train.Example()
    for name, values in batch.items():
        row = [*values[0].numpy(), *[0] * 27]
        example.features.feature[name].int64_list.value.extend(row)
    examples = tf.constant([example.SerializeToString()])
    of_example = model.signatures["examples"](examples=examples)["logits"]
    tf.debugging.assert_near(both[:1], of_example, atol=1e-5)


def test_an_export_that_answers_otherwise_leaves_nothing(copied, monkeypatch, capsys):
    before = (copied / "output" / "export" / "export.json").read_bytes()
    encode = GraphTokenizer.encode
    # A tokenizer that loses the last token of each text.
    monkeypatch.setattr(GraphTokenizer, "encode", lambda *given: encode(*given)[:, :-1])
    with pytest.raises(UserError, match="the export was removed: once loaded, it answ"):
        run(copied, do_train=False, do_export=True)
    assert f"exporting to {copied / 'output' / 'export'}\n" in capsys.readouterr().out
    assert (copied / "output" / "export" / "export.json").read_bytes() == before
    assert not list((copied / "output").glob(".export~bert~*"))


@pytest.mark.exhaustive
def test_an_export_that_only_python_can_use_leaves_nothing(copied, monkeypatch):
    made = tf.lookup.StaticHashTable
    anonymous = functools.partial(made, experimental_is_anonymous=True)
    monkeypatch.setattr(tf.lookup, "StaticHashTable", anonymous)
    shutil.rmtree(copied / "output" / "export")
    with pytest.raises(UserError, match="removed: serving_default, loaded as"):
        run(copied, do_train=False, do_export=True)
    assert not list((copied / "output").glob("*export*"))


def test_a_server_answers_by_every_signature_as_python_does(exported, predictor):
    directory = exported / "output" / "export"
    ids = np.array([[2, 5, 6, 3] + [0] * 28], np.int32)
    batch = {"input_ids": ids, "input_mask": (ids > 0).astype(np.int32)}
    batch["segment_ids"] = np.zeros_like(ids)
    example = tf.train.Example()
    for name, values in batch.items():
        example.features.feature[name].int64_list.value.extend(values[0])
    given = {
        "serving_default": {"text": np.array(["a cat sat", "", "Σας."])},
        "tensors": batch,
        "examples": {"examples": np.array([example.SerializeToString()], object)},
    }
    tensors = {"serving_default": batch, "examples": given["examples"]}
    for part, calls in ((export.TEXT, given), (export.TENSORS, tensors)):
        functions = tf.saved_model.load(str(directory / part)).signatures
        with graph_session.loaded(directory / part) as session:
            assert session.signatures.keys() == calls.keys()
            for name, inputs in calls.items():
                inputs_ = {k: tf.constant(v) for k, v in inputs.items()}
                for key, value in functions[name](**inputs_).items():
                    found = session.run(name, inputs)[key]
                    if value.dtype == tf.string:
                        assert found.tolist() == value.numpy().tolist()
                    else:
                        np.testing.assert_allclose(found, value, rtol=0, atol=1e-6)


def test_warm_up_requests_are_what_the_signatures_take(exported):
    directory = exported / "output" / "export"
    for part in (export.TEXT, export.TENSORS):
        (path,) = (directory / part / "assets.extra").iterdir()
        assert path.name == "tf_serving_warmup_requests"
        signatures = []
        with graph_session.loaded(directory / part) as session:
            for record in tf.data.TFRecordDataset(str(path)):
                signature, inputs = prediction_logs.request(record.numpy())
                session.run(signature, inputs)
                signatures.append(signature)
        expected = (
            {"serving_default", "tensors"}
            if part == export.TEXT
            else {"serving_default"}
        )
        assert set(signatures) == expected


def test_any_next_run_finds_an_export_that_was_interrupted(copied, predictor):
    output = copied / "output"
    final, left = output / "export", left_by_a_killed_process(output / "export")
    description = json.loads((final / "export.json").read_text())
    assert description["files"] == sorted(
        str(path.relative_to(final)) for path in final.rglob("*") if path.is_file()
    )
    answers = predictor.predict([{"text": "a cat"}])
    final.rename(left)
    assert Predictor(str(output)).predict([{"text": "a cat"}]) == answers
    run(copied, do_train=False, do_eval=True)
    assert final.exists() and not left.exists()


def test_what_stands_in_an_exports_place_is_kept(folder):
    write_sets(folder, KINDS["single"], pairs=False)
    mine = folder / "output" / "export" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(UserError, match="thesis.txt: is not part of an export"):
        run(folder, do_export=True)
    assert mine.read_text() == "mine"
    assert not (folder / "output" / "checkpoint").exists()  # before it trains


@pytest.mark.parametrize(
    ("status", "stderr", "message"),
    [
        (-9, "", "killed by signal 9; check for a lack of"),
        (1, "a\nwhy\n", "removed: why$"),
    ],
)
def test_a_process_that_does_not_answer(status, stderr, message):
    process = subprocess.CompletedProcess([], status, "", stderr)
    with pytest.raises(UserError, match=message):
        export._refuse_to_load(process)


# --- Other formats -------------------------------------------------------------------


def assert_onnx_and_litert_say_the_same(
    directory, name="logits", width=3, vocab_size=40
):
    rng = np.random.default_rng(3)
    ids = rng.integers(5, vocab_size, (4, 32)).astype(np.int32)
    mask = (np.arange(32) < [[32], [5], [20], [1]]).astype(np.int32)
    batch = {"input_ids": ids * mask, "input_mask": mask, "segment_ids": 0 * ids}
    loaded = tf.saved_model.load(str(directory / "tensors" / "1"))
    serve = loaded.signatures["serving_default"]
    expected = serve(**{k: tf.constant(v) for k, v in batch.items()})[name].numpy()
    session = onnxruntime.InferenceSession(str(directory / "model.onnx"))
    described = (*session.get_inputs(), *session.get_outputs())
    shapes = {each.name: each.shape for each in described}
    assert shapes.pop(name) == ["batch", width]
    assert list(shapes.values()) == [["batch", "sequence"]] * 3
    (found,) = session.run([name], batch)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    shorter = {k: values[1:3, :20] for k, values in batch.items()}
    (found,) = session.run([name], shorter)
    np.testing.assert_allclose(found, expected[1:3], rtol=0, atol=1e-5)
    runner = litert.Interpreter(str(directory / "model.tflite"))
    runner = runner.get_signature_runner("serving_default")
    for row in range(4):
        of_row = {k: values[row : row + 1] for k, values in batch.items()}
        found = runner(**of_row)[name]
        np.testing.assert_allclose(found, expected[row : row + 1], rtol=0, atol=1e-5)


@pytest.mark.without_family
def test_onnx_and_litert_say_the_same(exported):
    assert_onnx_and_litert_say_the_same(exported / "output" / "export")


# Each is another graph.
POOLINGS = [
    pytest.param(name, marks=[pytest.mark.exhaustive] * (name != "mean"))
    for name in TOKEN_POOLINGS
]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_onnx_and_litert_give_the_same_vectors(tmp_path, pooling, capfd):
    sizes = {"projection_size": 6, "projection_activation": None, "size": None}
    kind = {"normalized": True, "seed": 5, "dtype": "float32"}
    model = SentenceModel(vectors.TINY, pooling, **sizes, **kind)
    network = export._network(model, Layout(32))
    export._save_model(model, network, str(tmp_path / export.TENSORS))
    ids = np.arange(5, 13, dtype=np.int32)
    names = ("input_ids", "input_mask", "segment_ids")
    batch = {
        n: np.resize(x, (2, 32))
        for n, x in zip(names, (ids, ids // ids, ids * 0), strict=True)
    }
    product = types.SimpleNamespace(
        batch=batch,
        outputs=export.predict(model, batch),
        formats=portable.FORMATS,
        reference=None,
    )
    export._convert(product, str(tmp_path))
    # Conversion takes a minute for a large model: it says what it does, and nothing else.
    out, err = capfd.readouterr()
    assert out.splitlines() == [
        f"converting the network to {name} and checking it" for name in portable.FORMATS
    ]
    assert not re.search("WARNING|INFO|serializing", err)
    size = vectors.TINY.vocab_size
    assert_onnx_and_litert_say_the_same(tmp_path, "embedding", 6, size)


@pytest.mark.exhaustive
def test_a_file_that_says_something_else_is_refused(copied, unloaded, monkeypatch):
    def wrong(name, file, batch):
        return {"logits": np.zeros((len(batch["input_ids"]), 3))}

    monkeypatch.setattr(export, "_run", wrong)
    monkeypatch.setattr(export, "_write_processing", lambda *written: None)
    monkeypatch.setattr(portable, "_onnx", lambda *converted: lambda precision: b"")
    monkeypatch.setattr(portable, "check_installed", lambda formats: None)
    shutil.rmtree(copied / "output" / "export")
    with pytest.raises(UserError, match="the onnx file returns different logits"):
        run(copied, do_train=False, do_export=True, export_formats=["onnx"])
    assert not list((copied / "output").glob("*export*"))


def test_formats_are_known_and_their_packages_there(folder, monkeypatch):
    with pytest.raises(UserError, match="--export_formats=pmml: not one of onnx,"):
        run(folder, do_export=True, export_formats=["pmml"])
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setitem(sys.modules, "tf2onnx", types.ModuleType("tf2onnx"))
    with pytest.raises(UserError, match="pip install -r requirements/onnx.txt"):
        run(folder, do_export=True, export_formats=["onnx"])
