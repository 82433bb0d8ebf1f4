"""Checks and counts the rows of contiguous."""

from collections.abc import Iterator

from text.inspection.inspector import Inspector, Rule


class ContiguousInspector(Inspector):
    """Rows that continue those of the batch before."""

    sides = ("A", "B")
    long_sentences = "are divided"

    def rules(self, batch, text) -> Iterator[Rule]:
        columns, reuse = text.columns, self.instances.reuse
        yield Rule(
            "input_mask", batch["input_mask"] != 1, "must be 1: rows are always full"
        )
        is_sep = text.ids == self.vocabulary.sep_id
        first, last = is_sep.argmax(axis=1)[:, None], len(columns) - 2
        yield Rule(
            "input_ids",
            is_sep != ((columns == first) | (columns == last)),
            "must be [SEP] after A and after B, and nowhere else",
        )
        yield Rule(
            "input_ids",
            (columns == first) & ((first <= reuse) | (first >= last - 1)),
            f"must be a token of A after the first {reuse}, and one of B",
        )
        segments = "must be 0 up to the first [SEP], 1 up to the second"
        yield self.segment_rule(batch, text, columns > first, segments)

    def report(self, counts, passes) -> list[str]:
        number, rows = counts["instances"], self.options.rows_per_batch
        return [
            f"{number // rows:,} batches of {rows} rows, each of which continues that of "
            f"the batch before; {counts['random_second'] / number:.1%} of the second texts "
            "are from elsewhere"
        ]
