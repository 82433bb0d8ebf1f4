"""Holds the tokens of a vocabulary, and its special tokens by what they are for.

Also reads the release's vocabulary file: UTF-8, one token per line, whose number from 0 is
the id.
"""

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
from absl import logging

from text.errors import UserError
from text.files import inputs, sources

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
)


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """How a family of models spells its special tokens and lays out a row.

    Attributes:
        names: the tokens for padding, for what is unknown, at the start of a row, at the
            end of a text, and in place of a token to predict; None in the last place if
            nothing is ever hidden. Padding may be what is unknown, too.
        separators: how many end-of-text tokens are between the two texts of a row.
        second_segment: the segment id of the second text.
        continuation: what marks a piece that continues a word.
        end: the token at the end of a row, if it is not that at the end of a text.
    """

    names: tuple[str | None, ...] = SPECIAL_TOKENS
    separators: int = 1
    second_segment: int = 1
    continuation: str = "##"
    end: str | None = None

    @property
    def tokens(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(filter(None, dict.fromkeys((*self.names, self.end))))


class Vocabulary:
    """Tokens, their ids, and the five special ids, which are looked up by name.

    Attributes:
        tokens: list of str, token by id.
        ids: dict of str to int; the later id if a token occurs twice.
        pad_id, unk_id, cls_id, sep_id: ints.
        end_id: int, at the end of a row; nearly always sep_id.
        is_continuation: bool [size], true where a piece continues a word.
        is_joined: bool [size], true where a piece follows another without a space.
        joins_next: bool [size], true where the next piece follows without a space.
        texts: list of str, what each token stands for, without the mark of a continuation.
        continuation, separators, second_segment: see `SpecialTokens`.
        path: where the tokens were read from, or "".
        digest: SHA-256 of the file's bytes in hexadecimal.
    """

    def __init__(
        self,
        tokens: list[str],
        *,
        path: str = "",
        digest: str = "",
        special: SpecialTokens = SpecialTokens(),  # noqa: B008  immutable
        texts: list[str] | None = None,
        is_continuation: Sequence[bool] | None = None,
        is_joined: Sequence[bool] | None = None,
        joins_next: Sequence[bool] | None = None,
    ):
        """Args:
            texts, is_continuation: by default, as the marks of `special` say.
            is_joined: by default, `is_continuation`.
            joins_next: by default, of no piece.
        Raises:
            UserError: a special token is missing.
        """
        self.tokens = tokens
        self.ids = {token: id for id, token in enumerate(tokens)}
        self.path = path
        self.digest = digest
        missing = [token for token in special.tokens if token not in self.ids]
        if missing:
            raise UserError(
                f"{path or 'the vocabulary'}: no line is {' or '.join(missing)}; a "
                f"vocabulary contains {' '.join(special.tokens)}, one token per line"
            )
        if is_continuation is None:
            mark = special.continuation
            is_continuation = [token.startswith(mark) for token in tokens]
            texts = [token.removeprefix(mark) for token in tokens]
        self.is_continuation = np.array(is_continuation)
        self.is_joined = np.array(is_continuation if is_joined is None else is_joined)
        self.joins_next = np.array(joins_next or [False] * len(tokens))
        self.texts = texts
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self._mask_id = (
            self.ids.get(token) for token in special.names
        )
        self.end_id = self.sep_id if special.end is None else self.ids[special.end]
        self.continuation = special.continuation
        self.separators = special.separators
        self.second_segment = special.second_segment

    @property
    def id_type(self) -> np.dtype:
        """The unsigned integers that ids are kept in where there are many of them."""
        return np.dtype(np.uint16 if len(self) <= 1 << 16 else np.uint32)

    @property
    def special_ids(self) -> dict[str, int]:
        """The special ids by BERT's names for them, in the order of SPECIAL_TOKENS."""
        ids = self.pad_id, self.unk_id, self.cls_id, self.sep_id, self._mask_id
        known = zip(SPECIAL_TOKENS, ids, strict=True)
        return {name: id for name, id in known if id is not None}

    @property
    def mask_id(self) -> int:
        """The id in place of a token to predict.

        Raises:
            UserError: there is none.
        """
        if self._mask_id is None:
            raise UserError(self.no_mask)
        return self._mask_id

    @property
    def no_mask(self) -> str:
        """What to say where something is to be masked and there is no such token."""
        return (
            f"{self.path or 'the vocabulary'}: has no token for hidden words, like [MASK], "
            "because its models learn from text without masks"
        )

    @property
    def mask(self) -> str:
        """The token with the id `mask_id`; raises as it does."""
        return self.tokens[self.mask_id]

    @property
    def never_text(self) -> set[int]:
        """The ids that no text becomes, those between and after texts aside."""
        ids = {self.pad_id, self.cls_id, self._mask_id} - {None}
        return ids - {self.unk_id}  # which may be padding, too

    def is_separator(self, ids: np.ndarray) -> np.ndarray:
        """bool [...]: which ids end a text or a row."""
        return (ids == self.sep_id) | (ids == self.end_id)

    @property
    def num_special_tokens(self) -> int:
        """How many special tokens a row of two texts has."""
        return self.separators + 2

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def load(cls, path: str) -> "Vocabulary":
        """Reads a vocabulary file.

        As in the release, lines are stripped (so CRLF is fine), a token that occurs twice
        has its later id (with a warning), and an empty line keeps its id, so that the ids
        after it do not change.

        Raises:
            UserError: the file is empty or not UTF-8, or a special token is missing.
            OSError: the file cannot be read.
        Source: google-research/bert@eedf571 tokenization.py, load_vocab.
        """
        with sources.opened(path) as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        tokens = [line.strip() for line in inputs.lines(path)]
        # Differs from the release: empty lines at the end are not tokens. No text becomes
        # one, but masking could draw their ids, for which the model has no row.
        while tokens and not tokens[-1]:
            tokens.pop()
        if not tokens:
            raise UserError(f"{path}:1: the vocabulary is empty")
        vocabulary = cls(tokens, path=path, digest=digest)
        _report_repeated(vocabulary)
        return vocabulary


def _report_repeated(vocabulary):
    repeated = [
        (id, token)
        for id, token in enumerate(vocabulary.tokens)
        if vocabulary.ids[token] != id
    ]
    if repeated:
        id, token = repeated[0]
        logging.warning(
            "%s:%d: %r is repeated in line %d, and the later line counts; "
            "%d such lines are never used",
            vocabulary.path,
            id + 1,
            token,
            vocabulary.ids[token] + 1,
            len(repeated),
        )
