"""create_pretraining_data.py as a process: workers, kills, locks, limits, a full disk."""

import gzip
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

import pytest

from files import local
from tests.records import CORPUS, ROOT, TEXT, VOCAB_FILE, make, start, write

pytestmark = pytest.mark.usefixtures("in_a_folder", "no_fsync")

MANY_TASKS = ROOT / "tests" / "programs" / "generate_many_tasks.py"


@pytest.mark.parametrize(
    "flags, status, message",
    [
        ([], 2, "--input_file, --output_file required"),
        (
            ["--input_file=bad.txt", "--output_file=o", "--num_workers=2"],
            1,
            "error: bad.txt:1: not UTF-8",
        ),
    ],
    ids=str,
)
def test_a_mistake_ends_in_one_line(flags, status, message):
    write("bad.txt", b"\xff\n")
    process = start(*flags)
    said, complained = process.communicate(timeout=60)
    assert process.returncode == status and said == ""
    assert complained.startswith(f"create_pretraining_data.py: {message}")
    assert complained.count("\n") == 1
    assert os.listdir() == ["bad.txt"]


# Beside the text that the release makes its records of, packed text, which one process
# unpacks for the others.
PACKED = "../packed.gz"
FLAGS = (
    f"--input_file={CORPUS},{PACKED}",
    "--output_file=out@2",
    "--max_seq_length=64",
    "--dupe_factor=2",
)


def outputs():
    """Names and contents of what stands under a final name."""
    return {
        path.name: path.read_bytes()
        for path in pathlib.Path().iterdir()
        if path.is_file() and not local.is_own(path.name)
    }


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """The text, packed; beside the folders of the tests."""
    path = tmp_path_factory.getbasetemp() / "packed.gz"
    path.write_bytes(gzip.compress(CORPUS.read_bytes(), mtime=0))
    os.utime(path, (1, 1))


@pytest.fixture(scope="module")
def undisturbed(packed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    process = start(*FLAGS, "--num_workers=1", program=MANY_TASKS, cwd=folder)
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 0, complained
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_bytes_do_not_depend_on_the_workers(undisturbed):
    """Here with three, and with two where the next but one is not killed."""
    process = start(*FLAGS, "--num_workers=3", program=MANY_TASKS)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert outputs() == undisturbed
    assert sorted(os.listdir()) == sorted(undisturbed)


WORK = pathlib.Path("out-00000-of-00002.work")


def is_killed_when(condition, undisturbed):
    """Starts the command and kills it if that becomes true; returns whether it did.

    All the while, what stands under a final name must be whole.
    """

    def check_what_stands():
        for name, content in outputs().items():
            assert content == undisturbed[name], f"{name} is half written"

    process = start(*FLAGS, "--num_workers=2", program=MANY_TASKS)
    while process.poll() is None and not condition():
        check_what_stands()
        time.sleep(0.005)
    process.kill()  # the parent alone: the others end by themselves
    _, complained = process.communicate(timeout=30)
    check_what_stands()
    assert process.returncode in (0, -signal.SIGKILL), complained
    return process.returncode != 0


@pytest.mark.exhaustive
def test_killed_while_unpacking_it_ends_with_the_same_bytes(undisturbed):
    plain = -(-CORPUS.stat().st_size // 2_000)

    def tokenized():
        return len(list(WORK.glob("piece-*.json")))

    # Amid the plain text and the packed text.
    for pieces in (plain // 2, plain + plain // 5):
        assert is_killed_when(lambda pieces=pieces: tokenized() >= pieces, undisturbed)
        assert tokenized() >= pieces and not (WORK / "corpus.json").exists()
    assert not is_killed_when(lambda: False, undisturbed)
    assert outputs() == undisturbed
    assert sorted(os.listdir()) == sorted(undisturbed)


def group_members(group):
    """Processes of a group that are still there."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = pathlib.Path(f"/proc/{name}/stat").read_text().rpartition(")")[2]
        except OSError:
            continue
        state, _, its_group = fields.split()[:3]
        if int(its_group) == group and state != "Z":
            found.append(int(name))
    return found


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def start_long():
    """Starts a run that lasts and waits until its workers are at work."""
    process = start(*FLAGS, "--dupe_factor=400", "--num_workers=2", program=MANY_TASKS)
    wait_for(lambda: list(WORK.glob("plan-*.json")))
    return process, WORK


def test_ctrl_c_stops_in_one_line_and_can_go_on(packed):
    process, folder = start_long()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of them
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [s for s in complained.splitlines() if not s.startswith(("1/3", "2/3"))] == [
        "generate_many_tasks.py: interrupted; run the same command again to continue"
    ]
    wait_for(lambda: not group_members(process.pid), seconds=10)
    assert os.listdir() == [str(folder)]
    assert (folder / "origin.json").exists()


def test_a_killed_worker_is_reported(packed):
    process, _ = start_long()
    workers = [pid for pid in group_members(process.pid) if pid != process.pid]
    command = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_text() for pid in workers}
    worker = next(pid for pid, line in command.items() if "spawn_main" in line)
    os.kill(worker, signal.SIGKILL)
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "error: a worker process was killed from outside" in complained
    assert "Traceback" not in complained


def test_one_process_at_a_time_writes_an_output_until_it_and_its_workers_end(packed):
    first, folder = start_long()
    assert len(group_members(first.pid)) > 2
    second = (f"--input_file={CORPUS}", "--output_file=new,out-00001-of-00002")
    for flags in (second, (*second, "--overwrite"), (*FLAGS, "--overwrite")):
        process = start(*flags)
        _, complained = process.communicate(timeout=60)
        assert process.returncode == 1, complained
        assert f"in use by process {first.pid} on " in complained
        assert complained.count("\n") == 1
    assert first.poll() is None
    assert [name for name in os.listdir() if not name.startswith(".")] == [str(folder)]
    first.kill()
    first.wait()
    wait_for(lambda: not group_members(first.pid), seconds=10)
    first.communicate()
    # What was killed holds nothing any more; its folder and the free name are no matter.
    process = start(*second)
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 0, complained
    assert set(outputs()) == {"new", "new.description.json", "out-00001-of-00002"}


@pytest.mark.parametrize(
    "hard, message",
    [
        (600, ""),
        (300, "files open here, which allows 43 outputs; use fewer, or raise the"),
    ],
)
def test_as_many_outputs_as_files_may_be_open(hard, message):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))

    flags = (f"--input_file={CORPUS}", "--output_file=o@100", "--num_workers=1")
    process = subprocess.run(
        [sys.executable, ROOT / "create_pretraining_data.py", *flags]
        + [f"--vocab_file={VOCAB_FILE}"],
        capture_output=True,
        text=True,
        preexec_fn=limit,
    )
    assert process.returncode == (1 if message else 0), process.stderr
    assert message in process.stderr
    assert len(os.listdir()) == (0 if message else 101)


def test_outputs_whose_long_names_begin_alike():
    write("text.txt", TEXT)
    make(output_file=[f"{'n' * 120}@3"], dupe_factor=5)
    assert len(os.listdir()) == 5


FULL = """
import errno, os, sys
import command_line, create_pretraining_data
from text.corpus import store
def fail(*_):
    raise OSError(errno.{0}, os.strerror(errno.{0}))
store.join = fail
command_line.run(create_pretraining_data.main, create_pretraining_data.Options)
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ENOSPC", "the disk is full; free some space and run"),
        ("EDQUOT", "the disk quota is reached; free some space and run"),
        ("EFBIG", "a file is longer than is allowed here; raise the limit"),
    ],
)
def test_a_full_disk_keeps_what_is_finished(name, message):
    write("full.py", FULL.format(name))
    flags = (f"--input_file={CORPUS}", "--output_file=o/out", "--num_workers=1")
    process = start(*flags, program="full.py")
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 1
    assert complained.splitlines()[-1].startswith(
        f"full.py: error: {os.getcwd()}/o: {message}"
    )
    assert "Traceback" not in complained
    assert pathlib.Path("o/out.work/piece-000000.tokens").exists()
    assert os.listdir("o") == ["out.work"]
