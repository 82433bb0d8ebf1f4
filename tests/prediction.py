"""Small runs of predict.py, for its tests."""

import io
import json

import predict


def asker(exported, capsysbinary, monkeypatch):
    """What runs the script on standard input and gives what it printed, parsed."""

    def call(form, stdin=b"", **changes):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        options = predict.Options(model_dir=exported(form), **changes)
        assert predict.main(options) is None
        out = capsysbinary.readouterr().out
        return [json.loads(line) for line in out.splitlines()]

    return call
