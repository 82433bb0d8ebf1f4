"""Checks and counts the rows of electra."""

from text.inspection.row_inspectors import TwoSides


class SegmentInspector(TwoSides):
    """One segment or two."""

    may_have_one = True
    separators_rule = "must be [SEP] at the end of each segment, and nowhere else"
    sides_rule = "must have one segment or two, each with tokens before its [SEP]"
    segments_rule = "must be 0 in the first segment and 1 in the second"

    def report(self, counts, passes) -> list[str]:
        number, cut = counts["instances"], counts["truncated_tokens"]
        filled = counts["instance_tokens"] / (number * self.options.max_seq_length)
        return [
            f"{filled:.1%} of the positions contain a token; "
            f"{counts['one_segment'] / number:.1%} of the records have one segment; "
            f"{cut / (cut + counts['instance_tokens']):.1%} of the tokens did not fit"
        ]
