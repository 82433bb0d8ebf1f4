"""Makes rows that continue each other from batch to batch, as XLNet's memory needs them.

The text is one stream, with the end-of-document token after each document, if the
vocabulary has one. It is cut into `rows_per_batch` parts. Row k of every batch is from part
k: `reuse_len` tokens that continue those of the same row in the batch before, then two
texts. A is what follows these tokens; B follows A or, half of the time, is from another
place of the part:

    [reuse_len tokens] A [SEP] B [SEP] [CLS]

Rows are always full. Both texts are from any document, and B has no label: the release's is
read by nothing.
"""

import bisect
import dataclasses
from collections.abc import Iterator

import numpy as np

import options
from errors import UserError
from text.instances import packing
from text.instances.instances import Instances

SPANS = ("text", "a", "b")
# Of each span of a row: where its tokens begin in the corpus, how many they are, and how
# many documents, from which one on, end among them.
ROW = np.dtype(
    [
        (f"{span}_{name}", kind)
        for span in SPANS
        for name, kind in (
            ("start", "<i8"),
            ("document", "<i8"),
            ("length", "<u2"),
            ("ends", "<u2"),
        )
    ]
)
_NUM_SPECIAL = 3  # tokens of a row
_READ = 64  # borders of sentences at a time


@dataclasses.dataclass(frozen=True)
class ContiguousOptions(options.Group):
    """Rows that continue each other."""

    rows_per_batch: int = options.field(
        0,
        help="Rows of a batch, the --train_batch_size of run_pretraining.py. The text is "
        "cut into this many parts.",
        only_for={"instances": "contiguous"},
        at_least=0,
    )
    reuse_len: int = options.field(
        0,
        help="How many tokens of a row continue the row of the batch before; 0 means half "
        "of --max_seq_length.",
        only_for={"instances": "contiguous"},
        at_least=0,
    )


class Contiguous(Instances):
    """Rows whose first `reuse` tokens continue those of the batch before.

    Source: zihangdai/xlnet@bbaa3a6 data_utils.py, create_tfrecords and _split_a_and_b.
    """

    planned = ROW
    spans = SPANS
    none_planned = (
        "is too short for rows that continue each other; each of --rows_per_batch parts of "
        "the text must have --max_seq_length tokens"
    )
    passes_differ = True

    @property
    def rows_per_batch(self) -> int:
        return self.options.rows_per_batch

    @property
    def reuse(self) -> int:
        return self.options.reuse_len or self.options.max_seq_length // 2

    def check(self, vocabulary) -> None:
        size, most = self.options.max_seq_length, self.options.max_seq_length - 5
        if not self.options.rows_per_batch:
            raise UserError(
                "--instances=contiguous needs --rows_per_batch, the --train_batch_size of "
                "the training that will read the records"
            )
        if not 1 <= self.reuse <= most:
            raise UserError(
                f"--reuse_len={self.reuse}: must be from 1 to {most}, so that two texts "
                f"fit into the rest of --max_seq_length={size}"
            )
        if vocabulary.head or self.masks.are_drawn:
            needed = "--masking=dynamic"
            if vocabulary.head:
                needed = "a vocabulary whose rows end with [CLS], XLNet's SentencePiece"
            raise UserError(f"--instances=contiguous needs {needed}")

    def max_num_tokens(self, vocabulary) -> int:
        return self.options.max_seq_length - _NUM_SPECIAL

    def plan(self, corpus, first, last, vocabulary, rng):
        size, reuse = self.options.max_seq_length, self.reuse
        stream = Stream(corpus, vocabulary)
        part = stream.length // self.options.rows_per_batch
        steps = max((part - size) // reuse + 1, 0)
        begin, stop = (stream.begin(document) for document in (first, last))
        planned, random = [], 0
        parts = range(begin // max(part, 1), self.options.rows_per_batch)
        for number in parts if steps else ():
            base = number * part
            if base >= stop:
                break
            rows = range(max(-(-(begin - base) // reuse), 0), steps)
            for at in (base + step * reuse for step in rows):
                if at >= stop:
                    break
                a_begin = at + reuse
                texts = split(
                    stream, a_begin, size - reuse - _NUM_SPECIAL, base, base + part, rng
                )
                a_length, b_begin, b_length, is_random = texts
                spans = (at, reuse), (a_begin, a_length), (b_begin, b_length)
                planned.append(sum((stream.span(*span) for span in spans), ()))
                random += is_random
        return np.array(planned, ROW), {"random_second": random}

    def order_rows(self, records, total, passes):
        in_pass, rows = total // passes, self.options.rows_per_batch
        number, place = np.divmod(records, in_pass)
        step, row = np.divmod(place, rows)
        return number * in_pass + row * (in_pass // rows) + step

    def pack(self, corpus, planned, tokens, vocabulary):
        columns = np.arange(self.options.max_seq_length)
        sizes = {
            span: planned[f"{span}_length"].astype(np.int64) + planned[f"{span}_ends"]
            for span in SPANS
        }
        first_sep = (sizes["text"] + sizes["a"])[:, None]
        b_begin, last = first_sep + 1, len(columns) - 1
        input_ids = np.full((len(planned), len(columns)), vocabulary.sep_id, np.int32)
        is_text = (columns != first_sep) & (columns < last - 1)
        begins = 0, sizes["text"], b_begin[:, 0]
        for span, begin in zip(SPANS, begins, strict=True):
            rows, positions = _ends(corpus, planned, span)
            positions += np.broadcast_to(begin, len(planned))[rows]
            input_ids[rows, positions] = vocabulary.document_end_id
            is_text[rows, positions] = False
        input_ids[:, last] = vocabulary.cls_id
        input_ids[is_text] = tokens
        batch = {
            "input_ids": input_ids,
            "input_mask": np.ones(input_ids.shape, np.uint8),
            "segment_ids": segments(first_sep, len(columns), vocabulary),
        }
        return batch, is_text


def segments(first_sep: np.ndarray, size: int, vocabulary) -> np.ndarray:
    """uint8 [batch, size]: the segment ids of rows, from the place of the first [SEP]."""
    columns = np.arange(size)
    is_last = np.broadcast_to(columns == size - 1, (len(first_sep), size))
    return packing.segments(columns > first_sep, is_last, vocabulary)


def _ends(corpus, planned, span):
    """Rows of a span's end-of-document tokens, and positions in it: two int64 [number]."""
    number = planned[f"{span}_ends"].astype(np.int64)
    rows = np.repeat(np.arange(len(planned)), number)
    ends = corpus.documents.gather(planned[f"{span}_document"] + 1, number)
    offsets = corpus.sentences.gather(ends, np.ones_like(ends))
    ranks = packing.ranks(rows, len(planned))
    return rows, offsets - planned[f"{span}_start"][rows] + ranks


class Stream:
    """The text of a corpus in one piece, with end-of-document tokens; `length` counts
    all.
    """

    def __init__(self, corpus, vocabulary):
        self._sentences, self._documents = corpus.sentences, corpus.documents
        self._num_documents = corpus.num_documents
        # How many tokens end a document.
        self._ends = int(vocabulary.document_end_id != vocabulary.sep_id)
        self._near = 0  # the document found last
        self.length = self.begin(self._num_documents)

    def begin(self, document: int) -> int:
        """Where a document begins, and the one before it ends."""
        return int(self._sentences[self._documents[document]]) + self._ends * document

    def document_of(self, position: int) -> int:
        """The document with this position; their number for the end of the text."""
        if position >= self.length:
            return self._num_documents
        low, high = 0, self._num_documents
        for near in (self._near, self._near + 1):
            if near < self._num_documents and self.begin(near) <= position:
                low = near
                if position < self.begin(near + 1):
                    high = near + 1
                    break
        documents = range(low, high)
        self._near = low + bisect.bisect_right(documents, position, key=self.begin) - 1
        return self._near

    def span(self, position: int, length: int) -> tuple[int, int, int, int]:
        """What ROW says of these tokens."""
        document = self.document_of(position)
        ends = self._ends * (self.document_of(position + length) - document)
        return position - self._ends * document, document, length - ends, ends

    def borders(self, position: int) -> Iterator[int]:
        """The ends of sentences after a position, in order; a sentence has what ends it."""
        for document in range(self.document_of(position), self._num_documents):
            first = self._sentence(document, position)
            last = int(self._documents[document + 1])
            for start in range(first + 1, last, _READ):
                some = self._sentences[start : min(start + _READ, last)]
                yield from (some + self._ends * document).tolist()
            yield self.begin(document + 1)

    def border_before(self, position: int) -> int:
        """The beginning of the sentence with this position."""
        document = self.document_of(position)
        place = self._sentence(document, position)
        return int(self._sentences[place]) + self._ends * document

    def _sentence(self, document, position):
        """The sentence with a position, if it is in the document; else its first."""
        low, high = (int(self._documents[document + i]) for i in (0, 1))
        offset = position - self._ends * document
        place = low + bisect.bisect_right(
            range(low, high), offset, key=self._sentences.__getitem__
        )
        return max(place - 1, low)


def split(
    stream: Stream, begin: int, size: int, first: int, stop: int, rng
) -> tuple[int, int, int, bool]:
    """Divides the place for two texts.

    Args:
        begin: where the first text begins.
        size: tokens of both.
        first, stop: the part of the stream that the second may be from.
    Returns:
        the length of the first, the beginning and the length of the second, and whether
        that is from a random place.
    Source: zihangdai/xlnet@bbaa3a6 data_utils.py, _split_a_and_b.
    """
    cuts, end = [], stop
    for border in stream.borders(begin):
        if border >= begin + size:
            end = min(border, stop)
            break
        cuts.append(border)
    is_random = not cuts or rng.random() < 0.5
    a_end = cuts[int(rng.integers(len(cuts)))] if cuts else end
    b_begin, b_end = a_end, end
    if is_random:
        length = max(1, size - (a_end - begin))
        b_begin = first + int(rng.integers(stop - first - length))
        # The last token of a part is in no second text, as in the release, which needs one
        # after it.
        b_end = next(stream.borders(b_begin + length - 1), stop)
        b_end = min(b_end, stop - 1)
        b_begin = max(first, stream.border_before(b_begin))
    a_length, b_length = packing.truncated_lengths(
        np.array([a_end - begin]), np.array([b_end - b_begin]), size
    )
    return int(a_length[0]), b_begin, int(b_length[0]), is_random
