"""Runs the whole pipeline on text found on every machine. Run it with ./demo.sh."""

import collections
import dataclasses
import functools
import itertools
import math
import os
import shlex
import subprocess
import sys
import time
from typing import NamedTuple

import command_line
import options
from errors import UserError, duration
from files import json_files, local
from text.instances.table import RowOptions
from text.records import encoding, framing

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MARK = ".demo~bert~"  # a file that marks the folder as made by the demo
_SEQ_LENGTH = 64
_PREDICTIONS = 10
_COUNTED_RECORDS = 50_000  # a fair sample, because records are in random order
_SENTENCES = (
    "Returns the [MASK] of the array.",
    "Raises: ValueError: if the [MASK] is not valid.",
    "name: A [MASK] for the operation (optional).",
)
_QUESTIONS = (
    "Computes the inverse hyperbolic sine of a tensor.",
    "The estimator must be fitted before it can predict.",
)


class _Size(NamedTuple):
    takes: str
    max_modules: int  # 0: all
    vocab_size: int
    steps: int
    margin: float  # by which the encoder must beat word frequencies, in nats
    package_sentences: int  # to fine-tune on, per package
    package_dev_sentences: int  # from held-out modules, per package
    accuracy_margin: float  # by which the classifier must beat random weights on them


_FULL = _Size("about ten minutes", 0, 8000, 4000, 0.3, 120, 100, 0.03)
_SHORT = _Size("two to three minutes", 600, 4000, 150, -0.5, 40, 15, -1.0)


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    output_dir: str = options.field("demo_output", help="Folder for all output.")
    short: bool = options.field(
        False,
        help="Run the same pipeline in two to three minutes, with less text and fewer "
        "updates.",
    )


def main(flags: Options) -> None:
    begun = time.monotonic()
    folder = os.path.join(flags.output_dir, "short" if flags.short else "full")
    local.take_folder(folder, _MARK)
    path = functools.partial(os.path.join, folder)
    size = _SHORT if flags.short else _FULL
    print(
        f"The whole pipeline takes {size.takes} on two cores. If it is interrupted, run "
        "the same command again to continue."
    )
    _make_records(path, size)
    _pretrain(path, size)
    _fill_masks(path)
    _fine_tune(path, size)
    _export(path)
    print(
        f"\nDone in {duration(time.monotonic() - begun)}. {folder} contains the text, "
        "the records and their\nreport (records.html); pretraining/ contains the "
        "checkpoint, metrics.jsonl and curves;\nfine_tuned/ contains a classifier, its "
        "mistakes (mistakes.html), and export/.\nNext, run the same commands on your own "
        "text: docs/pretraining.md explains them."
    )


def _make_records(path, size):
    _step(1, "Collect text: the documentation of the installed Python packages")
    if not os.path.exists(path("packages/dev.tsv")):  # written last
        _run(
            "recipes/collect_documentation.py",
            output_file=path("train.txt"),
            held_out_file=path("held_out.txt"),
            max_modules=size.max_modules,
            package_dir=path("packages"),
            package_sentences=size.package_sentences,
            package_dev_sentences=size.package_dev_sentences,
        )

    _step(2, "Learn a vocabulary of word pieces from it")
    if not os.path.exists(path("vocab.txt")):
        _run(
            "build_vocab.py",
            input_file=path("train.txt"),
            output_file=path("vocab.txt"),
            vocab_size=size.vocab_size,
            num_unused=99,
        )

    _step(3, "Write records: pairs of spans, 15% of their tokens masked")
    for name, passes in (("train", 5), ("held_out", 1)):
        _run(
            "create_pretraining_data.py",
            input_file=path(f"{name}.txt"),
            output_file=path(f"{name}.tfrecord"),
            vocab_file=path("vocab.txt"),
            max_seq_length=_SEQ_LENGTH,
            max_predictions_per_seq=_PREDICTIONS,
            dupe_factor=passes,
            overwrite=True,
        )

    _step(4, "Look at the records, check them, and write a report")
    _run(
        "inspect_records.py",
        input_file=path("train.tfrecord"),
        vocab_file=path("vocab.txt"),
        num_shown=2,
        report_file=path("records.html"),
    )


def _pretrain(path, size):
    _step(5, "Pre-train a small encoder, and evaluate it on held-out modules")
    local.write_json(path("bert_config.json"), _config(size.vocab_size))
    _run(
        "run_pretraining.py",
        do_train=True,
        do_eval=True,
        input_file=path("train.tfrecord"),
        eval_input_file=path("held_out.tfrecord"),
        bert_config_file=path("bert_config.json"),
        output_dir=path("pretraining"),
        max_seq_length=_SEQ_LENGTH,
        max_predictions_per_seq=_PREDICTIONS,
        train_batch_size=32,
        eval_batch_size=32,
        dtype="mixed_bfloat16",
        learning_rate=1.5e-3,
        num_train_steps=size.steps,
        num_warmup_steps=size.steps // 5,
        log_every_steps=size.steps // 20,
        save_checkpoints_steps=size.steps // 5,
    )
    _compare(
        path("train.tfrecord"),
        path("held_out.tfrecord"),
        path("pretraining/eval_results.txt"),
        size,
    )


def _fill_masks(path):
    _step(6, "Fill masks")
    for sentence in _SENTENCES:
        _run(
            "fill_mask.py",
            init_checkpoint=path("pretraining"),
            vocab_file=path("vocab.txt"),
            text=sentence,
        )


def _fine_tune(path, size):
    _step(7, "Fine-tune to predict a sentence's package, then from random weights")
    accuracies = {}
    for name, start in (
        ("fine_tuned", {"init_checkpoint": path("pretraining")}),
        ("from_random_weights", {}),
    ):
        _run(
            "run_classifier.py",
            task_name="custom",
            do_train=True,
            do_eval=True,
            data_dir=path("packages"),
            vocab_file=path("vocab.txt"),
            bert_config_file=path("bert_config.json"),
            output_dir=path(name),
            max_seq_length=_SEQ_LENGTH,
            learning_rate=3e-4,
            num_train_epochs=10,
            eval_batch_size=32,
            **start,
        )
        accuracies[name] = json_files.read(path(name, "eval_results.json"))[
            "eval_accuracy"
        ]
    print("\nSentences of held-out modules          accuracy")
    print(
        f"  from random weights                  {accuracies['from_random_weights']:7.1%}"
    )
    print(f"  from the pre-trained encoder         {accuracies['fine_tuned']:7.1%}")
    gain = accuracies["fine_tuned"] - accuracies["from_random_weights"]
    if gain < size.accuracy_margin:
        raise UserError("pre-training did not clearly help; something is wrong")
    if size is _SHORT:
        print(
            "Pre-training this short does not help, and may give every text the same "
            "answer;\n./demo.sh trains for longer."
        )


def _export(path):
    _step(8, "Export the classifier as a SavedModel, and query it")
    _run(
        "run_classifier.py",
        task_name="custom",
        do_export=True,
        data_dir=path("packages"),
        vocab_file=path("vocab.txt"),
        bert_config_file=path("bert_config.json"),
        output_dir=path("fine_tuned"),
        max_seq_length=_SEQ_LENGTH,
    )
    with open(path("questions.txt"), "w", encoding="utf-8") as file:
        file.writelines(f"{question}\n" for question in _QUESTIONS)
    _run("predict.py", model_dir=path("fine_tuned"), input_file=path("questions.txt"))


def _config(vocab_size):
    return {
        "vocab_size": vocab_size,
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 512,
        # A run this short is far from memorizing its text.
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 128,
        "type_vocab_size": 2,
    }


def _step(number, what):
    print(f"\n=== {number}. {what} ===", flush=True)


def _run(script, **flags):
    """Runs a script as a user would, and shows the command."""
    words = options.words(**flags)
    print(f"$ python {script} {shlex.join(words)}", flush=True)
    done = subprocess.run([sys.executable, os.path.join(_ROOT, script), *words])
    if done.returncode:
        raise UserError(f"{script} exited with status {done.returncode}; see above")


def _compare(train_file, held_out_file, results_file, size):
    """Prints the encoder's results next to those of token frequencies alone."""
    some = itertools.islice(framing.read(train_file), _COUNTED_RECORDS)
    counts = collections.Counter(_masked_tokens(some))
    total = (
        sum(counts.values()) + size.vocab_size
    )  # each token counts one more, so that none has probability 0
    most_frequent = counts.most_common(1)[0][0]
    held_out = _masked_tokens(framing.read(held_out_file))
    loss = -sum(math.log((counts[t] + 1) / total) for t in held_out) / len(held_out)
    accuracy = held_out.count(most_frequent) / len(held_out)
    with open(results_file, encoding="utf-8") as file:
        results = dict(line.strip().split(" = ") for line in file)
    print("\nMasked tokens of held-out modules    loss   accuracy")
    print(f"  by their frequency alone          {loss:6.3f}   {accuracy:7.1%}")
    print(
        f"  by the encoder                    {float(results['masked_lm_loss']):6.3f}   "
        f"{float(results['masked_lm_accuracy']):7.1%}"
    )
    if float(results["masked_lm_loss"]) > loss - size.margin:
        raise UserError("the encoder is not clearly better; something is wrong")
    if size is _SHORT:
        print(
            "A run this short learns frequencies at most, so it fills every mask alike; "
            "./demo.sh\nlearns more."
        )


def _masked_tokens(examples):
    """The original tokens at the masked positions."""
    schema = (
        RowOptions(max_seq_length=_SEQ_LENGTH, max_predictions_per_seq=_PREDICTIONS)
        .make_instances()
        .schema()
    )
    batch, _ = encoding.decode(list(examples), schema)
    return batch["masked_lm_ids"][batch["masked_lm_weights"] > 0].tolist()


if __name__ == "__main__":
    command_line.run(main, Options)
