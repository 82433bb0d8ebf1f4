"""Compares an exported model with the text-classification pipeline of transformers, on the
same weights, texts and number of threads: texts per second, and the latency of one text.

    python run_classifier.py --task_name=SST-2 --do_train --do_export --output_dir=sst2 ...
    python convert_checkpoint.py --input=sst2 --layout=hugging_face --output_dir=sst2_hf
    python -m benchmarks.prediction --model_dir=sst2 --hugging_face_dir=sst2_hf \\
        --input_file=dev.tsv,train.tsv --transformers_python=.../bin/python

Systems take turns; medians are reported. Loading is not timed, nor are the first texts,
with which each system warms up. Answers are compared. transformers may be installed in its
own environment (requirements/quality.txt, or requirements/peers.txt for --keras_hub too).
"""

import dataclasses
import functools
import itertools
import json
import statistics
import sys

import command_line
import options
from training.backend import tf
from benchmarks import turns
from errors import UserError
from files import inputs, tables
from serving.predictor import Predictor

WARM_UP = 64
_WINDOW = 64  # as predict.py's


@dataclasses.dataclass(frozen=True)
class TextsOptions(options.Group):
    """Texts, and how systems take turns with them."""

    input_file: list[str] = options.field(help="Tables of texts, read in this order.")
    column: str = options.field("sentence", help="Column of the texts.")
    max_texts: int = options.field(3000, help="Number of texts to use.")
    batch_size: int = options.field(32, help="Of systems that take several at once.")
    num_threads: int = options.field(2, help="Threads per system.")
    rounds: int = options.field(9, help="Turns per system.")
    latency_texts: int = options.field(
        200, help="Texts per turn that are given one at a time."
    )
    transformers_python: str = options.field(
        sys.executable, help="A Python that has the other systems, and torch."
    )
    json_file: str | None = options.field(None, help="Also writes all figures there.")


@dataclasses.dataclass(frozen=True)
class Options(TextsOptions):
    model_dir: str = options.field(help="An exported model of one text and its label.")
    hugging_face_dir: str = options.field(
        help="The same model for transformers, as convert_checkpoint.py writes it."
    )
    max_seq_length: int = options.field(128, help="That of the exported model.")
    keras_hub: bool = options.field(
        False,
        help="Also measure keras-hub's BertTextClassifier, which that Python has, too. It "
        "has the same encoder and a random head.",
    )


class Ours:
    """Like predict.py: windows of batches, a line of JSON for each text."""

    def __init__(self, flags: Options, texts: list[str]):
        tf.config.threading.set_intra_op_parallelism_threads(flags.num_threads)
        tf.config.threading.set_inter_op_parallelism_threads(flags.num_threads)
        self._predictor = Predictor(flags.model_dir)
        if list(self._predictor.parts) != ["text"]:
            raise UserError(f"{flags.model_dir}: the model does not take one text")
        self._requests = [{"text": text} for text in texts]
        self._batch_size = flags.batch_size
        self._answer(WARM_UP)

    def turn(self, request: dict) -> dict:
        """As `prediction_transformers.py` replies."""
        return turns.measured(self._work, request)

    def _work(self, request):
        if count := request.get("one_by_one"):
            texts = (some["text"] for some in self._requests[:count])
            return turns.one_by_one(self._one, texts)
        return {"answers": [_pair(a) for a in self._answer(len(self._requests))]}

    def _one(self, text):
        [answer] = self._predictor.predict([{"text": text}], 1)
        json.dumps({"text": text, **answer}, ensure_ascii=False)
        return _pair(answer)

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


def _pair(answer):
    return answer["predicted"], max(answer["probabilities"].values())


class Theirs:
    """A process of theirs; each of its ways to be asked is a system.

    Args:
        module: what the process runs.
    """

    def __init__(self, flags: Options, texts: list[str], module: str):
        settings = {
            "model_dir": flags.hugging_face_dir,
            "max_seq_length": flags.max_seq_length,
            "num_threads": flags.num_threads,
            "warm_up": WARM_UP,
            "texts": texts,
        }
        command = [flags.transformers_python, "-m", f"benchmarks.{module}"]
        environment = turns.with_threads(flags.num_threads)
        self._process = turns.Waiting(command, environment, settings)

    def asked(self, **how) -> "Asked":
        return Asked(self._process, how)

    def end(self) -> None:
        self._process.end()


@dataclasses.dataclass(frozen=True)
class Asked:
    """A system whose every request has these settings, too."""

    process: turns.Waiting
    how: dict

    def turn(self, request: dict) -> dict:
        return self.process.turn(request | self.how)


def read_texts(flags: TextsOptions) -> list[str]:
    rows = (
        row for path in inputs.expand(flags.input_file) for row in tables.read(path)
    )
    return [row[flags.column] for _, row in itertools.islice(rows, flags.max_texts)]


def main(flags: Options) -> None:
    texts = read_texts(flags)
    ours = Ours(flags, texts)
    pipelines = Theirs(flags, texts, "prediction_transformers")
    systems = {"ours": ours, "pipeline": pipelines.asked(batch_size=1)}
    batched = {f"pipeline, batch_size={flags.batch_size}": flags.batch_size}
    batched = {name: pipelines.asked(batch_size=n) for name, n in batched.items()}
    others = [pipelines]
    if flags.keras_hub:
        others.append(Theirs(flags, texts, "prediction_keras_hub"))
        systems["keras-hub"] = others[-1].asked(batch_size=flags.batch_size)
    together = turns.take(systems | batched, flags.rounds, {})
    alone = turns.take(systems, flags.rounds, {"one_by_one": flags.latency_texts})
    for other in others:
        other.end()
    print(f"\n{len(texts)} texts")
    print(turns.table(together, {"texts/s": functools.partial(speed, len(texts))}))
    print(f"\nOne text at a time, {flags.latency_texts} a turn")
    print(latencies(alone))
    for figures in (together, alone):
        _compare_answers(figures)
    figures = {
        f"{name}{way}": some
        for way, by_system in (("", together), (", one by one", alone))
        for name, some in by_system.items()
    }
    turns.write(flags.json_file, dataclasses.asdict(flags), figures)


def speed(count, figures):
    return f"{count / statistics.median(turn['seconds'] for turn in figures):.0f}"


def latencies(figures) -> str:
    """Percentiles of the texts of all turns, and the median of the turns' ratios."""
    lines = [f"{'':28}  p50 ms  times ours  p99 ms  times ours  CPU ms  times ours"]
    rows = zip(
        *(turns.compare(figures, key) for key in ("p50", "p99", "cpu_seconds")),
        strict=True,
    )
    for p50, p99, cpu in rows:
        some = figures[p50["system"]]
        taken = [x for turn in some for x in turn["milliseconds"]]
        milliseconds = turns.percentiles(taken)
        worked = 1000 * cpu["cpu_seconds"] / len(some[0]["milliseconds"])
        lines.append(
            f"{p50['system']:28}{milliseconds['p50']:8.1f}{p50['times_ours']:12.2f}"
            f"{milliseconds['p99']:8.1f}{p99['times_ours']:12.2f}"
            f"{worked:8.1f}{cpu['times_ours']:12.2f}"
        )
    return "\n".join(lines)


def _compare_answers(figures) -> None:
    """Says how well labels and probabilities match ours, and forgets them."""
    mine = figures["ours"][0]["answers"]
    for name, some in figures.items():
        if answers := some[0]["answers"]:
            pairs = list(zip(mine, answers, strict=True))
            same = sum(a[0] == b[0] for a, b in pairs)
            apart = max(abs(a[1] - b[1]) for a, b in pairs)
            print(
                f"{name}: {same} of {len(mine)} labels match ours, probabilities within "
                f"{apart:.1e}"
            )
        for turn in some:
            del turn["answers"]


if __name__ == "__main__":
    command_line.run(main, Options)
