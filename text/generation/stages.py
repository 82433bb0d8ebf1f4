"""Turns text into record files in three stages, and describes them.

1. tokenize: a piece of the input becomes a piece of the corpus;
2. plan: a block of documents in one of dupe_factor passes becomes planned rows;
3. write: a segment of an output file takes its rows from the whole plan, by a permutation
   that needs no memory, and assembles, encodes and writes them.

The output of a task depends only on the settings and the text, not on which process runs it
or when. So neither the number of workers nor an interruption changes a byte.
"""

import bisect
import collections
import contextlib
import dataclasses
import functools
import gzip
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

import numpy as np

from errors import UserError
from files import json_files, sources
from files.local import replacing, write_json
from text.corpus import formats, store
from text.corpus.duplicates import Duplicates
from text.corpus.text_format import PARAGRAPH_END, FileSpan
from text.generation import outputs, work
from text.generation.settings import Settings
from text.records import descriptions, encoding, framing
from text.records.descriptions import Description
from text.tokenizers.tokenizer import Tokenizer

_FORMAT = 2  # of the description
BLOCK_TOKENS = 1 << 21
_SENTENCES = 1 << 17  # whose lengths are read at a time
SEGMENT_ROWS = 1 << 16
BATCH_ROWS = 1 << 11  # both multiples of descriptions.OFFSET_EVERY
_PLAN, _ORDER, _MASK = range(3)  # the uses of random generators
_ROUNDS = 6  # of a permutation
# The files a run makes in its folder.
MADE = re.compile(
    r"(origin|settings|room|file-\d+)\.json"
    r"|(piece-\d+|corpus)\.(json|tokens|words|lengths|ends|sentences|documents|paragraphs)"
    r"|corpus\.(duplicates\.json|hashes-[dp]-\d+)"
    r"|plan(-\d+-\d+)?\.(json|rows)"
    r"|rows-\d+\.(json|tfrecord)"
)


def make_all(
    settings: Settings, folder: work.WorkFolder, workers: work.Workers
) -> tuple[collections.Counter, list[dict]]:
    """Returns the counts, and a description of each file."""
    counts = collections.Counter()
    _tokenize_all(settings, folder, workers, counts)
    plan_all(settings, folder, workers, counts)
    return counts, write_all(settings, folder, workers, counts)


def describe(
    settings: Settings,
    origin: dict,
    tokenizer: Tokenizer,
    counts: collections.Counter,
    written: list[dict],
) -> Description:
    """The description of what was written, from its counts and a dict for each file."""
    vocabulary = tokenizer.vocabulary
    return Description(
        format=_FORMAT,
        max_seq_length=settings.max_seq_length,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        do_lower_case=tokenizer.settings.get("do_lower_case"),
        vocab_size=len(vocabulary),
        vocab_sha256=vocabulary.digest,
        special_ids=vocabulary.special_ids,
        instances=counts["instances"],
        outputs=written,
        counts=dict(counts),
        origin=origin,
    )


def note_settings(settings: Settings) -> None:
    """Writes the settings for the tasks, without the input files, which may be many."""
    flags = dataclasses.asdict(dataclasses.replace(settings, input_files=()))
    write_json(settings.settings_file, flags)


def corpus_path(folder: work.WorkFolder) -> str:
    """The prefix of the tokenized text; noted when the text is needed no longer."""
    return f"{folder.path}/corpus"


def _tokenize_all(settings, folder, workers, counts):
    path = corpus_path(folder)
    outcome = work.outcome_of(path)
    if outcome is None:
        prefixes, counted = _tokenize_pieces(settings, folder, workers)
        outcome = workers.share.do_once(path, join_corpus, settings, prefixes, counted)
    counts.update(outcome)
    refuse_text(settings, len(settings.input_files), counts)


def refuse_text(settings: Settings, num_files: int, counts: Mapping) -> None:
    """Refuses a text that yields no rows, judging by its documents and sentences."""
    if not counts["sentences"]:
        raise UserError(
            f"{', '.join(settings.input_files[:3])}: no line of the "
            f"{num_files} input file(s) contains a token, so there is "
            "nothing to make records from"
        )
    if refusal := settings.make_instances().refusal(counts["documents"]):
        raise UserError(f"{settings.input_files[0]}: {refusal}")


def _tokenize_pieces(settings, folder, workers):
    """Returns the prefixes of the pieces' files, and what they contain together."""
    total = folder.origin["inputs"]["bytes"]
    prefixes = []
    before = outputs.statuses(settings.input_files, folder.origin)

    def files():
        for path, status in zip(settings.input_files, before, strict=True):
            yield path, sources.Status(*status.tolist())

    def tasks():
        pieces = formats.pieces(files(), settings.input_format, total)
        for number, piece in enumerate(pieces):
            prefixes.append(f"{folder.path}/piece-{number:06d}")
            size = sum(span.size for span in piece)
            yield size, (prefixes[-1], tokenize, settings.settings_file, piece)

    counts = collections.Counter()
    for outcome in workers.do_all(tasks(), total, "1/3 tokenizing", "MB", scale=1e6):
        counts.update(outcome)
    for path, status in files():
        sources.refuse_change(path, status)
    return prefixes, counts


def join_corpus(path, settings, prefixes, counts):
    shared = opened(settings.settings_file)
    if not os.path.exists(f"{path}.documents"):  # join writes it last
        kept = None
        if settings.deduplicate:
            id_type = shared.tokenizer.vocabulary.id_type
            duplicates = Duplicates(prefixes, id_type, path)
            write_json(f"{path}.duplicates.json", duplicates.counts)
            kept = duplicates.kept_mask
        store.join(prefixes, path, settings.words_from_spaces, kept)
    store.remove_pieces(prefixes)
    counts = {**counts, "documents": shared.corpus.num_documents}
    if settings.deduplicate:
        counts |= _count_lengths(shared, f"{path}.tokens", _lengths(shared.corpus))
        counts |= json_files.read(f"{path}.duplicates.json")
    return counts


def _lengths(corpus):
    """Yields those of all sentences."""
    for start in range(0, len(corpus.sentences) - 1, _SENTENCES):
        stop = min(start + _SENTENCES + 1, len(corpus.sentences))
        yield np.diff(corpus.sentences[start:stop])


def plan_all(settings, folder, workers, counts):
    file = settings.settings_file
    blocks = list(_blocks(opened(file).corpus))
    tasks = [
        (f"{folder.path}/plan-{number}-{first}", plan, file, number, first, last)
        for number in range(settings.dupe_factor)
        for first, last in blocks
    ]
    sized = [(task[-1] - task[-2], task) for task in tasks]
    total = counts["documents"] * settings.dupe_factor
    for outcome in workers.do_all(sized, total, "2/3 planning", "documents"):
        counts.update(outcome)
    prefixes = [task[0] for task in tasks]
    workers.share.do_once(f"{folder.path}/plan", join_plan, prefixes)
    refuse_rows(settings, counts["instances"])


def refuse_rows(settings: Settings, number: int, empty: bool = False) -> None:
    """Raises UserError if there are no rows, or one of the output files would be empty."""
    if not number:
        raise UserError(
            f"{settings.input_files[0]}: {settings.make_instances().none_planned}"
        )
    rows_per_batch = settings.make_instances().rows_per_batch or 1
    if empty or number // rows_per_batch < len(settings.output_files):
        raise UserError(
            f"{settings.output_files[-1]}: the text yields {number} instances "
            f"for {len(settings.output_files)} output files; use fewer files or more text"
        )


def write_all(settings, folder, workers, counts):
    outputs.remove_temporaries(settings)
    workers.share.do_once(f"{folder.path}/room", _make_room, settings)
    tasks, joins, written = [], [], []
    total, num_files = counts["instances"], len(settings.output_files)
    batch_rows = settings.make_instances().rows_per_batch or 1  # in one file
    for file, path in enumerate(settings.output_files):
        first, last = (
            total // batch_rows * end // num_files * batch_rows
            for end in (file, file + 1)
        )
        written.append({"file": os.path.basename(path), "instances": last - first})
        starts = range(first, last, SEGMENT_ROWS)
        prefixes = [f"{folder.path}/rows-{start}" for start in starts]
        # A file of one segment is written directly, a longer one is joined from segments.
        segments = [path] if len(starts) == 1 else [f"{p}.tfrecord" for p in prefixes]
        for prefix, segment, start in zip(prefixes, segments, starts, strict=True):
            rows = start, min(start + SEGMENT_ROWS, last)
            task = prefix, write, settings.settings_file, segment, *rows, total
            tasks.append((rows[1] - rows[0], task))
        if len(segments) > 1:
            join = f"{folder.path}/file-{file}", _join_segments, path, segments
            joins.append((1, join))
    outcomes = iter(workers.do_all(tasks, total, "3/3 writing", "instances"))
    if joins:
        workers.do_all(joins, len(joins), "joining", "files")
    for output, path in zip(written, settings.output_files, strict=True):
        num_segments = -(-output["instances"] // SEGMENT_ROWS)
        segments = list(itertools.islice(outcomes, num_segments))
        output["bytes"] = os.path.getsize(path)
        if offsets := _offsets(segments):
            output["offsets"] = offsets
        for segment in segments:
            segment.pop("bytes", None)
            segment.pop("offsets", None)
            counts.update(segment)
    return written


def _offsets(segments):
    """Where in a file every 1024th record begins, from the notes of its segments.

    None for packed files.
    """
    if not all("offsets" in segment for segment in segments):
        return None
    begins = itertools.accumulate((s["bytes"] for s in segments), initial=0)
    return [
        begin + offset
        for begin, segment in zip(begins, segments, strict=False)
        for offset in segment["offsets"]
    ]


# === Tasks: the first argument is the prefix of their files, the result is counts ===


class _Shared:
    """What all tasks of a run share; each process loads it once.

    Tasks carry the name of the settings file, not the settings: there may be many tasks.
    """

    def __init__(self, settings_file: str):
        flags = json_files.read(settings_file)
        for name in ("input_files", "output_files"):
            flags[name] = tuple(flags[name])
        self.settings = Settings(**flags)
        self.instances = self.settings.make_instances()

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        path = self.settings.vocab_file
        tokenizer = self.settings.load_tokenizer(path)
        expected = work.origin(self.settings.work_folder)["vocab_sha256"]
        if tokenizer.vocabulary.digest != expected:
            raise sources.ChangedFileError(
                f"{path}: has changed while it was used; restore it and run the same "
                "command again, or add --overwrite to start over"
            )
        return tokenizer

    @functools.cached_property
    def corpus(self) -> store.Corpus:
        return store.Corpus(
            f"{self.settings.work_folder}/corpus",
            self.tokenizer.vocabulary.id_type,
            self.settings.words_from_spaces,
        )


opened = functools.lru_cache(maxsize=1)(_Shared)


def forget() -> None:
    """Closes what tasks in this process have opened."""
    opened.cache_clear()


def tokenize(prefix, settings_file, spans):
    shared = opened(settings_file)
    settings, tokenizer = shared.settings, shared.tokenizer
    id_type, with_words = tokenizer.vocabulary.id_type, settings.words_from_spaces
    left_out = collections.Counter()
    number = decomposed = 0
    with store.PieceWriter(prefix, id_type, with_words, settings.deduplicate) as writer:
        for sentence in encode_spans(settings, tokenizer, spans, left_out):
            if sentence is None:
                writer.end_document()
                continue
            if sentence == PARAGRAPH_END:
                writer.end_paragraph()
                continue
            packed, words, is_decomposed = sentence
            writer.add(packed, words)
            number += 1
            decomposed += is_decomposed
    lengths = store.blocks(f"{prefix}.lengths", np.dtype(np.int64))
    counted = _count_lengths(shared, f"{prefix}.tokens", lengths)
    return {
        "tokens": counted["tokens"],
        "unknown_tokens": counted["unknown_tokens"],
        "empty_sentences": number - writer.num_sentences,
        "long_sentences": counted["long_sentences"],
        "decomposed_sentences": decomposed,
        "sentences": counted["sentences"],
        **left_out,
    }


def _count_lengths(shared, tokens_file, all_lengths):
    """Counts the tokens in a file, and its sentences from their lengths."""
    vocabulary = shared.tokenizer.vocabulary
    most = shared.instances.max_num_tokens(vocabulary)
    counts = dict.fromkeys(
        ("tokens", "unknown_tokens", "sentences", "long_sentences"), 0
    )
    for ids in store.blocks(tokens_file, vocabulary.id_type):
        counts["tokens"] += len(ids)
        counts["unknown_tokens"] += int((ids == vocabulary.unk_id).sum())
    for lengths in all_lengths:
        counts["sentences"] += len(lengths)
        counts["long_sentences"] += int((lengths > most).sum())
    return counts


def encode_spans(
    settings: Settings,
    tokenizer: Tokenizer,
    spans: Iterable[FileSpan],
    counts: collections.Counter | None = None,
) -> Iterator[tuple[bytes, bytes | None, bool] | str | None]:
    """Yields the sentences of spans, and None wherever a document ends.

    To find duplicates, PARAGRAPH_END wherever a paragraph does, too.

    A sentence is packed ids; uint8, 1 at the first id between two spaces, if words
    depend on them; and whether letters were taken apart (`Tokenizer.decomposes`). `counts`
    receives what the format leaves out.
    """
    # Where spaces matter to the tokenizer, sentences are separated by one.
    space = ""
    for sentence in _sentences(settings, spans, counts):
        if sentence is None:
            yield None
            space = ""
            continue
        if sentence == PARAGRAPH_END:
            yield sentence
            continue
        sentence, space = space + sentence, " "
        if settings.words_from_spaces:
            packed, words = tokenizer.encode_words(sentence)
        else:
            packed, words = tokenizer.encode_packed(sentence), None
        yield packed, words, tokenizer.decomposes(sentence)


def _sentences(settings, spans, counts):
    for span in spans:
        yield from formats.read(span, settings, counts, settings.deduplicate)


def _blocks(whole):
    """Yields (first, last) of runs of documents with about equally many tokens."""
    first, num_documents = 0, whole.num_documents
    while first < num_documents:
        begin = whole.sentences[whole.documents[first]]
        sentence = bisect.bisect_left(whole.sentences, begin + BLOCK_TOKENS)
        last = bisect.bisect_left(whole.documents, sentence, first + 1, num_documents)
        yield first, last
        first = last


def plan(prefix, settings_file, number, first, last):
    shared = opened(settings_file)
    rng = np.random.default_rng([shared.settings.random_seed, _PLAN, number, first])
    planned, counts = shared.instances.plan(
        shared.corpus, first, last, shared.tokenizer.vocabulary, rng
    )
    with replacing(f"{prefix}.rows") as file:
        planned.tofile(file)
    return {"instances": len(planned), **counts}


def join_plan(path, prefixes):
    _join_files(f"{path}.rows", [f"{prefix}.rows" for prefix in prefixes])
    return {}


def _make_room(prefix, settings):
    del prefix
    outputs.remove(settings)
    return {}


def write(prefix, settings_file, path, first, last, total):
    """Writes the rows `first` to `last` of all `total` rows in their order.

    Besides counts, notes the size in bytes and where every 1024th record begins.
    """
    del prefix
    shared = opened(settings_file)
    settings, instances = shared.settings, shared.instances
    order = round_keys(np.random.default_rng([settings.random_seed, _ORDER]))
    plan = store.FlatFile(f"{settings.work_folder}/plan.rows", instances.planned)
    schema = instances.schema()
    counts = collections.Counter()
    offsets = []
    with replacing(path) as plain, open_packing(plain, settings) as file:
        for start in range(first, last, BATCH_ROWS):
            rows = np.arange(start, min(start + BATCH_ROWS, last))
            if instances.rows_per_batch:
                places = instances.order_rows(rows, total, settings.dupe_factor)
            else:
                places = permute(rows, total, order)
            planned = plan.gather(places, np.ones_like(rows))
            batch, batch_counts = instances.assemble(
                shared.corpus,
                planned,
                shared.tokenizer.vocabulary,
                np.random.default_rng([settings.random_seed, _MASK, start]),
            )
            examples = encoding.encode(batch, schema)
            for i in range(0, len(examples), descriptions.OFFSET_EVERY):
                offsets.append(file.tell())
                file.write(framing.frame(examples[i : i + descriptions.OFFSET_EVERY]))
            counts.update(batch_counts)
        size = file.tell()
    if settings.gzip_compress:
        return counts
    return {**counts, "bytes": size, "offsets": offsets}


@contextlib.contextmanager
def open_packing(file: BinaryIO, settings: Settings) -> Iterator[BinaryIO]:
    """A file that packs what is written into another one, or that one itself."""
    if not settings.gzip_compress:
        yield file
        return
    # Without name and time, equal records give equal bytes.
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0, compresslevel=1) as packed:
        yield packed


def _join_segments(prefix, path, segments):
    del prefix
    _join_files(path, segments)
    return {}


def _join_files(path, parts):
    """Concatenates files and removes the parts; packed files stay readable that way."""
    if not os.path.exists(path):
        with replacing(path) as file:
            for part in parts:
                with open(part, "rb") as source:
                    shutil.copyfileobj(source, file, 1 << 20)
    for part in parts:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


# === A random order of any number of rows without memory for it ===


def permute(indices: np.ndarray, size: int, key: np.ndarray) -> np.ndarray:
    """Where a keyed permutation of range(size) sends each index, int64.

    A Feistel network permutes the smallest range of a power of four that contains `size`;
    an index that lands outside goes through it again until it lands inside, so the result
    is still a permutation. The key, uint64 [6], is a random number for each round.
    """
    half = np.uint64(max(1, (int(size - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    values = indices.astype(np.uint64)
    outside = np.arange(len(values))
    while len(outside):
        left, right = values[outside] >> half, values[outside] & mask
        for round_key in key:
            left, right = right, left ^ (_mix(right ^ round_key) & mask)
        values[outside] = left << half | right
        outside = outside[values[outside] >= size]
    return values.astype(np.int64)


def round_keys(rng: np.random.Generator) -> np.ndarray:
    """A random key for `permute`."""
    return rng.integers(0, 1 << 64, _ROUNDS, dtype=np.uint64)


def _mix(values):
    """The finalizer of SplitMix64: every output bit depends on every input bit."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)
