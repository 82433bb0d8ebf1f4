"""Turns text into record files in the steps of an Apache Beam pipeline.

1. tokenize: a range of the input becomes documents of ids;
2. group: a permutation of all documents assigns each to a block of some million tokens;
3. make: a block's documents become rows, as in text/generation/stages.py, each with a
   random number and a file;
4. write: a file's rows are written in the order of their numbers;
5. describe: when all files are there.

Every random choice follows from the seed, the text and the numbers of block, pass and row.
So the records do not depend on the runner, its workers or its bundles, nor on steps that
are repeated. Workers load no TensorFlow.
"""

import collections
import dataclasses
import os
import tempfile
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, TaggedOutput

from errors import UserError
from files import beam_files, sources
from text.corpus import formats
from text.corpus.store import Corpus
from text.generation import outputs, stages
from text.generation.settings import Settings
from text.records import descriptions, encoding, framing
from text.records.descriptions import Description

_BATCH_ROWS = 1 << 11
_GROUP, _PLAN, _MASK, _ORDER, _FILE = range(5)  # the uses of random generators
COUNTED = (  # by the first step, in the order of descriptions
    "tokens",
    "unknown_tokens",
    "empty_sentences",
    "long_sentences",
    "decomposed_sentences",
    "sentences",
    "documents",
)
_NOTES = "notes"


@dataclasses.dataclass(frozen=True)
class Job:
    """What every worker knows.

    Attributes:
        settings: with the first input files only; there may be millions.
        patterns: the input files.
        vocabulary_files: names and contents; the vocabulary may be on the machine that
            starts the pipeline.
        description: that of the records, without counts.
        range_bytes: of the input that a worker takes at a time.
        block_tokens: about how many a block has.
        block_documents: how many a block has at least, if the text has them, so that the
            random next sentences of one come from several others.
    """

    settings: Settings
    patterns: tuple[str, ...]
    vocabulary_files: tuple[tuple[str, bytes], ...]
    description: Description
    range_bytes: int = 8 << 20
    block_tokens: int = 1 << 21
    block_documents: int = 16

    def load_tokenizer(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.vocabulary_files:
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(content)
            return self.settings.load_tokenizer(folder)

    def rng(self, use: int, *numbers: int) -> np.random.Generator:
        numbers = (*numbers, 0, 0, 0)[:3]
        return np.random.default_rng([self.settings.random_seed, use, *numbers])


def build(pipeline: beam.Pipeline, job: Job) -> None:
    """Adds the steps to a pipeline."""
    tokenized = (
        pipeline
        | "patterns" >> beam.Create([job.patterns])
        | "list" >> beam.FlatMap(_ranges, job)
        | "spread" >> beam.Reshuffle()
        | "tokenize" >> beam.ParDo(_Tokenize(job)).with_outputs(_NOTES, main="ranges")
    )
    text = (
        tokenized[_NOTES]
        | "all ranges" >> beam.combiners.ToList()
        | "check text" >> beam.Map(_Text.of, job)
    )
    made = (
        tokenized.ranges
        | "assign" >> beam.FlatMap(_assign, AsSingleton(text), job)
        | "blocks" >> beam.GroupByKey()
        | "make" >> beam.ParDo(_Make(job)).with_outputs(_NOTES, main="rows")
    )
    rows = (
        made[_NOTES]
        | "all blocks" >> beam.combiners.ToList()
        | "check rows" >> beam.Map(_row_counts, job)
    )
    written = (
        made.rows
        | "files" >> beam.GroupByKey()
        | "write" >> beam.Map(_write_file, AsSingleton(rows), job)
    )
    _ = (
        pipeline
        | "end" >> beam.Create([job.description])
        | "describe"
        >> beam.Map(
            _describe, job, AsSingleton(text), AsSingleton(rows), AsIter(written)
        )
    )


# === 1. Tokenize ===


def _ranges(patterns, job):
    """Yields numbered ranges of the input files."""
    paths = _check_unchanged(patterns, job)
    yield from enumerate(
        formats.ranges(paths, job.settings.input_format, job.range_bytes)
    )


def _check_unchanged(patterns, job):
    """The input files, which must be those that the pipeline was started with."""
    sources.reach_with(beam_files.BeamFiles())  # which lists them anew
    paths = formats.expand(patterns, job.settings.input_format)
    if outputs.summary(paths) != job.description.origin["inputs"]:
        raise UserError(
            f"{','.join(patterns)}: input files have changed since the pipeline was "
            "started, or differ on its workers; start it again"
        )
    return paths


class _Tokenize(beam.DoFn):
    """(number, spans) to (number, documents); a document is bytes of ids, lengths, words.

    Also notes (number, counts).
    """

    def __init__(self, job):
        self._job = job

    def setup(self):
        sources.reach_with(beam_files.BeamFiles())
        self._tokenizer = self._job.load_tokenizer()

    def process(self, numbered):
        number, spans = numbered
        settings = self._job.settings
        whole = [formats.whole_documents(s, settings.input_format) for s in spans]
        counts = collections.Counter(dict.fromkeys(COUNTED, 0))
        documents, sentences = [], []
        spans = filter(None, whole)
        encoded = stages.encode_spans(settings, self._tokenizer, spans, counts)
        for sentence in encoded:
            if sentence is not None:
                counts["decomposed_sentences"] += sentence[2]
                counts["empty_sentences"] += not sentence[0]
                if sentence[0]:
                    sentences.append(sentence)
                continue
            if sentences:
                documents.append(self._document(sentences, counts))
                sentences = []
        yield number, documents
        yield TaggedOutput(_NOTES, (number, dict(counts)))

    def _document(self, sentences, counts):
        packed, words, _ = zip(*sentences, strict=True)
        vocabulary = self._tokenizer.vocabulary
        ids = np.frombuffer(b"".join(packed), vocabulary.id_type)
        lengths = np.array([len(x) for x in packed]) // vocabulary.id_type.itemsize
        most = self._job.settings.make_instances().max_num_tokens(vocabulary)
        counts.update(
            documents=1,
            sentences=len(lengths),
            tokens=len(ids),
            unknown_tokens=int((ids == vocabulary.unk_id).sum()),
            long_sentences=int((lengths > most).sum()),
        )
        return ids.tobytes(), lengths.tobytes(), b"".join(filter(None, words))


# === 2. Group ===


class _Text(NamedTuple):
    """What the whole text is: the rank of each range's first document, how many blocks
    there will be, and the counts of all ranges.
    """

    firsts: np.ndarray
    blocks: int
    counts: dict

    @classmethod
    def of(cls, notes: list[tuple[int, dict]], job: Job) -> "_Text":
        _check_unchanged(job.patterns, job)  # now that all are read
        notes = [counts for _, counts in sorted(notes, key=lambda note: note[0])]
        total = collections.Counter()
        for counts in notes:
            total.update(counts)
        num_files = job.description.origin["inputs"]["files"]
        stages.refuse_text(job.settings, num_files, total)
        documents = [counts["documents"] for counts in notes]
        blocks = min(
            total["tokens"] // job.block_tokens,
            total["documents"] // job.block_documents,
        )
        firsts = np.cumsum([0, *documents[:-1]])
        return cls(firsts, max(1, blocks), dict(total))


def _assign(numbered, text, job):
    """Yields (block, (place, document)) of a range's documents."""
    number, documents = numbered
    total = text.counts["documents"]
    ranks = text.firsts[number] + np.arange(len(documents))
    places = stages.permute(ranks, total, stages.round_keys(job.rng(_GROUP)))
    for place, document in zip(places.tolist(), documents, strict=True):
        yield place * text.blocks // total, (place, document)


# === 3. Make ===


class _Make(beam.DoFn):
    """(block, its documents) to (file, rows); see `_OutputRows`.

    Also notes the counts and the number of rows for each file.
    """

    def __init__(self, job):
        self._job = job

    def setup(self):
        self._vocabulary = self._job.load_tokenizer().vocabulary

    def process(self, grouped):
        block, documents = grouped
        settings = self._job.settings
        corpus = self._corpus(documents)
        num_files = len(settings.output_files)
        # Blocks deal their rows to the files in turn, each from another one on.
        file = int(self._job.rng(_FILE, block).integers(num_files))
        counts, by_file = collections.Counter(), np.zeros(num_files, np.int64)
        for number in range(settings.dupe_factor):
            examples, pass_counts = self._pass(corpus, block, number)
            counts.update(pass_counts)
            rng = self._job.rng(_ORDER, block, number)
            keys = rng.integers(0, 1 << 64, len(examples), np.uint64)
            for i in range(min(num_files, len(examples))):
                to, some = (file + i) % num_files, slice(i, None, num_files)
                rows = _OutputRows.of((block, number), keys[some], examples[some])
                by_file[to] += len(examples[some])
                yield to, tuple(rows)
            file = (file + len(examples)) % num_files
        yield TaggedOutput(_NOTES, (dict(counts), by_file.tolist()))

    def _corpus(self, documents):
        ids, lengths, words = zip(
            *(document for _, document in sorted(documents)), strict=True
        )
        joined = b"".join(words)
        return Corpus.in_memory(
            np.frombuffer(b"".join(ids), self._vocabulary.id_type),
            np.frombuffer(b"".join(lengths), np.int64),
            np.array([len(x) // 8 for x in lengths]),
            np.frombuffer(joined, np.uint8) if joined else None,
        )

    def _pass(self, corpus, block, number):
        """The framed records of one pass, and counts."""
        job, vocabulary = self._job, self._vocabulary
        instances = job.settings.make_instances()
        planned, counts = instances.plan(
            corpus,
            0,
            corpus.num_documents,
            vocabulary,
            job.rng(_PLAN, block, number),
        )
        counts = collections.Counter(counts, instances=len(planned))
        examples = []
        for start in range(0, len(planned), _BATCH_ROWS):
            batch, batch_counts = instances.assemble(
                corpus,
                planned[start : start + _BATCH_ROWS],
                vocabulary,
                job.rng(_MASK, block, number, start),
            )
            counts.update(batch_counts)
            examples += encoding.encode(batch, instances.schema())
        return examples, counts


def _row_counts(notes, job):
    """The counts of all rows."""
    total, by_file = collections.Counter(), 0
    for counts, numbers in notes:
        total.update(counts)
        by_file += np.array(numbers)
    empty = not np.all(by_file)
    stages.refuse_rows(job.settings, total["instances"], empty)
    return dict(total)


# === 4. Write ===


class _OutputRows(NamedTuple):
    """Some rows of a file, from a block and pass, as bytes: keys, by which rows are
    ordered, the sizes of the serialized examples, and these.
    """

    origin: tuple[int, int]
    keys: bytes
    sizes: bytes
    content: bytes

    @classmethod
    def of(cls, origin, keys, examples) -> "_OutputRows":
        sizes = np.array(list(map(len, examples)), np.int64)
        return cls(origin, keys.tobytes(), sizes.tobytes(), b"".join(examples))


def _write_file(grouped, checked, job):
    """Writes a file; returns its number and what the description says of it."""
    del checked  # the rows of all files, which are there before the first is written
    file, parts = grouped
    path = job.settings.output_files[file]
    parts = sorted(_OutputRows(*part) for part in parts)
    keys = np.concatenate([np.frombuffer(part.keys, np.uint64) for part in parts])
    sizes = [np.frombuffer(part.sizes, np.int64) for part in parts]
    stops = np.concatenate([np.cumsum(x) for x in sizes])
    starts = stops - np.concatenate(sizes)
    of_part = np.repeat(np.arange(len(parts)), [len(x) for x in sizes])
    order = np.argsort(keys, kind="stable")
    offsets, position = [], 0
    with (
        beam_files.replacing(path) as plain,
        stages.open_packing(plain, job.settings) as opened,
    ):
        for i in range(0, len(order), descriptions.OFFSET_EVERY):
            some = order[i : i + descriptions.OFFSET_EVERY]
            places = (x[some].tolist() for x in (of_part, starts, stops))
            framed = framing.frame(
                [parts[part].content[a:b] for part, a, b in zip(*places, strict=True)]
            )
            offsets.append(position)
            position += len(framed)
            opened.write(framed)
    output = {"file": os.path.basename(path), "instances": len(order)}
    if job.settings.gzip_compress:
        return file, output | {"bytes": sources.size(path)}
    return file, output | {"bytes": position, "offsets": offsets}


# === 5. Describe ===


def _describe(description, job, text, rows, written):
    """Writes the description, which says that everything is there."""
    counts = text.counts | rows
    dataclasses.replace(
        description,
        instances=counts["instances"],
        counts=counts,
        outputs=[output for _, output in sorted(written, key=lambda one: one[0])],
    ).write(job.settings.description_file, beam_files.replacing)
