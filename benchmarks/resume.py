"""Measures the time from a process's start to its first update, early and late in an epoch.

python -m benchmarks.resume [--records=3000000]

Records have 16 tokens, so that millions fit on a small disk, and the model is tiny: this
measures how long it takes to find the place in the records. They are in a temporary
folder, with the description that create_pretraining_data.py would write.
"""

import dataclasses
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import command_line
import options
from training.run import distribution, loop
from benchmarks import random_records
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs
from text.instances.table import RowOptions
from text.records import reading
from text.records.record_set import RecordSet

_ROWS = RowOptions(max_seq_length=16, max_predictions_per_seq=4)


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    records: int = options.field(3_000_000, help="Records per epoch.")
    batch_size: int = options.field(256, help="Records per update.")
    rounds: int = options.field(5, help="Processes of each kind, in turns.")


def update_once(folder: str, batch_size: int, first_batch: int) -> None:
    """Runs the update of one batch, as run_pretraining.py does after a start."""
    patterns = [os.path.join(folder, "records-?")]
    data = reading.Records(RecordSet(patterns).files, _ROWS.make().schema())
    config = BertConfig(
        vocab_size=random_records.VOCAB_SIZE,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=16,
        type_vocab_size=2,
    )
    objective = sentence_pairs.MaskedLMNextSentence()
    trainer = loop.Trainer(
        distribution.make("one"),
        lambda: objective.network(config, seed=1),
        objective,
        loop.LoopSettings(
            num_train_steps=1000,
            num_warmup_steps=100,
            learning_rate=1e-4,
            batch_size=batch_size,
        ),
    )
    batches = distribution.distribute(
        trainer.strategy,
        lambda part: data.training(
            batch_size, seed=1, first_batch=first_batch, part=part
        ),
    )
    trainer.run_updates(batches, 1)


def seconds(folder: str, chosen: Options, first_batch: int) -> tuple[float, float]:
    """Time from a process's start to its first update, and its processor time."""
    call = f"resume.update_once({folder!r}, {chosen.batch_size}, {first_batch})"
    code = f"from benchmarks import resume; {call}; print('updated', flush=True)"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        updated = process.stdout.readline() == "updated\n"
        took = time.perf_counter() - began
    if not updated:
        sys.exit("the process ended without an update")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, used


def main(chosen: Options) -> None:
    """Prints the medians and their ratio."""
    batches = chosen.records // chosen.batch_size
    # The end of an epoch is shuffled as a whole: shortly before it, and in it.
    places = {"first batch": 0, "99 %": batches * 99 // 100, "last batch": batches - 1}
    taken = {name: [] for name in places}
    with tempfile.TemporaryDirectory() as folder:
        random_records.write(folder, chosen.records, _ROWS)
        for _ in range(chosen.rounds):
            for name, first_batch in places.items():
                taken[name].append(seconds(folder, chosen, first_batch))
    print(f"{chosen.records:,} records, batches of {chosen.batch_size}")
    medians = {
        name: [statistics.median(values) for values in zip(*times, strict=True)]
        for name, times in taken.items()
    }
    base = medians["first batch"][0]
    for name, (took, used) in medians.items():
        print(
            f"{name:12} {took:6.2f} s to the first update, {took / base:.2f} times; "
            f"processor time {used:.2f} s"
        )


if __name__ == "__main__":
    command_line.run(main, Options)
