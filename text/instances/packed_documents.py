"""Packs documents into rows without padding, each with positions of its own.

A row is as many documents as it has room for, each as it would be alone:

    [CLS] the end of one document [SEP] [CLS] another [SEP] [CLS] the beginning of a third
    [SEP]

`position_ids` count from 0 in each of them, and so say where one begins. An encoder lets
tokens see those of their own document. One that does not fit continues in the next row, as
a document of its own, so no token is lost and rows are full: only where a document ends so
near that not even one token more would fit between its special tokens are these places
empty. The last row of a generation block has what remains.

Rows are the same in every pass over the text; only the masks differ.
"""

import array
import itertools

import numpy as np

from text.instances import packing
from text.instances.full_sentences import SPAN, inner_ends
from text.instances.instances import Instances, as_planned
from text.records.schema import Feature


class PackedDocuments(Instances):
    """Whole documents and parts of some, up to max_seq_length."""

    planned = SPAN
    spans = ("text",)
    none_planned = "contains no sentences"
    passes_differ = False
    capability = "documents"

    def max_num_tokens(self, vocabulary) -> int:
        return self.options.max_seq_length - len(vocabulary.head + vocabulary.tail)

    def plan(self, corpus, first, last, vocabulary, rng):
        del rng
        planned, split = array.array("q"), 0
        around, room = len(vocabulary.head + vocabulary.tail), 0
        bounds = corpus.documents[first : last + 1]
        begins = corpus.sentences.gather(bounds, np.ones_like(bounds)).tolist()
        for document, (at, end) in enumerate(itertools.pairwise(begins), first):
            while at < end:
                if room <= around:
                    planned.extend((at, document, 0, 0))
                    room = self.options.max_seq_length
                size = min(end - at, room - around)
                planned[-2] += size
                planned[-1] += 1
                at += size
                room -= size + around
                split += at < end
        return as_planned(planned, SPAN), {"split_documents": split}

    def labels(self) -> tuple[Feature, ...]:
        size = self.options.max_seq_length
        return (Feature("position_ids", "int64", size, "max_position_embeddings"),)

    def pack(self, corpus, planned, tokens, vocabulary):
        lengths, parts = (planned[x].astype(np.int64) for x in ("text_length", "parts"))
        columns = np.arange(self.options.max_seq_length)
        head, tail = vocabulary.head, vocabulary.tail
        around = len(head + tail)
        num_tokens = (lengths + parts * around)[:, None]
        # Where the documents but the first of each row begin.
        rows, number, begins = inner_ends(corpus, planned)
        begins += (number + 1) * around
        is_first = np.zeros((len(planned), len(columns) + 1), bool)
        is_first[:, 0] = is_first[rows, begins] = True
        is_first[np.arange(len(planned)), num_tokens[:, 0]] = True  # and the rest
        input_mask = columns < num_tokens
        input_ids = np.full(input_mask.shape, vocabulary.pad_id, np.int32)
        is_text, is_last = input_mask.copy(), is_first[:, 1:] & input_mask
        rows, ends = np.nonzero(is_last)
        _, begins = np.nonzero(is_first[:, :-1] & input_mask)
        for place, id in enumerate(head):
            input_ids[rows, begins + place], is_text[rows, begins + place] = id, False
        for place, id in enumerate(reversed(tail)):
            input_ids[rows, ends - place], is_text[rows, ends - place] = id, False
        input_ids[is_text] = tokens
        begins_of = np.maximum.accumulate(
            np.where(is_first[:, :-1], columns, 0), axis=1
        )
        batch = {
            "input_ids": input_ids,
            "input_mask": input_mask.view(np.uint8),
            "segment_ids": packing.segments(
                np.zeros_like(input_mask), is_last, vocabulary
            ),
            "position_ids": ((columns - begins_of) * input_mask).astype(np.int32),
        }
        return batch, is_text
