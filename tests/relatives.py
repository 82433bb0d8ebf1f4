"""Small models of the whole family, and the scripts that are fine-tuned from them."""

import dataclasses
import pathlib
from collections.abc import Callable

import numpy as np

import run_classifier
import run_ner
import run_squad
import run_swag
from training.storage import checkpoint
from modeling.architectures.config import EncoderConfig
from modeling.architectures.table import make_encoder
from tests import classifier, jobs, ner, samples, squad, swag, tiny

CONFIGS = samples.collect("CONFIGS")


def write_start(
    folder: pathlib.Path, config: EncoderConfig
) -> tuple[dict, dict[str, np.ndarray]]:
    """A checkpoint for the vocabulary there, and its config; its flags and weights."""
    size = len((folder / "vocab.txt").read_text().split())
    config = dataclasses.replace(config, vocab_size=size)
    (folder / "config.json").write_text(config.to_json_string())
    weights = {v.path: v.numpy() for v in make_encoder(config, seed=7).weights}
    prefix = str(folder / "model.ckpt-best")
    checkpoint.write_bundle(prefix, weights)
    return {"init_checkpoint": prefix}, weights


def classifier_from_a_start(
    folder: pathlib.Path, config: EncoderConfig, **own
) -> Callable:
    """Files of a classifier and the weights that it starts from.

    Args:
        own: flags of every run.
    Returns:
        what runs it: with the folder to run in, and other flags.
    """
    tiny.write(folder, classifier.WORDS, config)
    start, _ = write_start(folder, config)
    files = classifier.custom(folder, "tsv", ["x", "y"], number=160)
    flags = start | files | {"task_name": "custom", "data_dir": str(folder)}
    flags |= {"max_seq_length": 16, "save_checkpoints_steps": 20}
    # A shape for all: it is traced once.
    flags |= {"num_train_epochs": [1.25], "length_buckets": False} | own

    def run(source, **changes):
        jobs.run(run_classifier, jobs.flags(source, **flags | changes))

    return run


def classifier_files(folder: pathlib.Path) -> None:
    """Pairs of texts with a label, a vocabulary and a config."""
    lines = "text_a\ttext_b\tlabel\n" + "a b\tb\tx\nb a\ta\ty\n" * 8
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text(lines)
    tiny.write(folder, ["a", "b"], tiny.config(max_position_embeddings=64))


def classifier_flags(folder: pathlib.Path, **changes) -> dict:
    own = {
        "task_name": "custom",
        "data_dir": str(folder),
        "train_file": "train.tsv",
        "dev_file": "dev.tsv",
        "text_a_column": "text_a",
        "text_b_column": "text_b",
        "max_seq_length": 16,
    }
    return jobs.flags(folder, **own | changes)


# By the name that Hugging Face gives the head: a script, its files, its flags, its score.
TASKS = {
    "SequenceClassification": (
        *(run_classifier, classifier_files, classifier_flags, "eval_accuracy"),
    ),
    "QuestionAnswering": (run_squad, squad.write_files, squad.flags, "eval_f1"),
    "TokenClassification": (run_ner, ner.write_files, ner.flags, "eval_f1"),
    "MultipleChoice": (run_swag, swag.write_files, swag.flags, "eval_accuracy"),
}
