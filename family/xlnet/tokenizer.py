"""What SentencePiece models of XLNet have in common.

Source: zihangdai/xlnet@bbaa3a6 README.md, the spm_train command.
"""

import string

from text.tokenizers.sentencepiece_family import SPACE, Family, Symbols
from text.tokenizers.vocabulary import SpecialTokens


def begins_word(piece: str) -> bool:
    """Whether XLNet treats a piece as the beginning of a word.

    Source: zihangdai/xlnet@bbaa3a6 data_utils.py, _is_start_piece.
    """
    return piece.startswith((SPACE, "<")) or (
        len(piece) == 1 and piece in string.punctuation and piece not in "'<=>"
    )


FAMILY = Family(
    SpecialTokens(
        ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>"),
        continuation="",
        cls_last=True,
        last_segment=2,
        document_first=True,
        document_end="<eod>",
    ),
    Symbols(
        {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1},
        ("<cls>", "<sep>", "<pad>", "<mask>", "<eod>"),
        ("<eop>", ".", "(", ")", '"', "-", "\u2013", "\u00a3", "\u20ac"),
        32000,
    ),
    begins_word,
    do_lower_case=False,
    joins_quotes=True,
)
