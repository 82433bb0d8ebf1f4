"""What a server of models answers, as TensorFlow Serving does; see serving/server.py.

    GET  /                          a page for trying a model (/?model=NAME for another)
    GET  /v1/models/NAME            the model's status
    GET  /v1/models/NAME/metadata   its signature, and the names in an answer
    POST /v1/models/NAME:predict    {"instances": [...]} -> {"predictions": [...]}
                                    {"inputs": {...}} -> {"outputs": {...}}
    GET  /openapi.json              these addresses, and what goes in and out
    GET  /healthz                   200 while the process answers
    GET  /readyz                    200 while every model takes requests, otherwise 503
    GET  /metrics                   counts, for Prometheus

/v1/models/NAME/versions/1 is the same model. As in TensorFlow Serving, an error is
{"error": "..."}: 400 for a bad request, 413 for one that is too large, 429 where too many
wait, 503 where the model took too long. It differs from TensorFlow Serving:

* A prediction is the final answer (serving/forms.py), {"predicted": "positive",
  "probabilities": {"positive": 0.9, ...}}; TensorFlow Serving returns the row of every
  output tensor, {"predicted": "positive", "labels": [...], "probabilities": [...]}. So the
  metadata have a key more, "answers"; their signature is that of the SavedModel.
* Lists may have different lengths; TensorFlow Serving wants them padded with "".
* There is one version, and one signature_name, serving_default.
* Pages from other sites are refused by their Origin and, on a loopback address, by the
  host name under which they reach this server.
"""

import asyncio
import contextlib
import importlib.resources
import ipaddress
import json
import re
import secrets
import time
from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from serving import openapi, prometheus, request_bodies
from serving.served_model import ServedModel
from serving.server_log import Log

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::\d*)?")  # [::1]:80, localhost:80
_PROBES = ("/healthz", "/readyz", "/metrics")  # asked every few seconds, and not logged


def names(host: str) -> frozenset[str]:
    """This machine's loopback names, and the name under which it is served."""
    return frozenset({*_LOOPBACK, _plain(host)})


def make(
    models: Mapping[str, ServedModel], log: Log, hosts: frozenset[str] | None = None
) -> Starlette:
    """The application.

    Args:
        models: by name; the first has the page.
        hosts: the names under which browsers may reach it; None for all. With a name of
            their own that resolves to this machine, other sites' pages could read the
            answers.
    """

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

    @contextlib.asynccontextmanager
    async def lifespan(app):
        for model in models.values():
            model.start()
        yield
        for model in models.values():
            model.batcher.stop()

    routes = [*_routes_of_all(models)]
    for model in models.values():
        routes += _routes_of(model)
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(_RequestLog, models=models, log=log),
            Middleware(_Guard, hosts=hosts),
        ],
        exception_handlers={
            HTTPException: refuse,
            ClientDisconnect: ignore_disconnect,
            Exception: fail,
        },
        lifespan=lifespan,
    )


# --- Addresses ---------------------------------------------------------------------------


def _routes_of_all(models):
    first = next(iter(models))

    async def show(request: Request) -> HTMLResponse:
        name = request.query_params.get("model", first)
        if name not in models:
            raise HTTPException(404)
        return _page(models[name], [other for other in models if other != name])

    async def describe(request: Request) -> JSONResponse:
        predictors = {name: model.predictor for name, model in models.items()}
        return JSONResponse(openapi.document(predictors))

    async def is_alive(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def is_ready(request: Request) -> JSONResponse:
        full = {name: model.batcher.is_full for name, model in models.items()}
        states = {name: "busy" if full[name] else "ready" for name in models}
        return JSONResponse({"models": states}, 503 if any(full.values()) else 200)

    async def count(request: Request) -> PlainTextResponse:
        counts = {name: model.counts for name, model in models.items()}
        waiting = {name: model.batcher.queue_length for name, model in models.items()}
        content = prometheus.text(counts, waiting)
        return PlainTextResponse(content, media_type=prometheus.TYPE)

    yield Route("/", show)
    yield Route("/openapi.json", describe)
    yield Route("/healthz", is_alive)
    yield Route("/readyz", is_ready)
    yield Route("/metrics", count)


def _routes_of(model: ServedModel):
    async def status(request: Request) -> JSONResponse:
        good = {"error_code": "OK", "error_message": ""}
        version = {"version": "1", "state": "AVAILABLE", "status": good}
        return JSONResponse({"model_version_status": [version]})

    async def metadata(request: Request) -> JSONResponse:
        return JSONResponse(_metadata(model))

    async def predict(request: Request) -> JSONResponse:
        request.state.model = model.name
        content = request_bodies.content_of(await request_bodies.read(request))
        batcher = model.batcher  # the one that answers, should the model be reloaded
        rows, by_columns = request_bodies.rows_of(content, batcher.predictor)
        request.state.instances = len(rows)
        answers = await _answers(batcher, rows)
        if by_columns:
            names = answers[0] if answers else batcher.predictor.names
            outputs = request_bodies.columns_of(answers, names)
            return JSONResponse({"outputs": outputs})
        return JSONResponse({"predictions": answers})

    for path in (f"/v1/models/{model.name}", f"/v1/models/{model.name}/versions/1"):
        yield Route(path, status)
        yield Route(f"{path}/metadata", metadata)
        yield Route(f"{path}:predict", predict, methods=["POST"])


async def _answers(batcher, rows):
    later = {"Retry-After": "1"}
    try:
        return await batcher.predict(rows)
    except asyncio.QueueFull:
        message = "too many requests wait for the model; try again"
        raise HTTPException(429, message, later) from None
    except TimeoutError:
        message = "the model took too long; try again, or send fewer instances"
        raise HTTPException(503, message, later) from None


def _metadata(model):
    predictor = model.predictor
    spec = {"name": model.name, "signature_name": "", "version": "1"}
    signatures = {"serving_default": predictor.signature()}
    return {
        "model_spec": spec,
        "metadata": {"signature_def": {"signature_def": signatures}},
        "answers": {"form": predictor.description["form"], "names": predictor.names},
    }


# --- Log ---------------------------------------------------------------------------------


class _RequestLog:
    """Logs and counts each request, without the texts in it."""

    def __init__(self, app, models, log):
        self._app, self._models, self._log = app, models, log

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()
        scope.setdefault("state", {})

        async def send_and_note(message):
            if message["type"] == "http.response.start":
                self._note(scope, message["status"], begun)
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception:  # the server answers it with 500
            self._note(scope, 500, begun)
            raise

    def _note(self, scope, status, begun):
        seconds = time.monotonic() - begun
        if name := scope["state"].get("model"):
            self._models[name].counts.note_request(status, seconds)
        if scope["path"] in _PROBES:
            return
        path = scope["raw_path"].decode("ascii", "backslashreplace")[:200]
        self._log.say(
            f"{scope['method']} {path} {status} {1000 * seconds:.0f} ms",
            method=scope["method"],
            path=path,
            status=status,
            milliseconds=round(1000 * seconds, 3),
            **scope["state"],
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


# --- The page ----------------------------------------------------------------------------


def _page(model: ServedModel, others: list[str]) -> HTMLResponse:
    """page.html with the model's form and parts; it loads nothing else."""
    predictor = model.predictor
    content = {
        "name": model.name,
        "others": others,
        "title": predictor.title or model.name,
        "form": predictor.description["form"],
        "inputs": dict(predictor.parts),
        "optional": list(predictor.defaults),
        "mask": predictor.description.get("mask", "[MASK]"),
        "characters": predictor.description.get("characters", False),
    }
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
    file = importlib.resources.files("serving").joinpath("page.html")
    page = file.read_text(encoding="utf-8").replace("NONCE", nonce)
    # In a page, "</script>" would end the script, wherever it occurs. The model comes
    # last: nothing in it is replaced.
    described = json.dumps(content).replace("<", "\\u003c")
    return HTMLResponse(page.replace("MODEL_JSON", described), headers=headers)
