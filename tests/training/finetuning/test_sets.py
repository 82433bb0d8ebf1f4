"""Files of rows: used again, made again where damaged, and nobody else's."""

import concurrent.futures
import json
import pathlib
import random
import threading
import types

import pytest

from training.run import compiler, distribution
from training.storage.folder import FOUND, Folder
from errors import UserError
from files import local
from tests import tiny
from tests.killed import Killed
from tests.log import Log
from tests.programs import parity
from text.records import rows
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPiece
from training.finetuning import sets


@pytest.fixture
def folder(tmp_path):
    rng = random.Random(1)
    for split, lines in (("train", 40), ("dev", 30)):
        texts = [" ".join(rng.choices("ab", k=rng.randint(1, 9))) for _ in range(lines)]
        (tmp_path / f"{split}.txt").write_text("\n".join(texts) + "\n")
    tiny.write(tmp_path, ["a", "b"], tiny.config(vocab_size=8))
    return tmp_path


def opened(folder, max_seq_length=16, compiles=False):
    given = types.SimpleNamespace(
        data_dir=str(folder),
        output_dir=str(folder / "output"),
        max_seq_length=max_seq_length,
        length_buckets=True,
        uses_tpu=False,
        compiles=compiles,
    )
    tokenizer = WordPiece(Vocabulary.load(str(folder / "vocab.txt")))
    task = parity.Parity(given, tokenizer)
    output = Folder.open(given.output_dir)
    return sets.Sets(task, given, output, distribution.make("one"), Log())


def read(folder, split, **changes):
    """A set as one command finds it, and what that said."""
    these = opened(folder, **changes)
    try:
        return these.read(split), these.log.said
    finally:
        these.close()


@pytest.mark.parametrize("split", ["train", "dev"])
def test_rows_are_written_once_and_noted_every_time(folder, split):
    first, _ = read(folder, split)
    before = pathlib.Path(first.file.path).stat()
    again, _ = read(folder, split)
    assert pathlib.Path(first.file.path).stat().st_mtime_ns == before.st_mtime_ns
    assert again.notes == first.notes
    assert len(again.example_numbers) == (30 if split == "dev" else 0)
    other, _ = read(folder, split, max_seq_length=12)
    assert other.file.layout.max_seq_length == 12
    assert pathlib.Path(first.file.path).stat().st_mtime_ns != before.st_mtime_ns
    hidden = [path.name for path in (folder / "output").glob(".*")]
    assert hidden == [FOUND]  # neither locks nor temporaries


def test_xla_has_fewer_lengths_to_compile(folder, monkeypatch):
    def lengths(**changes):
        file = read(folder, "train", **changes)[0].file
        return file.training_lengths(4, seed=1, num_batches=500)

    assert lengths() == [8, 12]
    assert lengths(compiles=True) == [12]
    monkeypatch.setattr(compiler, "TOKENS_PER_PROGRAM", 100)
    assert lengths(compiles=True) == [8, 12]


@pytest.mark.parametrize("split", ["train", "dev"])
def test_no_flipped_bit_gets_through(folder, split):
    path = pathlib.Path(read(folder, split)[0].file.path)
    whole = path.read_bytes()
    rng = random.Random(5)
    for bit in rng.sample(range(8 * len(whole)), 10):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        _, said = read(folder, split)
        assert f"{path}: damaged; rebuilding it" in said
        assert path.read_bytes() == whole


def test_damaged_note_is_no_traceback(folder):
    path = pathlib.Path(read(folder, "train")[0].file.path)
    whole, note = path.read_bytes(), pathlib.Path(f"{path}.json")
    text = note.read_bytes()
    rng = random.Random(6)
    for bit in rng.sample(range(8 * len(text)), 30):
        damaged = bytearray(text)
        damaged[bit // 8] ^= 1 << bit % 8
        note.write_bytes(damaged)
        read(folder, "train")
        assert path.read_bytes() == whole


@pytest.mark.parametrize("name", ["train.tf_record", "train.tf_record.json"])
def test_file_of_somebody_else_is_not_replaced(folder, name):
    (folder / "output").mkdir()
    (folder / "output" / name).write_bytes(b'["mine"]')
    with pytest.raises(UserError, match=f"{name}: this program did not write it"):
        read(folder, "train")
    assert (folder / "output" / name).read_bytes() == b'["mine"]'


@pytest.mark.parametrize("earlier", [None, 12])
@pytest.mark.parametrize("moment", range(3))
def test_a_killed_writer_leaves_nothing_that_misleads(
    folder, monkeypatch, moment, earlier
):
    """Whatever it was doing, and whatever had been there."""
    if earlier:
        read(folder, "train", max_seq_length=earlier)
    calls = iter(range(9))

    def or_killed(function):
        def call(*arguments):
            if next(calls) == moment:
                raise Killed
            return function(*arguments)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(sets, "_write_note", or_killed(sets._write_note))
        patched.setattr(rows, "write", or_killed(rows.write))
        with pytest.raises(Killed):
            read(folder, "train")
    note = folder / "output" / "train.tf_record.json"
    if note.exists() and "sha256" in (described := json.loads(note.read_text())):
        record = folder / "output" / "train.tf_record"
        assert described["sha256"] == sets._sha256(str(record))
    for length in (16, 12):
        made, _ = read(folder, "train", max_seq_length=length)
        assert made.file.layout.max_seq_length == length and len(made.file) == 40


def test_rows_that_are_in_use_are_shared_but_not_replaced(folder):
    training_, evaluating = opened(folder), opened(folder)
    for these in (training_, evaluating):
        assert len(these.read("dev").file) == 30
    path = folder / "output" / "eval.tf_record"
    before = path.read_bytes()
    training_.close()
    with pytest.raises(UserError, match=r"eval.tf_record: in use by process \d+ on"):
        read(folder, "dev", max_seq_length=12)
    assert path.read_bytes() == before
    evaluating.close()
    read(folder, "dev", max_seq_length=12)


def test_who_comes_while_rows_are_written_waits_for_them(folder):
    these, got = opened(folder), []
    (folder / "output").mkdir()
    thread = threading.Thread(target=lambda: got.append(these.read("dev")))
    with local.hold_lock(str(folder / "output" / "eval.tf_record")):
        thread.start()
        while not any("waiting for another process" in s for s in these.log.said):
            assert thread.is_alive()
    thread.join()
    assert len(got[0].file) == 30
    these.close()


def test_who_loses_the_rows_before_reading_them_makes_them_again(folder, monkeypatch):
    locked, lost = sets._try_lock, []

    def late(stack, path, *, shared):
        if shared and not lost:  # another process comes between, and ends
            lost.append(path)
            read(folder, "train", max_seq_length=12)
            return UserError("in use")
        return locked(stack, path, shared=shared)

    monkeypatch.setattr(sets, "_try_lock", late)
    made, _ = read(folder, "train")
    assert lost and made.file.layout.max_seq_length == 16 and len(made.file) == 40


def test_commands_that_start_together_do_not_spoil_each_others_rows(folder):
    Folder.open(str(folder / "output")).claim()
    several = [opened(folder) for _ in range(6)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda these: these.read("dev"), several))
    for these, one in zip(several, made, strict=True):
        assert one.notes == made[0].notes and len(one.file) == 30
        these.close()
