"""Compares fine-tuned quality with transformers and PyTorch, on the same pre-trained
weights, data, seeds and hyperparameters.

    python -m benchmarks.quality --model_dir=... --glue_dir=... --output_dir=quality \\
        --sets=RTE,STS-B,CoLA,SST-2:6000

The systems take turns, with one thread each. "corrected" is ours with --bias_correction,
which transformers has and the release does not. Every run is appended to
output_dir/results.jsonl; the same command runs what is missing there and prints the table.
transformers may be installed in its own environment (requirements/quality.txt), whose
Python --transformers_python names.
"""

import dataclasses
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import command_line
import options
from training import metrics
from benchmarks import turns
from errors import UserError
from training.finetuning import squad_metrics

ROOT = pathlib.Path(__file__).parents[1]
SYSTEMS = ("ours", "corrected", "transformers")


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    model_dir: str = options.field(
        help="BERT in Hugging Face layout: config.json, model.safetensors, vocab.txt."
    )
    glue_dir: str | None = options.field(
        None, help="Folder with GLUE's RTE, STS-B, CoLA and SST-2."
    )
    squad_train_file: str | None = options.field(
        None, help="The training set of SQuAD 1.1."
    )
    squad_dev_file: str | None = options.field(None, help="The dev set of SQuAD 1.1.")
    output_dir: str = options.field(help="Where results and logs go.")
    transformers_python: str = options.field(
        sys.executable, help="A Python that has torch and transformers."
    )
    sets: list[str] = options.field(
        ["RTE", "STS-B", "CoLA", "SST-2"],
        help="Any of these and SQuAD. SST-2:4000 takes that many of its training examples, "
        "SQuAD:3000/1000 also limits the dev set.",
    )
    seeds: list[int] = options.field([1, 2, 3], help="One run of each system per seed.")
    learning_rate: float = options.field(5e-5, help="For both systems.")
    train_batch_size: int = options.field(32, help="Rows per update.")
    num_train_epochs: int = options.field(3, help="Epochs.")
    systems: list[str] = options.field(list(SYSTEMS), help="Which systems.")

    def __post_init__(self):
        super().__post_init__()
        if unknown := set(self.limits) - set(SETS):
            raise UserError(f"--sets: {', '.join(unknown)}: not in {', '.join(SETS)}")
        if unknown := set(self.systems) - set(SYSTEMS):
            raise UserError(
                f"--systems: {', '.join(unknown)}: not in {', '.join(SYSTEMS)}"
            )
        needed = (
            ["squad_train_file", "squad_dev_file"] if "SQuAD" in self.limits else []
        )
        needed += ["glue_dir"] if set(self.limits) - {"SQuAD"} else []
        for flag in needed:
            if not getattr(self, flag):
                raise UserError(f"--sets={','.join(self.sets)} needs --{flag}")

    @property
    def limits(self) -> dict[str, list[int]]:
        """Set -> how many training and dev examples to take, if not all."""
        pairs = (item.partition(":") for item in self.sets)
        return {
            name: [int(n) for n in numbers.split("/")] if numbers else []
            for name, _, numbers in pairs
        }

    @property
    def hyperparameters(self) -> dict:
        names = ("learning_rate", "train_batch_size", "num_train_epochs")
        return {name: getattr(self, name) for name in names}


# === Sets ============================================================================


def take(items: list, limit: int | None) -> list:
    """`limit` items of a list, in its order; the same ones at every call."""
    if not limit or limit >= len(items):
        return items
    chosen = random.Random(0).sample(range(len(items)), limit)
    return [items[i] for i in sorted(chosen)]


@dataclasses.dataclass(frozen=True)
class Glue:
    """One of GLUE's sets: its columns, by number, and its scores.

    `labels` is empty if the label is a number.
    """

    name: str
    text_a: int
    text_b: int | None
    label: int
    labels: tuple[str, ...]
    scores: tuple[str, ...]
    header: bool = True

    script = "run_classifier.py"
    switches = ("--do_train", "--do_eval")

    def prepare(self, folder, split, chosen, limit) -> int:
        """Writes the chosen examples, in GLUE's layout and as JSON lines."""
        path = pathlib.Path(chosen.glue_dir, self.name, f"{split}.tsv")
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
        header, lines = (lines[:1], lines[1:]) if self.header else ([], lines)
        lines = take(lines, limit)
        examples = [json.dumps(self._example(line.split("\t"))) for line in lines]
        for ending, written in (("tsv", header + lines), ("jsonl", examples)):
            text = "".join(f"{line}\n" for line in written)
            (folder / f"{split}.{ending}").write_text(text, encoding="utf-8")
        return len(lines)

    def _example(self, cells):
        label = cells[self.label]
        return {
            "text_a": cells[self.text_a],
            "text_b": None if self.text_b is None else cells[self.text_b],
            "label": self.labels.index(label) if self.labels else float(label),
        }

    def our_flags(self, folder) -> dict:
        return {"task_name": self.name, "data_dir": folder, "max_seq_length": 128}

    def their_settings(self, folder) -> dict:
        return {
            "train_file": str(folder / "train.jsonl"),
            "dev_file": str(folder / "dev.jsonl"),
            "num_labels": len(self.labels) or 1,
            "max_seq_length": 128,
        }

    def of_ours(self, results) -> dict[str, float]:
        return {score: 100 * results[f"eval_{score}"] for score in self.scores}

    def of_theirs(self, predictions, folder) -> dict[str, float]:
        lines = (folder / "dev.jsonl").read_text(encoding="utf-8").splitlines()
        gold = np.array([json.loads(line)["label"] for line in lines])
        logits = np.array(predictions)
        predicted = logits.argmax(axis=1) if self.labels else logits[:, 0]
        return {
            name: 100 * getattr(metrics, name)(gold, predicted) for name in self.scores
        }


class Squad:
    """SQuAD 1.1."""

    name = "SQuAD"
    scores = ("exact", "f1")
    script = "run_squad.py"
    switches = ("--do_train", "--do_predict", "--do_eval")
    lengths = {"max_seq_length": 384, "n_best_size": 20, "max_answer_length": 30}

    def prepare(self, folder, split, chosen, limit) -> int:
        """Writes the paragraphs with the chosen questions."""
        path = getattr(chosen, f"squad_{split}_file")
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        paragraphs = [p for article in content["data"] for p in article["paragraphs"]]
        ids = take([q["id"] for p in paragraphs for q in p["qas"]], limit)
        taken = set(ids)
        for paragraph in paragraphs:
            paragraph["qas"] = [q for q in paragraph["qas"] if q["id"] in taken]
        paragraphs = [paragraph for paragraph in paragraphs if paragraph["qas"]]
        content = {"version": "1.1", "data": [{"paragraphs": paragraphs}]}
        (folder / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")
        return len(ids)

    def our_flags(self, folder) -> dict:
        return {
            "train_file": folder / "train.json",
            "predict_file": folder / "dev.json",
            "doc_stride": 128,
            **self.lengths,
        }

    def their_settings(self, folder) -> dict:
        return {
            "train_file": str(folder / "train.json"),
            "dev_file": str(folder / "dev.json"),
            "doc_stride": 128,  # in transformers, what two windows share
            **self.lengths,
        }

    def of_ours(self, results) -> dict[str, float]:
        return {score: results[f"eval_{score}"] for score in self.scores}

    def of_theirs(self, predictions, folder) -> dict[str, float]:
        content = json.loads((folder / "dev.json").read_text(encoding="utf-8"))
        (article,) = content["data"]
        questions = [q for p in article["paragraphs"] for q in p["qas"]]
        scores = squad_metrics.evaluate(
            [[answer["text"] for answer in q["answers"]] for q in questions],
            [predictions[q["id"]] for q in questions],
        )
        return {score: scores[score] for score in self.scores}


_ENTAILMENT = ("entailment", "not_entailment")
SETS = {
    kind.name: kind
    for kind in (
        Glue("RTE", 1, 2, 3, _ENTAILMENT, ("accuracy",)),
        Glue("STS-B", 7, 8, 9, (), ("pearson", "spearman")),
        Glue("CoLA", 3, None, 1, ("0", "1"), ("matthews",), header=False),
        Glue("SST-2", 0, None, 1, ("0", "1"), ("accuracy",)),
        Squad(),
    )
}


# === Runs ============================================================================


def our_command(kind, seed, folder, scratch, chosen) -> list[str]:
    model = pathlib.Path(chosen.model_dir)
    flags = {
        "output_dir": scratch,
        "vocab_file": model / "vocab.txt",
        "bert_config_file": model / "config.json",
        "init_checkpoint": model,
        "eval_batch_size": chosen.train_batch_size,
        "predict_batch_size": chosen.train_batch_size,
        "seed": seed,
        **kind.our_flags(folder),
        **chosen.hyperparameters,
    }
    words = [f"--{flag}={value}" for flag, value in flags.items()]
    return [sys.executable, kind.script, *kind.switches, *words]


def their_command(kind, seed, folder, scratch, chosen) -> list[str]:
    settings = {
        "model_dir": chosen.model_dir,
        "predictions": str(scratch / "predictions.json"),
        "seed": seed,
        "warmup_proportion": 0.1,
        **kind.their_settings(folder),
        **chosen.hyperparameters,
    }
    path = scratch / "settings.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    script = ROOT / "benchmarks/quality_transformers.py"
    return [chosen.transformers_python, str(script), str(path)]


def run(name: str, system: str, seed: int, counts: dict, chosen: Options) -> dict:
    """Runs one system; seconds are processor time of the whole command."""
    kind, folder = SETS[name], _folder(name, chosen)
    log = pathlib.Path(chosen.output_dir, "logs", f"{name}-{system}-{seed}.txt")
    log.parent.mkdir(exist_ok=True)
    is_theirs = system == "transformers"
    make = their_command if is_theirs else our_command
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        command = make(kind, seed, folder, scratch, chosen)
        if system == "corrected":
            command.append("--bias_correction")
        seconds = execute(command, log)
        if is_theirs:
            scores = kind.of_theirs(_read(scratch / "predictions.json"), folder)
        else:
            scores = kind.of_ours(_read(scratch / "eval_results.json"))
    return {
        "set": name,
        "system": system,
        "seed": seed,
        **chosen.hyperparameters,
        **counts,
        **seconds,
        "scores": scores,
    }


def execute(command: list[str], log: pathlib.Path) -> dict[str, float]:
    """Raises:
    UserError: the command failed.
    """
    begun = time.monotonic()
    with open(log, "w") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=turns.with_threads(1),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    # Unlike subprocess, it returns what this one child used.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UserError(f"{' '.join(command[:2])}: failed; see {log}")
    return {
        "seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "wall_seconds": round(time.monotonic() - begun, 1),
    }


def _folder(name, chosen):
    return pathlib.Path(chosen.output_dir, "data", name)


def _read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def prepare(name: str, chosen: Options) -> dict[str, int]:
    """Writes a set's chosen examples, the same at every call; returns their numbers."""
    folder = _folder(name, chosen)
    folder.mkdir(parents=True, exist_ok=True)
    train, dev, *_ = [*chosen.limits[name], None, None]
    return {
        "train": SETS[name].prepare(folder, "train", chosen, train),
        "dev": SETS[name].prepare(folder, "dev", chosen, dev),
    }


def main(chosen: Options) -> None:
    paths = {
        f: os.path.abspath(getattr(chosen, f)) for f in ("model_dir", "output_dir")
    }
    chosen = dataclasses.replace(chosen, **paths)
    os.makedirs(chosen.output_dir, exist_ok=True)
    path = pathlib.Path(chosen.output_dir, "results.jsonl")
    lines = path.read_text().splitlines() if path.exists() else []
    results = [json.loads(line) for line in lines]
    done = {(r["set"], r["system"], r["seed"]) for r in results}
    counts = {name: prepare(name, chosen) for name in chosen.limits}
    missing = [
        (name, system, seed)
        for seed in chosen.seeds
        for name in chosen.limits
        for system in chosen.systems
        if (name, system, seed) not in done
    ]
    for name, system, seed in missing:
        results.append(run(name, system, seed, counts[name], chosen))
        with open(path, "a") as file:
            file.write(json.dumps(results[-1]) + "\n")
        print(json.dumps(results[-1]), flush=True)
    print(table(results, chosen))


# === The table =======================================================================


def table(results: list[dict], chosen: Options) -> str:
    """Means and deviations over the seeds, and median seconds, in Markdown."""
    systems = chosen.systems
    lines = [
        f"| set | train / dev | score | {' | '.join(systems)} | seconds |",
        "|---" * (4 + len(systems)) + "|",
    ]
    for name in chosen.limits:
        runs = {
            (r["system"], r["seed"]): r
            for r in results
            if r["set"] == name and r["seed"] in chosen.seeds
        }
        of = [[runs[system, seed] for seed in chosen.seeds] for system in systems]
        sizes = f"{of[0][0]['train']:,} / {of[0][0]['dev']:,}"
        seconds = [statistics.median(r["seconds"] for r in some) for some in of]
        seconds = " / ".join(f"{number:.0f}" for number in seconds)
        for score in SETS[name].scores:
            values = [[r["scores"][score] for r in some] for some in of]
            cells = " | ".join(map(turns.mean_and_deviation, values))
            lines.append(f"| {name} | {sizes} | {score} | {cells} | {seconds} |")
    return "\n".join(lines)


if __name__ == "__main__":
    command_line.run(main, Options)
