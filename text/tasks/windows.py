"""Cuts documents of many tokens into windows that share a row with a question."""

import dataclasses
import functools

import numpy as np

from errors import UserError
from text.instances import packing
from text.tokenizers.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Lengths:
    """How a question and a document share a row, all in tokens.

    Attributes:
        max_seq_length: of the whole row, `[CLS] question [SEP] window [SEP]`.
        document_first: the row is `window [SEP] question [SEP] [CLS]`.
        cls_last: the last token of the row stands for "no answer", not the first.
        doc_stride: from the start of one window to that of the next; a shorter window is
            followed by the next without a gap.
        max_query_length: the length to which longer questions are cut.
        num_special_tokens: of a row.
    Raises:
        UserError: a row has no room for a window, or windows would not advance.
    """

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64
    num_special_tokens: int = packing.NUM_SPECIAL_TOKENS
    document_first: bool = False
    cls_last: bool = False

    def __post_init__(self):
        if self.max_query_length < 1:
            raise UserError(
                f"--max_query_length={self.max_query_length}: must be at least 1"
            )
        if self.window(self.max_query_length) < 1:
            raise UserError(
                f"--max_seq_length={self.max_seq_length}: must be at least "
                f"{self.max_query_length + self.num_special_tokens + 1} to fit "
                f"--max_query_length={self.max_query_length}, "
                f"{self.num_special_tokens} special tokens and 1 document token"
            )
        if self.doc_stride < 1:
            raise UserError(f"--doc_stride={self.doc_stride}: must be at least 1")

    def in_rows_of(self, vocabulary: Vocabulary) -> "Lengths":
        """The same for the rows of a vocabulary."""
        return dataclasses.replace(
            self,
            num_special_tokens=vocabulary.num_special_tokens,
            document_first=vocabulary.document_first,
            cls_last=not vocabulary.head,
        )

    @property
    def always_overlap(self) -> bool:
        """Whether windows overlap for every question."""
        return self.doc_stride < self.window(self.max_query_length)

    def window(self, num_query_tokens: int) -> int:
        """The most tokens of a document that fit after a question of this length."""
        return self.max_seq_length - num_query_tokens - self.num_special_tokens


@functools.lru_cache(maxsize=1 << 14)  # many questions of one length share a document
def windows(num_tokens: int, length: int, stride: int) -> tuple[tuple[int, ...], ...]:
    """Windows over a document, and which of them owns each token.

    A token in several windows belongs to the one where the shorter of its two sides is
    longest; on a tie, to the earlier one. A shorter last window has a disadvantage of 0.01
    per missing token.

    Args:
        length: of every window but the last.
        stride: from start to start; if it is `length` or more, windows are adjacent.
    Returns:
        for each window, the token numbers `first, stop, own_first, own_stop`; the owned
        ranges are adjacent.
    Source: google-research/bert@eedf571 run_squad.py, convert_examples_to_features,
        _check_is_max_context.
    """
    if not num_tokens:
        return ()
    stride = min(stride, length)
    starts = range(0, max(num_tokens - length, 0) + stride, stride)
    most = np.full(num_tokens, -1.0)
    owner = np.zeros(num_tokens, np.int64)
    for index, start in enumerate(starts):
        place = np.arange(min(length, num_tokens - start))
        # float64 and in this order, so that ties fall as in the release.
        context = np.minimum(place, place[::-1]) + 0.01 * len(place)
        covered = slice(start, start + len(place))
        better = context > most[covered]
        most[covered][better] = context[better]
        owner[covered][better] = index
    bounds = owner.searchsorted(range(len(starts) + 1)).tolist()
    return tuple(
        (start, min(start + length, num_tokens), bounds[index], bounds[index + 1])
        for index, start in enumerate(starts)
    )
