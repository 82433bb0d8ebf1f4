"""Compares exports of fewer bits with float32: sizes, speeds, agreement and scores.

    python -m benchmarks.small_exports --output_dir=/tmp/small --sst2_dir=glue/SST-2 \\
        --ner_dir=wikiann-en --squad_dir=squad --bert_config_file=small.json

Trains a model for each set whose folder is given, exports it in every precision and
format, and prints what the exports' precision.json say: speeds are those of one row on one
thread, in turns with float32. --base_config_file adds a network of random weights, for its
size and speed. A folder that has a trained model is used as it is.

With --shapes=1x32,32x128, rows times tokens, every form and precision of each model also
takes turns on batches of these shapes, on all cores: milliseconds, and how many times as
fast as the SavedModel in float32 (medians of rounds).
"""

import dataclasses
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

import command_line
import options
from training.backend import tf  # noqa: F401  without its log messages
from training.storage import checkpoint
from training.storage.source import read_config
from errors import UserError
from modeling.objectives.tasks import Classification
from serving import comparison, portable, predictor, runtimes


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    output_dir: str = options.field(help="Folder for the models, one for each set.")
    bert_config_file: str = options.field(help="The architecture to train.")
    vocab_file: str = options.field("vocab/vocab.txt", help="The vocabulary.")
    init_checkpoint: str | None = options.field(
        None, help="Weights to start from; by default, random ones."
    )
    sst2_dir: str | None = options.field(None, help="Folder of SST-2's files.")
    sst2_epochs: float = options.field(2.0, help="Passes over its training set.")
    ner_dir: str | None = options.field(None, help="Folder of tags, as of run_ner.py.")
    ner_epochs: float = options.field(2.0, help="Passes over its training set.")
    squad_dir: str | None = options.field(
        None, help="Folder of train-v1.1.json and dev-v1.1.json."
    )
    squad_epochs: float = options.field(1.0, help="Passes over its training set.")
    base_config_file: str | None = options.field(
        None, help="Architecture of a classifier of random weights to export, too."
    )
    precision: list[str] = options.field(
        ["bfloat16", "float16", "int8"], help="What to export."
    )
    shapes: list[str] = options.field(
        [], help="Batches to time, as ROWSxTOKENS: 1x32,32x32,1x128,32x128."
    )
    rounds: int = options.field(9, help="Turns of each model on a batch.", at_least=1)

    def __post_init__(self):
        super().__post_init__()
        for shape in self.shapes:
            if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", shape):
                raise UserError(f"--shapes={shape}: is not ROWSxTOKENS, such as 32x128")


@dataclasses.dataclass(frozen=True)
class _Model:
    """A run of a script.

    Attributes:
        name: of its folder.
        flags: of the script, besides those that say what to do.
    """

    name: str
    script: str
    flags: dict[str, object]


def models(flags: Options) -> Iterator[_Model]:
    """Those that flags ask for."""
    rate = {"learning_rate": 3e-4}
    if flags.sst2_dir:
        own = {"task_name": "SST-2", "data_dir": flags.sst2_dir, "max_seq_length": 64}
        own |= rate | {"num_train_epochs": flags.sst2_epochs}
        yield _Model("sst2", "run_classifier.py", own)
    if flags.ner_dir:
        own = {"data_dir": flags.ner_dir, "max_seq_length": 64}
        own |= rate | {"num_train_epochs": flags.ner_epochs}
        yield _Model("ner", "run_ner.py", own)
    if flags.squad_dir:
        names = {"train_file": "train-v1.1.json", "predict_file": "dev-v1.1.json"}
        own = {k: os.path.join(flags.squad_dir, v) for k, v in names.items()}
        most = read_config(flags.bert_config_file).max_position_embeddings
        own |= {"max_seq_length": min(256, most)}
        own |= rate | {"num_train_epochs": flags.squad_epochs}
        yield _Model("squad", "run_squad.py", own)
    if flags.base_config_file:
        own = {"task_name": "SST-2", "data_dir": os.path.join(flags.output_dir, "rows")}
        own |= {"max_seq_length": 128}
        yield _Model("random", "run_classifier.py", own)


def run(flags: Options, model: _Model, **more) -> None:
    """Runs a model's script, with these flags, too."""
    config = flags.bert_config_file
    if model.name == "random":
        config = flags.base_config_file
    given = {
        "vocab_file": flags.vocab_file,
        "bert_config_file": config,
        "output_dir": os.path.join(flags.output_dir, model.name),
        **model.flags,
        **more,
    }
    line = [sys.executable, model.script, *(f"--{k}={v}" for k, v in given.items())]
    done = subprocess.run(line, stdout=sys.stderr)
    if done.returncode:
        raise UserError(f"{' '.join(line)} failed")


def write_random(flags: Options) -> str:
    """Writes a classifier of random weights and a few rows for it; returns its prefix."""
    rows = os.path.join(flags.output_dir, "rows")
    os.makedirs(rows, exist_ok=True)
    for name in ("train.tsv", "dev.tsv"):
        lines = [f"some words of a text\t{label}\n" for label in (0, 1, 0, 1)]
        with open(os.path.join(rows, name), "w", encoding="utf-8") as file:
            file.writelines(["sentence\tlabel\n", *lines])
    network = Classification(2).network(read_config(flags.base_config_file))
    prefix = os.path.join(flags.output_dir, "weights", "bert_model.ckpt")
    os.makedirs(os.path.dirname(prefix), exist_ok=True)
    checkpoint.write_bundle(prefix, {v.path: v.numpy() for v in network.weights})
    return prefix


def export(flags: Options, model: _Model) -> Iterator[tuple[str, str, dict]]:
    """Precision, form and facts of each export."""
    given = {}
    if model.name == "random":
        given["init_checkpoint"] = write_random(flags)
    for precision in flags.precision:
        formats = [] if precision == "bfloat16" else portable.FORMATS
        asked = {"export_precision": precision, "export_formats": ",".join(formats)}
        run(flags, model, do_export=True, min_agreement=0, **asked, **given)
        folder = os.path.join(flags.output_dir, model.name, predictor.FOLDER)
        if flags.shapes:
            keep(folder, kept(flags, model, precision))
        with open(os.path.join(folder, comparison.REPORT), encoding="utf-8") as file:
            report = json.load(file)
        for form, facts in report["forms"].items():
            yield precision, form, facts


def kept(flags: Options, model: _Model, precision: str) -> str:
    """Where an export stays when the next one replaces it."""
    return os.path.join(flags.output_dir, "kept", model.name, precision)


def keep(folder: str, place: str) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)


def shape_table(flags: Options, model: _Model) -> Iterator[str]:
    """The lines of a table: milliseconds, and times as fast as the first."""
    given = {"init_checkpoint": write_random(flags)} if model.name == "random" else {}
    formats = ",".join(portable.FORMATS)
    run(flags, model, do_export=True, export_formats=formats, **given)
    folder = os.path.join(flags.output_dir, model.name, predictor.FOLDER)
    keep(folder, kept(flags, model, "float32"))
    networks = {}
    for precision in ("float32", *flags.precision):
        place = kept(flags, model, precision)
        tensors = os.path.join(place, predictor.TENSORS)
        networks["SavedModel", precision] = runtimes.open_saved_model(tensors)
        for name in sorted(os.listdir(place)):
            if form := portable.format_of(name):
                path = os.path.join(place, name)
                networks[form, precision] = runtimes.open_file(form, path)
    columns = [list(shape_times(flags, networks, shape)) for shape in flags.shapes]
    yield f"| {model.name} | precision | {' | '.join(flags.shapes)} |"
    yield "|---" * (2 + len(flags.shapes)) + "|"
    for (form, precision), *cells in zip(networks, *columns, strict=True):
        yield f"| {form} | {precision} | {' | '.join(cells)} |"


def shape_times(flags: Options, networks: dict, shape: str) -> Iterator[str]:
    """The cell of each network; empty where it takes only rows of another length."""
    rows, tokens = map(int, shape.split("x"))
    ids = np.random.default_rng(0).integers(5, 100, (rows, tokens)).astype(np.int32)
    batch = {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}
    seconds = {
        name: []
        for name, network in networks.items()
        if not (lengths := getattr(network, "shapes", None))
        or lengths["input_ids"][1] == tokens
    }
    for number in range(1 + flags.rounds):  # the first does not count
        for name, taken in seconds.items():
            began = time.perf_counter()
            networks[name](batch)
            if number:
                taken.append(time.perf_counter() - began)
    first = next(iter(seconds.values()))
    for name in networks:
        taken = seconds.get(name)
        if not taken:
            yield ""
            continue
        ratios = [one / own for one, own in zip(first, taken, strict=True)]
        middle = statistics.median
        yield f"{1000 * middle(taken):.1f} ms, {middle(ratios):.2f}"


def row(model: _Model, precision: str, form: str, facts: dict) -> str:
    """A line of the table."""
    metrics = [name for name in facts if name.endswith("_of_float32")]
    [metric] = [n.removesuffix("_of_float32") for n in metrics if "bytes" not in n]
    change = facts.get("largest_change_of_a_probability")
    cells = [
        model.name,
        form,
        precision,
        f"{facts['share_of_bytes']:.0%}",
        f"{facts['times_as_fast']:.2f}",
    ]
    if model.name == "random":
        cells += [""] * 3
    else:
        before, after = facts[f"{metric}_of_float32"], facts[metric]
        cells += [
            f"{facts['agreement']:.2%}",
            "" if change is None else f"{change:.3f}",
            f"{metric} {before:.4g} → {after:.4g}",
        ]
    return f"| {' | '.join(cells)} |"


def main(flags: Options) -> None:
    rows, tables = [], []
    for model in models(flags):
        trained = os.path.join(flags.output_dir, model.name, "checkpoint")
        if model.name != "random" and not os.path.exists(trained):
            start = flags.init_checkpoint
            start = {"init_checkpoint": start} if start else {}
            run(flags, model, do_train=True, **start)
        rows += [row(model, *facts) for facts in export(flags, model)]
        tables += shape_table(flags, model) if flags.shapes else []
    print("| model | form | precision | size | speed | same | probability | score |")
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    print("\n".join(tables))


if __name__ == "__main__":
    command_line.run(main, Options)
