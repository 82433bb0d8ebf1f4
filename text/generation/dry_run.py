"""What generation will yield and take, told by a sample that leaves nothing behind.

The tasks of text/generation/stages.py do the sample in a temporary folder. What they count,
write and take is then scaled to all of the text.
"""

import dataclasses
import heapq
import math
import multiprocessing
import os
import resource
import tempfile
import time

import numpy as np

from errors import UserError
from text.corpus import sample
from text.files import local
from text.generation import outputs, stages, work
from text.generation.settings import Settings
from text.progress import duration, size
from text.tokenizers.vocabulary import Vocabulary

_PASSES = 20  # at most; documents draw their lengths anew in each
_POSITIONS = 1 << 20  # of the records written, or a few batches
_BATCHES = 3  # with fewer, memory is not in use as it is later
_PIECE_BYTES = 8 << 20


@dataclasses.dataclass(frozen=True)
class Needs:
    """What was counted, measured and scaled to all of the text.

    Attributes:
        sampled: bytes of the input that were read; `total`, of all input.
        documents, tokens, unknown_tokens, records: their numbers.
        passes: over the text.
        record_bytes: of all record files.
        work_bytes: of the unfinished work at its largest; `disk_bytes`, with the records
            that exist then.
        peak_bytes: the most memory one process had in use.
        workers: processes, over all shards.
        seconds: from start to end; `processor_seconds`, of all processes together.
        warnings: lines about what the run might refuse or suffer from.
    """

    sampled: int
    total: int
    num_files: int
    documents: float
    tokens: float
    unknown_tokens: float
    passes: int
    records: float
    record_bytes: float
    work_bytes: float
    disk_bytes: float
    peak_bytes: int
    workers: int
    seconds: float
    processor_seconds: float
    warnings: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """What to tell a user."""
        is_whole = self.sampled == self.total
        about = "" if is_whole else "about "
        lines = [
            f"text: {about}{self.documents:,.0f} documents, {about}{self.tokens:,.0f} "
            f"tokens, {self.unknown_tokens / self.tokens:.2%} of them [UNK]; "
            f"{size(self.total)} in {self.num_files:,} file(s)",
            f"records: {about}{self.records:,.0f} in {self.passes} pass(es), "
            f"{size(self.record_bytes)}",
            f"unfinished work: up to {size(self.work_bytes)} on disk; with the records, up "
            f"to {size(self.disk_bytes)}",
            f"memory: {size(self.peak_bytes)} in each of {self.workers} process(es)",
            f"the run: {duration(self.seconds)} with {self.workers} process(es), "
            f"{duration(self.processor_seconds)} of processor time",
        ]
        if not is_whole:
            lines.append(
                f"judging by {size(self.sampled)} of the text; what is wrong in the rest "
                "of it only shows in the run, and disks that are slow are not counted"
            )
        return lines + [f"warning: {line}" for line in self.warnings]


def estimate(settings: Settings, num_workers: int = 1, num_shards: int = 1) -> Needs:
    """Does a sample of the text in a temporary folder.

    Args:
        num_workers: processes of each shard.
    Raises:
        UserError: the text does not allow it, as far as the sample shows.
        OSError: a file cannot be read, or the temporary folder cannot be written.
    """
    vocabulary = settings.make_tokenizer().vocabulary
    outputs.refuse_overlaps(settings)
    outputs.refuse_folders(settings)
    with tempfile.TemporaryDirectory(prefix="dry_run-") as folder:
        try:
            return _Trial(settings, folder, vocabulary).needs(num_workers, num_shards)
        finally:
            stages.forget()


class _Trial:
    """The stages, done with a sample; sizes in bytes, times of the processor."""

    def __init__(self, settings: Settings, folder: str, vocabulary: Vocabulary):
        self._real = settings
        self._settings = dataclasses.replace(
            settings, output_files=(f"{folder}/records",)
        )
        self._folder = self._settings.work_folder
        self._file = self._settings.settings_file
        origin = {"vocab_sha256": vocabulary.digest}  # all that the stages look at
        work.Folder(self._folder, origin, stages.MADE).begin()
        flags = dataclasses.replace(self._settings, input_files=())
        local.write_json(self._file, dataclasses.asdict(flags))
        self._instances = settings.make()
        _ = stages.opened(self._file).tokenizer
        self._loading = time.process_time()  # all that happened before the first task

    def needs(self, num_workers: int, num_shards: int) -> Needs:
        """Does the stages, and scales what they take."""
        self._tokenize()
        self._plan()
        self._write()
        settings, passes = self._real, self._real.dupe_factor
        tokens = self.counts["tokens"] * self._scale
        records = self._rows / self._passes * passes * self._scale
        stages.refuse_rows(settings, round(records))
        record_bytes = records * self._row_bytes
        corpus = self._corpus_bytes * self._scale
        work, disk = self._disk(corpus, records, num_workers)
        begun = _beginning(self._file) if num_workers > 1 else 0.0
        workers = num_workers * num_shards
        cores = min(num_workers, os.cpu_count() or 1) * num_shards
        parallel, in_turn = self._seconds(tokens, records, cores)
        colds = min(workers, math.ceil(self.sample.total / _PIECE_BYTES))
        loading = self._loading * num_shards + begun * workers * (num_workers > 1)
        together = (
            loading + self._cold * colds + sum(sum(t) for t in parallel) + in_turn
        )
        elapsed = sum(_makespan(t, cores) for t in parallel) + in_turn
        return Needs(
            sampled=self.sample.size,
            total=self.sample.total,
            num_files=self.sample.num_files,
            documents=self._documents,
            tokens=tokens,
            unknown_tokens=self.counts["unknown_tokens"] * self._scale,
            passes=passes,
            records=records,
            record_bytes=record_bytes,
            work_bytes=work,
            disk_bytes=disk,
            peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            workers=workers,
            seconds=self._loading + begun + self._cold + elapsed,
            processor_seconds=together,
            warnings=tuple(self._warnings(corpus, disk)),
        )

    # --- The stages ----------------------------------------------------------------------

    def _tokenize(self):
        began = time.process_time()
        self.sample = taken = sample.take(self._real.input_files)
        reading = time.process_time() - began
        self._scale = taken.total / taken.size if taken.size else 1.0
        counts = self.counts = dict.fromkeys(
            ("tokens", "sentences", "unknown_tokens"), 0
        )
        prefixes, seconds, sizes = [], [0.0, 0.0], [0, 0]
        # Every other part first: what is slower then is a process's first sight of words.
        order = sorted(range(len(taken.parts)), key=lambda number: number % 2)
        for number in order:
            began = time.process_time()
            prefix = f"{self._folder}/piece-{number:06d}"
            noted = stages.tokenize(prefix, self._file, taken.parts[number])
            seconds[number % 2] += time.process_time() - began
            sizes[number % 2] += sum(span.size for span in taken.parts[number])
            for name in counts:
                counts[name] += noted[name]
        prefixes = [f"{self._folder}/piece-{n:06d}" for n in range(len(taken.parts))]
        warm = seconds[1] / sizes[1] if sizes[1] else sum(seconds) / max(taken.size, 1)
        self._cold = max(0.0, seconds[0] - warm * sizes[0]) if sizes[1] else 0.0
        self._per_byte = warm + reading / max(taken.size, 1)
        if not taken.is_whole and not counts["sentences"]:
            raise UserError(
                f"{self._real.input_files[0]}: the sample contains no token, so nothing "
                "can be estimated; check the input"
            )
        self._documents = self._count_documents(prefixes)
        began = time.process_time()
        path = f"{self._folder}/corpus"
        joined = counts
        if counts["sentences"]:
            joined = stages.join_corpus(path, self._settings, prefixes, counts)
            self._joining = time.process_time() - began
        if taken.is_whole:
            self._documents = joined.get("documents", 0)
            found = {"documents": self._documents, **counts}
            stages.refuse_text(self._real, len(self._real.input_files), found)
        corpus = (f"{path}.{x}" for x in ("tokens", "words", "sentences", "documents"))
        self._corpus_bytes = sum(
            os.path.getsize(x) for x in corpus if os.path.exists(x)
        )

    def _count_documents(self, prefixes):
        """The documents of all the text; ends each part of a partial sample with one."""
        number = 0
        for prefix in prefixes:
            ends = np.fromfile(f"{prefix}.ends", np.int64)
            number += len(np.unique(ends[ends > 0]))
            if not self.sample.is_whole:
                sentences = os.path.getsize(f"{prefix}.lengths") // 8
                np.append(ends, sentences).tofile(f"{prefix}.ends")
        settings, taken = self._real, self.sample
        form = settings.input_format
        if form == "files":
            return taken.num_files
        if form == "jsonl" or settings.documents_span_files:
            return number * self._scale
        spans = [span for part in taken.parts for span in part]
        at_ends = sum(span.stop is None for span in spans)
        return max(number - at_ends, 0) * self._scale + taken.num_files

    def _plan(self):
        corpus = stages.opened(self._file).corpus
        differ = self._instances.passes_differ
        passes = min(self._real.dupe_factor, _PASSES)
        self._passes = passes if self.sample.is_whole or not differ else _PASSES
        prefixes = []
        began = time.process_time()
        self._rows = 0
        for number in range(self._passes):
            prefixes.append(f"{self._folder}/plan-{number}-0")
            noted = stages.plan(
                prefixes[-1], self._file, number, 0, corpus.num_documents
            )
            self._rows += noted["instances"]
        self._planning = (time.process_time() - began) / self._passes
        stages.refuse_rows(self._settings, self._rows)
        stages.join_plan(f"{self._folder}/plan", prefixes, self._instances.suffix)

    def _write(self):
        most = max(
            _BATCHES * stages.BATCH_ROWS, _POSITIONS // self._real.max_seq_length
        )
        written = min(most, self._rows)
        [path] = self._settings.output_files
        began = time.process_time()
        stages.write(path, self._file, path, 0, written, self._rows)
        self._per_row = (time.process_time() - began) / written
        self._row_bytes = os.path.getsize(path) / written

    # --- What all of the text takes ------------------------------------------------------

    def _disk(self, corpus, records, num_workers):
        """The unfinished work at its largest, and that with the records."""
        plan = records * self._instances.planned.itemsize
        files = len(self._real.output_files)
        size_of_file = records * self._row_bytes / files
        before = max(2 * corpus, corpus + 2 * plan)  # parts, and what is joined of them
        work = corpus + plan
        if records / files <= stages.SEGMENT_ROWS:
            return max(before, work), max(before, work + size_of_file * files)
        work += size_of_file * files
        return max(before, work), max(
            before, work + min(num_workers, files) * size_of_file
        )

    def _seconds(self, tokens, records, cores):
        """The times of tasks that several processes do, and of what one does alone."""
        passes, files = self._real.dupe_factor, len(self._real.output_files)
        pieces = _tasks(self.sample.total, _PIECE_BYTES)
        blocks = _tasks(tokens, stages.BLOCK_TOKENS) * passes
        segments = _tasks(records / files, stages.SEGMENT_ROWS) * files
        per_token = self._planning / self.counts["tokens"]
        parallel = (
            [self._per_byte * x for x in pieces],
            [per_token * x for x in blocks],
            [self._per_row * x for x in segments],
        )
        return parallel, self._joining * self._scale

    def _warnings(self, corpus, disk):
        if not self.sample.is_whole:
            if refusal := self._instances.refusal(round(self._documents)):
                yield f"if the rest is like the sample: {refusal}"
        place = os.path.abspath(self._real.output_files[0])
        while not os.path.isdir(place):
            place = os.path.dirname(place)
        status = os.statvfs(place)
        free = status.f_bavail * status.f_frsize
        if disk > free:
            yield f"{place}: only {size(free)} of the disk are free"
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if corpus > memory:
            yield (
                f"the tokenized text, {size(corpus)}, is larger than this machine's "
                "memory, so records may be written more slowly than was measured"
            )


def _tasks(total, largest):
    """The sizes of the tasks that a job is divided into."""
    number = max(1, math.ceil(total / largest))
    return [largest] * (number - 1) + [total - largest * (number - 1)]


def _makespan(times, workers):
    """When the last task ends, if each goes to the first worker that is free."""
    free = [0.0] * workers
    for seconds in times:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def _beginning(settings_file):
    """The processor time that a new process takes before its first task."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = multiprocessing.get_context("spawn").Process(
        target=_load, args=(settings_file,)
    )
    process.start()
    process.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(after[:2]) - sum(before[:2])


def _load(settings_file):
    _ = stages.opened(settings_file).tokenizer
