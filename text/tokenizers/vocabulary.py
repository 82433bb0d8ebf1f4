"""Holds the tokens of a vocabulary, and its special tokens by what they are for.

Also reads the release's vocabulary file: UTF-8, one token per line, whose number from 0 is
the id.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Sequence

import numpy as np
from absl import logging

from errors import UserError
from files import inputs, sources

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS
_UNUSED = re.compile(r"\[unused(\d+)\]")
_MOST_UNUSED = 100  # that stand for parts of a text


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """How a family of models spells its special tokens and lays out a row.

    Attributes:
        names: the tokens for padding, for what is unknown, at the start of a row, at the
            end of a text, and in place of a token to predict; None in the third place if
            rows begin with text, and in the last if nothing is ever hidden. Padding may be
            what is unknown, too.
        separators: how many end-of-text tokens are between the two texts of a row.
        second_segment: the segment id of the second text.
        continuation: what marks a piece that continues a word.
        end: the token at the end of a row, if it is not that at the end of a text.
        cls_last: the third of the names is at the end of a row, after the end of a text.
        last_segment: the segment id of the last token, if it is not that of its text.
        document_first: whether a question comes after its document.
        document_end: the token between two documents of a row, if it is not that at the
            end of a text.
        sentinels: the tokens that stand for parts of a text, the first one first.
    """

    names: tuple[str | None, ...] = SPECIAL_TOKENS
    separators: int = 1
    second_segment: int = 1
    continuation: str = "##"
    end: str | None = None
    cls_last: bool = False
    last_segment: int | None = None
    document_first: bool = False
    document_end: str | None = None
    sentinels: tuple[str, ...] = ()

    @property
    def tokens(self) -> tuple[str, ...]:
        """All but the sentinels, each once."""
        names = dict.fromkeys((*self.names, self.end, self.document_end))
        return tuple(filter(None, names))


class Vocabulary:
    """Tokens, their ids, and the five special ids, which are looked up by name.

    Attributes:
        tokens: list of str, token by id.
        ids: dict of str to int; the later id if a token occurs twice.
        pad_id, unk_id, sep_id: ints.
        end_id: int, at the end of a row; nearly always sep_id.
        document_end_id: int, between two documents of a row; nearly always sep_id.
        head, between, tail: tuples of the ids before the first text of a row, between its
            two, and after the last one.
        is_continuation: bool [size], true where a piece continues a word.
        is_joined: bool [size], true where a piece follows another without a space.
        joins_next: bool [size], true where the next piece follows without a space.
        texts: list of str, what each token stands for, without the mark of a continuation.
        continuation, separators, second_segment, last_segment, document_first: see
            `SpecialTokens`.
        path: where the tokens were read from, or "".
        digest: SHA-256 of the file's bytes in hexadecimal.
        files: the bytes of the files that it was read from, by the names that its kind has
            for them; none if it was made.
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
        """Where the last four are not given, the marks of `special` say what continues
        a word;
        no other piece is joined to one.
        """
        self.tokens = tokens
        self.ids = {token: id for id, token in enumerate(tokens)}
        self.path = path
        self.digest = digest
        self.files = {}
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
        self.pad_id, self.unk_id, self._cls_id, self.sep_id, self._mask_id = (
            self.ids.get(token) for token in special.names
        )
        self.end_id = self.ids.get(special.end, self.sep_id)
        self.document_end_id = self.ids.get(special.document_end, self.sep_id)
        self.head, self.tail = (), (self.end_id,)
        if self.has_cls:
            self.head = (self.cls_id,)
        if special.cls_last:
            self.end_id = self.cls_id
            self.head, self.tail = (), (self.sep_id, self.cls_id)
        self.between = (self.sep_id,) * special.separators
        self._sentinels = special.sentinels
        self.continuation = special.continuation
        self.separators = special.separators
        self.second_segment = special.second_segment
        self.last_segment = special.last_segment
        self.document_first = special.document_first

    @property
    def id_type(self) -> np.dtype:
        """The unsigned integers that ids are kept in where there are many of them."""
        return np.dtype(np.uint16 if len(self) <= 1 << 16 else np.uint32)

    @property
    def special_ids(self) -> dict[str, int]:
        """The special ids by BERT's names for them, in the order of SPECIAL_TOKENS."""
        ids = self.pad_id, self.unk_id, self._cls_id, self.sep_id, self._mask_id
        pairs = zip(SPECIAL_TOKENS, ids, strict=True)
        return {name: id for name, id in pairs if id is not None}

    @property
    def cls_id(self) -> int:
        """The id at the start of a row; raises UserError if there is none."""
        if self._cls_id is None:
            raise UserError(
                f"{self.path or 'the vocabulary'}: has no token at the start of a row, "
                "like [CLS], because its models read a text and write another; "
                "use the vocabulary of an encoder"
            )
        return self._cls_id

    @property
    def has_cls(self) -> bool:
        """Whether rows begin with a token of their own; otherwise, with text."""
        return self._cls_id is not None

    @property
    def mask_id(self) -> int:
        """The id in place of a token to predict; raises UserError if there is none."""
        if self._mask_id is None:
            raise UserError(self.no_mask)
        return self._mask_id

    @property
    def no_mask(self) -> str:
        """What to say where something is to be masked and there is no such token."""
        return (
            f"{self.path or 'the vocabulary'}: has no token for hidden words, like [MASK], "
            "because its models learn without one"
        )

    @property
    def mask(self) -> str:
        """The token with the id `mask_id`; raises as it does."""
        return self.tokens[self.mask_id]

    @property
    def never_text(self) -> set[int]:
        """The ids that no text becomes, those between and after texts aside."""
        ids = {self.pad_id, self._cls_id, self._mask_id} - {None}
        return ids - {self.unk_id}  # which may be padding, too

    @property
    def sentinels(self) -> list[int]:
        """The ids of the tokens that stand for parts of a text, the first one first.

        A vocabulary without any has up to 100 [unusedN] for that, the last one first.
        """
        ids = [self.ids[token] for token in self._sentinels if token in self.ids]
        if not ids:
            unused = filter(None, map(_UNUSED.fullmatch, self.tokens))
            numbers = sorted({int(match[1]) for match in unused}, reverse=True)
            ids = [self.ids[f"[unused{number}]"] for number in numbers[:_MOST_UNUSED]]
        if not ids:
            raise UserError(
                f"{self.path or 'the vocabulary'}: has no tokens that can stand for what "
                "is left out of a text, [unusedN] or <extra_id_N>; learn one that has them "
                "with build_vocab.py --num_unused=100, or --special_tokens of such a model"
            )
        return ids

    def text_of(self, ids: Iterable[int]) -> str:
        """What ids of pieces stand for, as text.

        Pieces are joined as their marks say, so that WordPiece leaves spaces around
        punctuation: "it ' s". It ends before the end of the row, if that is among the ids.
        Special tokens stand for nothing, but an unknown one for itself.
        """
        spelled, joins, silent = "", False, self.never_text | {self.sep_id}
        for id in ids:
            if id == self.end_id:
                break
            id = id if id < len(self) else self.unk_id  # a model may have more rows
            if id in silent:
                continue
            is_apart = spelled and not (joins or self.is_joined[id])
            spelled += " " * bool(is_apart) + self.texts[id]
            joins = self.joins_next[id]
        return spelled

    def is_separator(self, ids: np.ndarray) -> np.ndarray:
        """bool [...]: which ids end a text, a document or a row."""
        ends = ids == self.document_end_id
        return ends | (ids == self.sep_id) | (ids == self.end_id)

    @property
    def num_special_tokens(self) -> int:
        """How many special tokens a row of two texts has; one of one text has two."""
        return len(self.head) + self.separators + len(self.tail)

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def load(cls, path: str, content: bytes | None = None) -> "Vocabulary":
        """Reads a vocabulary file, or its content, if that is known.

        As in the release, lines are stripped (so CRLF is fine), a token that occurs twice
        has its later id (with a warning), and an empty line keeps its id, so that the ids
        after it do not change.

        Source: google-research/bert@eedf571 tokenization.py, load_vocab.
        """
        if content is None:
            content = sources.content(path)
        tokens = [line.strip() for line in inputs.lines(path, block=content)]
        # Differs from the release: empty lines at the end are not tokens. No text becomes
        # one, but masking could draw their ids, for which the model has no row.
        while tokens and not tokens[-1]:
            tokens.pop()
        if not tokens:
            raise UserError(f"{path}:1: the vocabulary is empty")
        if odd := [id for id, token in enumerate(tokens) if "\0" in token]:
            raise UserError(
                f"{path}:{odd[0] + 1}: contains a NUL character; a vocabulary is text, one "
                "token per line"
            )
        digest = hashlib.sha256(content).hexdigest()
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
