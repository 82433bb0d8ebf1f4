"""Servers in a thread and in a process, a model that can fail, and what a client sends."""

import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time

import uvicorn

import tests
from serving import application, server
from serving.batcher import Limits
from serving.served_model import ServedModel
from serving.server_log import Log

PREDICT = "/v1/models/toy:predict"
_LIMITS, _LOG = Limits(), Log()


@contextlib.contextmanager
def serving(predictor, name="toy", limits=_LIMITS, more=(), log=_LOG, **options):
    """A server in a thread; gives its port.

    Args:
        more: further models by name.
    """
    predictors = {name: predictor, **dict(more)}
    models = {
        name: ServedModel(name, each, limits) for name, each in predictors.items()
    }
    app = application.make(models, log, **options)
    running = uvicorn.Server(server.config(app, log_config=log.of_errors))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not running.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield listening.getsockname()[1]
        finally:
            running.should_exit = True
            thread.join()


@contextlib.contextmanager
def command(folder, *flags, program=("predict.py",)):
    """`predict.py --serve` as a process: itself, its port, what it logs.

    Args:
        program: what Python runs.
    """
    words = [sys.executable, *program, f"--model_dir={folder}", "--serve=0"]
    with subprocess.Popen(
        [*words, "--model_name=toy", *flags],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tests.ROOT,
    ) as process:
        try:
            first, log = process.stderr.readline(), []
            reader = threading.Thread(target=lambda: log.extend(process.stderr))
            reader.start()
            address = r"Serving toy at http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends\)"
            yield process, int(re.search(address, first)[1]), log
            reader.join(30)
        finally:
            process.kill()


def send(port, body, path=PREDICT, method="POST", headers=None):
    """Status, content, headers."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
        if not isinstance(body, bytes | None):
            body = json.dumps(body).encode()
        client.request(method, path, body, headers or {})
        response = client.getresponse()
        content = response.read()
    if response.headers["Content-Type"] == "application/json":
        content = json.loads(content)
    return response.status, content, response.headers


class Faulty:
    """A model that fails on "bad"; notes its batches, which wait for `go`."""

    title = ""
    parts = {"text_a": "text"}
    defaults = {}
    required = ["text_a"]
    description = {"form": "label"}
    describe_request = staticmethod(str)

    def __init__(self):
        self.go = threading.Event()
        self.checked = 0
        self.batches = []

    def check(self, request, where):
        self.checked += 1

    def predict(self, requests, batch_size):
        texts = [request["text_a"] for request in requests]
        self.batches.append(texts)
        assert self.go.wait(30)
        if "bad" in texts:
            raise RuntimeError("secret of /home/me/model")
        return [{"predicted": text} for text in texts]
