"""Compares the scores of Keras's `fit` with those of run_classifier.py, on the same
pre-trained weights, data, batch size, learning rate and epochs.

    python -m benchmarks.fit --set=SST-2 --glue_dir=glue --model_dir=model

`fit` trains the model of docs/python.md, whose head begins as Keras's Dense does: once with
rows of --max_seq_length tokens, once with the length buckets that the script uses, too.
"""

import dataclasses
import functools
import json
import pathlib
import statistics
import tempfile
import time

import bert
import command_line
import options
import run_classifier
from training import metrics
from training.backend import keras
from benchmarks import quality, turns
from files import json_files

_SETS = tuple(
    name for name, kind in quality.SETS.items() if getattr(kind, "labels", ())
)


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    set: str = options.field("SST-2", choices=_SETS, help="Which set.")
    glue_dir: str = options.field(help="Folder of GLUE's sets.")
    model_dir: str = options.field(help="Pre-trained weights, config and vocabulary.")
    num_examples: int = options.field(0, help="Of the training set; by default, all.")
    max_seq_length: int = options.field(64, help="Longest row.")
    train_batch_size: int = options.field(32, help="Rows per update.")
    learning_rate: float = options.field(2e-4, help="The peak.")
    num_train_epochs: int = options.field(2, help="Epochs.")
    seeds: list[int] = options.field([1, 2, 3], help="One run of each per seed.")


def by_script(flags: Options, folder: pathlib.Path, seed: int) -> dict[str, float]:
    """Scores of run_classifier.py on the dev set, in percent."""
    with tempfile.TemporaryDirectory() as output_dir:
        run_classifier.main(
            run_classifier.Options(
                task_name=flags.set,
                data_dir=str(folder),
                init_checkpoint=flags.model_dir,
                output_dir=output_dir,
                do_train=True,
                do_eval=True,
                max_seq_length=flags.max_seq_length,
                train_batch_size=[flags.train_batch_size],
                learning_rate=[flags.learning_rate],
                num_train_epochs=[float(flags.num_train_epochs)],
                seed=seed,
            )
        )
        results = json_files.read(str(pathlib.Path(output_dir, "eval_results.json")))
    return quality.SETS[flags.set].of_ours(results)


def by_fit(
    flags: Options, folder: pathlib.Path, seed: int, length_buckets: bool = False
) -> dict[str, float]:
    """Scores of the same by `fit`, in percent."""
    kind = quality.SETS[flags.set]
    keras.utils.set_random_seed(seed)
    encoder = bert.load(flags.model_dir)
    settings = {
        "batch_size": flags.train_batch_size,
        "max_seq_length": flags.max_seq_length,
    }
    texts, labels = _read(folder / "train.jsonl")
    data = bert.dataset(
        texts, labels, encoder, seed=seed, length_buckets=length_buckets, **settings
    )
    num_train_steps = flags.num_train_epochs * len(data)

    inputs = encoder.inputs(None if length_buckets else flags.max_seq_length)
    vector = keras.layers.Dropout(0.1)(encoder(inputs)["pooled_output"])
    model = keras.Model(inputs, keras.layers.Dense(len(kind.labels))(vector))
    model.compile(
        optimizer=bert.optimizer(
            flags.learning_rate, num_train_steps, num_warmup_steps=num_train_steps // 10
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(data, epochs=flags.num_train_epochs, verbose=2)

    texts, labels = _read(folder / "dev.jsonl")
    logits = model.predict(bert.dataset(texts, None, encoder, **settings), verbose=0)
    predicted = logits.argmax(axis=1)
    return {
        name: 100 * getattr(metrics, name)(labels, predicted) for name in kind.scores
    }


def _read(path: pathlib.Path) -> tuple[list, list[int]]:
    """Texts, or pairs of them, and their labels."""
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    pairs = [(row["text_a"], row["text_b"]) for row in rows]
    texts = [first if second is None else (first, second) for first, second in pairs]
    return texts, [row["label"] for row in rows]


def main(flags: Options) -> None:
    """Prints a row for each way: mean, deviation, and the score of each seed."""
    ways = {
        "run_classifier.py": by_script,
        "fit": by_fit,
        "fit, length_buckets": functools.partial(by_fit, length_buckets=True),
    }
    scores = {name: [] for name in ways}
    seconds = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        for split, limit in (("train", flags.num_examples), ("dev", 0)):
            quality.SETS[flags.set].prepare(folder, split, flags, limit)
        for seed in flags.seeds:
            for name, way in ways.items():
                began = time.perf_counter()
                scores[name].append(way(flags, folder, seed))
                seconds[name].append(time.perf_counter() - began)
                print(f"seed {seed}, {name}: {scores[name][-1]}", flush=True)
    for name, runs in scores.items():
        for score in runs[0]:
            values = [run[score] for run in runs]
            each = ", ".join(f"{value:.1f}" for value in values)
            print(
                f"{name}: {score} {turns.mean_and_deviation(values)} ({each}), "
                f"{statistics.mean(seconds[name]):.0f} s a run"
            )


if __name__ == "__main__":
    command_line.run(main, Options)
