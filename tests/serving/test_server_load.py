"""serving/server.py and many clients: batches, limits, those that are slow or leave."""

import asyncio
import concurrent.futures
import contextlib
import http.client
import socket
import time

import pytest

from serving import connection, request_bodies
from serving.batcher import Batcher, Limits
from tests.serving.clients import PREDICT, Faulty, send, serving


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


def test_request_that_never_comes_to_its_end(predictor, monkeypatch):
    monkeypatch.setattr(request_bodies, "BODY_SECONDS", 0.2)
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
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
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
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
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
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
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
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(connection, "HEAD_SECONDS", 60)
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
        batcher = Batcher(model, Limits())
        first = asyncio.create_task(batcher.predict([{"text_a": text}]))
        while not model.batches:
            await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait([first])
        model.go.set()
        second = batcher.predict([{"text_a": "second"}])
        answers = await asyncio.wait_for(second, 10)
        await asyncio.wait_for(batcher.close(), 10)
        return answers

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
