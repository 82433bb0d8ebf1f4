"""Serves an exported model as a local page, and as JSON in the style of TensorFlow Serving.

    GET  /                          a page to try the model on
    GET  /v1/models/NAME            whether it is there
    POST /v1/models/NAME:predict    {"instances": [...]} -> {"predictions": [...]}

An instance is an object of the model's parts, or the part itself where there is only one.
As from TensorFlow Serving, an error is {"error": "..."}. Different from it:

* A prediction is the answer for a reader (serving/forms.py), {"predicted": "positive",
  "probabilities": {"positive": 0.9, ...}}; TensorFlow Serving gives the row of every output
  tensor, {"predicted": "positive", "labels": [...], "probabilities": [...]}.
* Lists may have different lengths; TensorFlow Serving wants them padded with "".
* There is one signature and one version; {"inputs": ...} by columns is not taken.
* Pages of others are refused: by their Origin, and, served on this machine's own address,
  by the name under which they lead here.

For this machine and a few users; serving at scale is TensorFlow Serving's.
"""

import asyncio
import contextlib
import importlib.resources
import ipaddress
import itertools
import json
import re
import secrets
import socket
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from serving.predictor import Predictor
from text.errors import UserError

MAX_BYTES = 4 << 20  # of a request
MAX_INSTANCES = 1024  # of a request, and of a batch that several make together
MAX_CHARACTERS = 100_000  # of a text
MAX_TEXTS = 10_000  # of a list
MAX_WAITING = 256  # requests at a time
HEAD_SECONDS = 10  # for the head of a request to arrive
BODY_SECONDS = 30  # for the rest of it
MAX_CONNECTIONS = 512  # often a process may have 1,024 files open

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::\d*)?")  # [::1]:80, localhost:80


def run(predictor: Predictor, host: str, port: int, name: str) -> None:
    """Answers until Ctrl-C.

    Args:
        port: 0 for a free one.
        name: of the model, in addresses.
    Raises:
        UserError: the address cannot be had, or the name cannot be part of one.
    """
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise UserError(f"--model_name={name}: may have letters, digits, and -._ only")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UserError(
            f"--host={host} --serve={port}: cannot listen there: {error.strerror}; choose "
            "another port, or --serve=0 for a free one"
        ) from error
    # Connections take it over. asyncio sets it only on sockets that it makes itself;
    # without it, each answer waits 40 ms for its client's acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    address, port = listening.getsockname()[:2]
    is_private = ipaddress.ip_address(address).is_loopback
    served = app(predictor, name, hosts=names(host) if is_private else None)
    at = f"[{host}]" if ":" in host else host
    print(f"Serving {name} at http://{at}:{port}/ (Ctrl-C ends)", file=sys.stderr)
    if not is_private:
        print(
            "Anyone who reaches this machine can ask; --host=127.0.0.1 is for it alone",
            file=sys.stderr,
        )
    with listening, contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config(served)).run(sockets=[listening])
    print("Ended", file=sys.stderr)


def config(served: Starlette) -> uvicorn.Config:
    """How the application is run."""
    return uvicorn.Config(
        served,
        log_level="error",
        http=_Connection,
        ws="none",
        loop="asyncio",
        backlog=128,  # asyncio takes as many at once, before it asks for their number
        timeout_graceful_shutdown=5,
    )


def names(host: str) -> frozenset[str]:
    """The names of this machine for itself, and that under which it is served."""
    return frozenset({*_LOOPBACK, _plain(host)})


def app(
    predictor: Predictor, name: str, hosts: frozenset[str] | None = None
) -> Starlette:
    """The application.

    Args:
        hosts: the names under which browsers may reach it; None for all. A name of
            somebody else's that leads to this machine would let their page read the
            answers.
    """
    batcher = _Batcher(predictor)
    page = _Page(predictor, name)

    async def status(request: Request) -> JSONResponse:
        good = {"error_code": "OK", "error_message": ""}
        version = {"version": "1", "state": "AVAILABLE", "status": good}
        return JSONResponse({"model_version_status": [version]})

    async def predict(request: Request) -> JSONResponse:
        requests = _instances(await _body(request), predictor)
        return JSONResponse({"predictions": await batcher.predict(requests)})

    async def show(request: Request) -> HTMLResponse:
        return page.response()

    async def refuse(request: Request, error: HTTPException) -> JSONResponse:
        message = error.detail
        if error.status_code == 404:
            message = f"not here; there are / and /v1/models/{name}, and :predict of it"
        return JSONResponse({"error": message}, error.status_code, error.headers)

    async def fail(request: Request, error: Exception) -> JSONResponse:
        # The traceback goes to the server's own log.
        return JSONResponse({"error": "the model failed; its log says why"}, 500)

    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # nobody reads it

    return Starlette(
        routes=[
            Route("/", show),
            Route(f"/v1/models/{name}", status),
            Route(f"/v1/models/{name}:predict", predict, methods=["POST"]),
        ],
        middleware=[Middleware(_Guard, hosts=hosts)],
        exception_handlers={
            HTTPException: refuse,
            ClientDisconnect: gone,
            Exception: fail,
        },
        lifespan=batcher.lifespan,
    )


# --- Who asks ----------------------------------------------------------------------------


class _Guard:
    """Refuses what pages of somebody else's have a browser of this machine ask."""

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
            known = ", ".join(sorted(self._hosts))
            message = f"Host {host[:80]!a} is not served; ask one of {known}"
            return JSONResponse({"error": message}, 400)
        # A browser names the page that asks; curl and the like name none.
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            message = f"pages of {origin[:80]!a} may not ask {host[:80]!a}"
            return JSONResponse({"error": message}, 403)
        return None


def _plain(host):
    """One spelling of a name or an address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).compressed
    except ValueError:
        return host.lower()


class _Connection(H11Protocol):
    """Ends one that asks nothing, or is one too many: the others need the place."""

    _end = None  # what ends it, while it begins a request

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
        """Gives every head its time, and the rest of a body that was answered early.

        uvicorn's own limit, between two requests, is over with their first byte.
        """
        is_asked = self.cycle is not None and not self.cycle.response_complete
        if is_asked and self._end is not None:
            self._end.cancel()
            self._end = None
        elif not is_asked and self._end is None:
            self._end = self.loop.call_later(HEAD_SECONDS, self.transport.abort)


# --- Requests ----------------------------------------------------------------------------


async def _body(request: Request) -> bytes:
    """The body, of at most MAX_BYTES."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise HTTPException(
                        413, f"a request may have {MAX_BYTES:,} bytes; send several"
                    )
    except TimeoutError:
        raise HTTPException(
            408, f"no whole request in {BODY_SECONDS} seconds"
        ) from None
    return bytes(body)


def _instances(body: bytes, predictor: Predictor) -> list[dict]:
    """The requests to the model in the body of one to the server."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"no JSON: {error}") from None
    wanted = f'{{"instances": [...]}}, each {predictor.describe_request()}'
    if not isinstance(content, dict) or not isinstance(content.get("instances"), list):
        raise HTTPException(400, f"the request is not {wanted}")
    if others := sorted(content.keys() - {"instances", "signature_name"}):
        raise HTTPException(
            400, f"{others[0][:40]!a} is not known; the request is {wanted}"
        )
    if content.get("signature_name", "serving_default") != "serving_default":
        raise HTTPException(400, "signature_name: only serving_default is here")
    instances = content["instances"]
    if len(instances) > MAX_INSTANCES:
        raise HTTPException(
            413, f"{len(instances):,} instances; a request may have {MAX_INSTANCES:,}"
        )
    if len(predictor.parts) == 1:
        (part,) = predictor.parts
        instances = [x if isinstance(x, dict) else {part: x} for x in instances]
    for number, instance in enumerate(instances):
        _check(instance, f"instances[{number}]", predictor)
    return instances


def _check(instance, where, predictor):
    try:
        predictor.check(instance, where)
    except UserError as error:
        raise HTTPException(400, str(error)) from None
    for name, part in instance.items():
        texts = part if isinstance(part, list) else [part]
        if len(texts) > MAX_TEXTS:
            raise HTTPException(
                413, f"{where}: {name} has {len(texts):,} texts; at most {MAX_TEXTS:,}"
            )
        if (longest := max(map(len, texts), default=0)) > MAX_CHARACTERS:
            raise HTTPException(
                413,
                f"{where}: {name} has {longest:,} characters; at most {MAX_CHARACTERS:,}",
            )


class _Batcher:
    """Has the model answer what came while it was at work, all at once."""

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
            raise HTTPException(503, "too many requests at a time; try again") from None
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
                if not some[0][1].done():  # else its client is gone
                    some[0][1].set_exception(error)
                return
            for one in some:  # whose fault was it?
                await self._answer([one])
            return
        for requests, answered in some:
            mine = list(itertools.islice(answers, len(requests)))
            if not answered.done():
                answered.set_result(mine)


# --- The page ----------------------------------------------------------------------------


class _Page:
    """page.html with the model's form and parts; nothing else of it is loaded."""

    def __init__(self, predictor, name):
        files = importlib.resources.files("serving")
        model = {
            "name": name,
            "form": predictor.description["form"],
            "inputs": dict(predictor.parts),
        }
        # In a page "</script>" would end the script, wherever it stands.
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
