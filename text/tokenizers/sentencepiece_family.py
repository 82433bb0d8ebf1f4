"""Describes what SentencePiece models with the same special tokens have in common.

KoBERT, which is BERT with such a model, is described here; BERT's relatives bring theirs as
rows of `Extension.piece_models`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

from text.tokenizers import sentencepiece_files
from text.tokenizers.cleaner import Cleaner, Verbatim
from text.tokenizers.vocabulary import CLS, MASK, PAD, SEP, UNK, SpecialTokens

SPACE = "\u2581"


class Symbols(NamedTuple):
    """The pieces of a model that are not learned.

    Attributes:
        ids: of the pieces that the trainer knows; -1 for none. The others follow.
        control: no text becomes these.
        user: these are pieces of their own wherever they occur.
        vocab_size: how many pieces the released models have.
        names: of the pieces that the trainer knows, where they are not its own.
    """

    ids: Mapping[str, int]
    control: tuple[str, ...]
    user: tuple[str, ...]
    vocab_size: int
    names: Mapping[str, str] = {}

    @property
    def number(self) -> int:
        built_in = sum(id >= 0 for id in self.ids.values())
        return built_in + len(self.control) + len(self.user)


def begins_with_space(piece: str) -> bool:
    """Whether a piece follows a space."""
    return piece.startswith(SPACE)


@dataclasses.dataclass(frozen=True)
class Family:
    """What models with these special tokens have in common.

    Attributes:
        special: their special tokens, by which a model is recognized. Its sentinels are
            added to the pieces of the file.
        symbols: what the models have besides the pieces that are learned.
        begins_word: piece -> whether it begins a word for whole-word masks.
        do_lower_case: whether the released models are for lowercased text.
        joins_quotes: see `Cleaner`.
        splits_numbers: whether a piece that ends in a digit and a comma is replaced by the
            pieces of the number and the comma.
        adds_spaces: whether the number then has the \u2581 of a new text even inside a
            word.
        keeps_text: whether the model gets text as it is, whatever the flags say.
        unknown: how an unknown piece is written in a text.
    """

    special: SpecialTokens
    symbols: Symbols
    begins_word: Callable[[str], bool] = begins_with_space
    do_lower_case: bool = True
    joins_quotes: bool = False
    splits_numbers: bool = True
    adds_spaces: bool = False
    keeps_text: bool = False
    unknown: str | None = None

    def cleaner(self, do_lower_case: bool | None, strip_accents: bool) -> Cleaner:
        """The cleaner of texts; `do_lower_case` is None for that of the released models."""
        if self.keeps_text:
            return Verbatim()
        if do_lower_case is None:
            do_lower_case = self.do_lower_case
        return Cleaner(do_lower_case, strip_accents, self.joins_quotes)

    def extend(self, model: bytes, tokens: list[str]) -> bytes:
        """A model, which has these tokens, with the sentinels at the end, the first one
        last.
        """
        present = set(tokens)
        new = (x for x in reversed(self.special.sentinels) if x not in present)
        return sentencepiece_files.extend(model, new)


# Source: SKTBrain/KoBERT@11d0c20 kobert_hf/kobert_tokenizer/kobert_tokenizer.py.
KOBERT = Family(
    SpecialTokens(continuation=""),
    Symbols(
        {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3},
        (MASK,),
        (),
        8002,
        {"unk_piece": UNK, "pad_piece": PAD, "bos_piece": CLS, "eos_piece": SEP},
    ),
    do_lower_case=False,
    joins_quotes=True,
)
