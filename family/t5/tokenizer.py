"""What SentencePiece models of T5 have in common, and the tokens added to them.

Source: google/seqio@b898b9f seqio/vocabularies.py, SentencePieceVocabulary.
"""

from text.tokenizers.sentencepiece_family import SPACE, Family, Symbols
from text.tokenizers.vocabulary import SpecialTokens

FAMILY = Family(
    SpecialTokens(
        ("<pad>", "<unk>", None, "</s>", None),
        continuation="",
        sentinels=tuple(f"{SPACE}<extra_id_{number}>" for number in range(100)),
    ),
    Symbols({"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}, (), (), 32000),
    splits_numbers=False,
    keeps_text=True,
    unknown=" \u2047 ",
)
