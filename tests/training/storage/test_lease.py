"""One training at a time in an output_dir, by a lock or, on gs://, a lease."""

import os

import numpy as np
import pytest

from training.storage import checkpoint, lease, run_folder
from errors import UserError
from files import local, sources


def save(folder, step):
    tensors = {"kernel": np.zeros(3, np.float32), "global_step": np.int64(step)}
    checkpoint.save(str(folder), step, tensors, keep=1)


def test_a_second_training_is_told_who_has_the_folder(tmp_path):
    directory = str(tmp_path / "new" / "output")
    with lease.held(directory, print):
        before = sorted(tmp_path.rglob("*"))
        message = f"in use by process {os.getpid()} on {local.host()}, since 20"
        with pytest.raises(UserError, match=message):
            lease.held(directory, print).__enter__()
        assert sorted(tmp_path.rglob("*")) == before
    with lease.held(directory, print):
        pass
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_where_there_are_no_locks_the_last_to_come_has_the_folder(
    tmp_path, monkeypatch
):
    """As on gs://, where the machine that held it may be gone."""
    monkeypatch.setattr(sources, "is_remote", lambda path: True)
    said = []
    first = lease.held(str(tmp_path), said.append)
    first.__enter__()
    save(tmp_path, 1)
    held_by_first, lease._leases = lease._leases, []  # as in another process
    with lease.held(str(tmp_path), said.append):
        (line,) = said
        assert f"taken over from process {os.getpid()} on {local.host()}, which" in line
        save(tmp_path, 2)
        held_by_second, lease._leases = lease._leases, held_by_first
        message = (
            f"process {os.getpid()} on {local.host()} has taken over this training"
        )
        with pytest.raises(UserError, match=message):
            save(tmp_path, 3)
        first.__exit__(None, None, None)  # leaves the lease of the second
        lease._leases = held_by_second
        save(tmp_path, 4)
    assert run_folder.steps(str(tmp_path)) == [4]
    with lease.held(str(tmp_path), said.append):
        assert len(said) == 1  # whoever ended by itself is not mentioned


def test_a_training_survives_one_that_was_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "is_remote", lambda path: True)
    with lease.held(str(tmp_path), print):
        ours, lease._leases = lease._leases, []  # as in another process
        with (
            pytest.raises(UserError, match="other settings"),
            lease.held(str(tmp_path), print),
        ):
            raise UserError("other settings")
        lease._leases = ours
        save(tmp_path, 1)
    assert run_folder.steps(str(tmp_path)) == [1]
