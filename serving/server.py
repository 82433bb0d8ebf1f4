"""Serves exported models as local pages, and as JSON in the style of TensorFlow Serving.

It listens once the models are loaded. SIGHUP loads them anew from their folders, while the
earlier ones answer; SIGTERM and Ctrl-C end it, once it has answered what it has accepted.
serving/application.py says what it answers. It is for one machine and a few users; use
TensorFlow Serving at scale.
"""

import asyncio
import contextlib
import ipaddress
import math
import signal
import socket
from collections.abc import Callable, Mapping

import uvicorn
from starlette.applications import Starlette

from errors import UserError
from serving import application, request_bodies
from serving.batcher import Limits
from serving.connection import Connection
from serving.options import ServingOptions
from serving.predictor import Served
from serving.served_model import ServedModel
from serving.server_log import Log


def run(
    flags: ServingOptions,
    folders: Mapping[str, str],
    load: Callable[[str, str], Served],
    batch_size: int = 32,
) -> None:
    """Answers until SIGTERM or Ctrl-C.

    Args:
        folders: of the models by name; the first has the page.
        load: (name, folder) -> what is in it, ready to answer.
        batch_size: rows that go through a model at once.
    """
    limits = Limits(batch_size, flags.queue_size, flags.timeout_seconds)
    hang_ups = []  # while it loads
    with (
        _handler(signal.SIGHUP, lambda *_: hang_ups.append(True)),
        # First, because to load a model takes much longer.
        _bind(flags.host, flags.serve) as listening,
    ):
        models = {
            name: ServedModel(name, load(name, folder), limits)
            for name, folder in folders.items()
        }
        log = Log(flags.json_log)
        address, port = listening.getsockname()[:2]
        is_private = ipaddress.ip_address(address).is_loopback
        hosts = application.names(flags.host) if is_private else None
        app = application.make(models, log, hosts)
        server = uvicorn.Server(config(app, flags.timeout_seconds, log.of_errors))
        _listen(listening, flags.host, flags.serve)
        _say_where(log, models, flags.host, port, is_private)

        async def answer():
            reloads = _Reloads(models, folders, load, log)
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, reloads.begin)
            if hang_ups:
                reloads.begin()
            await server.serve(sockets=[listening])

        # uvicorn ends at both, and then raises them anew for the handlers before its own.
        sigterm_as_ctrl_c = _handler(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt), sigterm_as_ctrl_c:
            asyncio.run(answer())
        log.say("Stopped")


@contextlib.contextmanager
def _handler(number, handle):
    """Handles a signal so within the block."""
    before = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.signal(number, before)


def config(
    app: Starlette, timeout_seconds: float = 60, log_config: dict | None = None
) -> uvicorn.Config:
    """The server's settings for the application.

    Args:
        timeout_seconds: for the model to answer.
        log_config: see `Log.of_errors`.
    """
    return uvicorn.Config(
        app,
        log_level="error",
        log_config=log_config or uvicorn.config.LOGGING_CONFIG,
        http=Connection,
        ws="none",
        loop="asyncio",
        backlog=128,  # asyncio accepts as many at once before their number is checked
        # Until all that was accepted has arrived and is answered.
        timeout_graceful_shutdown=math.ceil(
            request_bodies.BODY_SECONDS + timeout_seconds
        ),
    )


def _bind(host, port):
    """A socket that refuses connections until it listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it. asyncio sets it only on sockets that it creates itself;
        # without it, each answer waits 40 ms for the client's acknowledgement.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise _listening_error(host, port, error) from error
    return bound


def _listen(bound, host, port):
    try:
        bound.listen()  # another process may have been faster
    except OSError as error:
        raise _listening_error(host, port, error) from error


def _listening_error(host, port, error):
    return UserError(
        f"--host={host} --serve={port}: cannot listen there: {error.strerror}; choose "
        "another port, or --serve=0 for a free one"
    )


def _say_where(log, models, host, port, is_private):
    at = f"[{host}]" if ":" in host else host
    url, served = f"http://{at}:{port}/", ", ".join(models)
    log.say(
        f"Serving {served} at {url} (Ctrl-C ends)", address=url, models=list(models)
    )
    if not is_private:
        log.say(
            "Anyone who can reach this machine can query the model; --host=127.0.0.1 "
            "restricts it to this machine"
        )


class _Reloads:
    """Loads the models anew, one after another and while the earlier ones answer."""

    def __init__(self, models, folders, load, log):
        self._models, self._folders, self._load = models, folders, load
        self._log, self._running = log, None
        self._is_asked = False

    def begin(self) -> None:
        """Does it now or, if it is doing it, once more."""
        self._is_asked = True
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._reload())

    async def _reload(self):
        while self._is_asked:
            self._is_asked = False
            for name, folder in self._folders.items():
                await self._reload_one(self._models[name], folder)

    async def _reload_one(self, model, folder):
        self._log.say(f"Reloading {model.name}", model=model.name)
        try:
            predictor = await asyncio.to_thread(self._load, model.name, folder)
        except Exception as error:  # whatever is wrong, the earlier one is there
            model.counts.reloads["failed"] += 1
            reason = " ".join(str(error).split())
            self._log.say(
                f"{model.name} was not reloaded, and the earlier model answers: {reason}",
                model=model.name,
            )
            return
        await model.replace(predictor)
        model.counts.reloads["ok"] += 1
        self._log.say(f"Reloaded {model.name}", model=model.name)
