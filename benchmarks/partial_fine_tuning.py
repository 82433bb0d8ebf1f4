"""Compares fine-tuning all of a model, its upper half, and low-rank adapters.

python -m benchmarks.partial_fine_tuning --task_name=SST-2 --data_dir=glue/SST-2 \\
    --init_checkpoint=model --train_batch_size=32 --num_train_epochs=2 --rounds=3

Each run is a process of its own, so that its peak memory is known; kinds take turns. The
table has means, with the deviation between seeds.
"""

import dataclasses
import json
import os
import statistics
import sys
import tempfile

import command_line
import options
from errors import UserError
from files import json_files

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_KINDS = ("full", "upper half", "LoRA")


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    task_name: str = options.field("SST-2", help="As run_classifier.py takes it.")
    data_dir: str = options.field(help="Folder of the task's files.")
    init_checkpoint: str = options.field(help="Weights, with config and vocabulary.")
    max_seq_length: int = options.field(128, help="Row length.")
    train_batch_size: int = options.field(32, help="Rows per update.")
    num_train_epochs: float = options.field(1.0, help="Length of each run.")
    learning_rate: float = options.field(1e-4, help="Of the first two kinds.")
    lora_learning_rate: float = options.field(1e-3, help="Of LoRA.")
    lora_rank: int = options.field(8, help="Of LoRA.")
    metric: str = options.field("eval_accuracy", help="The score to show.")
    rounds: int = options.field(3, help="Runs of each kind, each with its own seed.")


def _flags(flags: Options, kind: str) -> dict:
    layers = json_files.read(os.path.join(flags.init_checkpoint, "bert_config.json"))
    return {
        "full": {},
        "upper half": {"freeze_layers": layers["num_hidden_layers"] // 2},
        "LoRA": {
            "lora_rank": flags.lora_rank,
            "learning_rate": flags.lora_learning_rate,
        },
    }[kind]


def measure(settings: Options, kind: str, seed: int) -> dict[str, float]:
    """The figures of one run.

    Raises:
        UserError: it failed.
    """
    names = ("task_name", "data_dir", "init_checkpoint", "max_seq_length")
    names += ("train_batch_size", "num_train_epochs", "learning_rate")
    with tempfile.TemporaryDirectory() as directory:
        flags = {name: getattr(settings, name) for name in names}
        flags |= {"do_train": True, "do_eval": True, "output_dir": directory}
        flags |= {"seed": seed, "log_every_steps": 4, "eval_batch_size": 32}
        flags |= {"length_buckets": False, **_flags(settings, kind)}
        line = [sys.executable, os.path.join(_ROOT, "run_classifier.py")]
        process = os.spawnv(os.P_NOWAIT, line[0], [*line, *options.words(**flags)])
        _, status, usage = os.wait4(process, 0)
        if status:
            raise UserError(f"{kind}: the run failed; see its messages")
        with open(os.path.join(directory, "metrics.jsonl")) as file:
            rows = [json.loads(row) for row in file]
        speeds = [row["examples_per_second"] for row in rows if row["kind"] == "train"]
        stored = [
            os.path.getsize(os.path.join(directory, name))
            for name in os.listdir(directory)
            if ".data-" in name
        ]
        results = json_files.read(os.path.join(directory, "eval_results.json"))
    # The first interval includes the tracing of the step.
    return {
        "peak memory, GB": usage.ru_maxrss / 1e6,
        "update, ms": 1e3 * settings.train_batch_size / statistics.median(speeds[1:]),
        # Hardly depends on what else the machine does.
        "processor time, s": usage.ru_utime + usage.ru_stime,
        "checkpoint, MB": max(stored) / 1e6,
        settings.metric: results[settings.metric],
    }


def main(flags: Options) -> None:
    runs_of = {kind: [] for kind in _KINDS}
    for seed in range(flags.rounds):
        for kind, runs in runs_of.items():
            runs.append(measure(flags, kind, seed))
    columns = list(runs_of[_KINDS[0]][0])
    print(f"| | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|", sep="\n")
    for kind, runs in runs_of.items():
        cells = []
        for name in columns:
            values = [run[name] for run in runs]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.4g} ± {spread:.2g}")
        print(f"| {kind} | {' | '.join(cells)} |")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"load of the machine at the end: {load}")


if __name__ == "__main__":
    command_line.run(main, Options)
