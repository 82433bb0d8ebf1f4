"""--export_adapters: one export has the base of LoRA runs once, and each run's answers."""

import dataclasses
import json
import shutil

import pytest

import bert
import predict
import run_classifier
from training.backend import tf
from training.storage import exported
from training.storage.folder import Folder
from errors import UserError
from serving.predictor import Predictor
from tests import classifier, jobs, relatives, tiny
from tests.serving.clients import PREDICT, send, serving

WIDE = dataclasses.replace(classifier.TINY, hidden_size=128)
TEXTS = ["the cat sat", "", "a red dog ran under the blue mat"]
# Of each run the kind of its labels, these, and flags: nothing of a head is shared.
RUNS = {
    "one": ("single", ["x", "y"], {"lora_rank": 2, "lora_alpha": 6.0}),
    "two": ("several", ["p", "q", "r"], {"lora_rank": 3, "lora_targets": ["dense"]}),
    "three": ("number", [1.5, -2.0], {"lora_rank": 1}),
}


def run(folder, name, **changes):
    kind, _, adapted = RUNS[name]
    files = {f"{split}_file": f"{split}.tsv" for split in ("train", "dev", "test")}
    flags = files | {
        "task_name": "custom",
        "label_kind": kind,
        "data_dir": str(folder / f"{name}_data"),
        "output_dir": str(folder / name),
        "init_checkpoint": str(folder / "model.ckpt-best"),
        "max_seq_length": 32,
        "learning_rate": [1e-2],
    }
    if name == "three":
        flags |= {"text_b_column": "other", "max_seq_length": 16}
    flags |= adapted if changes.get("do_train") else {}
    jobs.run(run_classifier, jobs.flags(folder, **flags | changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, every_export_is_checked):
    """Three runs on one base, the first with the export of all."""
    folder = tmp_path_factory.mktemp("runs")
    tiny.write(folder, classifier.WORDS, WIDE)
    relatives.write_start(folder, WIDE)
    for name, (_, labels, _) in RUNS.items():
        data = folder / f"{name}_data"
        data.mkdir()
        classifier.custom(data, "tsv", labels)
        for path in data.iterdir():
            header, *rows = path.read_text().splitlines()
            rows = [f"{header}\tother", *(f"{row}\tthe hat" for row in rows)]
            classifier.write_lines(path, rows)
    others = [str(folder / name) for name in RUNS if name != "one"]
    exports = {"do_export": True, "export_adapters": others}
    with jobs.untraced():
        for name in ("two", "three"):
            run(folder, name, do_train=True)
        run(folder, "one", do_train=True, **exports)
    return folder


def requests(inputs):
    return [dict.fromkeys(inputs, text) for text in TEXTS]


@pytest.fixture(scope="module")
def alone(folder, tmp_path_factory):
    """What each run answers by itself, its adapters merged with the base."""
    copies, tasks = tmp_path_factory.mktemp("alone"), {}
    for name in RUNS:
        ignore = shutil.ignore_patterns("export")
        shutil.copytree(folder / name, copies / name, ignore=ignore)
        tasks[name] = bert.load_task(str(copies / name))
    return {name: t.predict(requests(t.inputs)) for name, t in tasks.items()}


@pytest.fixture(scope="module")
def together(folder):
    """The folder of the first run, with the export of all."""
    return folder / "one"


def check_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            assert one[name] == pytest.approx(value, abs=1e-5), name


@pytest.fixture(scope="module")
def model(together):
    return Predictor(str(together))


@pytest.mark.slow
def test_each_run_answers_as_alone_and_the_base_is_there_once(
    folder, alone, together, model
):
    assert list(model.adapters) == list(RUNS)
    for name, expected in alone.items():
        served = model.adapters[name]
        check_same(served.predict(requests(served.parts)), expected)
    check_same(model.predict(requests(model.parts)), alone["one"])
    base = (folder / "model.ckpt-best.data-00000-of-00001").stat().st_size
    for path in ("text/1", "tensors/1"):
        (data,) = (together / "export" / path / "variables").glob("*.data-*")
        assert base < data.stat().st_size < 1.2 * base
    card = (together / "export" / "README.md").read_text()
    assert "Signatures of other adapters on the same base: `two`, `three`." in card
    network = tf.saved_model.load(str(together / "export" / "tensors" / "1"))
    assert network.signatures.keys() == {"serving_default", "examples", *RUNS}


@pytest.mark.slow
def test_predict_asks_one_adapter_or_several(alone, model, tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "Predictor", lambda folder: model)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps({'text': text})}\n" for text in TEXTS))
    output = str(tmp_path / "answers.jsonl")

    def answers(*names, rows=path):
        files = {"input_file": str(rows), "output_file": output}
        asked = {"model_dir": "one", "adapter": list(names)}
        jobs.run(predict, files | asked)
        with open(output, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    rows = [{"text": text} for text in TEXTS]
    check_same(answers("two"), [r | a for r, a in zip(rows, alone["two"], strict=True)])
    both = answers("two", "one")
    assert all(list(row) == ["text", "two", "one"] for row in both)
    for name in ("one", "two"):
        check_same([row[name] for row in both], alone[name])
    with pytest.raises(UserError, match="no adapter 'four'; its adapters are one, two"):
        answers("four")
    with pytest.raises(
        UserError, match="adapter one takes .*text_b .*; query them one"
    ):
        answers("one", "three")
    path.write_text('{"text": "a", "two": 1}\n')
    with pytest.raises(UserError, match="two is also a name in the answer"):
        answers("one", "two")


@pytest.mark.slow
def test_the_server_answers_for_the_signature_of_a_request(alone, model):
    with serving(model) as port:
        for name, expected in alone.items():
            rows = requests(["text_a", "text_b"] if name == "three" else ["text"])
            body = {"signature_name": name, "instances": rows}
            status, content, _ = send(port, body)
            assert status == 200
            check_same(content["predictions"], expected)
        body = {"signature_name": "two", "inputs": {"text": TEXTS}}
        outputs = send(port, body)[1]["outputs"]
        assert outputs["predicted"] == [row["predicted"] for row in alone["two"]]
        check_same(send(port, {"instances": TEXTS})[1]["predictions"], alone["one"])
        for name in ("four", "tensors", ["one"], None):
            status, content, _ = send(port, {"signature_name": name, "instances": []})
            assert status == 400
            expected = "signature_name: must be serving_default or one or two or three"
            assert content["error"] == expected
        content = send(port, None, PREDICT.replace(":predict", "/metadata"), "GET")[1]
        signatures = content["metadata"]["signature_def"]["signature_def"]
        assert signatures.keys() == {"serving_default", *RUNS}
        assert signatures["three"]["inputs"].keys() == {"text_a", "text_b"}
        page = send(port, None, "/?signature_name=three", "GET")[1].decode()
        assert '"signature": "three", "adapters": ["one", "two", "three"], ' in page
        assert (
            '"form": "number", "inputs": {"text_a": "text", "text_b": "text"}' in page
        )
        known = content["answers"]["adapters"]["three"]
        assert known == {"form": "number", "names": ["predicted"]}


@pytest.mark.slow
def test_an_export_of_several_is_not_unpacked(together, tmp_path):
    with pytest.raises(
        UserError, match="the adapters of several runs on one base; pass"
    ):
        exported.unpack(str(together / "export"), Folder.open(str(tmp_path)))


def change(name, **values):
    """Changes a JSON file of a run."""

    def changed(folder):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return changed


def no_adapters(folder):
    (folder / "adapter.json").unlink()


REFUSED = [
    (change("adapter.json", base_sha256="0" * 64), "its base is .*; an export has one"),
    (change("task.json", script="run_ner.py"), "it is a run of run_ner.py, not"),
    (
        change("task.json", do_lower_case=False),
        "it reads .*: do_lower_case is False, not",
    ),
    (no_adapters, "contains no checkpoint of a run with --lora_rank"),
    (shutil.rmtree, "contains no checkpoint of a run with --lora_rank"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "message"), REFUSED)
def test_what_cannot_share_the_base_is_refused(folder, tmp_path, spoil, message):
    other = tmp_path / "other"
    shutil.copytree(folder / "two", other)
    spoil(other)
    with pytest.raises(UserError, match=f"^--export_adapters={other}: {message}"):
        run(folder, "three", do_export=True, export_adapters=[str(other)])
    assert not (folder / "three" / "export").exists()


@pytest.mark.slow
def test_names_of_folders_are_those_of_signatures(folder, tmp_path):
    for name in ("three", "tensors", "a b"):
        other = tmp_path / name
        shutil.copytree(folder / "two", other)
        message = "another run has the name" if name == "three" else "rename it"
        with pytest.raises(UserError, match=message):
            run(folder, "three", do_export=True, export_adapters=[str(other)])


@pytest.mark.slow
def test_the_run_that_exports_must_have_adapters_itself(folder, tmp_path):
    given = {"export_adapters": [str(folder / "two")], "do_export": True}
    with pytest.raises(UserError, match="is for runs with --lora_rank; pass it, too"):
        run(folder, "three", do_train=True, **given | {"lora_rank": None})
    plain = str(tmp_path / "plain")
    with pytest.raises(UserError, match=f"^{plain}: contains no checkpoint of a run"):
        run(folder, "three", output_dir=plain, **given)
