"""Measures what length buckets save: classification runs with and without them, in turns.

python -m benchmarks.fine_tuning --task_name=CoLA --data_dir=glue/CoLA \\
    --vocab_file=model/vocab.txt --bert_config_file=model/config.json \\
    --init_checkpoint=model --num_train_epochs=1 --rounds=3

With --xla, compares instead how many lengths are compiled: one, those that a run chooses,
and all.
"""

import dataclasses
import json
import os
import statistics
import tempfile
import time
from unittest import mock

import command_line
import options
import run_classifier
from training.run import compiler, loop, program_cache
from benchmarks import turns
from files import json_files
from text.records import rows

_BATCH_SIZE = 32


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
    xla: bool = options.field(False, help="Compile, and compare numbers of lengths.")
    tokens_per_program: int = options.field(
        compiler.TOKENS_PER_PROGRAM,
        help="With --xla: what compiling costs here, by which lengths are chosen.",
        only_for={"xla": options.GIVEN},
    )

    def train(self, directory: str, **changes) -> None:
        """Runs run_classifier.py."""
        run_classifier.main(
            run_classifier.Options(
                task_name=self.task_name,
                data_dir=self.data_dir,
                vocab_file=self.vocab_file,
                bert_config_file=self.bert_config_file,
                init_checkpoint=self.init_checkpoint,
                max_seq_length=self.max_seq_length,
                num_train_epochs=[self.num_train_epochs],
                output_dir=directory,
                do_train=True,
                log_every_steps=10,
                **changes,
            )
        )


def measure(flags: Options, length_buckets: bool, seed: int) -> tuple[float, dict]:
    """Training examples per second of one run, and its results."""
    with tempfile.TemporaryDirectory() as directory:
        flags.train(directory, do_eval=True, seed=seed, length_buckets=length_buckets)
        with open(os.path.join(directory, "metrics.jsonl")) as file:
            reports = [json.loads(line) for line in file]
        results = json_files.read(os.path.join(directory, "eval_results.json"))
    # The first interval includes the tracing of the step.
    speeds = [report["examples_per_second"] for report in reports[1:]]
    return len(speeds) / sum(1 / speed for speed in speeds), results


def compare_lengths(flags: Options) -> None:
    """Prints a row for one length, those that a run chooses, and all."""
    lines = ["| lengths | compiling | afterwards | all updates |", "|---|---|---|---|"]
    for cost in (1 << 60, flags.tokens_per_program, 0):
        lengths, seconds = measure_compiled(flags, cost)
        seconds.sort()
        others, first = seconds[: -len(lengths)], seconds[-len(lengths) :]
        update = statistics.mean(others)
        lines.append(
            f"| {', '.join(map(str, lengths))} | {sum(first) - len(first) * update:.1f} s "
            f"| {_BATCH_SIZE / update:.0f} examples/s | {sum(seconds):.1f} s |"
        )
    print("\n".join(lines))


def measure_compiled(flags: Options, cost: int) -> tuple[list[int], list[float]]:
    """The lengths of a run where a program costs this much; the seconds of each update."""
    lengths, seconds = [], []
    training_lengths, run_updates = rows.Rows.training_lengths, loop.Trainer.run_updates

    def noted(*arguments, **settings):
        lengths[:] = training_lengths(*arguments, **settings)
        return lengths

    def timed(trainer, batches, count):
        began = time.perf_counter()
        sums = run_updates(trainer, batches, count)
        seconds.append(time.perf_counter() - began)
        return sums

    with (
        tempfile.TemporaryDirectory() as directory,
        mock.patch.object(compiler, "TOKENS_PER_PROGRAM", cost),
        mock.patch.object(rows.Rows, "training_lengths", noted),
        mock.patch.object(loop.Trainer, "run_updates", timed),
    ):
        flags.train(
            directory,
            xla=True,
            xla_cache_dir=program_cache.NONE,
            train_batch_size=[_BATCH_SIZE],
            iterations_per_loop=1,
        )
    return lengths, seconds


def main(flags: Options) -> None:
    if flags.xla:
        compare_lengths(flags)
        return
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
            print(f"  {key} {turns.mean_and_deviation(values, '.4f')}")
    print(f"ratio of speeds, median of {len(ratios)}: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    command_line.run(main, Options)
