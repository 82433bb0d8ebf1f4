"""Small runs of predict.py, for its tests."""

import contextlib
import io
import json
from collections.abc import Iterator

import pytest

import predict
from files import unfinished
from tests.killed import Killed


def asker(exported, capsysbinary, monkeypatch):
    """What runs the script on standard input and gives what it printed, parsed."""

    def call(form, stdin=b"", **changes):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        options = predict.Options(model_dir=exported(form), **changes)
        assert predict.main(options) is None
        out = capsysbinary.readouterr().out
        return [json.loads(line) for line in out.splitlines()]

    return call


@contextlib.contextmanager
def dying_at_a_note(after_it: bool) -> Iterator[None]:
    """Kills work that can be continued: before it notes its first rows, or after 128."""
    note = unfinished.Unfinished._write_note

    def write_note(job):
        if job.num_rows and not after_it:
            raise Killed
        note(job)
        if job.num_rows >= 128:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(unfinished.Unfinished, "_write_note", write_note)
        yield
