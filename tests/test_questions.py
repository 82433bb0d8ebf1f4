"""A start opens what it needs once: no program asks the same question of a file again."""

import fcntl
import os
import pathlib

import pytest

import tests
from training.backend import tf
from tests import file_operations, set_ups


@pytest.mark.parametrize("name", set_ups.ALL)
def test_a_set_up_asks_no_question_of_a_path_twice(name, tmp_path):
    set_up = set_ups.ALL[name]
    set_up.prepare(tmp_path)
    operations = set_up.operations(tmp_path)
    assert any(operation.is_question for operation in operations)
    again = file_operations.asked_again(operations, set_up.data)
    assert not again, file_operations.described(again)


def _ask(path):
    """Once by each way that there is; twice of whether it exists, and for its bytes."""
    assert os.path.exists(path) and tf.io.gfile.exists(path)
    assert os.path.isfile(path) and os.path.getsize(path) == 2
    assert pathlib.Path(path).read_bytes() == b"{}"
    with tf.io.gfile.GFile(path, "rb") as file:
        assert file.read() == b"{}"
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_a_question_is_seen_whoever_answers_it(tmp_path):
    """But what is beneath an answer, such as the `stat` of `isfile`, is none of its own."""
    path = tmp_path / "a.json"
    path.write_text("{}")
    with file_operations.recorded(str(tmp_path), str(tests.ROOT)) as operations:
        _ask(str(path))
    kinds = ["exists", "exists", "is a file", "stat", "read", "read", "list"]
    assert [operation.kind for operation in operations] == kinds
    again = file_operations.asked_again(operations)
    assert list(again) == ["exists a.json", "read a.json"]
    assert not file_operations.asked_again(operations, data=["a.json"])


def test_who_has_locked_a_folder_may_ask_once_more(tmp_path):
    def lock_and_look():
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.listdir(lock.parent)

    lock = tmp_path / "output" / ".run.json~lock"
    lock.parent.mkdir()
    with file_operations.recorded(str(tmp_path), str(tests.ROOT)) as operations:
        os.listdir(lock.parent)
        lock_and_look()
        assert not file_operations.asked_again(operations)
        lock_and_look()
    (several,) = file_operations.asked_again(operations).values()
    assert [str(each) for each in several] == ["list output"] * 2
