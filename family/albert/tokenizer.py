"""What SentencePiece models of ALBERT have in common.

Source: google-research/albert@b772393 README.md, the spm_train command.
"""

import string

from text.tokenizers.sentencepiece_family import SPACE, Family, Symbols
from text.tokenizers.vocabulary import CLS, MASK, SEP, SpecialTokens


def begins_word(piece: str) -> bool:
    """Whether ALBERT's masks treat a piece as the beginning of a word.

    Only pieces of English letters and some punctuation can continue one, so that every
    number, accented letter and character of other scripts is a word.

    Source: google-research/albert@b772393 create_pretraining_data.py,
        _is_start_piece_sp.
    """
    marks = set(string.punctuation) - set("'<=>")
    parts_of_words = marks.union(string.ascii_lowercase)
    return (
        piece.startswith((SPACE, "<"))
        or piece in marks
        or not all(character.lower() in parts_of_words for character in piece)
    )


FAMILY = Family(
    SpecialTokens(("<pad>", "<unk>", CLS, SEP, MASK), continuation=""),
    Symbols(
        {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1},
        (CLS, SEP, MASK),
        ("(", ")", '"', "-", ".", "\u2013", "\u00a3", "\u20ac"),
        30000,
    ),
    begins_word,
    adds_spaces=True,
)
