"""One training at a time in an output_dir, by a lock or, on gs://, a lease."""

import os

import numpy as np
import pytest

from training.storage import checkpoint
from training.storage.folder import Folder
from errors import UserError
from files import local, sources


def save(folder, step):
    tensors = {"kernel": np.zeros(3, np.float32), "global_step": np.int64(step)}
    checkpoint.save(folder, step, tensors, keep=1)


def test_a_second_training_is_told_who_has_the_folder(tmp_path):
    first, second = (Folder.open(str(tmp_path / "new" / "output")) for _ in range(2))
    with first.hold(print):
        before = sorted(tmp_path.rglob("*"))
        message = f"in use by process {os.getpid()} on {local.host()}, since 20"
        with pytest.raises(UserError, match=message):
            second.hold(print).__enter__()
        assert sorted(tmp_path.rglob("*")) == before
        save(first, 1)
    with second.hold(print):
        assert second.steps == [1]  # it looks again
    assert not list(tmp_path.rglob("*lock"))


def test_where_there_are_no_locks_the_last_to_come_has_the_folder(
    tmp_path, monkeypatch
):
    """As on gs://, where the machine that held it may be gone."""
    monkeypatch.setattr(sources, "is_remote", lambda path: True)
    said = []
    first, second = (Folder.open(str(tmp_path)) for _ in range(2))
    holds = first.hold(said.append)
    holds.__enter__()
    save(first, 1)
    with second.hold(said.append):
        (line,) = said
        assert f"taken over from process {os.getpid()} on {local.host()}, which" in line
        save(second, 2)
        message = (
            f"process {os.getpid()} on {local.host()} has taken over this training"
        )
        for folder in (first, first.child("best")):
            with pytest.raises(UserError, match=message):
                save(folder, 3)
        holds.__exit__(None, None, None)  # leaves the lease of the second
        save(second, 4)
    assert Folder.open(str(tmp_path)).steps == [4]
    with first.hold(said.append):
        assert len(said) == 1  # whoever ended by itself is not mentioned


def test_a_training_survives_one_that_was_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "is_remote", lambda path: True)
    first, second = (Folder.open(str(tmp_path)) for _ in range(2))
    with first.hold(print):
        with (
            pytest.raises(UserError, match="other settings"),
            second.hold(print),
        ):
            raise UserError("other settings")
        save(first, 1)
    assert Folder.open(str(tmp_path)).steps == [1]
