"""Logs the requests to a server on stderr, without the texts in them."""

import sys
import time


class RequestLog:
    """Prints a line for each request: method, path, status and milliseconds."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()

        async def noted(message):
            if message["type"] == "http.response.start":
                _print(scope, message["status"], begun)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:  # the server answers it with 500
            _print(scope, 500, begun)
            raise


def _print(scope, status, begun):
    taken = 1000 * (time.monotonic() - begun)
    path = scope["raw_path"].decode("ascii", "backslashreplace")[:200]
    print(
        f"{scope['method']} {path} {status} {taken:.0f} ms", file=sys.stderr, flush=True
    )
