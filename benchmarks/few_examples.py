"""Compares ways to train a classifier on 8, 16 and 64 examples of each label.

    python -m benchmarks.few_examples --data_dir=glue/SST-2 --text_column=sentence \\
        --init_checkpoint=model --output_file=few.jsonl

"fine-tuned" trains encoder and head on the examples. "vectors" first trains vectors from
pairs of them, then a head on these vectors, as in docs/vectors.md#few-examples. "head" is
the second half of that alone. Each draw of examples is a run of all three. Every result is
appended to the file, and the same command does what is missing there; the table has the
mean accuracy over the draws, and the deviation.
"""

import dataclasses
import json
import os
import random
import tempfile

import command_line
import options
import run_classifier
import run_retrieval
from training.storage.source import Source
from benchmarks import quality, results, turns
from errors import UserError
from files import json_files, tables

_NOT_SETTINGS = ("output_file", "sizes", "num_draws")


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    data_dir: str = options.field(help="Folder of the two sets.")
    train_file: str = options.field("train.tsv", help="Where examples are drawn from.")
    dev_file: str = options.field("dev.tsv", help="What the accuracy is of.")
    text_column: str = options.field("sentence", help="Column of the text.")
    label_column: str = options.field("label", help="Column of the label.")
    num_dev_examples: int = options.field(0, help="Of the dev set; by default, all.")
    init_checkpoint: str = options.field(help="A pre-trained encoder with its files.")
    output_file: str = options.field(help="JSON lines of all results.")
    sizes: list[int] = options.field([8, 16, 64], help="Examples of each label.")
    num_draws: int = options.field(10, help="Draws of each size, by seeds from 0.")
    max_seq_length: int = options.field(64, help="Tokens of a row.")
    train_batch_size: int = options.field(16, help="Rows per update.")
    learning_rate: float = options.field(2e-5, help="Of fine-tuning.")
    num_train_epochs: float = options.field(50.0, help="Of fine-tuning.")
    vectors_learning_rate: float = options.field(2e-5, help="Of vectors.")
    vectors_epochs: float = options.field(1.0, help="Passes over their pairs.")
    pairs_per_text: int = options.field(20, help="As run_retrieval.py takes it.")
    head_learning_rate: float = options.field(1e-3, help="Of a head on vectors.")
    head_epochs: float = options.field(20.0, help="Of a head on vectors.")


def read(flags: Options, name: str) -> list[dict[str, str]]:
    """The examples of a file that are not empty."""
    path = os.path.join(flags.data_dir, name)
    columns = {"text": flags.text_column, "label": flags.label_column}
    rows = [
        {
            key: tables.text(row, column, f"{path}:{number}", "the --*_column flags")
            for key, column in columns.items()
        }
        for number, row in tables.read(path)
    ]
    return [row for row in rows if row["text"].strip()]


def draw(rows: list[dict], size: int, seed: int) -> list[dict]:
    """This many examples of each label."""
    by_label = {}
    for row in rows:
        by_label.setdefault(row["label"], []).append(row)
    rng, drawn = random.Random(f"{size} {seed}"), []
    for label, some in sorted(by_label.items()):
        if len(some) < size:
            raise UserError(f"the label {label!r} has only {len(some)} examples")
        drawn += rng.sample(some, size)
    return drawn


def _write(path: str, rows: list[dict]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


class Draw:
    """The examples of one draw in a folder, in which models are trained."""

    def __init__(self, flags: Options, folder: str, seed: int):
        self._flags, self._folder = flags, folder
        self._common = {
            "data_dir": folder,
            "train_file": "train.jsonl",
            "dev_file": "dev.jsonl",
            "do_train": True,
            "max_seq_length": flags.max_seq_length,
            "train_batch_size": [flags.train_batch_size],
            "eval_batch_size": 64,
            "seed": seed,
        }

    def _classify(self, name: str, rate: float, epochs: float, **more) -> dict:
        output = os.path.join(self._folder, name)
        results.run(
            run_classifier,
            task_name="custom",
            do_eval=True,
            learning_rate=[rate],
            num_train_epochs=[epochs],
            output_dir=output,
            **self._common,
            **more,
        )
        scores = json_files.read(os.path.join(output, "eval_results.json"))
        return {"accuracy": scores["eval_accuracy"]}

    def fine_tuned(self) -> dict:
        rate, epochs = self._flags.learning_rate, self._flags.num_train_epochs
        start = {"init_checkpoint": self._flags.init_checkpoint}
        return self._classify("fine_tuned", rate, epochs, **start)

    def head(self, init_checkpoint: str | None = None) -> dict:
        start = init_checkpoint or self._flags.init_checkpoint
        layers = Source.open(start).config.num_hidden_layers
        rate, epochs = self._flags.head_learning_rate, self._flags.head_epochs
        frozen = {"freeze_layers": layers, "pooling": "mean"}
        return self._classify("head", rate, epochs, init_checkpoint=start, **frozen)

    def vectors(self) -> dict:
        output = os.path.join(self._folder, "vectors")
        results.run(
            run_retrieval,
            train_kind="labelled_texts",
            pairs_per_text=self._flags.pairs_per_text,
            init_checkpoint=self._flags.init_checkpoint,
            learning_rate=[self._flags.vectors_learning_rate],
            num_train_epochs=[self._flags.vectors_epochs],
            output_dir=output,
            **self._common,
        )
        return self.head(output)


_WAYS = {"fine-tuned": Draw.fine_tuned, "head": Draw.head, "vectors": Draw.vectors}


def main(flags: Options) -> None:
    settings = dataclasses.asdict(flags)
    settings = {k: v for k, v in settings.items() if k not in _NOT_SETTINGS}
    found = results.Results(flags.output_file)
    train = read(flags, flags.train_file)
    dev = quality.take(read(flags, flags.dev_file), flags.num_dev_examples)

    def measure(way, size, seed, settings):
        with tempfile.TemporaryDirectory() as folder:
            _write(os.path.join(folder, "train.jsonl"), draw(train, size, seed))
            _write(os.path.join(folder, "dev.jsonl"), dev)
            return _WAYS[way](Draw(flags, folder, seed))

    for seed in range(flags.num_draws):
        for size in flags.sizes:
            for way in _WAYS:
                key = {"way": way, "size": size, "seed": seed}
                found.measure(measure, **key, settings=settings)
    print(f"| | {' | '.join(f'{size} of each label' for size in flags.sizes)} |")
    print("|---" * (1 + len(flags.sizes)) + "|")
    for way in _WAYS:
        key = {"way": way, "settings": settings}
        lines = [found.of(size=size, **key) for size in flags.sizes]
        cells = [
            turns.mean_and_deviation([100 * line["accuracy"] for line in some])
            for some in lines
        ]
        print(f"| {way} | {' | '.join(cells)} |")


if __name__ == "__main__":
    command_line.run(main, Options)
