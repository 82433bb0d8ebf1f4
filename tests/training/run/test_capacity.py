"""What cannot fit into memory is refused before it is allocated; nothing else is."""

import pytest

import convert_checkpoint
import extract_features
import run_classifier
import run_pretraining
import tests
from training.backend import tf
from training.run import capacity, loop
from errors import UserError
from files import memory
from modeling.architectures.bert import BertConfig
from tests import given, jobs, pretraining, tiny

LARGE = {
    "tables": tiny.config(vocab_size=2**31 - 1, hidden_size=2048),
    "positions": tiny.config(max_position_embeddings=2**31 - 1, hidden_size=2048),
    "layers": tiny.config(hidden_size=2**20),
}


@pytest.fixture(autouse=True)
def large_machine(monkeypatch):
    monkeypatch.setattr(memory, "total", lambda: 100 * 10**9)
    monkeypatch.setattr(capacity, "_has_accelerators", lambda: False)


@pytest.mark.parametrize("name", ["tables", "positions", "layers"])
def test_a_network_that_cannot_fit_is_refused(name):
    message = r"^c.json: a network of [\d,]+ weights needs at least .* has 100 GB"
    with pytest.raises(UserError, match=message):
        capacity.check_network(LARGE[name], "c.json")


def test_what_may_fit_is_not_refused():
    for config in (BertConfig(30522, 1024, 24, 16, 4096), tiny.config()):
        capacity.check_network(config, "c.json", numbers_per_weight=2)
    half = tiny.config(vocab_size=8_000_000, hidden_size=2048)  # 65 GB
    capacity.check_network(half, "c.json")
    with pytest.raises(UserError, match="needs at least 131 GB"):
        capacity.check_network(half, "c.json", numbers_per_weight=2)


def test_accelerators_have_memory_of_their_own(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda: ["CPU", "GPU"])
    capacity.check_network(LARGE["tables"], "c.json")


def refused(message, script, flags, **changes):
    with pytest.raises(UserError, match=f"^--{message}.* of memory, but this machine"):
        jobs.run(script, flags | changes)


def empty_file(folder):
    """Records that are refused as soon as they are read."""
    path = folder / "records"
    path.touch()
    return str(path)


def test_batches_of_a_pre_training_are_refused_before_records_are_read(tmp_path):
    config = tiny.config(hidden_size=64, max_position_embeddings=64)
    flags = pretraining.flags(tmp_path, config, input_file=[empty_file(tmp_path)])
    size = {"train_batch_size": 2**20}
    message = "train_batch_size=1048576: a pass over 1,048,576 rows of 64 tokens needs"
    of_layer = 64 * (6 * 64 + 32 + 2 * 64)  # what the products read
    logits = 10 * config.vocab_size
    least = f"{2**20 * (of_layer + logits) * 4 / 1e9:.0f} GB"
    refused(f"{message} at least {least}", run_pretraining, flags, **size)
    with pytest.raises(UserError, match="the file is empty"):
        jobs.run(run_pretraining, flags | size | {"gradient_accumulation_steps": 4})
    evaluate = {"do_train": False, "do_eval": True, "eval_batch_size": 2**20}
    config = tiny.config(hidden_size=512, max_position_embeddings=64)
    flags |= pretraining.flags(tmp_path, config, input_file=flags["input_file"])
    refused(
        "eval_batch_size=1048576: a pass over 1,0", run_pretraining, flags, **evaluate
    )


def test_logits_over_a_vocabulary_that_cannot_fit_are_refused(tmp_path):
    """Of a small network, they are nearly all that a batch takes."""
    config = tiny.config(vocab_size=300_000, max_position_embeddings=64)
    flags = pretraining.flags(tmp_path, config, input_file=[empty_file(tmp_path)])
    flags |= {"max_predictions_per_seq": 20}
    refused(
        "train_batch_size=8192: a pass", run_pretraining, flags, train_batch_size=8192
    )
    with pytest.raises(UserError, match="the file is empty"):
        jobs.run(run_pretraining, flags | {"train_batch_size": 2048})


@pytest.mark.parametrize(
    ("name", "size", "changes"),
    [
        ("train_batch_size", 16, {"train_batch_size": [16]}),
        ("eval_batch_size", 1024, {"do_eval": True, "eval_batch_size": 1024}),
        ("predict_batch_size", 512, {"do_predict": True, "predict_batch_size": 512}),
    ],
)
def test_batches_of_a_fine_tuning_are_refused_before_it_trains(
    name, size, changes, tmp_path, monkeypatch
):
    monkeypatch.setattr(memory, "total", lambda: 50_000)
    monkeypatch.setattr(capacity, "check_network", lambda *given, **more: None)
    flags = given.of_classifier(tmp_path) | {"output_dir": str(tmp_path / "output")}
    message = f"{name}={size}: a pass over {size:,} rows of 8 tokens"
    refused(message, run_classifier, flags, do_train=True, **changes)


def test_batches_of_queries_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "total", lambda: 10**6)
    monkeypatch.setattr(capacity, "check_network", lambda *given, **more: None)
    lines = "".join("the first\n" for _ in range(200))
    featured = given.of_features(tmp_path) | {"output_file": str(tmp_path / "features")}
    (tmp_path / "text.txt").write_text(lines)
    refused(
        "batch_size=200: a pass over 200 rows",
        extract_features,
        featured,
        batch_size=200,
    )
    assert not (tmp_path / "features").exists()


def test_what_hardly_fits_is_warned_of(capsys):
    config = BertConfig(30522)
    capacity.check_batch("--n=1", 1000, 128, config)
    assert not capsys.readouterr().err
    capacity.check_batch("--n=1", 1000, 128, config, keeps="layers")
    assert capsys.readouterr().err == (
        "warning: --n=1: a pass over 1,000 rows of 128 tokens may need 170 GB of memory; "
        "this machine has 100 GB\n"
    )


def test_a_longer_table_that_cannot_fit_is_refused(tmp_path):
    given = {
        "input": [str(tests.GOLDEN / "checkpoint" / "bert_model.ckpt")],
        "output_dir": str(tmp_path / "out"),
    }
    for name in ("vocab_size", "max_position_embeddings"):
        with pytest.raises(UserError, match=f"^--{name}=2000000000: a network of "):
            jobs.run(convert_checkpoint, given | {name: 2 * 10**9})
        assert not (tmp_path / "out").exists()


OUT_OF_MEMORY = (
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3000000000 bytes"
)
ERRORS = {
    tf.errors.ResourceExhaustedError(
        None, None, OUT_OF_MEMORY
    ): r"is \(3 GB at once\); do",
    tf.errors.InternalError(None, None, "CUBLAS_STATUS_ALLOC_FAILED"): "there is; do",
    tf.errors.ResourceExhaustedError(
        None, None, "/home/x/a.pb.tmp; No space left on device"
    ): "a.pb.tmp; No space left on device; free some space, .* pass --xla_cache_dir=none",
}


@pytest.mark.parametrize("error", ERRORS)
def test_a_full_device_or_disk_is_said_in_one_line(error):
    with pytest.raises(UserError, match=ERRORS[error]):
        with capacity.advising("an update", "do this"):
            raise error


def test_other_errors_of_a_device_stay_as_they_are():
    with pytest.raises(tf.errors.InternalError):
        with capacity.advising("an update", "do this"):
            raise tf.errors.InternalError(None, None, "a bug")


def test_a_training_without_memory_names_the_flags_that_lower_it(monkeypatch):
    run = loop.Trainer.__new__(loop.Trainer)
    run.progress = loop._Progress()
    run.settings = loop.LoopSettings(10, 1, 0.1, batch_size=64, accumulation_steps=2)

    def updates(*arguments):
        raise tf.errors.ResourceExhaustedError(None, None, OUT_OF_MEMORY)

    run._updates = updates
    message = "--train_batch_size=64 .* --gradient_accumulation_steps=4 .* --recompute"
    with pytest.raises(UserError, match=message):
        run.run_updates(None, 1)
