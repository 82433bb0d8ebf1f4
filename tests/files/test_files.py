"""How files appear, and that one process at a time writes them."""

import multiprocessing
import os
import subprocess
import sys

import pytest

import tests
from errors import UserError
from files import local

ROOT = str(tests.ROOT)


def test_a_block_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(RuntimeError), local.replacing(str(path), "w") as file:
        file.write("new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_is_named():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        with local.replacing("/dev/full", "w") as file:
            file.write("x")


def test_temporary_names_are_taken_apart_and_others_are_not():
    name = os.path.basename(local.temporary_name("folder/model.ckpt-4"))
    assert local.temporary_parts(name) == ("model.ckpt-4", local.host(), os.getpid())
    bundle = f"{name}.data-00000-of-00001.tempstate123"
    assert local.temporary_parts(bundle) == local.temporary_parts(name)
    for others in ("writing-prompts", "a.tmp-12", "a~bert~host~12", ".a~bert~host~x"):
        assert local.temporary_parts(others) is None


def test_only_what_ended_processes_left_is_removed(tmp_path):
    path = tmp_path / "a"
    own = local.temporary_name(str(path))
    ended, other_host = own.replace(f"~{os.getpid()}", "~4194305"), f"{own}"
    other_host = ended.replace(local.host(), "elsewhere")
    running = own.replace(f"~{os.getpid()}", f"~{os.getppid()}")
    other_file = ended.replace(".a~", ".b~")
    strange = [str(tmp_path / n) for n in ("a", "a.tmp-4194305", "writing-a", ".a~b~")]
    kept = [other_host, running, other_file, *strange]
    for name in (ended, *kept):
        with open(name, "w") as file:
            file.write("x")
    local.remove_temporaries(str(path))
    assert sorted(str(p) for p in tmp_path.iterdir()) == sorted(kept)


def test_a_process_that_nobody_has_waited_for_has_ended(tmp_path):
    path = tmp_path / "a"
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        own = local.temporary_name(str(path))
        left_over = tmp_path / own.replace(f"~{os.getpid()}", f"~{process.pid}")
        left_over.touch()
        local.remove_temporaries(str(path))
        assert not left_over.exists()


HOLD = """
import sys
from files import local
with local.hold_lock(sys.argv[1], shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(path, kind="exclusive"):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def end(process):
    process.communicate()
    assert process.returncode == 0


def test_a_second_writer_is_told_who_has_it(tmp_path):
    path = tmp_path / "a"
    first = hold(path)
    with pytest.raises(UserError, match=f"process {first.pid} on {local.host()}"):
        local.hold_lock(str(path)).__enter__()
    with local.hold_lock(str(tmp_path / "b")):
        pass
    end(first)
    with local.hold_lock(str(path)):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_killed_holder_is_no_hindrance(tmp_path):
    first = hold(tmp_path / "a")
    first.kill()
    first.communicate()
    with local.hold_lock(str(tmp_path / "a")):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_taken_neither_through_a_link_nor_through_a_pipe(tmp_path):
    precious, lock = tmp_path / "precious", tmp_path / ".a~bert~lock"
    precious.write_text("precious")
    for make, shared in (
        (lambda: lock.symlink_to(precious), False),
        (lambda: lock.hardlink_to(precious), False),
        (lambda: lock.symlink_to(tmp_path / "new"), True),  # which would be made
        (lambda: os.mkfifo(lock), False),
    ):
        make()
        with pytest.raises(UserError, match="is for a lock, but|is not one; move it"):
            with local.hold_lock(str(tmp_path / "a"), shared=shared):
                pass
        lock.unlink()
    assert precious.read_text() == "precious" and not (tmp_path / "new").exists()


def test_the_lock_of_another_process_is_not_removed(tmp_path):
    path = tmp_path / "a"
    with local.hold_lock(str(path)):
        (tmp_path / ".a~bert~lock").unlink()  # by someone who cleans up
        second = hold(path)
    assert (tmp_path / ".a~bert~lock").exists()
    end(second)


def test_readers_share_and_keep_writers_out(tmp_path):
    path = tmp_path / "a"
    first, second = hold(path, "shared"), hold(path, "shared")
    with pytest.raises(UserError, match="in use by process"):
        local.hold_lock(str(path)).__enter__()
    end(first)
    with pytest.raises(UserError, match="in use by process"):
        local.hold_lock(str(path)).__enter__()
    end(second)
    with local.hold_lock(str(path)), pytest.raises(UserError, match=str(os.getpid())):
        local.hold_lock(str(path), shared=True).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_who_ended_is_not_named_as_a_holder(tmp_path):
    path = tmp_path / "a"
    first, second = hold(path, "shared"), hold(path, "shared")
    end(second)
    with pytest.raises(UserError, match=f"process {first.pid} on"):
        local.hold_lock(str(path)).__enter__()
    end(first)


def test_left_overs_go_where_locks_ask_for_a_file_open_for_writing(
    tmp_path, monkeypatch
):
    """As on NFS."""
    monkeypatch.setattr(local.fcntl, "flock", local.fcntl.lockf)
    path = tmp_path / "a"
    ended = local.temporary_name(str(path)).replace(f"~{os.getpid()}", "~4194305")
    with open(ended, "w") as file:
        file.write("x")
    local.remove_temporaries(str(path))
    assert list(tmp_path.iterdir()) == []


def test_names_of_many_bytes_fit(tmp_path):
    path = tmp_path / ("\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 80)
    with local.replacing(str(path), "w") as file:
        file.write("x")
    ended = local.temporary_name(str(path)).replace(f"~{os.getpid()}", "~4194305")
    with open(ended, "w") as file:
        file.write("x")
    local.remove_temporaries(str(path))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def _count(path, number):
    for _ in range(number):
        while True:
            try:
                with local.hold_lock(path):
                    with open(f"{path}.count") as file:
                        count = int(file.read())
                    with open(f"{path}.count", "w") as file:
                        file.write(str(count + 1))
                    break
            except UserError:
                pass


def test_no_two_processes_ever_hold_it(tmp_path):
    """The lock file is removed and made anew all the time: there it could fail."""
    path = str(tmp_path / "a")
    with open(f"{path}.count", "w") as file:
        file.write("0")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_count, args=(path, 300)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    with open(f"{path}.count") as file:
        assert file.read() == "900"


def test_a_file_system_without_locks_is_said_to_have_none(
    tmp_path, monkeypatch, capsys
):
    def no_locks(file, kind):
        raise OSError(local.errno.ENOLCK, "No locks available")

    monkeypatch.setattr(local.fcntl, "flock", no_locks)
    with local.hold_lock(str(tmp_path / "a")):
        pass
    assert "this file system has no locks" in capsys.readouterr().err
