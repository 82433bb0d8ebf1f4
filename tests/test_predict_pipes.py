"""predict.py in a pipe: answers as rows come, ends while it is open."""

import io
import json
import os
import select
import signal
import subprocess
import threading
import time

import pytest

import predict
from errors import UserError
from tests import exports, jobs, tiers
from tests.prediction import asker


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return exports.maker(tmp_path_factory)


@pytest.fixture
def answer(exported, capsysbinary, monkeypatch):
    return asker(exported, capsysbinary, monkeypatch)


@pytest.mark.parametrize("to_file", [False, True])
def test_rows_before_a_bad_one_of_a_pipe_are_answered(
    answer, capsysbinary, tmp_path, to_file
):
    output = tmp_path / "answers.jsonl"
    stdin = b'{"text_a": "good"}\n{"text_a": "bad"}\n{"text": "a"}\n'
    changes = {"output_file": str(output)} if to_file else {}
    with pytest.raises(UserError) as error:
        answer("label", stdin, input_format="jsonl", **changes)
    assert str(error.value) == (
        "standard input:3: has no text_a; expected an object with text_a (a string); "
        "the rows before it were answered"
    )
    written = output.read_bytes() if to_file else capsysbinary.readouterr().out
    answers = [json.loads(line)["predicted"] for line in written.splitlines()]
    assert answers == ["positive", "negative"]


def test_endless_pipe_whose_reader_has_enough(exported, monkeypatch):
    """`yes good | predict.py | head -2`: memory does not grow, nobody complains."""
    from_script, output = os.pipe()
    rows = []

    def head():
        with open(from_script) as answers:
            rows.extend(answers.readline() for _ in range(2))

    with (
        subprocess.Popen(["yes", "good"], stdout=subprocess.PIPE, text=True) as endless,
        open(output, "w") as stdout,
    ):
        monkeypatch.setattr("sys.stdin", endless.stdout)
        monkeypatch.setattr("sys.stdout", stdout)
        reader = threading.Thread(target=head)
        reader.start()
        status = predict.main(predict.Options(model_dir=exported("label")))
        reader.join()
        endless.kill()
    assert [json.loads(row)["predicted"] for row in rows] == ["positive"] * 2
    assert status == 141


def test_a_pipe_is_answered_as_it_comes(exported, monkeypatch):
    """Whoever writes a row and waits for its answer gets it; the pipe stays open."""
    rows, to_script = os.pipe()
    from_script, output = os.pipe()
    answers = []

    def talk():
        with open(to_script, "wb", buffering=0) as asked:
            for text in ("good", "bad"):
                asked.write(f"{text}\n".encode())
                if not select.select([from_script], [], [], 10)[0]:
                    return
                answers.append(json.loads(os.read(from_script, 1000))["predicted"])

    with open(rows) as stdin, open(output, "w") as stdout, open(from_script):
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stdout", stdout)
        thread = threading.Thread(target=talk)
        thread.start()
        predict.main(predict.Options(model_dir=exported("label")))
        thread.join()
    assert answers == ["positive", "negative"]


def test_rows_that_trickle_do_not_wait_for_each_other(monkeypatch):
    def trickle():
        for number in range(20):
            time.sleep(0.03)
            yield number

    monkeypatch.setattr(predict, "_PATIENCE", 0.1)
    windows = list(predict._arriving(trickle(), 100))
    assert len(windows) > 1
    assert sum(windows, []) == list(range(20))
    assert list(predict._arriving(iter([]), 100)) == []


def test_input_that_breaks_off(exported, monkeypatch, capsysbinary):
    class Broken(io.BytesIO):
        def readline(self, size=-1):
            if self.tell():
                raise OSError(5, "Input/output error")
            return super().readline(size)

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Broken(b"good\nbad\n")))
    with pytest.raises(OSError, match="Input/output error"):
        predict.main(predict.Options(model_dir=exported("label")))
    assert capsysbinary.readouterr().out.count(b"positive") == 2


@pytest.mark.parametrize(
    "end", tiers.cases(["reader has enough", "Ctrl-C"], ["Ctrl-C"])
)
def test_end_while_the_pipe_is_open(exported, end):
    line = jobs.command("predict.py", {"model_dir": exported("label")})
    pipe = {"stdin": subprocess.PIPE, "bufsize": 0, "text": False}
    with jobs.started(line, **pipe) as process:
        try:
            process.stdin.write(b"good\n")
            assert json.loads(process.stdout.readline())["predicted"] == "positive"
            if end == "Ctrl-C":
                process.send_signal(signal.SIGINT)
            else:
                process.stdout.close()
                process.stdin.write(b"good\n")
            status = process.wait(30)
            said = process.stderr.read().decode()
        finally:
            process.kill()
    if end == "Ctrl-C":
        assert (status, said) == (130, "predict.py: interrupted\n")
    else:
        assert (status, said) == (141, "")


def test_a_line_typed_is_answered_at_once(exported, monkeypatch, capsys):
    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    class Typed(io.BytesIO):
        """Notes what was printed before each line was asked for."""

        def readline(self, size=-1):
            printed.append(capsys.readouterr().out.count("\n"))
            return super().readline(size)

    printed = []
    monkeypatch.setattr("sys.stdin", Terminal(Typed(b"good\nbad\n")))
    predict.main(predict.Options(model_dir=exported("label")))
    assert printed == [0, 1, 1]
