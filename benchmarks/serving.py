"""Measures the latency of predict.py --serve with several clients at a time.

    python -m benchmarks.serving --model_dir=sst2 --input_file=dev.tsv
    python -m benchmarks.serving --model_dir=sst2 --input_file=dev.tsv --other=../before
    python -m benchmarks.serving --model_dir=sst2 --input_file=dev.tsv --reloads=3

Each client keeps its connection and sends one text after another.
"""

import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import command_line
import options
from errors import UserError
from files import inputs, tables

_ROOT = pathlib.Path(__file__).parents[1]


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    model_dir: str = options.field(help="An exported model of one text.")
    input_file: list[str] = options.field(help="Tables of texts, used in turn.")
    column: str = options.field("sentence", help="Column of the texts.")
    requests: int = options.field(1000, help="Requests of all clients together.")
    clients: list[int] = options.field(
        [1, 8], help="How many at a time; they take turns."
    )
    rounds: int = options.field(3, help="Turns of each number of clients.")
    other: str | None = options.field(
        None, help="Another checkout, whose server takes turns with this one."
    )
    reloads: int = options.field(
        0, help="How often the model is loaded anew in each turn.", at_least=0
    )


@contextlib.contextmanager
def server(model_dir: str, checkout: pathlib.Path):
    """Starts a server; yields its process and its port."""
    command = [sys.executable, "predict.py", f"--model_dir={model_dir}", "--serve=0"]
    with tempfile.TemporaryFile("a+") as log:
        with subprocess.Popen(command, stderr=log, cwd=checkout) as process:
            try:
                while not (match := re.search(r":(\d+)/ ", _content(log))):
                    if process.poll() is not None:
                        raise UserError(f"the server did not start: {_content(log)}")
                    time.sleep(0.1)
                yield process, int(match[1])
            finally:
                process.send_signal(signal.SIGINT)


def _content(log):
    log.seek(0)
    return log.read()


def ask(port: int, texts: list[str]) -> list[float | None]:
    """Milliseconds until each text's answer; None for those without one."""
    taken = []
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
        for text in texts:
            begun = time.perf_counter()
            body = json.dumps({"instances": [text]}).encode()
            client.request("POST", "/v1/models/default:predict", body)
            response = client.getresponse()
            content = json.loads(response.read())
            good = response.status == 200 and len(content["predictions"]) == 1
            taken.append(1000 * (time.perf_counter() - begun) if good else None)
    return taken


def measure(process, port, texts, clients, reloads):
    """Milliseconds of each request, and seconds of all."""
    begun = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        shares = [texts[number::clients] for number in range(clients)]
        parts = [pool.submit(ask, port, share) for share in shares]
        for _ in range(reloads):
            time.sleep(1)
            process.send_signal(signal.SIGHUP)
        parts = [part.result() for part in parts]
    return [x for part in parts for x in part], time.perf_counter() - begun


def main(flags: Options) -> None:
    paths = inputs.expand(flags.input_file)
    texts = [row[flags.column] for path in paths for _, row in tables.read(path)]
    texts = [texts[i % len(texts)] for i in range(flags.requests)]
    checkouts = {"here": _ROOT}
    if flags.other:
        checkouts["other"] = pathlib.Path(flags.other)
    print("server  clients  requests/s    lost   p50 ms   p90 ms   p99 ms   max ms")
    with contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(server(os.path.abspath(flags.model_dir), path))
            for name, path in checkouts.items()
        }
        for _, port in servers.values():
            ask(port, texts[:50])  # to warm up
        for clients in flags.clients * flags.rounds:
            for name, (process, port) in servers.items():
                found, seconds = measure(process, port, texts, clients, flags.reloads)
                taken = [x for x in found if x is not None]
                row = [*np.percentile(taken, (50, 90, 99)), max(taken)]
                print(
                    f"{name:6}{clients:9}{len(taken) / seconds:12.0f}"
                    f"{len(texts) - len(taken):8}" + "".join(f"{x:9.1f}" for x in row),
                    flush=True,
                )


if __name__ == "__main__":
    command_line.run(main, Options)
