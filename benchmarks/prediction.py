"""Compares the throughput of an exported model with the text-classification pipeline of
transformers, on the same weights, texts and number of threads.

    python run_classifier.py --task_name=SST-2 --do_train --do_export --output_dir=sst2 ...
    python convert_checkpoint.py --input=sst2 --layout=hugging_face --output_dir=sst2_hf
    python -m benchmarks.prediction --model_dir=sst2 --hugging_face_dir=sst2_hf \\
        --input_file=dev.tsv,train.tsv --transformers_python=.../bin/python

Systems take turns; medians are reported. Loading is not timed, nor are the first texts,
with which each system warms up. Answers are compared. transformers may be installed in its
own environment (requirements/quality.txt).
"""

import dataclasses
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import time

import options
from training.backend import tf
from serving.predictor import Predictor
from text.errors import UserError
from text.files import inputs, tables

_OTHER = pathlib.Path(__file__).with_name("prediction_transformers.py")
_WARM_UP = 64
_WINDOW = 64  # as predict.py's


@dataclasses.dataclass(frozen=True)
class Options:
    model_dir: str = options.field(help="An exported model of one text and its label.")
    hugging_face_dir: str = options.field(
        help="The same model for transformers, as convert_checkpoint.py writes it."
    )
    input_file: list[str] = options.field(help="Tables of texts, read in this order.")
    column: str = options.field("sentence", help="Column of the texts.")
    max_texts: int = options.field(3000, help="Number of texts to use.")
    max_seq_length: int = options.field(128, help="That of the exported model.")
    batch_size: int = options.field(32, help="For ours and the second pipeline.")
    num_threads: int = options.field(2, help="Threads per system.")
    rounds: int = options.field(5, help="Turns per system.")
    transformers_python: str = options.field(
        sys.executable, help="A Python that has torch and transformers."
    )


class Ours:
    """Like predict.py: windows of batches, a line of JSON for each text."""

    def __init__(self, given: Options, texts: list[str]):
        tf.config.threading.set_intra_op_parallelism_threads(given.num_threads)
        tf.config.threading.set_inter_op_parallelism_threads(given.num_threads)
        self._predictor = Predictor(given.model_dir)
        if list(self._predictor.parts) != ["text"]:
            raise UserError(f"{given.model_dir}: the model does not take one text")
        self._requests = [{"text": text} for text in texts]
        self._batch_size = given.batch_size
        self._answer(_WARM_UP)

    def __call__(self) -> tuple[float, float, list]:
        """Seconds, processor seconds, and (label, probability) of each text."""
        begun, worked = time.perf_counter(), time.process_time()
        answers = self._answer(len(self._requests))
        seconds = time.perf_counter() - begun, time.process_time() - worked
        pairs = [(a["predicted"], max(a["probabilities"].values())) for a in answers]
        return *seconds, pairs

    def _answer(self, count):
        answers = []
        size = _WINDOW * self._batch_size
        requests = iter(self._requests[:count])
        while window := list(itertools.islice(requests, size)):
            some = self._predictor.predict(window, self._batch_size)
            for request, answer in zip(window, some, strict=True):
                json.dumps({**request, **answer}, ensure_ascii=False)
            answers += some
        return answers


class Pipelines:
    """transformers in its own process, which answers on request."""

    def __init__(self, given: Options, texts: list[str]):
        settings = {
            "model_dir": given.hugging_face_dir,
            "max_seq_length": given.max_seq_length,
            "num_threads": given.num_threads,
            "warm_up": _WARM_UP,
            "texts": texts,
        }
        self._process = subprocess.Popen(
            [given.transformers_python, str(_OTHER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say(settings)

    def __call__(self, batch_size: int) -> tuple[float, float, list]:
        self._say(batch_size)
        line = self._process.stdout.readline()
        if not line:
            raise UserError("transformers ended; see its output")
        return json.loads(line)

    def _say(self, value):
        print(json.dumps(value), file=self._process.stdin, flush=True)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def read_texts(given) -> list[str]:
    rows = (
        row for path in inputs.expand(given.input_file) for row in tables.read(path)
    )
    return [row[given.column] for _, row in itertools.islice(rows, given.max_texts)]


def main(given: Options) -> None:
    texts = read_texts(given)
    ours, pipelines = Ours(given, texts), Pipelines(given, texts)
    systems = {
        "ours": ours,
        "pipeline": lambda: pipelines(1),
        f"pipeline, batch_size={given.batch_size}": lambda: pipelines(given.batch_size),
    }
    runs = {name: [] for name in systems}
    for number in range(given.rounds):
        for name, system in systems.items():
            runs[name].append(system())
            print(f"round {number + 1}: {name} {runs[name][-1][0]:.2f} s", flush=True)
    pipelines.close()
    report(runs, len(texts))


def report(runs: dict, count: int) -> None:
    wall, worked = (
        {name: statistics.median(run[i] for run in some) for name, some in runs.items()}
        for i in (0, 1)
    )
    print(f"\n{count} texts          texts/s   time / ours   processor s   / ours")
    for name in runs:
        print(
            f"{name:22}{count / wall[name]:8.0f}{wall[name] / wall['ours']:12.2f}"
            f"{worked[name]:14.1f}{worked[name] / worked['ours']:10.2f}"
        )
    mine = runs["ours"][0][2]
    for name in runs:
        pairs = list(zip(mine, runs[name][0][2], strict=True))
        same = sum(a[0] == b[0] for a, b in pairs)
        apart = max(abs(a[1] - b[1]) for a, b in pairs)
        print(
            f"{name}: {same} of {count} labels match ours, probabilities within "
            f"{apart:.1e}"
        )


if __name__ == "__main__":
    options.run(main, Options)
