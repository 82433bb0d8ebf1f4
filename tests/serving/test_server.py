"""serving/server.py: the JSON endpoint as its clients meet it, many of them, rude ones."""

import asyncio
import concurrent.futures
import contextlib
import functools
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import uvicorn

import predict
import tests
from serving import server
from serving.predictor import Predictor
from tests import exports
from text.errors import UserError

ROOT = tests.ROOT
PREDICT = "/v1/models/toy:predict"


@contextlib.contextmanager
def serving(predictor, name="toy", **options):
    """A server in a thread; gives its port."""
    running = uvicorn.Server(server.config(server.app(predictor, name, **options)))
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


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    return functools.cache(
        lambda form: Predictor(exports.write(tmp_path_factory.mktemp(form), form))
    )


@pytest.fixture(scope="module")
def port(predictor):
    """The port of a server of a form, which stays up."""
    with contextlib.ExitStack() as servers:
        yield functools.cache(
            lambda form: servers.enter_context(serving(predictor(form)))
        )


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


def test_instances_become_predictions(port):
    positive = {
        "predicted": "positive",
        "probabilities": {"negative": 0.1, "positive": 0.9},
    }
    body = {"signature_name": "serving_default", "instances": [{"text_a": "good 🐈"}]}
    assert send(port("label"), body)[:2] == (200, {"predictions": [positive]})
    # A single part goes without its name, as in TensorFlow Serving.
    status, content, _ = send(port("label"), {"instances": ["good", "bad"]})
    assert [p["predicted"] for p in content["predictions"]] == ["positive", "negative"]
    status, content, _ = send(port("tags"), {"instances": [["Ada"], ["a", "b"], []]})
    assert [p["tags"] for p in content["predictions"]] == [["B-PER"], ["O", "O"], []]
    assert send(port("label"), {"instances": []})[:2] == (200, {"predictions": []})


def test_status_is_that_of_tensorflow_serving(port):
    status, content, _ = send(port("label"), None, "/v1/models/toy", "GET")
    good = {"error_code": "OK", "error_message": ""}
    version = {"version": "1", "state": "AVAILABLE", "status": good}
    assert (status, content) == (200, {"model_version_status": [version]})


BAD_BODIES = [
    (b"", "not JSON: "),
    (b"\xff", "not JSON: "),
    (b'{"instances": [', "not JSON: "),
    (b"[" * 100_000, "not JSON: "),
    (b"1" * 10_000, "not JSON: "),
    (
        [],
        'the request is not {"instances": [...]}, each an object with context (a string)',
    ),
    ({}, "the request is not"),
    ({"instances": {}}, "the request is not"),
    ({"inputs": {"context": ["a"]}}, "the request is not"),
    ({"instances": [], "path": "/etc/passwd"}, "'path' is unknown"),
    (
        {"instances": [], "signature_name": "tensors"},
        "signature_name: must be serving_default",
    ),
    (
        {"instances": [{"context": "a"}]},
        "instances[0]: has no endings; expected an object",
    ),
    ({"instances": ["a"]}, "instances[0]: is a string"),
    (
        {
            "instances": [
                {"context": "a", "endings": ["b"]},
                {"context": 1, "endings": []},
            ]
        },
        "instances[1]: context is a number, not a string",
    ),
    (
        {"instances": [{"context": "\ud800", "endings": ["a"]}]},
        "instances[0]: context contains \\ud800, half a character",
    ),
    (b'{"instances": [{"context": NaN, "endings": []}]}', "context is a number"),
    (
        {"instances": [{"context": "a", "endings": ["b", " \n"]}]},
        "instances[0]: endings has an empty choice, number 2; expected an object",
    ),
]


@pytest.mark.parametrize(("body", "message"), BAD_BODIES)
def test_bad_requests(port, body, message):
    status, content, _ = send(port("choice"), body)
    assert status == 400
    assert list(content) == ["error"]
    assert message in content["error"]


TOO_LARGE = [
    (b" " * (server.MAX_BYTES + 1), "a request may have at most 4,194,304 bytes"),
    # The client hears it, though it has still to send the most part.
    (b" " * (3 * server.MAX_BYTES), "a request may have at most 4,194,304 bytes"),
    (
        {"instances": [["a"]] * 1025},
        "1,025 instances; a request may have at most 1,024",
    ),
    (
        {"instances": [["a", "b" * 100_001]]},
        "words has 100,001 characters; at most 100",
    ),
    (
        {"instances": [[""] * 10_001]},
        "instances[0]: words has 10,001 strings; at most 10",
    ),
]


@pytest.mark.parametrize(("body", "message"), TOO_LARGE)
def test_what_is_too_large(port, body, message):
    status, content, _ = send(port("tags"), body)
    assert status == 413
    assert message in content["error"]


def test_largest_that_is_not_too_large(port):
    instances = [["a"] * 10_000, ["b" * 100_000], *[["c"]] * 1022]
    status, content, _ = send(port("tags"), {"instances": instances})
    assert status == 200
    assert [len(p["tags"]) for p in content["predictions"]] == [10_000, 1] + [1] * 1022


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/other", 404),
        ("POST", "/v1/models/other:predict", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/page.html", 404),
        ("GET", PREDICT, 405),
        ("POST", "/", 405),
        ("DELETE", "/v1/models/toy", 405),
    ],
)
def test_other_addresses_and_methods(port, method, path, status):
    found, content, headers = send(port("label"), None, path, method)
    assert found == status
    assert list(content) == ["error"]
    assert ("Allow" in headers) == (status == 405)


def test_name_of_somebody_else_that_leads_here(predictor):
    """A page of evil.example, made to lead to this machine, could read the answers."""
    good = (
        "localhost",
        "LocalHost:1",
        "127.0.0.1:80",
        "[::1]",
        "[::1]:80",
        "[fe80::1]",
    )
    bad = ("evil.example", "localhost.evil.example", "[::2]:80", "[::1]evil", "::1", "")
    with serving(predictor("label"), hosts=server.names("fe80:0::1%eth0")) as port:
        for host in good:
            assert send(port, None, "/", "GET", {"Host": host})[0] == 200, host
        for host in bad:
            status, content, _ = send(port, None, "/", "GET", {"Host": host})
            assert status == 400, host
            assert list(content) == ["error"]
            assert "localhost" in content["error"]


def test_page_of_somebody_else_that_asks(port):
    """Its browser says whose page it is; curl and the like say nothing."""
    number, body = port("label"), {"instances": ["good"]}
    own = f"127.0.0.1:{number}"
    assert send(number, body, headers={"Origin": f"http://{own}"})[0] == 200
    asked = {"Host": "Model.example", "Origin": "https://model.example"}
    assert send(number, body, headers=asked)[0] == 200
    for origin in (
        "https://evil.example",
        "null",
        "",
        f"http://{own}0",
        "http://[::1]",
    ):
        status, content, _ = send(number, body, headers={"Origin": origin})
        assert status == 403, origin
        assert list(content) == ["error"]


@pytest.mark.parametrize(
    ("host", "hosts"),
    [
        ("127.0.0.1", {"localhost", "127.0.0.1", "::1"}),
        ("localhost", {"localhost", "127.0.0.1", "::1"}),
        ("0.0.0.0", None),
    ],
)
def test_who_can_ask(predictor, monkeypatch, capsys, host, hosts):
    """Beyond this machine any name may lead here; then it says so."""
    seen = []
    monkeypatch.setattr(server, "app", lambda *_, hosts: seen.append(hosts))
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: None)
    server.run(predictor("label"), host, 0, "toy")
    assert seen == [hosts]
    said = capsys.readouterr().err
    assert said.startswith(f"Serving toy at http://{host}:")
    warned = "Anyone who can reach this machine can query" in said
    assert warned == (hosts is None)


class Faulty:
    """A model that fails on "bad"; notes its batches, which wait for `go`."""

    parts = {"text_a": "text"}
    description = {"form": "label"}
    describe_request = staticmethod(str)

    def __init__(self):
        self.go = threading.Event()
        self.checked = 0
        self.batches = []

    def check(self, request, where):
        self.checked += 1

    def predict(self, requests):
        texts = [request["text_a"] for request in requests]
        self.batches.append(texts)
        assert self.go.wait(30)
        if "bad" in texts:
            raise RuntimeError("secret of /home/me/model")
        return [{"predicted": text} for text in texts]


def wait_until(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_requests_that_wait_share_a_batch_and_only_the_faulty_one_fails():
    model = Faulty()
    with serving(model) as port, concurrent.futures.ThreadPoolExecutor(8) as clients:
        first = clients.submit(send, port, {"instances": ["first"]})
        wait_until(lambda: model.batches)
        names = ["a", "b", "bad", "c"]
        others = [clients.submit(send, port, {"instances": [x, x]}) for x in names]
        wait_until(lambda: model.checked == 9)  # then they wait
        model.go.set()
        assert first.result()[1] == {"predictions": [{"predicted": "first"}]}
        for name, other in zip(names, others, strict=True):
            status, content, _ = other.result()
            if name == "bad":
                assert status == 500
                assert content == {"error": "the model failed; see the server's log"}
            else:
                assert content == {"predictions": [{"predicted": name}] * 2}
    assert model.batches[0] == ["first"]
    assert sorted(model.batches[1]) == sorted(names * 2)


def test_more_requests_than_may_wait(monkeypatch):
    monkeypatch.setattr(server, "MAX_WAITING", 2)
    model = Faulty()
    with serving(model) as port, concurrent.futures.ThreadPoolExecutor(8) as clients:
        first = clients.submit(send, port, {"instances": ["a"]})
        wait_until(lambda: model.batches)
        others = [clients.submit(send, port, {"instances": ["a"]}) for _ in range(4)]
        wait_until(lambda: sum(other.done() for other in others) == 2)
        model.go.set()
        answers = [client.result() for client in (first, *others)]
    assert sorted(status for status, *_ in answers) == [200] * 3 + [503] * 2


def test_request_that_never_comes_to_its_end(predictor, monkeypatch):
    monkeypatch.setattr(server, "BODY_SECONDS", 0.2)
    with serving(predictor("label")) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            head = f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
            client.sendall(head.encode() + b"{")
            assert b" 408 " in client.recv(1000).splitlines()[0]


def half_sent(port, part=b"GET / HTTP/1.1\r\nHost: "):
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    client.sendall(part)
    return client


def is_ended(client):
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_heads_that_never_come_to_their_end(predictor, monkeypatch):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    with serving(predictor("label")) as port, half_sent(port) as client:
        assert is_ended(client)


def ask(client, head):
    """Sends a request, and reads the answer to its end."""
    client.sendall(head + b"\r\nHost: localhost\r\n\r\n")
    answer = http.client.HTTPResponse(client)
    answer.begin()
    answer.read()
    assert not answer.will_close


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1",
        # Answered at once, and the rest of the body is waited for.
        b"GET /nowhere HTTP/1.1\r\nContent-Length: 1000000",
    ],
)
def test_what_never_comes_to_its_end_behind_an_answer(predictor, monkeypatch, head):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    with serving(predictor("label")) as port, half_sent(port, b"") as client:
        ask(client, head)
        client.settimeout(0.05)
        for _ in range(600):  # a byte now and then keeps no place
            with contextlib.suppress(TimeoutError):
                if is_ended(client):
                    break
            with contextlib.suppress(ConnectionError):
                client.sendall(b"G")
        else:
            pytest.fail("still open")


def test_a_request_in_pieces_may_take_the_model_longer_than_its_head(monkeypatch):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    model = Faulty()
    with serving(model) as port, half_sent(port, b"") as client:
        client.settimeout(30)
        ask(client, b"GET / HTTP/1.1")
        body = b'{"instances": ["good"]}'
        head = f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}"
        client.sendall(head.encode())
        client.sendall(b"\r\n\r\n" + body)
        wait_until(lambda: model.batches)
        time.sleep(0.5)
        model.go.set()
        assert client.recv(12) == b"HTTP/1.1 200"


def test_more_connections_than_a_process_may_have(predictor, monkeypatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(server, "HEAD_SECONDS", 60)
    with serving(predictor("label")) as port, contextlib.ExitStack() as stack:
        first = [stack.enter_context(half_sent(port)) for _ in range(8)]
        for _ in range(20):
            with contextlib.suppress(ConnectionError), half_sent(port) as client:
                assert is_ended(client)
        first.pop().close()
        wait_until(lambda: answers(port))
        first[0].sendall(b"a\r\n\r\n")  # its place was kept
        assert first[0].recv(12) == b"HTTP/1.1 200"


def answers(port):
    try:
        return send(port, {"instances": ["good"]})[0] == 200
    except (ConnectionError, http.client.HTTPException):
        return False


def test_client_that_leaves_does_not_disturb(port):
    number = port("label")
    for body in (b"{", b'{"instances": ["good"]}'):
        with socket.create_connection(("127.0.0.1", number)) as client:
            head = f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Length: 23\r\n\r\n"
            client.sendall(head.encode() + body)
    assert send(number, {"instances": ["good"]})[0] == 200


@pytest.mark.parametrize("text", ["good", "bad"])
def test_request_given_up_while_the_model_works(text):
    async def scene():
        model = Faulty()
        batcher = server._Batcher(model)
        async with batcher.lifespan(None):
            first = asyncio.create_task(batcher.predict([{"text_a": text}]))
            while not model.batches:
                await asyncio.sleep(0.01)
            first.cancel()
            await asyncio.wait([first])
            model.go.set()
            second = batcher.predict([{"text_a": "second"}])
            return await asyncio.wait_for(second, 10)

    assert asyncio.run(scene()) == [{"predicted": "second"}]


def test_every_client_gets_its_own_answers(port):
    """Each asks for another place; requests of several clients share batches."""
    number = port("span")

    def ask(client):
        answers = []
        for turn in range(25):
            places = [client * 100 + turn, turn]
            instances = [
                {"question": "here", "context": "x" * place + "here"}
                for place in places
            ]
            status, content, _ = send(number, {"instances": instances})
            assert status == 200
            starts = [p["start"] for p in content["predictions"]]
            answers.append(starts == places)
        return answers

    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        answers = [x for some in clients.map(ask, range(8)) for x in some]
    assert answers == [True] * 200


def test_page_loads_nothing_from_elsewhere_and_runs_no_script_but_its_own(port):
    status, content, headers = send(port("label"), None, "/", "GET")
    page = content.decode()
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert not re.search(r"(?:src|href)=\"(?!data:,)|@import|url\(|//\w+\.", page)
    policy = headers["Content-Security-Policy"]
    (nonce,) = set(re.findall(r"nonce-([\w-]+)", policy))
    assert policy.startswith("default-src 'none'; ")
    assert page.count(f'nonce="{nonce}"') == 2
    other = send(port("label"), None, "/", "GET")[2]["Content-Security-Policy"]
    assert nonce not in other
    assert "innerHTML" not in page


def test_names_of_parts_are_no_markup(predictor):
    class Odd(Faulty):
        parts = {"</script><script>alert(1)</script>": "text"}

    with serving(Odd()) as port:
        page = send(port, None, "/", "GET")[1].decode()
    assert "alert" in page
    assert "<script>alert" not in page


@pytest.mark.parametrize("name", ["NONCE", "MODEL_JSON"])
def test_names_that_the_page_has_for_itself(name):
    with serving(Faulty(), name) as port:
        page = send(port, None, "/", "GET")[1].decode()
    (model,) = re.findall(r'id="model">(.*)</script>', page)
    assert json.loads(model)["name"] == name


@pytest.mark.parametrize("name", ["a/b", "a b", "", "ä"])
def test_names_that_no_address_can_have(predictor, name):
    with pytest.raises(UserError, match="--model_name"):
        server.run(predictor("label"), "127.0.0.1", 0, name)


def test_port_that_is_taken(predictor):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--serve={number}: cannot listen there"):
            server.run(predictor("label"), "127.0.0.1", number, "toy")


def test_without_the_packages_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "serving.server")
    monkeypatch.delattr("serving.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UserError, match="pip install -r requirements/serve.txt"):
        predict.main(predict.Options(model_dir=str(tmp_path), serve=0))


@pytest.mark.slow
def test_the_command_serves_until_ctrl_c(tmp_path):
    folder = exports.write(tmp_path, "label")
    command = [sys.executable, "predict.py", f"--model_dir={folder}", "--serve=0"]
    with subprocess.Popen(
        [*command, "--model_name=toy"], stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            url = re.fullmatch(
                r"Serving toy at http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends\)\n",
                process.stderr.readline(),
            )
            status, content, _ = send(int(url[1]), {"instances": ["good"]})
            assert content["predictions"][0]["predicted"] == "positive"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert process.stderr.read() == "Stopped\n"
        finally:
            process.kill()
