"""Measures how many records a second reach an update of pre-training.

python -m benchmarks.input --records=1000000

Stages include those before them: records in shuffled order, batches parsed and checked, the
same from a mixture of three sources, batches inside the compiled function that runs the
updates. Masks drawn in training are measured alone, because the device draws them, within
the update. "A core" is records for each second of processor time, which a busy machine
hardly changes; "all cores" is wall clock, in one process.
"""

import dataclasses
import statistics
import tempfile
import time

import numpy as np

import command_line
import options
from training.backend import tf
from training.run import distribution
from benchmarks import flop, random_records
from modeling.masks.draw_masks import DrawMasks
from text.instances.masking import prediction_counts
from text.instances.table import RowOptions
from text.records import blocks, reading
from text.records.mixed import MixedRecords
from text.records.mixture import Mixture
from text.records.record_set import RecordSet

_KINDS = {
    "static masks": {},
    "dynamic masks": {"masking": "dynamic"},
    "dynamic, whole words": {"masking": "dynamic", "do_whole_word_mask": True},
}
_SIZES = {"vocab_size": random_records.VOCAB_SIZE, "type_vocab_size": 2}
_MASKS = "masks, drawn on these cores"
_FEWER = 20  # times as few batches in a turn of masks, because none is buffered


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    records: int = options.field(200_000, help="Records of 128 tokens; fewer longer.")
    lengths: list[int] = options.field([128, 512], help="Tokens of a record.")
    batch_size: int = options.field(256, help="Records of a batch.")
    rounds: int = options.field(3, help="Times that each is measured, in turns.")
    turn: int = options.field(
        200_000, help="Records of a turn, many more than are buffered; fewer longer."
    )


def mixed_of(data: reading.Records, schema: reading.Schema) -> MixedRecords:
    """The same records as three sources, 5, 2 and 1 of the 8 files, in other shares."""
    files = [data.files[:5], data.files[5:7], data.files[7:]]
    sources = Mixture(["wiki", "books", "code"], files, [7, 2, 1])
    return MixedRecords(sources, sources.names, schema, _SIZES)


def stages(data: reading.Records, schema: reading.Schema, batch_size: int) -> dict:
    """Name -> a function that takes so many batches."""

    def taking(dataset):
        batches = iter(dataset)

        def take(count):
            for _ in range(count):
                next(batches)

        return take

    columns = [(f.path, f.offsets, f.total) for f in data.files]
    plain = blocks.Blocks(*zip(*columns, strict=True))
    order = plain.order(plain.reader(), seed=1).rebatch(batch_size)
    mixed = mixed_of(data, schema)
    in_updates = distribution.distribute(
        distribution.make("one"),
        lambda part: data.training(batch_size, seed=1, part=part),
    )

    @tf.function
    def update(count):
        total = tf.zeros([], tf.int32)
        for _ in tf.range(count):
            total += next(in_updates)["input_ids"][0, 0]
        return total

    return {
        "shuffled records": taking(order.with_options(reading.options())),
        "parsed batches": taking(data.training(batch_size, seed=1)),
        "parsed batches, mixed": taking(mixed.training(batch_size, seed=1)),
        "in the updates": lambda count: update(tf.constant(count)).numpy(),
    }


def masks(rows: RowOptions, batch_size: int):
    """A function that draws the masks of so many batches."""
    step = DrawMasks(
        counts=prediction_counts(
            np.arange(rows.max_seq_length + 1), rows.masked_lm_prob
        ),
        max_predictions_per_seq=rows.max_predictions_per_seq,
        mask_share=rows.mask_share,
        random_share=rows.random_share,
        whole_words=rows.do_whole_word_mask,
        vocab_size=random_records.VOCAB_SIZE,
        mask_id=103,
        special_ids=(101, 102),
    )
    shape = (batch_size, rows.max_seq_length)
    rng = np.random.default_rng(0)
    batch = {
        "input_ids": rng.integers(1000, random_records.VOCAB_SIZE, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "word_starts": rng.integers(0, 2, shape, np.int32),
        "row_numbers": np.arange(batch_size, dtype=np.int32),
    }
    batch = {name: tf.constant(value) for name, value in batch.items()}
    draw = tf.function(lambda: step(batch, 1), jit_compile=True, autograph=False)

    def take(count):
        for _ in range(count):
            draw()["input_ids"].numpy()

    draw()

    return take


def measure(works: dict, chosen: Options, length: int) -> None:
    """Prints a row for each."""
    most = max(_FEWER, chosen.turn * 128 // length // chosen.batch_size)
    rates = {name: [] for name in works}
    for work in works.values():
        work(1)
    for _ in range(chosen.rounds):
        for name, work in works.items():
            count = most // _FEWER if name == _MASKS else most
            began, worked = time.perf_counter(), time.process_time()
            work(count)
            seconds = time.perf_counter() - began
            worked = time.process_time() - worked
            records = count * chosen.batch_size
            rates[name].append((records / worked, records / seconds))
    for name, values in rates.items():
        of_core, of_all = map(statistics.median, zip(*values, strict=True))
        lowest, highest = (f(value for _, value in values) for f in (min, max))
        print(
            f"{name:34} {of_core:10,.0f} {of_all:10,.0f}   "
            f"{lowest:,.0f} to {highest:,.0f}",
            flush=True,
        )


def main(chosen: Options) -> None:
    """Prints the table."""
    print(f"{'records/s':34} {'a core':>10} {'all cores':>10}   lowest to highest")
    for length in chosen.lengths:
        for kind, flags in _KINDS.items():
            rows = RowOptions(
                max_seq_length=length,
                max_predictions_per_seq=flop.NUM_PREDICTIONS * length // 128,
                **flags,
            )
            count = chosen.records * 128 // length
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                pattern = random_records.write(folder, count, rows)
                seconds = time.perf_counter() - began
                files = RecordSet([pattern]).files
                size = sum(file.beginning.size for file in files)
                print(
                    f"{count:,} records of {length} tokens, {kind}: {size / 1e6:.0f} MB, "
                    f"written in {seconds:.0f} s"
                )
                schema = rows.make_instances().schema()
                data = reading.Records(files, schema, _SIZES)
                works = stages(data, schema, chosen.batch_size)
                if flags:
                    works[_MASKS] = masks(rows, chosen.batch_size)
                measure(works, chosen, length)


if __name__ == "__main__":
    command_line.run(main, Options)
