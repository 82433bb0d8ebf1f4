"""A kind of records of one's own: a row is a sentence. It is this file and two rows.

python -m tests.programs.lone_sentences --instances=lone_sentences ... writes such records.
"""

import array

import numpy as np

from text.inspection import figures
from text.inspection.inspector import Inspector, Rule
from text.inspection.table import INSPECTORS
from text.instances import packing
from text.instances.instances import Instances, as_planned
from text.instances.table import INSTANCES
from text.records.schema import Feature


class LoneSentences(Instances):
    """`[CLS] sentence [SEP]`, and how many sentences of its document precede it."""

    planned = np.dtype([("s_start", "<i8"), ("s_length", "<u2"), ("place", "<u2")])
    spans = ("s",)
    none_planned = "contains no sentences"
    passes_differ = False

    def max_num_tokens(self, vocabulary):
        return self.options.max_seq_length - 2

    def plan(self, corpus, first, last, vocabulary, rng):
        rows, longest = array.array("q"), self.max_num_tokens(vocabulary)
        for document in range(first, last):
            begin, end = corpus.documents[document], corpus.documents[document + 1]
            offsets = corpus.sentences[begin : end + 1].tolist()
            for place, start in enumerate(offsets[:-1]):
                rows.extend((start, min(offsets[place + 1] - start, longest), place))
        return as_planned(rows, self.planned), {"firsts": last - first}

    def pack(self, corpus, planned, tokens, vocabulary):
        lengths = planned["s_length"].astype(np.int64)[:, None]
        columns = np.arange(self.options.max_seq_length)
        is_text = (columns > 0) & (columns <= lengths)
        ids = np.where(columns == lengths + 1, vocabulary.sep_id, vocabulary.pad_id)
        ids[:, 0], ids[is_text] = vocabulary.cls_id, tokens
        batch = {
            "input_ids": ids.astype(np.int32),
            "input_mask": (columns < lengths + 2).view(np.uint8),
            "segment_ids": packing.segments(
                np.zeros_like(is_text), columns == lengths + 1, vocabulary
            ),
            "place": planned["place"].astype(np.int32)[:, None],
        }
        return batch, is_text

    def labels(self):
        return (Feature("place", "int64", 1, 1 << 16),)


class LoneSentenceInspector(Inspector):
    def rules(self, batch, text):
        is_wrong = text.separators(self.vocabulary) != (text.columns == text.last)
        yield Rule("input_ids", is_wrong, "must be [SEP] at the end, and nowhere else")
        yield self.segment_rule(batch, text, False, "must be 0")

    def sums(self, batch):
        return {"firsts": int((batch["place"] == 0).sum())}

    def figures(self):
        return [_Places()]

    def label(self, record):
        return f"sentence {record['place'][0] + 1} of its document"

    def report(self, counts, passes):
        return [f"{counts['firsts']:,} records begin a document"]


class _Places(figures.RunningSums):
    def __init__(self):
        self._counts = np.zeros(1 << 16, np.int64)

    def add(self, batch, text, options):
        figures.count(self._counts, batch["place"][:, 0])

    def lines(self):
        return [("Place", f"{figures.mean(self._counts):.1f} in its document")]

    def plots(self):
        return [figures.lengths("Place in a document", self._counts, "sentences")]


ROWS = (INSTANCES, LoneSentences), (INSPECTORS, LoneSentenceInspector)

if __name__ in ("__main__", "__mp_main__"):  # workers import it, too
    for table, kind in ROWS:
        table["lone_sentences"] = kind
if __name__ == "__main__":
    import command_line
    import create_pretraining_data as script

    command_line.run(script.main, script.Options)
