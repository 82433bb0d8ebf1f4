"""Reads the vocabulary file, and looks up the ids of the special tokens.

The file is the release's: UTF-8, one token per line, whose number from 0 is the id.
"""

import hashlib

import numpy as np
from absl import logging

from text.errors import UserError
from text.files import inputs

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
)


class Vocabulary:
    """Tokens, their ids, and the five special ids, which are looked up by name.

    Attributes:
        tokens: list of str, token by id.
        ids: dict of str to int; the later id if a token occurs twice.
        pad_id, unk_id, cls_id, sep_id, mask_id: ints.
        is_continuation: bool [size], true where a piece continues a word.
        path: where the tokens were read from, or "".
        digest: SHA-256 of the file's bytes in hexadecimal.
    """

    def __init__(self, tokens: list[str], *, path: str = "", digest: str = ""):
        """Raises:
        UserError: a special token is missing.
        """
        self.tokens = tokens
        self.ids = {token: id for id, token in enumerate(tokens)}
        self.path = path
        self.digest = digest
        missing = [token for token in SPECIAL_TOKENS if token not in self.ids]
        if missing:
            raise UserError(
                f"{path or 'the vocabulary'}: no line is {' or '.join(missing)}; a "
                f"vocabulary contains {' '.join(SPECIAL_TOKENS)}, one token per line"
            )
        self.is_continuation = np.array([token.startswith("##") for token in tokens])
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self.ids[token] for token in SPECIAL_TOKENS
        )

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
        with open(path, "rb") as file:
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
