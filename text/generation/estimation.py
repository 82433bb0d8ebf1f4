"""Tells what generation will yield and take, from a sample that leaves nothing behind.

The stages of text/generation/stages.py do the sample in a temporary folder. What they
count, write and take is multiplied by how much larger all of the text is.
"""

import dataclasses
import os
import resource
import shutil
import tempfile
import time
from collections import Counter

from errors import UserError, duration, size
from text.corpus import sample
from text.generation import outputs, stages, work
from text.generation.settings import Settings


class Estimate:
    """What all of the text will yield and take: numbers, bytes and seconds.

    `work_bytes`: of the unfinished work at its largest; `disk_bytes`: with the records that
    exist then.
    """

    def __init__(self, settings: Settings, own, folder, num_workers, num_shards):
        id_type = stages.opened(own.settings_file).tokenizer.vocabulary.id_type
        loaded = time.process_time()  # by every process
        self.taken = taken = sample.take(settings.input_files, settings)
        scale = taken.scale
        counts = _tokenize(own, folder, taken)
        tokenized = time.process_time()
        if not taken.is_whole:  # nearly as many rows come of each pass
            own = dataclasses.replace(own, dupe_factor=1)
        with work.Workers(1) as workers:
            stages.plan_all(own, folder, workers, counts)
            (written,) = stages.write_all(own, folder, workers, counts)
        rows_scale = scale * settings.dupe_factor / own.dupe_factor
        seconds = (tokenized - loaded) * scale
        seconds += (time.process_time() - tokenized) * rows_scale

        self.documents = taken.documents(counts["documents"], settings.input_format)
        self.tokens = counts["tokens"] * scale
        self.unknown_share = counts["unknown_tokens"] / counts["tokens"]
        self.passes = settings.dupe_factor
        self.records = counts["instances"] * rows_scale
        stages.refuse_rows(settings, round(self.records))
        self.record_bytes = written["bytes"] * rows_scale
        offsets = 8 * (counts["sentences"] + counts["documents"]) * scale
        token_bytes = id_type.itemsize + settings.words_from_spaces
        corpus_bytes = self.tokens * token_bytes + offsets
        self.work_bytes, self.disk_bytes = _disk(
            settings, corpus_bytes, self.records, self.record_bytes, num_workers
        )
        self.memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self.workers = num_workers * num_shards
        cores = min(num_workers, os.cpu_count() or 1) * num_shards
        self.seconds = loaded + seconds / cores
        self.processor_seconds = loaded * self.workers + seconds
        self.warnings = list(self._warnings(settings, corpus_bytes))

    def _warnings(self, settings, corpus_bytes):
        refusal = settings.make_instances().refusal(round(self.documents))
        if refusal and not self.taken.is_whole:
            yield f"if the rest is like the sample: {refusal}"
        place = os.path.abspath(settings.output_files[0])
        while not os.path.isdir(place):
            place = os.path.dirname(place)
        free = shutil.disk_usage(place).free
        if self.disk_bytes > free:
            yield f"{place}: only {size(free)} of the disk are free"
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if corpus_bytes > memory:
            yield (
                f"the tokenized text, {size(corpus_bytes)}, is larger than this machine's "
                "memory, so records may be written more slowly than was measured"
            )

    def lines(self) -> list[str]:
        """What to tell a user."""
        about = "" if self.taken.is_whole else "about "
        lines = [
            f"text: {about}{self.documents:,.0f} documents, {about}{self.tokens:,.0f} "
            f"tokens, {self.unknown_share:.2%} of them [UNK]; "
            f"{size(self.taken.total)} in {self.taken.num_files:,} file(s)",
            f"records: {about}{self.records:,.0f} in {self.passes} pass(es), "
            f"{size(self.record_bytes)}",
            f"unfinished work: up to {size(self.work_bytes)} on disk; with the records, up "
            f"to {size(self.disk_bytes)}",
            f"memory: {size(self.memory_bytes)} in each of {self.workers} process(es)",
            f"the run: {duration(self.seconds)} with {self.workers} process(es), "
            f"{duration(self.processor_seconds)} of processor time",
        ]
        if not self.taken.is_whole:
            lines.append(
                f"judging by {size(self.taken.size)} of the text, read "
                f"{self.taken.place()}; what is wrong in the rest of it only shows in the "
                "run, and disks that are slow are not counted"
            )
        return lines + [f"warning: {line}" for line in self.warnings]


def estimate(settings: Settings, num_workers: int = 1, num_shards: int = 1) -> Estimate:
    """Does a sample of the text in a temporary folder.

    Args:
        num_workers: processes of each shard.
    """
    vocabulary = settings.make_tokenizer().vocabulary
    outputs.refuse_overlaps(settings)
    outputs.refuse_folders(settings)
    with tempfile.TemporaryDirectory(prefix="dry_run-") as place:
        own = dataclasses.replace(settings, output_files=(f"{place}/records",))
        origin = {"vocab_sha256": vocabulary.digest}  # all that the stages look at
        folder = work.WorkFolder(own.work_folder, origin, stages.MADE)
        folder.begin()
        stages.note_settings(own)
        try:
            return Estimate(settings, own, folder, num_workers, num_shards)
        finally:
            stages.forget()


def _tokenize(own, folder, taken) -> Counter:
    counts, prefixes = Counter(), []
    for number, part in enumerate(taken.parts):
        prefixes.append(f"{folder.path}/piece-{number:06d}")
        counts.update(stages.tokenize(prefixes[-1], own.settings_file, part))
    if not taken.is_whole and not counts["sentences"]:
        raise UserError(
            f"{own.input_files[0]}: the sample contains no token, so nothing can be "
            "estimated; check the input"
        )
    if counts["sentences"]:
        path = stages.corpus_path(folder)
        counts = Counter(stages.join_corpus(path, own, prefixes, counts))
    if taken.is_whole:
        stages.refuse_text(own, len(own.input_files), counts)
    return counts


def _disk(settings, corpus, records, record_bytes, num_workers) -> tuple[float, float]:
    """The unfinished work at its largest, and that with the records."""
    files, plan = (
        len(settings.output_files),
        records * settings.make_instances().planned.itemsize,
    )
    before = max(2 * corpus, corpus + 2 * plan)  # parts, and what is joined of them
    unfinished, written = corpus + plan, record_bytes
    if records / files > stages.SEGMENT_ROWS:  # in segments first
        unfinished += record_bytes
        written = record_bytes / files * min(num_workers, files)
    return max(before, unfinished), max(before, unfinished + written)
