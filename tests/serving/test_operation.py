"""The server as those meet it who operate it: probes, counts, limits, signals, logs."""

import asyncio
import concurrent.futures
import contextlib
import json
import re
import shutil
import signal
import socket
import threading

import jsonschema
import pytest
import uvicorn

import predict
from errors import UserError
from serving import application, checksums, request_bodies, server
from serving.batcher import Batcher, Limits
from serving.options import ServingOptions
from serving.predictor import Predictor
from serving.served_model import ServedModel
from serving.server_log import Log
from tests import exports, tiers
from tests.serving.clients import PREDICT, Faulty, command, send, serving
from tests.serving.test_server_load import wait_until

TEXTS = {"text": "Ada saw good [MASK]", "list": ["Ada", "good", "Hamburg"]}


def samples(port):
    """The numbers of /metrics by name and labels."""
    content = send(port, None, "/metrics", "GET")[1].decode()
    lines = [line for line in content.splitlines() if not line.startswith("#")]
    pairs = (re.fullmatch(r"(\w+\{.*\}) ([\d.]+)", line).groups() for line in lines)
    return {name: float(value) for name, value in pairs}


def test_limits_have_their_own_statuses_and_are_counted():
    model, limits = Faulty(), Limits(queue_size=1, timeout_seconds=0.5)
    with contextlib.ExitStack() as stack:
        clients = stack.enter_context(concurrent.futures.ThreadPoolExecutor(8))
        port = stack.enter_context(serving(model, limits=limits))
        assert send(port, None, "/healthz", "GET")[:2] == (200, {"status": "ok"})
        ready = send(port, None, "/readyz", "GET")[:2]
        assert ready == (200, {"models": {"toy": "ready"}})
        given_up = [clients.submit(send, port, {"instances": ["a", "b"]})]
        wait_until(lambda: model.batches)
        given_up.append(clients.submit(send, port, {"instances": ["c"]}))
        wait_until(lambda: send(port, None, "/readyz", "GET")[0] == 503)
        assert send(port, None, "/healthz", "GET")[0] == 200
        status, content, headers = send(port, {"instances": ["d"]})
        assert (status, headers["Retry-After"]) == (429, "1")
        assert content == {"error": "too many requests wait for the model; try again"}
        for request in given_up:
            status, content, headers = request.result()
            assert (status, headers["Retry-After"]) == (503, "1")
            assert content["error"].startswith("the model took too long; ")
        assert not samples(port)['bert_waiting_requests{model="toy"}']  # given up
        model.go.set()
        assert send(port, {"instances": ["e"]})[0] == 200
        assert send(port, b" " * (request_bodies.MAX_BYTES + 1))[0] == 413
        found = samples(port)
    assert ["c"] not in model.batches  # nobody waits for it any more
    totals = {
        status: found.get(f'bert_requests_total{{model="toy",status="{status}"}}')
        for status in (200, 413, 429, 503)
    }
    assert totals == {200: 1, 413: 1, 429: 1, 503: 2}
    assert found['bert_rejected_total{model="toy",reason="queue_full"}'] == 1
    assert found['bert_rejected_total{model="toy",reason="timeout"}'] == 2
    assert found['bert_request_seconds_count{model="toy"}'] == 5
    assert found['bert_request_seconds_bucket{model="toy",le="0.25"}'] == 3
    assert found['bert_request_seconds_bucket{model="toy",le="+Inf"}'] == 5
    assert found['bert_request_seconds_sum{model="toy"}'] > 1
    assert found['bert_batch_rows_sum{model="toy"}'] == 3  # a and b, e
    assert found['bert_batch_rows_bucket{model="toy",le="1"}'] == 1
    assert found['bert_waiting_requests{model="toy"}'] == 0


def test_one_large_request_does_not_keep_the_others_waiting():
    async def scene():
        model = Faulty()
        batcher = Batcher(model, Limits(batch_size=2))
        large = asyncio.create_task(batcher.predict([{"text_a": "x"}] * 40))
        while not model.batches:
            await asyncio.sleep(0.01)
        small = asyncio.create_task(batcher.predict([{"text_a": "small"}]))
        await asyncio.sleep(0)
        model.go.set()
        assert await small == [{"predicted": "small"}]
        assert not large.done()
        assert await large == [{"predicted": "x"}] * 40
        await batcher.close()
        return model.batches

    batches = asyncio.run(scene())
    assert all(batch.count("x") <= 2 for batch in batches)
    assert ["small"] in [batch[-1:] for batch in batches[:3]]


@pytest.mark.parametrize("form", tiers.cases(exports.FORMS, ["label", "span"]))
def test_openapi_describes_what_goes_in_and_out(form, port):
    status, document, _ = send(port(form), None, "/openapi.json", "GET")
    assert status == 200 and document["openapi"].startswith("3.1")
    described = document["paths"][PREDICT]["post"]
    schemas = [described["requestBody"]["content"]["application/json"]["schema"]]
    for code in ("200", "400"):
        content = described["responses"][code]["content"]["application/json"]
        schemas.append({**document, **content["schema"]})
    asked, answered, refused = map(jsonschema.Draft202012Validator, schemas)
    parts = send(port(form), None, "/v1/models/toy/metadata", "GET")[1]["metadata"]
    parts = parts["signature_def"]["signature_def"]["serving_default"]["inputs"]
    kinds = {
        name: "list" if len(tensor["tensor_shape"]["dim"]) > 1 else "text"
        for name, tensor in parts.items()
    }
    instance = {name: TEXTS[kind] for name, kind in kinds.items()}
    for body in (
        {"instances": [instance, instance]},
        {"inputs": {name: [value] for name, value in instance.items()}},
    ):
        asked.validate(body)
        status, content, _ = send(port(form), body)
        assert status == 200
        answered.validate(content)
        spoiled = {name: [None] for name in content}
        assert not answered.is_valid(spoiled) and not answered.is_valid({})
    for bad in ({"instances": [{}]}, {"instances": [3]}, {"inputs": 3}, {}):
        assert not asked.is_valid(bad)
        status, content, _ = send(port(form), bad)
        assert status == 400
        refused.validate(content)


def test_several_models_answer_under_their_names(predictor):
    with serving(predictor("label"), more={"other": predictor("number")}) as port:
        page = send(port, None, "/?model=other", "GET")[1].decode()
        assert '"name": "other", "others": ["toy"]' in page
        assert send(port, None, "/?model=third", "GET")[0] == 404
        body = {"instances": ["four"]}
        assert send(port, body)[1]["predictions"][0]["predicted"] == "negative"
        status, content, _ = send(port, body, "/v1/models/other:predict")
        assert content == {"predictions": [{"predicted": 4.0}]}
        paths = send(port, None, "/openapi.json", "GET")[1]["paths"]
        assert {PREDICT, "/v1/models/other:predict"} <= paths.keys()
        counted = 'bert_requests_total{model="%s",status="200"}'
        assert [samples(port)[counted % name] for name in ("toy", "other")] == [1, 1]


def test_flags_of_the_command_reach_the_models(tmp_path, monkeypatch):
    folders = [exports.write(tmp_path / form, form) for form in ("label", "number")]
    served = {}

    def make(models, log, hosts):
        served.update(models)

    async def serve(self, sockets):
        pass

    monkeypatch.setattr(application, "make", make)
    monkeypatch.setattr(uvicorn.Server, "serve", serve)
    limits = {"batch_size": 5, "queue_size": 7, "timeout_seconds": 3.0}
    more = [f"other={folders[1]}"]
    own = {
        "model_dir": folders[0],
        "serve": 0,
        "model_name": "toy",
        "more_models": more,
    }
    predict.main(predict.Options(**own, **limits))
    forms = {name: model._first.description["form"] for name, model in served.items()}
    assert forms == {"toy": "label", "other": "number"}
    assert {model._limits for model in served.values()} == {Limits(**limits)}


def test_asked_to_reload_while_it_reloads_it_does_so_once_more():
    """The files may have changed since it read them. Meanwhile, the loop goes on."""
    go, loaded = threading.Event(), []

    def load(name, folder):
        loaded.append(name)
        assert go.wait(30)
        return Faulty()

    async def scene():
        model = ServedModel("toy", Faulty(), Limits())
        model.start()
        reloads = server._Reloads({"toy": model}, {"toy": ""}, load, Log())
        reloads.begin()
        while not loaded:
            await asyncio.sleep(0.01)
        for _ in range(3):
            reloads.begin()
        go.set()
        await asyncio.wait_for(reloads._running, 30)
        await model.batcher.close()
        return model.counts.reloads

    assert asyncio.run(scene()) == {"ok": 2}
    assert loaded == ["toy", "toy"]


def test_folder_that_changes_while_it_is_loaded(tmp_path, monkeypatch):
    folder = exports.write(tmp_path, "label")
    check = checksums.check_model

    def check_late(*arguments):
        exports.describe(tmp_path, {"form": "label", "inputs": {"text_a": "text"}})
        check(*arguments)

    monkeypatch.setattr(checksums, "check_model", check_late)
    with pytest.raises(UserError, match=f"^{folder}: another export was written there"):
        Predictor(folder)


def test_a_reload_loses_no_request_and_sigterm_answers_what_was_accepted(tmp_path):
    first, second, model = (tmp_path / name for name in ("first", "second", "model"))
    exports.write(first, "label")
    exports.write(second, "number")
    shutil.copytree(first, model)
    ends, answers = threading.Event(), []

    def ask(port):
        while not ends.is_set():
            answers.append(send(port, {"instances": ["secret"]})[:2])

    def reload(source):
        shutil.rmtree(model)
        shutil.copytree(source, model)
        process.send_signal(signal.SIGHUP)

    with command(model, "--json_log") as (process, port, log):
        with concurrent.futures.ThreadPoolExecutor(200) as clients:
            asking = [clients.submit(ask, port) for _ in range(200)]
            wait_until(lambda: len(answers) > 400)
            reload(second)
            wait_until(lambda: any("Reloaded toy" in line for line in log))
            (second / "export.json").write_text("{}")
            reload(second)
            wait_until(lambda: any("was not reloaded" in line for line in log))
            number = len(answers)
            wait_until(lambda: len(answers) > number + 400)
            ends.set()
            for each in asking:
                each.result()
        found = samples(port)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 23"
            client.sendall(head.encode() + b"\r\n\r\n")
            send(port, None, "/healthz", "GET")  # so the head was read, too
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(ConnectionError):
                wait_until(lambda: send(port, None, "/healthz", "GET") is None)
            client.sendall(b'{"instances": ["last"]}')
            assert client.recv(12) == b"HTTP/1.1 200"
        assert process.wait(30) == 0
    assert {status for status, _ in answers} == {200}
    kinds = [type(content["predictions"][0]["predicted"]) for _, content in answers]
    assert kinds[0] is str and kinds[-1] is float
    assert found['bert_reloads_total{model="toy",result="ok"}'] == 1
    assert found['bert_reloads_total{model="toy",result="failed"}'] == 1
    requests = found['bert_requests_total{model="toy",status="200"}']
    assert requests == found['bert_request_seconds_count{model="toy"}'] == len(answers)
    assert not any("secret" in line for line in log)
    log = [json.loads(line) for line in log]
    assert sum(line.get("instances") == 1 for line in log) == len(answers) + 1
    assert {"method": "POST", "path": PREDICT, "status": 200, "model": "toy"} in [
        {name: line.get(name) for name in ("method", "path", "status", "model")}
        for line in log
    ]
    assert log[-1]["message"] == "Stopped"
    assert not {"/healthz", "/metrics"} & {line.get("path") for line in log}


def test_a_hang_up_during_the_first_load_loads_again_after_it():
    """The export may have been replaced after it was read."""
    loads, ignored = [], []

    def load(name, folder):
        loads.append(folder)
        if len(loads) == 1:
            signal.raise_signal(signal.SIGHUP)
        else:
            signal.raise_signal(signal.SIGTERM)
        return Faulty()

    before = signal.signal(signal.SIGHUP, lambda *_: ignored.append(True))
    late = threading.Timer(10, signal.raise_signal, [signal.SIGTERM])
    late.start()
    try:
        flags = ServingOptions(serve=0)
        server.run(flags, {"toy": "folder"}, load)
    finally:
        late.cancel()
        signal.signal(signal.SIGHUP, before)
    assert (loads, ignored) == (["folder"] * 2, [])


# Raises the signal where the program that follows first asks for TensorFlow.
HANG_UP = """
import importlib.abc, runpy, signal, sys

class HangUp(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "tensorflow":
            signal.raise_signal(signal.SIGHUP)

sys.meta_path.insert(0, HangUp())
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_hang_up_while_tensorflow_is_imported_does_not_end_the_server(tmp_path):
    """The model is read after that, so there is nothing to load again."""
    folder = exports.write(tmp_path, "label")
    program = "-c", HANG_UP, "predict.py"
    with command(folder, program=program) as (process, port, log):
        assert send(port, {"instances": ["good"]})[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert not any("Reload" in line for line in log)


def test_what_the_model_raises_is_in_the_log_as_json(capfd):
    model = Faulty()
    model.go.set()
    with serving(model, log=Log(as_json=True)) as port:
        assert send(port, {"instances": ["bad"]})[0] == 500
    lines = map(json.loads, capfd.readouterr().err.splitlines())
    (error,) = (line for line in lines if line["level"] == "error")
    assert error["traceback"].endswith("RuntimeError: secret of /home/me/model\n")
