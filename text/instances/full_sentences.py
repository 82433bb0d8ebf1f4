"""Makes rows of as many consecutive whole sentences as fit, without next-sentence labels.

These are RoBERTa's inputs (arXiv:1907.11692, section 4.2). A row is `[CLS]`, then sentences
up to max_seq_length; every document in it ends with `[SEP]`:

    full_sentences   [CLS] the end of one document [SEP] the beginning of the next [SEP]
    doc_sentences    [CLS] sentences of one document [SEP]

Where a vocabulary has no token like [CLS], as T5's, rows begin with text.

Rows are the same in every pass over the text; only the masks differ.
"""

import array
from bisect import bisect_right

import numpy as np

from text.instances import packing
from text.instances.instances import Instances, as_planned, windows

# One planned row: a run of the corpus, the document where it begins, and the number of
# documents it spans.
SPAN = np.dtype(
    [
        ("text_start", "<i8"),
        ("document", "<i8"),
        ("text_length", "<u2"),
        ("parts", "<u2"),
    ]
)


class FullSentences(Instances):
    """Sentences up to max_seq_length; a row continues into the next document.

    One [SEP] ends each document, as in the paper; the source's data also have one after
    every sentence.

    Source: facebookresearch/fairseq@3d262bb fairseq/data/token_block_utils_fast.pyx,
        break mode "complete".
    """

    planned = SPAN
    spans = ("text",)
    none_planned = "contains no sentences"
    passes_differ = False
    crosses_documents = True

    def max_num_tokens(self, vocabulary) -> int:
        return self.options.max_seq_length - 1 - vocabulary.has_cls

    def plan(self, corpus, first, last, vocabulary, rng):
        # Differs from the source: there, a sentence that is too long becomes one row, which
        # training then leaves out; here it continues in the next row. Rows also end with
        # their generation block.
        del rng
        planned = array.array("q")
        size = self.options.max_seq_length - vocabulary.has_cls
        split, length, parts = 0, 0, 0  # the last two are of the row being filled
        bounds = corpus.documents[first : last + 1].tolist()
        for document in range(first, last):
            begins = True
            if not self.crosses_documents:
                length = parts = 0
            for offsets in windows(corpus.sentences, *bounds[document - first :][:2]):
                at = offsets[0]
                while at < offsets[-1]:
                    part = begins or not length
                    room = size - length - parts - part
                    end = offsets[max(bisect_right(offsets, at + room) - 1, 0)]
                    if end <= at:
                        if length:
                            length = parts = 0
                            continue
                        end = at + room
                        split += 1
                    if not length:
                        planned.extend((at, document, 0, 0))
                    length += end - at
                    parts += part
                    planned[-2:] = array.array("q", (length, parts))
                    at, begins = end, False
        return as_planned(planned, SPAN), {"split_sentences": split}

    def pack(self, corpus, planned, tokens, vocabulary):
        lengths, parts = (planned[x].astype(np.int64) for x in ("text_length", "parts"))
        columns = np.arange(self.options.max_seq_length)
        begin, tail = len(vocabulary.head), len(vocabulary.tail)
        last = (begin + lengths + parts + tail - 2)[:, None]
        is_sep = columns > last - tail
        rows, number, positions = inner_ends(corpus, planned)
        positions += number  # the [SEP] before it
        is_sep[rows, begin + positions] = True
        input_mask = columns <= last
        is_text = input_mask & ~is_sep
        is_text[:, :begin] = False
        input_ids = np.where(
            input_mask, np.int32(vocabulary.sep_id), np.int32(vocabulary.pad_id)
        )
        input_ids[rows, begin + positions] = vocabulary.document_end_id
        input_ids[columns == last] = vocabulary.end_id
        input_ids[:, :begin] = vocabulary.head
        input_ids[is_text] = tokens
        batch = {
            "input_ids": input_ids,
            "input_mask": input_mask.view(np.uint8),
            "segment_ids": packing.segments(
                np.zeros(input_mask.shape, bool), columns == last, vocabulary
            ),
        }
        return batch, is_text


class DocSentences(FullSentences):
    """Sentences of one document up to max_seq_length.

    Source: that of `FullSentences`, break mode "complete_doc".
    """

    crosses_documents = False


def inner_ends(corpus, planned):
    """Where documents end within planned rows of `SPAN`: three int64 [number].

    Returns:
        the row; how many documents of the row end before; how many tokens of text precede
        the end in the row.
    """
    inner = planned["parts"].astype(np.int64) - 1
    rows = np.repeat(np.arange(len(planned)), inner)
    ends = corpus.documents.gather(planned["document"] + 1, inner)  # in sentences
    offsets = corpus.sentences.gather(ends, np.ones_like(ends))
    number = packing.ranks(rows, len(planned))
    return rows, number, offsets - planned["text_start"][rows]
