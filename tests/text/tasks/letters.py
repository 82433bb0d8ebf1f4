"""A small vocabulary of letters and words."""

from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece


def letters(**switches):
    """A tokenizer that knows the letters, and some words whole."""
    singles = [chr(point) for point in range(0x61, 0x7B)]
    words = ["the", "of", "in", "cat", "dog", "japanese", "1895", "1943", "(", ")", "."]
    words += ["-", ",", "\ud55c", "##\uad6d", "\ud55c\uad6d", "##\uc5b4", "\u4e2d"]
    pieces = [*singles, *(f"##{single}" for single in singles), *words]
    return WordPiece(Vocabulary([*SPECIAL_TOKENS, *pieces]), **switches)
