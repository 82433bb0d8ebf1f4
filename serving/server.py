"""Serves an exported model as a local page, and as JSON in the style of TensorFlow Serving.

    GET  /                          a page for trying the model
    GET  /v1/models/NAME            the model's status
    GET  /v1/models/NAME/metadata   its signature, and the names in an answer
    POST /v1/models/NAME:predict    {"instances": [...]} -> {"predictions": [...]}
                                    {"inputs": {...}} -> {"outputs": {...}}

An instance is an object with the model's parts, or the part itself if there is only one;
inputs and outputs are the same by columns. A string may also be {"b64": "..."}, its UTF-8
in Base64. /v1/models/NAME/versions/1 is the same model. As in TensorFlow Serving, an error
is {"error": "..."}. It differs from TensorFlow Serving:

* A prediction is the final answer (serving/forms.py), {"predicted": "positive",
  "probabilities": {"positive": 0.9, ...}}; TensorFlow Serving returns the row of every
  output tensor, {"predicted": "positive", "labels": [...], "probabilities": [...]}. So the
  metadata have a key more, "answers"; their signature is that of the SavedModel.
* Lists may have different lengths; TensorFlow Serving wants them padded with "".
* There is one version, and one signature_name, serving_default.
* Pages from other sites are refused by their Origin and, on a loopback address, by the
  host name under which they reach this server.

It is for this machine and a few users; use TensorFlow Serving at scale.
"""

import asyncio
import base64
import contextlib
import importlib.resources
import ipaddress
import itertools
import json
import re
import secrets
import socket
import sys
import time

import h11
import uvicorn
from h11._receivebuffer import ReceiveBuffer  # h11 has no other way to see a line's end
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from errors import UserError
from files import json_files
from serving.predictor import Predictor

MAX_BYTES = 4 << 20  # per request
MAX_INSTANCES = 1024  # per request, and per batch of several requests
MAX_CHARACTERS = 100_000  # per text
MAX_TEXTS = 10_000  # per list
MAX_WAITING = 256  # requests at a time
HEAD_SECONDS = 10  # for the head of a request to arrive
BODY_SECONDS = 30  # for the rest of it
MAX_CONNECTIONS = 512  # a process can often have only 1,024 files open

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ODD_LINE_END = re.compile(rb"(?<!\r)\n|\n[ \t]")
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::\d*)?")  # [::1]:80, localhost:80


def run(predictor: Predictor, host: str, port: int, name: str) -> None:
    """Answers until Ctrl-C.

    Args:
        port: 0 for a free one.
        name: the model's name in URLs.
    """
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise UserError(
            f"--model_name={name}: may contain only letters, digits, and -._"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UserError(
            f"--host={host} --serve={port}: cannot listen there: {error.strerror}; choose "
            "another port, or --serve=0 for a free one"
        ) from error
    # Connections inherit it. asyncio sets it only on sockets that it creates itself;
    # without it, each answer waits 40 ms for the client's acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    address, port = listening.getsockname()[:2]
    is_private = ipaddress.ip_address(address).is_loopback
    served = app(predictor, name, hosts=names(host) if is_private else None)
    at = f"[{host}]" if ":" in host else host
    print(f"Serving {name} at http://{at}:{port}/ (Ctrl-C ends)", file=sys.stderr)
    if not is_private:
        print(
            "Anyone who can reach this machine can query the model; --host=127.0.0.1 "
            "restricts it to this machine",
            file=sys.stderr,
        )
    with listening, contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config(served)).run(sockets=[listening])
    print("Stopped", file=sys.stderr)


def config(served: Starlette) -> uvicorn.Config:
    """The server's settings for the application."""
    return uvicorn.Config(
        served,
        log_level="error",
        http=_Connection,
        ws="none",
        loop="asyncio",
        backlog=128,  # asyncio accepts as many at once before their number is checked
        timeout_graceful_shutdown=5,
    )


def names(host: str) -> frozenset[str]:
    """This machine's loopback names, and the name under which it is served."""
    return frozenset({*_LOOPBACK, _plain(host)})


def app(
    predictor: Predictor, name: str, hosts: frozenset[str] | None = None
) -> Starlette:
    """The application.

    Args:
        hosts: the names under which browsers may reach it; None for all. With a name of
            their own that resolves to this machine, other sites' pages could read the
            answers.
    """
    batcher = _Batcher(predictor)
    page = _Page(predictor, name)

    async def metadata(request: Request) -> JSONResponse:
        return JSONResponse(_metadata(predictor, name))

    async def predict(request: Request) -> JSONResponse:
        content = _content(await _body(request))
        requests, by_columns = _instances(content, predictor)
        answers = await batcher.predict(requests)
        if by_columns:
            names = answers[0] if answers else predictor.names
            return JSONResponse({"outputs": _columns(answers, names)})
        return JSONResponse({"predictions": answers})

    async def show(request: Request) -> HTMLResponse:
        return page.response()

    async def refuse(request: Request, error: HTTPException) -> JSONResponse:
        message = error.detail
        if error.status_code == 404:
            paths = dict.fromkeys(route.path for route in routes)
            message = f"not found; use one of {', '.join(paths)}"
        return JSONResponse({"error": message}, error.status_code, error.headers)

    async def fail(request: Request, error: Exception) -> JSONResponse:
        # The traceback goes to the server's log.
        return JSONResponse({"error": "the model failed; see the server's log"}, 500)

    async def ignore_disconnect(request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # no one reads it

    routes = [Route("/", show), *_routes(name, metadata, predict)]
    return Starlette(
        routes=routes,
        middleware=[Middleware(_RequestLog), Middleware(_Guard, hosts=hosts)],
        exception_handlers={
            HTTPException: refuse,
            ClientDisconnect: ignore_disconnect,
            Exception: fail,
        },
        lifespan=batcher.lifespan,
    )


async def _status(request: Request) -> JSONResponse:
    good = {"error_code": "OK", "error_message": ""}
    version = {"version": "1", "state": "AVAILABLE", "status": good}
    return JSONResponse({"model_version_status": [version]})


def _metadata(predictor, name):
    spec = {"name": name, "signature_name": "", "version": "1"}
    signatures = {"serving_default": predictor.signature()}
    return {
        "model_spec": spec,
        "metadata": {"signature_def": {"signature_def": signatures}},
        "answers": {"form": predictor.description["form"], "names": predictor.names},
    }


def _routes(name, metadata, predict):
    for model in (f"/v1/models/{name}", f"/v1/models/{name}/versions/1"):
        yield Route(model, _status)
        yield Route(f"{model}/metadata", metadata)
        yield Route(f"{model}:predict", predict, methods=["POST"])


# --- Log ---------------------------------------------------------------------------------


class _RequestLog:
    """Prints a line for each request on stderr, without the texts in it."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()

        async def send_and_log(message):
            if message["type"] == "http.response.start":
                _log(scope, message["status"], begun)
            await send(message)

        try:
            await self._app(scope, receive, send_and_log)
        except Exception:  # the server answers it with 500
            _log(scope, 500, begun)
            raise


def _log(scope, status, begun):
    taken = 1000 * (time.monotonic() - begun)
    path = scope["raw_path"].decode("ascii", "backslashreplace")[:200]
    print(
        f"{scope['method']} {path} {status} {taken:.0f} ms", file=sys.stderr, flush=True
    )


# --- Who asks ----------------------------------------------------------------------------


class _Guard:
    """Refuses requests that other sites' pages send from a browser on this machine."""

    def __init__(self, app, hosts):
        self._app, self._hosts = app, hosts

    async def __call__(self, scope, receive, send):
        answer = self._app
        if scope["type"] == "http":
            answer = self._refusal(Headers(scope=scope)) or answer
        await answer(scope, receive, send)

    def _refusal(self, headers):
        host, origin = headers.get("host", ""), headers.get("origin")
        match = _HOST.fullmatch(host)
        name = match and _plain(match[1] or match[2])
        if self._hosts is not None and name not in self._hosts:
            hosts = ", ".join(sorted(self._hosts))
            message = f"Host {host[:80]!a} is not served; use one of {hosts}"
            return JSONResponse({"error": message}, 400)
        # A browser names the page's origin; curl and similar tools do not.
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            message = f"pages from {origin[:80]!a} may not query {host[:80]!a}"
            return JSONResponse({"error": message}, 403)
        return None


def _plain(host):
    """The canonical spelling of a name or an address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).compressed
    except ValueError:
        return host.lower()


class _Requests(h11.Connection):
    """Refuses a request that a proxy before us may end elsewhere than we do.

    What follows its end is the next request, which may be one that the proxy never saw. h11
    refuses the rest of such requests itself.

    Source: RFC 9112, 2.2 (bare LF), 5.2 (folded lines), 6.1 and 6.3 (two lengths), 7.1.2
        (lines after the last chunk, which no client of ours sends).
    """

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self._receive_buffer = _Lines()

    def next_event(self):
        if self.their_state is h11.IDLE:
            head, _, _ = self.trailing_data[0].partition(b"\r\n\r\n")
            if _ODD_LINE_END.search(head):
                raise h11.RemoteProtocolError("a line ends or continues in an old way")
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            is_old = event.http_version < b"1.1"
            if b"transfer-encoding" in names and (is_old or b"content-length" in names):
                raise h11.RemoteProtocolError("the length of the body is ambiguous")
        if isinstance(event, h11.EndOfMessage) and event.headers:
            raise h11.RemoteProtocolError("there are lines after the last chunk")
        return event


class _Lines(ReceiveBuffer):
    """Refuses a chunked body that ends with a bare LF."""

    def maybe_extract_lines(self):
        if self._data[:1] == b"\n":
            raise h11.RemoteProtocolError("a body ends in an old way")
        return super().maybe_extract_lines()


class _Connection(H11Protocol):
    """Closes a connection that sends no request or exceeds the limit, to free its slot."""

    _end = None  # the timer that ends it before its request is complete

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.conn = _Requests(h11.SERVER)  # what it raises is answered with 400

    def connection_made(self, transport):
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._limit()

    def data_received(self, data):
        super().data_received(data)
        self._limit()

    def _limit(self):
        """Limits the time for each head, and for the rest of a body answered early.

        uvicorn's own limit, between two requests, ends with the first byte.
        """
        is_asked = self.cycle is not None and not self.cycle.response_complete
        if is_asked and self._end is not None:
            self._end.cancel()
            self._end = None
        elif not is_asked and self._end is None:
            self._end = self.loop.call_later(HEAD_SECONDS, self.transport.abort)


# --- Requests ----------------------------------------------------------------------------


async def _body(request: Request) -> bytes:
    """The body, at most MAX_BYTES long."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise HTTPException(
                        413,
                        f"a request may have at most {MAX_BYTES:,} bytes; send several",
                    )
    except TimeoutError:
        raise HTTPException(
            408, f"no complete request within {BODY_SECONDS} seconds"
        ) from None
    return bytes(body)


def _content(body: bytes) -> object:
    try:
        return json_files.parse(body, object_hook=_decode)
    except ValueError as error:
        raise HTTPException(400, f"not JSON: {error}") from None


def _instances(content: object, predictor: Predictor) -> tuple[list[dict], bool]:
    """The requests to the model in one to the server; whether by columns."""
    expected = f'{{"instances": [...]}}, each {predictor.describe_request()}'
    by_columns = isinstance(content, dict) and "inputs" in content
    if by_columns:
        if "instances" in content:
            raise HTTPException(
                400,
                "the request has inputs and instances; pass the rows of one request as "
                "instances or their columns as inputs, not both",
            )
        content["instances"] = _rows(content.pop("inputs"), predictor)
    if not isinstance(content, dict) or not isinstance(content.get("instances"), list):
        raise HTTPException(400, f"the request is not {expected}")
    if others := sorted(content.keys() - {"instances", "signature_name"}):
        raise HTTPException(
            400, f"{others[0][:40]!a} is unknown; the request must be {expected}"
        )
    if content.get("signature_name", "serving_default") != "serving_default":
        raise HTTPException(400, "signature_name: must be serving_default")
    instances = content["instances"]
    if len(instances) > MAX_INSTANCES:
        raise HTTPException(
            413,
            f"{len(instances):,} instances; a request may have at most "
            f"{MAX_INSTANCES:,}",
        )
    if len(predictor.parts) == 1:
        (part,) = predictor.parts
        instances = [x if isinstance(x, dict) else {part: x} for x in instances]
    for number, instance in enumerate(instances):
        _check(instance, f"instances[{number}]", predictor)
    return instances, by_columns


def _decode(part: dict):
    """An object of a request; the string that it stands for if it is {"b64": "..."}.

    Source: tensorflow/serving tensorflow_serving/g3doc/api_rest.md, Encoding binary values.
    """
    encoded = part.get("b64")
    if len(part) != 1 or not isinstance(encoded, str):
        return part
    try:
        padding = "=" * (-len(encoded) % 4)
        return base64.b64decode(encoded + padding, validate=True).decode("utf-8")
    except ValueError as error:
        raise HTTPException(
            400, f"b64: {encoded[:40]!a} is not UTF-8 text in Base64: {error}"
        ) from None


def _rows(columns, predictor):
    """The instances in {"inputs": ...}."""
    if not isinstance(columns, dict) and len(predictor.parts) == 1:
        (part,) = predictor.parts
        columns = {part: columns}
    is_valid = isinstance(columns, dict) and columns
    if not is_valid or not all(isinstance(x, list) for x in columns.values()):
        expected = f"an object of lists by name: {', '.join(predictor.parts)}"
        if len(predictor.parts) == 1:
            (kind,) = predictor.parts.values()
            each = {"text": "strings", "list": "lists of strings"}[kind]
            expected += f", or only its list of {each}"
        raise HTTPException(400, f"inputs: must be {expected}")
    if len({len(column) for column in columns.values()}) > 1:
        sizes = ", ".join(f"{k[:40]!a} {len(v)}" for k, v in columns.items())
        raise HTTPException(400, f"inputs: the lists differ in length: {sizes}")
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _columns(answers, names):
    """{"outputs": ...}: without its name if there is only one, as in TensorFlow Serving."""
    columns = {name: [answer[name] for answer in answers] for name in names}
    return columns if len(columns) != 1 else columns.popitem()[1]


def _check(instance, where, predictor):
    try:
        predictor.check(instance, where)
    except UserError as error:
        raise HTTPException(400, str(error)) from None
    for name, part in instance.items():
        texts = part if isinstance(part, list) else [part]
        if len(texts) > MAX_TEXTS:
            raise HTTPException(
                413,
                f"{where}: {name} has {len(texts):,} strings; at most {MAX_TEXTS:,} are "
                "allowed",
            )
        if (longest := max(map(len, texts), default=0)) > MAX_CHARACTERS:
            raise HTTPException(
                413,
                f"{where}: {name} has {longest:,} characters; at most {MAX_CHARACTERS:,} "
                "are allowed",
            )


class _Batcher:
    """Answers together all requests that arrive while the model is busy."""

    def __init__(self, predictor):
        self._predictor = predictor
        self._waiting = None

    @contextlib.asynccontextmanager
    async def lifespan(self, app):
        self._waiting = asyncio.Queue(MAX_WAITING)
        work = asyncio.create_task(self._work())
        yield
        work.cancel()

    async def predict(self, requests: list[dict]) -> list[dict]:
        answers = asyncio.get_running_loop().create_future()
        try:
            self._waiting.put_nowait((requests, answers))
        except asyncio.QueueFull:
            raise HTTPException(503, "too many requests at once; try again") from None
        return await answers

    async def _work(self):
        while True:
            some = [await self._waiting.get()]
            count = len(some[0][0])
            while not self._waiting.empty() and count < MAX_INSTANCES:
                some.append(self._waiting.get_nowait())
                count += len(some[-1][0])
            await self._answer(some)

    async def _answer(self, some):
        requests = [request for requests, _ in some for request in requests]
        try:
            answers = iter(await asyncio.to_thread(self._predictor.predict, requests))
        except Exception as error:
            if len(some) == 1:
                if not some[0][1].done():  # otherwise its client is gone
                    some[0][1].set_exception(error)
                return
            for one in some:  # to find the one that fails
                await self._answer([one])
            return
        for requests, answered in some:
            predictions = list(itertools.islice(answers, len(requests)))
            if not answered.done():
                answered.set_result(predictions)


# --- The page ----------------------------------------------------------------------------


class _Page:
    """page.html with the model's form and parts; it loads nothing else."""

    def __init__(self, predictor, name):
        files = importlib.resources.files("serving")
        model = {
            "name": name,
            "title": predictor.title or name,
            "form": predictor.description["form"],
            "inputs": dict(predictor.parts),
            "mask": predictor.description.get("mask", "[MASK]"),
            "characters": predictor.description.get("characters", False),
        }
        # In a page, "</script>" would end the script, wherever it occurs.
        self._model = json.dumps(model).replace("<", "\\u003c")
        self._page = files.joinpath("page.html").read_text(encoding="utf-8")

    def response(self) -> HTMLResponse:
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        headers = {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        # The model comes last: nothing in it is replaced.
        page = self._page.replace("NONCE", nonce).replace("MODEL_JSON", self._model)
        return HTMLResponse(page, headers=headers)
