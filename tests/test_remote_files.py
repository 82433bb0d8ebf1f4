"""Everything that is read, and every output_dir, may lie where only TensorFlow reaches.

With file:// TensorFlow reaches this disk as it reaches gs://, from every process.
"""

import os
import types

import pytest

import build_vocab
import convert_checkpoint
import create_pretraining_data
import extract_features
import inspect_records
import predict
import run_classifier
import run_pretraining
import tests
from training.storage.folder import Folder
from errors import UserError
from files import anywhere, json_files, sources
from tests import jobs, pretraining, tiny

SENTENCES = "the cat sat on the mat .\na dog ran in the park .\n\n"
WORDS = "the cat sat on mat . a dog ran in park".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("remote")
    tiny.write(folder, WORDS, tiny.config())
    (folder / "text.txt").write_text(SENTENCES * 40)
    rows = "the cat sat\t0\na dog ran\t1\n" * 8
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text(f"sentence\tlabel\n{rows}")
    return folder


def far(path):
    return f"file://{path}"


def generate(folder, **changes):
    flags = {
        "input_file": [far(folder / "t*.txt")],
        "output_file": [str(folder / "out.tfrecord")],
        "vocab_file": far(folder / "vocab.txt"),
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "num_workers": 1,
    }
    jobs.run(create_pretraining_data, flags | changes)


@pytest.mark.exhaustive
def test_every_step_reads_files_of_another_scheme(folder, capsys, untraced):
    generate(folder)
    records = (folder / "out.tfrecord").read_bytes()
    local = [str(folder / "near.tfrecord")]
    generate(folder, input_file=[str(folder / "t*.txt")], output_file=local)
    assert (folder / "near.tfrecord").read_bytes() == records
    arguments = {"vocab_file": far(folder / "vocab.txt")}
    arguments["input_file"] = [far(folder / "out.tfrecord")]
    found = inspect_records.main(inspect_records.Options(**arguments))
    assert not found, capsys.readouterr().out

    flags = jobs.flags(folder) | arguments
    flags["bert_config_file"] = far(folder / "config.json")
    pretraining = flags | {
        "output_dir": far(folder / "run"),
        "do_train": True,
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "train_batch_size": 4,
        "learning_rate": 1e-3,
        "num_warmup_steps": 1,
    }
    del pretraining["num_train_epochs"]
    jobs.run(run_pretraining, pretraining | {"num_train_steps": 2})
    longer = pretraining | {"num_train_steps": 4, "do_eval": True, "do_export": True}
    with pytest.raises(UserError, match="num_train_steps"):
        jobs.run(run_pretraining, longer)
    jobs.run(run_pretraining, longer | {"num_train_steps": 2})
    assert Folder.open(far(folder / "run")).steps == [2]
    assert (folder / "run" / "eval_results.txt").exists()
    assert (folder / "run" / "export" / "text" / "1" / "saved_model.pb").exists()
    assert "continuing from step 2" in capsys.readouterr().out

    del flags["input_file"]
    classifier = flags | {
        "task_name": "SST-2",
        "data_dir": far(folder),
        "output_dir": far(folder / "classifier"),
        "init_checkpoint": far(folder / "run" / "model.ckpt-2"),
        "max_seq_length": 32,
        "do_train": True,
        "do_eval": True,
    }
    jobs.run(run_classifier, classifier)
    assert (folder / "classifier" / "eval_results.txt").exists()


def test_what_is_written_locally_alone_says_so(folder):
    for path in ("gs://bucket/out.tfrecord", far(folder / "out.tfrecord")):
        with pytest.raises(UserError, match="only be written to a local folder"):
            generate(folder, output_file=[path])
        with pytest.raises(UserError, match="only be written to a local folder"):
            build_vocab.Options(input_file=["a"], output_file=path)
        features = {
            "input_file": far(folder / "text.txt"),
            "output_file": path,
            "bert_config_file": far(folder / "config.json"),
            "init_checkpoint": "none",
        }
        with pytest.raises(UserError, match="only be written to a local folder"):
            jobs.run(extract_features, features)


def test_files_that_cannot_be_reached(folder):
    with pytest.raises(UserError, match="no file matches"):
        generate(folder, input_file=[far(folder / "nothing")])
    # As a local file would: what is absent is told from what cannot be read.
    with pytest.raises(FileNotFoundError, match="No such file") as raised:
        generate(folder, vocab_file=far(folder / "nothing.txt"))
    assert raised.value.filename == far(folder / "nothing.txt")


MODEL = str(tests.GOLDEN / "checkpoint")


@pytest.mark.parametrize(
    ("script", "flag"),
    [
        (run_pretraining, "input_file"),
        (run_pretraining, "output_dir"),
        (convert_checkpoint, "input"),
        (convert_checkpoint, "output_dir"),
        (predict, "model_dir"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_address_that_nothing_opens_is_refused(tmp_path, script, flag):
    """In one line, before any work, and without trying again and again."""
    flags = {
        run_pretraining: pretraining.flags(tmp_path),
        convert_checkpoint: {"input": [MODEL], "output_dir": str(tmp_path / "new")},
        predict: {"input_file": "x"},
    }[script]
    check_refused(script, flag, flags)


def check_refused(script, flag, flags):
    for address, remedy in (
        ("http://x/y", "pass a local path, or an address gs://bucket/name"),
        ("x://y", "pass a local path, or an address gs://bucket/name"),
        ("gs://a b/c", "names no bucket; pass gs://bucket/name"),
        ("hf://", "pass a local path|must be hf://organization/name"),
    ):
        value = [address] if flag.startswith("input") else address
        with pytest.raises(UserError, match=f"^{address}: .*({remedy}|local folder)"):
            jobs.run(script, flags | {flag: value})


@pytest.mark.parametrize(
    "use",
    [
        anywhere.exists,
        anywhere.listdir,
        anywhere.makedirs,
        anywhere.remove,
        json_files.read,
        sources.exists,
        sources.is_folder,
        sources.matching,
        sources.status,
        sources.open_file,
    ],
    ids=lambda use: f"{use.__module__}.{use.__name__}",
)
def test_one_door_checks_addresses(use):
    with pytest.raises(UserError, match="^http://x: files at http:// cannot be opened"):
        use("http://x")


def test_rows_to_answer_may_lie_anywhere(tmp_path):
    """Only files of this machine can be devices."""
    for address, message in (
        ("http://x/y", "files at http:// cannot be opened"),
        ("gs://a b/c", "names no bucket"),
    ):
        model = {"parts": {"text": "text"}, "required": ["text"], "names": ()}
        table = predict.InputTable(address, None, types.SimpleNamespace(**model))
        with pytest.raises(UserError, match=f"^{address}: {message}"):
            list(table.rows())


def test_waiting_for_a_server_is_bounded(monkeypatch):
    """TensorFlow itself would try for 25 minutes; it reads this when it is loaded."""
    monkeypatch.delenv("GCS_RETRY_CONFIG_MAX_RETRIES")  # from `training.backend`
    monkeypatch.setenv("GCS_REQUEST_CONNECTION_TIMEOUT_SECS", "99")
    sources.limit_waiting()
    assert os.environ["GCS_RETRY_CONFIG_MAX_RETRIES"] == "5"
    assert os.environ["GCS_REQUEST_CONNECTION_TIMEOUT_SECS"] == "99"  # the user's


def test_a_file_is_read_in_parts(tmp_path):
    content = bytes(range(256)) * 10_000
    (tmp_path / "a").write_bytes(content)
    with sources.open_file(far(tmp_path / "a")) as file:
        assert file.read(10) == content[:10]
        file.seek(1_500_000)
        assert (file.tell(), file.read(7)) == (1_500_000, content[1_500_000:1_500_007])
        file.seek(-3, 2)
        assert file.read() == content[-3:]
    assert sources.size(far(tmp_path / "a")) == len(content)
    assert sources.status(far(tmp_path / "a"))[1] // 10**9 == int(
        (tmp_path / "a").stat().st_mtime
    )
