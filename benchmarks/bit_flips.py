"""Flips bits of files, one at a time, and looks at what their readers do about it.

python -m benchmarks.bit_flips [--every=1000] [--kinds=pairs,electra]

For every kind of records, static and dynamic masks, plain and packed: the records and their
description are read as run_pretraining.py and inspect_records.py do. A checkpoint is read
as a run does that continues. An outcome is good if it is an error of one line, or if
the content is the same. It prints the number of each outcome, and exits with 1 if any
other occurred.
"""

import collections
import dataclasses
import itertools
import os
import pathlib
import tempfile

import numpy as np

import command_line
import options
from training.storage import checkpoint
from training.storage.source import Source
from errors import UserError
from text.generation.generate import generate
from text.generation.settings import Settings
from text.inspection import inspect
from text.instances.table import INSTANCES, MASKS
from text.records import reading
from text.records.record_set import RecordSet
from text.tokenizers.table import load_vocabulary

GOLDEN = pathlib.Path(__file__).parent.parent / "tests" / "golden"
ERROR, EQUAL, OTHER, TRACEBACK = "one line", "equal", "silently other", "traceback"
_BATCH = 16


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    every: int = options.field(1000, help="Flip a bit at every byte of this number.")
    kinds: list[str] = options.field(
        [*INSTANCES, "checkpoint"], help="Kinds of records, and checkpoint."
    )


def records(folder: pathlib.Path, instances: str, **changed) -> Settings:
    """Writes a short text, and one file of records of a kind."""
    text = folder / "text.txt"
    with open(text, "w") as file:
        for document in range(60):
            lines = range(3 + document % 9)
            file.writelines(
                f"The {n} of {document} says that it is so.\n" for n in lines
            )
            file.write("\n")
    vocabulary = GOLDEN / "checkpoint" / "vocab.txt"
    if instances == "contiguous":
        vocabulary = GOLDEN / "sentencepiece" / "xlnet.model"
        changed["rows_per_batch"] = 2
    settings = Settings(
        input_files=(str(text),),
        output_files=(str(folder / "out.tfrecord"),),
        vocab_file=str(vocabulary),
        do_lower_case=True,
        strip_accents=True,
        split_cjk=True,
        instances=instances,
        max_seq_length=32,
        max_predictions_per_seq=5,
        dupe_factor=1,
        **changed,
    )
    generate(settings)
    return settings


def trained(settings: Settings) -> list:
    """The batches of an epoch and a half, and those of an evaluation."""
    paths = list(settings.output_files)
    found = RecordSet(paths)
    flags = found.files[0].description.flags if found.descriptions else {}
    schema = settings.make().schema()
    records = reading.Records(
        found.files, schema, rows_per_batch=flags.get("rows_per_batch", 0)
    )
    steps = 3 * records.total // 2 // _BATCH
    batches = [
        *records.training(_BATCH, seed=1).take(steps).as_numpy_iterator(),
        *records.evaluation(_BATCH, max_batches=1000).as_numpy_iterator(),
    ]
    content = [{n: x.tolist() for n, x in batch.items()} for batch in batches]
    return [records.total, content, _described(found.descriptions)]


def inspected(settings: Settings) -> list:
    """What inspect_records.py says."""
    paths = list(settings.output_files)
    vocabulary = load_vocabulary(settings.vocab_file)
    described = inspect.find_descriptions(paths)
    inspection = inspect.Inspection(vocabulary, described)
    inspection.read(paths)
    if lines := inspection.violations.lines():
        raise UserError(lines[0])
    return [
        inspection.num_records,
        inspection.statistics.lines(),
        _described(described.values()),
    ]


def _described(described):
    return [dataclasses.replace(one, path="") for one in described]


def restored(prefix: str) -> list:
    """All that is in a checkpoint."""
    return [
        (name, x.tolist()) for name, x in sorted(Source.open(prefix).read().items())
    ]


def outcome(read, source, expected) -> str:
    try:
        return EQUAL if read(source) == expected else OTHER
    except (UserError, *reading.ERRORS):  # the scripts make one line of these
        return ERROR
    except OSError as error:
        return ERROR if error.filename or error.strerror else TRACEBACK
    except Exception as error:
        print(f"  {read.__name__}: {error!r:.200}")
        return TRACEBACK


def flipped(path: pathlib.Path, every: int, readers, source) -> collections.Counter:
    """Outcomes by reader and kind; the file is as before afterwards."""
    content = path.read_bytes()
    expected = [read(source) for read in readers]
    counts = collections.Counter()
    status = path.stat()
    for number, place in enumerate(range(0, len(content), every)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << number % 8
        path.write_bytes(damaged)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        for read, wanted in zip(readers, expected, strict=True):
            result = outcome(read, source, wanted)
            counts[result] += 1
            if result in (OTHER, TRACEBACK):
                print(f"  {path.name}, byte {place}, {read.__name__}: {result}")
    path.write_bytes(content)
    return counts


def main(flags: Options) -> int:
    total = collections.Counter()

    def look(what, path, every, readers, source):
        counts = flipped(path, max(1, every), readers, source)
        total.update(counts)
        print(f"{what}: {path.stat().st_size:,} bytes, {dict(counts)}", flush=True)

    for kind in flags.kinds:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            if kind == "checkpoint":
                prefix = str(folder / "model.ckpt-1")
                kernel = np.arange(256, dtype=np.float32)
                tensors = {f"layer_{n}/kernel": kernel + n for n in range(40)}
                checkpoint.write_bundle(prefix, tensors)
                for path in sorted(folder.iterdir()):
                    look(path.name, path, flags.every // 100, [restored], prefix)
                continue
            for masking, packed in itertools.product(MASKS, (False, True)):
                what = f"{kind}, {masking}{', packed' * packed}"
                place = folder / f"{masking}-{packed}"
                place.mkdir()
                try:
                    settings = records(
                        place, kind, masking=masking, gzip_compress=packed
                    )
                except UserError as error:  # not every kind has static masks
                    print(f"{what}: {error}")
                    continue
                readers = [trained, inspected]
                look(what, place / "out.tfrecord", flags.every, readers, settings)
                # A description is short, and any of its characters may be a number.
                path = pathlib.Path(settings.description_file)
                look(path.name, path, flags.every // 20, readers, settings)
    print(dict(total))
    return int(bool(total[OTHER] or total[TRACEBACK]))


if __name__ == "__main__":
    command_line.run(main, Options)
