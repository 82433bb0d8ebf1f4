"""Learns WordPiece vocabularies."""

import tokenizers

from errors import UserError
from text.tokenizers import word_counts
from text.tokenizers.vocabulary import CLS, MASK, PAD, SEP, SPECIAL_TOKENS, UNK
from text.tokenizers.word_by_word import Splitter
from text.tokenizers.word_counts import WordCounts
from text.tokenizers.wordpiece import WordSplitter

_UNUSED_BEFORE_SPECIALS = 99  # as in the release, whose [UNK] is 100


def learn(
    counts: WordCounts,
    splitter: WordSplitter,
    *,
    vocab_size: int,
    num_unused: int,
    min_character_count: int,
    min_frequency: int,
) -> list[str]:
    """Learns the whole vocabulary, in the order of its file.

    [PAD] comes first, then [unusedN] and the other special tokens as in the released files,
    then the characters (all of ASCII, others if frequent enough) that begin a word and,
    with ##, those that continue one, then the pieces joined from them, most frequent first.

    Raises:
        UserError: vocab_size has no room for the characters.
    """
    characters = frequent_characters(counts, splitter, min_character_count)
    joining = [c for c in characters if len(splitter.words("a" + c)) == 1]
    alphabet = characters + ["##" + character for character in joining]
    unused = [f"[unused{number}]" for number in range(num_unused)]
    room = vocab_size - len(SPECIAL_TOKENS) - len(unused)
    if room < len(alphabet):
        raise UserError(
            f"--vocab_size={vocab_size} is too small: {len(SPECIAL_TOKENS)} "
            f"special tokens, {len(unused)} [unusedN] tokens and {len(alphabet)} for "
            f"characters need {vocab_size - room + len(alphabet)}; raise it or "
            "--min_character_count, or lower --num_unused"
        )
    pieces = _join_word_pieces(counts.words, alphabet, room, min_frequency)
    first, rest = unused[:_UNUSED_BEFORE_SPECIALS], unused[_UNUSED_BEFORE_SPECIALS:]
    return [PAD, *first, UNK, CLS, SEP, MASK, *rest, *pieces]


def frequent_characters(
    counts: WordCounts, splitter: Splitter, min_character_count: int
) -> list[str]:
    """All of ASCII that words have, and what else occurs this often; sorted."""
    # All of ASCII: a corpus may lack an @ or a digit that the next text contains.
    ascii_words = splitter.words(" ".join(map(chr, range(128))))
    frequent = {
        character
        for character, count in counts.characters.items()
        if count >= min_character_count
        and not "\ud800" <= character <= "\udfff"  # UTF-8 cannot encode surrogates
    }
    return sorted(frequent.union(ascii_words))


def _join_word_pieces(words, alphabet, size, min_frequency):
    """The alphabet, and the pieces joined from it."""
    model = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=UNK))
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        # Equally frequent pairs are joined in the order of their ids. The trainer would
        # number the ## characters in the order of its hash table, which changes with every
        # run; special tokens are numbered in the order in which they are passed.
        special_tokens=alphabet,
        show_progress=False,
    )
    word_counts.train(model, trainer, words, set(alphabet).issuperset)
    ids = model.get_vocab()
    return sorted(ids, key=ids.get)
