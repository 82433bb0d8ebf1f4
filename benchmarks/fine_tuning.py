"""Measures what length buckets save: classification runs with and without them, in turns.

python -m benchmarks.fine_tuning --task_name=CoLA --data_dir=glue/CoLA \\
    --vocab_file=model/vocab.txt --bert_config_file=model/config.json \\
    --init_checkpoint=model --num_train_epochs=1 --rounds=3
"""

import dataclasses
import json
import os
import statistics
import tempfile

import command_line
import options
import run_classifier
from text.files import json_files


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    task_name: str = options.field("CoLA", help="As run_classifier.py takes it.")
    data_dir: str = options.field(help="Folder of the task's files.")
    vocab_file: str = options.field(help="The vocabulary.")
    bert_config_file: str = options.field(help="The architecture.")
    init_checkpoint: str | None = options.field(None, help="Pre-trained weights.")
    max_seq_length: int = options.field(128, help="Row length without buckets.")
    num_train_epochs: float = options.field(1.0, help="Length of each run.")
    rounds: int = options.field(3, help="Runs of each kind, each with its own seed.")


def measure(flags: Options, length_buckets: bool, seed: int) -> tuple[float, dict]:
    """Training examples per second of one run, and its results."""
    with tempfile.TemporaryDirectory() as directory:
        run_classifier.main(
            run_classifier.Options(
                task_name=flags.task_name,
                data_dir=flags.data_dir,
                vocab_file=flags.vocab_file,
                bert_config_file=flags.bert_config_file,
                init_checkpoint=flags.init_checkpoint,
                max_seq_length=flags.max_seq_length,
                num_train_epochs=[flags.num_train_epochs],
                output_dir=directory,
                do_train=True,
                do_eval=True,
                seed=seed,
                length_buckets=length_buckets,
                log_every_steps=10,
            )
        )
        with open(os.path.join(directory, "metrics.jsonl")) as file:
            rows = [json.loads(line) for line in file]
        results = json_files.read(os.path.join(directory, "eval_results.json"))
    # The first interval includes the tracing of the step.
    speeds = [row["examples_per_second"] for row in rows[1:]]
    return len(speeds) / sum(1 / speed for speed in speeds), results


def main(flags: Options) -> None:
    runs_of = {True: [], False: []}
    for seed in range(flags.rounds):
        for length_buckets in runs_of:
            runs_of[length_buckets].append(measure(flags, length_buckets, seed))
    pairs = zip(runs_of[True], runs_of[False], strict=True)
    ratios = [with_[0] / without[0] for with_, without in pairs]
    for length_buckets, runs in runs_of.items():
        speed = statistics.median(speed for speed, _ in runs)
        name = "buckets" if length_buckets else f"padded to {flags.max_seq_length}"
        print(f"{name}: {speed:.1f} examples/s")
        for key in sorted(runs[0][1]):
            values = [results[key] for _, results in runs]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            print(f"  {key} {statistics.mean(values):.4f} ± {spread:.4f}")
    print(f"ratio of speeds, median of {len(ratios)}: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    command_line.run(main, Options)
