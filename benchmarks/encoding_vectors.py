"""Compares the encoding of texts with sentence-transformers, on the same weights, texts and
number of threads: texts per second, and the latency of one text.

    python run_retrieval.py --do_train --do_export --output_dir=vectors ...
    python -m benchmarks.encoding_vectors --model_dir=vectors --input_file=dev.tsv \\
        --transformers_python=.../bin/python --num_threads=1

"ours" is predict.py's predictor, "embed" that of bert.py. Systems take turns; medians are
reported. Loading is not timed, nor are the first texts, with which each system warms up.
Vectors are compared. The other Python needs torch and sentence-transformers.
"""

import dataclasses
import functools
import itertools
import os
import tempfile

import numpy as np

import bert
import command_line
import options
from training.backend import tf
from benchmarks import prediction, turns
from serving.predictor import Predictor

_COMPARED = 50  # texts whose vectors are


@dataclasses.dataclass(frozen=True)
class Options(prediction.TextsOptions):
    model_dir: str = options.field(help="The output_dir of run_retrieval.py.")
    num_threads: int = options.override(prediction.TextsOptions, "num_threads", 1)


class Ours:
    """A system in this process.

    Args:
        encode: (texts, batch size) -> their vectors.
    """

    def __init__(self, encode, texts: list[str], batch_size: int):
        self._encode, self._texts, self._batch_size = encode, texts, batch_size
        self._encode(texts[: prediction.WARM_UP], batch_size)
        self._encode(texts[:1], 1)

    def turn(self, request: dict) -> dict:
        """As `encoding_vectors_theirs.py` replies."""
        return turns.measured(self._work, request)

    def _work(self, request):
        if count := request.get("one_by_one"):
            return turns.one_by_one(
                lambda text: self._encode([text], 1)[0, 0].item(), self._texts[:count]
            )
        vectors = self._encode(self._texts, self._batch_size)
        return {"answers": vectors[:_COMPARED].tolist()}


def _predictor(model_dir: str):
    predictor = Predictor(model_dir)
    return lambda texts, batch_size: predictor.vectors(
        [{"text": text} for text in texts], batch_size
    )


def _embedder(model_dir: str, folder: str):
    """That of bert.py; also writes the model for sentence-transformers."""
    encoder = bert.load(model_dir)
    bert.save(encoder, folder, layout="sentence_transformers")
    return lambda texts, batch_size: encoder.embed(texts, batch_size=batch_size)


def _theirs(flags: Options, folder: str, texts: list[str]) -> turns.Waiting:
    settings = {
        "model_dir": folder,
        "num_threads": flags.num_threads,
        "batch_size": flags.batch_size,
        "warm_up": prediction.WARM_UP,
        "compared": _COMPARED,
        "texts": texts,
    }
    command = [flags.transformers_python, "-m", "benchmarks.encoding_vectors_theirs"]
    return turns.Waiting(command, turns.with_threads(flags.num_threads), settings)


def main(flags: Options) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(flags.num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(flags.num_threads)
    texts = prediction.read_texts(flags)
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.join(folder, "model")
        encoders = {
            "ours": _predictor(flags.model_dir),
            "embed": _embedder(flags.model_dir, folder),
        }
        systems = {
            name: Ours(encode, texts, flags.batch_size)
            for name, encode in encoders.items()
        }
        systems["sentence-transformers"] = theirs = _theirs(flags, folder, texts)
    together = turns.take(systems, flags.rounds, {})
    alone = turns.take(systems, flags.rounds, {"one_by_one": flags.latency_texts})
    theirs.end()
    print(f"\n{len(texts)} texts")
    speed = functools.partial(prediction.speed, len(texts))
    print(turns.table(together, {"texts/s": speed}))
    print(f"\nOne text at a time, {flags.latency_texts} a turn")
    print(prediction.latencies(alone))
    vectors = {name: np.array(some[0]["answers"]) for name, some in together.items()}
    for name, some in vectors.items():
        print(f"{name}: vectors within {np.abs(some - vectors['ours']).max():.1e}")
    for turn in itertools.chain(*together.values(), *alone.values()):
        del turn["answers"]
    figures = {f"{name}, one by one": some for name, some in alone.items()}
    turns.write(flags.json_file, dataclasses.asdict(flags), together | figures)


if __name__ == "__main__":
    command_line.run(main, Options)
