"""Measures the latency of predict.py --serve with several clients at a time.

    python -m benchmarks.serving --model_dir=sst2 --input_file=dev.tsv

Each client keeps its connection and sends one text after another.
"""

import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import pathlib
import re
import signal
import subprocess
import sys
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


@contextlib.contextmanager
def server(model_dir):
    """Starts a server; yields its port."""
    command = [sys.executable, "predict.py", f"--model_dir={model_dir}", "--serve=0"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=_ROOT
    ) as process:
        try:
            line = process.stderr.readline()
            match = re.search(r":(\d+)/ ", line)
            if not match:
                raise UserError(f"the server did not start: {line}")
            yield int(match[1])
        finally:
            process.send_signal(signal.SIGINT)


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


def main(flags: Options) -> None:
    paths = inputs.expand(flags.input_file)
    texts = [row[flags.column] for path in paths for _, row in tables.read(path)]
    texts = [texts[i % len(texts)] for i in range(flags.requests)]
    print("clients  requests/s    lost   p50 ms   p90 ms   p99 ms   max ms")
    with server(flags.model_dir) as port:
        ask(port, texts[:50])  # to warm up
        for clients in flags.clients * flags.rounds:
            begun = time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(clients) as pool:
                shares = [texts[number::clients] for number in range(clients)]
                parts = list(pool.map(lambda share: ask(port, share), shares))
            seconds = time.perf_counter() - begun
            taken = [x for part in parts for x in part if x is not None]
            row = [*np.percentile(taken, (50, 90, 99)), max(taken)]
            print(
                f"{clients:7}{len(taken) / seconds:12.0f}{len(texts) - len(taken):8}"
                + "".join(f"{x:9.1f}" for x in row),
                flush=True,
            )


if __name__ == "__main__":
    command_line.run(main, Options)
