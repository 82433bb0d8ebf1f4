"""Tasks on several processes: in order, and never all of them at once."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

import tests
from errors import UserError
from text.generation import work

# Workers import this file, so it imports nothing that loads TensorFlow.


def number_of(path, number):
    """A task; the first waits until some others are done."""
    folder = pathlib.Path(path).parent
    end = time.monotonic() + 30
    while number == 0 and len(list(folder.glob("*.json"))) < 5:
        assert time.monotonic() < end
        time.sleep(0.01)
    if number == 13:
        raise UserError("thirteen")
    return {"number": number}


def tasks(folder, numbers):
    return [(1, (f"{folder}/task-{n}", number_of, n)) for n in numbers]


def test_outcomes_come_in_order_and_tasks_only_as_they_are_done(tmp_path):
    most = 0

    def handed_out():
        nonlocal most
        for number, task in enumerate(tasks(tmp_path, range(12))):
            most = max(most, number - len(list(tmp_path.glob("*.json"))))
            yield task

    with work.Workers(2) as workers:
        outcomes = workers.do_all(handed_out(), 12, "counting", "numbers")
    assert outcomes == [{"number": n} for n in range(12)]
    assert most <= 3


def test_the_first_mistake_is_raised_and_what_is_noted_stays(tmp_path):
    with pytest.raises(UserError, match="thirteen"), work.Workers(2) as workers:
        workers.do_all(tasks(tmp_path, range(10, 15)), 5, "counting", "numbers")
    assert (tmp_path / "task-12.json").exists()
    assert not (tmp_path / "task-13.json").exists()


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_noted_is_handed_to_nobody(tmp_path, count, monkeypatch):
    for number in range(6):
        (tmp_path / f"task-{number}.json").write_text(f'{{"number": {number + 70}}}')
    monkeypatch.setattr(work.Workers, "_submit", lambda *_: 1 / 0)
    with work.Workers(count) as workers:
        outcomes = workers.do_all(tasks(tmp_path, range(6)), 6, "counting", "numbers")
    assert [outcome["number"] for outcome in outcomes] == list(range(70, 76))


def _waited(number):
    time.sleep(0.1 if number % 3 == 0 else 0)
    return number


@pytest.mark.parametrize("count", [1, 3])
def test_results_come_in_order_and_few_are_ahead(count):
    begun = []

    def numbers():
        for number in range(12):
            begun.append(number)
            yield (number,)

    with work.Workers(count) as workers:
        for place, number in enumerate(workers.results(_waited, numbers())):
            assert number == place
            assert len(begun) <= place + count + 2


def _shared_files(number):
    del number
    return "/dev/shm/" in pathlib.Path("/proc/self/maps").read_text()


def test_processes_share_nothing_that_outlives_them():
    """What has a name in shared memory stays there if all are killed at once."""
    with work.Workers(2) as workers:
        assert list(workers.results(_shared_files, [(0,), (1,)])) == [False, False]
    assert not _shared_files(0)


SIGNALS_OF_A_WORKER = """
import signal
from text.generation import work

if __name__ == "__main__":
    with work.Workers(2) as workers:
        calls = [workers._start(signal.pthread_sigmask, signal.SIG_BLOCK, ()) for _ in "12"]
        print(all(signal.SIGINT in call.result() for call in calls))
"""


def test_no_worker_hears_ctrl_c(tmp_path):
    """Not even the first, whose start begins Python's tracker of resources."""
    (tmp_path / "program.py").write_text(SIGNALS_OF_A_WORKER)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env=os.environ | {"PYTHONPATH": str(tests.ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "True\n", done.stderr
